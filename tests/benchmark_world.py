"""A tiny world on disk for the benchmark's tests: three languages, dictionaries in each layout."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blicer.benchmark.plan import Dataset, Matrix, Unit, make_units
from blicer.benchmark.results import Result
from blicer.benchmark.run import attempt, describe

WORDS = 120
LETTERS = {"en": "abcdefghij", "fr": "klmnopqrst", "ru": "абвгдежзик"}
SETTINGS: dict[str, Any] = {
    "preset": "supervised",
    "epochs": 1,
    "n_neg": 5,
    "n_cand": 8,
    "n_rep": 1,
    "learning_rate": 1e-3,
    "batch_size": 64,
}
TRAIN = {
    "xling": "xling/{pair}/yacle.train.freq.{size}.{pair}.tsv",
    "panlex": "panlex/{pair}/{pair}.train.{size}.cc.trans",
    "muse": "muse/{pair}.0-{size}.txt",
    "own": "{pair}/train.{size}.tsv",
}
TEST = {
    "xling": "xling/{pair}/yacle.test.freq.2k.{pair}.tsv",
    "panlex": "panlex/{pair}/{pair}.test.2000.cc.trans",
    "muse": "muse/{pair}.5000-6500.txt",
    "own": "{pair}/test.tsv",
}


def word(number: int, language: str) -> str:
    letters = LETTERS[language]
    return letters[number % 10] + letters[number // 10 % 10] + letters[number // 100 % 10]


def write_vectors(folder: Path, *languages: str) -> None:
    """Noisy copies of one matrix, as ``en.npy`` with ``en.vocab.txt``."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(WORDS, 12))
    (folder / "vectors").mkdir(parents=True, exist_ok=True)
    for language in languages:
        noisy = meaning + 0.5 * rng.normal(size=meaning.shape)
        np.save(folder / "vectors" / f"{language}.npy", noisy.astype(np.float32))
        words = "".join(f"{word(i, language)}\n" for i in range(WORDS))
        (folder / "vectors" / f"{language}.vocab.txt").write_text(words, encoding="utf-8")


def write_dictionaries(folder: Path, pair: str, layout: str = "xling", size: str = "5k") -> None:
    """Even words to train on, odd ones to test on; two of these are in no vocabulary."""
    source, target = pair.split("-")
    rows = [(word(i, source), word(i, target)) for i in range(WORDS)]
    test = [*rows[1::2], ("zzz", "yyy"), (rows[1][0], rows[3][1]), ("xxx", rows[5][1])]
    for pattern, pairs in ((TRAIN[layout], rows[::2]), (TEST[layout], test)):
        path = folder / pattern.format(pair=pair, size=size)
        path.parent.mkdir(parents=True, exist_ok=True)
        between = " " if layout == "muse" else "\t"
        path.write_text("".join(f"{a}{between}{b}\n" for a, b in pairs), encoding="utf-8")


def make_world(folder: Path) -> Dataset:
    """XLING's layout, en-fr and en-ru, 5k and 1k (the sizes are only names here)."""
    write_vectors(folder, *LETTERS)
    for pair in ("en-fr", "en-ru"):
        for size in ("5k", "1k"):
            write_dictionaries(folder, pair, size=size)
    return Dataset("xling", folder)


def plan(dataset: Dataset, encoder: Path | str, **matrix: Any) -> list[Unit]:
    """Units with settings that make them take a second."""
    usual: dict[str, Any] = {
        "pairs": ["en-fr"],
        "setups": ["5k"],
        "spaces": ["procrustes"],
        "encoders": [str(encoder)],
        "settings": SETTINGS,
    }
    return make_units(Matrix(**{**usual, **matrix}), dataset)[0]


@dataclass(frozen=True)
class DiesOnce:
    """``attempt``, but the process of one unit is killed in its middle, the first time."""

    dataset: Dataset
    work: Path
    victim: str = ""

    def __call__(self, unit: Unit) -> Result:
        from blicer import pipeline

        marker = self.work / "killed"
        view = pipeline.held_out_view

        def dies(*arguments: Any) -> Any:
            if unit.key == self.victim and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return view(*arguments)

        pipeline.held_out_view = dies
        return attempt(unit, self.dataset, self.work)


def made_up(unit: Unit) -> Result:
    """An outcome with the right shape, without the work."""
    figures = {"queries": 10, "all_queries": 12, "p@1": 0.5, "p@5": 0.7, "mrr": 0.6}
    figures |= {"p@1_all": 5 / 12}
    gain = {"difference": 0.1, "low": -0.05, "high": 0.2, "p_value": 0.04}
    systems = {
        name: {
            "scorers": [],
            "default": name == "tuned",
            "weights": {"csls": 1.0},
            "curve": [],
            "forward": {**figures, "gain": None if name == "space" else gain},
            "backward": {**figures, "gain": None if name == "space" else gain},
        }
        for name in unit.systems
    }
    return {
        **describe(unit, "done"),
        "seconds": {"total": 2.0},
        "seeds_used": 60,
        "held_out": 18,
        "systems": systems,
    }


def quick(unit: Unit) -> Result:
    """Runs in a process of its own; what it does is written in the unit's settings."""
    trick = unit.settings["trick"]
    if trick == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if trick.startswith("once "):
        marker = Path(trick.removeprefix("once "))
        if not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return made_up(unit)


def sleeper(unit: Unit) -> Result:
    time.sleep(60)
    return made_up(unit)
