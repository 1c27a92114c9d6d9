"""A benchmark's folder: a JSON file for each unit, and the table ``results.tsv`` made of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from blicer.benchmark.plan import Unit, check_systems, label
from blicer.errors import FileError, InputError
from blicer.files import atomic_write, read_json, write_json
from blicer.pages import needed

with needed("pandas", "blicer benchmark", "bench"):
    import pandas as pd

DONE, FAILED = "done", "failed"
LEVEL = 0.05  # of significance
Result = dict[str, Any]
_SHAPE: dict[str, type] = {
    **dict.fromkeys(("key", "status", "error"), str),
    **dict.fromkeys(("unit", "config", "data", "versions", "systems"), dict),
}

COLUMNS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("key", "dataset", "pair", "direction", "setup", "pivot"), str),
    **dict.fromkeys(("space", "space_mode", "encoder", "template"), str),
    "alpha": float,
    "training_seed": int,
    "system": str,
    **dict.fromkeys(("default", "queries", "all_queries"), int),
    **dict.fromkeys(("p@1", "p@5", "mrr", "p@1_all"), float),
    **dict.fromkeys(("gain", "gain_low", "gain_high", "p_value"), float),
    "weights": json.loads,
    **dict.fromkeys(("seconds_fit", "seconds_score"), float),
    "max_words": int,
    **dict.fromkeys(("vocabularies", "remarks", "systems"), json.loads),
    **dict.fromkeys(("settings", "config", "space_settings"), json.loads),
    "encoder_version": str,
    **dict.fromkeys(("data", "versions"), json.loads),
    "revision": str,
    "machine": json.loads,
    **dict.fromkeys(("ended", "status", "error"), str),
}
"""The columns of ``results.tsv`` and how a cell is read. A column is filled from what ``_rows``
yields: every field of a result, of its unit, and of a system's scores is there under its name."""


