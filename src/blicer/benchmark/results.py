"""A run's folder: one JSON file a unit, and one table of them all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from blicer.benchmark.systems import check_systems
from blicer.benchmark.unit import DIRECTIONS, DONE, Task, could_run_now
from blicer.errors import FileError, InputError
from blicer.files import atomic_write, read_json, write_json

COLUMNS = (
    *("key", "dataset", "pair", "direction", "setup", "space", "space_mode"),
    *("encoder", "template", "alpha", "training_seed", "system", "default"),
    *("queries", "all_queries", "p@1", "p@5", "mrr", "p@1_all"),
    *("gain", "gain_low", "gain_high", "p_value", "weights"),
    *("seconds_fit", "seconds_score", "max_words"),
    *("settings", "data", "versions", "status", "error"),
)
_METRICS = ("queries", "all_queries", "p@1", "p@5", "mrr", "p@1_all")
_JSON = ("weights", "settings", "data", "versions")
_WHOLE = ("training_seed", "default", "queries", "all_queries", "max_words")
_NUMBERS = (
    *("alpha", "p@1", "p@5", "mrr", "p@1_all", "gain", "gain_low", "gain_high", "p_value"),
    *("seconds_fit", "seconds_score"),
)


class Results:
    """The folder OUT of a benchmark: ``units/``, ``results.tsv``, ``work/``."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.units = self.folder / "units"
        self.table = self.folder / "results.tsv"
        self.work = self.folder / "work"

    def prepare(self) -> None:
        """Make the folders; what is in ``work`` stays out of version control."""
        for folder in (self.units, self.work):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                reason = error.strerror or str(error)
                raise FileError(folder, f"cannot be made ({reason})") from error
        if not (self.work / ".gitignore").exists():
            with atomic_write(self.work / ".gitignore") as file:
                file.write("*\n")

    def path(self, key: str) -> Path:
        return self.units / f"{key}.json"

    def read(self, key: str) -> dict[str, Any] | None:
        """The outcome of a unit; None if there is none, or one cut off by a crash of the disk."""
        try:
            return _checked(self.path(key))
        except FileError:
            return None

    def write(self, outcome: Mapping[str, Any]) -> None:
        write_json(self.path(outcome["key"]), outcome)

    def outcomes(self) -> list[dict[str, Any]]:
        """Every unit of the folder, in an order that does not depend on how they were run."""
        if not self.units.is_dir():
            raise FileError(self.folder, "is not the folder of a benchmark: it has no units/")
        found = [_checked(path) for path in sorted(self.units.glob("*.json"))]
        return sorted(found, key=_order)

    def finished(self, task: Task) -> bool:
        """Whether the unit is done, by method and encoder as they are now, with all asked for."""
        outcome = self.done(task.key)
        if outcome is None:
            return False
        for name in ("space_settings", "encoder_version"):
            now = getattr(task, name)
            if outcome.get(name, now) != now:
                return False
        missing = set(task.unit.systems).difference(outcome["systems"])
        return missing <= set(outcome["dropped"]) and not could_run_now(missing)

    def done(self, key: str) -> dict[str, Any] | None:
        """The outcome of a unit that ended well."""
        outcome = self.read(key)
        return outcome if outcome is not None and outcome["status"] == DONE else None

    def with_earlier_systems(self, task: Task) -> Task:
        """The systems that an earlier run asked for stay in the outcome."""
        outcome = self.done(task.key)
        if outcome is None:
            return task
        return task.with_systems(check_systems([*outcome["systems"], *task.unit.systems]))

    def write_table(self) -> Path:
        """Rewrite ``results.tsv`` from the units."""
        with atomic_write(self.table) as file:
            file.write("\t".join(COLUMNS) + "\n")
            for row in rows(self.outcomes()):
                file.write("\t".join(_cell(row[column]) for column in COLUMNS) + "\n")
        return self.table

    def find(self, key: str) -> dict[str, Any]:
        """The one unit whose key begins so."""
        keys = sorted(path.stem for path in self.units.glob("*.json"))
        fitting = [known for known in keys if known.startswith(key.lower())]
        if len(fitting) != 1:
            found = "no unit" if not fitting else f"{len(fitting)} units"
            raise InputError(f"{found} in {self.folder} with a key that begins with {key!r}")
        return _checked(self.path(fitting[0]))


