"""One unit of work: a pair, a setup, a space, an encoder; all systems, both directions.

A unit says everything that its figures depend on. Its ``key`` is the digest of that and of the
data, so that what is finished is never computed twice.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from blicer import lite
from blicer.align import METHODS
from blicer.benchmark.dataset import UNSUPERVISED, ZERO_SHOT, Dataset, Digests
from blicer.benchmark.machine import machine, source_revision, versions
from blicer.benchmark.setups import FILES, data_digests, prepare_for, seed_pairs
from blicer.benchmark.systems import (
    NEED_A_PACKAGE,
    SYSTEMS,
    choose_mixture,
    default_system,
    measure_direction,
    scorers_for,
)
from blicer.config import Config
from blicer.errors import BlicerError, InputError, MissingDependency
from blicer.recipe import Recipe, make_aligner, preset_for

DONE, FAILED = "done", "failed"
KEY_DIGITS = 16
DIRECTIONS = ("forward", "backward")
MADE_FROM = {"c2": ("c1",)}  # methods whose space is made out of another's
_PRESETS = {UNSUPERVISED: "unsupervised", ZERO_SHOT: "zero_shot"}


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What is measured; ``settings`` are those of ``Config`` that the user gave beside."""

    dataset: str
    source: str
    target: str
    setup: str
    pivot: str = ""
    space: str
    space_mode: str = ""
    """The space's mode; without seeds, where it starts (encoder, identical, …)."""
    encoder: str
    template: str
    alpha: float
    training_seed: int
    max_words: int
    systems: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def pair(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def label(self) -> str:
        """For people: what tells it from its neighbours in a list."""
        space = f"{self.space}:{self.space_mode}" if self.space_mode else self.space
        encoder = Path(self.encoder).name
        return (
            f"{self.pair} {self.setup} {space} {encoder} {self.template} "
            f"alpha {self.alpha:g} seed {self.training_seed}"
        )

    @property
    def space_groups(self) -> tuple[str, ...]:
        """The spaces that it makes or finds made, by the methods that make them; its own last.

        Units that have one in common share it: the first of them makes it.
        """
        place = (self.dataset, self.pair, self.pivot, self.setup, self.space_mode, self.max_words)
        methods = (*MADE_FROM.get(self.space, ()), self.space)
        return tuple("|".join(map(str, (*place, method))) for method in methods)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "systems": list(self.systems)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Unit:
        try:
            return cls(**{**values, "systems": tuple(values["systems"])})
        except (TypeError, KeyError) as error:
            raise InputError(f"this is not a unit of a benchmark ({error})") from error


@dataclass(frozen=True)
class Task:
    """A unit with its resolved configuration and the digests of its data: ready to run."""

    unit: Unit
    config: Config
    data: dict[str, str]

    @property
    def key(self) -> str:
        """Of all but the systems: asking for one more goes on with what is there."""
        unit = self.unit.to_dict()
        del unit["systems"]
        everything = {"unit": unit, "config": self.config.to_dict(), "data": self.data}
        text = json.dumps(everything, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]

    @property
    def space_settings(self) -> dict[str, Any]:
        """The settings that the method has now. They are not in the key but beside the figures: a
        unit whose method has others since then is run again (``Results.finished``)."""
        if self.unit.space not in METHODS:
            return {}
        usual = self.unit.setup not in _PRESETS
        recipe = Recipe(space_mode=self.unit.space_mode if usual else "")
        settings = make_aligner(self.unit.space, self.config.preset, recipe).settings
        plain: dict[str, Any] = json.loads(json.dumps(settings))
        return plain

    @property
    def encoder_version(self) -> str:
        """Of the encoder that comes with blicer, which may be another in the next release. Like
        the settings of the method it stands beside the figures, not in the key."""
        return lite.version() if self.unit.encoder == lite.NAME else ""

    def with_systems(self, names: tuple[str, ...]) -> Task:
        return replace(self, unit=replace(self.unit, systems=names))


def resolve_config(setup: str, seeds: int, overrides: Mapping[str, Any]) -> Config:
    """The paper's preset for the setup, what the encoder needs, and what the user said."""
    preset = _PRESETS.get(setup) or preset_for(seeds)
    return Config.resolve(overrides=overrides, defaults={"preset": preset})


def unit_overrides(unit: Unit) -> dict[str, Any]:
    """What the unit says about the configuration."""
    return {
        **unit.settings,
        "encoder": unit.encoder,
        "template": unit.template,
        "alpha": unit.alpha,
        "seed": unit.training_seed,
    }


def run_unit(unit: Unit, dataset: Dataset, work: Path) -> dict[str, Any]:
    """Fit, choose, test: the outcome of a unit as it is kept in ``units/``."""
    pairs = seed_pairs(unit)
    seeds = len(dataset.seeds(*pairs[0]).load()) if pairs else 0
    config = resolve_config(unit.setup, seeds, unit_overrides(unit))
    return run_task(Task(unit, config, data_digests(unit, dataset, Digests())), dataset, work)


def run_task(
    task: Task, dataset: Dataset, work: Path, *, keep_rerankers: bool = False
) -> dict[str, Any]:
    """As ``run_unit``, with configuration and digests given."""
    from blicer.benchmark.timed import TimedWorkshop, kept_rerankers, remove
    from blicer.lexicon import Lexicon

    started = time.perf_counter()
    unit, config = task.unit, task.config
    dropped = missing_systems(unit.systems)
    systems = {name: SYSTEMS[name] for name in unit.systems if name not in dropped}
    scorers = scorers_for(systems)
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
    mode = unit.space_mode if unit.setup not in _PRESETS else ""
    recipe = Recipe(space=space, space_mode=mode).resolved(config, len(seeds))
    recipe = replace(recipe, scorers=scorers)  # none, if only the space is asked for
    workshop = TimedWorkshop(source, target, config, recipe, work)
    earlier = kept_rerankers(work)
    prepared = prepare_for(unit, dataset, workshop, seeds)
    for name in [name for name, mixed in systems.items() if set(mixed) - set(prepared.scorers)]:
        del systems[name]
        dropped[name] = "it learns from seeds of the pair itself, and there are none"
    scorers = prepared.scorers
    mixtures = {
        name: (mixed, choose_mixture(prepared.held_out, scorers, mixed, config))
        for name, mixed in systems.items()
    }
    fit_seconds = time.perf_counter() - started + workshop.spared
    # From here on the test dictionary is read; nothing is chosen any more.
    scoring_started = time.perf_counter()
    test = dataset.test(unit.source, unit.target).load()
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
    for direction in DIRECTIONS:
        reverse = direction == "backward"
        figures, count = measure_direction(
            prepared.fitted, scorers, mixtures, test, config.n_cand, reverse=reverse
        )
        scored += count
        for name, found in figures.items():
            outcome[name][direction] = found
    if not keep_rerankers:
        workshop.remove_rerankers()
        if unit.setup in _PRESETS:  # these make workshops of their own
            remove(kept_rerankers(work) - earlier)
    ended = time.perf_counter()
    return {
        **describe(task, DONE),
        "seconds": {
            "fit": round(fit_seconds, 2),
            "score": round(ended - scoring_started, 2),
            "total": round(ended - started, 2),
        },
        "pairs_scored": scored,
        "seeds_used": prepared.seeds,
        "held_out": len(prepared.held_out.parts) if prepared.held_out is not None else 0,
        "dropped": dropped,
        "systems": outcome,
    }


def missing_systems(names: tuple[str, ...]) -> dict[str, str]:
    """Systems that need a package which is not installed, with the sentence that says which."""
    from blicer.scorers import ENCODERS, make_scorer

    missing: dict[str, str] = {}
    for scorer in scorers_for(names):
        if scorer in ENCODERS:
            continue
        try:
            make_scorer(scorer)
        except MissingDependency as error:
            missing |= {name: str(error) for name in names if scorer in SYSTEMS[name]}
    return missing


def could_run_now(dropped: Iterable[str]) -> bool:
    """Whether one of these systems was left out for want of a package that is there by now."""
    packaged = tuple(name for name in dropped if set(SYSTEMS[name]) & set(NEED_A_PACKAGE))
    return len(missing_systems(packaged)) < len(packaged)


def describe(task: Task, status: str, error: str = "") -> dict[str, Any]:
    """What every outcome begins with, also that of a unit that failed."""
    return {
        "key": task.key,
        "status": status,
        "error": error,
        "unit": task.unit.to_dict(),
        "config": task.config.to_dict(),
        "space_settings": task.space_settings,
        "encoder_version": task.encoder_version,
        "data": task.data,
        "ended": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(),
        "revision": source_revision(),
        "machine": machine(),
    }


def failed(task: Task, error: BaseException | str) -> dict[str, Any]:
    """The outcome of a unit that ended in an error, as one sentence."""
    sentence = str(error).strip().splitlines()[0] if str(error).strip() else ""
    if isinstance(error, MemoryError):
        sentence = "there was not enough memory"
    elif isinstance(error, BaseException) and not isinstance(error, BlicerError):
        sentence = f"{type(error).__name__}: {sentence}" if sentence else type(error).__name__
    return {
        **describe(task, FAILED, sentence),
        "seconds": {"fit": 0.0, "score": 0.0, "total": 0.0},
        "pairs_scored": 0,
        "seeds_used": 0,
        "held_out": 0,
        "dropped": {},
        "systems": {},
    }
