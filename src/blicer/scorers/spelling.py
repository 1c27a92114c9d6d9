"""Likeness of spelling: cosine of character n-gram counts. No training, no model."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

LENGTHS = (1, 2, 3)


class SpellingScorer:
    """1 for equal words (accents and case aside), 0 for words without a common letter."""

    name = "spelling"

    def score(self, source: Sequence[str], target: Sequence[str]) -> NDArray[np.float32]:
        pairs = zip(source, target, strict=True)
        return np.array([_cosine(_profile(a), _profile(b)) for a, b in pairs], dtype=np.float32)


Profile = tuple[dict[str, int], float]


@lru_cache(maxsize=200_000)
def _profile(word: str) -> Profile:
    """Counts of the n-grams of a word with its ends marked, and their length as a vector."""
    letters = unicodedata.normalize("NFD", word.casefold())
    plain = "".join(c for c in letters if not unicodedata.combining(c)) or letters
    marked = f"^{plain}$"
    counts: Counter[str] = Counter(plain)
    for n in LENGTHS[1:]:
        counts.update(marked[i : i + n] for i in range(len(marked) - n + 1))
    return dict(counts), sqrt(sum(count * count for count in counts.values()))


def _cosine(one: Profile, other: Profile) -> float:
    (counts, length), (others, other_length) = one, other
    if len(counts) > len(others):
        counts, others = others, counts
    shared = sum(count * others[gram] for gram, count in counts.items() if gram in others)
    return shared / (length * other_length) if length and other_length else 0.0
