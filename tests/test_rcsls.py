"""RCSLS: loss and gradient against autograd and NumPy, the descent, and what it makes of spaces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import rcsls_iteration
from blicer.align.procrustes import Procrustes
from blicer.align.rcsls import RCSLS, CSLSLoss, descend
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon


def rotated_space(
    words: int = 600, dim: int = 20, noise: float = 0.3, seed: int = 0, stretch: bool = False
) -> tuple[Embeddings, Embeddings, list[tuple[str, str]]]:
    """Vectors, a noisy (optionally stretched) rotation of them, and all true pairs."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((words, dim)).astype(np.float32)
    rotation = np.linalg.qr(random.standard_normal((dim, dim)))[0]
    if stretch:
        rotation = rotation * np.linspace(0.4, 1.6, dim)
    y = x @ rotation + noise * random.standard_normal((words, dim))
    source = Embeddings([f"s{i}" for i in range(words)], x, "en")
    target = Embeddings([f"t{i}" for i in range(words)], y.astype(np.float32), "fr")
    return source, target, [(f"s{i}", f"t{i}") for i in range(words)]


def first_ranks(space: object, start: int, stop: int) -> float:
    """Share of words whose own translation comes first by CSLS."""
    queries = np.arange(start, stop)
    ranks = space.gold_ranks(queries, [np.array([q]) for q in queries])  # type: ignore[attr-defined]
    return float((ranks == 1).mean())


def autograd_loss(
    x: torch.Tensor,
    y: torch.Tensor,
    pairs: torch.Tensor,
    maps: tuple[torch.Tensor, torch.Tensor],
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """One pair at a time, in float64, by full sorts."""
    first, second = (each.double().requires_grad_() for each in maps)
    a, b = x.double() @ first, y.double() @ second
    a, b = a / a.norm(dim=1, keepdim=True), b / b.norm(dim=1, keepdim=True)
    total = torch.zeros((), dtype=torch.float64)
    for s, t in pairs.tolist():
        to_targets, to_sources = b @ a[s], a @ b[t]
        total = total - 2 * to_targets[t]
        total = (
            total + to_targets.sort().values[-10:].mean() + to_sources.sort().values[-10:].mean()
        )
    loss = total / len(pairs)
    loss.backward()
    assert first.grad is not None
    assert second.grad is not None
    return loss.item(), first.grad, second.grad


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 40))
def test_loss_and_gradients_equal_autograd(seed: int, rows: int) -> None:
    random = torch.Generator().manual_seed(seed)
    x = F.normalize(torch.randn(70, 6, generator=random))
    y = F.normalize(torch.randn(50, 6, generator=random))
    pairs = torch.stack(
        [torch.randint(0, high, (rows,), generator=random) for high in (70, 50)], dim=1
    )
    first = torch.eye(6) + 0.3 * torch.randn(6, 6, generator=random)
    second = torch.eye(6) + 0.3 * torch.randn(6, 6, generator=random)
    loss, gradients = CSLSLoss(x, y, pairs.numpy(), RCSLS())((first, second))
    true_loss, *true_gradients = autograd_loss(x, y, pairs, (first, second))
    assert loss == pytest.approx(true_loss, abs=1e-5)
    for gradient, true in zip(gradients, true_gradients, strict=True):
        assert torch.allclose(gradient.double(), true, atol=1e-5)


