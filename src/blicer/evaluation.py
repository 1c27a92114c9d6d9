"""Evaluates a space or a translator in both directions (docs/method.md §5).

P@k and MRR; figures of the whole dictionary (F1, average precision, coverage at a precision,
calibration: ``metrics.py``); and all of them for groups of words. Intervals and paired tests are
bootstraps over query words. Scores are fractions; tables show per cent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from blicer import metrics
from blicer.breakdown import GROUPS, word_groups
from blicer.errors import InputError, expect, needed
from blicer.lexicon import Lexicon, Vocabulary, check_columns, find_words, html_table
from blicer.metrics import FIGURES, Answers, Bin

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
METRICS = ("p@1", "p@5", "p@10", "mrr")
IN_BRIEF = ("f1", "ap", "coverage@95", "reached@95", "ece", "auc_absent")
OF_GROUPS = ("f1", "right", "stated")  # columns, beside P@1, that fit into 80 characters
CANDIDATES = 28  # of a space, as of a translator by default
CURVE_POINTS = 100  # of a risk-coverage curve in JSON and data frames
_QUERIES_AT_ONCE = 512
_BLOCK = 400_000  # drawn indices held at a time
_NOTHING = "–"


class System(Protocol):
    """What can be evaluated: a space, a translator, or any object with these three.

    The figures of ``metrics.py`` need candidates too: ``rank``, as a translator has it, or
    ``retriever``, as a space has it.
    """

    @property
    def source(self) -> Vocabulary: ...

    @property
    def target(self) -> Vocabulary: ...

    def gold_ranks(self, queries: Ints, golds: list[Ints], *, reverse: bool = False) -> Ints:
        """Rank (from 1) of the best-ranked gold of each query; 0 if the system ranks none."""
        ...


class Settings(NamedTuple):
    """Arguments of ``evaluate``, for figures that are computed later."""

    bootstrap: int = 1000
    seed: int = 0
    min_confidence: float | None = None


@dataclass(frozen=True)
class Scores:
    """Means over queries, or mean differences of two systems, with 95 % intervals."""

    values: dict[str, float | None]
    """None if a figure is not defined: no query, or no confidence."""
    intervals: dict[str, tuple[float, float]]
    queries: int
    p_values: dict[str, float] | None = None
    """Of differences: two-sided, for "the mean difference is zero"."""

    def __getitem__(self, metric: str) -> float | None:
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

    def shown(self, metric: str, *, interval: bool = True) -> str:
        """Per cent, with the interval and, for differences, the p-value."""
        value = self.values.get(metric)
        if value is None:
            return _NOTHING
        sign = "" if self.p_values is None else "+"
        scale, form = (1, f"{sign}.2f") if metric == "translations" else (100, f"{sign}.1f")
        text = f"{scale * value:{form}}"
        if metric not in self.intervals or not interval:
            return text
        low, high = (f"{scale * bound:{form}}" for bound in self.intervals[metric])
        if self.p_values is None:
            # Without ".0", five columns of a table fit into 80 characters.
            return f"{text} ({low}-{high})".replace("100.0-", "100-").replace("100.0)", "100)")
        p_value = self.p_values[metric]
        return f"{text} ({low} to {high}) {'p<0.001' if p_value < 0.001 else f'p={p_value:.3f}'}"


@dataclass(frozen=True, eq=False)
class DirectionResult:
    """One direction: scores over words in the vocabulary and over all, and every rank."""

    in_vocabulary: Scores
    all_queries: Scores
    words: list[str]
    ranks: Ints
    """Rank of the best gold of each of ``words``; 0 if there is none."""
    answerable: NDArray[np.bool_]
    """Whether the word and at least one of its golds are in the vocabularies."""
    answers: Answers | None = None
    """Candidates and confidences of each word; None for a system that only ranks golds."""
    labels: Mapping[str, Sequence[str]] | None = None
    """The group of each word, for every grouping (see ``word_groups``)."""
    settings: Settings = Settings()  # noqa: RUF009 - a tuple, which nothing can change

    @property
    def queries(self) -> int:
        return self.in_vocabulary.queries

    @property
    def coverage(self) -> float:
        return self.queries / len(self.words)

    def __getitem__(self, metric: str) -> float | None:
        return self.in_vocabulary[metric]

    def scored(self) -> tuple[tuple[str, Scores], ...]:
        """The scores over words in the vocabulary, and over all words, with names."""
        return (("in vocabulary", self.in_vocabulary), ("all", self.all_queries))

    @cached_property
    def groups(self) -> dict[str, dict[str, DirectionResult]]:
        """The same figures for each group of words, computed on first use."""
        found: dict[str, dict[str, DirectionResult]] = {}
        for kind, labels in (self.labels or {}).items():
            parts = {name: np.flatnonzero(np.array(labels) == name) for name in GROUPS[kind]}
            found[kind] = {name: self._part(rows) for name, rows in parts.items() if len(rows)}
        return found

    def _part(self, rows: Ints) -> DirectionResult:
        return _result(
            [self.words[row] for row in rows],
            self.ranks[rows],
            self.answerable[rows],
            self.settings,
            None if self.answers is None else self.answers.take(rows),
        )

    @cached_property
    def risk_coverage(self) -> Floats:
        """Rows of coverage, precision and confidence of the cut, over all words with an entry."""
        return metrics.risk_coverage(*self._first_translations())

    @cached_property
    def reliability(self) -> list[Bin]:
        """(mean stated confidence, share right, words) of ten bins, all words with an entry."""
        if self.answers is None or not self.answers.calibrated:
            return []
        return metrics.reliability_bins(*self._first_translations())

    def _first_translations(self) -> tuple[Floats, Floats]:
        """Confidence and correctness, of words with an entry."""
        if self.answers is None:
            return np.empty(0), np.empty(0)
        rows = self.answers.has_entry
        return self.answers.sure[rows, 0], self.answers.right[rows, 0].astype(np.float64)

    def to_dict(self, *, details: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {
            **self.in_vocabulary.to_dict(),
            "coverage": self.coverage,
            "all_queries": {**self.all_queries.to_dict(), "coverage": self.coverage},
        }
        if details:
            found["risk_coverage"] = [
                dict(zip(("coverage", "precision", "confidence"), row, strict=True))
                for row in thinned(self.risk_coverage).tolist()
            ]
            found["reliability"] = [
                dict(zip(("confidence", "right", "words"), one, strict=True))
                for one in self.reliability
            ]
            found["groups"] = {
                kind: {name: part.to_dict() for name, part in parts.items()}
                for kind, parts in self.groups.items()
            }
        return found


def thinned(curve: Floats, points: int = CURVE_POINTS) -> Floats:
    """About ``points`` rows of a long curve, evenly spaced by coverage, with both ends."""
    if len(curve) <= points:
        return curve
    wanted = np.linspace(curve[0, 0], curve[-1, 0], points)
    return curve[np.unique(np.searchsorted(curve[:, 0], wanted - 1e-12))]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Both directions. Fractions from 0 to 1 in ``to_dict``, percentages in ``table``."""

    forward: DirectionResult
    backward: DirectionResult

    def directions(self) -> tuple[tuple[str, DirectionResult], ...]:
        return (("forward", self.forward), ("backward", self.backward))

    def to_dict(self, *, details: bool = False) -> dict[str, Any]:
        """``details`` adds risk-coverage curves, reliability bins and groups of words."""
        return {name: result.to_dict(details=details) for name, result in self.directions()}

    def to_pandas(self) -> Any:
        """A data frame: a row for each direction, group, set of words and figure."""
        with needed("pandas", "a data frame of results", "bench"):
            import pandas
        return pandas.DataFrame(self._records())

    def _records(self) -> Iterator[dict[str, Any]]:
        for direction, result in self.directions():
            parts = [("all words", "", result)]
            parts += [(kind, *one) for kind, of in result.groups.items() for one in of.items()]
            for kind, group, part in parts:
                for words, scores in part.scored():
                    for figure, value in scores.values.items():
                        low, high = scores.intervals.get(figure, (None, None))
                        yield {
                            "direction": direction,
                            "grouped_by": kind,
                            "group": group,
                            "words": words,
                            "queries": scores.queries,
                            "figure": figure,
                            "value": value,
                            "low": low,
                            "high": high,
                        }

    def notes(self) -> list[str]:
        """Sentences on figures that are missing."""
        answers = self.forward.answers
        if answers is None:
            return ["this system gives no candidates, so only P@k and MRR are measured"]
        if not answers.calibrated:
            return [
                "there is no calibration, so F1 at a minimal confidence, calibration error and "
                "promised precision are missing; average precision, coverage and AUC follow the "
                "scores"
            ]
        return []

    def table(self, title: str | None = None, *, details: bool = False) -> Table:
        """A table for the terminal (``rich.print``); ``details``: with every figure."""
        header, rows = self._cells(details)
        table = Table(title=title, title_justify="left", caption_justify="left")
        table.add_column("", no_wrap=True)
        for name in header:
            table.add_column(name, justify="right")
        for label, cells in rows:
            table.add_row(label, *cells)
        labels = {label for label, _ in rows}
        if explained := [f"{name}: {what}" for name, what in FIGURES.items() if name in labels]:
            least = self.forward.settings.min_confidence
            given = (
                "the first and others that are likely" if least is None else f"from {least:g} on"
            )
            given = f"entries that are given: {given}"
            table.caption = "; ".join([*explained, given])
        return table

    def _cells(self, details: bool = False) -> tuple[list[str], list[tuple[str, list[str]]]]:
        """Header and rows of the table of all words, one metric a row."""
        columns: dict[str, Scores] = {}
        coverage = []
        for name, result in self.directions():
            columns |= {f"{name}, {words}": scores for words, scores in result.scored()}
            coverage += [f"{100 * result.coverage:.1f} %", ""]
        rows = _metric_rows(METRICS, columns)
        for name in FIGURES if details else IN_BRIEF:
            cells = [scores.shown(name) for scores in columns.values()]
            if set(cells) != {_NOTHING} or (details and self.forward.answers is not None):
                rows.insert(-1, (name, cells))
        return list(columns), [*rows, ("coverage", coverage)]

    def details(self) -> list[Table]:
        """Tables of groups of words, reliability and risk-coverage, for each direction."""
        tables = []
        for direction, result in self.directions():
            if result.answers is None:
                continue
            names = ["p@1", *OF_GROUPS]
            groups = Table("", "words", *names, title=f"{direction}, by group", **_LEFT)
            for kind, parts in result.groups.items():
                groups.add_section()
                groups.add_row(f"by {kind}")
                for group, part in parts.items():
                    cells = [part.in_vocabulary.shown("p@1")]
                    cells += [part.all_queries.shown(name) for name in OF_GROUPS]
                    groups.add_row(group, str(len(part.words)), *cells)
            groups.caption = (
                "p@1 in vocabulary, the others over all words of the group; --json has all "
                "figures. Proper names and inflected forms are told by spelling alone "
                "(docs/method.md §5)."
            )
            tables.append(groups)
            if result.reliability:
                bins = Table("stated", "right", "words", title=f"{direction}, reliability", **_LEFT)
                for stated, right, words in result.reliability:
                    bins.add_row(f"{100 * stated:.1f}", f"{100 * right:.1f}", str(words))
                tables.append(bins)
            cuts = Table("coverage", "precision", "confidence from", **_LEFT)
            cuts.title = f"{direction}, surest words first"
            for covered, precision, least in thinned(result.risk_coverage, 10).tolist():
                cuts.add_row(f"{100 * covered:.1f}", f"{100 * precision:.1f}", f"{least:.3f}")
            tables.append(cuts)
        return tables

    def __repr__(self) -> str:
        parts = []
        for name, result in self.directions():
            shown = ", ".join(
                f"{metric.upper()} {result.in_vocabulary.shown(metric, interval=False)} %"
                for metric in ("p@1", "mrr")
            )
            parts.append(f"{name}: {shown}, {result.queries} of {len(result.words)} queries")
        return f"Evaluation({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        header, rows = self._cells()
        return html_table(["", *header], ([label, *cells] for label, cells in rows))


