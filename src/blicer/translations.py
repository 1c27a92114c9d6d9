"""What a translator answers: translations with confidences, seeds first, one for each lemma.

Words outside the vocabulary get suggestions of near spellings, and expressions outside it are
composed of the translations of their parts.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from blicer.forms import Forms
from blicer.lexicon import Lexicon, Vocabulary, html_table, spellings_of

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings

SUGGESTED_FROM = 50_000  # most frequent words; rarer ones are seldom meant and often typos
SUGGESTIONS = 3
MOST_PARTS = 5
PART_TRANSLATIONS = 3  # of each part, that are combined
DISCOUNT = 0.5
"""The confidence of a composed translation is half the product of its parts': many expressions mean
something else (*ice cream*), and the seeds do not tell how many."""
Scored = tuple[str, float]  # a translation and its confidence, or its score


@dataclass(frozen=True)
class Candidate:
    """One translation, and the probability that it is right (None without a calibration)."""

    word: str
    score: float | None
    """The mixed score; None for a seed that was not among the candidates."""
    confidence: float | None
    seed: bool = False
    """Whether it is a seed."""
    forms: tuple[str, ...] = ()
    """Other forms of the same lemma among the candidates, best first."""


@dataclass(frozen=True)
class Translation:
    """A word's translations, best first; none if the word is unknown or all are too unsure."""

    word: str
    candidates: tuple[Candidate, ...]
    known: bool = True
    composed: bool = False
    """Whether it is an unknown expression whose parts were translated."""
    here: float | None = None
    """The probability that the other vocabulary has a translation (None without calibration)."""

    @property
    def perhaps_none(self) -> bool:
        """Whether it is more likely than not that the other vocabulary has no translation."""
        seed = bool(self.candidates) and self.candidates[0].seed
        return self.here is not None and self.here < 0.5 and not seed

    @property
    def best(self) -> str | None:
        return self.candidates[0].word if self.candidates else None

    def _repr_html_(self) -> str:
        rows = [
            (one.word, "" if one.confidence is None else f"{one.confidence:.2f}", *one.forms[:1])
            for one in self.candidates
        ]
        return html_table([self.word, "confidence", "also"], rows)


@dataclass(frozen=True)
class Ranking:
    """Reranked candidates, best first; arrays are (queries, candidates)."""

    indices: NDArray[np.int64]
    scores: NDArray[np.float64]
    confidence: NDArray[np.float64] | None
    parts: NDArray[np.float64]
    """(queries, candidates, scores): every score, in the mixture's order; 0 if of weight 0."""
    here: NDArray[np.float64] | None = None
    """(queries,): the probability that the other vocabulary has a translation."""

    def chances(self) -> list[float | None]:
        """``here`` of each query, None without calibration."""
        found: list[float | None] = [None] * len(self.indices)
        return found if self.here is None else self.here.tolist()

    def candidates(self, language: Embeddings) -> Iterator[list[Candidate]]:
        """All candidates of each query, words of ``language``."""
        for row, best in enumerate(self.indices.tolist()):
            scores = self.scores[row].tolist()
            sure = [None] * len(best) if self.confidence is None else self.confidence[row].tolist()
            found = zip(best, scores, sure, strict=True)
            yield [Candidate(language.words[index], *numbers) for index, *numbers in found]


def known_translations(lexicon: Lexicon, word: str) -> list[str]:
    """The word's translations in a lexicon, as it is written or in lower case."""
    return lexicon.targets.get(word, lexicon.targets.get(word.lower(), []))


def seeds_first(given: Sequence[str], found: Sequence[Candidate]) -> list[Candidate]:
    """Seed translations, then the other candidates."""
    scores = {one.word: one.score for one in found}
    seeds = [Candidate(word, scores.get(word), 1.0, seed=True) for word in given]
    return [*seeds, *(one for one in found if one.word not in given)]


