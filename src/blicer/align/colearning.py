"""A dictionary from two views of the words: their mapped vectors, and an encoder's own vectors.

An encoder that knows both languages gives a first dictionary, with errors of its own. Vectors that
are mapped by it make other errors. Words that are each other's nearest neighbours in both views put
side by side are more often right than in either, so these give the next map, and so on. Plain
self-learning, by contrast, forgets what the encoder knew.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from blicer import progress
from blicer.align.closed_form import final_map_
from blicer.align.linear import unit_
from blicer.errors import InputError
from blicer.retrieval import Retriever


def mutual_neighbours(retriever: Retriever) -> np.ndarray:
    """Pairs (pairs, 2) that are each other's best by CSLS, the most confident first."""
    there, back = retriever.search(1), retriever.search(1, reverse=True)
    best = there.indices[:, 0]
    mutual = np.flatnonzero(back.indices[best, 0] == np.arange(len(best)))
    mutual = mutual[np.argsort(-there.scores[mutual, 0], kind="stable")]
    return np.stack([mutual, best[mutual]], axis=1)


def co_learn(
    x: Tensor,
    y: Tensor,
    encoded_x: Tensor,
    encoded_y: Tensor,
    *,
    rounds: int = 3,
    reweight: float = 0.5,
    k_csls: int = 10,
    memory_gb: float = 2.0,
) -> Tensor:
    """The dictionary (pairs, 2) after ``rounds`` of mapping and looking at both views.

    Rows of x, y and of the encoder's vectors are the same most frequent words. With 0 rounds the
    dictionary is the encoder's alone.
    """

    def neighbours(left: Tensor, right: Tensor) -> Tensor:
        retriever = Retriever(left, right, k_csls=k_csls, device=x.device, memory_gb=memory_gb)
        return torch.from_numpy(mutual_neighbours(retriever))

    pairs = neighbours(encoded_x, encoded_y)
    if not len(pairs):
        raise InputError(
            "the encoder finds no two words near each other; expected some for a start from it "
            "(use seeds, identical words, or the unsupervised start)"
        )
    with progress.task("learning from vectors and encoder", rounds) as running:
        for _ in range(rounds):
            mapped_x, mapped_y = x.clone(), y.clone()
            final_map_(mapped_x, mapped_y, pairs, reweight)
            both_x = torch.cat([unit_(mapped_x), encoded_x], dim=1)
            both_y = torch.cat([unit_(mapped_y), encoded_y], dim=1)
            pairs = neighbours(both_x, both_y)
            running.advance(status=f"{len(pairs)} pairs")
    return pairs
