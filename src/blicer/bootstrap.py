"""Bootstrap over queries: intervals of means, and a paired test between two systems."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_BLOCK = 400_000  # drawn indices held at a time


def resampled_means(values: Floats, draws: int, seed: int) -> Floats:
    """Column means of ``values`` (queries, metrics) over queries drawn again: (draws, metrics)."""
    means = np.empty((draws, values.shape[1]))
    rows = np.ascontiguousarray(values.T)
    for start, picked in _draw(len(values), draws, seed):
        for metric, row in enumerate(rows):
            means[start : start + len(picked), metric] = row[picked].mean(axis=1)
    return means


def _draw(queries: int, draws: int, seed: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    generator = np.random.default_rng(seed)
    step = max(1, _BLOCK // max(queries, 1))
    for start in range(0, draws, step):
        size = (min(step, draws - start), queries)
        yield start, generator.integers(0, queries, size=size)


def interval(means: Floats) -> Floats:
    """The middle 95 % of each column: (metrics, 2)."""
    return np.asarray(np.percentile(means, [2.5, 97.5], axis=0).T, dtype=np.float64)


def paired_p_values(differences: Floats, means: Floats) -> Floats:
    """Two-sided p-value per metric for "the mean difference is zero".

    The resampled means, moved to a mean of zero, are what the difference would look like if there
    were none; the p-value is the share of them at least as far from zero as the one observed. The
    observed one counts among them, so that p is never 0.
    """
    observed = differences.mean(axis=0)
    as_far = np.abs(means - observed) >= np.abs(observed) - 1e-12
    return np.asarray((1 + as_far.sum(axis=0)) / (1 + len(means)), dtype=np.float64)
