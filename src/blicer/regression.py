"""Statistics of held-out words: logistic regression, and what is more than chance."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

RIDGE = 1e-2
CLEAR = 2.0  # standard errors from which held-out seeds overrule what is usual


def logistic_regression(
    x: Floats, y: Floats, *, weights: Floats | None = None, ridge: float = RIDGE
) -> list[float]:
    """Ridge-penalised logistic regression by Newton's method; inputs are standardised.

    ``weights``: how much each row counts. Returns the intercept, then the coefficients.
    """
    w = np.ones(len(y)) if weights is None else weights
    mean, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread < 1e-12] = 1.0
    design = np.column_stack([np.ones(len(x)), (x - mean) / spread])
    penalty = np.diag([0.0, *[ridge] * x.shape[1]])
    # Half a count on either side keeps the intercept finite if all answers are right, or all wrong.
    rate = (w @ y + 0.5) / (w.sum() + 1.0)
    beta = np.zeros(design.shape[1])
    beta[0] = np.log(rate / (1 - rate))
    if 0 < y.sum() < len(y):
        value = _penalised(design, y, w, penalty, beta)
        for _ in range(100):
            p = 1.0 / (1.0 + np.exp(-np.clip(design @ beta, -40, 40)))
            gradient = design.T @ (w * (y - p)) - penalty @ beta
            weight = w * np.maximum(p * (1 - p), 1e-9)
            hessian = (design * weight[:, None]).T @ design + penalty
            step = np.linalg.solve(hessian, gradient)
            # Far from the optimum a full Newton step can overshoot and oscillate for ever, so it
            # is halved until the likelihood rises.
            while (after := _penalised(design, y, w, penalty, beta + step)) < value:
                step = step / 2
                if np.abs(step).max() < 1e-10:
                    break
            if np.abs(step).max() < 1e-8:
                break
            beta, value = beta + step, after
    slopes = beta[1:] / spread
    return [float(beta[0] - slopes @ mean), *map(float, slopes)]


def _penalised(design: Floats, y: Floats, w: Floats, penalty: Floats, beta: Floats) -> float:
    """Log-likelihood less the ridge penalty."""
    logits = design @ beta
    return float((w * y) @ logits - w @ np.logaddexp(0, logits) - 0.5 * beta @ penalty @ beta)


def clear_gain(better: ArrayLike, worse: ArrayLike) -> bool:
    """Whether ranks of the same words are better by ``CLEAR`` standard errors of the difference."""
    gain = 1 / np.asarray(better) - 1 / np.asarray(worse)
    return bool(gain.mean() > CLEAR * gain.std() / math.sqrt(len(gain)))
