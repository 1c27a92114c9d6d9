"""The confidence of a translation: a probability, fitted on held-out seeds (docs/method.md §7).

A logistic regression on a candidate's mixed score and its lead over the query's best other
candidate. It is fitted on words that neither the space nor the cross-encoder saw, so that entries
of confidence 0.8 are right about 80 % of the time. A dictionary lists only some of the right
translations of a word, so the true share is, if anything, higher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blicer.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

RIDGE = 1e-2
FOLDS = 10
BINS = 10


@dataclass(frozen=True)
class Reliability:
    """Stated confidence against observed precision, on words not used for the fit."""

    bins: tuple[tuple[float, float, int], ...]
    """(mean confidence, share right, number) of the best translations in each bin."""
    error: float
    """Expected calibration error: mean gap, weighted by the number in each bin."""


@dataclass(frozen=True)
class Calibration:
    """``sigmoid(intercept + coefficients · features)``."""

    intercept: float
    coefficients: tuple[float, ...]
    reliability: Reliability | None = None

    def confidence(self, mixed: Floats) -> Floats:
        """Probability that each candidate is right; ``mixed`` is (queries, candidates)."""
        return _probability([self.intercept, *self.coefficients], features(mixed))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        reliability = values["reliability"]
        if reliability is not None:
            bins = tuple(map(tuple, reliability["bins"]))
            reliability = Reliability(bins, float(reliability["error"]))
        return cls(float(values["intercept"]), tuple(values["coefficients"]), reliability)


def _probability(fitted: Sequence[float], x: Floats) -> Floats:
    """``fitted``: the intercept and the coefficient of each feature (last axis of ``x``)."""
    logits = fitted[0] + x @ np.array(fitted[1:])
    probability: Floats = 1.0 / (1.0 + np.exp(-np.clip(logits, -40, 40)))
    return probability


def features(mixed: Floats) -> Floats:
    """(queries, candidates, 5): whether a candidate is the best, then score and lead of the best
    and of the others in separate columns. Most candidates are wrong and far behind; separate
    columns keep them from deciding how sure the best one is."""
    best = mixed.max(axis=1, keepdims=True)
    leads = np.zeros(mixed.shape, dtype=bool)
    leads[np.arange(len(mixed)), mixed.argmax(axis=1)] = True
    second = np.partition(mixed, -2, axis=1)[:, -2:-1] if mixed.shape[1] > 1 else best
    lead = np.where(leads, mixed - second, mixed - best)
    first = leads.astype(np.float64)
    rest = 1.0 - first
    return np.stack([first, mixed * first, lead * first, mixed * rest, lead * rest], axis=2)


def calibrate(mixed: Floats, is_gold: Bools, *, seed: int = 0) -> Calibration:
    """Fit on held-out queries; reliability is measured by cross-validation over queries."""
    if mixed.shape != is_gold.shape or mixed.ndim != 2 or not mixed.size:
        raise InputError(f"scores {mixed.shape} and gold marks {is_gold.shape} do not fit")
    x, y = features(mixed), is_gold.astype(np.float64)
    fitted = _fit(x.reshape(-1, x.shape[2]), y.ravel())
    return Calibration(fitted[0], tuple(fitted[1:]), _reliability(mixed, x, y, seed))


def _fit(x: Floats, y: Floats) -> list[float]:
    """Ridge-penalised logistic regression by Newton's method; inputs standardised."""
    mean, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread < 1e-12] = 1.0
    design = np.column_stack([np.ones(len(x)), (x - mean) / spread])
    penalty = np.diag([0.0, *[RIDGE] * x.shape[1]])
    # Half a count on either side keeps the intercept finite when all answers are right or wrong.
    rate = (y.sum() + 0.5) / (len(y) + 1.0)
    beta = np.zeros(design.shape[1])
    beta[0] = np.log(rate / (1 - rate))
    if 0 < y.sum() < len(y):
        value = _penalised(design, y, penalty, beta)
        for _ in range(100):
            p = 1.0 / (1.0 + np.exp(-np.clip(design @ beta, -40, 40)))
            gradient = design.T @ (y - p) - penalty @ beta
            weight = np.maximum(p * (1 - p), 1e-9)
            hessian = (design * weight[:, None]).T @ design + penalty
            step = np.linalg.solve(hessian, gradient)
            # Far from the optimum a full Newton step can overshoot and oscillate for ever, so it
            # is halved until the likelihood rises.
            while (after := _penalised(design, y, penalty, beta + step)) < value:
                step = step / 2
                if np.abs(step).max() < 1e-10:
                    break
            if np.abs(step).max() < 1e-8:
                break
            beta, value = beta + step, after
    slopes = beta[1:] / spread
    return [float(beta[0] - slopes @ mean), *map(float, slopes)]


def _penalised(design: Floats, y: Floats, penalty: Floats, beta: Floats) -> float:
    """Log-likelihood less the ridge penalty."""
    logits = design @ beta
    return float(y @ logits - np.logaddexp(0, logits).sum() - 0.5 * beta @ penalty @ beta)


def _reliability(mixed: Floats, x: Floats, y: Floats, seed: int) -> Reliability:
    """Confidence and correctness of each query's best candidate, by cross-validation."""
    queries = len(mixed)
    folds = np.random.default_rng(seed).permutation(queries) % min(FOLDS, queries)
    best = mixed.argmax(axis=1)
    right = y[np.arange(queries), best]
    stated = np.empty(queries)
    for fold in np.unique(folds):
        inside = folds == fold
        rest = ~inside if (~inside).any() else inside
        fitted = _fit(x[rest].reshape(-1, x.shape[2]), y[rest].ravel())
        stated[inside] = _probability(fitted, x[inside, best[inside]])
    which = np.minimum((stated * BINS).astype(int), BINS - 1)
    bins = tuple(
        (float(stated[which == b].mean()), float(right[which == b].mean()), int((which == b).sum()))
        for b in np.unique(which)
    )
    error = sum(n * abs(confidence - precision) for confidence, precision, n in bins) / queries
    return Reliability(bins, float(error))
