"""``Translator``: a space, scorers, their mixture and a calibration; words in, translations out.

Candidates come from CSLS, every scorer scores them, and the mixed score ranks them
(docs/method.md §4 and §7).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.align.space import Space
from blicer.calibration import Calibration, doubts
from blicer.crossencoder.scoring import best_first
from blicer.errors import FileError, InputError
from blicer.files import atomic_folder, check_replaceable, read_marker, write_marker
from blicer.lexicon import find_words
from blicer.mixing import CSLS, Mixture, pair_words, score_candidates
from blicer.scorers import Scorer, load_scorer
from blicer.training_pairs import Scaling

if TYPE_CHECKING:
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

    @property
    def best(self) -> str | None:
        return self.candidates[0].word if self.candidates else None


@dataclass(frozen=True)
class Ranking:
    """Reranked candidates, best first; arrays are (queries, candidates)."""

    indices: NDArray[np.int64]
    scores: NDArray[np.float64]
    confidence: NDArray[np.float64] | None

    def candidates(self, words: Sequence[str], k: int) -> Iterator[list[Candidate]]:
        """The first k candidates of each query; ``words`` are those of the language they are in."""
        for row, best in enumerate(self.indices[:, :k].tolist()):
            scores = self.scores[row].tolist()
            sure = repeat(None) if self.confidence is None else self.confidence[row].tolist()
            found = zip(best, scores, sure, strict=False)
            yield [Candidate(words[index], *numbers) for index, *numbers in found]


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

    def rank(self, queries: Any, *, reverse: bool = False) -> Ranking:
        """All candidates of the queries (word indices) by mixed score; ties stay in CSLS order."""
        # A scorer of weight 0 is not run.
        scorers = [one if self.mixture.weights[one.name] else None for one in self.scorers]
        scores = score_candidates(
            self.space, self.scaling, scorers, queries, self.n_cand, reverse=reverse
        )
        mixed = self.mixture.combine(scores.parts)
        order = np.argsort(-mixed, axis=1, kind="stable")
        confidence = None
        if self.calibration is not None and len(mixed):
            sure = self.calibration.confidence(self.mixture.scored(scores, reverse=reverse))
            sure *= doubts(self.space, scores.queries, scores.indices, reverse=reverse)
            confidence = np.take_along_axis(sure, order, axis=1)
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

        The last scorer, usually the cross-encoder, is run only on pairs that can still win.
        """
        queries = np.asarray(queries, dtype=np.int64)
        base = score_candidates(
            self.space, self.scaling, self.scorers[:-1], queries, self.n_cand, reverse=reverse
        )
        weights = np.array(list(self.mixture.weights.values()))
        known = base.parts @ weights[: base.parts.shape[2]]
        if weights[-1] < 0:  # more of the last score would be worse: there is no early exit
            return self.rank(queries, reverse=reverse).indices[:, 0]
        last: Any = self.scorers[-1] if self.scorers else None
        in_orders = hasattr(last, "score_parts")

        def ask(rows: Any, columns: Any, orders: Any) -> NDArray[np.float32]:
            picked = base.indices[rows, columns][:, None]
            words = pair_words(self.space, queries[rows], picked, reverse=reverse)
            scored: NDArray[np.float32] = (
                last.score_parts(*words, orders) if in_orders else last.score(*words)
            )
            return scored

        # The two orders of a cross-encoder are scored apart, each for half the weight.
        orders = 2 if in_orders else 1
        shares = [float(weights[-1]) / orders] * orders if self.scorers else []
        return base.indices[np.arange(len(queries)), best_first(known, shares, ask)]

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
    ) -> Iterator[Translation]:
        """Like ``translate``, some hundred words at a time, in order."""
        self.check_request(k, min_confidence)
        asked, offered = (self.target, self.source) if reverse else (self.source, self.target)
        for start in range(0, len(words), QUERIES_AT_ONCE):
            some = list(words[start : start + QUERIES_AT_ONCE])
            rows = _find(some, asked)
            ranking = self.rank([rows[word] for word in some if word in rows], reverse=reverse)
            answers = ranking.candidates(offered.words, k)
            for word in some:
                if word in rows:
                    sure = [a for a in next(answers) if (a.confidence or 0.0) >= min_confidence]
                    yield Translation(word, tuple(sure))
                else:
                    yield Translation(word, (), known=False)

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
    return read_marker(folder, DESCRIPTION, FORMAT, VERSION, "a translator")


def _find(words: Sequence[str], vocabulary: Embeddings) -> dict[str, int]:
    """Row of each word that is there as written, in another Unicode form, or in lower case."""
    found = find_words(words, vocabulary)
    lower = {word: word.lower() for word in words if word not in found}
    folded = find_words(lower.values(), vocabulary)
    return found | {word: folded[form] for word, form in lower.items() if form in folded}
