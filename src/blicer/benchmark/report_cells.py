"""Outcomes of units of work as cells: a direction, a space, a setup and what each system scored."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blicer.benchmark.dataset import ZERO_SHOT
from blicer.benchmark.report_runs import Run, Variant, mapping, number
from blicer.benchmark.significance import over_training_seeds
from blicer.pipeline import WITHOUT_SEEDS

SPACE, TUNED, UNTUNED = "space", "tuned", "untuned"
_CSLS = "csls"


@dataclass(frozen=True, order=True)
class Place:
    """What the paper calls a setup: it is won or lost as a whole."""

    dataset: str
    pair: str  # en-fr, the languages in the order that the unit has them
    direction: str  # en-fr or fr-en
    setup: str
    pivot: str
    space: str
    space_mode: str


@dataclass(frozen=True)
class Score:
    """One system in one direction with one training seed; fractions, None where there is none."""

    p1: float
    p5: float | None
    mrr: float | None
    p1_all: float | None
    queries: int
    all_queries: int
    gain: float | None
    low: float | None
    high: float | None
    p_value: float | None
    share: float | None  # λ: what of the mixture is not CSLS


@dataclass
class Scores:
    """One system in one cell: a score for each training seed."""

    by_seed: dict[int, Score] = field(default_factory=dict)

    def mean(self, name: str) -> float | None:
        values = self._values(name)
        return statistics.fmean(values) if values else None

    def spread(self, name: str) -> float | None:
        """Standard deviation over the training seeds, with two or more of them."""
        values = self._values(name)
        return statistics.stdev(values) if len(values) > 1 else None

    def _values(self, name: str) -> list[float]:
        found = (getattr(score, name) for score in self.by_seed.values())
        return [value for value in found if value is not None]

    @property
    def gain(self) -> float | None:
        return self.mean("gain")

    @property
    def p_value(self) -> float | None:
        scores = self.by_seed.values()
        gains = [one.gain for one in scores if one.gain is not None]
        p_values = [one.p_value for one in scores if one.p_value is not None]
        if not gains or len(p_values) != len(scores) or len(gains) != len(scores):
            return None
        return over_training_seeds(gains, p_values)

    @property
    def first(self) -> Score:
        return next(iter(self.by_seed.values()))


@dataclass
class Cell:
    place: Place
    variant: Variant
    data: str  # digests of what it was measured on
    usual: bool  # template and α are what the encoder has unless told otherwise
    systems: dict[str, Scores] = field(default_factory=dict)
    default: str = ""  # the system that `blicer train` would make

    def get(self, system: str) -> Scores | None:
        return self.systems.get(system)


def share(weights: Any) -> float | None:
    """λ of a mixture: the weight of everything that is not CSLS."""
    csls = number(mapping(weights).get(_CSLS))
    return None if csls is None else 1 - csls


def _score(found: Any, alone: Any, weights: Any, *, is_space: bool) -> Score | None:
    found, before = mapping(found), number(mapping(alone).get("p@1"))
    p1 = number(found.get("p@1"))
    if p1 is None:
        return None
    gain = mapping(found.get("gain"))
    difference = number(gain.get("difference"))
    if difference is None and before is not None and not is_space:
        difference = p1 - before
    queries = int(number(found.get("queries")) or 0)
    return Score(
        p1,
        number(found.get("p@5")),
        number(found.get("mrr")),
        number(found.get("p@1_all")),
        queries,
        int(number(found.get("all_queries")) or queries),
        None if is_space else difference,
        number(gain.get("low")),
        number(gain.get("high")),
        number(gain.get("p_value")),
        share(weights),
    )


def make_cells(runs: Sequence[Run]) -> list[Cell]:
    """One cell for each direction of a place, a variant and its data; training seeds together."""
    cells: dict[tuple[Place, Variant, str], Cell] = {}
    for run in runs:
        digests = json.dumps(run.data, sort_keys=True)
        usual = not run.variant.settings and run.usual_template and run.usual_alpha
        for side, direction in (
            ("forward", run.pair),
            ("backward", f"{run.target}-{run.source}"),
        ):
            space, mode = _reranked_space(run)
            place = Place(run.dataset, run.pair, direction, run.setup, run.pivot, space, mode)
            alone = run.systems.get(SPACE, {}).get(side)
            for name, found in run.systems.items():
                score = _score(found.get(side), alone, found.get("weights"), is_space=name == SPACE)
                if score is None:
                    continue
                cell = cells.setdefault(
                    (place, run.variant, digests), Cell(place, run.variant, digests, usual)
                )
                cell.systems.setdefault(name, Scores()).by_seed[run.training_seed] = score
                if found.get("default"):
                    cell.default = name
    return list(cells.values())


def _reranked_space(run: Run) -> tuple[str, str]:
    """The space of the test words and its mode. In zero-shot the unit's own is that of the pivot's
    pairs, which only teach."""
    if run.setup != ZERO_SHOT:
        return run.space, run.space_mode
    taught = f"taught by {run.space}" if run.space != WITHOUT_SEEDS else ""
    return WITHOUT_SEEDS, ", ".join(part for part in (run.space_mode, taught) if part)


def main_cells(cells: Sequence[Cell]) -> list[Cell]:
    """The cells that stand for a setup when several variants of it were run.

    For each data set, setup, space and encoder: the template, α and settings that most of its
    cells have; of equally many, what the encoder has unless told otherwise.
    """
    groups: dict[tuple[str, ...], dict[Variant, list[Cell]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for cell in cells:
        groups[_group(cell)][cell.variant].append(cell)
    chosen = {group: _usual_variant(variants) for group, variants in groups.items()}
    return [cell for cell in cells if chosen[_group(cell)] == cell.variant]


def _usual_variant(variants: Mapping[Variant, Sequence[Cell]]) -> Variant:
    return min(variants, key=lambda one: (-len(variants[one]), not variants[one][0].usual, one))


def _group(cell: Cell) -> tuple[str, ...]:
    at = cell.place
    return (at.dataset, at.setup, at.space, at.space_mode, cell.variant.encoder)


def setup_order(setup: str) -> tuple[int, float, str]:
    """5k before 1k before unsupervised before zero-shot."""
    digits = setup[:-1] if setup.endswith("k") else setup
    if digits.isascii() and digits.isdigit():
        return (0, -int(digits) * (1000 if setup.endswith("k") else 1), setup)
    known = ("unsupervised", "zero-shot")
    return (1 + known.index(setup) if setup in known else 3, 0, setup)


def dataset_order(dataset: str) -> tuple[int, str]:
    """The paper's two first."""
    known = ("xling", "panlex")
    return (known.index(dataset) if dataset in known else len(known), dataset)
