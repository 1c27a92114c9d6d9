"""Procrustes: the orthogonal map that brings the seed words nearest to their translations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from blicer.align.base import UNIT_CENTRE_UNIT, Aligner, prepare, seeds_to_indices
from blicer.align.linear import apply_, orthogonal_map
from blicer.align.space import Space
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.lexicon import Lexicon
from blicer.progress import note


class Procrustes(Aligner):
    """Orthogonal map by SVD of the seeds' cross-covariance (METHOD.md §6).

    >>> space = Procrustes().align(english, french, seeds)  # doctest: +SKIP
    """

    method = "procrustes"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"supervised": {}, "semi_supervised": {}}

    def __init__(self, *, centre: bool = True, device: str = "auto") -> None:
        self.centre = centre
        self.device = device

    def align(self, source: Embeddings, target: Embeddings, seeds: Lexicon | None = None) -> Space:
        device = resolve_device(self.device)
        pairs = seeds_to_indices(source, target, seeds, method="Procrustes")
        normalisation = UNIT_CENTRE_UNIT if self.centre else ("unit",)
        x, y = prepare(source, target, normalisation=normalisation, device=device)
        say_if_undetermined(pairs, x.shape[1])
        weights = procrustes_map(x, y, pairs)
        return self.space(source, target, apply_(x, weights), y, seed_pairs=len(pairs))


def procrustes_map(x: Tensor, y: Tensor, pairs: np.ndarray) -> Tensor:
    """Orthogonal (d, d) float64 map of the seed rows of ``x`` onto those of ``y``."""
    rows = torch.from_numpy(pairs).to(x.device)
    return orthogonal_map(x[rows[:, 0]], y[rows[:, 1]])


def distinct_pairs(pairs: np.ndarray) -> int:
    """How many seeds count: the fewer of the distinct source and the distinct target words."""
    return min(len(np.unique(pairs[:, 0])), len(np.unique(pairs[:, 1])))


def say_if_undetermined(pairs: np.ndarray, dimensions: int) -> None:
    """With fewer seeds than dimensions the best orthogonal map is one of many."""
    distinct = distinct_pairs(pairs)
    if distinct < dimensions:
        note(
            f"{distinct} distinct seed pairs for {dimensions} dimensions leave part of the map "
            "undetermined: expect a poor space, or use VecMap's semi-supervised mode"
        )
