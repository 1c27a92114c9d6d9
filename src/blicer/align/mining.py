"""Hard negatives for the contrastive map, and the sparse products that its gradient needs.

A step of C1 needs, for each dictionary word, the N words of the other language that are nearest
to it under the *current* maps. A full scan of the vocabulary for every step is what the usual
code does, and it is most of its work. Between two steps the maps move little, so here a full
scan keeps a pool of somewhat more than N candidates for each word, the next steps choose their
N best from the pool, and a sample of words is scanned in full at every step to measure how many
of the true N best the pool still holds. When that share falls below ``min_recall``, or would
have to be guessed, all words are scanned again. ``min_recall=1`` scans all words at every step.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from blicer.topk import top_k

SAMPLE = 64  # words scanned in full at every step, to measure what the pool misses


def _csr(starts: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        # torch says once that CSR is in beta, and that invariants go unchecked: ours hold.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(starts, columns, values, size=size, check_invariants=False)


def pair_products(left: Tensor, right: Tensor, columns: Tensor) -> Tensor:
    """``out[i, j] = left[i] · right[columns[i, j]]`` without gathering the vectors."""
    rows, width = columns.shape
    if left.device.type == "cpu":
        starts = torch.arange(0, rows * width + 1, width)
        pattern = _csr(
            starts, columns.reshape(-1), left.new_zeros(rows * width), (rows, len(right))
        )
        return (
            torch.sparse.sampled_addmm(pattern, left, right.T, beta=0.0).values().view(rows, width)
        )
    part = max(1, 2**26 // (width * left.shape[1]))
    return torch.cat(
        [
            torch.bmm(right[columns[i : i + part]], left[i : i + part, :, None]).squeeze(2)
            for i in range(0, rows, part)
        ]
    )


def weighted_rows(weights: Tensor, columns: Tensor, right: Tensor) -> Tensor:
    """``out[i] = Σ_j weights[i, j] · right[columns[i, j]]``."""
    return F.embedding_bag(columns, right, mode="sum", per_sample_weights=weights)


@dataclass(frozen=True)
class Transposed:
    """The entries of a pool, ordered by candidate instead of by query.

    Only the choice among them changes from step to step, so the order is found once a scan.
    """

    order: Tensor
    query: Tensor
    ends: Tensor  # number of entries up to and with each candidate

    @classmethod
    def of(cls, columns: Tensor, candidates: int) -> Transposed:
        flat = columns.reshape(-1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=candidates)
        return cls(order, order // columns.shape[1], counts.cumsum(0))

    def weighted_rows(self, weights: Tensor, left: Tensor) -> Tensor:
        """``out[c] = Σ over entries (i, c) of weights · left[i]``; ``weights`` shaped as the pool."""
        values = weights.reshape(-1)[self.order]
        used = values != 0
        values, query = values[used], self.query[used]
        passed = torch.cat([used.new_zeros(1, dtype=torch.int64), used.cumsum(0)])
        starts = torch.cat([passed[:1], passed[self.ends]])
        candidates = len(self.ends)
        if left.device.type == "cpu":
            return _csr(starts, query, values, (candidates, len(left))) @ left
        rows = torch.repeat_interleave(torch.arange(candidates, device=left.device), starts.diff())
        out = left.new_zeros(candidates, left.shape[1])
        part = max(1, 2**26 // left.shape[1])
        for i in range(0, len(rows), part):
            inside = slice(i, i + part)
            out.index_add_(0, rows[inside], values[inside, None] * left[query[inside]])
        return out


@dataclass(frozen=True)
class Negatives:
    """The mined negatives of a step, inside the pool that they were chosen from."""

    scores: Tensor  # (queries, n) cosines, best first
    places: Tensor  # (queries, n) columns of the pool
    words: Tensor  # (queries, n) candidate rows
    transposed: Transposed
    pool_width: int

    def spread(self, weights: Tensor) -> Tensor:
        """Weights of the negatives, in the shape of the pool."""
        full = weights.new_zeros(len(weights), self.pool_width)
        return full.scatter_(1, self.places, weights)


class NegativeMiner:
    """The ``negatives`` nearest candidates of each query by dot product, the gold one left out."""

    def __init__(
        self,
        gold: Tensor,
        candidates: int,
        *,
        negatives: int,
        pool: float = 1.5,
        min_recall: float = 0.99,
        memory_gb: float = 2.0,
        seed: int = 0,
    ) -> None:
        self.gold, self.candidates = gold, candidates
        self.negatives = max(1, min(negatives, candidates - 1))
        self.min_recall = min_recall
        wide = self.negatives if min_recall >= 1 else round(self.negatives * max(1.0, pool))
        self.width = min(wide, candidates - 1)
        self.rows = max(16, int(memory_gb * 2**30 / 3 / (4 * candidates)))
        self.generator = torch.Generator().manual_seed(seed)
        self.columns: Tensor | None = None
        self.transposed: Transposed | None = None
        self.scans = 0
        self.recalls: list[float] = []

    def mine(self, queries: Tensor, candidates: Tensor) -> Negatives:
        """Both as rows of unit length under the current maps; candidates by frequency."""
        if self.columns is None or not self._pool_serves(queries, candidates):
            self.columns = self._scan(queries, candidates, self.gold, self.width)
            self.transposed = Transposed.of(self.columns, self.candidates)
            self.scans += 1
        scores = pair_products(queries, candidates, self.columns)
        scores, places = scores.topk(self.negatives, dim=1, sorted=False)
        assert_type = self.transposed
        words = self.columns.gather(1, places)
        return Negatives(scores, places, words, assert_type, self.width)
