"""What is to be measured: every combination of what the user listed, as units ready to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from blicer.align import METHODS, aligner_class
from blicer.benchmark.dataset import (
    UNSUPERVISED,
    ZERO_SHOT,
    CannotRun,
    Dataset,
    Digests,
    setup_name,
)
from blicer.benchmark.setups import FILES, data_digests, encoder_digest, seed_pairs
from blicer.benchmark.systems import check_systems, usual_systems
from blicer.benchmark.unit import Task, Unit, resolve_config, unit_overrides
from blicer.config import Config
from blicer.errors import FileError, InputError
from blicer.files import read_json, write_json
from blicer.pipeline import WITHOUT_SEEDS, Recipe, make_aligner
from blicer.unsupervised import AUTO, check_start


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """What the user listed; empty lists are filled by what fits the encoder and the setup."""

    pairs: Sequence[str]
    setups: Sequence[str] = ("5k", "1k")
    spaces: Sequence[str] = ("vecmap",)
    """Methods, each perhaps with its mode (``vecmap:semi_supervised``), or ``files``."""
    encoders: Sequence[str] = ("lite",)
    templates: Sequence[str] = ()
    alphas: Sequence[float] = ()
    training_seeds: Sequence[int] = (33,)
    systems: Sequence[str] = ()
    max_words: int = 200_000
    pivot: str = "en"
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Units that can run, and a sentence for each point of the matrix that cannot."""

    tasks: list[Task]
    problems: list[str]


def make_plan(matrix: Matrix, dataset: Dataset, digests: Digests) -> Plan:
    """Every unit, those that share a space one after the other.

    What is wrong with the request is raised here, before hours of work.
    """
    planner = _Planner(matrix, dataset, digests)
    tasks: list[Task] = []
    problems: list[str] = []
    for pair, setup, space in product(
        _distinct_pairs(matrix.pairs),
        _distinct([setup_name(setup) for setup in matrix.setups]),
        _distinct(matrix.spaces),
    ):
        try:
            tasks += planner.tasks(pair, setup, space)
        except CannotRun as reason:
            problems.append(str(reason))
    if not tasks:
        nothing = "there is nothing to run: give at least one pair, setup and space"
        raise InputError(problems[0] if problems else nothing)
    return Plan(tasks, _distinct(problems))