@dataclass(frozen=True)
class Comparison:
    """Paired bootstrap test over the queries that both systems can answer; positive where the
    first system is better."""

    forward: Scores
    backward: Scores

    def to_dict(self) -> dict[str, Any]:
        return {"forward": self.forward.to_dict(), "backward": self.backward.to_dict()}

    def table(self, title: str = "first minus second, paired bootstrap") -> Table:
        columns = {"forward": self.forward, "backward": self.backward}
        table = Table("", title=title, **_LEFT)
        for name in columns:
            table.add_column(name, justify="right")
        for label, cells in _metric_rows(METRICS, columns):
            table.add_row(label, *cells)
        return table


_LEFT: dict[str, Any] = {"title_justify": "left", "caption_justify": "left"}


def _metric_rows(
    names: Sequence[str], columns: Mapping[str, Scores]
) -> list[tuple[str, list[str]]]:
    rows = [(name.upper(), [one.shown(name) for one in columns.values()]) for name in names]
    return [*rows, ("queries", [str(one.queries) for one in columns.values()])]


# -- measuring ------------------------------------------------------------------------------------


def evaluate(
    system: System,
    lexicon: Lexicon,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
    min_confidence: float | None = None,
) -> Evaluation:
    """Evaluate a space or a translator on a test dictionary, in both directions.

    ``bootstrap``: draws for the 95 % intervals (0: no intervals). ``seed``: of those draws.
    ``min_confidence``: precision, recall and F1 count the entries that are at least as sure; by
    default those that ``Translator.translate`` gives.
    """
    expect("lexicon", lexicon, Lexicon, hint="blicer.Lexicon.load reads a file")
    if not all(hasattr(system, name) for name in ("source", "target", "gold_ranks")):
        found = type(system).__name__
        raise InputError(f"system is a {found}; expected a Space or a Translator")
    expect("bootstrap", bootstrap, int)
    expect("min_confidence", min_confidence, int, float, type(None))
    if bootstrap < 0:
        raise InputError(f"bootstrap={bootstrap}: expected a number of draws, 0 or more")
    if min_confidence is not None and not 0.0 <= min_confidence <= 1.0:
        raise InputError(f"min_confidence={min_confidence}: expected a number from 0 to 1")
    if not len(lexicon):
        raise InputError("the test dictionary is empty")
    check_columns(lexicon, system.source, system.target, "the test dictionary")
    settings = Settings(bootstrap, seed, min_confidence)
    return Evaluation(
        forward=_evaluate_direction(system, lexicon, False, settings),
        backward=_evaluate_direction(system, lexicon.reverse(), True, settings),
    )


