"""Cosine of the two words' static vectors, of a hundred languages (docs/method.md §7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from blicer.encoders.static import StaticVectors
from blicer.scorers import check_lengths


class Static:
    """Cosine of `lite`'s static vectors, which know about a hundred languages.

    The score is (1 + cosine) / 2; it is 1/2 where nothing of a word is known.
    """

    name = "static"
    signed = True  # the space may have too much of these vectors already

    def score(self, source: Sequence[str], target: Sequence[str]) -> NDArray[np.float32]:
        """One score for each pair ``(source[i], target[i])``; float32 in [0, 1]."""
        check_lengths(source, target)
        table = StaticVectors.load()
        rows = []
        for words in (source, target):
            distinct = {word: row for row, word in enumerate(dict.fromkeys(words))}
            rows.append(table.encode(list(distinct))[[distinct[word] for word in words]])
        cosine = np.einsum("nd,nd->n", *rows) if len(source) else np.zeros(0)
        return np.clip((1 + cosine) / 2, 0, 1).astype(np.float32)
