"""Dictionary induction against naive loops and against the masks of the literature."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.vecmap_iteration import baseline, ours, synthetic
from blicer.align import vecmap as induction
from blicer.align.vecmap import VecMap, draw_ranks
from blicer.neighbours import kernels


def unit_rows(rows: int, dim: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def naive(x: np.ndarray, y: np.ndarray, ranks_x, ranks_y, k: int) -> list[tuple[int, int]]:
    """Word by word: hubness, shifted similarities, full sort, the entry at the drawn rank."""
    similarities = x.astype(np.float64) @ y.T.astype(np.float64)
    hub_x = [np.sort(row)[-k:].mean() for row in similarities]
    hub_y = [np.sort(column)[-k:].mean() for column in similarities.T]
    pairs = []
    for i, rank in enumerate(ranks_x):
        order = np.argsort(-(similarities[i] - np.array(hub_y) / 2))
        if rank <= len(order):
            pairs.append((i, int(order[rank - 1])))
    for j, rank in enumerate(ranks_y):
        order = np.argsort(-(similarities[:, j] - np.array(hub_x) / 2))
        if rank <= len(order):
            pairs.append((int(order[rank - 1]), j))
    return pairs


@settings(max_examples=40)
@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 70),
    keep=st.sampled_from([0.05, 0.3, 0.8, 1.0]),
    seed=st.integers(0, 10_000),
    tight=st.booleans(),
)
def test_induce_equals_a_naive_loop(
    rows: int, columns: int, keep: float, seed: int, tight: bool
) -> None:
    """Any shape, any draw, whether the product is kept or made anew in blocks."""
    x, y = unit_rows(rows, 6, seed), unit_rows(columns, 6, seed + 1)
    generator = torch.Generator().manual_seed(seed)
    drawn = [draw_ranks(size, keep, generator).tolist() for size in (rows, columns)]
    k = 10 if min(rows, columns) >= 10 else min(rows, columns)
    found = VecMap(k_csls=k, memory_gb=1e-9 if tight else 2.0).induce(
        torch.from_numpy(x),
        torch.from_numpy(y),
        keep=keep,
        generator=torch.Generator().manual_seed(seed),
    )
    expected = naive(x, y, *drawn, k)
    assert len(found.pairs) == len(expected)
    # In float32 two candidates can be equally good; then either is right.
    same = (found.pairs.numpy() == np.array(expected).reshape(-1, 2)).all(axis=1)
    assert (~same).sum() <= 1
    similarities = x @ y.T
    objective = (similarities.max(axis=1).mean() + similarities.max(axis=0).mean()) / 2
    assert found.objective == pytest.approx(float(objective), abs=1e-5)


@pytest.mark.parametrize("block_bytes", [2**15, 2**26])
def test_blocks_do_not_matter(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a block, columns long enough for group maxima, draws beyond the top-k."""
    x, y = unit_rows(1500, 8, 0), unit_rows(1203, 8, 1)
    monkeypatch.setattr(kernels, "CACHED_BYTES", block_bytes * 16)
    monkeypatch.setattr(induction, "RANK_BOUNDS", (1, 4, 9))
    monkeypatch.setattr(induction, "PRODUCT_ROWS", 700)
    generator = torch.Generator().manual_seed(5)
    drawn = [draw_ranks(len(rows), 0.1, generator).tolist() for rows in (x, y)]
    found = VecMap().induce(
        torch.from_numpy(x),
        torch.from_numpy(y),
        keep=0.1,
        generator=torch.Generator().manual_seed(5),
    )
    same = (found.pairs.numpy() == np.array(naive(x, y, *drawn, 10))).all(axis=1)
    assert same.mean() > 0.998


def test_same_dictionary_as_the_usual_four_products() -> None:
    """The benchmark's baseline and ours induce the same pairs when nothing is dropped."""
    x, y, pairs = synthetic(1500, 40)
    usual, objective = baseline(x, y, pairs, 1.0, np.random.default_rng(0))
    mine = ours(*map(torch.from_numpy, (x, y, pairs)), 1.0, torch.Generator())
    np.testing.assert_array_equal(mine.pairs.numpy(), usual)
    assert mine.objective == pytest.approx(objective, abs=1e-6)


@pytest.mark.parametrize("keep", [0.1, 0.5])
def test_drawn_ranks_are_distributed_as_masks_are(keep: float) -> None:
    """Which entry wins, counted over many rounds of masks and many rounds of draws."""
    x, y = unit_rows(8, 4, 3), unit_rows(12, 4, 4)
    similarities = torch.from_numpy(x @ y.T)
    k = 5
    hub_x = similarities.topk(k, dim=1).values.mean(dim=1)
    hub_y = similarities.topk(k, dim=0).values.mean(dim=0)
    rounds = 800
    generator = torch.Generator().manual_seed(0)
    masks, draws = ([torch.zeros(8, 12), torch.zeros(12, 8)] for _ in range(2))
    for direction, scores in enumerate((similarities - hub_y / 2, (similarities.T - hub_x / 2))):
        kept = torch.rand((rounds, *scores.shape), generator=generator) < keep
        masked = torch.where(kept, scores, -torch.inf)
        best = masked.argmax(dim=2)
        survived = kept.any(dim=2)
        for row in range(len(scores)):
            chosen = best[survived[:, row], row]
            masks[direction][row] += torch.bincount(chosen, minlength=scores.shape[1])
    for _ in range(rounds):
        found = VecMap(k_csls=k).induce(
            torch.from_numpy(x), torch.from_numpy(y), keep=keep, generator=generator
        )
        for i, j in found.pairs[: found.forward].tolist():
            draws[0][i, j] += 1
        for i, j in found.pairs[found.forward :].tolist():
            draws[1][j, i] += 1
    for direction in (0, 1):
        # More than four standard errors of the difference of two shares.
        np.testing.assert_allclose(
            draws[direction] / rounds, masks[direction] / rounds, atol=4.5 * np.sqrt(0.5 / rounds)
        )


def test_ranks_are_geometric() -> None:
    drawn = draw_ranks(200_000, 0.2, torch.Generator().manual_seed(0)).numpy()
    for rank in range(1, 15):
        assert (drawn == rank).mean() == pytest.approx(0.2 * 0.8 ** (rank - 1), abs=0.004)
    assert drawn.min() == 1
    assert (draw_ranks(10, 1.0, torch.Generator()) == 1).all()
