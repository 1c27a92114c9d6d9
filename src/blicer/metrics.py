"""Figures of a dictionary with confidences, computed from arrays (docs/method.md §5).

Every figure takes ``weights`` (draws, words), how often each word counts, and returns one number
for each draw, NaN if it is not defined. Weights of one give the figure itself; counts of resampled
words give its bootstrap distribution. Entries of equal confidence are treated alike: a cut keeps
all of them or none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bin = tuple[float, float, int]

BINS = 10
PROMISED = 0.95
# What each figure is, for tables; all but "translations" are fractions.
FIGURES = {
    "precision": "share of right ones among the entries that are given",
    "recall": "share of the gold pairs that are among these entries",
    "f1": "F1 of the entries that are given",
    "translations": "number of such entries for a word that the vocabulary has",
    "f1_first": "F1 of the first translation of every word",
    "ap": "average precision of all candidates, surest first",
    "coverage@90": "share of the words that can be answered, surest first, with 90 % right",
    "coverage@95": "share of the words that can be answered, surest first, with 95 % right",
    "aurc": "area under the risk-coverage curve (lower is better)",
    "reached@95": "share right of the surest words whose mean confidence is 95 %",
    "kept@95": "share of the words that these are",
    "reached_each@95": "share right of the words whose own confidence is 95 % or more",
    "kept_each@95": "share of the words that these are",
    "stated": "mean stated confidence of first translations",
    "right": "share of first translations that are right",
    "ece": "calibration error of first translations, 10 bins of equal width",
    "ece_floor": "the ece that perfect confidences would have on so few words",
    "ace": "the same as ece with 10 bins of equal size",
    "auc_absent": "AUC of the chance that no gold is in the vocabulary",
}
_PAIRS_AT_ONCE = 400_000
_ROUNDING = 1e-9  # so that 19 of 20 is a precision of 0.95


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of a system, one row a test word; candidates best first."""

    sure: Floats
    """(words, candidates): confidences, or scores without calibration; 0 without an entry."""
    right: Bools
    """(words, candidates)"""
    has_entry: Bools
    """Whether the word is in the source vocabulary."""
    golds: Ints
    """Gold translations of each word."""
    golds_known: Ints
    """Gold translations of each word that are in the target vocabulary."""
    calibrated: bool
    likely: float = 0.5
    """The least confidence of translations after the first that are given."""
    is_here: Floats | None = None
    """(words,): the probability of having a translation; by default ``sure`` of the first."""

    def take(self, rows: Any) -> Answers:
        """The answers of some words."""
        names = ("sure", "right", "has_entry", "golds", "golds_known")
        here = None if self.is_here is None else self.is_here[rows]
        return replace(self, is_here=here, **{name: getattr(self, name)[rows] for name in names})

    def in_vocabulary(self) -> Answers:
        """Only words that can be answered, and their gold translations in the vocabulary."""
        some = self.take(self.has_entry & (self.golds_known > 0))
        return replace(some, golds=some.golds_known)


def figures(
    answers: Answers, weights: Floats, min_confidence: float | None = None
) -> dict[str, Floats]:
    """All ``FIGURES`` that can be computed: (draws,) each.

    Entries are those of at least ``min_confidence``; by default the first of each word, and others
    that are likely right.
    """
    inside = np.flatnonzero(answers.has_entry)
    some = weights[:, inside]
    sure, right = answers.sure[inside], answers.right[inside]
    golds = weights @ answers.golds.astype(np.float64)
    first, first_right = sure[:, 0], right[:, 0].astype(np.float64)
    here = first if answers.is_here is None else answers.is_here[inside]
    total = some.sum(axis=1)
    found = {
        "f1_first": _precision_recall(some.sum(axis=1), some @ first_right, golds)[2],
        "ap": average_precision(some, sure, right, golds),
        **selective(some, first, first_right),
        "right": _ratio(some @ first_right, total),
        "auc_absent": separation(some, here, answers.golds_known[inside] == 0),
    }
    if answers.calibrated:
        kept = sure >= (answers.likely if min_confidence is None else min_confidence)
        kept[:, 0] |= min_confidence is None
        entries, hits = (some @ one.sum(axis=1).astype(np.float64) for one in (kept, kept & right))
        precision, recall, f1 = _precision_recall(entries, hits, golds)
        found |= {
            "precision": precision,
            "recall": recall,
            "f1": f1,
            "translations": _ratio(entries, total),
            **promised(some, first, first_right),
            "stated": _ratio(some @ first, total),
            "ece": calibration_error(some, first, first_right, equal_width(first)),
            "ece_floor": calibration_noise(some, first, equal_width(first)),
            "ace": calibration_error(some, first, first_right, equal_mass(first)),
        }
    return found


