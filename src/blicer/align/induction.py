"""Stochastic dictionary induction by CSLS: the step that VecMap's self-learning repeats.

The literature keeps each similarity with probability p (a random mask over the whole matrix, one
for each direction) and takes the best survivor. The best survivor of a row is its r-th best
entry, where r - 1 is the number of better ones that were dropped: r is geometric with parameter
p. So one number is drawn a word instead of one a similarity, and a small top-k finds the entry.
Rows whose r lies beyond that top-k are selected from in full, so the distribution is exact.

The candidates' hubness (mean of the 10 largest similarities) comes from the same product, row-wise
for the one direction and column-wise for the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from blicer.retrieval import top_k_both

PRODUCT_ROWS = 2048  # rows of the similarity matrix multiplied at once
BLOCK_BYTES = 2**24  # of a block of rows that is folded while the cache holds it
GROUP = 16  # similarities folded into one maximum
RANK_BOUNDS = (
    1,
    2,
    4,
    7,
    11,
    16,
    24,
    36,
    80,
)  # words are selected for together with others of like rank
WORKING_SHARE = 0.85  # of the memory budget that the kept similarities may take


@dataclass(frozen=True)
class Induced:
    """Word pairs (pairs, 2) int64 on the CPU, and how similar best matches are on average."""

    pairs: Tensor
    forward: int  # pairs found from the source side; they come first
    objective: float


def draw_ranks(words: int, keep: float, generator: torch.Generator) -> Tensor:
    """How many-th best entry is each word's best survivor: geometric(keep), int64 from 1."""
    if keep >= 1.0:
        return torch.ones(words, dtype=torch.int64)
    uniform = 1.0 - torch.rand(words, dtype=torch.float64, generator=generator)  # in (0, 1]
    return (uniform.log() / math.log1p(-keep)).floor().long() + 1


def similarity_buffer(x: Tensor, y: Tensor, memory_gb: float) -> Tensor | None:
    """Room for all similarities, to be used again and again; None if the budget is too small."""
    if 4 * len(x) * len(y) > WORKING_SHARE * memory_gb * 2**30:
        return None
    return x.new_empty(len(x), len(y))


def induce(
    x: Tensor,
    y: Tensor,
    *,
    keep: float = 1.0,
    generator: torch.Generator,
    k_csls: int = 10,
    memory_gb: float = 2.0,
    buffer: Tensor | None = None,
) -> Induced:
    """Best surviving match by CSLS of every row of ``x`` and of ``y`` (unit rows), both united.

    A pair that both directions choose stands twice in the result, so it weighs double in the map.
    ``buffer`` is a ``similarity_buffer`` to be overwritten, for callers that induce repeatedly.
    """
    ranks_x = draw_ranks(len(x), keep, generator).to(x.device)
    ranks_y = draw_ranks(len(y), keep, generator).to(x.device)
    if buffer is None:
        buffer = similarity_buffer(x, y, memory_gb)
    if buffer is None:
        return _induce_blocked(x, y, ranks_x, ranks_y, k_csls, memory_gb)
    for start in range(0, len(x), PRODUCT_ROWS):
        part = slice(start, start + PRODUCT_ROWS)
        torch.mm(x[part], y.T, out=buffer[part])
    rows, columns = _Side(buffer, by_rows=True), _Side(buffer, by_rows=False)
    for block in _row_blocks(buffer):
        rows.fold(buffer[block], block)
        columns.fold(buffer[block], block)
    best_x = rows.values_of_best(min(k_csls, len(y)))
    best_y = columns.values_of_best(min(k_csls, len(x)))
    # CSLS up to a term that is constant for the word that asks: cos - r(candidate) / 2.
    rows.shift, columns.shift = best_y.mean(dim=1) / 2, best_x.mean(dim=1) / 2
    scratch = buffer.new_empty(_height(buffer), buffer.shape[1])
    for block in _row_blocks(buffer):
        shifted = scratch[: block.stop - block.start]
        rows.fold(torch.sub(buffer[block], rows.shift, out=shifted), block)
        columns.fold(torch.sub(buffer[block], columns.shift[block, None], out=shifted), block)
    return _united(
        rows.indices_at(ranks_x), columns.indices_at(ranks_y), best_x[:, 0], best_y[:, 0]
    )


