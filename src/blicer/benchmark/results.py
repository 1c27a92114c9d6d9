"""A run's folder: one JSON file a unit, and one table of them all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blicer.benchmark.systems import check_systems, could_run_now
from blicer.benchmark.table import rows, write_table
from blicer.benchmark.unit import DONE, FAILED, Task
from blicer.errors import FileError
from blicer.files import atomic_write, read_json, write_json


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
        """Keep an outcome; what an earlier run measured in the same way stays beside it."""
        before = self.done(outcome["key"])
        if before is not None and outcome["status"] == DONE and _same_way(before, outcome):
            outcome = _together(before, outcome)
        write_json(self.path(outcome["key"]), outcome)

    def outcomes(self) -> list[dict[str, Any]]:
        """Every unit of the folder, in an order that does not depend on how they were run.

        A file that cannot be read stands among those that failed.
        """
        if not self.units.is_dir():
            raise FileError(self.folder, "is not the folder of a benchmark: it has no units/")
        found = []
        for path in sorted(self.units.glob("*.json")):
            try:
                found.append(_checked(path))
            except FileError as error:
                found.append(_damaged(path, error))
        return sorted(found, key=_order)

    def missing(self, task: Task) -> tuple[str, ...]:
        """The systems that are still to be measured, by method and encoder as they are now."""
        outcome = self.done(task.key)
        if outcome is None:
            return task.unit.systems
        if not _same_way(outcome, {name: getattr(task, name) for name in _AS_NOW}):
            return check_systems([*outcome["systems"], *task.unit.systems])
        missing = [name for name in task.unit.systems if name not in outcome["systems"]]
        if set(missing) <= set(outcome["dropped"]) and not could_run_now(missing):
            return ()
        return check_systems(missing)

    def done(self, key: str) -> dict[str, Any] | None:
        """The outcome of a unit that ended well."""
        outcome = self.read(key)
        return outcome if outcome is not None and outcome["status"] == DONE else None

    def write_table(self) -> Path:
        """Rewrite ``results.tsv`` from the units."""
        write_table(self.table, rows(self.outcomes()))
        return self.table


# What stands beside the figures and not in the key: defaults of the code that made them.
_AS_NOW = ("space_settings", "encoder_version")


def _same_way(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Outcomes of earlier versions do not say; they are taken as they are."""
    told = [name for name in _AS_NOW if name in before and name in now]
    return all(before[name] == now[name] for name in told)


def _together(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Two outcomes of one unit that measured different systems, or some of them again."""
    systems = {**before["systems"], **now["systems"]}
    names = check_systems(systems)
    dropped = {**before["dropped"], **now["dropped"]}
    seconds = {
        name: {**before["seconds"].get(name, {}), **value}
        if isinstance(value, dict)
        else max(value, before["seconds"].get(name, 0.0))
        for name, value in now["seconds"].items()
    }
    return {
        **now,
        "unit": {**now["unit"], "systems": list(names)},
        "seconds": seconds,
        "dropped": {name: why for name, why in dropped.items() if name not in systems},
        "systems": {name: systems[name] for name in names},
    }


_SHAPE: dict[str, type] = {
    **dict.fromkeys(("key", "status", "error"), str),
    **dict.fromkeys(("unit", "config", "data", "versions", "dropped", "systems"), dict),
}


def _checked(path: Path) -> dict[str, Any]:
    outcome = read_json(path)
    if not isinstance(outcome, dict) or not all(
        isinstance(outcome.get(name), kind) for name, kind in _SHAPE.items()
    ):
        raise FileError(path, "is not the outcome of a unit")
    return outcome


def _damaged(path: Path, error: FileError) -> dict[str, Any]:
    """In place of an outcome that cannot be read; its unit is run again when it is asked for."""
    empty = {name: kind() for name, kind in _SHAPE.items()}
    return {**empty, "key": path.stem, "status": FAILED, "error": str(error)}


_NAMES = (
    *("dataset", "source", "target", "setup", "pivot", "space", "space_mode"),
    *("encoder", "template", "alpha", "training_seed", "max_words"),
)


def _order(outcome: Mapping[str, Any]) -> tuple[Any, ...]:
    unit = outcome["unit"]
    known = all(name in unit for name in _NAMES)
    return (known, *(unit[name] for name in _NAMES if known), outcome["key"])
