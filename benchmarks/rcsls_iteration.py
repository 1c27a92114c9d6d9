"""One RCSLS iteration (loss and gradient) against the usual NumPy way of computing it.

python -m benchmarks.rcsls_iteration
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from benchmarks.peak import measure
from blicer.align.rcsls import RCSLS, CSLSLoss


def baseline(
    x: np.ndarray,
    y: np.ndarray,
    pairs: np.ndarray,
    maps: tuple[np.ndarray, np.ndarray],
    *,
    neighbours: int = 10,
    block_rows: int = 500,
) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
    """The usual way: float64 products, a partial sort of every row, one row a pair.

    Cut into blocks of rows, as the whole product would take 8 GB a side.
    """
    mapped = x @ maps[0], y @ maps[1]
    lengths = [np.linalg.norm(rows, axis=1, keepdims=True) for rows in mapped]
    unit = [rows / length for rows, length in zip(mapped, lengths, strict=True)]
    pulls = [np.zeros_like(rows) for rows in unit]
    seeds = [rows[column] for rows, column in zip(unit, pairs.T, strict=True)]
    loss = -2.0 * float((seeds[0] * seeds[1]).sum())
    for side, other in ((0, 1), (1, 0)):
        np.add.at(pulls[side], pairs[:, side], -2.0 * seeds[other])
        for start in range(0, len(pairs), block_rows):
            part = slice(start, start + block_rows)
            scores = seeds[side][part] @ unit[other].T
            near = np.argpartition(scores, -neighbours, axis=1)[:, -neighbours:]
            loss += float(np.take_along_axis(scores, near, axis=1).sum()) / neighbours
            means = unit[other][near].mean(axis=1)
            np.add.at(pulls[side], pairs[part, side], means)
            shares = np.repeat(seeds[side][part] / neighbours, neighbours, axis=0)
            np.add.at(pulls[other], near.ravel(), shares)
    first, second = (
        rows.T @ ((pull - each * (each * pull).sum(axis=1, keepdims=True)) / length) / len(pairs)
        for rows, pull, each, length in zip((x, y), pulls, unit, lengths, strict=True)
    )
    return loss / len(pairs), (first, second)


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
    ours = CSLSLoss(torch.from_numpy(x), torch.from_numpy(y), pairs, RCSLS())
    maps = torch.from_numpy(weights), torch.eye(dim)
    ours(maps)  # threads and buffers are there before the clock starts
    mine = min((measure(lambda: ours(maps)) for _ in range(repeats)), key=lambda it: it.seconds)
    x64, y64, weights64 = (each.astype(np.float64) for each in (x, y, weights))
    usual = measure(lambda: baseline(x64, y64, pairs, (weights64, np.eye(dim))))
    loss, gradients = mine.result
    usual_loss, usual_gradients = usual.result
    difference = max(
        np.abs(gradient.numpy() - other).max() / np.abs(other).max()
        for gradient, other in zip(gradients, usual_gradients, strict=True)
    )
    return {
        "benchmark": "rcsls_iteration",
        "seeds": seeds,
        "words": words,
        "dim": dim,
        "threads": torch.get_num_threads(),
        "seconds": mine.seconds,
        "baseline_seconds": usual.seconds,
        "ratio": usual.seconds / mine.seconds,
        "extra_gb": mine.extra_gb,
        "baseline_extra_gb": usual.extra_gb,
        "loss_difference": abs(loss - usual_loss),
        "gradient_difference": float(difference),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
