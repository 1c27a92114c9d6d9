"""The engine against a naive oracle: whole similarity matrix, stable sort, plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blicer.errors import InputError
from blicer.neighbours.kernels import (
    GroupMaxima,
    RunningTopK,
    Scan,
    top_columns,
)
from blicer.neighbours.retriever import Retriever


def unit(matrix: np.ndarray) -> np.ndarray:
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def naive_order(scores: np.ndarray) -> np.ndarray:
    """Best first; of equal scores the lower index first."""
    return np.argsort(-scores, axis=1, kind="stable")


def naive_csls(source: np.ndarray, target: np.ndarray, k: int) -> np.ndarray:
    cosine = unit(source.astype(np.float64)) @ unit(target.astype(np.float64)).T
    of_source = np.sort(cosine, axis=1)[:, -k:].mean(axis=1)
    of_target = np.sort(cosine, axis=0)[-k:].mean(axis=0)
    return 2 * cosine - of_source[:, None] - of_target[None, :]


@pytest.fixture(scope="module")
def spaces() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    source = rng.normal(size=(700, 24)).astype(np.float32)
    target = np.concatenate([source[:500], rng.normal(size=(1300, 24))]).astype(np.float32)
    target += 0.3 * rng.normal(size=target.shape).astype(np.float32)
    return source, target


@settings(max_examples=40)
@example(shape=(300, 220), k=4, columns=True, penalised=True, seed=307)  # two equal scores
@given(
    shape=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    k=st.integers(1, 12),
    columns=st.booleans(),
    penalised=st.booleans(),
    seed=st.integers(0, 999),
)
def test_group_maxima_select_as_a_full_sort_does(
    shape: tuple[int, int], k: int, columns: bool, penalised: bool, seed: int
) -> None:
    """Any shape, for all words or some of them, and all entries above a bar."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.normal(size=shape).astype(np.float32))
    whole = scores.T if columns else scores
    maxima = GroupMaxima(scores, columns=columns)
    if penalised:
        maxima.penalty = torch.from_numpy(rng.normal(size=whole.shape[1]).astype(np.float32))
        whole = whole - maxima.penalty
        maxima.fold(whole.T.contiguous() if columns else whole)
    else:
        maxima.fold()
    k = min(k, whole.shape[1])
    some = torch.from_numpy(np.flatnonzero(rng.random(len(whole)) < 0.5))
    for words in (None, some):
        asked = whole if words is None else whole[words]
        values, candidates = maxima.best(k, words)
        assert torch.equal(values, asked.topk(k, dim=1).values)
        # Of equal scores either may come first.
        assert torch.equal(asked.gather(1, candidates.long()), values)
        assert all(len(set(row)) == k for row in candidates.tolist())
    bar = torch.from_numpy(rng.normal(size=len(whole)).astype(np.float32))
    found = maxima.above(bar, whole.numel())
    assert found is not None
    word, candidate, value = found
    assert set(zip(word.tolist(), candidate.tolist(), strict=True)) == {
        (i, j) for i, j in (whole > bar[:, None]).nonzero().tolist()
    }
    assert torch.equal(whole[word, candidate], value)
    assert maxima.above(torch.full_like(bar, -torch.inf), most=0) is None


@pytest.mark.parametrize("lowest", [None, 0, 5, 40, 399])
def test_numbers_above_a_bar_are_selected_as_all_are(lowest: int | None) -> None:
    """A bar that many numbers exceed, or that too few do, only changes how they are found."""
    random = torch.Generator().manual_seed(0)
    block = torch.randn(30, 400, generator=random).mul(8).round().div(8)  # with ties
    ordered = block.sort(dim=1, descending=True).values
    bar = None if lowest is None else ordered[:, lowest] - 1e-5
    found = top_columns(block, 12, bar)
    assert all(len(set(row)) == 12 for row in found.tolist())
    values = block.gather(1, found).sort(dim=1, descending=True).values
    assert torch.equal(values, ordered[:, :12])


@settings(max_examples=25)
@given(
    shape=st.tuples(st.integers(1, 900), st.integers(1, 900)),
    tile=st.tuples(st.integers(20, 700), st.integers(20, 700)),
    k=st.integers(1, 12),
    rising=st.booleans(),
    seed=st.integers(0, 999),
)
def test_running_lists_equal_the_whole(
    shape: tuple[int, int], tile: tuple[int, int], k: int, rising: bool, seed: int
) -> None:
    """Any tiling gives what the whole matrix gives, also when later tiles hold all the best."""
    whole = torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))
    if rising:
        whole = whole + torch.arange(shape[0])[:, None] + torch.arange(shape[1])
    for columns in (False, True):
        matrix = whole.T if columns else whole
        (words, numbers), (height, width) = matrix.shape, tile[::-1] if columns else tile
        for i in range(0, words, height):
            band = matrix[i : i + height]
            lists = RunningTopK(len(band), min(k, numbers), whole.device)
            for j in range(0, numbers, width):
                part = band[:, j : j + width]
                lists.update((part.T if columns else part).contiguous(), j, columns=columns)
            lists.finish()
            assert torch.equal(lists.values, band.topk(lists.keep, dim=1).values)
            assert torch.equal(band.gather(1, lists.indices), lists.values)