def test_blocks_do_not_change_the_result() -> None:
    random = torch.Generator().manual_seed(1)
    x = F.normalize(torch.randn(3000, 8, generator=random))
    y = F.normalize(torch.randn(2500, 8, generator=random))
    pairs = torch.arange(90).repeat(2, 1).T
    whole = CSLSLoss(x, y, pairs.numpy(), RCSLS())
    small = CSLSLoss(x, y, pairs.numpy(), RCSLS(memory_gb=2e-4))
    maps = (torch.eye(8), torch.eye(8))
    (loss, gradients), (other_loss, others) = whole(maps), small(maps)
    assert loss == pytest.approx(other_loss, abs=1e-6)
    for one, other in zip(gradients, others, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_only_the_most_frequent_words_are_neighbours() -> None:
    random = torch.Generator().manual_seed(2)
    x = F.normalize(torch.randn(200, 5, generator=random))
    y = F.normalize(torch.randn(200, 5, generator=random))
    pairs = torch.tensor([[3, 4], [150, 160]])
    limited, _ = CSLSLoss(x, y, pairs.numpy(), RCSLS(words=100))((torch.eye(5), torch.eye(5)))
    similar = x @ y.T
    expected = 0.0
    for s, t in pairs.tolist():
        expected += float(
            -2 * similar[s, t]
            + similar[s, :100].topk(10).values.mean()
            + similar[:100, t].topk(10).values.mean()
        )
    assert limited == pytest.approx(expected / 2, abs=1e-5)


def test_benchmark_baseline_gives_the_same() -> None:
    result = rcsls_iteration.run(seeds=60, words=2500, dim=16, repeats=1)
    assert result["loss_difference"] < 1e-5
    assert result["gradient_difference"] < 1e-4


@pytest.mark.parametrize("rate", [0.1, 1.0, 25.0, 1e4])
def test_the_loss_never_rises(rate: float) -> None:
    random = torch.Generator().manual_seed(3)
    x, y = (F.normalize(torch.randn(300, 10, generator=random)) for _ in range(2))
    loss = CSLSLoss(x, y, np.stack([np.arange(80)] * 2, axis=1), RCSLS())
    maps, losses, _ = descend(loss, (torch.eye(10), torch.eye(10)), rate, 12)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
    assert loss(maps)[0] == pytest.approx(losses[-1], abs=1e-6)


@pytest.mark.parametrize("seeds", [40, 100, 300])
def test_recovers_a_noisy_rotation(seeds: int) -> None:
    source, target, pairs = rotated_space(noise=0.15)
    space = RCSLS(device="cpu").align(source, target, Lexicon(pairs[:seeds]))
    assert first_ranks(space, 300, 600) > 0.95


def test_gains_on_procrustes_where_no_rotation_fits() -> None:
    source, target, pairs = rotated_space(noise=0.35, stretch=True)
    seeds = Lexicon(pairs[:300])
    rotation = first_ranks(Procrustes(device="cpu").align(source, target, seeds), 300, 600)
    ours = first_ranks(RCSLS(device="cpu").align(source, target, seeds), 300, 600)
    assert ours >= rotation


@pytest.mark.parametrize("rate", ["auto", 25.0, 1e5])
def test_never_ends_worse_than_procrustes(rate: float | str) -> None:
    source, target, pairs = rotated_space(noise=1.0, seed=5)
    seeds = Lexicon(pairs[:150])
    rows = np.stack([np.arange(150)] * 2, axis=1)

    def csls_loss(space: object) -> float:
        x, y = (
            F.normalize(torch.from_numpy(np.array(side.vectors)))
            for side in (space.source, space.target)  # type: ignore[attr-defined]
        )
        return CSLSLoss(x, y, rows, RCSLS())((torch.eye(20), torch.eye(20)))[0]

    start = csls_loss(Procrustes(device="cpu").align(source, target, seeds))
    end = csls_loss(RCSLS(learning_rate=rate, device="cpu").align(source, target, seeds))
    assert end <= start + 1e-5


def test_same_seed_same_space() -> None:
    source, target, pairs = rotated_space(words=200, dim=8)
    first, second = (
        RCSLS(device="cpu", seed=7).align(source, target, Lexicon(pairs[:120])) for _ in range(2)
    )
    assert np.array_equal(first.source.vectors, second.source.vectors)


def test_few_seeds_take_the_safe_rate() -> None:
    source, target, pairs = rotated_space(words=100, dim=5)
    space = RCSLS(device="cpu", iterations=2).align(source, target, Lexicon(pairs[:30]))
    assert space.settings["rate_used"] <= 1.0


@pytest.mark.parametrize("narrow", ["source", "target"])
def test_unequal_dimensions(narrow: str) -> None:
    source, target, pairs = rotated_space(words=400, dim=12, noise=0.05)
    random = np.random.default_rng(0)
    directions = np.linalg.qr(random.standard_normal((30, 12)))[0].T.astype(np.float32)
    if narrow == "source":
        target = target.with_vectors(target.vectors @ directions)
    else:
        source = source.with_vectors(source.vectors @ directions)
    space = RCSLS(device="cpu").align(source, target, Lexicon(pairs[:200]))
    assert space.dim == 12
    assert first_ranks(space, 200, 400) > 0.95


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"learning_rate": "fast"}, "auto or a number above 0"),
        ({"learning_rate": 0.0}, "above 0"),
        ({"iterations": -1}, "iterations is -1"),
        ({"neighbours": 0}, "neighbours is 0"),
        ({"words": 0}, "words is 0"),
        ({"memory_gb": 0}, "memory_gb is 0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_settings_are_named(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        RCSLS(**wrong)  # type: ignore[arg-type]


def test_seeds_outside_the_vocabulary() -> None:
    source, target, _ = rotated_space(words=50, dim=4)
    with pytest.raises(InputError, match="seed pairs"):
        RCSLS(device="cpu").align(source, target, Lexicon([("nowhere", "nulle-part")]))
    with pytest.raises(InputError, match="needs seed pairs"):
        RCSLS(device="cpu").align(source, target)
