"""P@1 of every space on real vectors and XLING dictionaries, beside the reference figures.

python -m benchmarks.spaces_table --data ../shared/data
python -m benchmarks.spaces_table --data ../shared/data --pairs en-fr --methods procrustes vecmap

Vocabularies are cut at 60,000 words and lower-cased; a query counts if it and one of its gold
targets are in vocabulary; P@1 is by CSLS over all targets, in both directions. Each finished cell
is kept in a JSON file, so that a killed run goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import blicer.align
from blicer.benchmark.results import DONE, load_units
from blicer.embeddings import Embeddings
from blicer.evaluation import evaluate
from blicer.files import read_json, write_json
from blicer.lexicon import Lexicon

MAX_WORDS = 60_000
PAIRS = ("en-fr", "en-ru", "fi-fr", "ru-fr")

METHODS: dict[str, tuple[str, str]] = {
    "procrustes": ("procrustes", "supervised"),
    "vecmap": ("vecmap", "supervised"),
    "vecmap-semi": ("vecmap", "semi_supervised"),
    "vecmap-unsupervised": ("vecmap", "unsupervised"),
    "rcsls": ("rcsls", "supervised"),
    "c1": ("c1", "by the number of seeds"),
    "c2": ("c2", "by the number of seeds"),
}
"""Name of a row, and the method and mode that fill it."""

SEEDS = {
    "5k": ("procrustes", "vecmap", "rcsls", "c1", "c2"),
    "1k": ("procrustes", "vecmap", "vecmap-semi", "rcsls", "c1", "c2"),
    "0": ("vecmap-unsupervised",),
}
"""Sizes of the seed dictionary, and the rows that are filled by default."""

# Public reference code on the same vectors: (forward, backward) P@1 of each pair.
REFERENCE: dict[tuple[str, str, str], tuple[float, float]] = {
    ("5k", "procrustes", "en-fr"): (47.7, 39.5),
    ("5k", "procrustes", "en-ru"): (28.1, 29.1),
    ("5k", "procrustes", "fi-fr"): (39.1, 29.7),
    ("5k", "procrustes", "ru-fr"): (52.7, 43.6),
    ("5k", "vecmap", "en-fr"): (52.5, 44.1),
    ("5k", "vecmap", "en-ru"): (30.9, 34.2),
    ("5k", "vecmap", "fi-fr"): (41.1, 30.5),
    ("5k", "vecmap", "ru-fr"): (54.3, 46.8),
    ("5k", "rcsls", "en-fr"): (49.4, 41.7),
    ("5k", "rcsls", "en-ru"): (28.9, 30.7),
    ("5k", "rcsls", "fi-fr"): (41.1, 32.5),
    ("5k", "rcsls", "ru-fr"): (53.5, 44.2),
    ("5k", "c1", "en-fr"): (53.1, 44.7),
    ("1k", "procrustes", "en-fr"): (41.5, 32.6),
    ("1k", "procrustes", "en-ru"): (20.1, 21.0),
    ("1k", "procrustes", "fi-fr"): (32.5, 24.0),
    ("1k", "procrustes", "ru-fr"): (42.3, 34.9),
    ("1k", "vecmap", "en-fr"): (45.8, 38.7),
    ("1k", "vecmap-semi", "en-fr"): (45.2, 38.8),
    ("1k", "rcsls", "en-fr"): (43.5, 34.4),
    ("1k", "rcsls", "en-ru"): (20.6, 22.2),
    ("1k", "rcsls", "fi-fr"): (34.1, 25.4),
    ("1k", "rcsls", "ru-fr"): (43.0, 35.4),
    ("1k", "c1", "en-fr"): (52.1, 42.7),
}


@cache
def vectors(data: Path, language: str) -> Embeddings:
    folder = data / "vectors"
    return Embeddings.load(
        folder / f"{language}.npy",
        vocabulary=folder / f"{language}.vocab.txt",
        max_words=MAX_WORDS,
        language=language,
    )


def dictionary(data: Path, pair: str, part: str) -> Lexicon:
    return Lexicon.load(data / "xling" / pair / f"yacle.{part}.{pair}.tsv")


def aligner(method: str, seeds: str) -> Any:
    """The method in its mode; C1 and C2 follow the number of seeds (docs/method.md §6.4)."""
    name, mode = METHODS[method]
    if name in ("c1", "c2"):
        mode = "supervised" if seeds == "5k" else "semi_supervised"
    return blicer.align.aligner_class(name).preset(mode)


def cell(data: Path, pair: str, seeds: str, method: str) -> dict[str, Any]:
    """Align and evaluate once; the test dictionary is read after the space is made."""
    source, target = (vectors(data, language) for language in pair.split("-"))
    unsupervised = method == "vecmap-unsupervised"
    lexicon = None if unsupervised else dictionary(data, pair, f"train.freq.{seeds}")
    chosen = aligner(method, seeds)
    started, cpu = time.perf_counter(), time.process_time()
    space = chosen.align(source, target, lexicon)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    result = evaluate(space, dictionary(data, pair, "test.freq.2k"), bootstrap=0)
    return {
        "forward": 100 * result.forward["p@1"],
        "backward": 100 * result.backward["p@1"],
        "queries": [result.forward.queries, result.backward.queries],
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
        "settings": space.settings,
    }


def is_current(kept: dict[str, Any], chosen: Any) -> bool:
    """Whether a kept cell was made with the settings that the code has now."""
    settings = kept["settings"]
    return all(settings.get(name, value) == value for name, value in chosen.settings.items())


def from_units(folder: Path) -> dict[str, dict[str, Any]]:
    """What ``blicer benchmark run`` measured of spaces alone, on the same data and queries."""
    cells = {}
    for outcome in load_units(folder):
        unit = outcome["unit"]
        usual = unit["max_words"] == MAX_WORDS and not unit["space_mode"]
        if outcome["status"] != DONE or not usual or unit["space"] not in METHODS:
            continue
        found = {way: outcome["systems"]["space"][way] for way in ("forward", "backward")}
        cells[f"{unit['source']}-{unit['target']}/{unit['setup']}/{unit['space']}"] = {
            **{way: 100 * figures["p@1"] for way, figures in found.items()},
            "queries": [figures["queries"] for figures in found.values()],
            "settings": {"unit": outcome["key"]},
        }
    return cells


def table(cells: dict[str, dict[str, Any]], pairs: list[str]) -> str:
    """Markdown: ours, and the difference to the reference where there is one."""
    heads = [f"{a}>{b}" for pair in pairs for a, b in (pair.split("-"), reversed(pair.split("-")))]
    lines = [
        "| seeds | method | " + " | ".join(heads) + " |",
        "|---|---|" + "---|" * len(heads),
    ]
    differences = []
    rows = {tuple(key.split("/")[1:]) for key in cells if key.split("/")[0] in pairs}
    order, names = list(SEEDS), list(METHODS)
    for seeds, method in sorted(rows, key=lambda row: (order.index(row[0]), names.index(row[1]))):
        entries = []
        for pair in pairs:
            ours = cells.get(f"{pair}/{seeds}/{method}")
            known = REFERENCE.get((seeds, method, pair))
            for place, direction in enumerate(("forward", "backward")):
                if ours is None:
                    entries.append(f"({known[place]})" if known else "")
                    continue
                text = f"{ours[direction]:.1f}"
                if known:
                    difference = ours[direction] - known[place]
                    differences.append(difference)
                    text += f" ({known[place]}, {difference:+.1f})"
                entries.append(text)
        lines.append(f"| {seeds} | {method} | " + " | ".join(entries) + " |")
    lines += ["", "In brackets: the reference implementation's figure, and ours minus it."]
    if differences:
        mean, worst = sum(differences) / len(differences), min(differences)
        lines.append(
            f"{len(differences)} cells compared: mean difference {mean:+.2f}, worst {worst:+.2f}."
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="folder of vectors and xling")
    parser.add_argument("--pairs", nargs="+", default=list(PAIRS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=None)
    parser.add_argument("--seeds", nargs="+", choices=list(SEEDS), default=["5k", "1k"])
    parser.add_argument("--cells", type=Path, default=Path("spaces_table.json"))
    parser.add_argument("--show", action="store_true", help="only print what is finished")
    parser.add_argument(
        "--units", type=Path, help="folder of a benchmark, whose cells are not computed again"
    )
    arguments = parser.parse_args()
    cells: dict[str, dict[str, Any]] = (
        read_json(arguments.cells) if arguments.cells.exists() else {}
    )
    for key in list(cells):
        _, seeds, method = key.split("/")
        if not is_current(cells[key], aligner(method, seeds)):
            print(f"{key}: was made with other settings, and is left out", file=sys.stderr)
            del cells[key]
    if arguments.units is not None:
        cells = {**from_units(arguments.units), **cells}
        write_json(arguments.cells, cells)
    for seeds in [] if arguments.show else arguments.seeds:
        for method in arguments.methods or SEEDS[seeds]:
            if (method == "vecmap-unsupervised") != (seeds == "0"):
                continue
            for pair in arguments.pairs:
                key = f"{pair}/{seeds}/{method}"
                if key in cells:
                    continue
                cells[key] = cell(arguments.data, pair, seeds, method)
                write_json(arguments.cells, cells)
                print(
                    f"{key}: {cells[key]['forward']:.2f} {cells[key]['backward']:.2f} "
                    f"in {cells[key]['seconds']} s",
                    file=sys.stderr,
                )
    print(table(cells, arguments.pairs))


if __name__ == "__main__":
    main()
