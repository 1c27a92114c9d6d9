"""Mixing weights against an exhaustive loop and hand-made plateaus."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.errors import InputError
from blicer.mixing import Mixture, choose_weights, simplex


def precision(parts: np.ndarray, gold: np.ndarray, weights: list[float]) -> float:
    """P@1 by a plain loop."""
    right = 0
    for query, marks in zip(parts, gold, strict=True):
        mixed = [sum(w * s for w, s in zip(weights, row, strict=True)) for row in query]
        right += bool(marks[mixed.index(max(mixed))])
    return right / len(parts)


def test_the_paper_mixture_by_hand() -> None:
    mixture = Mixture.fixed(0.3, "cross-encoder")
    parts = np.array([[[0.5, 1.0], [0.9, 0.0]]])
    np.testing.assert_allclose(mixture.combine(parts), [[0.7 * 0.5 + 0.3, 0.7 * 0.9]])


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), queries=st.integers(1, 12), scorers=st.integers(2, 3))
def test_no_point_of_the_grid_does_better(seed: int, queries: int, scorers: int) -> None:
    rng = np.random.default_rng(seed)
    parts = rng.random((queries, 5, scorers))
    gold = rng.random((queries, 5)) < 0.25
    chosen = choose_weights(parts, gold, [f"s{i}" for i in range(scorers)])
    weights = list(chosen.weights.values())
    assert sum(weights) == pytest.approx(1)
    found = precision(parts, gold, weights)
    assert chosen.precision == pytest.approx(found)
    for point in simplex(scorers, 5):
        assert found >= precision(parts, gold, point.tolist()) - 1e-9


def test_the_middle_of_the_plateau_is_taken() -> None:
    """The gold candidate wins for λ from 0.21 to 0.60: candidates cross at 0.2 and at 0.6."""
    # gold − first rival = −0.2(1−λ) + 0.8λ > 0 above 0.2; gold − second = 0.6(1−λ) − 0.4λ > 0
    parts = np.array([[[0.5, 0.5], [0.7, -0.3], [-0.1, 0.9]]])
    gold = np.array([[True, False, False]])
    chosen = choose_weights(parts, gold, ["csls", "x"])
    assert chosen.weights["x"] == pytest.approx(0.4, abs=0.015)
    assert len(chosen.curve) == 101
    assert dict(chosen.curve)[0.0] == 0.0
    assert dict(chosen.curve)[0.4] == 1.0


def test_the_curve_of_three_keeps_their_proportions() -> None:
    rng = np.random.default_rng(1)
    parts, gold = rng.random((40, 6, 3)), rng.random((40, 6)) < 0.2
    chosen = choose_weights(parts, gold, ["csls", "x", "y"])
    weights = list(chosen.weights.values())
    curve = dict(chosen.curve)
    assert curve[0.0] == pytest.approx(precision(parts, gold, [1.0, 0.0, 0.0]))
    share = weights[1] / (weights[1] + weights[2])
    assert curve[0.5] == pytest.approx(
        precision(parts, gold, [0.5, 0.5 * share, 0.5 * (1 - share)])
    )


def test_of_two_plateaus_the_wider_is_taken() -> None:
    """Query one is right for λ < 0.1 or by query two for λ > 0.5: the wider side wins."""
    parts = np.array([[[0.55, 0.0], [0.5, 0.45]], [[0.0, 0.5], [0.5, 0.0]]])
    gold = np.array([[True, False], [True, False]])
    chosen = choose_weights(parts, gold, ["csls", "x"])
    assert chosen.weights["x"] == pytest.approx(0.755, abs=0.02)


def test_simplex_points_sum_to_one_and_are_distinct() -> None:
    points = simplex(3, 4)
    assert len(points) == 15  # (4+2 choose 2)
    assert len({tuple(point) for point in points.tolist()}) == 15
    np.testing.assert_allclose(points.sum(axis=1), 1)
    assert points.min() >= 0


def test_a_mixture_survives_a_dictionary() -> None:
    mixture = Mixture({"csls": 0.75, "x": 0.25}, ((0.0, 0.5), (1.0, 0.25)), 8, 0.5)
    assert Mixture.from_dict(mixture.to_dict()) == mixture


@pytest.mark.parametrize("lam", [-0.1, 1.1, float("nan")])
def test_lambda_outside_its_range(lam: float) -> None:
    with pytest.raises(InputError, match=r"mixing weights are .*expected numbers of at least 0"):
        Mixture.fixed(lam, "x")


def test_bad_weights_are_said() -> None:
    with pytest.raises(InputError, match="sum of 1"):
        Mixture({"csls": 0.5, "x": 0.2})
    with pytest.raises(InputError, match="at least 0"):
        Mixture({"csls": 1.5, "x": -0.5})
    with pytest.raises(InputError, match="no held-out word"):
        choose_weights(np.empty((0, 3, 2)), np.empty((0, 3), bool), ["csls", "x"])
