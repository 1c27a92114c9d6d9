"""``blicer benchmark``: many setups in one go, one table of results, a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from blicer.cli import app

if TYPE_CHECKING:
    from blicer.benchmark.dataset import Dataset
    from blicer.benchmark.plan import Plan
    from blicer.benchmark.pool import Pool
    from blicer.benchmark.results import Results


class _RunUnlessSaid(TyperGroup):
    """``blicer benchmark xling`` is ``blicer benchmark run xling``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


benchmark = typer.Typer(
    name="benchmark",
    cls=_RunUnlessSaid,
    help="Measure many setups in one go: pairs, seed sizes, spaces, encoders, templates, alphas. "
    "Without a command's name, `run` is meant: `blicer benchmark xling ...`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(benchmark)

DatasetArgument = Annotated[
    str, typer.Argument(metavar="DATASET", help="xling, panlex, muse, or a folder of your own.")
]
Data = Annotated[
    Path,
    typer.Option(help="Folder of xling/, panlex/, muse/, vectors/, as `blicer data get` fills it."),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of the results.")]
Pairs = Annotated[str, typer.Option(help="Such as en-fr,en-ru; both directions are measured.")]
Setups = Annotated[
    str, typer.Option(help="Sizes of the seed dictionary (5k,1k,500), unsupervised, zero-shot.")
]
Spaces = Annotated[
    str,
    typer.Option(
        help="procrustes, vecmap, rcsls, c1, c2, each perhaps with a mode "
        "(vecmap:semi_supervised), or files."
    ),
]
Encoders = Annotated[str, typer.Option(help="lite, Hugging Face names, or folders.")]
Templates = Annotated[str, typer.Option(help="T1,T15 …; the encoder's own if not given.")]
Alphas = Annotated[str, typer.Option(help="0,0.5,1 …; the setup's own if not given.")]
Seeds = Annotated[str, typer.Option(help="Seeds of the training: 33,34 …")]
Systems = Annotated[
    str,
    typer.Option(
        help="space, A, B, untuned, tuned, tuned+endings; if not given: space, tuned, and what "
        "`blicer train` does with the encoder."
    ),
]
Ablation = Annotated[
    str,
    typer.Option(
        help="Fill the lists as the paper does: encoders, templates, alpha, off-the-shelf, "
        "no-template."
    ),
]
MaxWords = Annotated[int, typer.Option(min=1, help="Words read a language.")]
Pivot = Annotated[str, typer.Option(help="The language between, for zero-shot.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, NAME=VALUE; may be repeated.")
]
Jobs = Annotated[
    int, typer.Option(min=1, help="Units at a time; fewer if memory does not suffice.")
]
Threads = Annotated[
    int, typer.Option(min=0, help="Threads of a unit; 0: the cores divided by the jobs.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Run the units on a Ray cluster: its address, auto for the one that this machine "
        "belongs to, or local for one of this machine's own. Data and OUTPUT must have the "
        "same path on every node.",
    ),
]
CpusPerUnit = Annotated[float, typer.Option(min=0.1, help="With --ray: cores that a unit needs.")]
GpusPerUnit = Annotated[
    float, typer.Option(min=0, help="With --ray: GPUs that a unit needs; 0.5 shares one.")
]
KeepRerankers = Annotated[
    bool, typer.Option("--keep-rerankers", help="Keep the trained models in OUTPUT/work.")
]


DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what would be run and what is there already; do nothing."),
]


@benchmark.command()
def run(
    dataset: DatasetArgument,
    output: Output,
    pairs: Pairs,
    data: Data = Path("data"),
    setups: Setups = "5k,1k",
    spaces: Spaces = "procrustes,vecmap,rcsls,c1",
    encoders: Encoders = "",
    templates: Templates = "",
    alphas: Alphas = "",
    training_seeds: Seeds = "33",
    systems: Systems = "",
    ablation: Ablation = "",
    max_words: MaxWords = 200_000,
    pivot: Pivot = "en",
    settings: Settings = None,
    jobs: Jobs = 1,
    threads: Threads = 0,
    ray: RayAddress = None,
    cpus_per_unit: CpusPerUnit = 1,
    gpus_per_unit: GpusPerUnit = 0,
    keep_rerankers: KeepRerankers = False,
    dry_run: DryRun = False,
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
    from blicer.benchmark.dataset import Dataset
    from blicer.benchmark.report_document import plural
    from blicer.benchmark.request import local_pool, ray_pool
    from blicer.benchmark.results import Results
    from blicer.benchmark.runner import left_to_do, run_plan
    from blicer.progress import note

    found, results = Dataset.find(dataset, data), Results(output)
    if not dry_run:
        results.prepare()
    plan = _plan(found, results, **_lists(locals()))
    left = left_to_do(plan.tasks, results)
    if dry_run:
        _show(plan, {task.key for task in left})
        return
    note(f"{plural(len(plan.tasks), 'unit')}, {len(plan.tasks) - len(left)} finished")
    if left:
        options = {"keep_rerankers": keep_rerankers}
        pool: Pool
        if ray is None:
            pool = local_pool(found, results, left, jobs, threads, **options)
        else:
            pool = ray_pool(found, results, ray, cpus_per_unit, gpus_per_unit, **options)
        try:
            now = run_plan(left, pool, results)
        except KeyboardInterrupt:
            note("interrupted; what is finished is kept, and the same command goes on from there")
            raise
    else:
        now = []
        results.write_table()
    _finish(plan, results, now)


@benchmark.command()
def report(
    output: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the results.")],
) -> None:
    """Write OUT/results.tsv, OUT/report.md and OUT/report.html again from what is finished."""
    from blicer.benchmark.results import Results
    from blicer.progress import note

    results = Results(output)
    results.outcomes()
    note(f"wrote {', '.join(str(path) for path in [results.write_table(), *_report(results)])}")


@benchmark.command()
def rerun(
    output: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder of the results, or a results.tsv alone.")
    ],
    key: Annotated[str, typer.Argument(metavar="KEY", help="A row's key, or how it begins.")],
    data: Data = Path("data"),
) -> None:
    """Run a row's unit again, from nothing but the row, and say if the figures are the same."""
    from blicer.benchmark.rerun import find_rows, run_again
    from blicer.benchmark.unit import DONE

    before = find_rows(output, key)
    said = run_again(before, data)
    if not said:
        same = "the same figures" if before[0]["status"] == DONE else "failed before, and done now"
        typer.echo(f"{before[0]['key']}: {same}")
        return
    for sentence in said:
        typer.echo(sentence)
    raise typer.Exit(1)


def _lists(options: dict[str, Any]) -> dict[str, Any]:
    """The options that ``_plan`` takes, out of a command's own."""
    from blicer.benchmark.request import LISTS

    names = (*LISTS, "ablation", "max_words", "pivot", "settings")
    return {name: options[name] for name in names}


def _plan(dataset: Dataset, results: Results, **options: Any) -> Plan:
    """The matrix that the options describe, as units."""
    from blicer.benchmark.plan import load_digests, make_plan, save_digests
    from blicer.benchmark.request import read_matrix

    digests = load_digests(results.work)
    planned = make_plan(
        read_matrix(options),
        dataset,
        digests,
    )
    if results.work.is_dir():
        save_digests(results.work, digests)
    return planned


def _show(plan: Plan, left: set[str]) -> None:
    """A line for each unit: its key, whether it is done, what it is."""
    from blicer.benchmark.report_document import plural

    for task in plan.tasks:
        state, systems = "to do" if task.key in left else "done", ",".join(task.unit.systems)
        typer.echo(f"{task.key}\t{state}\t{task.unit.label}\t{systems}")
    for problem in plan.problems:
        typer.echo(f"\tmissing\t{problem}")
    done = len(plan.tasks) - len(left)
    typer.echo(f"{plural(len(plan.tasks), 'unit')}, {done} done, {len(left)} to do")


def _report(results: Results) -> list[Path]:
    from blicer.benchmark.report import write_report

    return list(write_report(results.folder, results.outcomes()))


def _finish(plan: Plan, results: Results, now: Sequence[dict[str, Any]]) -> None:
    """Say how it went; the exit code is 1 if anything of the plan failed.

    ``now``: the outcomes of this run; a failure that leaves earlier figures is only among these.
    """
    from rich.console import Console

    from blicer.benchmark.summary import failures, print_summary
    from blicer.benchmark.unit import DONE

    keys = {task.key for task in plan.tasks}
    outcomes = [outcome for outcome in results.outcomes() if outcome["key"] in keys]
    console = Console(highlight=False, markup=False)
    print_summary(console, outcomes)
    kept = {outcome["key"] for outcome in outcomes if outcome["status"] != DONE}
    earlier = [outcome for outcome in now if outcome["key"] not in kept]
    failed = [*failures(outcomes), *failures(earlier), *plan.problems]
    if failed:
        console.print(f"\n{len(failed)} failed:", markup=False)
        for sentence in failed:
            console.print(f"  {sentence}", markup=False, soft_wrap=True)
    paths = [results.table, *_report(results)]
    console.print(f"\nwrote {', '.join(map(str, paths))}", markup=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)
