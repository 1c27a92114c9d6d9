"""What the server knows of one translator: entries, neighbours, maps, completion, the dictionary.

Everything that computes runs in one ``Worker`` thread; only ``Lookup.complete`` and what reads the
finished part of the dictionary may be called from any thread.
"""

from __future__ import annotations

import heapq
import queue
import threading
import unicodedata
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from blicer.embeddings import Embeddings
from blicer.lexicon import find_words
from blicer.mixing import score_candidates, score_found
from blicer.neighbours.retriever import Neighbours
from blicer.translations import Translation
from blicer.translator import Ranking, Translator

WORDS_A_STEP = 16  # of the dictionary: so long a request may have to wait
MOST_RANKINGS = 50_000  # that are kept, at about 1.5 kB
MOST_ENTRIES = 2_000
LEAVE = 30.0  # seconds that the job at hand may take when the server stops
MOST_TOGETHER = 256  # words of waiting requests that are ranked together
BACK = 100  # ranks on the way back that are told apart
NEAR = 10
URGENT, STREAMED, BACKGROUND = range(3)
Result = TypeVar("Result")


def fold(text: str) -> str:
    """Without case and accents, for searching."""
    apart = unicodedata.normalize("NFKD", text)
    return "".join(one for one in apart if not unicodedata.combining(one)).casefold()


class Remembered:
    """The last ``most`` values that were asked for."""

    def __init__(self, most: int) -> None:
        self.most, self._values = most, OrderedDict[Any, Any]()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Any:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Any, value: Any) -> None:
        with self._lock:
            self._values[key] = value
            if len(self._values) > self.most:
                self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)


class RememberingTranslator(Translator):
    """A translator that ranks a word once, for one thread at a time."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.rankings = Remembered(MOST_RANKINGS)
        self._ranking = threading.Lock()  # tokenizers are not safe in threads

    def rank(self, queries: Any, *, reverse: bool = False) -> Ranking:
        rows = [int(row) for row in queries]
        found = {row: self.rankings.get((row, reverse)) for row in rows}
        if new := [row for row, one in found.items() if one is None]:
            with self._ranking:
                ranking = super().rank(new, reverse=reverse)
            columns = (ranking.indices.astype(np.int32), ranking.scores, ranking.parts)
            chances = [one for one in (ranking.confidence, ranking.here) if one is not None]
            for row, *values in zip(new, *columns, *chances, strict=True):
                found[row] = [one.copy() for one in values]
                self.rankings.put((row, reverse), found[row])
        if not rows:
            return super().rank(rows, reverse=reverse)
        indices, scores, parts, *known = (
            np.stack(column) for column in zip(*(found[row] for row in rows), strict=True)
        )
        sure, here = [*known, None, None][:2]
        return Ranking(indices.astype(np.int64), scores, sure, parts, here)


# -- the worker -----------------------------------------------------------------------------------


@dataclass(order=True)
class Job:
    priority: int
    number: int
    run: Callable[[], Any] = field(compare=False)
    future: Future[Any] = field(compare=False)
    rows: Sequence[int] = field(compare=False)  # words that it needs rankings of
    asked: tuple[RememberingTranslator, bool] | None = field(compare=False)


class Worker(threading.Thread):
    """Runs jobs one after the other, urgent ones first.

    Words of all requests that wait are ranked together, which takes less time than one by one.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True, name="blicer-worker")
        self._jobs: queue.PriorityQueue[Job] = queue.PriorityQueue()
        self._numbers = count()
        self._stopped = False

    def submit(
        self,
        run: Callable[[], Result],
        *,
        rows: Sequence[int] = (),
        asked: tuple[RememberingTranslator, bool] | None = None,
        priority: int = URGENT,
    ) -> Future[Result]:
        future: Future[Result] = Future()
        self._jobs.put(Job(priority, next(self._numbers), run, future, rows, asked))
        return future

    @property
    def waiting(self) -> int:
        return self._jobs.qsize()

    def stop(self) -> None:
        """Finish the job at hand; a thread that computes while Python ends would abort it."""
        self._stopped = True
        self.submit(lambda: None)
        if self.is_alive():
            self.join(LEAVE)

    def run(self) -> None:
        while not self._stopped:
            jobs = self._together()
            self._rank_together(jobs)
            for job in jobs:
                if not job.future.set_running_or_notify_cancel():
                    continue
                try:
                    job.future.set_result(job.run())
                except BaseException as error:  # the caller's to report
                    job.future.set_exception(error)

    def _together(self) -> list[Job]:
        """The next job and, if it is urgent, others that can be ranked with it."""
        jobs, words = [self._jobs.get()], 0
        while jobs[-1].priority == URGENT and words < MOST_TOGETHER:
            words += len(jobs[-1].rows)
            try:
                jobs.append(self._jobs.get_nowait())
            except queue.Empty:
                break
        if len(jobs) > 1 and jobs[-1].priority != URGENT:
            self._jobs.put(jobs.pop())
        return jobs

    def _rank_together(self, jobs: Sequence[Job]) -> None:
        if len(jobs) < 2:
            return
        groups: dict[Any, list[int]] = {}
        for job in jobs:
            if job.asked is not None and not job.future.cancelled():
                groups.setdefault(job.asked, []).extend(job.rows)
        for (translator, reverse), rows in groups.items():
            try:
                translator.rank(rows, reverse=reverse)
            except Exception:  # each job meets it again, and reports it
                return


