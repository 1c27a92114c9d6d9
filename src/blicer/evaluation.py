"""How good a space or a translator is: P@k and MRR in both directions (docs/method.md §5).

Intervals and paired tests are bootstraps over query words. Scores are fractions; the tables for the
terminal show per cent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from blicer.errors import InputError
from blicer.lexicon import Lexicon, Vocabulary, find_words

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
METRICS = ("p@1", "p@5", "p@10", "mrr")
_BLOCK = 400_000  # drawn indices held at a time


class System(Protocol):
    """What can be evaluated: a space, a translator, or any object with these three."""

    @property
    def source(self) -> Vocabulary: ...

    @property
    def target(self) -> Vocabulary: ...

    def gold_ranks(
        self, queries: Integers, golds: list[Integers], *, reverse: bool = False
    ) -> Integers:
        """Rank (from 1) of the best-ranked gold of each query; 0 if the system ranks none."""
        ...


@dataclass(frozen=True)
class Scores:
    """Means over queries, or mean differences of two systems, with 95 % intervals."""

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    queries: int
    p_values: dict[str, float] | None = None
    """Of differences: two-sided, for "the mean difference is zero"."""

    def __getitem__(self, metric: str) -> float:
        return self.values[metric]

    def to_dict(self) -> dict[str, Any]:
        if self.p_values is None:
            bounds = {f"{metric}_interval": list(both) for metric, both in self.intervals.items()}
            return {**self.values, "queries": self.queries, **bounds}
        tests: dict[str, Any] = {
            metric: {
                "difference": self.values[metric],
                "interval": list(self.intervals[metric]),
                "p_value": self.p_values[metric],
            }
            for metric in METRICS
        }
        return {**tests, "queries": self.queries}

    def shown(self, metric: str) -> str:
        """Per cent, with the interval and, for differences, the p-value."""
        sign = "" if self.p_values is None else "+"
        text = f"{100 * self.values[metric]:{sign}.1f}"
        if metric not in self.intervals:
            return text
        low, high = (f"{100 * bound:{sign}.1f}" for bound in self.intervals[metric])
        if self.p_values is None:
            return f"{text} ({low}-{high})"
        p_value = self.p_values[metric]
        return f"{text} ({low} to {high}) {'p<0.001' if p_value < 0.001 else f'p={p_value:.3f}'}"


@dataclass(frozen=True, eq=False)
class DirectionResult:
    """One direction: scores over both denominators, and the rank of every query."""

    in_vocabulary: Scores
    all_queries: Scores
    words: list[str]
    ranks: Integers
    """Rank of the best gold of each word of ``words``; 0 where there is no answer."""
    answerable: NDArray[np.bool_]
    """Whether the word and at least one of its golds are in the vocabularies."""

    @property
    def queries(self) -> int:
        return self.in_vocabulary.queries

    @property
    def coverage(self) -> float:
        return self.queries / len(self.words)

    def __getitem__(self, metric: str) -> float:
        return self.in_vocabulary[metric]

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.in_vocabulary.to_dict(),
            "coverage": self.coverage,
            "all_queries": {**self.all_queries.to_dict(), "coverage": self.coverage},
        }


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Both directions. Fractions from 0 to 1 in ``to_dict``, percentages in ``table``."""

    forward: DirectionResult
    backward: DirectionResult

    def directions(self) -> tuple[tuple[str, DirectionResult], ...]:
        return (("forward", self.forward), ("backward", self.backward))

    def to_dict(self) -> dict[str, Any]:
        return {name: result.to_dict() for name, result in self.directions()}

    def table(self, title: str | None = None) -> Table:
        """A table for the terminal (``rich.print``)."""
        columns: dict[str, Scores] = {}
        coverage = []
        for name, result in self.directions():
            columns[f"{name}, in vocabulary"] = result.in_vocabulary
            columns[f"{name}, all"] = result.all_queries
            coverage += [f"{100 * result.coverage:.1f} %", ""]
        table = _table(title, columns)
        table.add_row("coverage", *coverage)
        return table


@dataclass(frozen=True)
class Comparison:
    """Paired bootstrap test over the queries that both systems can answer; positive where the
    first system is better."""

    forward: Scores
    backward: Scores

    def to_dict(self) -> dict[str, Any]:
        return {"forward": self.forward.to_dict(), "backward": self.backward.to_dict()}

    def table(self, title: str = "first minus second, paired bootstrap") -> Table:
        return _table(title, {"forward": self.forward, "backward": self.backward})


