"""Put the figures of ``results/`` into the README, so that it never says anything else.

python -m tools.readme_figures

Between ``<!-- NAME -->`` and ``<!-- /NAME -->`` stands what the function of that name makes.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from blicer.files import atomic_write

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
README = ROOT / "README.md"


def spaces() -> str:
    return (RESULTS / "spaces.md").read_text(encoding="utf-8").strip()


def without_seeds() -> str:
    text = (RESULTS / "without_seeds.md").read_text(encoding="utf-8").strip()
    return re.sub(r"^(#+)", r"#\1", text, flags=re.MULTILINE)


def setups_won() -> str:
    """The head of the benchmark's report: the first list and table after its title."""
    report = (RESULTS / "xling" / "report.md").read_text(encoding="utf-8")
    section = report.split("## Setups won, and by how much\n", 1)[1]
    return section.split("\nA setup is a direction", 1)[0].strip()


def ablations() -> str:
    """The tables of α and of templates in the report of the ablations."""
    report = (RESULTS / "ablations" / "report.md").read_text(encoding="utf-8")
    sections = re.split(r"^#+ ", report, flags=re.MULTILINE)
    tables = []
    for title in ("Templates", "α"):
        section = next(one for one in sections if one.startswith(title))
        tables.append("\n".join(line for line in section.splitlines() if line.startswith("|")))
    return "\n\n".join(tables)


# What the units of the matrix have in common; an ablation differs in one of these.
MATRIX = {"encoder": "lite", "template": "T1", "alpha": 0.0, "space_mode": "", "max_words": 60_000}


def _units() -> list[dict[str, Any]]:
    """The finished units of the matrix."""
    files = sorted((RESULTS / "xling" / "units").glob("*.json"))
    found = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return [
        outcome
        for outcome in found
        if outcome["status"] == "done" and MATRIX.items() <= outcome["unit"].items()
    ]


def _cells() -> dict[tuple[str, ...], dict[str, dict[int, float]]]:
    """P@1 by (pair, setup, space, direction), system and training seed."""
    cells: dict[tuple[str, ...], dict[str, dict[int, float]]] = defaultdict(dict)
    for outcome in _units():
        unit = outcome["unit"]
        for name, system in outcome["systems"].items():
            for way in ("forward", "backward"):
                cell = cells[
                    f"{unit['source']}-{unit['target']}", unit["setup"], unit["space"], way
                ]
                cell.setdefault(name, {})[unit["training_seed"]] = 100 * system[way]["p@1"]
    return cells


def controls() -> str:
    """What training adds: the spaces that hold nothing of `lite`, languages that it knows.

    What is trained is a mean over its training seeds; the others draw nothing at random.
    """
    rows = ["| against | setups | better | level | worse | mean | worst |"]
    rows.append("|---|---:|---:|---:|---:|---:|---:|")
    cells = [
        systems
        for (pair, _, space, _), systems in _cells().items()
        if space != "c2" and "fi" not in pair.split("-")
    ]
    for ours, other in (
        ("tuned+endings", "B"),
        ("tuned+endings", "untuned"),
        ("tuned", "untuned"),
    ):
        gains = [mean(cell[ours].values()) - mean(cell[other].values()) for cell in cells]
        better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        level = len(gains) - better - worse
        rows.append(
            f"| {ours} against {other} | {len(gains)} | {better} | {level} | {worse} "
            f"| {mean(gains):+.2f} | {min(gains):+.2f} |"
        )
    return "\n".join([*rows, "", *_spread(cells)])


def by_language() -> str:
    """The default's mean gain where `lite` knows both languages, and where it does not."""
    lines = []
    for title, finnish in (("languages that `lite` knows", False), ("Finnish on one side", True)):
        means = []
        for seeds in ("5k", "1k"):
            gains = [
                mean(systems["tuned+endings"].values()) - mean(systems["space"].values())
                for (pair, setup, _, _), systems in _cells().items()
                if setup == seeds and ("fi" in pair.split("-")) == finnish
            ]
            if gains:
                means.append(f"{mean(gains):+.2f} at {seeds} ({len(gains)} setups)")
        lines.append(f"- {title}: {', '.join(means)}")
    return "\n".join(lines)


def _spread(cells: list[dict[str, dict[int, float]]]) -> list[str]:
    """How much the training seed matters, where several were run."""
    lines = []
    for system in ("tuned+endings", "tuned"):
        several = [list(cell[system].values()) for cell in cells if len(cell[system]) > 1]
        if not several:
            continue
        spreads = [stdev(values) for values in several]
        lines.append(
            f"Over {len(several[0])} training seeds P@1 of {system} has a standard deviation of "
            f"{mean(spreads):.2f} points on average (at most {max(spreads):.2f}), in "
            f"{len(several)} of these {len(cells)} setups; the table is of their means."
        )
    return lines or ["One training seed."]


def units_run() -> str:
    """What of the matrix is finished: pairs by seeds and spaces."""
    pairs: dict[tuple[str, str], list[str]] = defaultdict(list)
    units = [outcome["unit"] for outcome in _units()]
    first = min(unit["training_seed"] for unit in units)
    units = [unit for unit in units if unit["training_seed"] == first]  # the others repeat these
    for unit in units:
        pair = f"{unit['source']}-{unit['target']}"
        pairs[unit["setup"], unit["space"]].append(pair)
    rows = [
        f"| {setup} | {space} | {', '.join(sorted(found))} |"
        for (setup, space), found in sorted(pairs.items(), key=lambda row: (row[0][0] != "5k", row))
    ]
    return "\n".join(
        [
            f"{len(units)} of its 60 units are finished:",
            "",
            "| seeds | space | pairs |",
            "|---|---|---|",
            *rows,
        ]
    )


SECTIONS = {
    "spaces": spaces,
    "setups-won": setups_won,
    "by-language": by_language,
    "controls": controls,
    "units-run": units_run,
    "ablations": ablations,
    "without-seeds": without_seeds,
}


def with_figures(text: str) -> str:
    """The text with every section as it should be; an error if one is missing."""
    for name, make in SECTIONS.items():
        start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
        before, found, rest = text.partition(start)
        old, ended, after = rest.partition(end)
        if not found or not ended:
            raise SystemExit(f"README.md has no section {name!r} ({start.strip()} … {end.strip()})")
        del old
        text = before + start + make() + end + after
    return text


def main() -> None:
    text = with_figures(README.read_text(encoding="utf-8"))
    with atomic_write(README) as file:
        file.write(text)


if __name__ == "__main__":
    main()