def _evaluate_direction(
    system: System, lexicon: Lexicon, reverse: bool, settings: Settings
) -> DirectionResult:
    source, target = (system.target, system.source) if reverse else (system.source, system.target)
    known, queries, golds = answerable_queries(lexicon, source, target)
    if not len(queries):
        missing = "; ".join(lexicon.coverage(source, target).lines())
        raise InputError(f"no word of the test dictionary can be scored: {missing}")
    words = list(lexicon.targets)
    rows = find_words(words, source)
    has_entry = np.array([word in rows for word in words])
    ranks = np.zeros(len(words), dtype=np.int64)
    labels = word_groups(lexicon, source, target)
    ranked = _candidates(system, np.array(list(rows.values()), dtype=np.int64), reverse)
    if ranked is None:
        ranks[known] = system.gold_ranks(queries, golds, reverse=reverse)
        return _result(words, ranks, known, settings, labels=labels)
    indices, sure, here, calibrated = ranked
    shape = (len(words), indices.shape[1])
    right, filled = np.zeros(shape, dtype=np.bool_), np.zeros(shape)
    filled[has_entry] = sure
    is_here = np.zeros(len(words))
    is_here[has_entry] = here
    right[known] = _is_gold(indices[known[has_entry]], golds, len(target.lookup))
    ranks[known] = np.where(right[known].any(axis=1), 1 + right[known].argmax(axis=1), 0)
    # Golds that are no candidates rank behind all candidates.
    beyond = np.flatnonzero(ranks[known] == 0)
    if len(beyond):
        some = [golds[at] for at in beyond]
        found = system.gold_ranks(queries[beyond], some, reverse=reverse)
        ranks[np.flatnonzero(known)[beyond]] = np.where(
            found > 0, np.maximum(found, shape[1] + 1), 0
        )
    listed, findable = _gold_counts(lexicon, target)
    answers = Answers(
        sure=filled,
        right=right,
        has_entry=has_entry,
        golds=listed,
        golds_known=findable,
        calibrated=calibrated,
        likely=getattr(getattr(system, "calibration", None), "likely", 0.5),
        is_here=is_here,
    )
    return _result(words, ranks, known, settings, answers, labels)


