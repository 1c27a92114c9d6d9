"""Likeness of spelling: the cosine of two words' character n-gram counts. Needs no model."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from blicer.scorers import check_lengths

LENGTHS = (2, 3, 4)
# Cyrillic and Greek by sound, as a reader would type them on a Latin keyboard.
_LETTERS = {
    **dict(zip("абвгдезийклмнопрстуфхыэ", "abvgdezijklmnoprstufhye", strict=True)),
    **dict(zip("ёіїєґўјћѓќѕøłđðı", "eiiegujcgkzolddi", strict=True)),
    **dict(zip("αβγδεζηικλμνξοπρσςτυφω", "avgdeziiklmnxoprsstyfo", strict=True)),
    **dict(zip("жцчшщюя", "zh ts ch sh sch yu ya".split(), strict=True)),
    **dict(zip("ђљњџθχψßæœþ", "dj lj nj dz th ch ps ss ae oe th".split(), strict=True)),
    "ъ": "",
    "ь": "",
}


def romanise(word: str) -> str:
    """Lower case, Cyrillic and Greek in Latin letters, Latin letters without their marks.

    Letters of other scripts stay as they are.
    """
    letters: list[str] = []
    for character in unicodedata.normalize("NFKC", word).lower():
        base = unicodedata.normalize("NFD", character)[0]
        if character not in _LETTERS and (base in _LETTERS or base.isascii()):
            character = base
        letters.append(_LETTERS.get(character, character))
    return "".join(letters)


@lru_cache(maxsize=200_000)
def _profile(word: str) -> tuple[dict[str, int], float]:
    """Counts of the n-grams of a romanised word, and their norm."""
    marked = f"<{romanise(word)}>"
    counts = Counter(marked[i : i + n] for n in LENGTHS for i in range(len(marked) - n + 1))
    return counts, float(np.sqrt(sum(count * count for count in counts.values())))


class Spelling:
    """Similarity of spelling, across Latin, Cyrillic and Greek script.

    Cosine of character n-gram counts (lengths 2 to 4, word ends marked), from 0 to 1. Words are
    romanised first, so that ``театр`` is near ``théâtre``.
    """

    name = "spelling"

    def score(self, left_words: Sequence[str], right_words: Sequence[str]) -> NDArray[np.float32]:
        """One score for each pair ``left_words[i], right_words[i]``; float32 in [0, 1]."""
        check_lengths(left_words, right_words)
        scores = np.zeros(len(left_words), dtype=np.float32)
        for row, (left, right) in enumerate(zip(left_words, right_words, strict=True)):
            few, few_norm = _profile(left)
            many, many_norm = _profile(right)
            if len(few) > len(many):
                few, many = many, few
            product = sum(count * many[gram] for gram, count in few.items() if gram in many)
            if product:
                scores[row] = min(1.0, product / (few_norm * many_norm))
        return scores
