"""C1: the step against naive autograd, mining against a full scan, and what it makes of spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import c1_step
from blicer.align.contrastive import (
    Contrastive,
    ContrastiveLoss,
    NegativeMiner,
    Pool,
    clipping,
)
from blicer.align.space import Space
from blicer.align.vecmap import VecMap, closed_form_maps
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.neighbours.kernels import pair_products

QUICK: dict[str, Any] = {"steps": 6, "negatives": 20, "mined_pairs": 100, "device": "cpu"}


def rotated_space(
    words: int = 500, dim: int = 16, noise: float = 0.2, seed: int = 0
) -> tuple[Embeddings, Embeddings, list[tuple[str, str]]]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((words, dim)).astype(np.float32)
    rotation = np.linalg.qr(random.standard_normal((dim, dim)))[0]
    y = x @ rotation + noise * random.standard_normal((words, dim))
    source = Embeddings([f"s{i}" for i in range(words)], x, "en")
    target = Embeddings([f"t{i}" for i in range(words)], y.astype(np.float32), "fr")
    return source, target, [(f"s{i}", f"t{i}") for i in range(words)]


def first_ranks(space: Space, start: int, stop: int) -> float:
    queries = np.arange(start, stop)
    return float((space.gold_ranks(queries, [np.array([q]) for q in queries]) == 1).mean())


def naive_step(
    source: torch.Tensor,
    target: torch.Tensor,
    maps: tuple[torch.Tensor, torch.Tensor],
    pairs: torch.Tensor,
    negatives: int,
    limit: int,
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """One pair at a time, in float64, with autograd."""
    first, second = (each.double().requires_grad_() for each in maps)
    a, b = source.double() @ first, target.double() @ second
    a_length, b_length = a.norm(dim=1, keepdim=True), b.norm(dim=1, keepdim=True)
    a, b = a / a_length, b / b_length
    total = torch.zeros((), dtype=torch.float64)
    for s, t in pairs.tolist():
        others_t = [j for j in range(min(limit, len(b))) if j != t]
        others_s = [j for j in range(min(limit, len(a))) if j != s]
        near_t = (b[others_t] @ a[s]).sort(descending=True).values[:negatives]
        near_s = (a[others_s] @ b[t]).sort(descending=True).values[:negatives]
        logits = torch.cat([(a[s] @ b[t]).view(1), near_t, near_s])
        total = total - torch.log(logits[0].exp() / logits.exp().sum())
    loss = total / len(pairs)
    loss.backward()
    assert first.grad is not None
    assert second.grad is not None
    return loss.item(), first.grad, second.grad


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), min_recall=st.sampled_from([0.9, 1.0]))
def test_step_equals_naive_autograd(seed: int, min_recall: float) -> None:
    random = torch.Generator().manual_seed(seed)
    source = F.normalize(torch.randn(60, 7, generator=random))
    target = F.normalize(torch.randn(50, 7, generator=random))
    maps = tuple(torch.eye(7) + 0.2 * torch.randn(7, 7, generator=random) for _ in range(2))
    # Repeated words, and words outside the candidates, occur in real dictionaries.
    pairs = torch.stack(
        [torch.randint(0, high, (25,), generator=random) for high in (60, 50)], dim=1
    )
    method = Contrastive(negatives=6, negatives_from=42, min_recall=min_recall)
    step = ContrastiveLoss(source, target, pairs, method)
    value, source_gradient, target_gradient = step(maps[0], maps[1])
    loss, first, second = naive_step(source, target, (maps[0], maps[1]), pairs, 6, 42)
    assert value == pytest.approx(loss, abs=1e-5)
    assert torch.allclose(source_gradient.double(), first, atol=1e-4)
    assert torch.allclose(target_gradient.double(), second, atol=1e-4)
    norm = float(torch.cat([first, second]).norm())
    factor = clipping(source_gradient, target_gradient, norm / 2)
    assert factor == pytest.approx(0.5, abs=1e-3)
    assert clipping(source_gradient, target_gradient, 2 * norm) == 1.0


def test_benchmark_baseline_gives_the_same() -> None:
    result = c1_step.run(seeds=80, words=900, dim=12, negatives=15, steps=2)
    assert result["loss_difference"] < 1e-4
    assert result["gradient_difference"] < 1e-4


def test_pair_products_and_transposed_sums() -> None:
    random = torch.Generator().manual_seed(0)
    left, right = torch.randn(9, 5, generator=random), torch.randn(20, 5, generator=random)
    columns = torch.stack([torch.randperm(20, generator=random)[:4] for _ in range(9)])
    weights = torch.rand(9, 4, generator=random)
    weights[:, 1] = 0
    products = pair_products(left, right, columns)
    sums = Pool(columns, 20).sums_by_candidate(weights, left)
    expected = torch.zeros(20, 5)
    for i in range(9):
        for j in range(4):
            assert float(products[i, j]) == pytest.approx(
                float(left[i] @ right[columns[i, j]]), abs=1e-5
            )
            expected[columns[i, j]] += weights[i, j] * left[i]
    assert torch.allclose(sums, expected, atol=1e-5)


def drifting(steps: int, speed: float) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Queries and candidates that move a little at every step."""
    random = torch.Generator().manual_seed(1)
    queries, words = torch.randn(100, 10, generator=random), torch.randn(400, 10, generator=random)
    path = []
    for _ in range(steps):
        path.append((F.normalize(queries), F.normalize(words)))
        queries = queries + speed * torch.randn(100, 10, generator=random)
        words = words + speed * torch.randn(400, 10, generator=random)
    return path


