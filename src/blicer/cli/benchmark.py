"""``blicer benchmark``: many setups in one go, one table of results, a report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from blicer.cli import app

if TYPE_CHECKING:
    from blicer.benchmark.results import Results


class _RunByDefault(TyperGroup):
    """``blicer benchmark xling`` is ``blicer benchmark run xling``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


benchmark = typer.Typer(
    name="benchmark",
    cls=_RunByDefault,
    help="Measure many setups in one go: pairs, seed sizes, spaces, encoders, templates, alphas. "
    "Without a command's name, `run` is meant: `blicer benchmark xling ...`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(benchmark)

FEW_WORDS = 200  # of a test dictionary: an interval of some seven points either way


def _option(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, **more)


Data = Annotated[
    Path, _option("Folder of xling/, panlex/, muse/, vectors/, as `blicer data get` fills it.")
]


@benchmark.command()
def run(
    dataset: Annotated[str, typer.Argument(help="xling, panlex, muse, or a folder of your own.")],
    output: Annotated[Path, _option("Folder of the results.", "--output", "-o")],
    pairs: Annotated[str, _option("Such as en-fr,en-ru; both directions are measured.")],
    data: Data = Path("data"),
    setups: Annotated[str, _option("Seed sizes (5k,1k,500), unsupervised, zero-shot.")] = "5k,1k",
    spaces: Annotated[
        str,
        _option("Methods of `blicer align`, or METHOD:MODE (vecmap:semi_supervised), or files."),
    ] = "procrustes,vecmap,rcsls,c1",
    encoders: Annotated[str, _option("lite (if not given), Hugging Face names, or folders.")] = "",
    templates: Annotated[str, _option("T1,T15 …; the encoder's own if not given.")] = "",
    alphas: Annotated[str, _option("0,0.5,1 …; the setup's own if not given.")] = "",
    training_seeds: Annotated[str, _option("Seeds of the training: 33,34 …")] = "33",
    systems: Annotated[
        str,
        _option(
            "space, A, B, untuned, tuned, tuned+endings; if not given: space, tuned, and what "
            "`blicer train` does with the encoder."
        ),
    ] = "",
    ablation: Annotated[
        str,
        _option("Of the paper: encoders, templates, alpha, off-the-shelf or no-template."),
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
    cpus_per_unit: Annotated[float, _option("With --ray: cores of a unit.", min=0.1)] = 1,
    gpus_per_unit: Annotated[float, _option("With --ray: GPUs; 0.5 shares one.", min=0)] = 0,
    keep_rerankers: Annotated[bool, _option("Keep trained models.", "--keep-rerankers")] = False,
    dry_run: Annotated[bool, _option("List the units and run nothing.", "--dry-run")] = False,
) -> None:
    """Measure every combination; the same command goes on where a killed run stopped.

    Each finished unit is a file in OUTPUT/units; OUTPUT/results.tsv has a row for each unit,
    direction and system, with all that is needed to run it again. What failed is listed, tried
    again by the next run, and does not stop the rest.

    A folder of your own holds PAIR/train.SIZE.tsv and PAIR/test.tsv (en-fr/train.5k.tsv) and
    vectors/LANGUAGE.vec (also .npy with .vocab.txt, .vec.gz, .bin, wiki.LANGUAGE.vec,
    cc.LANGUAGE.300.vec.gz); for `--spaces files` also spaces/PAIR.SIZE, as `blicer align` writes
    it. A dictionary of the other order (fr-en for en-fr) is turned.

    Example: `blicer benchmark run xling --data data --pairs en-fr,en-ru --setups 5k,1k
    --spaces procrustes,vecmap -o results/xling`
    """
    from dataclasses import replace

    from blicer.benchmark.plan import Dataset, Digests, Matrix, make_units
    from blicer.benchmark.results import Results
    from blicer.benchmark.run import RayPool, attempt, local_pool, run_units
    from blicer.config import parse_assignments
    from blicer.progress import note

    found, results = Dataset.find(dataset, data), Results(output)
    if not dry_run:
        results.prepare()
    lists = {"pairs": pairs, "setups": setups, "spaces": spaces, "encoders": encoders}
    lists |= {"templates": templates, "alphas": alphas, "training_seeds": training_seeds}
    lists["systems"] = systems
    given = parse_assignments(settings or [])
    matrix = Matrix.parse(lists, ablation, max_words=max_words, pivot=pivot, settings=given)
    units, problems = make_units(matrix, found, Digests(results.work / "digests.json"))
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
    job = partial(attempt, work=results.work.resolve(), keep_rerankers=keep_rerankers)
    ended: list[dict[str, Any]] = []
    if left and ray is not None:  # the workers start elsewhere
        folder = replace(found, folder=found.folder.resolve())
        job = partial(job, dataset=folder, threads=max(1, int(cpus_per_unit)), home=Path.cwd())
        cluster = RayPool(job, ray, cpus=cpus_per_unit, gpus=gpus_per_unit)
        ended = run_units(left, cluster, results)
    elif left:
        pool = local_pool(partial(job, dataset=found), left, found, jobs, threads)
        ended = run_units(left, pool, results)
    _finish(results, {unit.key for unit in units}, ended, problems)


def _finish(
    results: Results, keys: set[str], ended: list[dict[str, Any]], problems: list[str]
) -> None:
    """Print the summary and the failures and write the report; failures exit with 1."""
    from blicer.benchmark.plan import label
    from blicer.benchmark.results import DONE, load_units

    found = [result for result in load_units(results.folder) if result["key"] in keys]
    if any(result["status"] == DONE for result in found):
        typer.echo("\n".join(_summary(results.folder, keys)))
    # A failure that left earlier figures in place is only among those that ended now.
    failed = {result["key"]: result for result in (*found, *ended) if result["status"] != DONE}
    said = [f"{key} {label(one['unit'])}: {one['error']}" for key, one in failed.items()]
    if said := [*said, *problems]:
        typer.echo("\n".join([f"\n{len(said)} failed:", *(f"  {one}" for one in said)]))
    report(results.folder)
    if said:
        raise typer.Exit(1)


def _summary(folder: Path, keys: set[str]) -> list[str]:
    """P@1 before and after reranking: a line for each direction, then what it comes to.

    "After" is the encoder's default system if it was measured, else the last one that was.
    """
    from blicer.benchmark.cells import VARIANT, main_cells, read, tally
    from blicer.benchmark.results import LEVEL
    from blicer.benchmark.systems import SPACE

    units, _, _, cells = read(folder, keys)
    alone = cells[cells["system"] == SPACE].set_index("cell")["p@1"]
    rank = (cells["system"] != SPACE).astype(int) + cells["default"]
    cells = cells.assign(rank=rank, before=cells["cell"].map(alone), sure=cells["p"] < LEVEL)
    cells = cells.sort_values("rank", kind="stable").drop_duplicates("cell", keep="last")
    cells = cells.sort_index().replace({"sure": {True: "*", False: ""}})
    varying = [name for name in VARIANT if cells[name].nunique() > 1]
    heads = {name: name for name in ("direction", "setup")} | {"space_name": "space"}
    heads |= {name: name.replace("_", " ") for name in (*varying, "system", "before")}
    heads |= {"p@1": "after", "gain": "gain", "sure": "", "gain_low": "95 %:", "gain_high": "to"}
    table = cells[[*heads]].to_string(
        index=False, header=[*heads.values()], float_format="{:.1f}".format, na_rep="-"
    )
    main = main_cells(cells)
    words, shares = main["queries"], main["coverage"]
    lines = [
        f"P@1 before and after reranking, per cent (*: p < {LEVEL}, paired bootstrap)",
        table,
        f"test words in the vocabularies: {words.min():,.0f} to {words.max():,.0f} a direction, "
        f"{shares.min():.0f} to {shares.max():.0f} % of the dictionaries",
    ]
    if words.min() < FEW_WORDS:
        lines.append(f"fewer than {FEW_WORDS} words tell little: read more, or larger, vectors")
    setups = [*dict.fromkeys(zip(main["dataset"], main["setup"], strict=True))]
    if (found := tally(main, setups))["all"]:
        sure = f"{found['significant']} significantly (p < {LEVEL})"
        lines.append(f"{found['won']} of {found['all']} won, {sure}")
        for at, (_, setup) in enumerate(setups):
            gain, count = found[f"gain{at}"], found[f"cells{at}"]
            lines.append(f"mean gain at {setup}: {gain:+.2f} points over {count}")
    if others := len(cells) - len(main):
        lines.append(f"other templates, alphas or settings, see the report: {others} rows")
    for result in units["outcome"]:
        unit, remarks = result["unit"], result.get("remarks") or []
        lines += [f"{unit['source']}-{unit['target']} {unit['setup']}: {one}" for one in remarks]
        lines += [f"left out {name}: {why}" for name, why in result["dropped"].items()]
    return list(dict.fromkeys(lines))


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


@benchmark.command("rerun")
def rerun_command(
    output: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder of the results, or a results.tsv alone.")
    ],
    key: Annotated[str, typer.Argument(metavar="KEY", help="A row's key, or how it begins.")],
    data: Data = Path("data"),
) -> None:
    """Run a row's unit again, from nothing but the row, and say if the figures are the same."""
    from blicer.benchmark.results import DONE, load, unit_rows
    from blicer.benchmark.run import rerun

    rows = unit_rows(load(output), key)
    if differences := rerun(rows, data):
        typer.echo("\n".join(differences))
        raise typer.Exit(1)
    row = rows.iloc[0]
    same = "the same figures" if row["status"] == DONE else "failed before, and done now"
    typer.echo(f"{row['key']}: {same}")
