"""What a run found, for the terminal: before, after and gain, setups won, mean gains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blicer.benchmark.report_cells import SPACE, Cell, Scores, main_cells, make_cells
from blicer.benchmark.report_details import variant_texts, varying_names
from blicer.benchmark.report_document import NOTHING, percent, plural, points
from blicer.benchmark.report_headline import coverage_text
from blicer.benchmark.report_layout import space_name
from blicer.benchmark.report_runs import newest, read_outcomes
from blicer.benchmark.report_tally import tally
from blicer.benchmark.significance import LEVEL
from blicer.benchmark.unit import DONE, Unit

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def shown_system(cell: Cell) -> str:
    """The default of the encoder if it was measured, else the last that was."""
    names = [name for name in cell.systems if name != SPACE]
    return cell.default if cell.default in names else (names or [""])[-1]


def shown_scores(cell: Cell) -> Scores | None:
    return cell.get(shown_system(cell))


def failures(outcomes: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{outcome['key']} {_label(outcome['unit'])}: {outcome['error']}"
        for outcome in outcomes
        if outcome["status"] != DONE
    ]


def _label(unit: Mapping[str, Any]) -> str:
    return Unit.from_dict(unit).label if unit else "of no known unit"


def print_summary(console: Console, outcomes: Sequence[Mapping[str, Any]]) -> None:
    """The table, and what it comes to."""
    runs, _ = read_outcomes(outcomes)
    cells = make_cells(newest(runs))
    if cells:
        console.print(_table(cells))
        for line in verdict(cells):
            console.print(line, markup=False)
    dropped = {f"{name}: {why}" for outcome in outcomes for name, why in outcome["dropped"].items()}
    said = {f"{run.pair} {run.setup}: {remark}" for run in runs for remark in run.remarks}
    for sentence in [*sorted(said), *(f"left out {one}" for one in sorted(dropped))]:
        console.print(sentence, markup=False, soft_wrap=True)


def _table(cells: Sequence[Cell]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    varying = varying_names([cell.variant for cell in cells])
    table = Table(
        title="P@1 before and after reranking, per cent",
        caption=f"* the gain is significant (paired bootstrap over the queries, p < {LEVEL})",
        box=SIMPLE_HEAD,
        padding=0,  # a direction in one line of 80 columns
        pad_edge=False,
    )
    for head in ("direction", "setup", "space", *varying, "system"):
        table.add_column(head.replace("_", " "), overflow="fold")
    for head in ("before", "after", "gain", "95 %"):
        table.add_column(head, justify="right", no_wrap=True)
    for cell in cells:
        space = cell.get(SPACE)
        scores = shown_scores(cell) or Scores()
        place, p_value = cell.place, scores.p_value
        star = "*" if p_value is not None and p_value < LEVEL else " "
        table.add_row(
            *(place.direction, place.setup),
            space_name(place.space, place.space_mode, place.setup),
            *variant_texts(cell.variant, varying),
            shown_system(cell) or NOTHING,
            percent(space.mean("p1") if space else None),
            percent(scores.mean("p1")),
            percent(scores.gain, 1, "+") + star,
            f"{percent(scores.mean('low'))} to {percent(scores.mean('high'))}",
        )
    return table


def verdict(cells: Sequence[Cell]) -> list[str]:
    """Setups won of all, and the mean gain of each number of seeds.

    Of several templates, α and settings the usual ones are counted, as in the report.
    """
    counted = main_cells(cells)
    found = tally(counted, shown_scores)
    lines = [coverage_text(counted)]
    if found.all:
        sure = f"{found.significant} significantly (p < {LEVEL})"
        lines.append(f"{found.won} of {found.all} won, {sure}")
    lines += [
        f"mean gain at {setup}: {points(100 * mean.value, 2, '+')} points over {mean.cells}"
        for (_, setup), mean in found.means.items()
    ]
    if others := len(cells) - len(counted):
        lines.append(f"{plural(others, 'other cell')} (templates, α, settings): see the report")
    return lines
