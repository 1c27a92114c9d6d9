"""Exact k-best selection over all pairs of two vocabularies, and sparse products.

``GroupMaxima`` selects; ``Scan`` multiplies in tiles that fit into the processor's cache, and feeds
them to ``RunningTopK``. On a CPU every thread multiplies and reads its own tiles, with
single-threaded BLAS. NumPy multiplies there: its BLAS is faster than torch's on some processors
(AMD's, by a fifth to a third) and about equal on others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from blicer import progress

GROUP = 16  # scores folded into one maximum
FEW = 8  # times k: ordering up to this many numbers a row is cheap
CACHED_BYTES = 2**24  # a block of this size stays in the cache between two reads
TILE_ROWS, TILE_NUMBERS = 2048, 2**21  # 8 MB of fp32 a thread: stays in the last-level cache
GPU_FACTOR = 8
Entries = tuple[Tensor, Tensor, Tensor]  # word, candidate and score of some pairs


class GroupMaxima:
    """Selects the best candidates of every row, or of every column, of a matrix of scores.

    A word's k best candidates lie in the groups with the k best maxima, so a selection reads
    only these. The groups of a row are strided, those of a column are consecutive: both fold
    along memory. ``penalty`` (candidates,) is subtracted from the scores when they are read;
    ``fold`` is then given blocks that have it subtracted.
    """

    def __init__(self, scores: Tensor, *, columns: bool = False) -> None:
        self.scores, self.columns = scores, columns
        self.words, self.candidates = scores.shape[::-1] if columns else scores.shape
        self.groups = -(-self.candidates // GROUP)
        shape = (self.groups, self.words) if columns else (self.words, self.groups)
        self.maxima = scores.new_empty(shape)
        self.penalty: Tensor | None = None
        self._integer = torch.int32 if scores.numel() < 2**31 else torch.int64

    def fold(self, block: Tensor | None = None, rows: slice = slice(0, None)) -> GroupMaxima:
        """Take the maxima of ``rows`` of the matrix (all by default, else a multiple of GROUP).

        ``block`` holds these rows, with the penalty subtracted if there is one.
        """
        block = self.scores if block is None else block
        if self.columns:
            first, whole = rows.start // GROUP, len(block) // GROUP
            maxima = self.maxima[first : first + whole]
            torch.amax(block[: whole * GROUP].unflatten(0, (-1, GROUP)), dim=1, out=maxima)
            if whole * GROUP < len(block):
                self.maxima[first + whole] = block[whole * GROUP :].amax(dim=0)
            return self
        whole = self.candidates // self.groups * self.groups
        maxima = self.maxima[rows]
        torch.amax(block[:, :whole].unflatten(1, (-1, self.groups)), dim=1, out=maxima)
        if whole < self.candidates:
            rest = maxima[:, : self.candidates - whole]
            torch.maximum(rest, block[:, whole:], out=rest)
        return self

    def best(self, k: int, words: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores and candidates (words, k), best first, of all words or of the given ones."""
        if words is None:
            words = torch.arange(self.words, device=self.scores.device)
        found = [
            self._best(k, part) for part in words.split(max(1, CACHED_BYTES // (8 * k * GROUP)))
        ]
        return torch.cat([part[0] for part in found]), torch.cat([part[1] for part in found])

    def _best(self, k: int, words: Tensor) -> tuple[Tensor, Tensor]:
        first, last = (int(words[0]), int(words[-1])) if len(words) else (0, -1)
        chosen = slice(first, last + 1) if last - first + 1 == len(words) else words
        maxima = self.maxima[:, chosen].T.contiguous() if self.columns else self.maxima[chosen]
        groups = maxima.topk(min(k, self.groups), dim=1, sorted=False).indices
        scores, candidates = self._members(words, groups)
        values, order = scores.topk(k, dim=1)
        return values, candidates.gather(1, order)

    def above(self, bar: Tensor, most: int) -> Entries | None:
        """All entries above their word's ``bar``; None if they lie in more than ``most`` groups."""
        if self.columns:
            group, word = places_of_true(self.maxima > bar)
        else:
            word, group = places_of_true(self.maxima > bar[:, None])
        if len(word) > most:
            return None
        scores, candidates = self._members(word, group[:, None])
        entry, member = places_of_true(scores > bar[word][:, None])
        return word[entry], candidates[entry, member].long(), scores[entry, member]

    def _members(self, words: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and candidates of all members of some groups (words, groups) of each word."""
        words, groups = words.to(self._integer)[:, None], groups.to(self._integer)
        member = torch.arange(GROUP, device=groups.device, dtype=self._integer)
        if self.columns:
            candidates = (groups[:, :, None] * GROUP + member).flatten(1)
        else:
            candidates = (groups[:, :, None] + member * self.groups).flatten(1)
        missing = None
        if self.candidates % GROUP:  # some groups lack their last members
            missing = candidates >= self.candidates
            candidates.clamp_(max=self.candidates - 1)
        width = self.scores.shape[1]
        places = (candidates * width).add_(words) if self.columns else candidates + words * width
        scores = self.scores.view(-1).index_select(0, places.view(-1)).view(places.shape)
        if self.penalty is not None:
            scores -= self.penalty.index_select(0, candidates.view(-1)).view(places.shape)
        if missing is not None:
            scores.masked_fill_(missing, -torch.inf)
        return scores, candidates


def cached_blocks(matrix: Tensor) -> list[slice]:
    """Blocks of rows that stay in the cache while they are folded (multiples of GROUP rows)."""
    height = max(1, CACHED_BYTES // (4 * matrix.shape[1] * GROUP)) * GROUP
    return _bands(len(matrix), height)


def places_of_true(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the true entries (few), in row-major order."""
    if mask.device.type == "cpu":  # NumPy skips what is false many times faster
        flat = torch.from_numpy(np.flatnonzero(mask.numpy()))
    else:
        flat = mask.flatten().nonzero().flatten()
    rows = flat.div(mask.shape[1], rounding_mode="floor")
    return rows, flat - rows * mask.shape[1]


def top_columns(block: Tensor, k: int, bar: Tensor | None = None) -> Tensor:
    """Columns (rows, k) of the k best of each row, in no particular order.

    ``bar`` (rows,): a value that at least k numbers of the row are expected to reach. Only numbers
    above it are ordered, which takes a third of the time for hundreds out of tens of thousands.
    """
    if bar is None:
        return block.topk(k, dim=1, sorted=False).indices
    row, column = places_of_true(block >= bar[:, None])
    counts = torch.bincount(row, minlength=len(block))
    if len(row) > FEW * k * len(block) or int(counts.min()) < k:
        return block.topk(k, dim=1, sorted=False).indices
    place = torch.arange(len(row), device=block.device) - (counts.cumsum(0) - counts)[row]
    listed = column.new_zeros(len(block), int(counts.max()))
    values = block.new_full(listed.shape, -torch.inf)
    listed[row, place], values[row, place] = column, block[row, column]
    return listed.gather(1, values.topk(k, dim=1, sorted=False).indices)


class RunningTopK:
    """The best candidates so far of each word of a band, fed one tile of scores at a time.

    After the first tiles few scores can still enter a list: those above its last one. They are
    merged when the band has seen twice as many scores as at the last merge. Until then the bar is
    a little low and lets more scores through, but merges are few. Several threads may feed one
    band. Which of equal scores is kept is arbitrary.
    """

    def __init__(self, words: int, keep: int, device: torch.device) -> None:
        self.keep = keep
        self.values = torch.full((words, keep), -torch.inf, device=device)
        self.indices = torch.full((words, keep), -1, dtype=torch.int64, device=device)
        self._bar = self.values[:, -1].clone()
        self._open = True  # some list is not full yet
        self._waiting: list[Entries] = []
        self._seen = self._merged = 0
        self._lock = Lock()

    def update(self, tile: Tensor, first_index: int, *, columns: bool) -> None:
        """Take in a tile whose candidates have the indices ``first_index`` and up.

        The band's words are the rows of the tile, or its ``columns``.
        """
        maxima, found = GroupMaxima(tile, columns=columns).fold(), None
        if not self._open:
            found = maxima.above(self._bar, most=2 * len(self.values) * self.keep)
        if found is None:  # the first tiles, or words that get more and more similar
            value, place = maxima.best(min(self.keep, maxima.candidates))
            word = torch.arange(len(value), device=tile.device).repeat_interleave(value.shape[1])
            found = word, place.flatten().long(), value.flatten()
        word, place, value = found
        with self._lock:
            self._waiting.append((word, place + first_index, value))
            self._seen += maxima.candidates
            if self._seen >= 2 * self._merged:
                self._merge()

    def finish(self) -> None:
        """Merge the rest; ``values`` and ``indices`` are then complete, best first."""
        with self._lock:
            self._merge()

    def _merge(self) -> None:
        if not self._waiting:
            return
        words = len(self.values)
        own = torch.arange(words, device=self.values.device).repeat_interleave(self.keep)
        word = torch.cat([own, *(entry[0] for entry in self._waiting)])
        index = torch.cat([self.indices.flatten(), *(entry[1] for entry in self._waiting)])
        value = torch.cat([self.values.flatten(), *(entry[2] for entry in self._waiting)])
        order = value.argsort(descending=True)
        order = order[word[order].argsort(stable=True)]
        word = word[order]
        counts = torch.bincount(word, minlength=words)
        rank = torch.arange(len(word), device=word.device) - (counts.cumsum(0) - counts)[word]
        best = order[rank < self.keep]
        self.values = value[best].view(words, self.keep)
        self.indices = index[best].view(words, self.keep)
        self._bar = self.values[:, -1].clone()
        self._open = not bool(torch.isfinite(self._bar).all())
        self._waiting = []
        self._merged = self._seen


@dataclass(frozen=True)
class Scan:
    """One pass over the scores of all pairs of rows: left · right − penalty of the right word.

    ``memory_gb`` bounds working memory, ``label`` names the pass in the progress display.
    """

    left: Tensor
    right: Tensor
    penalty: Tensor | None = None
    memory_gb: float = 2.0
    label: str = "comparing words"

    def best(self, k: int) -> tuple[Tensor, Tensor]:
        """Scores and indices of the k best right words of each left row, best first.

        Of equal scores the lower index comes first.
        """
        return self._settled(self._run(k, 0)[0], k)

    def best_both(self, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``best``, and from the same pass the k best left rows of each right row (no penalty).

        There are fewer than k of each if the other side has fewer rows.
        """
        k_rows, k_columns = min(k, len(self.right)), min(k, len(self.left))
        rows, columns = self._run(k_rows, k_columns)
        turned = Scan(self.right, self.left)
        return *self._settled(rows, k_rows), *turned._settled(columns, k_columns)

    def tile(self, rows: slice, columns: slice, buffer: Tensor) -> Tensor:
        left, right = self.left[rows], self.right[columns]
        tile = buffer[: len(left) * len(right)].view(len(left), len(right))
        if tile.device.type == "cpu":
            np.matmul(left.numpy(), right.numpy().T, out=tile.numpy())
        else:
            torch.mm(left, right.T, out=tile)
        if self.penalty is not None:
            tile -= self.penalty[columns]
        return tile

    def _run(self, k_rows: int, k_columns: int) -> tuple[list[RunningTopK], list[RunningTopK]]:
        """Feed every tile to the lists of its rows and (where ``k_columns``) of its columns."""
        device = self.left.device
        threads = torch.get_num_threads() if device.type == "cpu" else 1
        height, width = self._tile_shape(threads)
        row_bands, column_bands = _bands(len(self.left), height), _bands(len(self.right), width)
        # One more than wanted shows whether there is a tie for the last place.
        keep = min(k_rows + 1, len(self.right)), min(k_columns + 1, len(self.left))
        rows, columns = (
            [RunningTopK(band.stop - band.start, most, device) for band in bands]
            for bands, most in zip((row_bands, column_bands), keep, strict=True)
        )
        tiles = [(i, j) for i in range(len(row_bands)) for j in range(len(column_bands))]
        tiles_left = iter(tiles)  # of a list: threads may share it
        lock = Lock()

        def work() -> None:
            buffer = torch.empty(height * width, device=device)
            while (at := next(tiles_left, None)) is not None:
                i, j = at
                tile = self.tile(row_bands[i], column_bands[j], buffer)
                rows[i].update(tile, column_bands[j].start, columns=False)
                if k_columns:
                    columns[j].update(tile, row_bands[i].start, columns=True)
                with lock:
                    running.advance()

        with progress.task(self.label, len(tiles)) as running:
            if min(threads, len(tiles)) <= 1:
                work()
            else:
                with _one_thread_each(threads) as pool:
                    started = [pool.submit(work) for _ in range(threads)]
                    try:
                        for one in started:
                            one.result()
                    finally:
                        list(tiles_left)  # after an error or Ctrl-C the others stop at once
        for band in rows if not k_columns else [*rows, *columns]:
            band.finish()
        return rows, columns

    def _tile_shape(self, threads: int) -> tuple[int, int]:
        numbers = TILE_NUMBERS * (1 if self.left.device.type == "cpu" else GPU_FACTOR)
        # A tile, its comparison mask and what was found in it are alive together.
        numbers = max(64, min(numbers, int(self.memory_gb * 2**30 / (16 * threads))))
        height = max(1, min(TILE_ROWS, len(self.left), numbers))
        return height, max(1, min(len(self.right), numbers // height))

    def _settled(self, bands: list[RunningTopK], k: int) -> tuple[Tensor, Tensor]:
        """The lists of all bands, cut to k, with ties ordered by index.

        Words are stored by frequency, so ties go to the more frequent word.
        """
        values = torch.cat([band.values for band in bands])
        indices = torch.cat([band.indices for band in bands])
        tied = (values[:, 1:] == values[:, :-1]).any(dim=1).nonzero().flatten()
        values, indices = values[:, :k].contiguous(), indices[:, :k].contiguous()
        for some in tied.split(max(1, TILE_NUMBERS * 4 // len(self.right))):
            again = Scan(self.left[some], self.right, self.penalty)
            buffer = values.new_empty(len(some) * len(self.right))
            tile = again.tile(slice(None), slice(None), buffer)
            ordered, order = tile.sort(dim=1, descending=True, stable=True)
            values[some], indices[some] = ordered[:, :k], order[:, :k]
        return values, indices


@contextmanager
def _one_thread_each(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool whose threads run BLAS and torch single-threaded."""
    try:
        with (
            threadpool_limits(1, user_api="blas"),
            ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
        ):
            yield pool
    finally:
        torch.set_num_threads(threads)


def _bands(words: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, words)) for start in range(0, words, size)]


def csr(starts: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        # torch warns once that CSR is in beta and that invariants are not checked; ours hold.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(starts, columns, values, size=size, check_invariants=False)


def pair_products(left: Tensor, right: Tensor, columns: Tensor) -> Tensor:
    """``out[i, j] = left[i] · right[columns[i, j]]``, six times as fast as gathering the rows."""
    rows, width = columns.shape
    starts = torch.arange(0, rows * width + 1, width, device=left.device)
    pattern = csr(starts, columns.reshape(-1), left.new_zeros(rows * width), (rows, len(right)))
    products = torch.sparse.sampled_addmm(pattern, left, right.T, beta=0.0).values()
    return products.view(rows, width)