def _height(similarities: Tensor) -> int:
    """Rows of a block, a multiple of GROUP so that only the last block has a remainder."""
    return max(1, BLOCK_BYTES // (4 * similarities.shape[1] * GROUP)) * GROUP


def _row_blocks(similarities: Tensor) -> list[slice]:
    height, total = _height(similarities), len(similarities)
    return [slice(start, min(start + height, total)) for start in range(0, total, height)]


class _Side:
    """Selection among the similarities (n, m), for the words of the rows or of the columns.

    ``fold`` keeps the maximum of every group of GROUP candidates of a word. The k best candidates
    lie in the groups with the k best maxima, so a selection reads these groups only. Groups are
    every ``groups``-th candidate of a row (folds along memory), or GROUP consecutive ones of a
    column (folds whole rows at once).
    """

    def __init__(self, similarities: Tensor, *, by_rows: bool) -> None:
        self.flat = similarities.view(-1)
        self.rows, self.width = similarities.shape
        self.by_rows = by_rows
        self.words, self.candidates = (
            (self.rows, self.width) if by_rows else (self.width, self.rows)
        )
        self.groups = -(-self.candidates // GROUP)
        self.maxima = similarities.new_empty(
            (self.words, self.groups) if by_rows else (self.groups, self.words)
        )
        self.shift: Tensor | None = None  # of each candidate
        self.integer = torch.int32 if len(self.flat) < 2**31 else torch.int64

    def fold(self, block: Tensor, place: slice) -> None:
        """Take in the rows ``place`` of the similarities, or of these minus the shift."""
        if self.by_rows:
            whole = self.candidates // self.groups * self.groups
            maxima = self.maxima[place]
            torch.amax(block[:, :whole].unflatten(1, (-1, self.groups)), dim=1, out=maxima)
            if whole < self.candidates:
                rest = maxima[:, : self.candidates - whole]
                torch.maximum(rest, block[:, whole:], out=rest)
            return
        first, whole = place.start // GROUP, len(block) // GROUP
        torch.amax(
            block[: whole * GROUP].unflatten(0, (-1, GROUP)),
            dim=1,
            out=self.maxima[first : first + whole],
        )
        if whole * GROUP < len(block):
            self.maxima[first + whole] = block[whole * GROUP :].amax(dim=0)

    def best(self, maxima: Tensor, words: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Values and candidates (words, k), best first, of some words with their maxima."""
        groups = maxima.topk(min(k, self.groups), dim=1, sorted=False).indices.to(self.integer)
        words = words.to(self.integer)[:, None]
        member = torch.arange(GROUP, device=words.device, dtype=self.integer)
        if self.by_rows:
            candidates = (groups[:, :, None] + member * self.groups).flatten(1)
        else:
            candidates = (groups[:, :, None] * GROUP + member).flatten(1)
        outside = None
        if self.candidates % GROUP:  # the last members of some groups do not exist
            outside = candidates >= self.candidates
            candidates.clamp_(max=self.candidates - 1)
        if self.by_rows:
            places = candidates + words * self.width
        else:
            places = (candidates * self.width).add_(words)
        found = self.flat.index_select(0, places.view(-1)).view(places.shape)
        if self.shift is not None:
            found -= self.shift.index_select(0, candidates.view(-1)).view(places.shape)
        if outside is not None:
            found.masked_fill_(outside, -torch.inf)
        values, order = found.topk(k, dim=1)
        return values, candidates.gather(1, order)

    def values_of_best(self, k: int) -> Tensor:
        """The k largest similarities (words, k) of every word, best first."""
        every = torch.arange(self.words, device=self.flat.device)
        return torch.cat([self.best(*part, k)[0] for part in self._parts(every, k)])

    def indices_at(self, ranks: Tensor) -> Tensor:
        """The candidate of each word at its rank; -1 where there are fewer candidates."""
        found = torch.full_like(ranks, -1)
        lower = 0
        for upper in RANK_BOUNDS:
            k = min(upper, self.candidates)
            chosen = ((ranks > lower) & (ranks <= k)).nonzero().flatten()
            for maxima, words in self._parts(chosen, k):
                best = self.best(maxima, words, k)[1]
                found[words] = best.gather(1, ranks[words, None] - 1).flatten().to(found.dtype)
            lower = upper
        beyond = ((ranks > lower) & (ranks <= self.candidates)).nonzero().flatten()
        similarities = self.flat.view(self.rows, self.width)
        for words in _chunks(beyond, 64):
            scores = similarities[words] if self.by_rows else similarities[:, words].T
            found[words] = nth_best(
                scores if self.shift is None else scores - self.shift, ranks[words]
            )
        return found

    def _parts(self, words: Tensor, k: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Maxima (some words, groups) and these words, in parts that bound the memory."""
        for part in _chunks(words, max(1, BLOCK_BYTES // (8 * k * GROUP))):
            together = slice(int(part[0]), int(part[-1]) + 1)
            consecutive = together.stop - together.start == len(part)
            chosen = together if consecutive else part
            yield (
                (self.maxima[chosen] if self.by_rows else self.maxima[:, chosen].T.contiguous()),
                part,
            )


def _chunks(words: Tensor, size: int) -> Iterator[Tensor]:
    for start in range(0, len(words), size):
        yield words[start : start + size]


def nth_best(scores: Tensor, ranks: Tensor) -> Tensor:
    """The ``ranks[i]``-th best of row i; -1 where the row has no so many entries."""
    inside = ranks <= scores.shape[1]
    if not bool(inside.any()):
        return torch.full_like(ranks, -1)
    best = scores.topk(int(ranks[inside].max()), dim=1).indices
    picked = best.gather(1, ranks.clamp(max=best.shape[1])[:, None] - 1).flatten()
    return torch.where(inside, picked, torch.full_like(picked, -1))


def _induce_blocked(
    x: Tensor, y: Tensor, ranks_x: Tensor, ranks_y: Tensor, k_csls: int, memory_gb: float
) -> Induced:
    """For a tight memory budget: blocks of the product are made anew instead of kept."""
    best_x, _, best_y, _ = top_k_both(
        x, y, min(k_csls, len(x), len(y)), memory_gb=memory_gb, precision="fp32", label="hubness"
    )
    found = []
    for left, right, ranks, half in (
        (x, y, ranks_x, best_y.mean(dim=1) / 2),
        (y, x, ranks_y, best_x.mean(dim=1) / 2),
    ):
        height = max(1, BLOCK_BYTES // (4 * len(right)))
        blocks = zip(_chunks(left, height), _chunks(ranks, height), strict=True)
        found.append(torch.cat([nth_best(rows @ right.T - half, rank) for rows, rank in blocks]))
    return _united(found[0], found[1], best_x[:, 0], best_y[:, 0])


def _united(forward: Tensor, backward: Tensor, best_x: Tensor, best_y: Tensor) -> Induced:
    """Both directions' pairs; a word with no survivor gives none."""
    words_x = torch.arange(len(forward), device=forward.device)
    words_y = torch.arange(len(backward), device=forward.device)
    from_x = torch.stack([words_x, forward], dim=1)[forward >= 0]
    from_y = torch.stack([backward, words_y], dim=1)[backward >= 0]
    objective = (best_x.cpu().double().mean() + best_y.cpu().double().mean()) / 2  # MPS has no fp64
    return Induced(torch.cat([from_x, from_y]).cpu(), len(from_x), float(objective))