def _candidates(
    system: Any, queries: Ints, reverse: bool
) -> tuple[Ints, Floats, Floats, bool] | None:
    """Candidates of every query, their confidences (or scores), the probability that it has a
    translation (or its best score), and whether these are calibrated."""
    if hasattr(system, "rank"):
        blocks = range(0, max(len(queries), 1), _QUERIES_AT_ONCE)
        parts = [
            system.rank(queries[start : start + _QUERIES_AT_ONCE], reverse=reverse)
            for start in blocks
        ]
        calibrated = all(part.confidence is not None for part in parts)
        scores = [part.confidence if calibrated else part.scores for part in parts]
        sure = np.concatenate(scores).astype(np.float64)
        told: list[Any] = [getattr(part, "here", None) for part in parts]  # systems need not know
        here = sure[:, 0] if any(one is None for one in told) else np.concatenate(told)
        return np.concatenate([part.indices for part in parts]), sure, here, calibrated
    if hasattr(system, "retriever"):
        found = system.retriever.search(CANDIDATES, queries, reverse=reverse)
        scores = found.scores.astype(np.float64)
        return found.indices, scores, scores[:, 0], False
    return None


def _is_gold(indices: Ints, golds: Sequence[Ints], words: int) -> NDArray[np.bool_]:
    """Which candidates (queries, candidates) are among the golds of their query."""
    owners = np.repeat(np.arange(len(golds)), [len(gold) for gold in golds])
    wanted = owners * words + np.concatenate(golds)
    return np.isin(np.arange(len(golds))[:, None] * words + indices, wanted)