def _table(title: str | None, columns: Mapping[str, Scores]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right")
    for metric in METRICS:
        table.add_row(metric.upper(), *(scores.shown(metric) for scores in columns.values()))
    table.add_row("queries", *(str(scores.queries) for scores in columns.values()))
    return table


def evaluate(
    system: System, lexicon: Lexicon, *, bootstrap: int = 1000, seed: int = 0
) -> Evaluation:
    """Evaluate a space or a translator on a test dictionary, in both directions.

    ``bootstrap``: draws for the 95 % intervals (0: no intervals). ``seed``: of those draws.
    """
    if bootstrap < 0:
        raise InputError(f"bootstrap={bootstrap}: expected a number of draws, 0 or more")
    if not len(lexicon):
        raise InputError("the test dictionary is empty")
    return Evaluation(
        forward=_evaluate_direction(system, lexicon, False, bootstrap, seed),
        backward=_evaluate_direction(system, lexicon.reverse(), True, bootstrap, seed),
    )


def _evaluate_direction(
    system: System, lexicon: Lexicon, reverse: bool, bootstrap: int, seed: int
) -> DirectionResult:
    source, target = (system.target, system.source) if reverse else (system.source, system.target)
    known, queries, golds = answerable_queries(lexicon, source, target)
    if not len(queries):
        missing = "; ".join(lexicon.coverage(source, target).lines())
        raise InputError(f"no word of the test dictionary can be scored: {missing}")
    ranks = np.zeros(len(known), dtype=np.int64)
    ranks[known] = system.gold_ranks(queries, golds, reverse=reverse)
    return DirectionResult(
        in_vocabulary=_scores(per_query(ranks[known]), bootstrap, seed),
        all_queries=_scores(per_query(ranks), bootstrap, seed),
        words=list(lexicon.targets),
        ranks=ranks,
        answerable=known,
    )


def answerable_queries(
    lexicon: Lexicon, source: Vocabulary, target: Vocabulary
) -> tuple[NDArray[np.bool_], Integers, list[Integers]]:
    """A mask of the source words that can be answered; their rows; the rows of their golds."""
    source_rows = find_words(lexicon.targets, source)
    target_rows = find_words({word for _, word in lexicon.pairs}, target)
    known = np.zeros(len(lexicon.targets), dtype=np.bool_)
    queries: list[int] = []
    golds: list[Integers] = []
    for at, (word, answers) in enumerate(lexicon.targets.items()):
        rows = {target_rows[answer] for answer in answers if answer in target_rows}
        if word in source_rows and rows:
            known[at] = True
            queries.append(source_rows[word])
            golds.append(np.array(sorted(rows), dtype=np.int64))
    return known, np.array(queries, dtype=np.int64), golds


def per_query(ranks: Integers) -> Floats:
    """Hit at 1, 5 and 10 and reciprocal rank of each query: (queries, 4), as ``METRICS``."""
    found = ranks > 0
    hits = [found & (ranks <= cut) for cut in (1, 5, 10)]
    reciprocal = np.where(found, 1.0 / np.maximum(ranks, 1), 0.0)
    return np.stack([*hits, reciprocal], axis=1).astype(np.float64)


def compare(
    first: Evaluation, second: Evaluation, *, bootstrap: int = 10_000, seed: int = 0
) -> Comparison:
    """Test whether ``first`` is better than ``second``, on the same test dictionary.

    ``bootstrap``: draws of the paired test. ``seed``: of those draws.
    """
    if bootstrap < 1:
        raise InputError(f"bootstrap={bootstrap}: expected at least one draw")
    scores = []
    for (_, one), (_, other) in zip(first.directions(), second.directions(), strict=True):
        if one.words != other.words:
            raise InputError(
                f"the two results are for different queries ({len(one.words)} and "
                f"{len(other.words)} words); evaluate both systems on the same test dictionary"
            )
        both = one.answerable & other.answerable
        if not both.any():
            raise InputError("the two systems have no query in common that both can answer")
        differences = per_query(one.ranks[both]) - per_query(other.ranks[both])
        scores.append(_scores(differences, bootstrap, seed, test=True))
    return Comparison(*scores)


def _scores(values: Floats, bootstrap: int, seed: int, *, test: bool = False) -> Scores:
    """Means of ``values`` (queries, metrics); ``test`` adds p-values for a mean of zero."""
    intervals: dict[str, tuple[float, float]] = {}
    p_values = None
    if bootstrap:
        means = resampled_means(values, bootstrap, seed)
        both = interval(means).tolist()
        intervals = {metric: (low, high) for metric, (low, high) in zip(METRICS, both, strict=True)}
        if test:
            p_values = dict(zip(METRICS, paired_p_values(values, means).tolist(), strict=True))
    observed = dict(zip(METRICS, values.mean(axis=0).tolist(), strict=True))
    return Scores(observed, intervals, len(values), p_values)


# -- bootstrap ------------------------------------------------------------------------------------


def resampled_means(values: Floats, draws: int, seed: int) -> Floats:
    """Column means of ``values`` (queries, metrics) over resampled queries: (draws, metrics)."""
    generator = np.random.default_rng(seed)
    means = np.empty((draws, values.shape[1]))
    rows = np.ascontiguousarray(values.T)
    step = max(1, _BLOCK // max(len(values), 1))
    for start in range(0, draws, step):
        picked = generator.integers(0, len(values), size=(min(step, draws - start), len(values)))
        for metric, row in enumerate(rows):
            means[start : start + len(picked), metric] = row[picked].mean(axis=1)
    return means


def interval(means: Floats) -> Floats:
    """The middle 95 % of each column: (metrics, 2)."""
    return np.asarray(np.percentile(means, [2.5, 97.5], axis=0).T, dtype=np.float64)


def paired_p_values(differences: Floats, means: Floats) -> Floats:
    """Two-sided p-value per metric for "the mean difference is zero".

    The resampled means, shifted to a mean of zero, are the distribution under that hypothesis; the
    p-value is the share of them at least as far from zero as the observed mean, which counts as
    one of them, so that p is never 0.
    """
    observed = differences.mean(axis=0)
    as_far = np.abs(means - observed) >= np.abs(observed) - 1e-12
    return np.asarray((1 + as_far.sum(axis=0)) / (1 + len(means)), dtype=np.float64)
