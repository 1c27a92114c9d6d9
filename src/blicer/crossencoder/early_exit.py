"""Exact early exit: find the best candidate of each query without scoring them all.

A candidate's final score is a known part (the cheap scorers' share, at hand for all candidates)
plus weighted parts that are expensive to know and lie in [0, 1]. METHOD.md §4 is the case
``(1-λ)·scaled CSLS + λ/2·sigmoid(x,y) + λ/2·sigmoid(y,x)``: each order of the cross-encoder is a
part of its own, so a candidate that the first order speaks against is dropped at half the cost.

What is not known yet counts as 1, which gives an upper bound. Always score next what has the
highest bound; when the candidate with the highest bound is fully known, no other can win. Rounded
addition and multiplication are monotone and the parts are always added in the same order, so a
bound is never below the final score, not even in the last bit: the answer is that of full scoring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blicer.errors import InputError

# === earlyexit ===
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ScoreParts = Callable[[Ints, Ints, Ints], ArrayLike]
"""``score(queries, candidates, parts)``: positions in, scores in [0, 1] out, all of one length."""


@dataclass(frozen=True)
class BestFirst:
    """The best candidate of each query, and what finding it cost."""

    best: Ints
    """(q,) position of the winner among the query's candidates."""
    scores: Floats
    """(q,) final score of the winner."""
    scored: int
    """Parts that were scored."""
    total: int
    """Parts that full scoring would have scored."""

    @property
    def saved(self) -> float:
        return 1.0 - self.scored / self.total if self.total else 0.0


def mix(known: ArrayLike, weights: Sequence[float], parts: ArrayLike) -> Floats:
    """Full scoring: (q, k) known part plus the weighted sum of the (m, q, k) parts."""
    final = np.array(known, dtype=np.float64)
    for weight, part in zip(weights, np.asarray(parts, dtype=np.float64), strict=True):
        final = final + weight * part
    return final


def csls_mix(csls_scaled: ArrayLike, lam: float, orders: int = 2) -> tuple[Floats, list[float]]:
    """The known part and the weights of METHOD.md §4's final score."""
    if not 0.0 <= lam <= 1.0:
        raise InputError(f"lambda is {lam}; expected a number from 0 to 1")
    known = (1.0 - lam) * np.asarray(csls_scaled, dtype=np.float64)
    return known, [lam / orders] * orders


def best_first(
    known: ArrayLike,
    weights: Sequence[float],
    score: ScoreParts,
    *,
    batch_size: int = 64,
) -> BestFirst:
    """The top-1 of full scoring (ties: the earlier candidate), scoring only what can matter.

    Every round scores one part of the most promising candidate of each open query. When few
    queries are open the rounds take more candidates each, so that batches stay near
    ``batch_size``; a larger one means fewer, fuller calls and a little more scored than needed.
    A candidate whose known part is ``-inf`` is no candidate.
    """
    known = np.asarray(known, dtype=np.float64)
    if known.ndim != 2 or known.shape[1] == 0:
        raise InputError(f"known scores have shape {known.shape}; expected (queries, candidates)")
    if np.isnan(known).any():
        raise InputError("a known score is not a number")
    if any(not (np.isfinite(weight) and weight >= 0) for weight in weights):
        raise InputError(f"weights are {list(weights)}; expected numbers of at least 0")
    n_queries, k = known.shape
    parts = [i for i, weight in enumerate(weights) if weight > 0]
    # values[p]: a part's score, or 1 while it is not known. Parts become known in order.
    values = np.ones((len(parts), n_queries, k))
    done = np.zeros((n_queries, k), dtype=np.int64)
    done[np.isneginf(known)] = len(parts)
    total = int((done == 0).sum()) * len(parts) if parts else 0
    used = [weights[i] for i in parts]
    part_of = np.array([*parts, -1], dtype=np.int64)

    bound = mix(known, used, values)
    open_queries = np.arange(n_queries)
    scored = 0
    while True:
        leader = bound[open_queries].argmax(axis=1)
        open_queries = open_queries[done[open_queries, leader] < len(parts)]
        if not len(open_queries):
            break
        per_query = min(k, max(1, batch_size // len(open_queries)))
        rows, columns = _most_promising(bound, done, len(parts), open_queries, per_query)
        stage = done[rows, columns]
        found = np.asarray(score(rows, columns, part_of[stage]), dtype=np.float64)
        if found.shape != rows.shape or not ((found >= 0) & (found <= 1)).all():
            raise InputError("a scorer gave a score outside [0, 1], or not one for each pair")
        values[stage, rows, columns] = found
        done[rows, columns] += 1
        scored += len(rows)
        bound[rows, columns] = mix(known[rows, columns], used, values[:, rows, columns])

    best = bound.argmax(axis=1).astype(np.int64)
    return BestFirst(best, bound[np.arange(n_queries), best], scored, total)


def _most_promising(
    bound: Floats, done: Ints, n_parts: int, queries: Ints, per_query: int
) -> tuple[Ints, Ints]:
    """Up to ``per_query`` not fully known candidates of each query, by bound.

    None is taken whose bound is under a final score that the query already has: it cannot win.
    """
    rows_bound = bound[queries]
    complete = done[queries] == n_parts
    floor = np.where(complete, rows_bound, -np.inf).max(axis=1, keepdims=True)
    wanted = np.where(complete | (rows_bound < floor), -np.inf, rows_bound)
    order = np.argsort(-wanted, axis=1, kind="stable")[:, :per_query]
    rows, slots = np.nonzero(np.take_along_axis(wanted, order, axis=1) > -np.inf)
    return queries[rows], order[rows, slots].astype(np.int64)
