"""``blicer benchmark``: many setups in one go, one table of results, a report."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from blicer.cli import app
from blicer.cli.options import assigned
from blicer.errors import InputError

benchmark = typer.Typer(
    name="benchmark",
    help="Measure many setups in one go: pairs, seed sizes, spaces, encoders, templates, alphas.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(benchmark)


def _option(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, **more)


@benchmark.command()
def run(
    ctx: typer.Context,
    dataset: Annotated[str, typer.Argument(help="xling, panlex, muse, or a folder of your own.")],
    output: Annotated[Path, _option("Folder of the results.", "--output", "-o")],
    pairs: Annotated[str, _option("Such as en-fr,en-ru; both directions are measured.")],
    data: Annotated[
        Path, _option("Folder of xling/, panlex/, muse/, vectors/, as `blicer data get` fills it.")
    ] = Path("data"),
    setups: Annotated[str, _option("Seed sizes (5k,1k,500), unsupervised, zero-shot.")] = "5k,1k",
    spaces: Annotated[
        str, _option("Methods of `blicer align`, or METHOD:MODE (vecmap:semi_supervised).")
    ] = "procrustes,vecmap,rcsls,c1",
    encoders: Annotated[str, _option("lite (if not given), Hugging Face names, or folders.")] = "",
    templates: Annotated[str, _option("T1,T15 …; the encoder's own if not given.")] = "",
    alphas: Annotated[str, _option("0,0.5,1 …; the setup's own if not given.")] = "",
    training_seeds: Annotated[str, _option("Seeds of the training: 33,34 …")] = "33",
    systems: Annotated[
        str,
        _option(
            "space, use, use+spelling, untuned, tuned, tuned+endings, no encoder, blicer, all; if "
            "not given: space, tuned, and what `blicer train` does with the encoder."
        ),
    ] = "",
    max_words: Annotated[int, _option("Words read a language.", min=1)] = 200_000,
    pivot: Annotated[str, _option("The language between, for zero-shot.")] = "en",
    settings: Annotated[
        list[str] | None, _option("One setting, NAME=VALUE; may be repeated.", "--set")
    ] = None,
    jobs: Annotated[int, _option("Units at a time; fewer if memory is short.", min=1)] = 1,
    threads: Annotated[int, _option("Threads of a unit; 0: cores divided by jobs.", min=0)] = 0,
    ray: Annotated[
        str | None,
        _option(
            "Address of a Ray cluster to run on, auto for the one that this machine belongs to, or "
            "local. Data and OUTPUT must have the same path on every node.",
            metavar="ADDRESS",
        ),
    ] = None,
    slurm: Annotated[
        bool, _option("Submit one Slurm job array, and wait for it.", "--slurm")
    ] = False,
    slurm_options: Annotated[
        list[str] | None,
        _option("With --slurm: partition=gpu, time=240 …; repeatable.", "--slurm-set"),
    ] = None,
    units_per_job: Annotated[int, _option("With --slurm: units a job, in turn.", min=1)] = 1,
    cpus_per_unit: Annotated[float, _option("With --ray, --slurm: cores.", min=0.1)] = 1,
    gpus_per_unit: Annotated[
        float, _option("With --ray, --slurm: GPUs; with --ray 0.5 shares one.", min=0)
    ] = 0,
    part: Annotated[
        str | None,
        _option("Only part I of N of the units, such as 2/8; see merge.", "--shard", metavar="I/N"),
    ] = None,
    dry_run: Annotated[bool, _option("List the units and run nothing.", "--dry-run")] = False,
) -> None:
    """Measure every combination; the same command goes on where a killed run stopped.

    Each finished unit is a file in OUTPUT/units; OUTPUT/results.tsv has a row for each unit,
    direction and system. What failed is listed, tried again by the next run, and does not stop
    the rest.

    A folder of your own holds PAIR/train.SIZE.tsv and PAIR/test.tsv (en-fr/train.5k.tsv) and
    vectors/LANGUAGE.vec (also .npy with .vocab.txt, .vec.gz, .bin, wiki.LANGUAGE.vec,
    cc.LANGUAGE.300.vec.gz). A dictionary of the other order (fr-en for en-fr) is turned.

    On several machines: give each another `--shard` and a folder of its own, and then
    `blicer benchmark merge` them; or one folder that all of them see.

    Example: `blicer benchmark run xling --data data --pairs en-fr,en-ru --setups 5k,1k
    --spaces procrustes,vecmap -o results/xling`
    """
    from dataclasses import replace

    from blicer.benchmark.plan import LISTS, Dataset, Matrix, label, make_units, shard
    from blicer.benchmark.report import summary
    from blicer.benchmark.results import DONE, Results, load_units
    from blicer.benchmark.run import RayPool, attempt, local_pool, run_on_slurm, run_units
    from blicer.config import parse_assignments
    from blicer.progress import note

    if slurm and ray is not None:
        raise InputError("give either --ray or --slurm, not both")
    array = assigned("--slurm-set", slurm_options, "NAME=VALUE")
    if slurm and "time" not in array:
        raise InputError("--slurm needs the minutes of a job: --slurm-set time=240")
    found, results = Dataset.find(dataset, data), Results(output)
    lists = {name: ctx.params[name] for name in LISTS}
    given = parse_assignments(settings or [])
    matrix = Matrix.parse(lists, max_words=max_words, pivot=pivot, settings=given)
    if not dry_run:
        results.prepare()
    units, problems = make_units(matrix, found)
    if part is not None:
        units = shard(units, part)
    left = [replace(unit, systems=names) for unit in units if (names := results.missing(unit))]
    count = f"{len(units)} unit{'s' * (len(units) != 1)}, {len(units) - len(left)} done"
    if dry_run:
        waiting = {unit.key for unit in left}
        for unit in units:
            state = "to do" if unit.key in waiting else "done"
            typer.echo(f"{unit.key}\t{state}\t{unit.label}\t{','.join(unit.systems)}")
        for problem in problems:
            typer.echo(f"\tmissing\t{problem}")
        typer.echo(f"{count}, {len(left)} to do")
        return
    note(count)
    ended: list[dict[str, Any]] = []
    if left:
        found = replace(found, folder=found.folder.resolve())
        work, home = results.work.resolve(), Path.cwd()
        job: Any = partial(attempt, dataset=found, work=work, home=home)
        if ray is not None or slurm:
            job = partial(job, threads=max(1, int(cpus_per_unit)))
        if slurm:
            needs: dict[str, Any] = {"cpus_per_task": math.ceil(cpus_per_unit)}
            needs |= {"gpus_per_node": math.ceil(gpus_per_unit)} if gpus_per_unit else {}
            needs |= {f"slurm_{key}": int(x) if x.isdigit() else x for key, x in array.items()}
            ended = run_on_slurm(left, job, results, units_per_job=units_per_job, parameters=needs)
        else:
            pool: Any = (
                local_pool(job, left, found, jobs, threads)
                if ray is None
                else RayPool(job, ray, cpus=cpus_per_unit, gpus=gpus_per_unit)
            )
            ended = run_units(left, pool, results)
    # A failure that left earlier figures in place is only among those that ended now.
    keys = {unit.key for unit in units}
    known = [result for result in load_units(results.folder) if result["key"] in keys]
    if any(result["status"] == DONE for result in known):
        typer.echo(summary(results.folder, keys))
    failed = {result["key"]: result for result in (*known, *ended) if result["status"] != DONE}
    said = [f"{key} {label(one['unit'])}: {one['error']}" for key, one in failed.items()]
    if lines := [*said, *problems]:
        typer.echo("\n".join([f"\n{len(lines)} failed:", *(f"  {one}" for one in lines)]))
    report(results.folder)
    if lines:
        raise typer.Exit(1)


@benchmark.command()
def report(
    output: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the results.")],
) -> None:
    """Write OUT/results.tsv, OUT/report.md and OUT/report.html again from what is finished."""
    from blicer.benchmark.report import write_report
    from blicer.benchmark.results import Results

    results = Results(output)
    results.write_table()
    paths = [results.table, *write_report(output)]
    typer.echo(f"wrote {', '.join(map(str, paths))}")


@benchmark.command()
def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Of the shards.")],
    output: Annotated[Path, _option("Folder of all results.", "--output", "-o")],
) -> None:
    """Bring the results of shards together in one folder, with its table and report.

    Of two measurements of one system the later counts; a failure never replaces figures.

    Example: `blicer benchmark merge shard1 shard2 -o results`
    """
    from blicer.benchmark.results import load_units
    from blicer.benchmark.results import merge as merge_units
    from blicer.progress import note

    if damaged := merge_units(folders, output):
        note(f"{damaged} damaged files were left out")
    typer.echo(f"{len(load_units(output))} units of {len(folders)} folders")
    report(output)
