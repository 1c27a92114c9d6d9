"""The linear algebra that the methods share: normalisation, PCA, closed-form maps.

Word matrices are float32 tensors (words, dimensions) that may hold millions of rows, so they are
changed in place, block by block. Everything of size (dimensions, dimensions) is float64 on the
CPU, where it costs nothing and saves the small singular values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

BLOCK_ROWS = 16_384
PCA_WORDS = 20_000


def matrix(vectors: np.ndarray, device: torch.device) -> Tensor:
    """A float32 tensor of our own (words, dimensions), free to be changed in place."""
    if device.type == "cpu":
        return torch.from_numpy(np.array(vectors, dtype=np.float32, order="C"))
    return torch.cat(
        [
            torch.from_numpy(np.array(vectors[start : start + BLOCK_ROWS], dtype=np.float32))
            for start in range(0, len(vectors), BLOCK_ROWS)
        ]
    ).to(device)


def blocks(rows: Tensor) -> Iterator[Tensor]:
    """Views of consecutive rows, small enough that a temporary copy of one does not matter."""
    for start in range(0, len(rows), BLOCK_ROWS):
        yield rows[start : start + BLOCK_ROWS]


def unit_(rows: Tensor) -> Tensor:
    """Give every row length one, in place; a zero row stays zero."""
    for block in blocks(rows):
        length = block.norm(dim=1, keepdim=True)
        block /= torch.where(length > 0, length, torch.ones_like(length))
    return rows


def mean_row(rows: Tensor) -> Tensor:
    """Mean of the rows (dimensions,), float64 on the CPU."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for block in blocks(rows):
        total += block.cpu().double().sum(dim=0)
    return total / max(1, len(rows))


def centre_(rows: Tensor) -> Tensor:
    """Take the mean row away from every row, in place."""
    mean = mean_row(rows).to(rows.dtype).to(rows.device)
    for block in blocks(rows):
        block -= mean
    return rows


def normalise_(rows: Tensor, steps: Iterable[str]) -> Tensor:
    """Apply ``unit`` and ``centre`` steps in order, in place."""
    for step in steps:
        {"unit": unit_, "centre": centre_}[step](rows)
    return rows


def cross_product(left: Tensor, right: Tensor, *, exact: bool = True) -> Tensor:
    """``left.T @ right`` (dimensions, dimensions), accumulated in float64 on the CPU.

    With ``exact=False`` blocks are multiplied as they are, in float32.
    """
    total = torch.zeros(left.shape[1], right.shape[1], dtype=torch.float64)
    for one, other in zip(blocks(left), blocks(right), strict=True):
        if exact:
            total += one.cpu().double().T @ other.cpu().double()
        else:
            total += (one.T @ other).cpu()
    return total


def principal_directions(rows: Tensor, dimensions: int) -> Tensor:
    """The ``dimensions`` directions in which the rows extend most (columns), float64 on the CPU.

    The most frequent words decide: their vectors carry the least noise.
    """
    frequent = rows[:PCA_WORDS]
    vectors: Tensor = torch.linalg.eigh(cross_product(frequent, frequent)).eigenvectors
    return vectors.flip(1)[:, :dimensions]


def orthogonal_map(source: Tensor, target: Tensor, *, exact: bool = True) -> Tensor:
    """The orthogonal W with ``source @ W`` nearest to ``target`` (Procrustes), float64."""
    left, _, right = torch.linalg.svd(cross_product(source, target, exact=exact))
    product: Tensor = left @ right
    return product


def apply_(rows: Tensor, weights: Tensor) -> Tensor:
    """``rows @ weights`` for a square map, in place."""
    weights = weights.to(rows.dtype).to(rows.device)
    for block in blocks(rows):
        block.copy_(block @ weights)
    return rows


def reduce(rows: Tensor, directions: Tensor) -> Tensor:
    """Rows seen along ``directions``: a new, narrower matrix."""
    directions = directions.to(rows.dtype).to(rows.device)
    narrow = rows.new_empty(len(rows), directions.shape[1])
    for block, out in zip(blocks(rows), blocks(narrow), strict=True):
        torch.mm(block, directions, out=out)
    return narrow
