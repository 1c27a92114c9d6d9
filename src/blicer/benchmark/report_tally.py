"""How often a system wins against its space alone, by how much, and how sure that is."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blicer.benchmark.report_cells import SPACE, TUNED, Cell, Scores, dataset_order, setup_order
from blicer.benchmark.significance import LEVEL, holm

_LEVEL_GAIN = 1e-12  # below it two systems are level; one test word weighs far more
Column = tuple[str, str]  # data set and setup
Choice = Callable[[Cell], Scores | None]


@dataclass(frozen=True)
class Mean:
    """A mean gain over cells; its spread over training seeds where each has the same cells."""

    value: float
    spread: float | None
    cells: int


@dataclass(frozen=True)
class Tally:
    """How often a system wins against its space alone; a setup counts by its mean gain."""

    won: int
    level: int
    lost: int
    significant: int  # gains, p < LEVEL
    significant_holm: int  # the same, corrected for all setups of this tally
    significant_losses: int
    means: dict[Column, Mean]
    seeds: int  # training seeds
    smallest_p: float | None

    @property
    def all(self) -> int:
        return self.won + self.level + self.lost


def tally(cells: Sequence[Cell], choose: Choice) -> Tally:
    """Count over the cells that have the system and its space."""
    found = [
        (cell, scores) for cell in cells if (scores := choose(cell)) and scores.gain is not None
    ]
    gains = [scores.gain or 0.0 for _, scores in found]
    tested = [
        (gain, p)
        for gain, (_, scores) in zip(gains, found, strict=True)
        if (p := scores.p_value) is not None
    ]
    corrected = holm([p for _, p in tested])
    columns = sorted({column_of(cell) for cell, _ in found}, key=column_order)
    return Tally(
        won=sum(gain > _LEVEL_GAIN for gain in gains),
        level=sum(abs(gain) <= _LEVEL_GAIN for gain in gains),
        lost=sum(gain < -_LEVEL_GAIN for gain in gains),
        significant=sum(gain > _LEVEL_GAIN and p < LEVEL for gain, p in tested),
        significant_holm=sum(
            gain > _LEVEL_GAIN and p < LEVEL for (gain, _), p in zip(tested, corrected, strict=True)
        ),
        significant_losses=sum(gain < -_LEVEL_GAIN and p < LEVEL for gain, p in tested),
        means={
            column: mean_gain([scores for cell, scores in found if column_of(cell) == column])
            for column in columns
        },
        seeds=max((len(scores.by_seed) for _, scores in found), default=0),
        smallest_p=min((p for _, p in tested), default=None),
    )


def mean_gain(scores: Sequence[Scores]) -> Mean:
    seeds = {tuple(sorted(one.by_seed)) for one in scores}
    spread = None
    if len(seeds) == 1 and len(only := next(iter(seeds))) > 1:
        by_seed = [[one.by_seed[seed].gain for one in scores] for seed in only]
        known = [[gain for gain in gains if gain is not None] for gains in by_seed]
        if all(len(gains) == len(scores) for gains in known):
            spread = statistics.stdev(statistics.fmean(gains) for gains in known)
    return Mean(statistics.fmean([one.gain or 0.0 for one in scores]), spread, len(scores))


def column_of(cell: Cell) -> Column:
    return (cell.place.dataset, cell.place.setup)


def column_order(column: Column) -> tuple[object, ...]:
    return (dataset_order(column[0]), setup_order(column[1]))


def encoders_in_order(cells: Sequence[Cell]) -> list[str]:
    """The encoder with most cells first: it is the one that the cards speak of."""
    names = [cell.variant.encoder for cell in cells]
    return sorted(set(names), key=lambda name: (-names.count(name), name))


def the_default(cell: Cell) -> Scores | None:
    return cell.get(cell.default) if cell.default else None


def system(name: str) -> Choice:
    return lambda cell: cell.get(name)


def methods_of(cells: Sequence[Cell]) -> list[tuple[str, Choice]]:
    """Label and choice of the default and of the paper's method, where they were measured."""
    defaults = _defaults(cells)
    if defaults == [TUNED]:
        return [("tuned, the paper's method and the default", the_default)]
    found: list[tuple[str, Choice]] = []
    if defaults:
        found.append((f"{' or '.join(defaults)}, the default", the_default))
    if any(TUNED in cell.systems for cell in cells):
        found.append(("tuned, the paper's method", system(TUNED)))
    return found


def systems_of(cells: Sequence[Cell]) -> list[tuple[str, Choice]]:
    """The same of every system: those two first, then the controls."""
    names = dict.fromkeys(name for cell in cells for name in cell.systems if name != SPACE)
    defaults = _defaults(cells)
    shown = {TUNED, *(defaults if len(defaults) == 1 else [])}
    return [*methods_of(cells), *((name, system(name)) for name in names if name not in shown)]


def _defaults(cells: Sequence[Cell]) -> list[str]:
    return sorted({cell.default for cell in cells if cell.default})
