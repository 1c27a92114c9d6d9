"""Piece vectors whose weighted mean is the USE encoder's vector of the word that they make up.

The encoder's vector of a piece by itself says little of its part in a word: an ending such as
"-ing" should hardly count. So the vectors and weights of pieces are fitted to whole words.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F


def fit_pieces(
    start: np.ndarray,
    fixed: np.ndarray,
    importance: np.ndarray,
    sequences: list[list[int]],
    targets: np.ndarray,
    *,
    epochs: int = 15,
    learning_rate: float = 0.01,
    batch: int = 4096,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Unit vectors (tokens, d) and log weights (tokens,), and the mean cosine of each epoch.

    ``start`` and ``importance`` are where they begin; the vectors of ``fixed`` tokens stay.
    ``targets`` are the words' unit vectors.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    units = F.normalize(torch.tensor(start), dim=-1)
    # Few tokens are learned: the optimiser need not go through all the others at every step.
    place = torch.from_numpy(np.where(fixed, -1, np.cumsum(~fixed) - 1))
    vectors = torch.tensor(start[~fixed], requires_grad=True)
    weights = torch.tensor(importance, requires_grad=True)
    goal = torch.tensor(targets)
    lengths = np.array([len(sequence) for sequence in sequences])
    flat = np.concatenate([np.asarray(sequence) for sequence in sequences])
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    optimiser = torch.optim.Adam([vectors, weights], lr=learning_rate)
    means, steps = [], max(1, len(sequences) // batch) * epochs
    step = 0
    for _ in range(epochs):
        total = 0.0
        for rows in np.array_split(rng.permutation(len(sequences)), max(1, steps // epochs)):
            places = np.concatenate([np.arange(begins[r], begins[r] + lengths[r]) for r in rows])
            ids = torch.from_numpy(flat[places])
            bag = torch.from_numpy(np.repeat(np.arange(len(rows)), lengths[rows]))
            free = place[ids] >= 0
            learned = F.normalize(vectors[place[ids[free]]], dim=-1)
            parts = weights[ids].exp()[:, None] * units[ids].index_put((free,), learned)
            sums = torch.zeros(len(rows), start.shape[1]).index_add(0, bag, parts)
            cosine = (F.normalize(sums, dim=-1) * goal[rows]).sum(-1)
            optimiser.param_groups[0]["lr"] = learning_rate * (1 - step / (steps + 1))
            optimiser.zero_grad()
            (1 - cosine).mean().backward()
            optimiser.step()
            step += 1
            total += float(cosine.detach().sum())
        means.append(total / len(sequences))
    with torch.no_grad():
        units[torch.from_numpy(~fixed)] = F.normalize(vectors, dim=-1)
        return units.numpy(), weights.detach().numpy(), means
