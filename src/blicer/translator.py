"""``Translator``: a space, scorers, their mixture and a calibration; words in, translations out.

Candidates come from CSLS, every scorer scores them, and the mixed score ranks them
(docs/method.md §4 and §7).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.calibration import Calibration
from blicer.crossencoder.scoring import best_first
from blicer.errors import FileError, InputError
from blicer.files import atomic_folder, check_replaceable, read_json, write_marker
from blicer.lexicon import find_words
from blicer.mixing import CSLS, CandidateScores, Mixture, pair_words, score_candidates
from blicer.scorers import Scorer, load_scorer
from blicer.training_pairs import Scaling

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.embeddings import Embeddings

FORMAT, VERSION = "blicer-translator", 1
DESCRIPTION = "translator.json"
QUERIES_AT_ONCE = 512


@dataclass(frozen=True)
class Candidate:
    """One translation: its mixed score and its confidence (None without a calibration)."""

    word: str
    score: float
    confidence: float | None


@dataclass(frozen=True)
class Translation:
    """A word's translations, best first; none if it is unknown or nothing is sure enough."""

    word: str
    candidates: tuple[Candidate, ...]
    known: bool = True
    near: tuple[str, ...] = ()
    """Near spellings in the vocabulary, when the word is not in it."""

    @property
    def best(self) -> str | None:
        return self.candidates[0].word if self.candidates else None


@dataclass(frozen=True)
class Ranking:
    """Reranked candidates, best first; arrays are (queries, candidates)."""

    indices: NDArray[np.int64]
    scores: NDArray[np.float64]
    confidence: NDArray[np.float64] | None


