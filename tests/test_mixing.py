"""Mixing weights against an exhaustive loop and hand-made plateaus."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.align.space import Space
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.mixing import (
    RIDGE,
    UNUSED,
    USUAL,
    CandidateScores,
    Mixture,
    _middle_of_plateau,
    choose_weights,
    gold_marks,
    listwise_weights,
    score_candidates,
)
from blicer.training_pairs import Scaling


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


def test_a_score_that_says_next_to_nothing_is_left_out() -> None:
    """Left out is what has less than a fiftieth of the largest weight, spreads taken together."""
    left_out = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        gold = np.eye(5, dtype=bool)[rng.integers(5, size=300)]
        parts = rng.random((300, 5, 4)) * [1.0, 0.01, 5.0, 1.0]
        parts[..., 0] += gold
        parts[..., 1] += 0.005 * gold
        found = listwise_weights(parts, gold, [False, False, False, True])
        assert np.abs(found).sum() == pytest.approx(1)
        standard = np.abs(found) * parts.reshape(-1, 4).std(axis=0)
        assert (standard[standard > 0] >= UNUSED * standard.max()).all()
        assert found[1] > found[0] > 0  # the narrower score has the larger factor
        left_out += int((found == 0).sum())
    assert left_out


def test_weights_of_pairs_that_nobody_checked_are_the_usual_ones() -> None:
    rng = np.random.default_rng(0)
    parts, gold = rng.random((20, 5, 4)), rng.random((20, 5)) < 0.3
    parts[..., 1] *= 10
    parts[..., 3] = 0.5  # says nothing here
    names = ["csls", "endings", "frequency-match", "cross-encoder"]
    found = choose_weights(parts, gold, names, checked=False)
    usual = [USUAL[name] / np.std(parts[..., place]) for place, name in enumerate(names[:3])]
    expected = [*(one / sum(usual) for one in usual), 0.0]
    assert list(found.weights.values()) == pytest.approx(expected)
    assert found.precision == pytest.approx(precision(parts, gold, expected))
    checked = choose_weights(parts, gold, names)
    assert list(checked.weights.values()) != pytest.approx(expected, abs=0.01)
    own = [*names[:3], "spelling"]  # no weight of it is usual
    assert choose_weights(parts, gold, own, checked=False) == choose_weights(parts, gold, own)
    silent = np.full((20, 5, 3), 0.5)
    alone = choose_weights(silent, gold, ["csls", "static", "frequency"], checked=False)
    assert list(alone.weights.values()) == [1, 0, 0]


class Spy:
    """A scorer that knows the numbers in words, and which pairs it was asked for."""

    name = "spy"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def score(self, source: list[str], target: list[str]) -> np.ndarray:
        self.asked += zip(source, target, strict=True)
        return np.array([int(x[1:]) + 100 * int(y[1:]) for x, y in self.asked], np.float32)


@pytest.mark.parametrize("reverse", [False, True])
def test_every_scorer_scores_every_candidate(reverse: bool) -> None:
    rng = np.random.default_rng(0)
    space = Space(
        Embeddings([f"s{i}" for i in range(9)], rng.normal(size=(9, 4)).astype(np.float32)),
        Embeddings([f"t{i}" for i in range(7)], rng.normal(size=(7, 4)).astype(np.float32)),
    )
    queries, spy = np.array([4, 0, 6]), Spy()
    found = score_candidates(space, Scaling(2.0, 1.0), [None, spy], queries, 3, reverse=reverse)
    best = space.retriever.search(3, queries, reverse=reverse)
    np.testing.assert_array_equal(found.indices, best.indices)
    np.testing.assert_allclose(found.parts[..., 0], 2 * best.scores + 1, rtol=1e-6)
    assert not found.parts[..., 1].any()
    for row, query in enumerate(queries):
        for column, candidate in enumerate(best.indices[row]):
            x, y = (candidate, query) if reverse else (query, candidate)
            assert found.parts[row, column, 2] == x + 100 * y
    assert len(spy.asked) == 9
    golds = [best.indices[0, 1:], np.array([], int), np.array([99, *best.indices[2, :1]])]
    expected = [[False, True, True], [False] * 3, [True, False, False]]
    assert gold_marks(found, golds).tolist() == expected


@pytest.mark.parametrize("reverse", [False, True])
def test_a_score_without_weight_tells_confidence_nothing(reverse: bool) -> None:
    parts = np.random.default_rng(0).random((2, 3, 3))
    mixture = Mixture({"csls": 0.75, "x": 0.0, "frequency": -0.25})
    view = CandidateScores(np.arange(2), np.zeros((2, 3), int), parts)
    found = mixture.scored(view, reverse=reverse)
    np.testing.assert_allclose(found.mixed, 0.75 * parts[..., 0] - 0.25 * parts[..., 2])
    np.testing.assert_array_equal(found.parts, parts * [1, 0, 1])
    assert found.backward.tolist() == [reverse] * 2
    assert not mixture.scored(view).backward.any()


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


@pytest.mark.parametrize("scorers", [1, 2])
def test_no_direction_pays_for_the_other(scorers: int) -> None:
    """Every scorer is right forward, where CSLS is half the time, and wrong backward."""
    words = 60
    parts, gold = np.zeros((words, 2, 1 + scorers)), np.zeros((words, 2), bool)
    gold[:, 0] = True
    backward = np.arange(words) >= 40
    csls = np.where(np.arange(words) % 2 == 0, 0.2, -0.2)
    csls[backward] = np.linspace(0.05, 0.3, 20)
    parts[:, 0, 0] = csls
    parts[:, 0, 1:] = np.where(backward, -1.0, 1.0)[:, None]
    names = ["csls", "x", "y"][: 1 + scorers]

    def right(weights: Mixture) -> tuple[int, int]:
        top = weights.combine(parts).argmax(axis=1) == 0
        return int(top[~backward].sum()), int(top[backward].sum())

    assert right(Mixture(dict(zip(names, [1.0, 0, 0], strict=False)))) == (20, 20)
    careless = choose_weights(parts, gold, names)  # the directions count together
    assert right(careless)[0] == 40
    assert right(careless)[1] < 15
    careful = choose_weights(parts, gold, names, backward=backward)
    forward_right, backward_right = right(careful)
    assert 20 - backward_right <= np.sqrt(20 - backward_right)
    assert forward_right >= 20
    assert careful.weights["csls"] > careless.weights["csls"]


def test_plateaus_one_step_apart_are_two() -> None:
    hits = np.zeros(101)
    hits[10:31] = hits[32:37] = 5.0
    assert _middle_of_plateau(hits) == 20


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