class _Planner:
    def __init__(self, matrix: Matrix, dataset: Dataset, digests: Digests) -> None:
        self.matrix, self.dataset, self.digests = matrix, dataset, digests
        self.pairs_in: dict[Path, int] = {}  # each training dictionary is read once

    def tasks(self, pair: str, setup: str, space: str) -> list[Task]:
        """All encoders, training seeds, templates and alphas over one space."""
        matrix = self.matrix
        common = self._common(pair, setup, space)
        probe = Unit(
            **common, encoder="lite", template="T1", alpha=0.0, training_seed=0, systems=()
        )
        seeds = sum(self._size(*one) for one in seed_pairs(probe))
        data = data_digests(probe, self.dataset, self.digests)
        tasks = []
        for name, option in (("encoder", "--encoders"), ("seed", "--training-seeds")):
            if name in matrix.settings:
                raise InputError(f"the setting {name} is given by {option} here")
        for name, listed in (("alpha", matrix.alphas), ("template", matrix.templates)):
            if name in matrix.settings and listed:
                raise InputError(f"the setting {name} is given twice: by --set and --{name}s")
        for encoder, seed in product(_distinct(matrix.encoders), _distinct(matrix.training_seeds)):
            given = {**matrix.settings, "encoder": encoder, "seed": seed}
            usual = resolve_config(setup, seeds, given)
            unsaid = resolve_config(setup, seeds, {"preset": usual.preset, "encoder": encoder})
            settings = _said(common["settings"], unsaid, resolve_config(setup, seeds, {}).preset)
            systems = check_systems(matrix.systems) if matrix.systems else usual_systems(usual)
            for template, alpha in product(
                _distinct(matrix.templates) or [usual.template],
                _distinct(matrix.alphas) or [usual.alpha],
            ):
                chosen = usual.replace(template=template, alpha=alpha)
                unit = Unit(
                    **{**common, "settings": settings},
                    encoder=encoder,
                    template=chosen.template,
                    alpha=chosen.alpha,
                    training_seed=seed,
                    systems=systems,
                )
                config = resolve_config(setup, seeds, unit_overrides(unit))
                tasks.append(Task(unit, config, {**data, **encoder_digest(encoder, self.digests)}))
        return tasks

    def _common(self, pair: str, setup: str, space: str) -> dict[str, Any]:
        matrix = self.matrix
        source, target = split_pair(pair)
        method, _, mode = space.partition(":")
        pivot = matrix.pivot if setup == ZERO_SHOT else ""
        if pivot in (source, target):
            raise CannotRun(f"{pair} zero-shot: the pivot {pivot} is one of the two languages")
        if method != FILES:
            _check_space(method, mode, setup)
        # These four are the unit's own fields.
        own = ("encoder", "template", "alpha", "seed")
        return {
            "dataset": self.dataset.name,
            "source": source,
            "target": target,
            "setup": setup,
            "pivot": pivot,
            "space": method,
            "space_mode": mode.replace("-", "_"),
            "max_words": matrix.max_words,
            "settings": {k: value for k, value in matrix.settings.items() if k not in own},
        }

    def _size(self, source: str, target: str, setup: str) -> int:
        file = self.dataset.seeds(source, target, setup)
        if file.path not in self.pairs_in:
            self.pairs_in[file.path] = len(file.load())
        return self.pairs_in[file.path]


def _said(settings: dict[str, Any], unsaid: Config, preset: str) -> dict[str, Any]:
    """The settings that make a difference: one that repeats the default is the same unit."""
    usual = {**{name: getattr(unsaid, name) for name in settings}, "preset": preset}
    return {name: value for name, value in settings.items() if value != usual[name]}


def _check_space(method: str, mode: str, setup: str) -> None:
    """A method, mode or start that does not exist is found before anything is computed."""
    if method not in METHODS:
        known = ", ".join([*METHODS, FILES])
        raise InputError(f"there is no space {method!r}; there are {known}")
    if setup in (UNSUPERVISED, ZERO_SHOT):  # of zero-shot the method makes the pivots' spaces
        check_start(WITHOUT_SEEDS, mode or AUTO)
        if setup == UNSUPERVISED and UNSUPERVISED not in aligner_class(method).presets:
            raise CannotRun(f"{setup}: {method} needs seed pairs; without any take vecmap, c1, c2")
    else:
        make_aligner(method, "supervised", Recipe(space_mode=mode))


def split_pair(pair: str) -> tuple[str, str]:
    source, dash, target = pair.strip().partition("-")
    if not dash or not source or not target or "-" in target or source == target:
        raise InputError(f"pair {pair!r}: expected two languages such as en-fr")
    return source, target


def _distinct_pairs(given: Sequence[str]) -> list[str]:
    found = _distinct([pair.strip() for pair in given])
    for pair in found:
        source, target = split_pair(pair)
        if f"{target}-{source}" in found:
            raise InputError(
                f"{pair} and {target}-{source} are one pair, and both directions are measured: "
                "name one of the two"
            )
    return found


def _distinct(given: Sequence[Any]) -> list[Any]:
    return list(dict.fromkeys(given))


def load_digests(work: Path) -> Digests:
    """What was computed in an earlier run; a file that changed is read again."""
    try:
        remembered = read_json(work / "digests.json")
    except FileError:
        remembered = {}
    return Digests(remembered if isinstance(remembered, dict) else {})


def save_digests(work: Path, digests: Digests) -> None:
    write_json(work / "digests.json", digests.remembered)
