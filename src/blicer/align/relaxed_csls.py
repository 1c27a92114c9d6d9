"""The loss that RCSLS descends: CSLS of the seed pairs under linear maps, and its gradient.

For seed pairs (x, y) and maps V and W of the two sides, over unit rows (METHOD.md §6):

    loss = mean over pairs of  -2 cos(xV, yW) + r_YW(xV) + r_XV(yW)

where r is the mean similarity to the k nearest words of the other vocabulary. The literature maps
one side only, and dot products stand for cosines, as if the map kept lengths; that loss can be
lowered by the scale of the map alone. With ``cosine=True`` the cosines are true ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from blicer.retrieval import nearest
from blicer.scan import Scan

Maps = tuple[Tensor | None, Tensor | None]  # of source and target; None leaves a side as it is


@dataclass(frozen=True)
class Mapped:
    """Words of one side under its map."""

    rows: Tensor
    lengths: Tensor | None  # before they were brought to length one; None where they were not


@dataclass(frozen=True)
class Side:
    """One language: its words, its distinct seed words, and which of these each pair has."""

    words: Tensor  # the candidates
    seeds: Tensor  # (distinct seeds, d)
    counts: Tensor  # pairs of each distinct seed
    of_pair: Tensor  # place among the distinct seeds, for each pair

    @classmethod
    def of(cls, vectors: Tensor, of_pair: Tensor, limit: int) -> Side:
        rows, places, counts = of_pair.unique(return_inverse=True, return_counts=True)
        return cls(vectors[:limit], vectors[rows], counts.float(), places)


class RelaxedCSLS:
    """Loss and gradients for fixed vectors and seed pairs; neighbours among the first ``words``."""

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
        self.pairs, self.cosine = len(pairs), cosine
        self.source = Side.of(x, pairs[:, 0], words)
        self.target = Side.of(y, pairs[:, 1], words)
        self.neighbours = neighbours
        self.memory_gb = memory_gb

    def loss(self, maps: Maps) -> float:
        return self._evaluate(maps, gradient=False)[0]

    def __call__(self, maps: Maps) -> tuple[float, Maps]:
        """The loss, and its gradient for each map that is there."""
        return self._evaluate(maps, gradient=True)

    def _evaluate(self, maps: Maps, *, gradient: bool) -> tuple[float, Maps]:
        source, target = self.source, self.target
        x, y = self._map(source.words, maps[0]), self._map(target.words, maps[1])
        x_seeds, y_seeds = self._map(source.seeds, maps[0]), self._map(target.seeds, maps[1])
        near_x, y_near = self._nearest(x_seeds.rows, y.rows)
        near_y, x_near = self._nearest(y_seeds.rows, x.rows)
        # Sum of the translations of each distinct seed: one row a word, not one a pair.
        y_sums = _sums(y_seeds.rows[target.of_pair], source)
        parts = (
            -2 * (x_seeds.rows * y_sums).sum(dim=1),
            source.counts * near_x.mean(dim=1),
            target.counts * near_y.mean(dim=1),
        )
        # In fp64, which MPS does not have.
        loss = sum(float(part.cpu().double().sum()) for part in parts) / self.pairs
        if not gradient:
            return loss, (None, None)
        first = second = None
        if maps[0] is not None:
            first = self._gradient(source, x_seeds, y_sums, y.rows, y_near)
            first += self._neighbour_gradient(source, x, x_near, y_seeds.rows, target.counts)
        if maps[1] is not None:
            x_sums = _sums(x_seeds.rows[source.of_pair], target)
            second = self._gradient(target, y_seeds, x_sums, x.rows, x_near)
            second += self._neighbour_gradient(target, y, y_near, x_seeds.rows, source.counts)
        return loss, (first, second)

    def _map(self, words: Tensor, weights: Tensor | None) -> Mapped:
        if weights is None:
            return Mapped(words, None)
        rows = words @ weights
        if not self.cosine:
            return Mapped(rows, None)
        lengths = rows.norm(dim=1, keepdim=True).clamp_min_(1e-9)
        return Mapped(rows.div_(lengths), lengths)

    def _nearest(self, queries: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        k = min(self.neighbours, len(words))
        return nearest(Scan(queries, words), k, memory_gb=self.memory_gb, label="neighbours")

    def _gradient(
        self, side: Side, seeds: Mapped, sums: Tensor, others: Tensor, near: Tensor
    ) -> Tensor:
        """Through the seed words: -2 times their translations, and the mean of the nearest."""
        pull = F.embedding_bag(near, others, mode="mean") * side.counts[:, None] - 2 * sums
        return side.seeds.T @ _before_lengths(pull, seeds.rows, seeds.lengths) / self.pairs

    def _neighbour_gradient(
        self, side: Side, mapped: Mapped, near: Tensor, seeds: Tensor, counts: Tensor
    ) -> Tensor:
        """Through the words z that are nearest to the other side's seeds: each seed / k."""
        k = near.shape[1]
        rows, place = near.reshape(-1).unique(return_inverse=True)
        share = (seeds * (counts / k)[:, None]).repeat_interleave(k, dim=0)
        push = seeds.new_zeros(len(rows), seeds.shape[1]).index_add_(0, place, share)
        lengths = mapped.lengths[rows] if mapped.lengths is not None else None
        return side.words[rows].T @ _before_lengths(push, mapped.rows[rows], lengths) / self.pairs


def _sums(rows_of_pairs: Tensor, side: Side) -> Tensor:
    """For each distinct seed of ``side``, the sum of its pairs' rows."""
    sums = rows_of_pairs.new_zeros(len(side.seeds), rows_of_pairs.shape[1])
    return sums.index_add_(0, side.of_pair, rows_of_pairs)


def _before_lengths(gradient: Tensor, unit: Tensor, lengths: Tensor | None) -> Tensor:
    """Gradient of the rows as mapped, from that of the rows at length one."""
    if lengths is None:
        return gradient
    return (gradient - unit * (unit * gradient).sum(dim=1, keepdim=True)) / lengths