def rows(outcomes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each unit, direction and system; a failed unit has one row."""
    return [row for outcome in outcomes for row in _rows(outcome)]


def _rows(outcome: Mapping[str, Any]) -> list[dict[str, Any]]:
    unit = outcome["unit"]
    source, target = unit["source"], unit["target"]
    common = dict.fromkeys(COLUMNS, "") | {
        **{column: unit[column] for column in COLUMNS if column in unit},
        **{column: outcome[column] for column in ("key", "data", "versions", "status", "error")},
        "pair": f"{source}-{target}",
    }
    if outcome["status"] != DONE:
        return [common]
    seconds = outcome["seconds"]
    common |= {"seconds_fit": seconds["fit"], "seconds_score": seconds["score"]}
    return [
        common
        | {"direction": f"{source}-{target}" if direction == "forward" else f"{target}-{source}"}
        | {"system": name, "default": int(system["default"]), "weights": system["weights"]}
        | {metric: system[direction][metric] for metric in _METRICS}
        | _gain(system[direction]["gain"])
        for direction in DIRECTIONS
        for name, system in outcome["systems"].items()
    ]


def _gain(gain: Mapping[str, float] | None) -> dict[str, float]:
    if gain is None:
        return {}
    named = {"gain": "difference", "gain_low": "low", "gain_high": "high", "p_value": "p_value"}
    return {column: gain[name] for column, name in named.items()}


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    elif isinstance(value, float):
        text = repr(value)
    else:
        text = str(value)
    return " ".join(text.split()) if any(mark in text for mark in "\t\r\n") else text


def read_table(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a ``results.tsv``, numbers as numbers; an empty cell is None."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    if tuple(lines[0].split("\t")) != COLUMNS:
        raise FileError(path, "is not a table of results: its first line names other columns")
    return [_row(path, number, line) for number, line in enumerate(lines[1:], 2) if line]


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    cells = line.split("\t")
    if len(cells) != len(COLUMNS):
        raise FileError(path, f"has {len(cells)} cells, expected {len(COLUMNS)}", line=number)
    try:
        return {column: _value(column, cell) for column, cell in zip(COLUMNS, cells, strict=True)}
    except ValueError as error:
        raise FileError(path, f"has a cell that cannot be read ({error})", line=number) from error


def _value(column: str, cell: str) -> Any:
    if column in _JSON:
        return json.loads(cell) if cell else None
    if column in _WHOLE:
        return int(cell) if cell else None
    if column in _NUMBERS:
        return float(cell) if cell else None
    return cell


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any], tolerance: float = 0.0
) -> list[str]:
    """What two outcomes of one unit disagree on, a sentence each; times do not count."""
    said: list[str] = []
    for name, system in first["systems"].items():
        other = second["systems"].get(name)
        if other is None:
            said.append(f"{name}: was there before and is not now")
            continue
        for direction in DIRECTIONS:
            for metric in _METRICS:
                was, now = system[direction][metric], other[direction][metric]
                if abs(was - now) > tolerance:
                    said.append(f"{name}, {direction}: {metric} was {was:.6g} and is {now:.6g}")
        if system["weights"] != other["weights"]:
            said.append(f"{name}: weights were {system['weights']} and are {other['weights']}")
    return said


def _checked(path: Path) -> dict[str, Any]:
    outcome = read_json(path)
    wanted = {"key", "status", "error", "unit", "config", "data", "versions", "dropped", "systems"}
    if not isinstance(outcome, dict) or not wanted <= set(outcome):
        raise FileError(path, "is not the outcome of a unit")
    return outcome


def _order(outcome: Mapping[str, Any]) -> tuple[Any, ...]:
    unit = outcome["unit"]
    names: Sequence[str] = ("dataset", "source", "target", "setup", "pivot", "space", "space_mode")
    more = ("encoder", "template", "alpha", "training_seed", "max_words")
    return (*(unit[name] for name in (*names, *more)), outcome["key"])