def true_negatives(
    queries: torch.Tensor, words: torch.Tensor, gold: torch.Tensor
) -> list[set[int]]:
    order = (queries @ words.T).argsort(dim=1, descending=True).tolist()
    return [
        set([w for w in row if w != g][:12]) for row, g in zip(order, gold.tolist(), strict=True)
    ]


@pytest.mark.parametrize("speed", [0.0, 0.01, 1.0])
def test_mined_negatives_keep_the_asked_recall(speed: float) -> None:
    gold = torch.arange(100)
    miner = NegativeMiner(gold, 400, Contrastive(negatives=12, min_recall=0.95))
    for queries, words in drifting(15, speed):
        found = miner.mine(queries, words).words.tolist()
        true = true_negatives(queries, words, gold)
        assert all(len(set(row)) == 12 for row in found)
        share = np.mean([len(set(row) & best) / 12 for row, best in zip(found, true, strict=True)])
        assert share >= 0.92  # the recall is measured on a sample of the queries
    if speed == 0.0:
        assert miner.scans == 1
    if speed == 1.0:
        assert miner.scans == 15


def test_min_recall_one_scans_at_every_step() -> None:
    gold = torch.arange(100)
    miner = NegativeMiner(gold, 400, Contrastive(negatives=12, min_recall=1.0))
    for queries, words in drifting(4, 0.05):
        found = miner.mine(queries, words).words.tolist()
        assert [set(row) for row in found] == true_negatives(queries, words, gold)
    assert miner.scans == 4


def test_a_gold_word_outside_the_candidates() -> None:
    queries, words = F.normalize(torch.randn(4, 3)), F.normalize(torch.randn(9, 3))
    miner = NegativeMiner(torch.tensor([8, 9, 20, 0]), 9, Contrastive(negatives=8))
    for _ in range(2):  # from nothing, then from a pool
        found = [sorted(row) for row in miner.mine(queries, words).words.tolist()]
        assert found[0] == list(range(8))
        assert found[3] == list(range(1, 9))
        for row, query in zip(found[1:3], queries[1:3], strict=True):
            assert row == sorted((words @ query).argsort(descending=True)[:8].tolist())
        miner.min_recall = 1.0


def test_more_negatives_than_words() -> None:
    miner = NegativeMiner(torch.arange(5), 8, Contrastive(negatives=50))
    found = miner.mine(F.normalize(torch.randn(5, 3)), F.normalize(torch.randn(8, 3)))
    for gold, row in enumerate(found.words.tolist()):
        assert sorted(row) == [word for word in range(8) if word != gold]


def test_closed_form_maps_are_those_of_vecmap() -> None:
    source, target, pairs = rotated_space(words=200, dim=6)
    seeds = Lexicon(pairs[:80])
    space = VecMap.preset("supervised", device="cpu").align(source, target, seeds)
    start = Contrastive(rounds=1, steps=0, device="cpu").align(source, target, seeds)
    assert np.allclose(start.source.vectors, space.source.vectors, atol=1e-4)
    assert np.allclose(start.target.vectors, space.target.vectors, atol=1e-4)


@pytest.mark.parametrize(("preset", "seeds"), [("supervised", 250), ("semi_supervised", 40)])
def test_recovers_a_noisy_rotation(preset: str, seeds: int) -> None:
    source, target, pairs = rotated_space()
    method = Contrastive.preset(preset, **QUICK)
    space = method.align(source, target, Lexicon(pairs[:seeds]))
    assert first_ranks(space, 250, 500) > 0.9
    rounds = space.settings["rounds_run"]
    assert len(rounds) == method.rounds
    assert rounds[0]["mined_pairs"] == 0 < rounds[1]["mined_pairs"]
    assert all(each["last_loss"] < each["first_loss"] for each in rounds)
    trained = {each["pairs"] for each in rounds}
    assert (trained == {seeds}) == (preset == "supervised")