@settings(max_examples=15)
@given(
    shape=st.tuples(st.integers(1, 500), st.integers(1, 3000)),
    k=st.integers(1, 12),
    levels=st.sampled_from([1, 3, 50]),
    memory_gb=st.sampled_from([2.0, 0.0001]),
    seed=st.integers(0, 999),
)
def test_ties_fall_to_the_frequent_word(
    shape: tuple[int, int], k: int, levels: int, memory_gb: float, seed: int
) -> None:
    """Whole-number vectors have exact products, so equal scores abound; any tiling, both sides."""
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(0, levels, size=(n, 3)).astype(np.float32) for n in shape)
    scan = Scan(torch.from_numpy(left), torch.from_numpy(right), memory_gb=memory_gb)
    _, rows, _, columns = scan.best_both(k)
    np.testing.assert_array_equal(rows, naive_order(left @ right.T)[:, :k])
    np.testing.assert_array_equal(columns, naive_order(right @ left.T)[:, :k])


def test_an_error_in_one_thread_stops_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = []

    def broken(self: Scan, rows: slice, columns: slice, buffer: torch.Tensor) -> torch.Tensor:
        tiles.append(rows)
        raise MemoryError("no room for a tile")

    monkeypatch.setattr(Scan, "tile", broken)
    threads = torch.get_num_threads()
    scan = Scan(torch.zeros(500, 2), torch.zeros(500, 2), memory_gb=0.0001)
    with pytest.raises(MemoryError, match="no room"):
        scan.best_both(1)
    assert len(tiles) <= threads + 1
    assert torch.get_num_threads() == threads


def test_both_sides_from_one_pass(spaces: tuple[np.ndarray, np.ndarray]) -> None:
    source, target = (torch.from_numpy(unit(side)) for side in spaces)
    whole = source @ target.T
    scores, indices, back_scores, back_indices = Scan(source, target).best_both(10)
    torch.testing.assert_close(scores, whole.topk(10, dim=1).values)
    torch.testing.assert_close(back_scores, whole.T.topk(10, dim=1).values)
    torch.testing.assert_close(whole.gather(1, indices), scores)
    torch.testing.assert_close(whole.T.gather(1, back_indices), back_scores)


