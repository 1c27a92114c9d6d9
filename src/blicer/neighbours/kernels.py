"""One pass over the products of two vocabularies: tiles that fit in the processor's cache.

On a processor every thread multiplies and reads its own tiles, with a BLAS of one thread; that
needs no waiting for each other. NumPy's product is used there, for its BLAS is faster than
torch's on some processors (AMD's, by a fifth to a third) and about level on others.
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


# === sparse ===
def has_sparse_kernels(device: torch.device) -> bool:
    """Whether torch has sparse products for this device (MPS has not)."""
    return device.type in ("cpu", "cuda")


def csr(starts: Tensor, columns: Tensor, values: Tensor, size: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        # torch says once that CSR is in beta, and that invariants go unchecked: ours hold.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(starts, columns, values, size=size, check_invariants=False)


def pair_products(left: Tensor, right: Tensor, columns: Tensor) -> Tensor:
    """``out[i, j] = left[i] · right[columns[i, j]]``: six times as fast as gathering the rows."""
    rows, width = columns.shape
    if has_sparse_kernels(left.device):
        starts = torch.arange(0, rows * width + 1, width, device=left.device)
        pattern = csr(starts, columns.reshape(-1), left.new_zeros(rows * width), (rows, len(right)))
        products: Tensor = torch.sparse.sampled_addmm(pattern, left, right.T, beta=0.0).values()
        return products.view(rows, width)
    part = max(1, 2**26 // (width * left.shape[1]))
    return torch.cat(
        [
            torch.bmm(right[columns[i : i + part]], left[i : i + part, :, None]).squeeze(2)
            for i in range(0, rows, part)
        ]
    )


# === topk ===
GROUP = 16  # numbers folded into one maximum
LONG_ROW = 1024  # shorter rows go to torch.topk at once
FEW = 8  # times the numbers that are kept: of so many, few can be above the last of them


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
    """The best numbers seen so far for each word of a band, fed one tile at a time.

    After the first tiles few numbers can still enter a list: those above its last. Group maxima
    find the groups that hold such numbers; only these are read. What was found waits until the
    band has seen twice as many numbers as at the last merge: the bar is then a little low, which
    lets some more numbers through, but there are few merges. Several threads may feed one band.
    ``exact``: of equal numbers those of lower index are kept; numbers that bf16 made nearly all
    tie, and are not worth it.
    """

    def __init__(self, words: int, keep: int, device: torch.device, exact: bool = True) -> None:
        self.keep, self.exact = keep, exact
        self.values = torch.full((words, keep), -torch.inf, device=device)
        self.indices = torch.full((words, keep), -1, dtype=torch.int64, device=device)
        self._bar = self.values[:, -1].clone()
        self._open = True  # some list is not full yet
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self._seen = self._merged = 0
        self._lock = Lock()

    def update(self, tile: Tensor, first_index: int, *, columns: bool) -> None:
        """Take in a tile of similarities whose numbers are called ``first_index`` and up.

        With ``columns=False`` each row of the tile belongs to a word of this band, and the
        columns are the numbers offered to it; with ``columns=True`` the other way round.
        """
        offered = tile.shape[0] if columns else tile.shape[1]
        found = None
        if not self._open and offered >= FEW * self.keep:
            found = _above(tile, self._bar, self.keep, columns)
        if found is None:
            found = _best_of_tile(tile, min(self.keep, offered), columns, self.exact)
        word, place, value = found
        with self._lock:
            self._waiting.append((word, place + first_index, value))
            self._seen += offered
            if self._seen >= 2 * self._merged:
                self._merge()

    def finish(self) -> None:
        """Merge what still waits; ``values`` and ``indices`` are then complete, best first."""
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
        # One sort serves: the word above, its value, falling, below (an order-preserving integer).
        bits = value.view(torch.int32)
        falling = torch.bitwise_not(bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(torch.int64) + 2**31
        order = ((word << 32) + falling).argsort()
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


def _best_of_tile(
    tile: Tensor, k: int, columns: bool, exact: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The k best numbers of every word of a tile, as (word, place, value)."""
    block = tile.T.contiguous() if columns else tile
    value, place = top_k(block, k) if exact else block.topk(k, dim=1)
    word = torch.arange(len(value), device=tile.device).repeat_interleave(k)
    return word, place.flatten(), value.flatten()


