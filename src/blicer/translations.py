"""What a translator answers: translations with confidences, seeds first, one for each lemma."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from blicer.expressions import compose
from blicer.forms import Forms
from blicer.lexicon import Lexicon, Vocabulary, html_table

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings


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


def composed(parts: Sequence[Translation], seeds: Lexicon, offered: Vocabulary) -> list[Candidate]:
    """Candidates of an expression from the translations of its parts; none if a part has none."""
    sure = all(one.confidence is not None for part in parts for one in part.candidates)

    def number(one: Candidate) -> float:
        value = one.confidence if sure else one.score
        return 1.0 if value is None else value  # a seed that was no candidate has no score

    answers = [[(one.word, number(one)) for one in part.candidates] for part in parts]
    found = compose(answers, seeds, offered)
    return [Candidate(word, None if sure else one, one if sure else None) for word, one in found]
