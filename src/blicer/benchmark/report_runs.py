"""Units of work as a report reads them: what was run, what failed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blicer.config import ENCODER_SETTINGS, PRESETS


@dataclass(frozen=True, order=True)
class Variant:
    """What can differ within one place."""

    encoder: str
    template: str
    alpha: float
    max_words: int
    settings: str  # overrides, as JSON


@dataclass(frozen=True)
class Run:
    """A unit of work that was run; ``error`` says why it failed, if it did."""

    key: str
    dataset: str
    source: str
    target: str
    setup: str
    pivot: str
    space: str
    space_mode: str
    variant: Variant
    training_seed: int
    ended: str  # when, in UTC; empty in outcomes of earlier versions
    asked: tuple[str, ...]  # systems
    preset: str
    error: str
    systems: dict[str, dict[str, Any]]
    dropped: dict[str, str]  # systems that could not be measured, and why
    remarks: tuple[str, ...]  # what a reader of its figures should know
    seconds: dict[str, float]
    scorer_seconds: dict[str, float]  # by scorer; none in outcomes of earlier versions
    space_settings: dict[str, str]
    pairs_scored: int
    data: dict[str, str]
    versions: dict[str, str]
    machine: dict[str, str]

    @property
    def pair(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def usual_template(self) -> bool:
        return bool(self.variant.template == self._usual("template"))

    @property
    def usual_alpha(self) -> bool:
        return math.isclose(self.variant.alpha, self._usual("alpha"), abs_tol=1e-9)

    def _usual(self, name: str) -> Any:
        """What the encoder has unless told otherwise."""
        preset = PRESETS.get(self.preset, PRESETS["supervised"])
        return ENCODER_SETTINGS.get(self.variant.encoder, {}).get(name, getattr(preset, name))


def clean(value: Any) -> str:
    """Text of one line that can be printed, whatever was in the file."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> dict[str, str]:
    return {clean(key): clean(one) for key, one in mapping(value).items()}


def _numbers(value: Any) -> dict[str, float]:
    found = ((clean(name), number(given)) for name, given in mapping(value).items())
    return {name: given for name, given in found if given is not None}


def _whole(value: Any) -> int:
    return int(number(value) or 0)


def read_outcomes(outcomes: Iterable[Any]) -> tuple[list[Run], list[Run]]:
    """Finished and failed units, in an order that does not depend on that of execution."""
    runs = sorted((_run(mapping(outcome)) for outcome in outcomes), key=_order)
    return [run for run in runs if not run.error], [run for run in runs if run.error]


def newest(runs: Sequence[Run]) -> list[Run]:
    """Of units that say the same, the last one that was run: data files or defaults were others
    before."""
    last: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        what = _what(run)
        if what not in last or (run.ended, run.key) > (last[what].ended, last[what].key):
            last[what] = run
    kept = {id(run) for run in last.values()}
    return [run for run in runs if id(run) in kept]


def not_mended(failed: Sequence[Run], runs: Sequence[Run]) -> list[Run]:
    """The failures that no later run of the same unit has made good."""
    done = {_what(run): run.ended for run in runs}
    return [run for run in failed if _what(run) not in done or done[_what(run)] < run.ended]


def _what(run: Run) -> tuple[Any, ...]:
    """What a unit measures, whatever its data files and the defaults were at the time."""
    return _order(run)[:-1] if run.dataset else (run.key,)


def _order(run: Run) -> tuple[Any, ...]:
    place = (run.dataset, run.pair, run.setup, run.pivot, run.space, run.space_mode)
    return (*place, run.variant, run.training_seed, run.key)


def _run(outcome: Mapping[str, Any]) -> Run:
    unit = mapping(outcome.get("unit"))
    settings, asked = mapping(unit.get("settings")), unit.get("systems")
    remarks = outcome.get("remarks")
    systems = {
        clean(name): dict(mapping(found)) for name, found in mapping(outcome.get("systems")).items()
    }
    return Run(
        key=clean(outcome.get("key")),
        dataset=clean(unit.get("dataset")),
        source=clean(unit.get("source")),
        target=clean(unit.get("target")),
        setup=clean(unit.get("setup")),
        pivot=clean(unit.get("pivot")),
        space=clean(unit.get("space")),
        space_mode=clean(unit.get("space_mode")),
        variant=Variant(
            clean(unit.get("encoder")),
            clean(unit.get("template")),
            number(unit.get("alpha")) or 0.0,
            _whole(unit.get("max_words")),
            _settings(settings),
        ),
        training_seed=_whole(unit.get("training_seed")),
        ended=clean(outcome.get("ended")),
        asked=tuple(map(clean, asked)) if isinstance(asked, list | tuple) else (),
        preset=clean(mapping(outcome.get("config")).get("preset")),
        error=_error(outcome, bool(unit), _has_scores(systems)),
        systems=systems,
        dropped=_texts(outcome.get("dropped")),
        remarks=tuple(map(clean, remarks)) if isinstance(remarks, list | tuple) else (),
        seconds=_numbers(outcome.get("seconds")),
        scorer_seconds=_numbers(mapping(outcome.get("seconds")).get("scorers")),
        space_settings=_texts(outcome.get("space_settings")),
        pairs_scored=_whole(outcome.get("pairs_scored")),
        data=_texts(outcome.get("data")),
        versions=_texts(outcome.get("versions")),
        machine=_texts(outcome.get("machine")),
    )


def _settings(given: Mapping[str, Any]) -> str:
    if not given:
        return ""
    return clean(json.dumps(dict(given), sort_keys=True, default=str, ensure_ascii=False))


def _has_scores(systems: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(
        number(mapping(found.get(side)).get("p@1")) is not None
        for found in systems.values()
        for side in ("forward", "backward")
    )


def _error(outcome: Mapping[str, Any], has_unit: bool, has_scores: bool) -> str:
    if not has_unit:
        return clean(outcome.get("error")) or "this is not the outcome of a unit of work"
    if outcome.get("status") != "done":
        return clean(outcome.get("error")) or "it did not finish and does not say why"
    return "" if has_scores else "it has no scores of any system"
