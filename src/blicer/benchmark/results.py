"""A run's folder: one JSON file a unit, and one table of them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blicer.benchmark.systems import check_systems
from blicer.benchmark.table import rows, write_table
from blicer.benchmark.unit import DONE, Task, could_run_now
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
        write_table(self.table, rows(self.outcomes()))
        return self.table


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
