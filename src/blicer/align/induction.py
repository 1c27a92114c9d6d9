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
from dataclasses import dataclass

import torch
from torch import Tensor

from blicer.retrieval import top_k_both
from blicer.topk import top_k

BLOCK_BYTES = 2**26  # of a block of rows of the similarity matrix
GROUP = 16  # rows of the similarity matrix folded into one maximum a column
TAIL = 0.01  # share of the words whose draw may lie beyond the small top-k
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


def small_k(keep: float) -> int:
    """The top-k that serves all but the share ``TAIL`` of the draws."""
    return 1 if keep >= 1.0 else max(1, math.ceil(math.log(TAIL) / math.log1p(-keep)))


def induce(
    x: Tensor,
    y: Tensor,
    *,
    keep: float = 1.0,
    generator: torch.Generator,
    k_csls: int = 10,
    memory_gb: float = 2.0,
) -> Induced:
    """Best surviving match by CSLS of every row of ``x`` and of ``y`` (unit rows), both united.

    A pair that both directions choose stands twice in the result, so it weighs double in the map.
    """
    ranks_x = draw_ranks(len(x), keep, generator).to(x.device)
    ranks_y = draw_ranks(len(y), keep, generator).to(x.device)
    k = small_k(keep)
    if 4 * len(x) * len(y) <= WORKING_SHARE * memory_gb * 2**30:
        return _induce_kept(x, y, ranks_x, ranks_y, k, k_csls)
    return _induce_blocked(x, y, ranks_x, ranks_y, k, k_csls, memory_gb)


def _induce_kept(
    x: Tensor, y: Tensor, ranks_x: Tensor, ranks_y: Tensor, k: int, k_csls: int
) -> Induced:
    """One product, kept: everything is read off it."""
    similarities = x.new_empty(len(x), len(y))
    height = _height(len(y))
    k_rows, k_columns = min(k_csls, len(y)), min(k_csls, len(x))
    row_best = x.new_empty(len(x), k_rows)
    maxima = []
    for start in range(0, len(x), height):
        block = similarities[start : start + height]
        torch.mm(x[start : start + height], y.T, out=block)
        row_best[start : start + height] = top_k(block, k_rows)[0]
        maxima.append(_fold(block))
    column_best = _column_top_k(similarities, torch.cat(maxima), None, k_columns)[0]
    # CSLS up to a term that is constant for the word that asks: cos - r(candidate) / 2.
    half_x, half_y = row_best.mean(dim=1) / 2, column_best.mean(dim=1) / 2
    forward = torch.empty_like(ranks_x)
    maxima = []
    scratch = torch.empty_like(similarities[:height])
    for start in range(0, len(x), height):
        block = similarities[start : start + height]
        part = slice(start, start + len(block))
        shifted = torch.sub(block, half_y, out=scratch[: len(block)])
        forward[part] = _at_ranks(shifted, ranks_x[part], k)
        torch.sub(block, half_x[part, None], out=shifted)
        maxima.append(_fold(shifted))
    _, best = _column_top_k(similarities, torch.cat(maxima), half_x, min(k, len(x)))
    backward = _pick(best, ranks_y)
    for word in (ranks_y > best.shape[1]).nonzero().flatten().tolist():
        if ranks_y[word] <= len(x):
            column = (similarities[:, word] - half_x)[None]
            backward[word] = _nth(column, ranks_y[word : word + 1])
    return _united(forward, backward, row_best[:, 0], column_best[:, 0])


def _induce_blocked(
    x: Tensor,
    y: Tensor,
    ranks_x: Tensor,
    ranks_y: Tensor,
    k: int,
    k_csls: int,
    memory_gb: float,
) -> Induced:
    """For a tight memory budget: blocks of the product are made anew instead of kept."""
    smaller = min(k_csls, len(x), len(y))
    row_best, _, column_best, _ = top_k_both(
        x, y, smaller, memory_gb=memory_gb, precision="fp32", label="hubness"
    )
    found = []
    for left, right, ranks, half in (
        (x, y, ranks_x, column_best.mean(dim=1) / 2),
        (y, x, ranks_y, row_best.mean(dim=1) / 2),
    ):
        best = torch.empty_like(ranks)
        height = _height(len(right))
        for start in range(0, len(left), height):
            block = left[start : start + height] @ right.T
            block -= half
            best[start : start + height] = _at_ranks(block, ranks[start : start + height], k)
        found.append(best)
    return _united(found[0], found[1], row_best[:, 0], column_best[:, 0])


