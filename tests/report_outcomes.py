"""Made-up outcomes of units of work, as `blicer benchmark` keeps them, and reports of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from blicer.benchmark.report import write_report

Figures = tuple[float, float]  # P@1 forward and backward, fractions


def measured(p1: float, before: float | None, *, p_value: float = 0.001) -> dict[str, Any]:
    """One direction of one system; ``before``: P@1 of the space, None for the space itself."""
    gain = None
    if before is not None:
        difference = p1 - before
        gain = {
            "difference": difference,
            "low": difference - 0.02,
            "high": difference + 0.02,
            "p_value": p_value,
        }
    return {
        "queries": 1000,
        "all_queries": 1250,
        "p@1": p1,
        "p@5": min(1.0, p1 + 0.1),
        "mrr": min(1.0, p1 + 0.05),
        "p@1_all": p1 * 0.8,
        "gain": gain,
    }


def outcome(
    systems: dict[str, Figures],
    *,
    dataset: str = "xling",
    source: str = "en",
    target: str = "fr",
    setup: str = "5k",
    space: str = "vecmap",
    encoder: str = "lite",
    template: str = "T1",
    alpha: float = 0.0,
    training_seed: int = 33,
    default: str = "tuned+endings",
    lam: float = 0.6,
    p_value: float = 0.001,
    **unit: Any,
) -> dict[str, Any]:
    """A finished unit in which each system has these P@1."""
    parts = {"space": [], "tuned": ["cross-encoder"], "untuned": ["untuned"]}
    parts["tuned+endings"] = ["endings", "cross-encoder"]
    alone = systems.get("space")
    found = {}
    for name, (forward, backward) in systems.items():
        scorers = parts.get(name, [name])
        before = (None, None) if name == "space" or alone is None else alone
        rest = lam if scorers else 0.0
        found[name] = {
            "scorers": scorers,
            "default": name == default,
            "weights": {"csls": 1 - rest, **({scorers[-1]: rest} if scorers else {})},
            "curve": [[at / 10, 0.3 + 0.4 * at / 10 - 0.3 * (at / 10) ** 2] for at in range(11)]
            if scorers
            else [],
            "forward": measured(forward, before[0], p_value=p_value),
            "backward": measured(backward, before[1], p_value=p_value),
        }
    place = {"source": source, "target": target, "setup": setup, "space": space}
    described = {
        "dataset": dataset,
        **place,
        "pivot": "",
        "space_mode": "",
        "encoder": encoder,
        "template": template,
        "alpha": alpha,
        "training_seed": training_seed,
        "max_words": 60_000,
        "systems": list(systems),
        "settings": {},
        **unit,
    }
    return {
        "key": f"{abs(hash(str(sorted(described.items(), key=str)))):016x}"[:16],
        "status": "done",
        "error": "",
        "unit": described,
        "config": {"preset": "supervised" if setup == "5k" else "semi_supervised"},
        "data": {"source": "a" * 64, "target": "b" * 64, "seeds": "c" * 64, "test": "d" * 64},
        "versions": {"blicer": "0.1.0", "python": "3.11.7"},
        "machine": {"system": "Linux x86_64", "processor": "A processor", "cores": 2},
        "seconds": {"fit": 90.0, "score": 10.0, "total": 100.0},
        "pairs_scored": 56_000,
        "seeds_used": 4000,
        "held_out": 800,
        "systems": found,
    }


def failure(error: str = "there was not enough memory", **unit: Any) -> dict[str, Any]:
    failed = outcome({"space": (0.1, 0.1)}, **unit)
    return {**failed, "status": "failed", "error": error, "systems": {}}


def two_setups() -> list[dict[str, Any]]:
    """5k: gains of 10, 20, 4 and −2 points; 1k: gains of 5 and 0 points (default system)."""
    return [
        outcome(
            {"space": (0.40, 0.30), "tuned": (0.45, 0.40), "tuned+endings": (0.50, 0.50)},
            space="vecmap",
        ),
        outcome(
            {"space": (0.50, 0.42), "tuned": (0.50, 0.41), "tuned+endings": (0.54, 0.40)},
            space="c1",
        ),
        outcome(
            {"space": (0.20, 0.30), "tuned": (0.26, 0.28), "tuned+endings": (0.25, 0.30)},
            space="vecmap",
            setup="1k",
        ),
    ]


def write_units(folder: Path, outcomes: Iterable[Any]) -> Path:
    """A benchmark's folder with these units; whatever is no outcome is a file too."""
    units = folder / "units"
    units.mkdir(parents=True, exist_ok=True)
    for old in units.iterdir():
        old.unlink()
    for number, one in enumerate(outcomes):
        name = one["key"] if isinstance(one, dict) and "key" in one else f"file{number}"
        (units / f"{name}.json").write_text(json.dumps(one), encoding="utf-8")
    return folder


def report(outcomes: Iterable[Any]) -> str:
    """The Markdown of a report."""
    with TemporaryDirectory() as folder:
        return write_report(write_units(Path(folder), outcomes))[0].read_text(encoding="utf-8")


@dataclass
class Table:
    """A table as the Markdown shows it, without escapes; rows in bold alone are its titles."""

    head: list[str]
    rows: list[list[str]]
    titles: list[str]

    @property
    def by_label(self) -> dict[str, list[str]]:
        return {row[0]: row[1:] for row in self.rows}


def tables(outcomes: Iterable[Any], heading: str) -> list[Table]:
    """The tables below a heading."""
    sections = re.split(r"^#+ (.*)$", report(outcomes), flags=re.MULTILINE)
    below = {
        title.replace("\\", ""): text
        for title, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", below.get(heading, ""), flags=re.MULTILINE):
        lines = [re.split(r" \|(?: |$)", line[2:])[:-1] for line in block.splitlines()]
        cells = [[re.sub(r"\\(.)", r"\1", cell).replace("**", "") for cell in row] for row in lines]
        rows = [row for row in cells[2:] if any(row[1:])]
        found.append(Table(cells[0], rows, [row[0] for row in cells[2:] if not any(row[1:])]))
    return found
