"""Aligning very large vocabularies: peak memory, in units of the two matrices.

    python -m benchmarks.large_vocabulary [--words 2000000] [--dim 300] [--method vecmap]
    python -m benchmarks.large_vocabulary --words 200000 --method train --seeds 1000

Random vectors and their rotation; what is aligned is checked on words that are no seeds. The method
``train`` is all of ``blicer train`` with its defaults.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import blicer
from benchmarks.peak import measure
from blicer.align import METHODS, aligner_class
from blicer.embeddings import Embeddings
from blicer.lexicon import Lexicon

TRAIN = "train"
CHECKED = 1_000


def sides(words: int, dim: int) -> tuple[Embeddings, Embeddings]:
    rng = np.random.default_rng(0)
    source = rng.standard_normal((words, dim), dtype=np.float32)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0].astype(np.float32)
    target = source @ rotation
    names = [f"w{i}" for i in range(words)]
    return Embeddings(names, source), Embeddings(list(names), target)


def run(words: int, dim: int, method: str, seeds: int) -> dict[str, Any]:
    source, target = sides(words, dim)
    known = Lexicon((f"w{i}", f"w{i}") for i in range(seeds))
    matrices = 2 * words * dim * 4 / 2**30
    if method == TRAIN:
        work = measure(lambda: blicer.train(source, target, known).space)
    else:
        work = measure(lambda: aligner_class(method)().align(source, target, known))
    space = work.result
    rows = np.linspace(seeds, words - 1, CHECKED).astype(int)
    x, y = (np.asarray(side.vectors[rows]) for side in (space.source, space.target))
    right = float(((x @ y.T).argmax(axis=1) == np.arange(len(rows))).mean())
    return {
        "method": method,
        "words a side": words,
        "seeds": seeds,
        "dim": dim,
        "seconds": round(work.seconds, 1),
        "both matrices, GB": round(matrices, 2),
        "extra memory while aligning, GB": round(work.extra_gb, 2),
        "in units of both matrices": round(work.extra_gb / matrices, 2),
        "checked words that find themselves": right,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--words", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=300)
    parser.add_argument("--method", choices=[*METHODS, TRAIN], default="vecmap")
    parser.add_argument("--seeds", type=int, default=5_000)
    options = parser.parse_args()
    print(json.dumps(run(options.words, options.dim, options.method, options.seeds), indent=2))