def _precision_recall(entries: Floats, hits: Floats, golds: Floats) -> tuple[Floats, ...]:
    """Micro-averaged over pairs: precision, recall and F1."""
    return _ratio(hits, entries), _ratio(hits, golds), _ratio(2 * hits, entries + golds)


def average_precision(weights: Floats, sure: Floats, right: Bools, golds: Floats) -> Floats:
    """Non-interpolated, of all candidates (words, candidates) in one list, surest first.

    ``golds``: gold pairs of each draw, whether they are among the candidates or not.
    """
    if not right.any():
        return _ratio(np.zeros(len(weights)), golds)
    order, starts = _surest_first(sure.ravel())
    hits = right.ravel()[order]
    # Only the precision at hits counts, so groups without a hit are merged with the next that has
    # one; entries after the last hit do not matter.
    found = np.add.reduceat(hits.astype(np.int64), starts)
    last = np.flatnonzero(found)
    after = np.append(starts[1:], len(order))[last]
    starts = np.append(0, after[:-1])
    words = order[: after[-1]] // sure.shape[1]
    hit_words = words[hits[: len(words)]]
    hit_starts = np.append(0, np.cumsum(found[last])[:-1])
    area = np.empty(len(weights))
    step = max(1, _PAIRS_AT_ONCE // len(words))
    for start in range(0, len(weights), step):
        some = weights[start : start + step]
        entries = np.cumsum(_sums(some, words, starts), axis=1)
        gained = _sums(some, hit_words, hit_starts)
        precision = np.cumsum(gained, axis=1) / np.maximum(entries, 1e-300)
        area[start : start + step] = (gained * precision).sum(axis=1)
    return _ratio(area, golds)


def selective(weights: Floats, sure: Floats, right: Floats) -> dict[str, Floats]:
    """Coverage at a precision, and the area under the risk-coverage curve."""
    if not len(sure):
        return dict.fromkeys(("coverage@90", "coverage@95", "aurc"), _undefined(weights))
    kept, hits = _cuts(weights, sure, right)
    total = kept[:, -1]
    found = {}
    for wanted in (0.90, 0.95):
        enough = hits >= wanted * kept - _ROUNDING
        most = np.where(enough, kept, 0.0).max(axis=1)
        found[f"coverage@{100 * wanted:.0f}"] = _ratio(most, total)
    risk = 1.0 - hits / np.maximum(kept, 1e-300)
    added = np.diff(kept, prepend=0.0, axis=1)
    return {**found, "aurc": _ratio((added * risk).sum(axis=1), total)}


def promised(weights: Floats, sure: Floats, right: Floats) -> dict[str, Floats]:
    """Precision and coverage of the words that the confidences promise ``PROMISED`` for.

    ``reached`` and ``kept``: as many words, surest first, as have that mean confidence. ``_each``:
    the words that each have that confidence.
    """
    names = ("reached@95", "kept@95", "reached_each@95", "kept_each@95")
    if not len(sure):
        return dict.fromkeys(names, _undefined(weights))
    kept, hits, stated = _cuts(weights, sure, right, sure)
    # The mean falls from cut to cut, so the first cuts are those that promise enough.
    cuts = (stated >= PROMISED * kept - _ROUNDING).sum(axis=1)[:, None]
    parts = []
    for place in (cuts, np.full_like(cuts, len(np.unique(sure[sure >= PROMISED])))):
        first = np.maximum(place - 1, 0)
        amounts = (
            np.where(place > 0, np.take_along_axis(one, first, axis=1), 0.0)[:, 0]
            for one in (kept, hits)
        )
        number, hit = amounts
        parts += [_ratio(hit, number), _ratio(number, kept[:, -1])]
    return dict(zip(names, parts, strict=True))


def risk_coverage(sure: Floats, right: Floats) -> Floats:
    """The curve: rows of coverage, precision and the confidence of the cut, surest first."""
    if not len(sure):
        return np.empty((0, 3))
    kept, hits = _cuts(np.ones((1, len(sure))), sure, right)
    thresholds = np.unique(sure)[::-1]
    return np.stack([kept[0] / len(sure), hits[0] / kept[0], thresholds], axis=1)


def equal_width(sure: Floats) -> Ints:
    """Bin of each confidence: ``BINS`` of equal width from 0 to 1."""
    return np.clip((sure * BINS).astype(np.int64), 0, BINS - 1)


def equal_mass(sure: Floats) -> Ints:
    """Bin of each confidence: ``BINS`` of about equal size; equal confidences share one."""
    below = np.searchsorted(np.sort(sure), sure, side="left")
    return BINS * below // max(len(sure), 1)


def calibration_error(weights: Floats, sure: Floats, right: Floats, bins: Ints) -> Floats:
    """Mean gap of stated and observed shares, weighted by the words of each bin."""
    inside = bins[:, None] == np.arange(BINS)
    gaps = weights @ (inside * (sure - right)[:, None])
    return _ratio(np.abs(gaps).sum(axis=1), weights.sum(axis=1))


def calibration_noise(weights: Floats, sure: Floats, bins: Ints) -> Floats:
    """About the expected calibration error of perfect confidences.

    The sum of a bin is then nearly normal, and its mean absolute value is √(2/π) deviations.
    """
    inside = bins[:, None] == np.arange(BINS)
    variance = weights @ (inside * (sure * (1 - sure))[:, None])
    return _ratio(np.sqrt(2 / np.pi * variance).sum(axis=1), weights.sum(axis=1))


def reliability_bins(sure: Floats, right: Floats) -> list[Bin]:
    """(mean confidence, share right, words) of each bin of equal width that has words."""
    bins = equal_width(sure)
    return [
        (float(sure[bins == b].mean()), float(right[bins == b].mean()), int((bins == b).sum()))
        for b in np.unique(bins)
    ]


def separation(weights: Floats, sure: Floats, absent: Bools) -> Floats:
    """AUC: the probability that a word without a gold is less sure than one with.

    Equal confidences count one half.
    """
    if not len(sure):
        return _undefined(weights)
    order, starts = _surest_first(sure)
    without, with_gold = (_sums(weights * mask, order, starts) for mask in (absent, ~absent))
    surer = np.cumsum(with_gold, axis=1) - with_gold
    wins = (without * (surer + 0.5 * with_gold)).sum(axis=1)
    return _ratio(wins, without.sum(axis=1) * with_gold.sum(axis=1))


def _surest_first(sure: Floats) -> tuple[Ints, Ints]:
    """An order, and the indices in it where a group of equal confidences starts."""
    order = np.argsort(-sure, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(sure[order]) != 0))
    return order, starts


def _sums(weights: Floats, order: Ints, starts: Ints) -> Floats:
    """Sums of the weights of each group, (draws, groups)."""
    return np.add.reduceat(np.take(weights, order, axis=1), starts, axis=1)


def _cuts(weights: Floats, sure: Floats, *amounts: Floats) -> list[Floats]:
    """Number of words, and sums of ``amounts`` over them, above every cut: (draws, cuts) each."""
    order, starts = _surest_first(sure)
    parts = [weights, *(weights * amount for amount in amounts)]
    return [np.cumsum(_sums(part, order, starts), axis=1) for part in parts]


def _ratio(part: Floats, whole: Floats) -> Floats:
    """``part / whole``, NaN if the whole is zero."""
    return np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)


def _undefined(weights: Floats) -> Floats:
    return np.full(len(weights), np.nan)
