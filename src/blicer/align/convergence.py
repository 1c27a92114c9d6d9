"""Whether the outcome of self-learning is a real map, or what chance would give.

Self-learning always ends with a dictionary. A real one holds up: mapped with one half of its pairs,
the other half is found again. Dictionaries learned from random starts say how much of that chance
gives (docs/method.md §8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from blicer.align.base import orthogonal_map

ENOUGH = 0.15  # score above which a map is accepted; wrong ones stay near 0
WORDS = 4_000  # most frequent words that the check looks at
SPLITS = 4  # random halves that the agreement is averaged over
RANDOM_STARTS = 3
FEWEST_PAIRS = 10


@dataclass(frozen=True)
class Convergence:
    """Share of held-out pairs that are found again, and the best that random starts reach."""

    agreement: float
    chance: float

    @property
    def score(self) -> float:
        """1 if all are found again, 0 if no more than by chance."""
        return (self.agreement - self.chance) / max(1e-9, 1.0 - self.chance)

    @property
    def converged(self) -> bool:
        return self.score >= ENOUGH


def check_convergence(
    x: Tensor,
    y: Tensor,
    pairs: Tensor,
    *,
    seed: int,
    mutual: Callable[[Tensor, Tensor], Tensor],
    self_learn: Callable[[Tensor, Tensor, Tensor, int], Tensor],
) -> Convergence:
    """Judge the dictionary (pairs, 2) that self-learning ended with on unit rows x and y.

    ``mutual(mapped x, y)`` gives the pairs that are each other's best match; ``self_learn(x, y,
    first pairs, start)`` what a short self-learning makes of a random start.
    """
    x, y = x[:WORDS], y[:WORDS]
    pairs = pairs[(pairs[:, 0] < len(x)) & (pairs[:, 1] < len(y))]
    generator = torch.Generator().manual_seed(seed)

    def found_with(dictionary: Tensor) -> Tensor:
        rows = dictionary.to(x.device)
        weights = orthogonal_map(x[rows[:, 0]], y[rows[:, 1]]).to(x.dtype).to(x.device)
        return mutual(x @ weights, y)

    def keys(dictionary: Tensor) -> Tensor:
        return dictionary[:, 0] * len(y) + dictionary[:, 1]

    def agreement(dictionary: Tensor) -> float:
        known = found_with(dictionary)
        if len(known) < FEWEST_PAIRS:
            return 0.0
        shares = []
        for _ in range(SPLITS):
            order = torch.randperm(len(known), generator=generator)
            half, rest = known[order[: len(order) // 2]], known[order[len(order) // 2 :]]
            again = torch.isin(keys(rest), keys(found_with(half)))
            shares.append(float(again.double().mean()))
        return sum(shares) / len(shares)

    chance = []
    for start in range(RANDOM_STARTS):
        random = torch.stack(
            [
                torch.randperm(len(side), generator=generator)[: min(len(x), len(y))]
                for side in (x, y)
            ],
            dim=1,
        )
        chance.append(agreement(self_learn(x, y, random, start)))
    return Convergence(agreement(pairs), max(chance))
