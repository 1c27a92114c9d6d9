"""Procrustes: the orthogonal map that brings the seed words nearest to their translations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from blicer.align.base import (
    Aligner,
    Folder,
    Seeds,
    apply_,
    orthogonal_map,
    prepare,
)
from blicer.align.space import Space
from blicer.config import setting
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.neighbours.mining import Pairs
from blicer.progress import note


@dataclass(kw_only=True)
class Procrustes(Aligner):
    """Orthogonal map by SVD of the seeds' cross-covariance (docs/method.md §6).

    >>> space = Procrustes().align(english, french, seeds)  # doctest: +SKIP
    """

    method = "procrustes"
    presets: ClassVar = {"supervised": {}, "semi_supervised": {}}

    centre: bool = setting(True, "subtract the mean vector of each side")

    def fit(
        self, source: Embeddings, target: Embeddings, pairs: Seeds, *, work: Folder = None
    ) -> Space:
        pairs = self.require_seeds(pairs)
        x, y = prepare(source, target, centre=self.centre, device=resolve_device(self.device))
        note_if_undetermined(pairs, x.shape[1])
        weights = procrustes_map(x, y, pairs)
        return self.space(source, target, apply_(x, weights), y, seed_pairs=len(pairs))


def procrustes_map(x: Tensor, y: Tensor, pairs: Pairs) -> Tensor:
    """Orthogonal (d, d) float64 map of the seed rows of ``x`` onto those of ``y``."""
    rows = torch.from_numpy(pairs).to(x.device)
    return orthogonal_map(x[rows[:, 0]], y[rows[:, 1]])


def count_distinct_words(pairs: Pairs) -> int:
    """The number of distinct source or distinct target words, whichever is smaller."""
    return min(len(np.unique(pairs[:, 0])), len(np.unique(pairs[:, 1])))


def note_if_undetermined(pairs: Pairs, dimensions: int) -> None:
    """Note if there are fewer seeds than dimensions: the best orthogonal map is one of many."""
    distinct = count_distinct_words(pairs)
    if distinct < dimensions:
        note(
            f"{distinct} distinct seed pairs for {dimensions} dimensions leave part of the map "
            "undetermined: expect a poor space, or use VecMap's semi-supervised mode"
        )
