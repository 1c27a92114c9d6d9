"""Runs one unit: fits the space and the scorers, chooses the weights, and only then tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.benchmark.dataset import Dataset
from blicer.benchmark.setups import FILES, prepare_for, seed_pairs
from blicer.benchmark.systems import (
    SYSTEMS,
    choose_mixture,
    default_system,
    measure_direction,
    missing_systems,
    scorers_for,
)
from blicer.benchmark.unit import DIRECTIONS, DONE, Task, describe
from blicer.lexicon import Lexicon
from blicer.multilingual import SHARED_RERANKER
from blicer.pipeline import RERANKER, Recipe, Workshop
from blicer.stage_cache import remove_stages, watch

if TYPE_CHECKING:
    from blicer.mixing import Scorer
    from blicer.pipeline import Prepared


def run_task(
    task: Task, dataset: Dataset, work: Path, *, keep_rerankers: bool = False
) -> dict[str, Any]:
    """The outcome of a unit as it is kept in ``units/``."""
    started = time.perf_counter()
    config = task.config
    dropped = missing_systems(task.unit.systems)
    systems = {name: SYSTEMS[name] for name in task.unit.systems if name not in dropped}
    with watch() as watching:
        prepared = _prepare(task, dataset, work, scorers_for(systems))
    for name in [name for name, mixed in systems.items() if set(mixed) - set(prepared.scorers)]:
        del systems[name]
        dropped[name] = "it learns from seeds of the pair itself, and there are none"
    mixtures = {
        name: (mixed, choose_mixture(prepared.held_out, prepared.scorers, mixed, config))
        for name, mixed in systems.items()
    }
    fit_seconds = time.perf_counter() - started + watching.spared
    # From here on the test dictionary is read; nothing is chosen any more.
    scoring_started = time.perf_counter()
    test = dataset.test(task.unit.source, task.unit.target).load()
    usual, scored = default_system(config), 0
    if usual in dropped:  # without seeds of the pair, the cross-encoder alone is the default
        usual = "tuned"
    outcome: dict[str, dict[str, Any]] = {
        name: {
            "scorers": list(mixed),
            "default": name == usual,
            "weights": mixture.weights,
            "curve": [list(point) for point in mixture.curve],
        }
        for name, (mixed, mixture) in mixtures.items()
    }
    scorers = [TimedScorer(scorer) for scorer in prepared.fitted.scorers]
    fitted = replace(prepared.fitted, scorers=[*scorers])
    for direction in DIRECTIONS:
        figures, count = measure_direction(
            *(fitted, prepared.scorers, mixtures, test, config.n_cand),
            reverse=direction == "backward",
        )
        scored += count
        for name, found in figures.items():
            outcome[name][direction] = found
    if not keep_rerankers:  # spaces serve other units; these would only fill the disk
        remove_stages(place for place in watching.places if _is_reranker(place))
    ended = time.perf_counter()
    return {
        **describe(task, DONE),
        "seconds": {
            "fit": round(fit_seconds, 2),
            "score": round(ended - scoring_started, 2),
            "total": round(ended - started, 2),
            "scorers": {scorer.name: round(scorer.seconds, 2) for scorer in scorers},
        },
        "pairs_scored": scored,
        "seeds_used": prepared.seeds,
        "held_out": len(prepared.held_out.parts) if prepared.held_out is not None else 0,
        "vocabularies": {side: len(getattr(fitted.space, side)) for side in ("source", "target")},
        "remarks": [*_of_space(prepared), *_of_test(task, dataset, test)],
        "dropped": dropped,
        "systems": outcome,
    }


def _prepare(task: Task, dataset: Dataset, work: Path, scorers: tuple[str, ...]) -> Prepared:
    """Space and scorers, and what they say of held-out words; none of the scorers, if none is
    asked for."""
    unit = task.unit
    pairs = seed_pairs(unit)
    seeds = dataset.seeds(*pairs[0]).load() if len(pairs) == 1 else Lexicon([])
    space: Any = unit.space
    if unit.space == FILES:
        space = dataset.space(unit.source, unit.target, unit.setup)
        space.source.language, space.target.language = unit.source, unit.target
        source, target = space.source, space.target
    else:
        source, target = (
            dataset.embeddings(language, unit.max_words) for language in (unit.source, unit.target)
        )
    recipe = Recipe(space=space, space_mode=unit.method_mode).resolved(task.config, len(seeds))
    workshop = Workshop(source, target, task.config, replace(recipe, scorers=scorers), work)
    return prepare_for(unit, dataset, workshop, seeds)


def _of_space(prepared: Prepared) -> list[str]:
    """What a reader of the figures should know about how the space came about."""
    said = []
    if prepared.fitted.space.settings.get("whitened") is False:
        said.append("too few seed pairs for VecMap to whiten: the map is orthogonal Procrustes")
    for kind in ("unsupervised", "zero_shot"):
        if tried := prepared.notes.get(kind, {}).get("tried"):
            said.append(f"the first dictionary came from: {tried[-1]['start']}")
    return said


def _of_test(task: Task, dataset: Dataset, test: Lexicon) -> list[str]:
    """A test pair that was trained on tells nothing."""
    seeds = {
        pair
        for place in seed_pairs(task.unit)
        if place[:2] == (task.unit.source, task.unit.target)
        for pair in dataset.seeds(*place).load()
    }
    shared = sum(pair in seeds for pair in test)
    return [f"{shared} of {len(test)} test pairs are seed pairs too"] if shared else []


def _is_reranker(place: Path) -> bool:
    return place.name.startswith((f"{RERANKER}-", f"{SHARED_RERANKER}-"))


@dataclass
class TimedScorer:
    """A scorer, and how long it took: some systems have slow ones that others do not."""

    scorer: Scorer
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return self.scorer.name

    def score(self, source: Sequence[str], target: Sequence[str], /) -> NDArray[np.float32]:
        started = time.perf_counter()
        scores = self.scorer.score(source, target)
        self.seconds += time.perf_counter() - started
        return scores
