"""One C1 step (mining, loss, gradient, update) against the usual gather-and-autograd step.

    python -m benchmarks.c1_step

Ours is the mean over 12 consecutive steps of a descent with the full scan that they begin with:
on real vectors (en-fr) 7 scans were needed in 200 steps with 5k seeds, 9 in 50 with 1k.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.peak import measure
from blicer.align.base import mapped_unit
from blicer.align.contrastive import Contrastive, ContrastiveLoss, clipping


def nearest_negatives(
    queries: Tensor, candidates: Tensor, gold: Tensor, n: int, block_rows: int = 1024
) -> Tensor:
    """The n nearest candidates of each query by cosine, its gold one left out."""
    found = []
    for part, its_gold in zip(queries.split(block_rows), gold.split(block_rows), strict=True):
        near = (part @ candidates.T).topk(n + 1, dim=1).indices
        last = (
            (near != its_gold[:, None]).to(torch.int8).argsort(dim=1, descending=True, stable=True)
        )
        found.append(near.gather(1, last)[:, :n])
    return torch.cat(found)


def baseline(
    source: Tensor,
    target: Tensor,
    source_map: Tensor,
    target_map: Tensor,
    pairs: Tensor,
    *,
    negatives: int,
    candidates: tuple[int, int],
) -> tuple[float, Tensor, Tensor]:
    """As the literature describes it: mine, gather every vector, map, let autograd do the rest."""
    a, b = mapped_unit(source, source_map)[0], mapped_unit(target, target_map)[0]
    near_x = nearest_negatives(a[pairs[:, 0]], b[: candidates[1]], pairs[:, 1], negatives)
    near_y = nearest_negatives(b[pairs[:, 1]], a[: candidates[0]], pairs[:, 0], negatives)
    del a, b
    with torch.enable_grad():
        source_map = source_map.detach().requires_grad_()
        target_map = target_map.detach().requires_grad_()
        sources = source[torch.cat([pairs[:, :1], near_y], dim=1)] @ source_map  # n × (1+N) × d
        targets = target[torch.cat([pairs[:, 1:], near_x], dim=1)] @ target_map
        sources, targets = F.normalize(sources, dim=-1), F.normalize(targets, dim=-1)
        to_targets = (sources[:, :1] * targets).sum(dim=-1)
        to_sources = (sources * targets[:, :1]).sum(dim=-1)
        logits = torch.cat([to_targets, to_sources[:, 1:]], dim=1)
        gold = torch.zeros(len(pairs), dtype=torch.int64)
        loss = F.cross_entropy(logits, gold)
        loss.backward()
    if source_map.grad is None or target_map.grad is None:
        raise RuntimeError("autograd gave no gradient")
    return float(loss.detach()), source_map.grad, target_map.grad


def synthetic(
    seeds: int, words: int, dim: int, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Unit rows, a noisy rotation of them, distinct seed pairs, and two rough maps."""
    random = torch.Generator().manual_seed(seed)
    # Directions of unequal weight, as word vectors have them: neighbourhoods are then real ones.
    scale = torch.linspace(0, -3, dim).exp()
    x = torch.randn(words, dim, generator=random) * scale
    rotation = torch.linalg.qr(torch.randn(dim, dim, generator=random))[0]
    y = (x + 0.3 * torch.randn(words, dim, generator=random) * scale) @ rotation
    chosen = torch.randperm(words, generator=random)[:seeds]
    rough = 0.02 * torch.randn(2, dim, dim, generator=random) / dim**0.5
    source_map, target_map = rotation + rough[0], torch.eye(dim) + rough[1]
    pairs = torch.stack([chosen, chosen], dim=1)
    return F.normalize(x), F.normalize(y), source_map, target_map, pairs


def run(
    *,
    seeds: int = 5_000,
    words: int = 60_000,
    dim: int = 300,
    negatives: int = 150,
    steps: int = 12,
    learning_rate: float = 1.5,
    max_gradient: float = 0.15,
    min_recall: float = 0.99,
) -> dict[str, Any]:
    """Seconds of both, their ratio, and how far loss and gradient are apart at the first step."""
    source, target, source_map, target_map, pairs = synthetic(seeds, words, dim)
    limits = (words, words)
    method = Contrastive(negatives=negatives, min_recall=min_recall)
    ours = ContrastiveLoss(source, target, pairs, method)
    usual = measure(
        lambda: baseline(
            source, target, source_map, target_map, pairs, negatives=negatives, candidates=limits
        )
    )
    losses, gradients = [], []

    def descend() -> None:
        first, second = source_map, target_map
        for _ in range(steps):
            loss, source_gradient, target_gradient = ours(first, second)
            if not gradients:
                gradients.extend([source_gradient, target_gradient])
            losses.append(loss)
            step = learning_rate * clipping(source_gradient, target_gradient, max_gradient)
            first, second = first - step * source_gradient, second - step * target_gradient

    with torch.no_grad():
        mine = measure(descend)
    seconds = mine.seconds / steps
    usual_loss, *usual_gradients = usual.result
    apart = [
        float((one - other).abs().max() / other.abs().max())
        for one, other in zip(gradients, usual_gradients, strict=True)
    ]
    recalls = ours.forward.recalls + ours.backward.recalls
    return {
        "benchmark": "c1_step",
        "seeds": seeds,
        "words": words,
        "dim": dim,
        "negatives": negatives,
        "steps": steps,
        "threads": torch.get_num_threads(),
        "seconds": seconds,
        "baseline_seconds": usual.seconds,
        "ratio": usual.seconds / seconds,
        "full_scans_per_side": (ours.forward.scans + ours.backward.scans) / 2,
        "lowest_recall": min(recalls) if recalls else 1.0,
        "extra_gb": mine.extra_gb,
        "baseline_extra_gb": usual.extra_gb,
        "loss_difference": abs(losses[0] - usual_loss),
        "gradient_difference": max(apart),
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
