"""Recognises forms of one lemma by endings that alternate on many stems of a vocabulary.

*maison* and *maisons* differ in endings (none, *-s*) that thousands of French stems both take,
*table* and *tablette* in endings that few stems both take. Forms of one lemma are also used alike,
so their vectors are near. This needs neither seeds nor rules for a language.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings

WORDS = 50_000  # most frequent words that endings are learned from
LONGEST = 3  # letters of an ending
SHORTEST_STEM = 3
FEWEST_STEMS = 15  # that take both endings
LEAST_SHARE = 0.06  # that take both, of the geometric mean of the stems of either ending
LEAST_COSINE = 0.45
FEW_ENDINGS = 20  # looked up one by one before the table of all endings is made


class Forms:
    """Tells which words of one language are forms of each other."""

    def __init__(self, language: Embeddings) -> None:
        self.language = language
        self.vectors = np.asarray(language.vectors)  # rows of a memory map are slow to take
        self.alternate = lru_cache(maxsize=100_000)(self._alternate)
        self._looked_up: dict[str, set[str]] = {}

    @cached_property
    def stems(self) -> dict[str, set[str]]:
        """The stems of every ending."""
        stems: defaultdict[str, set[str]] = defaultdict(set)
        for word in self.language.words[:WORDS]:
            for length in range(min(LONGEST, len(word) - SHORTEST_STEM) + 1):
                cut = len(word) - length
                stems[word[cut:]].add(word[:cut])
        return stems

    def stems_of(self, ending: str) -> set[str]:
        """The stems of one ending; the table of all is made once many have been looked up."""
        if ending not in self._looked_up:
            if len(self._looked_up) >= FEW_ENDINGS:
                return self.stems.get(ending, set())
            longest = -len(ending) if ending else None
            self._looked_up[ending] = {
                word[:longest]
                for word in self.language.words[:WORDS]
                if word.endswith(ending) and len(word) >= SHORTEST_STEM + len(ending)
            }
        return self._looked_up[ending]

    def __call__(self, first: str, second: str) -> bool:
        """Whether two words share a stem, have alternating endings, and have near vectors."""
        shared = _common_prefix(first, second)
        rests = first[shared:], second[shared:]
        if shared < max(SHORTEST_STEM, len(first) / 2, len(second) / 2):
            return False
        if max(map(len, rests)) > LONGEST or not self.alternate(*sorted(rests)):
            return False
        lookup = self.language.lookup
        if first not in lookup or second not in lookup:
            return False
        rows = [lookup[first], lookup[second]]
        a, b = self.vectors[rows].astype(np.float64)
        return bool(a @ b >= LEAST_COSINE * math.sqrt((a @ a) * (b @ b)))

    def _alternate(self, one: str, other: str) -> bool:
        first, second = self.stems_of(one), self.stems_of(other)
        share = LEAST_SHARE * (len(first) * len(second)) ** 0.5
        return bool(len(first & second) >= max(FEWEST_STEMS, share))

    def group(self, words: Sequence[str], *, heads: int = 0) -> list[list[int]]:
        """Group the words by lemma: lists of their indices, the first word of a group first.

        Each of the first ``heads`` words begins a group of its own.
        """
        groups: list[list[int]] = []
        by_stem: defaultdict[str, list[list[int]]] = defaultdict(list)
        for place, word in enumerate(words):
            alike = by_stem[word[:SHORTEST_STEM]]
            if place >= heads:
                own = next((group for group in alike if self(words[group[0]], word)), None)
                if own is not None:
                    own.append(place)
                    continue
            groups.append([place])
            alike.append(groups[-1])
        return groups

    def of(self, headwords: Iterable[str]) -> dict[str, str]:
        """Other words of the language that are forms of a headword, each with the first such."""
        heads: dict[str, int] = {word: place for place, word in enumerate(headwords)}
        by_stem: defaultdict[str, list[str]] = defaultdict(list)
        for word in heads:
            for stem in _stems(word):
                by_stem[stem].append(word)
        found = {}
        for word in self.language.words:
            if word in heads:
                continue
            near = {head for stem in _stems(word) for head in by_stem.get(stem, ())}
            fitting = (
                head for head in sorted(near, key=lambda one: heads[one]) if self(head, word)
            )
            if (head := next(fitting, None)) is not None:
                found[word] = head
        return found


def _stems(word: str) -> list[str]:
    return [word[:cut] for cut in range(max(SHORTEST_STEM, len(word) - LONGEST), len(word) + 1)]


def _common_prefix(one: str, other: str) -> int:
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))