class Results:
    """The folder of a benchmark: ``units/``, ``results.tsv``, and ``work/`` for shared stages."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.units, self.work = self.folder / "units", self.folder / "work"
        self.table = self.folder / "results.tsv"

    def prepare(self) -> None:
        """Create the folders; ``work`` stays out of version control."""
        try:
            self.units.mkdir(parents=True, exist_ok=True)
            self.work.mkdir(exist_ok=True)
            (self.work / ".gitignore").write_text("*\n")
        except OSError as error:
            raise FileError(self.folder, f"cannot be made ({error.strerror or error})") from error

    def done(self, key: str) -> Result | None:
        """The result of a unit that ended well."""
        result = _read(self.units / f"{key}.json")
        return result if result["status"] == DONE else None

    def missing(self, unit: Unit) -> tuple[str, ...]:
        """The systems of the unit that still have to be measured."""
        done = (self.done(unit.key) or {"systems": {}})["systems"]
        left = set(unit.systems).difference(done)
        return check_systems(left) if left else ()

    def write(self, result: Result) -> None:
        """Save a result beside what earlier runs measured; a failure does not replace figures."""
        if before := self.done(result["key"]):
            result = _merged(before, result) if result["status"] == DONE else before
        write_json(self.units / f"{result['key']}.json", result)

    def commands(self) -> list[str]:
        """The commands that filled the folder, in the order in which they were first typed."""
        file = self.folder / "commands.txt"
        return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []

    def remember(self, command: str) -> None:
        with atomic_write(self.folder / "commands.txt") as file:
            for line in dict.fromkeys([*self.commands(), command]):
                file.write(f"{line}\n")

    def write_table(self) -> None:
        """Write ``results.tsv`` again from the units."""
        frame = load(self.folder)
        for name, reader in COLUMNS.items():
            if reader in (json.loads, str):
                frame[name] = frame[name].map(_as_text)
        with atomic_write(self.table) as file:
            frame.to_csv(file, sep="\t", index=False, quoting=csv.QUOTE_NONE, lineterminator="\n")


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return " ".join((value or "").split())
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _merged(before: Result, now: Result) -> Result:
    """Two results of one unit that measured different systems, or some of them again."""
    systems = {**before["systems"], **now["systems"]}
    names = check_systems(systems)
    seconds = {**before["seconds"], **now["seconds"]}
    for name in before["seconds"].keys() & now["seconds"].keys():
        one, other = before["seconds"][name], now["seconds"][name]
        seconds[name] = {**one, **other} if isinstance(one, dict) else max(one, other)
    return {
        **now,
        "unit": {**now["unit"], "systems": list(names)},
        "seconds": seconds,
        "systems": {name: systems[name] for name in names},
    }


def load_units(folder: str | Path) -> list[Result]:
    """The results of all units of a folder, in an order that does not depend on how they ran.

    A damaged file stands among them as a failed unit; it is run again when it is asked for.
    """
    units = Path(folder) / "units"
    if not units.is_dir():
        raise FileError(folder, "is not the folder of a benchmark: it has no units/")
    results = [_read(path) for path in units.glob("*.json")]
    return sorted(
        results, key=lambda one: (one["unit"].get("dataset", ""), label(one["unit"]), one["key"])
    )


def _read(path: Path) -> Result:
    try:
        result = read_json(path)
        if isinstance(result, dict) and all(
            isinstance(result.get(name), kind) for name, kind in _SHAPE.items()
        ):
            return result
        problem = f"{path} is not the result of a unit"
    except FileError as error:
        problem = str(error)
    empty = {name: kind() for name, kind in _SHAPE.items()}
    return {**empty, "key": path.stem, "status": FAILED, "error": problem}


def load(place: str | Path) -> pd.DataFrame:
    """One row for each unit, direction and system, from a folder or a ``results.tsv`` alone.

    A failed unit has one row without a system. Missing numbers are NaN or NA, missing texts empty;
    columns that are JSON in the file hold its values (None where there is none).
    """
    place = Path(place)
    return _frame(_read_rows(place)) if place.is_file() else table(load_units(place))


def table(results: Iterable[Result]) -> pd.DataFrame:
    return _frame(row for result in results for row in _rows(result))


def _frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    cells = [[row.get(name) for name in COLUMNS] for row in rows]
    frame = pd.DataFrame(cells, columns=list(COLUMNS), dtype=object)
    for name, reader in COLUMNS.items():
        if reader is str:
            frame[name] = frame[name].fillna("")
        elif reader is not json.loads:
            frame[name] = frame[name].astype("Int64" if reader is int else float)
    return frame


def _rows(result: Result) -> Iterator[dict[str, Any]]:
    unit, seconds = result["unit"], result.get("seconds", {})
    languages = (unit.get("source", ""), unit.get("target", ""))
    common = {**result, "systems": None, **unit, "pair": "-".join(languages) if unit else ""}
    common |= {f"seconds_{name}": seconds.get(name) for name in ("fit", "score")}
    if result["status"] != DONE:
        yield common
        return
    for side, direction in (("forward", languages), ("backward", languages[::-1])):
        for name, system in result["systems"].items():
            gain = system[side]["gain"] or {}
            yield {
                **common,
                **system,
                **system[side],
                "direction": "-".join(direction),
                "system": name,
                "default": int(system["default"]),
                "gain": gain.get("difference"),
                "gain_low": gain.get("low"),
                "gain_high": gain.get("high"),
                "p_value": gain.get("p_value"),
            }


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    number = 1
    try:
        head, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        if head.split("\t") != list(COLUMNS):
            raise ValueError("the first line names other columns")
        for line in lines:
            number += 1
            cells = zip(COLUMNS.items(), line.split("\t"), strict=True)
            yield {name: reader(cell) if cell else None for (name, reader), cell in cells}
    except (OSError, ValueError) as error:
        raise FileError(path, f"is not a table of results ({error})", line=number) from error


def unit_rows(frame: pd.DataFrame, key: str) -> pd.DataFrame:
    """The rows of the one unit whose key begins so."""
    rows: pd.DataFrame = frame[frame["key"].str.startswith(key.lower())]
    if (count := rows["key"].nunique()) != 1:
        found = f"{count} units" if count else "no unit"
        raise InputError(f"there is {found} with a key that begins with {key!r}")
    return rows


def differences(before: pd.DataFrame, now: pd.DataFrame) -> list[str]:
    """What two runs of one unit disagree on, a sentence each; times do not count."""
    names = ("queries", "all_queries", "p@1", "p@5", "mrr", "p@1_all", "weights")
    found = {(row["system"], row["direction"]): row for row in now.to_dict("records")}
    said: list[str] = []
    for row in before.to_dict("records"):
        place = (row["system"], row["direction"])
        again: Any = found.get(place, dict.fromkeys(names, "missing"))
        said += [
            f"{', '.join(place)}: {name} was {row[name]} and is {again[name]}"
            for name in names
            if row[name] != again[name]
        ]
    return said
