"""How good a space or a translator is: P@k and MRR in both directions (docs/method.md §5).

Intervals and paired tests are bootstraps over query words. Scores are fractions; the tables for the
terminal show per cent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from blicer.errors import InputError
from blicer.lexicon import Lexicon, find_words

if TYPE_CHECKING:
    from collections.abc import Mapping


Floats = NDArray[np.float64]
_BLOCK = 400_000  # drawn indices held at a time


def resampled_means(values: Floats, draws: int, seed: int) -> Floats:
    """Column means of ``values`` (queries, metrics) over queries drawn again: (draws, metrics)."""
    means = np.empty((draws, values.shape[1]))
    rows = np.ascontiguousarray(values.T)
    for start, picked in _draw(len(values), draws, seed):
        for metric, row in enumerate(rows):
            means[start : start + len(picked), metric] = row[picked].mean(axis=1)
    return means


def _draw(queries: int, draws: int, seed: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    generator = np.random.default_rng(seed)
    step = max(1, _BLOCK // max(queries, 1))
    for start in range(0, draws, step):
        size = (min(step, draws - start), queries)
        yield start, generator.integers(0, queries, size=size)


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


METRICS = ("p@1", "p@5", "p@10", "mrr")
Integers = NDArray[np.int64]


class Words(Protocol):
    """One language's side of a system; ``Embeddings`` is one."""

    @property
    def words(self) -> Sequence[str]: ...

    @property
    def lookup(self) -> Mapping[str, int]: ...


class System(Protocol):
    """What can be evaluated: a space, a translator, or any object with these three."""

    @property
    def source(self) -> Words: ...

    @property
    def target(self) -> Words: ...

    def gold_ranks(
        self, queries: Integers, golds: list[Integers], *, reverse: bool = False
    ) -> Integers:
        """Rank (from 1) of the best-ranked gold of each query; 0 if the system ranks none."""
        ...


@dataclass(frozen=True)
class Scores:
    """Means over one set of queries, as fractions, with their 95 % intervals."""

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    queries: int

    def __getitem__(self, metric: str) -> float:
        return self.values[metric]

    def to_dict(self) -> dict[str, Any]:
        bounds = {f"{metric}_interval": list(both) for metric, both in self.intervals.items()}
        return {**self.values, "queries": self.queries, **bounds}


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
        return evaluation_table(self, title)


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


def answerable_queries(
    lexicon: Lexicon, source: Words, target: Words
) -> tuple[NDArray[np.bool_], Integers, list[Integers]]:
    """A mask of the source words that can be answered; their rows; the rows of their golds."""
    source_rows, _ = find_words(lexicon.targets, source)
    target_rows, _ = find_words({word for _, word in lexicon.pairs}, target)
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


def _evaluate_direction(
    system: System, lexicon: Lexicon, reverse: bool, bootstrap: int, seed: int
) -> DirectionResult:
    source, target = (system.target, system.source) if reverse else (system.source, system.target)
    known, queries, golds = answerable_queries(lexicon, source, target)
    if not len(queries):
        missing = "; ".join(lexicon.coverage(source, target).lines())
        raise InputError(f"no word of the test dictionary can be scored: {missing}")
    found = np.asarray(system.gold_ranks(queries, golds, reverse=reverse))
    if found.shape != queries.shape or found.dtype.kind not in "iu" or (found < 0).any():
        raise InputError(
            f"gold_ranks of {type(system).__name__} gave {found.dtype} of shape {found.shape}; "
            f"expected {len(queries)} whole numbers, one rank a query, none below 0"
        )
    ranks = np.zeros(len(known), dtype=np.int64)
    ranks[known] = found
    return DirectionResult(
        in_vocabulary=_scores(ranks[known], bootstrap, seed),
        all_queries=_scores(ranks, bootstrap, seed),
        words=list(lexicon.targets),
        ranks=ranks,
        answerable=known,
    )


def per_query(ranks: Integers) -> NDArray[np.float64]:
    """Hit at 1, 5 and 10 and reciprocal rank of each query: (queries, 4), as ``METRICS``."""
    found = ranks > 0
    hits = [found & (ranks <= cut) for cut in (1, 5, 10)]
    reciprocal = np.where(found, 1.0 / np.maximum(ranks, 1), 0.0)
    return np.stack([*hits, reciprocal], axis=1).astype(np.float64)


def _scores(ranks: Integers, bootstrap: int, seed: int) -> Scores:
    values = per_query(ranks)
    bounds: dict[str, tuple[float, float]] = {}
    if bootstrap:
        both = interval(resampled_means(values, bootstrap, seed))
        bounds = {
            metric: (float(low), float(high))
            for metric, (low, high) in zip(METRICS, both, strict=True)
        }
    means = values.mean(axis=0)
    return Scores(
        values={metric: float(mean) for metric, mean in zip(METRICS, means, strict=True)},
        intervals=bounds,
        queries=len(ranks),
    )


