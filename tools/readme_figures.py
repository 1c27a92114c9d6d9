"""Put the figures of ``results/`` into the README, so that it never says anything else.

python -m tools.readme_figures

Between ``<!-- NAME -->`` and ``<!-- /NAME -->`` stands what the function of that name makes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from blicer.benchmark.cells import SAME, read
from blicer.files import atomic_write
from blicer.pages import environment

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
README = ROOT / "README.md"
# What the units of the matrix have in common; an ablation differs in one of these.
MATRIX = {"encoder": "lite", "template": "T1", "alpha": 0.0, "space_mode": "", "max_words": 60_000}
DEFAULT, TUNED = "tuned+endings", "tuned"


def spaces() -> str:
    return (RESULTS / "spaces.md").read_text(encoding="utf-8").strip()


def without_seeds() -> str:
    text = (RESULTS / "without_seeds.md").read_text(encoding="utf-8").strip()
    return re.sub(r"^(#+)", r"#\1", text, flags=re.MULTILINE)


def setups_won() -> str:
    """The head of the benchmark's report: the first list and table after its title."""
    text = (RESULTS / "xling" / "report.md").read_text(encoding="utf-8")
    section = text.split("## Setups won, and by how much\n", 1)[1]
    return section.split("\nA setup is a direction", 1)[0].strip()


def ablations() -> str:
    """The tables of α and of templates in the report of the ablations."""
    text = (RESULTS / "ablations" / "report.md").read_text(encoding="utf-8")
    sections = re.split(r"^#+ ", text, flags=re.MULTILINE)
    tables = []
    for title in ("Templates", "α"):
        section = next(one for one in sections if one.startswith(title))
        tables.append("\n".join(line for line in section.splitlines() if line.startswith("|")))
    return "\n\n".join(tables)


def _matrix() -> tuple[Any, Any]:
    """The finished units of the matrix, and their cells; ``finnish``: on one side."""
    units, _, _, cells = read(RESULTS / "xling")
    for name, value in MATRIX.items():
        units, cells = units[units[name] == value], cells[cells[name] == value]
    return units, cells.assign(finnish=["fi" in pair.split("-") for pair in cells["pair"]])


def _table(rows: Any, columns: dict[str, str]) -> str:
    macros = environment().get_template("benchmark/report.md.j2").module
    return str(macros.table(rows, columns)).strip()


def _compared(cells: Any, one: str, other: str) -> dict[str, Any]:
    """How often, and by how many points of P@1, a system is better than another."""
    wide = cells.pivot_table("p@1", "cell", "system", observed=True)
    gains = (wide[one] - wide[other]).dropna()
    better, worse = (gains > SAME).sum(), (gains < -SAME).sum()
    return {
        "one": one,
        "other": other,
        "all": len(gains),
        "better": better,
        "level": len(gains) - better - worse,
        "worse": worse,
        "mean": gains.mean(),
        "worst": gains.min(),
    }


def controls() -> str:
    """What training adds: the spaces that hold nothing of `lite`, languages that it knows.

    What is trained is a mean over its training seeds; the others draw nothing at random.
    """
    _, cells = _matrix()
    cells = cells[(cells["space"] != "c2") & ~cells["finnish"]]
    compared = [(DEFAULT, "use+spelling"), (DEFAULT, "untuned"), (TUNED, "untuned")]
    columns = {
        "Compared": "{one} against {other}",
        "Setups": "{all}",
        "Better": "{better}",
        "Level": "{level}",
        "Worse": "{worse}",
        "Mean": "{mean:+.2f}",
        "Worst": "{worst:+.2f}",
    }
    lines = [_table([_compared(cells, *both) for both in compared], columns), ""]
    for system in (DEFAULT, TUNED):
        own = cells[cells["system"] == system]
        several = own[own["p@1_sd"].notna()]
        if len(several):
            spread, seeds = several["p@1_sd"], several["seeds"].iloc[0]
            lines.append(
                f"Over {len(seeds)} training seeds P@1 of {system} has a standard deviation of "
                f"{spread.mean():.2f} points on average (at most {spread.max():.2f}), in "
                f"{len(several)} of these {len(own)} setups; the table is of their means."
            )
    return "\n".join(lines)


def by_language() -> str:
    """The default's mean gain where `lite` knows both languages, and where it does not."""
    _, cells = _matrix()
    own = cells[cells["system"] == DEFAULT]
    lines = []
    for title, finnish in (("languages that `lite` knows", False), ("Finnish on one side", True)):
        means = own[own["finnish"] == finnish].groupby("setup", observed=True)["gain"]
        found = [f"{one.mean():+.2f} at {setup} ({len(one)} setups)" for setup, one in means]
        lines.append(f"- {title}: {', '.join(found)}")
    return "\n".join(lines)


def units_run() -> str:
    """What of the matrix is finished: pairs by seeds and spaces."""
    units, _ = _matrix()
    units = units[units["training_seed"] == units["training_seed"].min()]  # others repeat these
    pairs = units.groupby(["setup", "space"], observed=True)["pair"]
    rows = [
        {"setup": setup, "space": space, "pairs": ", ".join(sorted(found))}
        for (setup, space), found in pairs
    ]
    table = _table(rows, {"seeds": "{setup}", "space": "{space}", "pairs": "{pairs}"})
    return f"{len(units)} of its 60 units are finished:\n\n{table}"


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
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise SystemExit(f"README.md has no section {name!r} ({start.strip()} … {end.strip()})")
        text = before + start + make() + end + after
    return text


def main() -> None:
    text = with_figures(README.read_text(encoding="utf-8"))
    with atomic_write(README) as file:
        file.write(text)


if __name__ == "__main__":
    main()
