"""Distillation: the net learns to say what the USE encoder says of two words."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import ElectraForSequenceClassification

from blicer.scorers.spelling import romanise
from tools.build_lite.net import cls_logits

CLS, SEP, PAD = 2, 3, 0
STEEPNESS, MIDDLE = 12.0, 0.6  # the teacher's logit is STEEPNESS * (cosine - MIDDLE)


@dataclass
class Words:
    words: list[str]
    ids: list[list[int]]  # tokens of `lite`
    vectors: np.ndarray  # (n, d) float32 unit vectors of the teacher


def batch_pairs(left: list[list[int]], right: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Token ids, segments and mask of pairs, as the tokenizer would give them."""
    rows = [[CLS, *a, SEP, *b, SEP] for a, b in zip(left, right, strict=True)]
    width = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    places = torch.arange(width)[None, :]
    first = torch.tensor([len(a) + 2 for a in left])[:, None]
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    mask = places < lengths
    return ids, ((places >= first) & mask).long(), mask


def neighbours(words: Words, anchors: np.ndarray, pool: np.ndarray, k: int) -> np.ndarray:
    """The ``k`` nearest words of the pool to each anchor by the teacher's cosine."""
    table = torch.from_numpy(words.vectors[pool])
    found = []
    for start in range(0, len(anchors), 512):
        block = torch.from_numpy(words.vectors[anchors[start : start + 512]]) @ table.T
        found.append(pool[block.topk(k, dim=1).indices.numpy()])
    return np.concatenate(found)


def make_pairs(words: Words, n: int, seed: int) -> np.ndarray:
    """(n, 2): half near in meaning, a quarter near in spelling, a quarter at random."""
    rng = np.random.default_rng(seed)
    count = len(words.words)
    anchors = rng.choice(count, min(count, max(1000, min(40_000, n // 10))), replace=False)
    pool = rng.choice(count, min(count, 50_000), replace=False)
    near = neighbours(words, anchors, pool, 24)
    rows = rng.integers(len(anchors), size=n // 2)
    # Squared, so that the very nearest come more often.
    ranks = (rng.random(n // 2) ** 2 * 24).astype(int)
    close = np.stack([anchors[rows], near[rows, ranks]], axis=1)

    buckets: dict[str, list[int]] = {}
    for row, word in enumerate(words.words):
        plain = romanise(word)
        buckets.setdefault(plain[:3], []).append(row)
        buckets.setdefault(plain[-4:] + "$", []).append(row)
    groups = [np.array(group) for group in buckets.values() if len(group) > 1]
    sizes = np.array([len(group) for group in groups], dtype=float)
    chosen = rng.choice(len(groups), size=n // 4, p=sizes / sizes.sum())
    alike = np.stack([rng.choice(groups[group], 2) for group in chosen])
    random = rng.integers(count, size=(n - len(close) - len(alike), 2))
    pairs = np.concatenate([close, alike, random])
    flip = rng.random(len(pairs)) < 0.5
    pairs[flip] = pairs[flip][:, ::-1]
    return rng.permutation(pairs)


def teach(words: Words, pairs: np.ndarray) -> np.ndarray:
    """The teacher's logits."""
    cosine = np.einsum("nd,nd->n", words.vectors[pairs[:, 0]], words.vectors[pairs[:, 1]])
    logits: np.ndarray = STEEPNESS * (cosine - MIDDLE)
    return logits.astype(np.float32)


def distil(
    model: ElectraForSequenceClassification,
    words: Words,
    *,
    n_pairs: int,
    learning_rate: float = 1e-3,
    batch: int = 256,
    seed: int = 0,
    average_last: float = 0.3,
    log: bool = True,
) -> float:
    """Train all but the table; the last steps' mean weights stay. The mean loss of the end."""
    torch.manual_seed(seed)
    pairs = make_pairs(words, n_pairs, seed)
    targets = torch.from_numpy(teach(words, pairs))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "word_embeddings" not in name
    trained = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.01)
    steps = len(pairs) // batch
    model.eval()  # no dropout: the teacher is exact
    sums = [torch.zeros_like(p) for p in trained]
    averaged, losses, begun = 0, [], time.monotonic()
    for step in range(steps):
        rate = min(1.0, (step + 1) / (0.05 * steps)) * (1 - 0.95 * step / steps)
        optimiser.param_groups[0]["lr"] = learning_rate * rate
        rows = pairs[step * batch : (step + 1) * batch]
        ids = [[words.ids[i] for i in column] for column in rows.T]
        logits = cls_logits(model, *batch_pairs(*ids))
        loss = F.smooth_l1_loss(logits, targets[step * batch : (step + 1) * batch])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
        if step >= (1 - average_last) * steps:
            averaged += 1
            for total, parameter in zip(sums, trained, strict=True):
                total += parameter.detach()
        if log and step % 50 == 0:
            seconds = time.monotonic() - begun
            print(
                f"step {step}/{steps} loss {np.mean(losses[-50:]):.3f} {seconds:.0f} s", flush=True
            )
    with torch.no_grad():
        for total, parameter in zip(sums, trained, strict=True):
            parameter.copy_(total / max(1, averaged))
    return float(np.mean(losses[-50:]))
