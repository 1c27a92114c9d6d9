"""One RCSLS iteration (loss and gradient) against the usual NumPy way of computing it.

python -m benchmarks.rcsls_iteration
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from benchmarks.peak import measure
from blicer.align.rcsls import RCSLS, RelaxedCSLS


def baseline(
    x: np.ndarray,
    y: np.ndarray,
    pairs: np.ndarray,
    weights: np.ndarray,
    *,
    neighbours: int = 10,
    block_rows: int = 500,
) -> tuple[float, np.ndarray]:
    """As the literature describes it: float64 products, a partial sort of every row.

    Cut into blocks of rows, as the whole product would take 8 GB a side.
    """
    x_seeds, y_seeds = x[pairs[:, 0]], y[pairs[:, 1]]
    mapped = x_seeds @ weights
    loss = -2.0 * float((mapped * y_seeds).sum())
    gradient = -2.0 * (x_seeds.T @ y_seeds)
    all_mapped = x @ weights
    for start in range(0, len(pairs), block_rows):
        part = slice(start, start + block_rows)
        scores = mapped[part] @ y.T
        near = np.argpartition(scores, -neighbours, axis=1)[:, -neighbours:]
        loss += float(np.take_along_axis(scores, near, axis=1).sum()) / neighbours
        gradient += x_seeds[part].T @ y[near].sum(axis=1) / neighbours
        scores = y_seeds[part] @ all_mapped.T
        near = np.argpartition(scores, -neighbours, axis=1)[:, -neighbours:]
        loss += float(np.take_along_axis(scores, near, axis=1).sum()) / neighbours
        gradient += x[near].sum(axis=1).T @ y_seeds[part] / neighbours
    return loss / len(pairs), gradient / len(pairs)


def synthetic(
    seeds: int, words: int, dim: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Unit rows x and a noisy rotation of them, distinct seed pairs, and an orthogonal map."""
    random = np.random.default_rng(seed)
    rotation = np.linalg.qr(random.standard_normal((dim, dim)))[0].astype(np.float32)
    x = random.standard_normal((words, dim), dtype=np.float32)
    y = x @ rotation + 0.5 * random.standard_normal((words, dim), dtype=np.float32)
    for rows in (x, y):
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    chosen = random.choice(words, size=seeds, replace=False)
    start = np.linalg.qr(rotation + 0.01 * random.standard_normal((dim, dim)))[0]
    # QR may turn axes round; the map nearest to the rotation is what training starts from.
    start *= np.sign((start * rotation).sum(axis=0))
    return x, y, np.column_stack([chosen, chosen]), start.astype(np.float32)


def run(
    *, seeds: int = 5_000, words: int = 200_000, dim: int = 300, repeats: int = 2
) -> dict[str, Any]:
    """Seconds of both, their ratio, and how far loss and gradient are apart."""
    x, y, pairs, weights = synthetic(seeds, words, dim)
    vectors = torch.from_numpy(x), torch.from_numpy(y)
    start = torch.from_numpy(weights)
    ours = RelaxedCSLS(*vectors, pairs, RCSLS(relaxed=True))
    ours.loss((start, None))  # threads and buffers are there before the clock starts
    runs = [measure(lambda: ours((start, None))) for _ in range(repeats)]
    mine = min(runs, key=lambda each: each.seconds)
    # What RCSLS runs by default: true cosines, and a map of either side.
    default = RelaxedCSLS(*vectors, pairs, RCSLS())
    by_default = measure(lambda: default((start, torch.eye(dim))))
    x64, y64, weights64 = (each.astype(np.float64) for each in (x, y, weights))
    usual = measure(lambda: baseline(x64, y64, pairs, weights64))
    loss, (gradient, _) = mine.result
    if gradient is None:
        raise RuntimeError("the source map has no gradient")
    usual_loss, usual_gradient = usual.result
    difference = np.abs(gradient.numpy() - usual_gradient).max() / np.abs(usual_gradient).max()
    return {
        "benchmark": "rcsls_iteration",
        "seeds": seeds,
        "words": words,
        "dim": dim,
        "threads": torch.get_num_threads(),
        "seconds": mine.seconds,
        "seconds_by_default": by_default.seconds,
        "ratio_by_default": usual.seconds / by_default.seconds,
        "baseline_seconds": usual.seconds,
        "ratio": usual.seconds / mine.seconds,
        "extra_gb": mine.extra_gb,
        "baseline_extra_gb": usual.extra_gb,
        "loss_difference": abs(loss - usual_loss),
        "gradient_difference": float(difference),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
