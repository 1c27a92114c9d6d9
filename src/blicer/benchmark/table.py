"""``results.tsv``: a row for each unit, direction and system, with all that runs it again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from blicer.benchmark.unit import DIRECTIONS, DONE, Task, Unit
from blicer.config import Config
from blicer.errors import FileError, InputError
from blicer.files import atomic_write

COLUMNS = (
    *("key", "dataset", "pair", "direction", "setup", "pivot", "space", "space_mode"),
    *("encoder", "template", "alpha", "training_seed", "system", "default"),
    *("queries", "all_queries", "p@1", "p@5", "mrr", "p@1_all"),
    *("gain", "gain_low", "gain_high", "p_value", "weights"),
    *("seconds_fit", "seconds_score", "max_words", "vocabularies", "remarks", "systems"),
    *("settings", "config", "space_settings", "encoder_version", "data"),
    *("versions", "revision", "machine", "ended", "status", "error"),
)
_METRICS = ("queries", "all_queries", "p@1", "p@5", "mrr", "p@1_all")
_OF_OUTCOME = (
    *("key", "vocabularies", "remarks", "config", "space_settings", "encoder_version", "data"),
    *("versions", "revision", "machine", "ended", "status", "error"),
)
_JSON = (
    *("weights", "vocabularies", "remarks", "systems", "settings", "config", "space_settings"),
    *("data", "versions", "machine"),
)
_WHOLE = ("training_seed", "default", "queries", "all_queries", "max_words")
_NUMBERS = (
    *("alpha", "p@1", "p@5", "mrr", "p@1_all", "gain", "gain_low", "gain_high", "p_value"),
    *("seconds_fit", "seconds_score"),
)
Row = dict[str, Any]


def rows(outcomes: Iterable[Mapping[str, Any]]) -> list[Row]:
    """One row for each unit, direction and system; a failed unit has one row."""
    return [row for outcome in outcomes for row in _rows(outcome)]


def _rows(outcome: Mapping[str, Any]) -> list[Row]:
    unit = outcome["unit"]
    source, target = unit.get("source", ""), unit.get("target", "")
    common = dict.fromkeys(COLUMNS, "") | {
        **{column: unit[column] for column in COLUMNS if column in unit},
        **{column: outcome.get(column) or "" for column in _OF_OUTCOME},
        "pair": f"{source}-{target}" if unit else "",
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


def write_table(path: Path, table: Iterable[Row]) -> None:
    with atomic_write(path) as file:
        file.write("\t".join(COLUMNS) + "\n")
        for row in table:
            file.write("\t".join(_cell(row[column]) for column in COLUMNS) + "\n")


def _cell(value: Any) -> str:
    if isinstance(value, dict | list):
        text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    elif isinstance(value, float):
        text = repr(value)
    else:
        text = str(value)
    return " ".join(text.split()) if any(mark in text for mark in "\t\r\n") else text


def read_table(path: str | Path) -> list[Row]:
    """The rows of a ``results.tsv``, numbers as numbers; an empty cell is None."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(path, f"cannot be read ({reason})") from error
    if tuple(lines[0].split("\t")) != COLUMNS:
        raise FileError(path, "is not a table of results: its first line names other columns")
    return [_row(path, number, line) for number, line in enumerate(lines[1:], 2) if line]


def _row(path: Path, number: int, line: str) -> Row:
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


def unit_rows(table: Sequence[Row], key: str) -> list[Row]:
    """The rows of the one unit whose key begins so."""
    fitting = sorted({row["key"] for row in table if row["key"].startswith(key.lower())})
    if len(fitting) != 1:
        found = "no unit" if not fitting else f"{len(fitting)} units"
        raise InputError(f"there is {found} with a key that begins with {key!r}")
    return [row for row in table if row["key"] == fitting[0]]


def recorded_task(row: Row) -> Task:
    """What a row was made by, from that row alone."""
    if not row["pair"]:
        raise InputError(f"nothing is known of the unit {row['key']}: {row['error']}")
    source, _, target = row["pair"].partition("-")
    values = {name: row[name] for name in Unit.__dataclass_fields__ if name in row}
    values |= {"source": source, "target": target, "settings": row["settings"] or {}}
    return Task(Unit.from_dict(values), Config.from_dict(row["config"]), row["data"] or {})


def differences(before: Sequence[Row], now: Sequence[Row]) -> list[str]:
    """What two runs of one unit disagree on, a sentence each; times do not count."""
    found = {(row["system"], row["direction"]): row for row in now}
    said: list[str] = []
    for row in before:
        place = (row["system"], row["direction"])
        other = found.get(place)
        if other is None:
            said.append(f"{', '.join(place)}: was there before and is not now")
            continue
        said += [
            f"{', '.join(place)}: {name} was {_shown(row[name])} and is {_shown(other[name])}"
            for name in (*_METRICS, "weights")
            if row[name] != other[name]
        ]
    return said


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)