class Translator:
    """Both directions of one language pair, from one training."""

    def __init__(
        self,
        space: Space,
        scorers: Sequence[Scorer],
        mixture: Mixture,
        scaling: Scaling,
        *,
        calibration: Calibration | None = None,
        n_cand: int = 28,
        details: dict[str, Any] | None = None,
    ) -> None:
        expected = [CSLS, *(scorer.name for scorer in scorers)]
        if mixture.names != expected:
            raise InputError(f"the mixture weighs {mixture.names}; expected {expected}")
        self.space = space
        self.scorers = list(scorers)
        self.mixture = mixture
        self.scaling = scaling
        self.calibration = calibration
        self.n_cand = n_cand
        self.details = dict(details or {})

    @property
    def source(self) -> Embeddings:
        return self.space.source

    @property
    def target(self) -> Embeddings:
        return self.space.target

    # -- ranking --------------------

    def candidate_scores(self, queries: Any, *, reverse: bool = False) -> CandidateScores:
        """Scores of each query's candidates by CSLS and every scorer."""
        used = [scorer for scorer in self.scorers if self.mixture.weights[scorer.name] > 0]
        scores = score_candidates(
            self.space, self.scaling, used, queries, self.n_cand, reverse=reverse
        )
        if len(used) == len(self.scorers):
            return scores
        # A scorer of weight 0 is not run; its column is zero.
        parts = np.zeros((*scores.parts.shape[:2], 1 + len(self.scorers)))
        columns = [0, *(1 + self.scorers.index(scorer) for scorer in used)]
        parts[..., columns] = scores.parts
        return CandidateScores(scores.queries, scores.indices, parts)

    def rank(self, queries: Any, *, reverse: bool = False) -> Ranking:
        """All candidates of the queries (word indices) by mixed score; ties stay in CSLS order."""
        scores = self.candidate_scores(queries, reverse=reverse)
        mixed = self.mixture.combine(scores.parts)
        order = np.argsort(-mixed, axis=1, kind="stable")
        confidence = None
        if self.calibration is not None and len(mixed):
            confidence = np.take_along_axis(self.calibration.confidence(mixed), order, axis=1)
        return Ranking(
            np.take_along_axis(scores.indices, order, axis=1),
            np.take_along_axis(mixed, order, axis=1),
            confidence,
        )

    def gold_ranks(
        self, queries: Any, golds: Sequence[Any], *, reverse: bool = False
    ) -> NDArray[np.int64]:
        """Rank from 1 of the best gold: among the candidates as reranked, beyond them by CSLS."""
        queries = np.asarray(queries, dtype=np.int64)
        ranks: NDArray[np.int64] = np.array(
            self.space.gold_ranks(queries, list(golds), reverse=reverse)
        )
        inside = np.flatnonzero(ranks <= self.n_cand)
        for part in np.array_split(inside, max(1, -(-len(inside) // QUERIES_AT_ONCE))):
            ranking = self.rank(queries[part], reverse=reverse)
            for row, candidates in zip(part, ranking.indices, strict=True):
                found = np.isin(candidates, golds[row])
                # By rounding, the rank can include a candidate that the list does not.
                ranks[row] = 1 + int(found.argmax()) if found.any() else self.n_cand + 1
        return ranks

    def best(self, queries: Any, *, reverse: bool = False) -> NDArray[np.int64]:
        """Only the best candidate of each query: the same as ``rank`` gives, in less time.

        By exact early exit: the last scorer, usually the cross-encoder, is run only on pairs that
        can still win.
        """
        queries = np.asarray(queries, dtype=np.int64)
        cheap, last = self.scorers[:-1], (self.scorers[-1] if self.scorers else None)
        base = score_candidates(
            self.space, self.scaling, cheap, queries, self.n_cand, reverse=reverse
        )
        names = self.mixture.names
        weights = np.array([self.mixture.weights[name] for name in names])
        known = base.parts @ weights[: base.parts.shape[2]]
        if last is None:
            return np.asarray(base.indices[np.arange(len(queries)), known.argmax(axis=1)])
        score_parts: Any = getattr(last, "score_parts", None)

        def ask(rows: Any, columns: Any, orders: Any) -> NDArray[np.float32]:
            picked = base.indices[rows, columns][:, None]
            sources, targets = pair_words(self.space, queries[rows], picked, reverse=reverse)
            if score_parts is None:
                return last.score(sources, targets)
            scored: NDArray[np.float32] = score_parts(sources, targets, orders)
            return scored

        orders = 2 if score_parts is not None else 1
        share = [float(weights[-1]) / orders] * orders
        best = best_first(known, share, ask)
        return np.asarray(base.indices[np.arange(len(queries)), best])

    # -- words in, words out --------------------

    def translate(
        self,
        words: Sequence[str],
        k: int = 1,
        *,
        reverse: bool = False,
        min_confidence: float = 0.0,
    ) -> list[Translation]:
        """Translate words; the result is in their order.

        ``k``: translations a word at most. ``reverse``: from target to source.
        ``min_confidence``: leave out translations less sure than this.
        """
        return list(self.translate_stream(words, k, reverse=reverse, min_confidence=min_confidence))

    def translate_stream(
        self,
        words: Sequence[str],
        k: int = 1,
        *,
        reverse: bool = False,
        min_confidence: float = 0.0,
        suggest: bool = True,
    ) -> Iterator[Translation]:
        """Like ``translate``, some hundred words at a time, in order."""
        self.check_request(k, min_confidence)
        asked, offered = (self.target, self.source) if reverse else (self.source, self.target)
        for start in range(0, len(words), QUERIES_AT_ONCE):
            some = list(words[start : start + QUERIES_AT_ONCE])
            rows = _find(some, asked)
            known = [word for word in some if rows[word] is not None]
            ranking = self.rank([rows[word] for word in known], reverse=reverse)
            place = {word: i for i, word in enumerate(known)}
            for word in some:
                if rows[word] is None:
                    near = near_spellings(word, asked.words) if suggest else ()
                    yield Translation(word, (), known=False, near=near)
                    continue
                yield Translation(word, _chosen(ranking, place[word], offered, k, min_confidence))

    def check_request(self, k: int, min_confidence: float) -> None:
        """Wrong values of ``k`` and ``min_confidence`` raise ``InputError``."""
        if k < 1:
            raise InputError(f"k is {k}; expected 1 or more")
        if not 0.0 <= min_confidence <= 1.0:
            raise InputError(f"min_confidence is {min_confidence}; expected a number from 0 to 1")
        if min_confidence > 0 and self.calibration is None:
            raise InputError(
                "this translator has no calibration, so min_confidence means nothing: "
                "train it with held-out seeds (holdout above 0)"
            )

    # -- saving and loading --------------------

    def save(self, path: str | Path) -> None:
        """Write the whole translator, or nothing."""
        check_replaceable(path, DESCRIPTION, "a translator")
        with atomic_folder(path) as folder:
            self.space.save(folder / "space")
            scorers = []
            for scorer in self.scorers:
                save = getattr(scorer, "save", None)
                scorers.append({"name": scorer.name, **(save(folder) if save else {})})
            write_marker(folder, DESCRIPTION, self.to_dict() | {"scorers": scorers})

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "languages": [self.source.language, self.target.language],
            "mixture": self.mixture.to_dict(),
            "scaling": self.scaling.to_dict(),
            "calibration": self.calibration.to_dict() if self.calibration else None,
            "n_cand": self.n_cand,
            "details": self.details,
        }

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Translator:
        """Load what ``save`` wrote; ``options`` (device, precision) go to scorers."""
        from blicer.align.space import Space

        folder = Path(path)
        values = read_translator(folder)
        space = Space.load(folder / "space")
        try:
            calibration = values["calibration"]
            return cls(
                space,
                [load_scorer(folder, scorer, **options) for scorer in values["scorers"]],
                Mixture.from_dict(values["mixture"]),
                Scaling.from_dict(values["scaling"]),
                calibration=Calibration.from_dict(calibration) if calibration else None,
                n_cand=int(values["n_cand"]),
                details=values["details"],
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(folder / DESCRIPTION, f"is damaged ({error})") from error


def read_translator(folder: Path) -> dict[str, Any]:
    """Content of ``translator.json``; other versions raise ``FileError``."""
    path = folder / DESCRIPTION
    if not path.is_file():
        raise FileError(folder, f"is not a translator: there is no {DESCRIPTION} in it")
    values = read_json(path)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise FileError(path, f"is not the description of a translator; expected {FORMAT!r}")
    if values.get("version") != VERSION:
        raise FileError(
            path, f"has version {values.get('version')!r}; this blicer reads version {VERSION}"
        )
    return values


def near_spellings(word: str, vocabulary: Sequence[str], n: int = 5) -> tuple[str, ...]:
    """Words of the vocabulary that look like ``word``, frequent ones first among equals."""
    letters = set(word.lower())
    alike = [
        other
        for other in vocabulary
        if abs(len(other) - len(word)) <= 2 and len(letters.symmetric_difference(other)) <= 4
    ]
    return tuple(get_close_matches(word.lower(), alike, n=n, cutoff=0.7))


def _find(words: Sequence[str], vocabulary: Embeddings) -> dict[str, int | None]:
    """Row of each word as written, in another Unicode form, or in lower case."""
    exact, _ = find_words(words, vocabulary)
    folded, _ = find_words([word.lower() for word in words if word not in exact], vocabulary)
    return {word: exact.get(word, folded.get(word.lower())) for word in words}


def _chosen(
    ranking: Ranking, row: int, offered: Embeddings, k: int, min_confidence: float
) -> tuple[Candidate, ...]:
    sure = ranking.confidence[row] if ranking.confidence is not None else None
    chosen = []
    for place in range(min(k, ranking.indices.shape[1])):
        confidence = float(sure[place]) if sure is not None else None
        if confidence is not None and confidence < min_confidence:
            continue
        word = offered.words[int(ranking.indices[row, place])]
        chosen.append(Candidate(word, float(ranking.scores[row, place]), confidence))
    return tuple(chosen)
