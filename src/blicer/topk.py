"""Exact top-k of similarity blocks, by group maxima: the kernels under the retrieval engine.

Selecting the k best of m numbers by sorting networks or heaps touches every number several
times. Here one cheap reduction folds each row into groups of ``GROUP`` numbers and keeps each
group's maximum. The k best numbers of a row lie in its k best groups, so the selection itself
only ever looks at a small part of the row.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 16  # numbers folded into one maximum
LONG_ROW = 1024  # shorter rows go to torch.topk at once


def top_k(block: Tensor, k: int, dim: int = 1) -> tuple[Tensor, Tensor]:
    """The k largest of each row (``dim=1``) or column (``dim=0``) of ``block``, best first.

    Equal values are ordered by index, lower first; words are stored by frequency, so ties fall
    to the more frequent word. Returns (values, indices), each (rows, k) or (k, columns).
    """
    if dim == 0:
        values, indices = top_k(block.T, k)
        return values.T, indices.T
    length = block.shape[1]
    if not 0 < k <= length:
        raise ValueError(f"k is {k}; expected 1 to {length}, the length of a row")
    if block.stride(1) != 1 or length < max(LONG_ROW, 2 * GROUP * k):
        values, indices = block.topk(min(k + 1, length), dim=1)
    else:
        values, indices = _top_k_by_groups(block, k)
    # Equal neighbours in the list of the k+1 best mean that order or membership was arbitrary.
    tied = (values[:, 1:] == values[:, :-1]).any(dim=1).nonzero().flatten()
    values, indices = values[:, :k].contiguous(), indices[:, :k].contiguous()
    for part in tied.split(max(1, 2**24 // length)):
        ordered, order = block[part].sort(dim=1, descending=True, stable=True)
        values[part], indices[part] = ordered[:, :k], order[:, :k]
    return values, indices


def _top_k_by_groups(block: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k+1 best of each row. Group j holds the columns j, j + size, j + 2·size, …"""
    rows, length = block.shape
    size = length // GROUP
    folded = size * GROUP
    maxima = block[:, :folded].unflatten(1, (GROUP, size)).amax(dim=1)
    groups = maxima.topk(min(k + 1, size), dim=1, sorted=False).indices
    members = torch.arange(GROUP, device=block.device) * size
    candidates = (groups.unsqueeze(2) + members).flatten(1)
    rest = torch.arange(folded, length, device=block.device).expand(rows, -1)
    candidates = torch.cat([candidates, rest], dim=1)
    values, places = block.gather(1, candidates).topk(k + 1, dim=1)
    return values, candidates.gather(1, places)


class RunningTopK:
    """The k best numbers seen so far for each of many words, fed one tile at a time.

    After the first tiles few numbers can still enter a list: those above its k-th best. Group
    maxima find the groups that hold such numbers; only these are read.
    """

    def __init__(self, words: int, k: int, dtype: torch.dtype, device: torch.device) -> None:
        self.k = k
        self.values = torch.full((words, k), -torch.inf, dtype=dtype, device=device)
        self.indices = torch.full((words, k), -1, dtype=torch.int32, device=device)

    def update(self, tile: Tensor, first_word: int, first_index: int, *, columns: bool) -> None:
        """Take in a tile (rows, columns) of similarities.

        With ``columns=False`` each row of the tile belongs to a word of this list, and the
        columns are the numbers offered to it; with ``columns=True`` the other way round.
        """
        words, offered = tile.shape[::-1] if columns else tile.shape
        inside = slice(first_word, first_word + words)
        values, indices = self.values[inside], self.indices[inside]
        threshold = values[:, -1].clone()
        size = offered // GROUP
        if size < 2 * self.k or not bool(torch.isfinite(threshold).all()):
            self._merge_whole(tile, values, indices, first_index, columns)
            return
        folded = size * GROUP
        if columns:
            maxima = tile[:folded].unflatten(0, (GROUP, size)).amax(dim=0)
            group, word = (maxima > threshold).nonzero(as_tuple=True)
        else:
            maxima = tile[:, :folded].unflatten(1, (GROUP, size)).amax(dim=1)
            word, group = (maxima > threshold[:, None]).nonzero(as_tuple=True)
        if len(word) > words * self.k:
            # Too much is new (the first tiles, or words that get more similar): select directly.
            self._merge_whole(tile, values, indices, first_index, columns)
            return
        members = torch.arange(GROUP, device=tile.device) * size
        places = group[:, None] + members
        row_stride, column_stride = (1, tile.shape[1]) if columns else (tile.shape[1], 1)
        found = tile.view(-1).take(word[:, None] * row_stride + places * column_stride)
        entry, member = (found > threshold[word][:, None]).nonzero(as_tuple=True)
        word, places, found = word[entry], places[entry, member], found[entry, member]
        if folded < offered:
            rest = tile[folded:].T if columns else tile[:, folded:]
            other, place = (rest > threshold[:, None]).nonzero(as_tuple=True)
            word, found = torch.cat([word, other]), torch.cat([found, rest[other, place]])
            places = torch.cat([places, place + folded])
        if len(word):
            self._merge_few(values, indices, word, places + first_index, found)

    def _merge_whole(
        self, tile: Tensor, values: Tensor, indices: Tensor, first_index: int, columns: bool
    ) -> None:
        source = tile.T.contiguous() if columns else tile
        best, places = source.topk(min(self.k, source.shape[1]), dim=1)
        self._merge(values, indices, best, (places + first_index).to(torch.int32))

    def _merge_few(
        self, values: Tensor, indices: Tensor, word: Tensor, index: Tensor, found: Tensor
    ) -> None:
        """Merge a ragged list of (word, index, value) into the lists of the words concerned."""
        order = word.argsort(stable=True)
        word, index, found = word[order], index[order], found[order]
        touched, counts = word.unique_consecutive(return_counts=True)
        starts = counts.cumsum(0) - counts
        row = torch.arange(len(touched), device=word.device).repeat_interleave(counts)
        place = torch.arange(len(word), device=word.device) - starts[row]
        # Lists of similar length share a padded table, so that one long list costs little.
        lower = 0
        while lower < int(counts.max()):
            upper = max(2, lower * 4)
            chosen = ((counts > lower) & (counts <= upper)).nonzero().flatten()
            if len(chosen):
                local = torch.full_like(counts, -1)
                local[chosen] = torch.arange(len(chosen), device=word.device)
                mine = (local[row] >= 0).nonzero().flatten()
                table = values.new_full((len(chosen), upper), -torch.inf)
                names = indices.new_full((len(chosen), upper), -1)
                table[local[row[mine]], place[mine]] = found[mine]
                names[local[row[mine]], place[mine]] = index[mine].to(torch.int32)
                some = touched[chosen]
                best, best_names = values[some], indices[some]
                self._merge(best, best_names, table, names)
                values[some], indices[some] = best, best_names
            lower = upper

    def _merge(self, values: Tensor, indices: Tensor, new: Tensor, names: Tensor) -> None:
        """Best k of two lists side by side, written back into ``values`` and ``indices``."""
        both = torch.cat([values, new], dim=1)
        best, places = both.topk(self.k, dim=1)
        indices.copy_(torch.cat([indices, names], dim=1).gather(1, places))
        values.copy_(best)
