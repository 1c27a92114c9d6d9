"""One unit of work: a pair, a setup, a space, an encoder; all systems, both directions.

A unit says everything that its figures depend on. Its ``key`` is the digest of that and of the
data, so that what is finished is never computed twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from blicer import lite
from blicer.align import METHODS
from blicer.benchmark.dataset import UNSUPERVISED, ZERO_SHOT
from blicer.benchmark.machine import machine, source_revision, versions
from blicer.config import Config
from blicer.errors import BlicerError, InputError
from blicer.pipeline import Recipe, make_aligner, preset_for

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
    def method_mode(self) -> str:
        """The mode that the space's method is given; without seeds it has but one."""
        return self.space_mode if self.setup not in _PRESETS else ""

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
        """Of all but the systems: those of several runs stand together in one outcome."""
        unit, config = self.unit.to_dict(), self.config.to_dict()
        del unit["systems"]
        if "encoder" in self.data:  # a folder: its files tell it, wherever it is
            unit["encoder"] = config["encoder"] = Path(self.unit.encoder).name
        everything = {"unit": unit, "config": config, "data": self.data}
        text = json.dumps(everything, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]

    @property
    def space_settings(self) -> dict[str, Any]:
        """The settings that the method has now. They are not in the key but beside the figures: a
        unit whose method has others since then is run again (``Results.finished``)."""
        if self.unit.space not in METHODS:
            return {}
        recipe = Recipe(space_mode=self.unit.method_mode)
        settings = make_aligner(self.unit.space, self.config.preset, recipe).settings
        plain: dict[str, Any] = json.loads(json.dumps(settings))
        return plain

    @property
    def encoder_version(self) -> str:
        """Of the encoder that comes with blicer, which may be another in the next release. Like
        the settings of the method it stands beside the figures, not in the key."""
        encoders = {self.unit.encoder}
        if self.unit.space in MADE_FROM or self.unit.setup in _PRESETS:
            encoders.add(str(self.space_settings.get("encoder", "")))
        return lite.version() if lite.NAME in encoders else ""

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