def _gold_counts(lexicon: Lexicon, target: Vocabulary) -> tuple[Ints, Ints]:
    """The number of gold translations of each word: all, and those in the vocabulary."""
    rows = find_words({word for _, word in lexicon.pairs}, target)
    counts = []
    for answers in lexicon.targets.values():
        found = [rows[answer] for answer in answers if answer in rows]
        counts.append((len(answers) - len(found) + len(set(found)), len(set(found))))
    both = np.array(counts, dtype=np.int64)
    return both[:, 0], both[:, 1]


def _result(
    words: list[str],
    ranks: Ints,
    answerable: NDArray[np.bool_],
    settings: Settings,
    answers: Answers | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
) -> DirectionResult:
    here = None if answers is None else answers.in_vocabulary()
    in_vocabulary = _with_figures(per_query(ranks[answerable]), here, settings)
    same = answerable.all() and (
        answers is None or np.array_equal(answers.golds, answers.golds_known)
    )
    return DirectionResult(
        in_vocabulary,
        in_vocabulary if same else _with_figures(per_query(ranks), answers, settings),
        words,
        ranks,
        answerable,
        answers,
        labels,
        settings,
    )


def _with_figures(values: Floats, answers: Answers | None, settings: Settings) -> Scores:
    """P@k and MRR of ``values``, and the figures of ``answers``."""
    bootstrap, seed, least = settings
    if not len(values):
        return Scores(dict.fromkeys((*METRICS, *FIGURES)), {}, 0)
    scores = _scores(values, bootstrap, seed)
    found: dict[str, float | None] = dict.fromkeys(FIGURES)
    intervals = {}
    if answers is not None:
        observed = metrics.figures(answers, np.ones((1, len(values))), least)
        found |= {
            name: None if math.isnan(value) else value
            for name, (value,) in ((name, one.tolist()) for name, one in observed.items())
        }
        draws = [
            metrics.figures(answers, _counts(picked), least)
            for picked in _drawn(len(values), bootstrap, seed)
        ]
        for name in [name for name, value in found.items() if value is not None and draws]:
            if name == "ece":
                continue  # of a draw it is too high, so its interval would not hold it
            each = np.concatenate([draw[name] for draw in draws])
            ((low, high),) = interval(each[~np.isnan(each)][:, None]).tolist()
            intervals[name] = (low, high)
    return Scores({**scores.values, **found}, {**scores.intervals, **intervals}, len(values))