# -- one translator -------------------------------------------------------------------------------


class Row(NamedTuple):
    """A word of the dictionary with its first translation."""

    rank: int
    source: str
    target: str | None
    confidence: float | None
    seed: bool
    doubt: float
    """Total weight of the scores that like another candidate best."""
    choices: str
    """What these scores say instead."""
    folded: tuple[str, str]
    decision: str | None = None


@dataclass
class Dictionary:
    """Rows of the most frequent words of one side, as far as they are computed."""

    total: int
    rows: list[Row] = field(default_factory=list)

    @property
    def done(self) -> int:
        return len(self.rows)


QUEUES: dict[str, Callable[[Row], float]] = {
    "uncertain": lambda row: abs((row.confidence or 0.0) - 0.5),
    "frequent": lambda row: row.rank,
    "disagreement": lambda row: -row.doubt,
}
"""What words are sorted by, least first, so that the most useful decision comes first."""


class Completion:
    """Words of one language by how they begin."""

    def __init__(self, words: Sequence[str]) -> None:
        folded = [fold(word) for word in words]
        order = sorted(range(len(words)), key=folded.__getitem__)
        self.words, self.ranks = words, order
        self.folded = [folded[row] for row in order]

    def __call__(self, start: str, limit: int) -> list[dict[str, Any]]:
        """The most frequent words that begin so, ignoring case and accents."""
        found: Iterable[int] = range(min(limit, len(self.words)))
        if start := fold(start):
            first = bisect_left(self.folded, start)
            last = bisect_left(self.folded, start[:-1] + chr(min(ord(start[-1]) + 1, 0x10FFFF)))
            found = heapq.nsmallest(limit, self.ranks[first:last])
        return [{"word": self.words[row], "rank": row + 1} for row in found]