def grouped_by_lemma(candidates: Sequence[Candidate], seeds: int, forms: Forms) -> list[Candidate]:
    """One candidate for each lemma, with its other forms; the first ``seeds`` are never grouped."""
    words = [one.word for one in candidates]
    groups = forms.group(words, heads=seeds)
    return [
        replace(candidates[head], forms=tuple(words[place] for place in others))
        if others
        else candidates[head]
        for head, *others in groups
    ]


# -- expressions -----------------------------------------------------------------------------------


def composed(parts: Sequence[Translation], seeds: Lexicon, offered: Vocabulary) -> list[Candidate]:
    """Candidates of an expression from the translations of its parts; none if a part has none."""
    sure = all(one.confidence is not None for part in parts for one in part.candidates)

    def number(one: Candidate) -> float:
        value = one.confidence if sure else one.score
        return 1.0 if value is None else value  # a seed that was no candidate has no score

    answers = [[(one.word, number(one)) for one in part.candidates] for part in parts]
    found = compose(answers, seeds, offered)
    return [Candidate(word, None if sure else one, one if sure else None) for word, one in found]


def parts_of(expression: str) -> list[str]:
    """The words of an expression; none if it is one word, or too many."""
    parts = [part for part in re.split(r"[\s_-]+", expression) if part]
    return parts if 2 <= len(parts) <= MOST_PARTS else []


def compose(parts: Sequence[Sequence[Scored]], seeds: Lexicon, offered: Vocabulary) -> list[Scored]:
    """Translations of an expression from those of its parts, best first.

    They are joined in order, or reversed if ``swaps``; the confidence is the product of the parts'
    times ``DISCOUNT``. Expressions of the target vocabulary, in either order, come first, in its
    spelling.
    """
    step = -1 if swaps(seeds) else 1
    found: dict[str, tuple[bool, float]] = {}
    for choice in product(*(part[:PART_TRANSLATIONS] for part in parts)):
        sure = DISCOUNT * prod(one for _, one in choice)
        words = [word for word, _ in choice][::step]
        orders = [" ".join(words), " ".join(reversed(words))]
        written = (one for order in orders for one in spellings_of(order))
        there = next((one for one in written if one in offered.lookup), None)
        word = there or orders[0]
        found[word] = max(found.get(word, (False, 0.0)), (there is not None, sure))
    best = sorted(found.items(), key=lambda item: item[1], reverse=True)
    return [(word, sure) for word, (_, sure) in best]


def swaps(seeds: Lexicon) -> bool:
    """Whether more expressions of two words among the seeds swap their parts than keep them."""
    balance = 0
    for source, target in seeds.pairs:
        if len(left := source.split()) == len(right := target.split()) == 2:
            kept = sum(pair in seeds for pair in zip(left, right, strict=True))
            balance += sum(pair in seeds for pair in zip(left, reversed(right), strict=True)) - kept
    return balance > 0


# -- near spellings --------------------------------------------------------------------------------


def fold(text: str) -> str:
    """The text without case and accents."""
    apart = unicodedata.normalize("NFKD", text)
    return "".join(one for one in apart if not unicodedata.combining(one)).casefold()


class Spellings:
    """Finds words of a vocabulary that a misspelt word may stand for."""

    def __init__(self, words: Sequence[str]) -> None:
        self.same: defaultdict[str, list[str]] = defaultdict(list)
        self.alike: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for place, word in enumerate(words):
            folded = fold(word)
            self.same[folded].append(word)
            if place < SUGGESTED_FROM:
                self.alike[folded[:1], len(folded)].append(folded)

    def near(self, word: str) -> list[str]:
        """Words that differ in accents only, then near ones with the same first letter."""
        folded = fold(word.strip())
        lengths = range(len(folded) - 1, len(folded) + 2)
        begin = [one for length in lengths for one in self.alike.get((folded[:1], length), ())]
        close = get_close_matches(folded, dict.fromkeys(begin), n=SUGGESTIONS, cutoff=0.75)
        found = [one for key in (folded, *close) for one in self.same.get(key, ())]
        return [one for one in dict.fromkeys(found) if one != word][:SUGGESTIONS]
