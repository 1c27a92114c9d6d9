"""Mixing weights against an exhaustive loop and hand-made plateaus."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.errors import InputError
from blicer.mixing import RIDGE, Mixture, choose_weights, listwise_weights


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
@given(seed=st.integers(0, 10_000), queries=st.integers(1, 12))
def test_no_lambda_does_better(seed: int, queries: int) -> None:
    rng = np.random.default_rng(seed)
    parts = rng.random((queries, 5, 2))
    gold = rng.random((queries, 5)) < 0.25
    chosen = choose_weights(parts, gold, ["csls", "x"])
    weights = list(chosen.weights.values())
    assert sum(weights) == pytest.approx(1)
    found = precision(parts, gold, weights)
    assert chosen.precision == pytest.approx(found)
    for lam in np.linspace(0, 1, 21):
        assert found >= precision(parts, gold, [1 - lam, lam]) - 1e-9


def unlikeliness(parts: np.ndarray, gold: np.ndarray, weights: np.ndarray) -> float:
    """-log of the gold's share of a softmax, by a plain loop, at the best scale of the weights."""
    spread = parts.reshape(-1, parts.shape[2]).std(axis=0)
    values = []
    for scale in np.geomspace(1e-3, 1e3, 200):
        total = RIDGE * float((((scale * weights) * spread) ** 2).sum())
        for query, marks in zip(parts, gold, strict=True):
            if marks.any():
                odds = np.exp(scale * (query @ weights - (query @ weights).max()))
                total -= float(np.log(max(1e-300, odds[marks].sum() / odds.sum())))
        values.append(total)
    return min(values)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_no_other_weights_make_the_gold_likelier(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gold = rng.random((30, 5)) < 0.25
    # Two scores that know something and one that does not.
    parts = rng.random((30, 5, 3)) + gold[..., None] * np.array([0.4, 0.2, 0.0])
    chosen = listwise_weights(parts, gold, [False] * 3)
    assert chosen.sum() == pytest.approx(1)
    assert (chosen >= 0).all()
    best = unlikeliness(parts, gold, chosen)
    for other in rng.dirichlet(np.ones(3), 12):
        assert best <= unlikeliness(parts, gold, other) + 0.02


def test_a_signed_score_may_count_against_a_candidate() -> None:
    """The gold is the candidate with the lower second score; only a negative weight can say so."""
    rng = np.random.default_rng(0)
    gold = np.eye(4, dtype=bool)[rng.integers(4, size=200)]
    parts = rng.random((200, 4, 3))
    parts[..., 1] -= gold
    signed, unsigned = (
        listwise_weights(parts, gold, [False, either, False]) for either in (True, False)
    )
    assert signed[1] < 0 <= unsigned[1]
    assert np.abs(signed).sum() == pytest.approx(1)
    assert precision(parts, gold, signed.tolist()) > precision(parts, gold, unsigned.tolist()) + 0.3
    mixture = Mixture({"csls": 0.6, "frequency": -0.4})
    assert Mixture.from_dict(mixture.to_dict()) == mixture


def test_without_a_gold_candidate_csls_stands_alone() -> None:
    parts = np.random.default_rng(0).random((4, 5, 3))
    assert listwise_weights(parts, np.zeros((4, 5), bool), [False] * 3).tolist() == [1, 0, 0]


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


def test_a_mixture_survives_a_dictionary() -> None:
    mixture = Mixture({"csls": 0.75, "x": 0.25}, ((0.0, 0.5), (1.0, 0.25)), 8, 0.5)
    assert Mixture.from_dict(mixture.to_dict()) == mixture


@pytest.mark.parametrize("lam", [-0.1, 1.1, float("nan")])
def test_lambda_outside_its_range(lam: float) -> None:
    with pytest.raises(InputError, match=r"mixing weight.*(expected numbers|negative)"):
        Mixture.fixed(lam, "x")


def test_bad_weights_are_said() -> None:
    with pytest.raises(InputError, match="sum to 1"):
        Mixture({"csls": 0.5, "x": 0.2})
    with pytest.raises(InputError, match="x is negative"):
        Mixture({"csls": 1.5, "x": -0.5})
    with pytest.raises(InputError, match="no held-out word"):
        choose_weights(np.empty((0, 3, 2)), np.empty((0, 3), bool), ["csls", "x"])
