"""Silver pairs and hard negatives, mined from a shared space (docs/method.md §2).

Pairs are (n, 2) arrays of word indices, source first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blicer.errors import InputError

if TYPE_CHECKING:
    from blicer.neighbours.retriever import Retriever

Ints = NDArray[np.int64]
Pairs = Ints  # (n, 2): source index, target index


def pair_keys(pairs: Pairs, n_target: int) -> Ints:
    """``source * n_target + target``: distinct pairs have distinct keys."""
    return pairs[:, 0] * n_target + pairs[:, 1]


def first_occurrences(keys: Ints) -> Ints:
    """Index of the first occurrence of each distinct key, in order."""
    return np.sort(np.unique(keys, return_index=True)[1]).astype(np.int64)


def as_pairs(pairs: ArrayLike | None, n_source: int, n_target: int) -> Pairs:
    """Convert to (n, 2) word indices, checked against the vocabularies; None means no pairs."""
    array: NDArray[Any] = np.zeros((0, 2), np.int64) if pairs is None else np.asarray(pairs)
    if array.size == 0:
        return np.zeros((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"seeds have shape {array.shape} and type {array.dtype}: "
            "expected an (n, 2) array of word indices (Lexicon.indices makes one)"
        )
    result = array.astype(np.int64)
    outside = (result < 0).any(axis=1) | (result >= (n_source, n_target)).any(axis=1)
    if outside.any():
        worst = result[outside][0].tolist()
        raise InputError(
            f"the seed {worst} is outside the vocabularies, which have {n_source} source and "
            f"{n_target} target words"
        )
    return result


def silver_pairs(
    retriever: Retriever,
    taken: Pairs,
    *,
    n_aug: int = 4000,
    n_freq: int = 20000,
    n_aug_pool: int = 6000,
) -> Pairs:
    """``D_aug``: at most ``n_aug`` confident pairs, best first.

    The ``n_aug_pool`` best matches of each direction, of the ``n_freq`` most frequent words, are
    walked in parallel: best forward, best backward, second best forward, and so on. A pair with a
    word that occurs on its side of ``taken`` is left out.
    """
    if n_aug == 0:
        return np.zeros((0, 2), np.int64)
    n_target = retriever.target.shape[0]
    forward = best_matches(retriever, n_freq)[:n_aug_pool]
    backward = best_matches(retriever, n_freq, reverse=True)[:n_aug_pool]
    walk = interleave(forward, backward)
    walk = walk[first_occurrences(pair_keys(walk, n_target))]
    known = np.isin(walk[:, 0], taken[:, 0]) | np.isin(walk[:, 1], taken[:, 1])
    return walk[~known][:n_aug]


def best_matches(retriever: Retriever, n_freq: int, *, reverse: bool = False) -> Pairs:
    """Each of the ``n_freq`` most frequent words with its best match, best-scoring pairs first.

    The whole other vocabulary is searched by ``2 cos - r(candidate)``: the query's own hubness
    would not change its best match, but it would change the order of the pairs.
    """
    side = retriever.target if reverse else retriever.source
    queries = np.arange(min(n_freq, side.shape[0]), dtype=np.int64)
    found = retriever.search(1, queries, measure="csls_candidate", reverse=reverse)
    match = found.indices[:, 0]
    order = np.argsort(-found.scores[:, 0], kind="stable")
    columns = (match, queries) if reverse else (queries, match)
    return np.column_stack(columns).astype(np.int64)[order]


def interleave(first: Pairs, second: Pairs) -> Pairs:
    """first[0], second[0], first[1], second[1], …, then the rest of the longer list."""
    rank = np.concatenate([np.arange(len(first)), np.arange(len(second))])
    return np.concatenate([first, second])[np.argsort(rank, kind="stable")]


def nearest_others(
    retriever: Retriever,
    words: Ints,
    partners: Ints,
    k: int,
    *,
    reverse: bool = False,
    limit: int | None = None,
) -> tuple[Ints, NDArray[np.float32]]:
    """Indices and CSLS (words, k) of each word's nearest words other than its own partner.

    ``reverse``: ``words`` are target words and their neighbours source words. ``limit``: only this
    many of the most frequent words are candidates (all by default). If there are fewer than k
    other words, all are returned.
    """
    candidates = (retriever.source if reverse else retriever.target).shape[0]
    # One more than wanted, because the partner may be among them; each distinct word once.
    width = min(k + 1, candidates if limit is None else min(limit, candidates))
    queries, row = np.unique(words, return_inverse=True)
    found = retriever.search(width, queries, reverse=reverse, limit=limit)
    indices, scores = found.indices[row], found.scores[row]
    # Move the partner to the end (a stable sort keeps the order of the others), then cut the end.
    order = np.argsort(indices == partners[:, None], axis=1, kind="stable")[:, : width - 1]
    return np.take_along_axis(indices, order, 1), np.take_along_axis(scores, order, 1)
