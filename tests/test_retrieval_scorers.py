"""Scorers that read the space: each against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from blicer.align.space import Space
from blicer.embeddings import Embeddings
from blicer.mixing import score_candidates
from blicer.scorers.retrieval import Frequency, FrequencyMatch, WayBack
from blicer.scorers.static import Static
from blicer.training_pairs import Scaling

SCALING = Scaling(0.7, 0.1)


@pytest.fixture
def space() -> Space:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(n, 8)).astype(np.float32) for n in (30, 20)]
    rows = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in rows]
    return Space(
        Embeddings([f"s{i}" for i in range(30)], rows[0]),
        Embeddings([f"t{i}" for i in range(20)], rows[1]),
        settings={"k_csls": 3, "device": "cpu"},
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_by_plain_loops(space: Space, reverse: bool) -> None:
    queries = np.array([3, 0, 17])
    scorers = [WayBack(), Frequency(), FrequencyMatch()]
    found = score_candidates(space, SCALING, scorers, queries, 5, reverse=reverse)
    cosine = space.source.vectors @ space.target.vectors.T
    if reverse:
        cosine = cosine.T
    of_row = np.sort(cosine, axis=1)[:, -3:].mean(axis=1)
    of_column = np.sort(cosine, axis=0)[-3:].mean(axis=0)
    csls = 2 * cosine - of_row[:, None] - of_column
    for row, query in enumerate(queries):
        for column, candidate in enumerate(found.indices[row]):
            gap = csls[query, candidate] - csls[:, candidate].max()
            back = max(0.0, 1 + 0.7 * gap)
            frequency = 1 - np.log1p(candidate) / np.log1p(csls.shape[1])
            match = 1 - abs(np.log1p(query) - np.log1p(candidate)) / np.log1p(30)
            expected = [0.7 * csls[query, candidate] + 0.1, back, frequency, match]
            np.testing.assert_allclose(found.parts[row, column], expected, atol=1e-5)


def test_the_way_back_is_computed_once(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    first = space.retriever.best_scores([1, 2, 2, 5], reverse=True)
    asked: list[list[int]] = []
    search = space.retriever.search

    def spy(k: int, queries: np.ndarray, **options: bool) -> object:
        asked.append(list(queries))
        return search(k, queries, **options)

    monkeypatch.setattr(space.retriever, "search", spy)
    again = space.retriever.best_scores([5, 2, 7], reverse=True)
    assert asked == [[7]]
    assert again[:2].tolist() == [first[3], first[1]]


def test_static_scores_are_cosines_of_the_table() -> None:
    scores = Static().score(["house", "house", ""], ["maison", "qqqq", "x"])
    assert scores[0] > scores[1]
    assert scores[2] == 0.5
    assert Static().score([], []).shape == (0,)
