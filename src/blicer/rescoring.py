"""From a scan in bf16 to exact results: score again in fp32, and prove that nothing was missed."""

from __future__ import annotations

import torch
from torch import Tensor

from blicer.scan import Scan, best_of_rows
from blicer.sparse import pair_products
from blicer.topk import top_k

PAIRS_AT_ONCE = 2**22
UNIT_ROUNDING = 2.0**-8  # bf16 keeps eight bits: half of the last one's step
SUMMATION = 1e-4  # more than what adding up in fp32, in any order, changes of a cosine


def in_fp32(
    scan: Scan, coarse: Tensor, indices: Tensor, k: int, *, memory_gb: float
) -> tuple[Tensor, Tensor]:
    """The k best of each row of ``scan`` (fp32), exact, from more than k that bf16 found.

    What bf16 left out scored no more there than the last that it kept. Where the k-th fp32 score
    is above that by all that rounding can do, no better word was left out; other rows are scanned
    again in fp32.
    """
    values = torch.empty(len(indices), k, device=scan.left.device)
    places = torch.empty(len(indices), k, dtype=torch.int64, device=scan.left.device)
    chosen = indices.long().sort(dim=1).values  # by index, so that ties fall to frequent words
    step = max(1, PAIRS_AT_ONCE // chosen.shape[1])
    for start in range(0, len(chosen), step):
        part = slice(start, start + step)
        exact = pair_products(scan.left[part].contiguous(), scan.right, chosen[part])
        if scan.penalty is not None:
            exact = exact - scan.penalty[chosen[part]]
        values[part], found = top_k(exact, k)
        places[part] = chosen[part].gather(1, found)
    if chosen.shape[1] < len(scan.right):
        last = coarse[:, -1].float()
        again = (values[:, -1] <= last + _largest_error(scan, last)).nonzero().flatten()
        if len(again):
            values[again], places[again] = best_of_rows(
                Scan(scan.left[again], scan.right, scan.penalty),
                k,
                memory_gb=memory_gb,
                label="scanning close calls again",
            )
    return values, places


def _largest_error(scan: Scan, last: Tensor) -> Tensor:
    """By how much fp32 may score a word that bf16 left out above ``last``, for each left row.

    With x', y' the rounded rows, x·y - x'·y' = (x - x')·y + x'·(y - y'), and no product is above
    that of the lengths. The product itself is rounded, too, in proportion to its size: that of a
    word near ``last`` is at most ``last`` and the largest penalty, and one far below stays below.
    """
    left, left_error = _lengths(scan.left)
    right, right_error = (each.max() for each in _lengths(scan.right))
    penalty = scan.penalty.abs().max() if scan.penalty is not None else 0.0
    rounded = (last.abs() + penalty) * (UNIT_ROUNDING / (1 - UNIT_ROUNDING))
    factors = left_error * right + (left + left_error) * right_error
    bound: Tensor = factors + rounded + SUMMATION * left * right
    return bound


def _lengths(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The length of each row, and of what bf16 takes away from it."""
    lengths, errors = [], []
    for some in rows.split(65536):
        lengths.append(some.norm(dim=1))
        errors.append((some - some.bfloat16().float()).norm(dim=1))
    return torch.cat(lengths), torch.cat(errors)
