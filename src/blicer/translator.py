"""``Translator``: a space, scorers, their mixture and a calibration; words in, translations out.

Candidates come from CSLS, every scorer scores them, and the mixed score ranks them
(docs/method.md §4 and §7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from blicer import __version__
from blicer.align.space import Space
from blicer.calibration import Calibration, doubts
from blicer.config import MOST, part_of
from blicer.crossencoder.scoring import best_first
from blicer.dictionary import About, Dictionary, Entry, merged
from blicer.errors import FileError, InputError, expect
from blicer.files import atomic_folder, check_replaceable, digest, read_marker, write_marker
from blicer.forms import Forms
from blicer.lexicon import Lexicon, find_in_any_case
from blicer.mixing import CSLS, Mixture, pair_words, score_candidates
from blicer.progress import task
from blicer.scorers import Scorer, load_scorer, save_scorers, scorer_states
from blicer.stage_cache import ArrayCache
from blicer.training_pairs import Scaling
from blicer.translations import (
    PART_TRANSLATIONS,
    Ranking,
    Translation,
    composed,
    grouped_by_lemma,
    known_translations,
    parts_of,
    seeds_first,
)

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings

__all__ = ["Ranking", "Translator"]

FORMAT, VERSION = "blicer-translator", 2
DESCRIPTION = "translator.json"

QUERIES_AT_ONCE = 512
CACHED_BLOCK = 512  # words a file of cached rankings
MOST_CANDIDATES = 100_000  # of a word, in a file
_UNCALIBRATED = "this translator has no calibration"
_TRAIN_AGAIN = "train it with held-out seeds (holdout above 0)"


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
        seeds: Lexicon | None = None,
        wrong: Lexicon | None = None,
    ) -> None:
        expected = [CSLS, *(scorer.name for scorer in scorers)]
        if mixture.names != expected:
            raise InputError(f"the mixture weighs {mixture.names}; expected {expected}")
        if calibration is not None:
            calibration.check(len(expected))
        self.space = space
        self.scorers = list(scorers)
        self.mixture = mixture
        self.scaling = scaling
        self.calibration = calibration
        self.n_cand = n_cand
        self.details = dict(details or {})
        self.seeds = seeds or Lexicon([])
        self.wrong = wrong or Lexicon([])

    @property
    def source(self) -> Embeddings:
        return self.space.source

    @property
    def target(self) -> Embeddings:
        return self.space.target

    def __repr__(self) -> str:
        pair = "-".join(side.language or "?" for side in (self.source, self.target))
        words = f"{len(self.source):,} and {len(self.target):,} words"
        return f"Translator({pair}, {words}, {self.space.method}; {self.mixture})"

    # -- ranking --------------------

    def rank(self, queries: Any, *, reverse: bool = False) -> Ranking:
        """All candidates of the queries (word indices) by mixed score; ties stay in CSLS order."""
        # Scorers of weight 0 are not run.
        scorers = [one if self.mixture.weights[one.name] else None for one in self.scorers]
        scores = score_candidates(
            self.space, self.scaling, scorers, queries, self.n_cand, reverse=reverse
        )
        mixed = self.mixture.combine(scores.parts)
        order = np.argsort(-mixed, axis=1, kind="stable")
        confidence = here = None
        if self.calibration is not None and len(mixed):
            scored = self.mixture.scored(scores, reverse=reverse)
            doubted = doubts(self.space, scores.queries, scores.indices, reverse=reverse)
            sure = doubted * self.calibration.confidence(scored)
            confidence = np.take_along_axis(sure, order, axis=1)
            if self.calibration.usual is None:  # without checked pairs it is no chance
                here = doubted.max(axis=1) * self.calibration.is_here(scored)
        return Ranking(
            np.take_along_axis(scores.indices, order, axis=1),
            np.take_along_axis(mixed, order, axis=1),
            confidence,
            np.take_along_axis(scores.parts, order[..., None], axis=1),
            here,
        )

    def gold_ranks(
        self, queries: Any, golds: Sequence[Any], *, reverse: bool = False
    ) -> NDArray[np.int64]:
        """Rank (from 1) of the best gold: among the reranked candidates, beyond them by CSLS."""
        queries = np.asarray(queries, dtype=np.int64)
        ranks: NDArray[np.int64] = np.array(
            self.space.gold_ranks(queries, list(golds), reverse=reverse)
        )
        inside = np.flatnonzero(ranks <= self.n_cand)
        for part in np.array_split(inside, max(1, -(-len(inside) // QUERIES_AT_ONCE))):
            ranking = self.rank(queries[part], reverse=reverse)
            for row, candidates in zip(part, ranking.indices, strict=True):
                found = np.isin(candidates, golds[row])
                # By rounding, a rank can be within n_cand while the gold is no candidate.
                ranks[row] = 1 + int(found.argmax()) if found.any() else self.n_cand + 1
        return ranks

    def best(self, queries: Any, *, reverse: bool = False) -> NDArray[np.int64]:
        """The best candidate of each query, as ``rank`` gives it but faster.

        The last scorer, usually the cross-encoder, is run only on pairs that can still win.
        """
        queries = np.asarray(queries, dtype=np.int64)
        base = score_candidates(
            self.space, self.scaling, self.scorers[:-1], queries, self.n_cand, reverse=reverse
        )
        weights = np.array(list(self.mixture.weights.values()))
        known = base.parts @ weights[: base.parts.shape[2]]
        if weights[-1] < 0:  # early exit needs scores that only add
            return self.rank(queries, reverse=reverse).indices[:, 0]
        last: Any = self.scorers[-1] if self.scorers else None
        in_orders = hasattr(last, "score_parts")

        def ask(rows: Any, columns: Any, orders: Any) -> NDArray[np.float32]:
            picked = base.indices[rows, columns][:, None]
            words = pair_words(self.space, queries[rows], picked, reverse=reverse)
            return last.score_parts(*words, orders) if in_orders else last.score(*words)

        # The two orders of a cross-encoder are separate parts, each of half the weight.
        orders = 2 if in_orders else 1
        shares = [float(weights[-1]) / orders] * orders if self.scorers else []
        return base.indices[np.arange(len(queries)), best_first(known, shares, ask)]

    # -- words in, words out --------------------

    @overload
    def translate(self, words: str, k: int = ..., **options: Any) -> Translation: ...
    @overload
    def translate(
        self, words: Sequence[str], k: int = ..., **options: Any
    ) -> list[Translation]: ...
    def translate(
        self, words: str | Sequence[str], k: int = MOST, **options: Any
    ) -> Translation | list[Translation]:
        """Translate a word, or several in order.

        ``k``: the most translations a word. ``options``: see ``translate_stream``.
        """
        found = list(
            self.translate_stream([words] if isinstance(words, str) else words, k, **options)
        )
        return found[0] if isinstance(words, str) else found

    def translate_stream(
        self,
        words: Sequence[str],
        k: int = MOST,
        *,
        reverse: bool = False,
        min_confidence: float | None = None,
        seeds_as_evidence: bool = False,
        rank: Callable[[list[int]], Ranking] | None = None,
    ) -> Iterator[Translation]:
        """Translate words in order, some hundred at a time.

        ``reverse``: from target to source. ``min_confidence``: leave out translations of lower
        confidence; by default the best one is given, and others that are likely right.
        ``seeds_as_evidence``: let the model overrule the seeds; by default they come first.
        ``rank``: function that ranks candidates; by default the method ``rank``.

        Forms of one lemma count as one translation. An expression outside the vocabulary is
        composed of the translations of its parts (``translations.compose``).
        """
        rank = rank or partial(self.rank, reverse=reverse)
        if isinstance(words, bytes) or not isinstance(words, Iterable):
            raise InputError(f"{words!r} is to be translated; expected a word or a list of words")
        words = list(words)
        self.check_request(words, k, min_confidence)
        words = [word.strip() for word in words]
        judged = (self.seeds, self.wrong)
        known, wrong = (one.reverse() for one in judged) if reverse else judged
        asked, offered = (self.target, self.source) if reverse else (self.source, self.target)
        forms = self.source_forms if reverse else self.target_forms
        likely = self.calibration.likely if self.calibration is not None else 0.0
        least = likely if min_confidence is None else min_confidence
        for start in range(0, len(words), QUERIES_AT_ONCE):
            some = list(words[start : start + QUERIES_AT_ONCE])
            rows = find_in_any_case(some, asked)
            ranking = rank([rows[word] for word in some if word in rows])
            answers = zip(ranking.candidates(offered), ranking.chances(), strict=True)
            for word in some:
                bad = known_translations(wrong, word)
                candidates, here = next(answers) if word in rows else ([], None)
                found = [one for one in candidates if one.word not in bad]
                given = [] if seeds_as_evidence else known_translations(known, word)
                every = grouped_by_lemma(seeds_first(given, found), len(given), forms)
                of_parts = not every and bool(parts := parts_of(word))
                if of_parts:
                    options: Any = {"reverse": reverse, "seeds_as_evidence": seeds_as_evidence}
                    answered = self.translate(parts, PART_TRANSLATIONS, **options)
                    every = [
                        one for one in composed(answered, known, offered) if one.word not in bad
                    ]
                first = every[:1] if min_confidence is None else []
                rest = [one for one in every[len(first) :] if (one.confidence or 0.0) >= least]
                composed_of = of_parts and bool(every)
                yield Translation(word, (*first, *rest)[:k], bool(every), composed_of, here)

    @cached_property
    def source_forms(self) -> Forms:
        return Forms(self.source)

    @cached_property
    def target_forms(self) -> Forms:
        return Forms(self.target)

    def confidence_for(self, precision: float) -> float:
        """The least confidence of entries with this precision together (``--at-precision``).

        It is measured on held-out words; raises ``InputError`` if the precision is out of reach.
        """
        if not 0.0 < precision < 1.0:
            raise InputError(
                f"a precision of {precision} is asked for; expected one between 0 and 1"
            )
        if self.calibration is None:
            raise InputError(f"{_UNCALIBRATED}, so no precision can be promised: {_TRAIN_AGAIN}")
        if self.calibration.reliability is None:
            raise InputError(
                "no precision can be promised, because the confidences rest on no checked pair: "
                "train with seed pairs (some hundreds)"
            )
        return self.calibration.reliability.threshold(precision)

    def check_request(self, words: Sequence[str], k: int, min_confidence: float | None) -> None:
        """Raise ``InputError`` for wrong arguments of ``translate``."""
        if wrong := [word for word in words if not isinstance(word, str)]:
            raise InputError(f"{wrong[0]!r} is to be translated; expected a word")
        if not isinstance(k, Integral) or k < 1:
            raise InputError(f"k is {k!r}; expected a whole number of 1 or more")
        if min_confidence is None:
            return
        if not isinstance(min_confidence, Real) or not 0.0 <= min_confidence <= 1.0:
            raise InputError(f"min_confidence is {min_confidence!r}; expected a number from 0 to 1")
        if min_confidence > 0 and self.calibration is None:
            raise InputError(f"{_UNCALIBRATED}, so min_confidence means nothing: {_TRAIN_AGAIN}")

    # -- whole dictionaries --------------------

    def induce(
        self,
        words: int | None = None,
        k: int = MOST,
        *,
        reverse: bool = False,
        both: bool = False,
        shard: str = "1/1",
        min_confidence: float | None = None,
        seeds_as_evidence: bool = False,
    ) -> Dictionary:
        """The dictionary of the most frequent words.

        ``words``: how many (by default all). ``both``: both directions as one dictionary; pairs
        found in both directions come first. ``shard``: I/N, only part I of N of the words. For the
        others see ``translate_stream``. Rankings are cached, so the same words are never
        scored twice, not after a kill and not for another format, threshold or ``k``.
        """
        expect("words", words, Integral, type(None), hint="how many of the most frequent words")
        self.check_request([], k, min_confidence)
        if words is not None and words < 1:
            raise InputError(f"words is {words}; expected 1 or more, or None for all")
        if both and reverse:
            raise InputError("a dictionary of both directions has no reverse: ask for either")
        if both and shard != "1/1":
            raise InputError("both directions in parts do not fit together: make each on its own")
        how: Any = {"min_confidence": min_confidence, "seeds_as_evidence": seeds_as_evidence}
        if both:
            return merged(*(self.induce(words, k, reverse=back, **how) for back in (False, True)))
        side = self.target if reverse else self.source
        asked = side.words[: len(side) if words is None else words]
        blocks = part_of(-(-len(asked) // CACHED_BLOCK), shard)  # whole ones: they are files
        vocabulary = asked[CACHED_BLOCK * blocks.start : CACHED_BLOCK * blocks.stop]
        cache, entries = ranking_cache(self), []

        def rank(queries: list[int]) -> Ranking:
            if not queries:
                return self.rank(queries, reverse=reverse)
            return rank_cached(self, cache, queries, reverse=reverse)

        with task("translating", len(vocabulary)) as running:
            for answer in self.translate_stream(vocabulary, k, reverse=reverse, rank=rank, **how):
                running.advance()
                entries += [
                    Entry(answer.word, c.word, c.confidence, c.score, place, c.seed, c.forms)
                    for place, c in enumerate(answer.candidates, start=1)
                ]
        about = provenance(self).reverse() if reverse else provenance(self)
        found = Dictionary(entries, about, asked=len(vocabulary))
        forms = self.target_forms if reverse else self.source_forms
        elsewhere = set(asked) - set(vocabulary)  # headwords of the other parts
        found.inflected = {
            form: head for form, head in forms.of(found.words).items() if form not in elsewhere
        }
        return found

    # -- saving and loading --------------------

    def save(self, path: str | Path) -> None:
        """Write the whole translator, or nothing."""
        check_replaceable(path, DESCRIPTION, "a translator")
        with atomic_folder(path) as folder:
            self.space.save(folder / "space")
            scorers = save_scorers(self.scorers, folder)
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
            "seeds": self.seeds.pairs,
            "wrong": self.wrong.pairs,
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
                n_cand=_candidates(values["n_cand"]),
                details=values["details"],
                seeds=_lexicon(values["seeds"]),
                wrong=_lexicon(values.get("wrong", [])),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(folder / DESCRIPTION, f"is damaged ({error})") from error


def _lexicon(pairs: Any) -> Lexicon:
    return Lexicon((str(one), str(other)) for one, other in pairs)


def _candidates(count: Any) -> int:
    if type(count) is not int or not 1 <= count <= MOST_CANDIDATES:
        raise ValueError(f"n_cand is {count!r}; expected 1 to {MOST_CANDIDATES}")
    return count


def read_translator(folder: Path) -> dict[str, Any]:
    """Content of ``translator.json``; other versions raise ``FileError``."""
    return read_marker(folder, DESCRIPTION, FORMAT, VERSION, "a translator")


# -- cached rankings and provenance of induced dictionaries ----------------------------------------


def ranking_cache(translator: Translator) -> ArrayCache:
    """On-disk cache of this translator's rankings, keyed by a hash of all they depend on."""
    ours = translator.to_dict()
    settings = [ours[key] for key in ("mixture", "scaling", "calibration", "n_cand")]
    vectors = [np.asarray(side.vectors) for side in (translator.source, translator.target)]
    words = ["\n".join(side.words) for side in (translator.source, translator.target)]
    parts = [__version__, translator.space.k_csls, settings, scorer_states(translator.scorers)]
    return ArrayCache("scores", digest(parts, *vectors, *words))


