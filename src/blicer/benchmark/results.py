"""A benchmark's folder: a JSON file for each unit, and the table ``results.tsv`` made of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blicer.benchmark.plan import Unit, label
from blicer.benchmark.systems import check_systems, missing_packages
from blicer.errors import FileError, InputError, MissingDependency
from blicer.files import atomic_write, read_json, write_json

if TYPE_CHECKING:
    from pandas import DataFrame

DONE, FAILED = "done", "failed"
NO_SEEDS = "it learns from seeds of the pair itself, and there are none"
LEVEL = 0.05  # of significance
Result = dict[str, Any]
_SHAPE: dict[str, type] = {
    **dict.fromkeys(("key", "status", "error"), str),
    **dict.fromkeys(("unit", "config", "data", "versions", "dropped", "systems"), dict),
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
        table([])  # raises now, not after hours, if pandas is missing
        try:
            self.units.mkdir(parents=True, exist_ok=True)
            self.work.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(self.folder, f"cannot be made ({error.strerror or error})") from error
        with atomic_write(self.work / ".gitignore") as file:
            file.write("*\n")

    def done(self, key: str) -> Result | None:
        """The result of a unit that ended well."""
        result = _read(self.units / f"{key}.json")
        return result if result["status"] == DONE else None

    def missing(self, unit: Unit) -> tuple[str, ...]:
        """The systems of the unit that still have to be measured."""
        done = self.done(unit.key)
        if done is None:
            return unit.systems
        dropped = done["dropped"]
        # What was dropped for want of a package is measured once the package is there.
        hopeless = {name for name in dropped if dropped[name] == NO_SEEDS}
        hopeless |= dropped.keys() & missing_packages(unit.systems).keys()
        left = set(unit.systems).difference(done["systems"], hopeless)
        return check_systems(left) if left else ()

    def write(self, result: Result) -> None:
        """Save a result beside what earlier runs measured; a failure does not replace figures."""
        before = self.done(result["key"])
        if before is not None:
            if result["status"] != DONE:
                return
            result = _merged(before, result)
        write_json(self.units / f"{result['key']}.json", result)

    def write_table(self) -> None:
        """Write ``results.tsv`` again from the units."""
        frame = load(self.folder)
        for name, reader in COLUMNS.items():
            if reader is json.loads:
                frame[name] = frame[name].map(_as_json)
            elif reader is str:
                frame[name] = frame[name].map(lambda text: " ".join(text.split()))
        with atomic_write(self.table) as file:
            frame.to_csv(file, sep="\t", index=False, quoting=csv.QUOTE_NONE, lineterminator="\n")


def _as_json(value: Any) -> str:
    return "" if value is None else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _merged(before: Result, now: Result) -> Result:
    """Two results of one unit that measured different systems, or some of them again."""
    systems = {**before["systems"], **now["systems"]}
    names = check_systems(systems)
    dropped = {**before["dropped"], **now["dropped"]}
    seconds = {**before["seconds"], **now["seconds"]}
    for name, value in before["seconds"].items():
        one = seconds[name]
        seconds[name] = {**value, **one} if isinstance(one, dict) else max(value, one)
    return {
        **now,
        "unit": {**now["unit"], "systems": list(names)},
        "seconds": seconds,
        "dropped": {name: why for name, why in dropped.items() if name not in systems},
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


def load(place: str | Path) -> DataFrame:
    """One row for each unit, direction and system, from a folder or a ``results.tsv`` alone.

    A failed unit has one row without a system. Missing numbers are NaN or NA, missing texts empty;
    columns that are JSON in the file hold its values (None where there is none).
    """
    place = Path(place)
    return _frame(_read_rows(place)) if place.is_file() else table(load_units(place))


def table(results: Iterable[Result]) -> DataFrame:
    return _frame(row for result in results for row in _rows(result))


def _frame(rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingDependency("pandas", "blicer benchmark", extra="bench") from error
    cells = [[row.get(name) for name in COLUMNS] for row in rows]
    frame: DataFrame = pd.DataFrame(cells, columns=list(COLUMNS), dtype=object)
    for name, reader in COLUMNS.items():
        if reader is str:
            frame[name] = frame[name].fillna("")
        elif reader is not json.loads:
            frame[name] = frame[name].astype("Int64" if reader is int else float)
    return frame


def _rows(result: Result) -> Iterator[dict[str, Any]]:
    unit, seconds = result["unit"], result.get("seconds", {})
    source, target = unit.get("source", ""), unit.get("target", "")
    common = {
        **result,
        "systems": None,
        **unit,
        "pair": f"{source}-{target}" if unit else "",
        "seconds_fit": seconds.get("fit"),
        "seconds_score": seconds.get("score"),
    }
    if result["status"] != DONE:
        yield common
        return
    for side, direction in (("forward", f"{source}-{target}"), ("backward", f"{target}-{source}")):
        for name, system in result["systems"].items():
            gain = system[side]["gain"] or {}
            yield {
                **common,
                **system,
                **system[side],
                "direction": direction,
                "system": name,
                "default": int(system["default"]),
                "gain": gain.get("difference"),
                "gain_low": gain.get("low"),
                "gain_high": gain.get("high"),
                "p_value": gain.get("p_value"),
            }


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        head, *lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(path, f"cannot be read ({reason})") from error
    if head.split("\t") != list(COLUMNS):
        raise FileError(path, "is not a table of results: its first line names other columns")
    for number, line in enumerate(lines, 2):
        cells = line.split("\t")
        if not line:
            continue
        if len(cells) != len(COLUMNS):
            raise FileError(path, f"has {len(cells)} cells, expected {len(COLUMNS)}", line=number)
        try:
            yield {
                name: reader(cell) if cell else None
                for (name, reader), cell in zip(COLUMNS.items(), cells, strict=True)
            }
        except ValueError as error:
            raise FileError(
                path, f"has a cell that cannot be read ({error})", line=number
            ) from error


def unit_rows(frame: DataFrame, key: str) -> DataFrame:
    """The rows of the one unit whose key begins so."""
    rows: DataFrame = frame[frame["key"].str.startswith(key.lower())]
    if (count := rows["key"].nunique()) != 1:
        found = f"{count} units" if count else "no unit"
        raise InputError(f"there is {found} with a key that begins with {key!r}")
    return rows


def differences(before: DataFrame, now: DataFrame) -> list[str]:
    """What two runs of one unit disagree on, a sentence each; times do not count."""
    names = ("queries", "all_queries", "p@1", "p@5", "mrr", "p@1_all", "weights")
    found = {(row["system"], row["direction"]): row for row in now.to_dict("records")}
    said: list[str] = []
    for row in before.to_dict("records"):
        place = (row["system"], row["direction"])
        if place not in found:
            said.append(f"{', '.join(place)}: was there before and is not now")
            continue
        for name in names:
            was, is_now = row[name], found[place][name]
            if was != is_now:
                said.append(f"{', '.join(place)}: {name} was {was} and is {is_now}")
    return said
