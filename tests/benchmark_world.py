"""A tiny world on disk for the benchmark's tests: three languages, dictionaries in each layout."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blicer.benchmark.dataset import Dataset, Digests
from blicer.benchmark.plan import Matrix, make_plan
from blicer.benchmark.pool import Job, Outcome
from blicer.benchmark.unit import Task

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


def plan(dataset: Dataset, encoder: Path | str, **matrix: Any) -> list[Task]:
    """Units with settings that make them take a second."""
    usual: dict[str, Any] = {
        "pairs": ["en-fr"],
        "setups": ["5k"],
        "spaces": ["procrustes"],
        "encoders": [str(encoder)],
        "settings": SETTINGS,
    }
    return make_plan(Matrix(**{**usual, **matrix}), dataset, Digests()).tasks


@dataclass(frozen=True)
class DiesOnce(Job):
    """The process of the unit with this key is killed in its middle, the first time."""

    victim: str = ""

    def __call__(self, task: Task) -> Outcome:
        from blicer.workshop import Workshop

        marker = self.work / "killed"
        view = Workshop.view

        def dies(*arguments: Any) -> Any:
            if task.key == self.victim and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return view(*arguments)

        Workshop.view = dies  # type: ignore[method-assign]
        try:
            return super().__call__(task)
        finally:
            Workshop.view = view  # type: ignore[method-assign]