class Lookup:
    """A translator as the server uses it.

    ``words``: how many of the most frequent ones of each side its dictionary has.
    """

    def __init__(self, translator: RememberingTranslator, words: int = 20_000) -> None:
        self.translator = translator
        self.words = words
        self.sides: tuple[Embeddings, Embeddings] = (translator.source, translator.target)
        self.dictionaries = tuple(Dictionary(min(words, len(side))) for side in self.sides)
        self._completions: list[Completion | None] = [None, None]
        self._entries = Remembered(MOST_ENTRIES)

    @classmethod
    def load(cls, folder: Path, words: int = 20_000) -> Lookup:
        translator = RememberingTranslator.load(folder)
        assert isinstance(translator, RememberingTranslator)
        return cls(translator, words)

    def warm(self) -> None:
        """Load what is loaded on first use."""
        self.translator.space.measure_hubness()
        for reverse in (False, True):
            words = self.asked(reverse).words[:1]
            self.translator.translate(words, reverse=reverse)
            self._completions[reverse] = Completion(self.asked(reverse).words)

    def asked(self, reverse: bool) -> Embeddings:
        return self.sides[int(reverse)]

    def rows(self, words: Iterable[str], reverse: bool) -> dict[str, int]:
        """Rows of the words that are known, as ``translate`` finds them."""
        side, words = self.asked(reverse), list(words)
        found = find_words(words, side)
        lower = {word: word.lower() for word in words if word not in found}
        folded = find_words(lower.values(), side)
        return found | {word: folded[form] for word, form in lower.items() if form in folded}

    def spelled(self, word: str, reverse: bool) -> str:
        """The word as the vocabulary has it (case, Unicode form); an unknown one as it is."""
        row = self.rows([word], reverse).get(word)
        return word if row is None else self.asked(reverse).words[row]

    # -- any thread --------------------

    def complete(self, start: str, limit: int, *, reverse: bool) -> list[dict[str, Any]]:
        found = self._completions[int(reverse)]
        if found is None:
            found = self._completions[int(reverse)] = Completion(self.asked(reverse).words)
        return found(start, limit)

    def known_entry(self, word: str, *, reverse: bool) -> dict[str, Any] | None:
        """The entry of a word that was asked for before."""
        found: dict[str, Any] | None = self._entries.get((word, reverse))
        return found

    def remembers(self, rows: Iterable[int], reverse: bool) -> bool:
        """Whether all of these words were ranked before, so that nothing is computed."""
        return all(self.translator.rankings.get((row, reverse)) is not None for row in rows)

    @property
    def cached(self) -> int:
        return len(self.translator.rankings)

    # -- the worker's thread --------------------

    def translations(
        self, words: Sequence[str], k: int, reverse: bool, min_confidence: float | None
    ) -> list[dict[str, Any]]:
        how = {"reverse": reverse, "min_confidence": min_confidence}
        return [
            {
                "word": entry.word,
                "known": entry.known,
                "here": entry.here,
                "candidates": [_candidate(one) for one in entry.candidates],
            }
            for entry in self.translator.translate(words, k, **how)
        ]

    def entry(self, word: str, *, reverse: bool) -> dict[str, Any]:
        """All that is known of a word."""
        row = self.rows([word], reverse).get(word)
        found: Translation = self.translator.translate(
            word, 10 * self.translator.n_cand, reverse=reverse, min_confidence=0.0
        )
        names, offered = self.translator.mixture.names, self.asked(not reverse)
        parts = self._parts(row, reverse) if row is not None else {}
        back = self._way_back(row, list(parts), reverse) if row is not None else {}
        candidates = []
        for one in found.candidates:
            at = offered.lookup.get(one.word)
            scores = parts.get(at) if at is not None else None
            if scores is None and row is not None and at is not None:  # a seed that is not near
                scores = self._score_pairs([row], [at], reverse).parts[0, 0]
                back |= self._way_back(row, [at], reverse)
            values = {} if scores is None else dict(zip(names, map(float, scores), strict=True))
            weights = self.translator.mixture.weights
            candidates.append(
                {
                    **_candidate(one),
                    "rank": None if at is None else at + 1,
                    "parts": values,
                    "shares": {name: weights[name] * value for name, value in values.items()},
                    "back_rank": back.get(at, 0) if at is not None else 0,
                }
            )
        entry = {
            "word": word,
            "known": found.known,
            "here": found.here,
            "rank": None if row is None else row + 1,
            "candidates": candidates,
            **self.neighbours(word, NEAR, reverse=reverse),
        }
        self._entries.put((word, reverse), entry)
        return entry

    def _parts(self, row: int, reverse: bool) -> dict[int, NDArray[np.float64]]:
        """Every score of every candidate; scores of weight 0 too, so that one can try them."""
        translator = self.translator
        if all(translator.mixture.weights.values()):
            ranking = translator.rank([row], reverse=reverse)
            return dict(zip(ranking.indices[0].tolist(), ranking.parts[0], strict=True))
        made = (translator.space, translator.scaling, translator.scorers)
        scores = score_candidates(*made, [row], translator.n_cand, reverse=reverse)
        return dict(zip(scores.indices[0].tolist(), scores.parts[0], strict=True))

    def _way_back(self, row: int, candidates: Sequence[int], reverse: bool) -> dict[int, int]:
        """Rank of the word among each candidate's translations by CSLS; 0 beyond ``BACK``."""
        if not candidates:
            return {}
        ranks = self.translator.space.gold_ranks(
            np.array(candidates), [np.array([row])] * len(candidates), reverse=not reverse
        )
        return {
            at: int(rank) * bool(rank <= BACK) for at, rank in zip(candidates, ranks, strict=True)
        }

    def _score_pairs(self, asked: Sequence[int], offered: Sequence[int], reverse: bool) -> Any:
        """Every scorer's score of given pairs, as candidates of one."""
        translator = self.translator
        queries, indices = np.array(asked), np.array(offered)
        pairs = (indices, queries) if reverse else (queries, indices)
        csls = translator.space.retriever.score(*pairs)
        made = (translator.space, translator.scaling, translator.scorers)
        found = Neighbours(indices[:, None], csls[:, None])
        return score_found(*made, queries, found, reverse=reverse)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Scores of given pairs; confidence only where the target is among the candidates."""
        sources = self.rows((source for source, _ in pairs), False)
        targets = self.rows((target for _, target in pairs), True)
        known = [(s, t) for s, t in pairs if s in sources and t in targets]
        scored: dict[tuple[str, str], dict[str, Any]] = {}
        if known:
            rows = [sources[s] for s, _ in known], [targets[t] for _, t in known]
            parts = self._score_pairs(*rows, False).parts
            ranking = self.translator.rank(rows[0])
            mixed = self.translator.mixture.combine(parts)[:, 0]
            for place, pair in enumerate(known):
                among = np.flatnonzero(ranking.indices[place] == rows[1][place])
                sure = None
                if ranking.confidence is not None:
                    sure = float(ranking.confidence[place, among[0]]) if len(among) else 0.0
                names = self.translator.mixture.names
                scored[pair] = {
                    "score": float(mixed[place]),
                    "confidence": sure,
                    "parts": dict(zip(names, map(float, parts[place, 0]), strict=True)),
                }
        nothing: dict[str, Any] = {"score": None, "confidence": None, "parts": {}}
        return [
            {"source": s, "target": t, "known": (s, t) in scored, **scored.get((s, t), nothing)}
            for s, t in pairs
        ]

    def neighbours(self, word: str, n: int, *, reverse: bool) -> dict[str, list[dict[str, Any]]]:
        """Nearest words of the word's own language by cosine, and across by CSLS."""
        row = self.rows([word], reverse).get(word)
        if row is None:
            return {"own": [], "other": []}
        words, others = self.asked(reverse).words, self.asked(not reverse).words
        own, across = self._own(row, n, reverse), self._across(row, n, reverse)
        return {
            "own": [{"word": words[at], "cosine": cosine} for at, cosine in own],
            "other": [{"word": others[at], "csls": csls} for at, csls in across],
        }

    def _across(self, row: int, n: int, reverse: bool) -> list[tuple[int, float]]:
        """Nearest words of the other language; if they are candidates, nothing is searched."""
        if n <= self.translator.n_cand and self.remembers([row], reverse):
            ranking, scaling = self.translator.rank([row], reverse=reverse), self.translator.scaling
            csls = (ranking.parts[0, :, 0] - scaling.intercept) / scaling.slope
            best = np.argsort(-csls, kind="stable")[:n]
            return list(zip(ranking.indices[0, best].tolist(), csls[best].tolist(), strict=True))
        found = self.translator.space.retriever.search(n, [row], reverse=reverse)
        return list(zip(found.indices[0].tolist(), found.scores[0].tolist(), strict=True))

    def _own(self, row: int, n: int, reverse: bool) -> list[tuple[int, float]]:
        retriever = self.translator.space.retriever
        vectors = retriever.target if reverse else retriever.source
        cosines = vectors @ vectors[row]
        cosines[row] = -2.0
        best = cosines.topk(min(n, len(cosines) - 1))
        return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))

    def map(self, word: str, n: int, *, reverse: bool) -> list[dict[str, Any]]:
        """The word and its neighbours of both languages on the plane of their most variance."""
        row = self.rows([word], reverse).get(word)
        if row is None:
            return []
        retriever = self.translator.space.retriever
        own = [row, *(at for at, _ in self._own(row, n, reverse))]
        other = [at for at, _ in self._across(row, n, reverse)]
        sides = (
            (retriever.target, retriever.source)
            if reverse
            else (
                retriever.source,
                retriever.target,
            )
        )
        near = [sides[0][own].cpu().numpy(), sides[1][other].cpu().numpy()]
        points = _plane(np.concatenate(near).astype(np.float64))
        names = ("target", "source") if reverse else ("source", "target")
        words = [(self.asked(reverse).words[at], names[0]) for at in own]
        words += [(self.asked(not reverse).words[at], names[1]) for at in other]
        return [
            {"word": text, "side": side, "x": float(x), "y": float(y), "asked": place == 0}
            for place, ((text, side), (x, y)) in enumerate(zip(words, points, strict=True))
        ]

    # -- the dictionary --------------------

    @property
    def ready(self) -> bool:
        return all(one.done == one.total for one in self.dictionaries)

    def extend(self) -> None:
        """Compute some more words of the dictionary, of the side that has fewer."""
        reverse = self.dictionaries[1].done < self.dictionaries[0].done
        if self.dictionaries[int(reverse)].done == self.dictionaries[int(reverse)].total:
            reverse = not reverse
        own, side = self.dictionaries[int(reverse)], self.asked(reverse)
        words = side.words[own.done : min(own.done + WORDS_A_STEP, own.total)]
        own.rows += self.first_translations(words, reverse)

    def first_translations(self, words: Sequence[str], reverse: bool) -> list[Row]:
        """Rows of words of the vocabulary."""
        ranks = [self.asked(reverse).lookup[word] for word in words]
        entries = self.translator.translate(words, 1, reverse=reverse)
        doubts = self._doubts(ranks, reverse)
        rows = []
        for rank, entry, (doubt, choices) in zip(ranks, entries, doubts, strict=True):
            best = entry.candidates[0] if entry.candidates else None
            rows.append(
                Row(
                    rank + 1,
                    entry.word,
                    best.word if best else None,
                    best.confidence if best else None,
                    bool(best and best.seed),
                    doubt,
                    choices,
                    (fold(entry.word), fold(best.word) if best else ""),
                )
            )
        return rows

    def _doubts(self, rows: Sequence[int], reverse: bool) -> Iterator[tuple[float, str]]:
        """Weight of the scores that like another candidate best than the mixture, and which."""
        ranking, offered = self.translator.rank(rows, reverse=reverse), self.asked(not reverse)
        weights = self.translator.mixture.weights
        signed = np.array(list(weights.values()))
        choices = (ranking.parts * np.sign(signed)).argmax(axis=1)  # (words, scores)
        for row, chosen in enumerate(choices.tolist()):
            said = [
                f"{name}: {offered.words[int(ranking.indices[row, at])]}"
                for (name, weight), at in zip(weights.items(), chosen, strict=True)
                if at and weight
            ]
            yield float((np.array(chosen) != 0) @ np.abs(signed)), "; ".join(said)


def _candidate(one: Any) -> dict[str, Any]:
    return {
        "word": one.word,
        "confidence": one.confidence,
        "score": one.score,
        "seed": one.seed,
        "forms": list(one.forms),
    }


def _plane(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first two principal components, the farthest point at distance 1 of the middle."""
    centred = vectors - vectors.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    points = np.zeros((len(vectors), 2))
    width = min(2, len(sizes))
    points[:, :width] = left[:, :width] * sizes[:width]
    reach = np.abs(points).max()
    return points / reach if reach > 0 else points


def right_to_left(side: Embeddings) -> bool:
    """Whether most letters of the frequent words belong to such a script."""
    letters = [
        unicodedata.bidirectional(one) for word in side.words[:200] for one in word if one.isalpha()
    ]
    return 2 * sum(one in ("R", "AL") for one in letters) > len(letters)