def _height(width: int) -> int:
    """Rows of a block, a multiple of GROUP so that only the last block has a remainder."""
    return max(1, BLOCK_BYTES // (4 * width * GROUP)) * GROUP


def _at_ranks(scores: Tensor, ranks: Tensor, k: int) -> Tensor:
    """Column of the ``ranks[i]``-th best of row i; -1 where the row has no so many entries."""
    k = min(k, scores.shape[1])
    best = scores.argmax(dim=1, keepdim=True) if k == 1 else top_k(scores, k)[1]
    picked = _pick(best, ranks)
    beyond = ((ranks > k) & (ranks <= scores.shape[1])).nonzero().flatten()
    if len(beyond):
        picked[beyond] = _nth(scores[beyond], ranks[beyond])
    return picked


def _pick(best: Tensor, ranks: Tensor) -> Tensor:
    """Entry ``ranks[i]`` (from 1) of row i of ``best``; -1 beyond its end."""
    inside = ranks <= best.shape[1]
    picked = best.gather(1, (ranks.clamp(max=best.shape[1]) - 1)[:, None]).flatten()
    return torch.where(inside, picked, torch.full_like(picked, -1))


def _nth(scores: Tensor, ranks: Tensor) -> Tensor:
    """The ranks[i]-th best of row i, whatever the rank."""
    best = scores.topk(int(ranks.max()), dim=1).indices
    return best.gather(1, ranks[:, None] - 1).flatten()


def _fold(block: Tensor) -> Tensor:
    """Column-wise maxima of groups of GROUP consecutive rows; the last group may be smaller."""
    whole = len(block) // GROUP * GROUP
    maxima: Tensor = block[:whole].unflatten(0, (-1, GROUP)).amax(dim=1)
    if whole == len(block):
        return maxima
    return torch.cat([maxima, block[whole:].amax(dim=0, keepdim=True)])


def _column_top_k(
    similarities: Tensor, maxima: Tensor, shift: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """The k best of every column of ``similarities - shift[:, None]``: (columns, k), best first.

    ``maxima`` (groups, columns) are those of ``_fold``: the k best entries of a column lie in the
    groups with its k best maxima, so only these are read.
    """
    rows, columns = similarities.shape
    groups = maxima.topk(min(k, len(maxima)), dim=0).indices  # (groups chosen, columns)
    members = torch.arange(GROUP, device=groups.device)
    values = similarities.new_empty(columns, k)
    indices = groups.new_empty(columns, k)
    width = max(1, BLOCK_BYTES // (8 * groups.shape[0] * GROUP))
    for start in range(0, columns, width):
        chosen = groups[:, start : start + width].T
        candidates = (chosen[:, :, None] * GROUP + members).flatten(1)  # (columns, candidates)
        inside = candidates < rows
        candidates.clamp_(max=rows - 1)
        column = torch.arange(start, start + len(candidates), device=groups.device)
        found = similarities[candidates, column[:, None]]
        if shift is not None:
            found -= shift[candidates]
        found.masked_fill_(~inside, -torch.inf)
        best, places = found.topk(k, dim=1)
        values[start : start + width] = best
        indices[start : start + width] = candidates.gather(1, places)
    return values, indices


def _united(forward: Tensor, backward: Tensor, best_x: Tensor, best_y: Tensor) -> Induced:
    """Both directions' pairs; a word with no survivor gives none."""
    words_x = torch.arange(len(forward), device=forward.device)
    words_y = torch.arange(len(backward), device=forward.device)
    from_x = torch.stack([words_x, forward], dim=1)[forward >= 0]
    from_y = torch.stack([backward, words_y], dim=1)[backward >= 0]
    objective = (best_x.double().mean() + best_y.double().mean()) / 2
    return Induced(torch.cat([from_x, from_y]).cpu(), len(from_x), float(objective))
