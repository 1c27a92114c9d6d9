"""Whether self-learning found the common structure of two spaces, judged without any gold.

Self-learning always ends in *some* dictionary that agrees with its own map, and its objective is
not far below that of a true map even when every pair is wrong. What a wrong map lacks is
redundancy: in a true one, half of the dictionary predicts the other half.

So: take the pairs that are each other's nearest neighbours, fit the orthogonal map on a random
half of them, and see how many of the other half are found again. A wrong map scores more than
zero, as its pairs were chosen to agree with one map; how much more is measured by running
self-learning itself, with less patience, from random dictionaries. The score is the agreement
above that chance level, as a share of what was possible (the form of Cohen's kappa): 0 for
chance, 1 for perfect redundancy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from blicer.align.induction import induce
from blicer.align.linear import orthogonal_map
from blicer.align.selflearning import Schedule, self_learn

ENOUGH = 0.2  # score above which a map is believed; wrong ones stay near 0
WORDS = 4_000  # most frequent words that the check looks at
SPLITS = 4  # random halves that the agreement is averaged over
NULL_STARTS, NULL_PATIENCE, NULL_ITERATIONS = 3, 3, 80
FEWEST_PAIRS = 10


@dataclass(frozen=True)
class Trust:
    """Agreement of held-out pairs, and the best that random starts reach."""

    agreement: float
    chance: float

    @property
    def score(self) -> float:
        return (self.agreement - self.chance) / max(1e-9, 1.0 - self.chance)

    @property
    def enough(self) -> bool:
        return self.score >= ENOUGH


def check_trust(
    x: Tensor, y: Tensor, pairs: Tensor, *, seed: int, k_csls: int = 10, memory_gb: float = 2.0
) -> Trust:
    """Judge the dictionary (pairs, 2) that self-learning ended with on unit rows x and y."""
    x, y = x[:WORDS], y[:WORDS]
    pairs = pairs[(pairs[:, 0] < len(x)) & (pairs[:, 1] < len(y))]
    generator = torch.Generator().manual_seed(seed)

    def learn(dictionary: Tensor) -> Tensor:
        """One deterministic step: the map of a dictionary, and the mutual neighbours under it."""
        weights = _map(x, y, dictionary)
        found = induce(x @ weights, y, generator=generator, k_csls=k_csls, memory_gb=memory_gb)
        return _mutual(found.pairs, found.forward)

    def agreement(dictionary: Tensor) -> float:
        mutual = learn(dictionary)
        if len(mutual) < FEWEST_PAIRS:
            return 0.0
        shares = []
        for _ in range(SPLITS):
            order = torch.randperm(len(mutual), generator=generator)
            half, rest = mutual[order[: len(order) // 2]], mutual[order[len(order) // 2 :]]
            found = torch.isin(_keys(rest, len(y)), _keys(learn(half), len(y)))
            shares.append(float(found.double().mean()))
        return sum(shares) / len(shares)

    smaller = min(len(x), len(y))
    schedule = Schedule(
        words=WORDS, k_csls=k_csls, patience=NULL_PATIENCE, max_iterations=NULL_ITERATIONS
    )
    chance = []
    for start in range(NULL_STARTS):
        random = torch.stack(
            [torch.randperm(len(side), generator=generator)[:smaller] for side in (x, y)], dim=1
        )
        learned = self_learn(
            *(x, y, random, schedule),
            seed=seed + start,
            memory_gb=memory_gb,
            label=f"checking the outcome ({start + 1} of {NULL_STARTS})",
        )
        chance.append(agreement(learned.pairs))
    return Trust(agreement(pairs), max(chance))


def _map(x: Tensor, y: Tensor, pairs: Tensor) -> Tensor:
    rows = pairs.to(x.device)
    return orthogonal_map(x[rows[:, 0]], y[rows[:, 1]]).to(x.dtype).to(x.device)


def _mutual(pairs: Tensor, forward: int) -> Tensor:
    """Pairs that both directions chose."""
    width = int(pairs[:, 1].max()) + 1
    both = torch.isin(_keys(pairs[:forward], width), _keys(pairs[forward:], width))
    return pairs[:forward][both]


def _keys(pairs: Tensor, width: int) -> Tensor:
    """One number a pair."""
    return pairs[:, 0] * width + pairs[:, 1]
