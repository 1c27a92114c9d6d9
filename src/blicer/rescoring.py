"""From a scan in bf16 to exact results: score again in fp32, and prove that nothing was missed."""

from __future__ import annotations

import torch
from torch import Tensor

from blicer.scan import Scan, best_of_rows
from blicer.topk import top_k

NUMBERS_AT_ONCE = 2**26  # of gathered vectors: 256 MB
UNIT_ROUNDING = 2.0**-8  # bf16 keeps eight bits: half of the last one's step


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
    fitting = min(NUMBERS_AT_ONCE, int(memory_gb * 2**28))
    step = max(1, fitting // (chosen.shape[1] * scan.left.shape[1]))
    for start in range(0, len(chosen), step):
        part = slice(start, start + step)
        exact = torch.bmm(scan.right[chosen[part]], scan.left[part].unsqueeze(2)).squeeze(2)
        if scan.penalty is not None:
            exact = exact - scan.penalty[chosen[part]]
        values[part], found = top_k(exact, k)
        places[part] = chosen[part].gather(1, found)
    if chosen.shape[1] < len(scan.right):
        unsure = values[:, -1] <= coarse[:, -1].float() + _largest_error(scan)
        again = unsure.nonzero().flatten()
        if len(again):
            values[again], places[again] = best_of_rows(
                Scan(scan.left[again], scan.right, scan.penalty),
                k,
                memory_gb=memory_gb,
                label="scanning close calls again",
            )
    return values, places


def _largest_error(scan: Scan) -> float:
    """How far a bf16 score can be from the fp32 one, for right rows of unit length.

    Both factors, their product, the penalty and the difference are rounded.
    """
    length = float(scan.left.norm(dim=1).max()) if len(scan.left) else 0.0
    penalty = float(scan.penalty.abs().max()) if scan.penalty is not None else 0.0
    roundings = 4 * length + 2 * penalty if scan.penalty is not None else 3 * length
    return 1.05 * UNIT_ROUNDING * roundings
