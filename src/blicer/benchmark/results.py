"""A benchmark's folder: a JSON file for each unit, and the table ``results.tsv`` made of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from blicer.benchmark.plan import RENAMED, Unit, check_systems, label
from blicer.errors import FileError, needed
from blicer.files import atomic_write, read_json, write_json

with needed("pandas", "blicer benchmark", "bench"):
    import pandas as pd

DONE, FAILED = "done", "failed"
LEVEL = 0.05  # of significance
Result = dict[str, Any]
_SHAPE: dict[str, type] = {
    **dict.fromkeys(("key", "status", "error"), str),
    **dict.fromkeys(("unit", "config", "data", "versions", "systems"), dict),
}

COLUMNS: dict[str, type] = {
    **dict.fromkeys(("key", "dataset", "pair", "direction", "setup", "pivot"), str),
    **dict.fromkeys(("space", "space_mode", "encoder", "template"), str),
    "alpha": float,
    "training_seed": int,
    "system": str,
    **dict.fromkeys(("default", "queries", "all_queries"), int),
    **dict.fromkeys(("p@1", "p@5", "mrr", "p@1_all"), float),
    **dict.fromkeys(("gain", "gain_low", "gain_high", "p_value"), float),
    "weights": dict,
    "max_words": int,
    **dict.fromkeys(("settings", "config", "data", "remarks"), dict),
    **dict.fromkeys(("ended", "status", "error"), str),
}
"""The columns of ``results.tsv`` and their types; ``dict``: any JSON value. Each is a field of a
result, of its unit, or of a system's scores, or is made in ``_rows``."""


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

    def write_table(self) -> None:
        """Write ``results.tsv`` again from the units."""
        frame = table(load_units(self.folder))
        for name, kind in COLUMNS.items():
            if kind in (dict, str):
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
    unit = {**now["unit"], "systems": list(names)}
    return {**now, "unit": unit, "systems": {name: systems[name] for name in names}}


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


def merge(folders: Sequence[str | Path], output: str | Path) -> int:
    """Bring the units of several folders into one, as if one run had measured them all.

    Of two measurements of the same system the later counts, and a failure never replaces figures.
    Returns how many files were left out because they are damaged.
    """
    found = [result for folder in folders for result in load_units(folder)]
    whole = [result for result in found if result["unit"]]
    results = Results(output)
    results.prepare()
    for result in sorted(whole, key=lambda one: str(one.get("ended", ""))):
        results.write(result)
    return len(found) - len(whole)


def _read(path: Path) -> Result:
    try:
        result = read_json(path)
        if isinstance(result, dict) and all(
            isinstance(result.get(name), kind) for name, kind in _SHAPE.items()
        ):
            systems = result["systems"].items()
            return {**result, "systems": {RENAMED.get(name, name): one for name, one in systems}}
        problem = f"{path} is not the result of a unit"
    except FileError as error:
        problem = str(error)
    empty = {name: kind() for name, kind in _SHAPE.items()}
    return {**empty, "key": path.stem, "status": FAILED, "error": problem}


def table(results: Iterable[Result]) -> pd.DataFrame:
    """One row for each unit, direction and system; a failed unit has one row without a system.

    Missing numbers are NaN or NA, missing texts empty, missing JSON values None.
    """
    rows = [[row.get(name) for name in COLUMNS] for result in results for row in _rows(result)]
    frame = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
    for name, kind in COLUMNS.items():
        if kind is str:
            frame[name] = frame[name].fillna("")
        elif kind is not dict:
            frame[name] = frame[name].astype("Int64" if kind is int else float)
    return frame


def _rows(result: Result) -> Iterator[dict[str, Any]]:
    unit = result["unit"]
    languages = (unit.get("source", ""), unit.get("target", ""))
    common = {**result, **unit, "pair": "-".join(languages) if unit else ""}
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