def answerable_queries(
    lexicon: Lexicon, source: Vocabulary, target: Vocabulary
) -> tuple[NDArray[np.bool_], Ints, list[Ints]]:
    """A mask of the source words that can be answered; their rows; the rows of their golds."""
    source_rows = find_words(lexicon.targets, source)
    target_rows = find_words({word for _, word in lexicon.pairs}, target)
    known = np.zeros(len(lexicon.targets), dtype=np.bool_)
    queries: list[int] = []
    golds: list[Ints] = []
    for at, (word, answers) in enumerate(lexicon.targets.items()):
        rows = {target_rows[answer] for answer in answers if answer in target_rows}
        if word in source_rows and rows:
            known[at] = True
            queries.append(source_rows[word])
            golds.append(np.array(sorted(rows), dtype=np.int64))
    return known, np.array(queries, dtype=np.int64), golds


def per_query(ranks: Ints) -> Floats:
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
    observed: dict[str, float | None] = dict(
        zip(METRICS, values.mean(axis=0).tolist(), strict=True)
    )
    return Scores(observed, intervals, len(values), p_values)


# -- bootstrap ------------------------------------------------------------------------------------


def resampled_means(values: Floats, draws: int, seed: int) -> Floats:
    """Column means of ``values`` (queries, metrics) over resampled queries: (draws, metrics)."""
    rows = np.ascontiguousarray(values.T)
    means = [
        np.stack([row[picked].mean(axis=1) for row in rows], axis=1)
        for picked in _drawn(len(values), draws, seed)
    ]
    return np.concatenate(means)


def _drawn(size: int, draws: int, seed: int) -> Iterator[Ints]:
    """Indices of resampled queries, in blocks of draws: (draws, size)."""
    generator = np.random.default_rng(seed)
    step = max(1, _BLOCK // max(size, 1))
    for start in range(0, draws, step):
        yield generator.integers(0, size, size=(min(step, draws - start), size))


def _counts(picked: Ints) -> Floats:
    """How often each query was drawn: (draws, queries)."""
    draws, size = picked.shape
    places = picked + size * np.arange(draws)[:, None]
    return np.bincount(places.ravel(), minlength=draws * size).reshape(draws, size).astype(float)


def interval(means: Floats) -> Floats:
    """The middle 95 % of each column: (metrics, 2)."""
    return np.percentile(means, [2.5, 97.5], axis=0).T


def paired_p_values(differences: Floats, means: Floats) -> Floats:
    """Two-sided p-value per metric for "the mean difference is zero".

    The resampled means, shifted to a mean of zero, are the distribution under that hypothesis; the
    p-value is the share of them at least as far from zero as the observed mean, which counts as
    one of them, so that p is never 0.
    """
    observed = differences.mean(axis=0)
    as_far = np.abs(means - observed) >= np.abs(observed) - 1e-12
    return (1 + as_far.sum(axis=0)) / (1 + len(means))
