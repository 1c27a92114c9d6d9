"""p-values of many comparisons, and of one comparison made with several training seeds."""

from __future__ import annotations

from collections.abc import Sequence

LEVEL = 0.05


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: below ``LEVEL`` means significant among all of them."""
    count = len(p_values)
    order = sorted(range(count), key=lambda place: p_values[place])
    adjusted = [0.0] * count
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (count - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def over_training_seeds(gains: Sequence[float], p_values: Sequence[float]) -> float:
    """One p-value for a comparison that was repeated with other training seeds.

    The test words are the same in each, so the p-values are not independent. The largest of them
    holds whatever their dependence; where the seeds do not agree on the sign there is no claim.
    """
    agree = all(gain > 0 for gain in gains) or all(gain < 0 for gain in gains)
    return max(p_values) if agree else 1.0