def _above(
    tile: Tensor, bar: Tensor, k: int, columns: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """All numbers of a tile above their word's bar; None where that is no small part of it."""
    words, offered = tile.shape[::-1] if columns else tile.shape
    size = offered // GROUP
    folded = size * GROUP
    if columns:
        maxima = tile[:folded].unflatten(0, (GROUP, size)).amax(dim=0)
        group, word = places_of_true(maxima > bar)
    else:
        maxima = tile[:, :folded].unflatten(1, (GROUP, size)).amax(dim=1)
        word, group = places_of_true(maxima > bar[:, None])
    if len(word) > 2 * words * k:
        return None  # the first tiles, or words that get more and more similar
    members = torch.arange(GROUP, device=tile.device) * size
    places = group[:, None] + members
    row_stride, column_stride = (1, tile.shape[1]) if columns else (tile.shape[1], 1)
    found = tile.view(-1).take(word[:, None] * row_stride + places * column_stride)
    entry, member = places_of_true(found > bar[word][:, None])
    word, place, value = word[entry], places[entry, member], found[entry, member]
    if folded < offered:
        rest = tile[folded:].T if columns else tile[:, folded:]
        other, end = (rest > bar[:, None]).nonzero(as_tuple=True)
        word, value = torch.cat([word, other]), torch.cat([value, rest[other, end]])
        place = torch.cat([place, end + folded])
    return word, place, value


def places_of_true(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the few places that are true."""
    if mask.device.type == "cpu":  # NumPy skips what is false many times faster
        flat = torch.from_numpy(np.flatnonzero(mask.numpy()))
    else:
        flat = mask.flatten().nonzero().flatten()
    rows = flat.div(mask.shape[1], rounding_mode="floor")
    return rows, flat - rows * mask.shape[1]


# === scan ===
TILE_ROWS, TILE_NUMBERS = 2048, 2**21  # 8 MB of fp32 a thread: stays in the last-level cache
GPU_FACTOR = 8


@dataclass(frozen=True)
class Scan:
    """The scores of all pairs of rows: left · right − penalty of the right word.

    Rows may be bf16; scores are fp32, those of bf16 rows rounded to bf16 before the penalty.
    """

    left: Tensor
    right: Tensor
    penalty: Tensor | None = None

    def tile(self, rows: slice, columns: slice, buffer: Tensor) -> Tensor:
        left, right = self.left[rows], self.right[columns]
        tile = buffer[: len(left) * len(right)].view(len(left), len(right))
        if left.dtype != tile.dtype:
            tile.copy_(torch.mm(left, right.T))
        elif tile.device.type == "cpu":
            np.matmul(left.numpy(), right.numpy().T, out=tile.numpy())
        else:
            torch.mm(left, right.T, out=tile)
        if self.penalty is not None:
            tile -= self.penalty[columns]
        return tile


def best_of_rows(scan: Scan, k: int, *, memory_gb: float, label: str) -> tuple[Tensor, Tensor]:
    """Scores and indices of the k best right words of each left row, best first.

    Of equal scores the lower index comes first.
    """
    lists, _ = _run(scan, k, 0, memory_gb, label)
    return _settled(scan, lists, k)


def best_of_both(
    scan: Scan, k_rows: int, k_columns: int, *, memory_gb: float, label: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same for each left row and, from the same pass, for each right row."""
    rows, columns = _run(scan, k_rows, k_columns, memory_gb, label)
    turned = Scan(scan.right, scan.left)
    return *_settled(scan, rows, k_rows), *_settled(turned, columns, k_columns)


def _run(
    scan: Scan, k_rows: int, k_columns: int, memory_gb: float, label: str
) -> tuple[list[RunningTopK], list[RunningTopK]]:
    """Feed every tile to the lists of its rows and (where ``k_columns``) of its columns."""
    height, width = _tile_shape(scan, memory_gb)
    row_bands, column_bands = _bands(len(scan.left), height), _bands(len(scan.right), width)
    device, exact = scan.left.device, scan.left.dtype == torch.float32
    # One more than asked for shows whether the last place was a tie.
    keep = min(k_rows + 1, len(scan.right))
    rows = [RunningTopK(band.stop - band.start, keep, device, exact) for band in row_bands]
    keep = min(k_columns + 1, len(scan.left))
    columns = [RunningTopK(band.stop - band.start, keep, device, exact) for band in column_bands]
    tiles = ((i, j) for i in range(len(row_bands)) for j in range(len(column_bands)))
    lock = Lock()

    def work(running: progress.Task) -> None:
        buffer = torch.empty(height * width, device=device)
        while True:
            with lock:
                at = next(tiles, None)
            if at is None:
                return
            i, j = at
            tile = scan.tile(row_bands[i], column_bands[j], buffer)
            rows[i].update(tile, column_bands[j].start, columns=False)
            if k_columns:
                columns[j].update(tile, row_bands[i].start, columns=True)
            with lock:
                running.advance()

    with progress.task(label, len(row_bands) * len(column_bands)) as running:
        threads = torch.get_num_threads() if device.type == "cpu" else 1
        if min(threads, len(row_bands) * len(column_bands)) <= 1:
            work(running)
        else:
            with _one_thread_each(threads) as pool:
                started = [pool.submit(work, running) for _ in range(threads)]
                try:
                    for one in started:
                        one.result()
                finally:
                    with lock:
                        for _ in tiles:  # after an error or Ctrl-C the others stop at once
                            pass
    for band in rows if not k_columns else [*rows, *columns]:
        band.finish()
    return rows, columns


@contextmanager
def _one_thread_each(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool whose threads do not start further threads for their products and loops."""
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


def _tile_shape(scan: Scan, memory_gb: float) -> tuple[int, int]:
    numbers = TILE_NUMBERS * (1 if scan.left.device.type == "cpu" else GPU_FACTOR)
    threads = torch.get_num_threads() if scan.left.device.type == "cpu" else 1
    # A tile, its comparison mask and what was found in it are alive together.
    numbers = max(64, min(numbers, int(memory_gb * 2**30 / (16 * threads))))
    height = max(1, min(TILE_ROWS, len(scan.left), numbers))
    return height, max(1, min(len(scan.right), numbers // height))


def _settled(scan: Scan, bands: list[RunningTopK], k: int) -> tuple[Tensor, Tensor]:
    """The lists of all bands, k long, with ties in the order of their indices."""
    values = torch.cat([band.values for band in bands])
    indices = torch.cat([band.indices for band in bands])
    if scan.left.dtype != torch.float32:  # nearly all tie, and none is returned before rescoring
        return values[:, :k].contiguous(), indices[:, :k].contiguous()
    tied = (values[:, 1:] == values[:, :-1]).any(dim=1).nonzero().flatten()
    values, indices = values[:, :k].contiguous(), indices[:, :k].contiguous()
    for some in tied.split(max(1, TILE_NUMBERS * 4 // len(scan.right))):
        again = Scan(scan.left[some], scan.right, scan.penalty)
        buffer = values.new_empty(len(some) * len(scan.right))
        block = again.tile(slice(None), slice(None), buffer)
        values[some], indices[some] = top_k(block, k)
    return values, indices
