"""The affine map that takes similarities to [0, 1], one per language pair (METHOD.md section 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blicer.errors import InputError

# Scores closer together than this differ by rounding alone (CSLS lies in [-4, 4], in float32).
_NO_SPREAD = 1e-6


@dataclass(frozen=True)
class Scaling:
    """``slope * score + intercept``; kept with the model and applied to test scores unclipped."""

    slope: float
    intercept: float

    def __call__(self, scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return self.slope * np.asarray(scores, dtype=np.float64) + self.intercept

    def to_dict(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scaling:
        try:
            slope, intercept = float(values["slope"]), float(values["intercept"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"the scaling {values!r} should have numbers 'slope' and 'intercept'"
            ) from error
        return cls(slope, intercept)


def fit_scaling(*pool: npt.NDArray[np.floating[Any]]) -> Scaling:
    """The map that takes the least score of the pool to 0 and the greatest to 1.

    The pool is every positive's score and those of its nearest neighbours on both sides, before
    the delta cut. When all its scores are equal there is no such map; then scores keep their
    differences and the common one becomes 0.5, which says neither yes nor no.
    """
    scores = np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in pool])
    if not scores.size:
        raise InputError("there are no scores to fit the scaling on: the training set is empty")
    if not np.isfinite(scores).all():
        bad = int(np.count_nonzero(~np.isfinite(scores)))
        raise InputError(
            f"{bad} of {scores.size} similarities are not finite numbers: "
            "the space contains zero, infinite or NaN vectors"
        )
    low, high = float(scores.min()), float(scores.max())
    if high - low < _NO_SPREAD:
        return Scaling(slope=1.0, intercept=0.5 - low)
    slope = 1.0 / (high - low)
    return Scaling(slope=slope, intercept=-low * slope)
