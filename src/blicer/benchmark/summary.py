"""What a run found, for the terminal: before, after and gain, setups won, mean gains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blicer.benchmark.systems import SPACE
from blicer.benchmark.unit import DONE, Unit

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Cell:
    """One direction of a unit: its space alone, and what stands beside it by default."""

    direction: str
    unit: Unit
    system: str
    before: float
    after: float
    gain: Mapping[str, float]

    @property
    def significant(self) -> bool:
        return self.gain["p_value"] < SIGNIFICANT


def cells(outcomes: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Every direction of every finished unit that has more than its space."""
    found = []
    for outcome in outcomes:
        name = shown_system(outcome)
        if name is None:
            continue
        unit = Unit.from_dict(outcome["unit"])
        for direction, shown in (
            ("forward", f"{unit.source}-{unit.target}"),
            ("backward", f"{unit.target}-{unit.source}"),
        ):
            before = outcome["systems"][SPACE][direction]["p@1"]
            after = outcome["systems"][name][direction]
            found.append(Cell(shown, unit, name, before, after["p@1"], after["gain"]))
    return found


def shown_system(outcome: Mapping[str, Any]) -> str | None:
    """The default of the encoder if it was measured, else the last that was."""
    systems: Mapping[str, Any] = outcome["systems"]
    names = [name for name in systems if name != SPACE]
    if outcome["status"] != DONE or not names:
        return None
    return next((name for name in names if systems[name]["default"]), names[-1])


def failures(outcomes: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{outcome['key']} {Unit.from_dict(outcome['unit']).label}: {outcome['error']}"
        for outcome in outcomes
        if outcome["status"] != DONE
    ]


def print_summary(console: Console, outcomes: Sequence[Mapping[str, Any]]) -> None:
    """The table, and what it comes to."""
    found = cells(outcomes)
    if found:
        console.print(_table(found))
        for line in verdict(found):
            console.print(line, markup=False)
    dropped = {f"{name}: {why}" for outcome in outcomes for name, why in outcome["dropped"].items()}
    for sentence in sorted(dropped):
        console.print(f"left out {sentence}", markup=False, soft_wrap=True)


def _table(found: Sequence[Cell]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    extra = _varying(found)
    table = Table(
        title="P@1 before and after reranking, per cent",
        caption=f"* the gain is significant (paired bootstrap over the queries, p < {SIGNIFICANT})",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for head in ("direction", "setup", "space", *extra, "system"):
        table.add_column(head.replace("_", " "), overflow="fold")
    for head in ("before", "after", "gain", "95 %"):
        table.add_column(head, justify="right", no_wrap=True)
    for cell in found:
        unit = cell.unit
        space = f"{unit.space}:{unit.space_mode}" if unit.space_mode else unit.space
        low, high = (100 * cell.gain[bound] for bound in ("low", "high"))
        table.add_row(
            *(cell.direction, unit.setup, space),
            *(str(getattr(unit, name)) for name in extra),
            cell.system,
            f"{100 * cell.before:.1f}",
            f"{100 * cell.after:.1f}",
            f"{100 * cell.gain['difference']:+.1f}{'*' if cell.significant else ' '}",
            f"{low:.1f} to {high:.1f}",
        )
    return table


def _varying(found: Sequence[Cell]) -> list[str]:
    """What else tells the rows apart."""
    names = ("dataset", "encoder", "template", "alpha", "training_seed", "max_words", "pivot")
    return [name for name in names if len({str(getattr(cell.unit, name)) for cell in found}) > 1]


def verdict(found: Sequence[Cell]) -> list[str]:
    """Setups won of all, and the mean gain of each setup."""
    won = sum(cell.gain["difference"] > 0 for cell in found)
    sure = sum(cell.gain["difference"] > 0 and cell.significant for cell in found)
    lines = [f"{won} of {len(found)} won, {sure} of them significantly (p < {SIGNIFICANT})"]
    for setup in dict.fromkeys(cell.unit.setup for cell in found):
        gains = [cell.gain["difference"] for cell in found if cell.unit.setup == setup]
        mean = 100 * sum(gains) / len(gains)
        lines.append(f"mean gain at {setup}: {mean:+.2f} points over {len(gains)}")
    return lines
