"""Early exit against scoring everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blicer.crossencoder.scoring import best_first
from blicer.errors import InputError

# A coarse grid makes ties, which the order of the candidates must decide.
GRID = st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0])
ANY = st.one_of(GRID, st.floats(0, 1))


@st.composite
def problems(draw: Any) -> tuple[np.ndarray, list[float], np.ndarray]:
    q, k, m = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(0, 3))
    known = draw(arrays(np.float64, (q, k), elements=st.one_of(GRID, st.floats(-2, 2))))
    weights = draw(st.lists(ANY, min_size=m, max_size=m))
    parts = draw(arrays(np.float64, (m, q, k), elements=ANY))
    return known, weights, parts


def csls_mix(csls: list[list[float]], lam: float) -> tuple[np.ndarray, list[float]]:
    """The known part and the weights of method §4: (1-λ) CSLS + λ/2 of either order."""
    return (1 - lam) * np.array(csls), [lam / 2, lam / 2]


def naive_winner(known: np.ndarray, weights: list[float], parts: np.ndarray, q: int) -> int:
    """Everything scored in a plain loop; the first of equals wins."""
    best, winner = -np.inf, -1
    for candidate in range(known.shape[1]):
        final = known[q, candidate]
        for weight, part in zip(weights, parts, strict=True):
            final = final + weight * part[q, candidate]
        if final > best:
            best, winner = final, candidate
    return winner


class Counted:
    """A score function that says how many parts it was asked for."""

    def __init__(self, scores: dict[int, list[float]]) -> None:
        self.scores, self.parts = scores, 0

    def __call__(self, rows: Any, columns: Any, which: Any) -> list[float]:
        self.parts += len(rows)
        return [self.scores[int(c)][int(p)] for c, p in zip(columns, which, strict=True)]


@given(problems(), st.integers(1, 20))
@settings(max_examples=250)
def test_same_winner_as_full_scoring(
    problem: tuple[np.ndarray, list[float], np.ndarray], batch_size: int
) -> None:
    known, weights, parts = problem
    asked: set[tuple[int, int, int]] = set()

    def score(rows: np.ndarray, columns: np.ndarray, which: np.ndarray) -> np.ndarray:
        triples = list(zip(rows.tolist(), columns.tolist(), which.tolist(), strict=True))
        assert len(set(triples)) == len(triples)
        assert not asked & set(triples), "scored twice"
        asked.update(triples)
        return parts[which, rows, columns]

    found = best_first(known, weights, score, batch_size=batch_size)
    assert found.tolist() == [naive_winner(known, weights, parts, q) for q in range(len(known))]


def test_far_candidates_are_not_scored() -> None:
    # λ = 0.2: a gap of 0.5 in CSLS is worth 0.4, more than the 0.2 that a reranker can give.
    known, weights = csls_mix([[1.0, 0.5, 0.4, 0.3]], 0.2)
    score = Counted({candidate: [0.0, 0.0] for candidate in range(4)})
    assert best_first(known, weights, score, batch_size=1).tolist() == [0]
    assert score.parts == 2  # of 8


def test_first_order_alone_can_drop_a_candidate() -> None:
    # Gap 0.15·0.5; after a first order of 0 the second can give 0.25 < 0.075 + 0.5.
    known, weights = csls_mix([[0.65, 0.5]], 0.5)
    score = Counted({0: [1.0, 1.0], 1: [0.0, 1.0]})
    assert best_first(known, weights, score, batch_size=1).tolist() == [0]
    assert score.parts == 2  # the bound of the second, 0.25 + 0.5, is under 0.325 + 0.5
    assert best_first(known, weights, score, batch_size=4).tolist() == [0]


def test_lambda_zero_scores_nothing() -> None:
    known, weights = csls_mix([[0.2, 0.9, 0.9]], 0.0)
    found = best_first(known, weights, lambda *_: pytest.fail("nothing to score"))
    assert found.tolist() == [1]


def test_missing_candidates_are_left_out() -> None:
    score = Counted({0: [0.0], 1: [0.0]})
    assert best_first([[0.1, -np.inf]], [1.0], score).tolist() == [0]
    assert score.parts == 1


@pytest.mark.parametrize(
    ("known", "weights"), [([[np.nan]], [1.0]), ([[1.0]], [-1.0]), ([1.0], [1.0]), ([[]], [1.0])]
)
def test_bad_input(known: Any, weights: Any) -> None:
    with pytest.raises(InputError):
        best_first(known, weights, lambda rows, *_: np.zeros(len(rows)))


@pytest.mark.parametrize("value", [1.5, -0.1, np.nan])
def test_scores_outside_the_unit_interval_are_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"outside \[0, 1\]"):
        best_first([[1.0]], [1.0], lambda rows, *_: np.full(len(rows), value))
