"""The loss that RCSLS descends: CSLS of the seed pairs with a linear map, and its gradient.

For seed pairs (x, y) and a map W, with unit rows (METHOD.md §6):

    loss = mean over pairs of  -2 cos(xW, y) + r_Y(xW) + r_XW(y)

where r is the mean similarity to the k nearest words of the other vocabulary. In the literature's
relaxation dot products stand for the cosines of xW, as if W kept lengths; that loss can be lowered
by the scale of W alone. With ``cosine=True`` the cosines are true ones. Both are here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from blicer.topk import top_k

ROWS_AT_ONCE = 512  # of similarities: enough for the multiplication, small for the cache


@dataclass(frozen=True)
class Distinct:
    """Each distinct word once, how many pairs have it, and which it is in each pair."""

    rows: Tensor
    counts: Tensor
    of_pair: Tensor

    @classmethod
    def of(cls, words: Tensor) -> Distinct:
        rows, of_pair, counts = words.unique(return_inverse=True, return_counts=True)
        return cls(rows, counts.float(), of_pair)


class RelaxedCSLS:
    """Loss and gradient for fixed vectors and seed pairs; neighbours among the first ``words``."""

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        pairs: Tensor,
        *,
        neighbours: int = 10,
        words: int = 200_000,
        memory_gb: float = 2.0,
        cosine: bool = False,
    ) -> None:
        self.pairs = len(pairs)
        self.cosine = cosine
        self.x, self.y = x[:words], y[:words]
        source, target = Distinct.of(pairs[:, 0]), Distinct.of(pairs[:, 1])
        self.x_seeds, self.x_counts = x[source.rows], source.counts
        self.y_seeds, self.y_counts = y[target.rows], target.counts
        # Sum of the translations of each distinct source seed: one row a word, not one a pair.
        self.y_sums = torch.zeros_like(self.x_seeds).index_add_(0, source.of_pair, y[pairs[:, 1]])
        self.k_target = min(neighbours, len(self.y))
        self.k_source = min(neighbours, len(self.x))
        longest = max(len(self.x), len(self.y))
        self.block_rows = max(1, min(ROWS_AT_ONCE, int(memory_gb * 2**30 / (8 * longest))))
        self._buffer = torch.empty(self.block_rows * longest, device=x.device)

    def __call__(self, weights: Tensor, *, gradient: bool = True) -> tuple[float, Tensor]:
        """The loss at W, and its gradient (d, d) (zeros unless it is asked for)."""
        words, lengths, back = self._source_words(weights)
        mapped = self.x_seeds @ weights
        mapped_lengths = self._row_lengths(mapped)
        mapped /= mapped_lengths
        near_mapped, near_targets = self._nearest(mapped, self.y, self.k_target)
        near_seeds, near_sources = self._nearest(self.y_seeds @ back, words, self.k_source)
        total = (
            -2 * (mapped * self.y_sums).sum(dtype=torch.float64)
            + (self.x_counts * near_mapped.mean(dim=1)).sum(dtype=torch.float64)
            + (self.y_counts * near_seeds.mean(dim=1)).sum(dtype=torch.float64)
        )
        loss = float(total) / self.pairs
        if not gradient:
            return loss, torch.zeros_like(weights)

        # Seeds: d loss / d(xW) is -2 y and the mean of its nearest targets.
        pull = _mean_rows(near_targets, self.y) * self.x_counts[:, None] - 2 * self.y_sums
        if self.cosine:
            pull = (pull - mapped * (mapped * pull).sum(dim=1, keepdim=True)) / mapped_lengths
        result = self.x_seeds.T @ pull
        # The nearest sources z of each y: d loss / d(zW) is y / k.
        share = (self.y_counts / self.k_source)[:, None].expand_as(near_seeds)
        if lengths is not None:
            share = share / lengths[near_sources]
            result -= self._along(near_sources, share * near_seeds, lengths) @ weights
        bags = F.embedding_bag(
            near_sources, self.x, mode="sum", per_sample_weights=share.contiguous()
        )
        result += bags.T @ self.y_seeds
        return loss, result / self.pairs

    def _source_words(self, weights: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """All source words as y meets them, their lengths, and what y is multiplied by first.

        The relaxation need not map them: (zW)·y is z·(Wy).
        """
        if not self.cosine:
            return self.x, None, weights.T
        words = self.x @ weights
        lengths = words.norm(dim=1).clamp_min_(1e-9)
        return words.div_(lengths[:, None]), lengths, torch.eye(len(weights), device=words.device)

    def _row_lengths(self, mapped: Tensor) -> Tensor:
        if not self.cosine:
            return mapped.new_ones(len(mapped), 1)
        lengths: Tensor = mapped.norm(dim=1, keepdim=True)
        return lengths.clamp_min_(1e-9)

    def _nearest(self, queries: Tensor, words: Tensor, k: int) -> tuple[Tensor, Tensor]:
        found = []
        for part in queries.split(self.block_rows):
            block = self._buffer[: len(part) * len(words)].view(len(part), len(words))
            torch.mm(part, words.T, out=block)
            found.append(top_k(block, k))
        return torch.cat([scores for scores, _ in found]), torch.cat([at for _, at in found])

    def _along(self, near: Tensor, weight: Tensor, lengths: Tensor) -> Tensor:
        """What the lengths of the mapped neighbours take out of the gradient (before W)."""
        rows, of_entry = near.reshape(-1).unique(return_inverse=True)
        total = weight.new_zeros(len(rows)).index_add_(0, of_entry, weight.reshape(-1))
        z = self.x[rows]
        return z.T @ (z * (total / lengths[rows])[:, None])


def _mean_rows(indices: Tensor, rows: Tensor) -> Tensor:
    """``out[i]``: the mean of the given rows."""
    return F.embedding_bag(indices, rows, mode="mean")
