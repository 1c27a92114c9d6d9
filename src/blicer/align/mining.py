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

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from blicer.sparse import csr, has_sparse_kernels, pair_products
from blicer.topk import places_of_true

ROWS_AT_ONCE = 512  # of similarities: enough for the multiplication, small for the cache
ROUNDING = 1e-5  # of a product that is summed in another order
MOST_TIMES = 8  # as many numbers as are asked for: then ordering whole rows is no slower
SAMPLE = 64  # words scanned in full at every step, to measure what the pool misses


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
        """``out[c]``: the sum of weights · left[i] over entries (i, c); weights as the pool."""
        values = weights.reshape(-1)[self.order]
        used = values != 0
        values, query = values[used], self.query[used]
        passed = torch.cat([used.new_zeros(1, dtype=torch.int64), used.cumsum(0)])
        starts = torch.cat([passed[:1], passed[self.ends]])
        candidates = len(self.ends)
        if has_sparse_kernels(left.device):
            return csr(starts, query, values, (candidates, len(left))) @ left
        rows = torch.repeat_interleave(torch.arange(candidates, device=left.device), starts.diff())
        out = left.new_zeros(candidates, left.shape[1])
        part = max(1, 2**26 // left.shape[1])
        for i in range(0, len(rows), part):
            inside = slice(i, i + part)
            out.index_add_(0, rows[inside], values[inside, None] * left[query[inside]])
        return out


@dataclass(frozen=True)
class Pool:
    """For each query, the candidates that a full scan found nearest (the gold one left out)."""

    columns: Tensor  # (queries, width) candidate rows
    transposed: Transposed


@dataclass(frozen=True)
class Negatives:
    """The mined negatives of a step, inside the pool that they were chosen from."""

    scores: Tensor  # (queries, n) cosines
    places: Tensor  # (queries, n) columns of the pool
    pool: Pool

    @property
    def words(self) -> Tensor:
        """(queries, n) candidate rows."""
        return self.pool.columns.gather(1, self.places)

    def to_queries(self, weights: Tensor, candidates: Tensor) -> Tensor:
        """``out[i]``: the weighted sum of query i's negatives."""
        return weighted_rows(weights, self.words, candidates)

    def to_candidates(self, weights: Tensor, queries: Tensor) -> Tensor:
        """``out[c]``: the weighted sum of the queries that have c as a negative."""
        full = weights.new_zeros(self.pool.columns.shape).scatter_(1, self.places, weights)
        return self.pool.transposed.weighted_rows(full, queries)


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
        self.gold = gold
        self.negatives = min(negatives, candidates - 1)
        self.min_recall = min_recall
        wide = self.negatives if min_recall >= 1 else round(self.negatives * max(1.0, pool))
        self.width = min(wide, candidates - 1)
        # A block of similarities, and as much again for the selection in it.
        fitting = int(memory_gb * 2**30 / 2 / (4 * candidates))
        self.block_rows = max(1, min(fitting, ROWS_AT_ONCE))
        self.scans = 0
        self.recalls: list[float] = []  # measured, of the steps that needed no scan
        self._generator = torch.Generator().manual_seed(seed)
        self._pool: Pool | None = None

    def mine(self, queries: Tensor, candidates: Tensor) -> Negatives:
        """Both as rows of unit length under the current maps."""
        lowest = None
        if self._pool is not None:
            scores = pair_products(queries, candidates, self._pool.columns)
            if self.min_recall < 1:
                found = self._choose(self._pool, scores)
                recall = self._recall(found, queries, candidates)
                if recall >= self.min_recall:
                    self.recalls.append(recall)
                    return found
            lowest = scores.amin(dim=1)  # as many words as a pool holds score no less than this
        columns = self._scan(queries, candidates, self.gold, self.width, lowest)
        self._pool = Pool(columns, Transposed.of(columns, len(candidates)))
        self.scans += 1
        return self._choose(self._pool, pair_products(queries, candidates, columns))

    def _choose(self, pool: Pool, scores: Tensor) -> Negatives:
        scores, places = scores.topk(self.negatives, dim=1, sorted=False)
        return Negatives(scores, places, pool)

    def _recall(self, found: Negatives, queries: Tensor, candidates: Tensor) -> float:
        """Share of the true nearest candidates that were found, on a sample of the queries."""
        sample = torch.randperm(len(queries), generator=self._generator)[:SAMPLE]
        sample = sample.to(queries.device)
        lowest = found.scores[sample].amin(dim=1)
        true = self._scan(queries[sample], candidates, self.gold[sample], self.negatives, lowest)
        mark = torch.zeros(len(sample), len(candidates), dtype=torch.bool, device=queries.device)
        mark.scatter_(1, found.words[sample], True)
        return float(mark.gather(1, true).float().mean())

    def _scan(
        self,
        queries: Tensor,
        candidates: Tensor,
        gold: Tensor,
        width: int,
        lowest: Tensor | None = None,
    ) -> Tensor:
        """The ``width`` best candidates but the gold one; at least so many reach ``lowest``."""
        columns = queries.new_empty(len(queries), width, dtype=torch.int64)
        rows = min(self.block_rows, len(queries))
        buffer = queries.new_empty(rows, len(candidates))
        for start in range(0, len(queries), rows):
            part = slice(start, start + rows)
            block = buffer[: len(queries[part])]
            torch.mm(queries[part], candidates.T, out=block)
            inside = (gold[part] < len(candidates)).nonzero().flatten()  # a rare word is none
            block[inside, gold[part][inside]] = -torch.inf
            columns[part] = _best(block, width, None if lowest is None else lowest[part])
        return columns


def _best(block: Tensor, count: int, lowest: Tensor | None) -> Tensor:
    """Columns of the ``count`` best numbers of each row, in any order.

    Where it is known that as many reach ``lowest``, only those are put in order: for hundreds of
    tens of thousands that takes a third of the time.
    """
    if lowest is None:
        return block.topk(count, dim=1, sorted=False).indices
    rows, columns = places_of_true(block >= (lowest - ROUNDING)[:, None])
    found = torch.bincount(rows, minlength=len(block))
    if int(found.min()) < count or len(rows) > MOST_TIMES * count * len(block):
        return block.topk(count, dim=1, sorted=False).indices
    place = torch.arange(len(rows), device=block.device) - (found.cumsum(0) - found)[rows]
    values = block.new_full((len(block), int(found.max())), -torch.inf)
    values[rows, place] = block[rows, columns]
    listed = torch.zeros_like(values, dtype=torch.int64)
    listed[rows, place] = columns
    return listed.gather(1, values.topk(count, dim=1, sorted=False).indices)
