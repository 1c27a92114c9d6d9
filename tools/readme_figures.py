"""Put the figures of ``results/`` into README and docs/results.md, so that they say the same.

python -m tools.readme_figures

Between ``<!-- NAME -->`` and ``<!-- /NAME -->`` stands what the function of that name makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from blicer.benchmark.cells import SAME, SPACES, read
from blicer.files import atomic_write
from blicer.pages import environment

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "results.md"
# What the units of the matrix have in common; an ablation differs in one of these.
MATRIX = {"encoder": "lite", "template": "T1", "alpha": 0.0, "space_mode": "", "max_words": 60_000}
DEFAULT, TUNED = "blicer", "tuned"
BEFORE, DEFAULT_BEFORE = "xling-before", "tuned+endings"


def spaces() -> str:
    return (RESULTS / "spaces.md").read_text(encoding="utf-8").strip()


def without_seeds() -> str:
    return (RESULTS / "without_seeds.md").read_text(encoding="utf-8").strip()


def setups_won(folder: str = "xling") -> str:
    """The head of the benchmark's report: the first list and table after its title."""
    text = (RESULTS / folder / "report.md").read_text(encoding="utf-8")
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


def _matrix(folder: str = "xling") -> tuple[Any, Any]:
    """The finished units of the matrix, and their cells; ``finnish``: on one side."""
    units, _, _, cells = read(RESULTS / folder)
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
    _, cells = _matrix(BEFORE)
    cells = cells[(cells["space"] != "c2") & ~cells["finnish"]]
    before = DEFAULT_BEFORE
    compared = [(before, "use+spelling"), (before, "untuned"), (TUNED, "untuned")]
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
    for system in (before, TUNED):
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


def by_language(folder: str = "xling", system: str = DEFAULT) -> str:
    """The default's mean gain where `lite` knows both languages, and where it does not."""
    _, cells = _matrix(folder)
    own = cells[cells["system"] == system]
    lines = []
    for title, finnish in (("languages that `lite` knows", False), ("Finnish on one side", True)):
        means = own[own["finnish"] == finnish].groupby("setup", observed=True)["gain"]
        found = [f"{one.mean():+.2f} at {setup} ({len(one)} setups)" for setup, one in means]
        lines.append(f"- {title}: {', '.join(found)}")
    return "\n".join(lines)


def summary() -> str:
    """Mean P@1 by space, seeds and what `lite` knows: of the space alone and of the default."""
    _, cells = _matrix()
    wide = cells.assign(method=cells["space"]).pivot_table(
        "p@1", ["setup", "finnish", "method", "cell"], "system", observed=True
    )
    rows = [
        {
            "seeds": setup,
            "languages": "with Finnish" if finnish else "English, French, Russian",
            "name": SPACES[space] + ", the default" * (space == "twoview"),
            "setups": len(one),
            "space": one["space"].mean(),
            "own": one[DEFAULT].mean(),
            "won": int((one[DEFAULT] > one["space"]).sum()),
        }
        for (setup, finnish, space), one in wide.groupby(
            ["setup", "finnish", "method"], observed=True
        )
    ]
    columns = {
        "seeds": "{seeds}",
        "languages": "{languages}",
        "space": "{name}",
        "alone, P@1": "{space:.1f}",
        "reranked, P@1": "{own:.1f}",
        "better in": "{won} of {setups}",
    }
    return _table(rows, columns)


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
    return f"{len(units)} of its 72 units are finished:\n\n{table}"


SECTIONS: dict[Path, dict[str, Callable[[], str]]] = {
    README: {"summary": summary},
    PAGE: {
        "spaces": spaces,
        "matrix": summary,
        "setups-won": setups_won,
        "by-language": by_language,
        "held-out": partial(setups_won, "held-out"),
        "setups-won-before": partial(setups_won, BEFORE),
        "by-language-before": partial(by_language, BEFORE, DEFAULT_BEFORE),
        "controls": controls,
        "units-run": units_run,
        "ablations": ablations,
        "without-seeds": without_seeds,
    },
}


def with_figures(text: str, path: Path) -> str:
    """The text of a file with every section as it should be; a missing one raises."""
    for name, make in SECTIONS[path].items():
        start, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
        before, found, rest = text.partition(start)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            place = f"({start.strip()} … {end.strip()})"
            raise SystemExit(f"{path.name} has no section {name!r} {place}")
        text = before + start + make() + end + after
    return text


def main() -> None:
    for path in SECTIONS:
        text = with_figures(path.read_text(encoding="utf-8"), path)
        with atomic_write(path) as file:
            file.write(text)


if __name__ == "__main__":
    main()