@dataclass(frozen=True)
class Difference:
    """First system minus second on the same queries, per metric."""

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    p_values: dict[str, float]
    queries: int

    def to_dict(self) -> dict[str, Any]:
        scores: dict[str, Any] = {
            metric: {
                "difference": self.values[metric],
                "interval": list(self.intervals[metric]),
                "p_value": self.p_values[metric],
            }
            for metric in METRICS
        }
        return {**scores, "queries": self.queries}


@dataclass(frozen=True)
class Comparison:
    """Paired bootstrap test in both directions; positive where the first system is better.

    ``forward`` and ``backward`` use the queries that both systems can answer;
    ``forward_all`` and ``backward_all`` all queries.
    """

    forward: Difference
    backward: Difference
    forward_all: Difference
    backward_all: Difference

    def to_dict(self) -> dict[str, Any]:
        return {
            "forward": {**self.forward.to_dict(), "all_queries": self.forward_all.to_dict()},
            "backward": {**self.backward.to_dict(), "all_queries": self.backward_all.to_dict()},
        }

    def table(self, title: str | None = None) -> Table:
        return comparison_table(self, title)


def compare(
    first: Evaluation, second: Evaluation, *, bootstrap: int = 10_000, seed: int = 0
) -> Comparison:
    """Is ``first`` better than ``second``? Both must come from the same test dictionary."""
    if bootstrap < 1:
        raise InputError(f"bootstrap={bootstrap}: expected at least one draw")
    differences = {
        name: [
            compare_direction(one, other, everything=everything, bootstrap=bootstrap, seed=seed)
            for everything in (False, True)
        ]
        for (name, one), (_, other) in zip(first.directions(), second.directions(), strict=True)
    }
    return Comparison(
        forward=differences["forward"][0],
        backward=differences["backward"][0],
        forward_all=differences["forward"][1],
        backward_all=differences["backward"][1],
    )


def compare_direction(
    first: DirectionResult,
    second: DirectionResult,
    *,
    everything: bool = False,
    bootstrap: int = 10_000,
    seed: int = 0,
) -> Difference:
    """Compare one direction, over the queries that both can answer or over ``everything``."""
    if first.words != second.words:
        raise InputError(
            f"the two results are for different queries ({len(first.words)} and "
            f"{len(second.words)} words); evaluate both systems on the same test dictionary"
        )
    both = first.answerable & second.answerable
    if everything:
        both = np.ones_like(both)
    if not both.any():
        raise InputError("the two systems have no query in common that both can answer")
    differences = per_query(first.ranks[both]) - per_query(second.ranks[both])
    means = resampled_means(differences, bootstrap, seed)
    observed, bounds = differences.mean(axis=0), interval(means)
    p_values = paired_p_values(differences, means)
    return Difference(
        values={metric: float(observed[at]) for at, metric in enumerate(METRICS)},
        intervals={
            metric: (float(bounds[at, 0]), float(bounds[at, 1]))
            for at, metric in enumerate(METRICS)
        },
        p_values={metric: float(p_values[at]) for at, metric in enumerate(METRICS)},
        queries=int(both.sum()),
    )


METRIC_TITLES = {"p@1": "P@1", "p@5": "P@5", "p@10": "P@10", "mrr": "MRR"}

T = TypeVar("T")


def evaluation_table(evaluation: Evaluation, title: str | None = None) -> Table:
    columns: list[tuple[str, Scores]] = []
    coverage = []
    for name, result in evaluation.directions():
        columns += [
            (f"{name}, in vocabulary", result.in_vocabulary),
            (f"{name}, all", result.all_queries),
        ]
        coverage += [f"{100 * result.coverage:.1f} %", ""]
    table = _table(title, columns, _score)
    table.add_row("queries", *(str(scores.queries) for _, scores in columns))
    table.add_row("coverage", *coverage)
    return table


def comparison_table(comparison: Comparison, title: str | None = None) -> Table:
    columns = [
        ("forward, both can answer", comparison.forward),
        ("forward, all", comparison.forward_all),
        ("backward, both can answer", comparison.backward),
        ("backward, all", comparison.backward_all),
    ]
    table = _table(title or "first minus second, paired bootstrap", columns, _difference)
    table.add_row("queries", *(str(difference.queries) for _, difference in columns))
    return table


def _table(
    title: str | None, columns: Sequence[tuple[str, T]], cell: Callable[[T, str], str]
) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name, _ in columns:
        table.add_column(name, justify="right")
    for metric, shown in METRIC_TITLES.items():
        table.add_row(shown, *(cell(values, metric) for _, values in columns))
    return table


def _score(scores: Scores, metric: str) -> str:
    value = f"{100 * scores[metric]:.1f}"
    if metric not in scores.intervals:
        return value
    low, high = scores.intervals[metric]
    return f"{value} ({100 * low:.1f}-{100 * high:.1f})"


def _difference(difference: Difference, metric: str) -> str:
    low, high = difference.intervals[metric]
    p_value = difference.p_values[metric]
    chance = "p<0.001" if p_value < 0.001 else f"p={p_value:.3f}"
    return (
        f"{100 * difference.values[metric]:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) {chance}"
    )
