"""Pairs of word indices as single integers, so that sets of pairs are sorted arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from blicer.errors import InputError

Pairs = npt.NDArray[np.int64]  # (n, 2): source index, target index


def pair_keys(pairs: Pairs, n_target: int) -> npt.NDArray[np.int64]:
    """``source * n_target + target``: distinct pairs have distinct keys."""
    keys: npt.NDArray[np.int64] = pairs[:, 0] * n_target + pairs[:, 1]
    return keys


def first_occurrences(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each distinct key occurs first, in order of occurrence."""
    return np.sort(np.unique(keys, return_index=True)[1]).astype(np.int64)


def as_pairs(pairs: npt.ArrayLike | None, n_source: int, n_target: int) -> Pairs:
    """Check that these are (n, 2) word indices of the two vocabularies; None is no pair."""
    array: npt.NDArray[Any] = np.zeros((0, 2), np.int64) if pairs is None else np.asarray(pairs)
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