def rank_cached(
    translator: Translator, cache: ArrayCache, queries: list[int], *, reverse: bool
) -> Ranking:
    """``Translator.rank``; of each block of words, those up to the last one asked are cached."""
    blocks, places = np.divmod(np.asarray(queries), CACHED_BLOCK)
    found: dict[str, Any] = {"confidence": None}
    for block in np.unique(blocks).tolist():
        first, rows = block * CACHED_BLOCK, blocks == block

        def compute(start: int, stop: int, first: int = first) -> dict[str, NDArray[Any]]:
            ranking = translator.rank(np.arange(first + start, first + stop), reverse=reverse)
            return {key: value for key, value in vars(ranking).items() if value is not None}

        name = f"{'backward' if reverse else 'forward'}-{block:06}"
        for key, values in cache.rows(name, int(places[rows].max()) + 1, compute).items():
            if found.get(key) is None:
                found[key] = np.empty((len(queries), *values.shape[1:]), values.dtype)
            found[key][rows] = values[places[rows]]
    return Ranking(**found)


def provenance(translator: Translator) -> About:
    """Where a translator's dictionaries come from."""
    files = translator.details.get("vectors", {}).get("files", ["", ""])
    sides = zip((translator.source, translator.target), map(Path, files), strict=True)
    first, second = (f"{path.name or 'unnamed'}, {len(side):,} words" for side, path in sides)
    return About(
        translator.source.language or "",
        translator.target.language or "",
        vectors=(first, second),
        seeds=translator.details.get("seeds", len(translator.seeds)),
        method=f"{translator.space.method}; {translator.mixture}",
    )
