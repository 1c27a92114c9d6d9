"""One pass over the products of two vocabularies: tiles that fit in the processor's cache.

On a processor every thread multiplies and reads its own tiles, with a BLAS of one thread; that
needs no waiting for each other. NumPy's product is used there, for its BLAS is faster than
torch's on some processors (AMD's, by a fifth to a third) and about level on others.
"""

from __future__ import annotations

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
from blicer.topk import RunningTopK, top_k

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
