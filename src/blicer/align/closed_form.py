"""VecMap's supervised map in closed form: whiten, rotate, re-weight, de-whiten (METHOD.md §6)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from blicer.align.linear import apply_, cross_product, orthogonal_map
from blicer.align.procrustes import distinct_pairs
from blicer.progress import note

SMALLEST_VARIANCE = 1e-10  # of the largest: below it a direction is rounding error in float32


def whitening(rows: Tensor) -> Tensor | None:
    """The symmetric (d, d) float64 W that makes ``rows @ W`` uncorrelated; None if ill-posed."""
    variances, directions = torch.linalg.eigh(cross_product(rows, rows))
    if float(variances[0]) <= SMALLEST_VARIANCE * float(variances[-1]):
        return None
    scaled: Tensor = (directions / variances.sqrt()) @ directions.T
    return scaled


def final_map_(x: Tensor, y: Tensor, pairs: Tensor, reweight: float) -> bool:
    """VecMap's supervised map, applied to both matrices in place. True if it could whiten.

    Whitened seeds give canonical correlations. With fewer than 2·d distinct seeds some of these
    are 1 whatever the data (two d-dimensional subspaces of a smaller space always meet), with
    fewer than d the whitening itself does not exist. Then the orthogonal map, which is well-posed,
    takes its place (on held-out seeds it is better there by 4 to 20 points of P@1).
    """
    dimensions, distinct = x.shape[1], distinct_pairs(np.asarray(pairs))
    rows_x = x[pairs[:, 0].to(x.device)]
    rows_y = y[pairs[:, 1].to(y.device)]
    whiten_x = whitening(rows_x) if distinct >= 2 * dimensions else None
    whiten_y = whitening(rows_y) if distinct >= 2 * dimensions else None
    if whiten_x is None or whiten_y is None:
        why = (
            f"{distinct} distinct seed pairs are too few to whiten {dimensions} dimensions"
            f" (at least {2 * dimensions} are needed)"
            if distinct < 2 * dimensions
            else "the seed vectors do not span all dimensions"
        )
        note(f"{why}: mapped by orthogonal Procrustes instead")
        apply_(x, orthogonal_map(rows_x, rows_y))
        return False
    correlation = whiten_x.T @ cross_product(rows_x, rows_y) @ whiten_y
    left, scales, right = torch.linalg.svd(correlation)
    weights = torch.diag(scales.clamp(min=0) ** reweight)
    # whiten, rotate, re-weight, de-whiten with the side's own whitening (seen in the rotated axes)
    apply_(x, whiten_x @ left @ weights @ left.T @ torch.linalg.inv(whiten_x) @ left)
    turn = right.T
    apply_(y, whiten_y @ turn @ weights @ right @ torch.linalg.inv(whiten_y) @ turn)
    return True