def test_mined_pairs_leave_seed_words_alone() -> None:
    source, target, pairs = rotated_space(words=120, dim=8)
    method = Contrastive(**QUICK)
    known = np.column_stack([np.arange(30), np.arange(30)])
    x, y = (torch.from_numpy(np.array(side.vectors)) for side in (source, target))
    maps = [each.float() for each in closed_form_maps(x, y, torch.from_numpy(known))]
    mined = method._mine_pairs(x, y, maps, known)
    assert len(mined) > 0
    assert not set(mined[:, 0]) & set(range(30))
    assert not set(mined[:, 1]) & set(range(30))
    assert len({tuple(pair) for pair in mined.tolist()}) == len(mined)
    assert len(pairs) == 120


def test_unsupervised_uses_the_first_dictionary_that_it_mined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target, _ = rotated_space(words=300, dim=8, noise=0.1)
    first = np.column_stack([np.arange(60), np.arange(60)])
    monkeypatch.setattr(Contrastive, "_first_dictionary", lambda self, *_: (first, {"ok": 1}))
    space = Contrastive.preset("unsupervised", **QUICK).align(source, target)
    assert space.settings["rounds_run"][0]["pairs"] == 60
    assert space.settings["start"] == {"ok": 1}
    assert first_ranks(space, 100, 300) > 0.9


def test_rare_dictionary_words_are_trained_on_too() -> None:
    source, target, pairs = rotated_space(words=300, dim=8, noise=0.1)
    method = Contrastive(**QUICK, rounds=1, negatives_from=100)
    space = method.align(source, target, Lexicon(pairs[50:250]))
    assert space.settings["rounds_run"][0]["pairs"] == 200
    assert first_ranks(space, 250, 300) > 0.9


def test_same_seed_same_space() -> None:
    source, target, pairs = rotated_space(words=200, dim=8)
    one, other = (Contrastive(**QUICK).align(source, target, Lexicon(pairs[:80])) for _ in range(2))
    assert np.array_equal(one.source.vectors, other.source.vectors)
    assert np.array_equal(one.target.vectors, other.target.vectors)


@pytest.mark.parametrize("wide", ["source", "target"])
def test_unequal_dimensions(wide: str) -> None:
    source, target, pairs = rotated_space(words=300, dim=10, noise=0.05)
    directions = np.linalg.qr(np.random.default_rng(0).standard_normal((24, 10)))[0].T
    if wide == "source":
        source = source.with_vectors((source.vectors @ directions).astype(np.float32))
    else:
        target = target.with_vectors((target.vectors @ directions).astype(np.float32))
    space = Contrastive(**QUICK).align(source, target, Lexicon(pairs[:150]))
    assert space.dim == 10
    assert first_ranks(space, 150, 300) > 0.9


def test_presets_hold_the_published_numbers() -> None:
    many, few, none = (
        Contrastive.preset(name).settings
        for name in ("supervised", "semi_supervised", "unsupervised")
    )
    names = ("learning_rate", "decay", "steps", "negatives", "rounds", "mined_pairs", "mined_from")
    assert [many[name] for name in names] == [1.5, 0.99, 200, 150, 2, 10_000, 60_000]
    assert [few[name] for name in names] == [2.0, 1.0, 50, 60, 3, 6_000, 20_000]
    assert [none[name] for name in names] == [few[name] for name in names]
    assert (many["train_on_mined"], few["train_on_mined"]) == (False, True)
    assert many["max_gradient"] == 0.15
    assert many["negatives_from"] == 60_000


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"max_gradient": -1.0}, "max_gradient"),
        ({"negatives": 0}, "negatives"),
        ({"rounds": 0}, "rounds"),
        ({"min_recall": 1.5}, "min_recall"),
    ],
)
def test_bad_settings_are_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Contrastive(**wrong)


def test_bad_inputs() -> None:
    source, target, pairs = rotated_space(words=50, dim=4)
    with pytest.raises(InputError, match="seed pairs"):
        Contrastive(device="cpu").align(source, target, Lexicon([("nowhere", "nulle-part")]))
    with pytest.raises(InputError, match="needs seed pairs"):
        Contrastive(device="cpu").align(source, target)
    with pytest.raises(InputError, match="takes no seed pairs"):
        Contrastive(unsupervised=True, device="cpu").align(source, target, Lexicon(pairs))
    with pytest.raises(InputError, match="at least 2"):
        Contrastive(device="cpu").align(source.head(1), target, Lexicon(pairs))