def test_hubness_is_the_mean_of_the_ten_nearest(spaces: tuple[np.ndarray, np.ndarray]) -> None:
    source, target = spaces
    cosine = unit(source) @ unit(target).T
    of_source, of_target = Retriever(source, target).hubness
    np.testing.assert_allclose(of_source, np.sort(cosine, axis=1)[:, -10:].mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(of_target, np.sort(cosine, axis=0)[-10:].mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("memory_gb", [2.0, 0.0001])
def test_csls_search(
    spaces: tuple[np.ndarray, np.ndarray], reverse: bool, memory_gb: float
) -> None:
    source, target = spaces
    expected = naive_csls(source, target, 10)
    expected = expected.T if reverse else expected
    queries = np.array([5, 3, 600, 3])
    found = Retriever(source, target, memory_gb=memory_gb).search(28, queries, reverse=reverse)
    np.testing.assert_array_equal(found.indices, naive_order(expected)[queries][:, :28])
    np.testing.assert_allclose(
        found.scores, np.take_along_axis(expected[queries], found.indices, axis=1), atol=1e-5
    )


def test_csls_by_hand() -> None:
    """Two words a side, k=1: r is the best cosine itself."""
    source = np.array([[1.0, 0.0], [0.0, 1.0]])
    target = np.array([[1.0, 0.0], [0.6, 0.8]])
    # cosines: [[1, .6], [0, .8]]; r_Y(x) = [1, .8]; r_X(y) = [1, .8]
    retriever = Retriever(source, target, k_csls=1)
    scores = retriever.score([0, 0, 1, 1], [0, 1, 0, 1])
    np.testing.assert_allclose(scores, [0.0, 1.2 - 1 - 0.8, 0.0 - 0.8 - 1, 0.0], atol=1e-6)
    candidate = retriever.score([0, 1], [1, 0], measure="csls_candidate")
    np.testing.assert_allclose(candidate, [1.2 - 0.8, -1.0], atol=1e-6)
    cosine = retriever.score([0], [1], measure="cosine")
    np.testing.assert_allclose(cosine, [0.6], atol=1e-6)


def test_scores_of_given_pairs(spaces: tuple[np.ndarray, np.ndarray]) -> None:
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(0, len(spaces[0]), 200), rng.integers(0, len(spaces[1]), 200)
    expected = naive_csls(*spaces, 10)[rows, columns]
    np.testing.assert_allclose(Retriever(*spaces).score(rows, columns), expected, atol=1e-5)


def test_limit_keeps_to_frequent_candidates_but_not_their_hubness(
    spaces: tuple[np.ndarray, np.ndarray],
) -> None:
    source, target = spaces
    found = Retriever(source, target).search(3, [1, 2], limit=100)
    expected = naive_order(naive_csls(source, target, 10)[[1, 2], :100])[:, :3]
    np.testing.assert_array_equal(found.indices, expected)


def test_search_for_more_than_there_is_returns_all() -> None:
    found = Retriever(np.eye(3), np.eye(3)).search(50)
    assert found.indices.shape == (3, 3)
    assert Retriever(np.eye(3), np.eye(3)).search(1).indices.tolist() == [[0], [1], [2]]


def test_identical_candidates_are_ordered_by_frequency() -> None:
    target = np.tile([[1.0, 0.0]], (2000, 1))
    found = Retriever(np.array([[1.0, 0.0]]), target).search(5, measure="cosine")
    np.testing.assert_array_equal(found.indices, [[0, 1, 2, 3, 4]])


@pytest.mark.parametrize("reverse", [False, True])
def test_gold_ranks(spaces: tuple[np.ndarray, np.ndarray], reverse: bool) -> None:
    source, target = spaces
    scores = naive_csls(source, target, 10)
    scores = scores.T if reverse else scores
    rng = np.random.default_rng(1)
    queries = rng.choice(len(scores), 50, replace=False)
    golds = [rng.choice(scores.shape[1], rng.integers(1, 4), replace=False) for _ in queries]
    found = Retriever(source, target, memory_gb=0.001).gold_ranks(queries, golds, reverse=reverse)
    for query, gold, rank in zip(queries, golds, found, strict=True):
        row, best = scores[query], scores[query][gold].max()
        # The oracle is in float64: scores closer than fp32 can tell apart may stand either way.
        assert 1 + (row > best + 1e-5).sum() <= rank <= (row >= best - 1e-5).sum()


def test_gold_rank_among_equals_counts_the_more_frequent() -> None:
    target = np.tile([[1.0, 0.0]], (6, 1))
    ranks = Retriever(np.array([[1.0, 0.0]]), target).gold_ranks([0], [[4, 3]], measure="cosine")
    np.testing.assert_array_equal(ranks, [4])


def test_unit_rows_are_shared_and_others_are_not_changed() -> None:
    rows = unit(np.random.default_rng(0).normal(size=(50, 8))).astype(np.float32)
    kept = Retriever(rows, rows).source
    assert kept.data_ptr() == rows.ctypes.data
    longer = rows * 3
    before = longer.copy()
    Retriever(longer, rows).search(2)
    np.testing.assert_array_equal(longer, before)


def test_zero_vectors_do_not_break_anything() -> None:
    source = np.zeros((4, 3), dtype=np.float32)
    found = Retriever(source, np.eye(3)).search(2)
    assert np.isfinite(found.scores).all()


def test_no_query_gives_no_answer() -> None:
    found = Retriever(np.eye(3), np.eye(3)).search(2, [])
    assert found.indices.shape == (0, 2)
    assert Retriever(np.eye(3), np.eye(3)).gold_ranks([], []).shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"source": np.eye(3), "target": np.eye(4)}, "3 dimensions and target vectors 4"),
        ({"source": np.eye(3), "target": np.eye(3), "k_csls": 0}, "k_csls is 0"),
        ({"source": np.eye(3), "target": np.eye(3), "memory_gb": 0}, "memory_gb is 0"),
        ({"source": np.ones(3), "target": np.eye(3)}, "expected a table of rows"),
        ({"source": np.full((2, 3), np.nan), "target": np.eye(3)}, "NaN or infinity"),
        ({"source": np.eye(3), "target": np.full((2, 3), np.inf)}, "NaN or infinity"),
        ({"source": np.eye(3), "target": np.eye(3), "device": "tpu9"}, "device 'tpu9'"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Retriever(**arguments)  # type: ignore[arg-type]


def test_bad_searches_are_named() -> None:
    retriever = Retriever(np.eye(3), np.eye(3))
    with pytest.raises(InputError, match="outside 0 to 2"):
        retriever.search(1, [3])
    with pytest.raises(InputError, match="measure is 'dot'"):
        retriever.search(1, measure="dot")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one gold"):
        retriever.gold_ranks([0], [[]])
    with pytest.raises(InputError, match="k is 0"):
        retriever.search(0)
    with pytest.raises(InputError, match="2 source and 1 target"):
        retriever.score([0, 1], [2])
