"""Learns from the seeds which endings go together, in a second, for any two languages.

A candidate is often the right word in the wrong form (*run* for *ran*). Word vectors hardly tell
forms apart, and a cosine of spellings cannot: different languages end differently. A logistic
regression on pairs of endings and of beginnings learns from a few thousand seeds that *-ed* goes
with *-ла* more often than with *-ть*, and *un-* with *не-*; on the endings of either word alone it
learns from a few hundred that dictionaries list base forms.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor

from blicer.errors import FileError
from blicer.scorers import check_lengths
from blicer.scorers.spelling import Spelling

Bools = NDArray[np.bool_]

FILE = "endings.safetensors"
# Combined features of the left and the right word, as indices of ``_codes``: the last 1 to 3
# letters (1 to 3), the first 2 and 3 (4, 5), the length (0), nothing (6).
COMBINED = (
    *((1, 1), (2, 2), (3, 3), (2, 3), (3, 2), (0, 0), (4, 4), (5, 5)),
    *((1, 6), (2, 6), (3, 6), (6, 1), (6, 2), (6, 3)),
)
BUCKETS = 1 << 17
LETTERS_A_STEP = 3  # lengths are binned in steps of so many letters
STRENGTH = 0.03  # of the loss, against the prior that every weight is 0
SEEDS_STRENGTH = 0.1  # of the seeds' loss, against the weights learned from all pairs
SPELLING_SCALE = 3.0
STEPS = 100


class Endings:
    """Learns from your seeds which endings go together, so that forms match.

    A logistic regression on endings and beginnings, lengths and similarity of spelling.
    """

    name = "endings"
    needs_seeds = True

    def __init__(self) -> None:
        # Of each bucket, then of the similarity of spelling, then the constant.
        self.weights = np.zeros(BUCKETS + 2, dtype=np.float32)
        self._spelling = Spelling()

    def fit(
        self,
        source: Sequence[str],
        target: Sequence[str],
        is_positive: Bools,
        of_seeds: Bools | None = None,
    ) -> None:
        """Learn from word pairs.

        ``of_seeds``: which pairs are seeds or wrong pairs of their words; by default all. Silver
        pairs teach which endings go together, but have any form; only the seeds, which are few
        beside them, tell that a dictionary lists base forms. So a second step learns from the
        pairs of seeds alone, starting from the weights of the first.
        """
        places = torch.from_numpy(self._places(source, target))
        spelling = torch.from_numpy(SPELLING_SCALE * self._spelling.score(source, target))
        positive = torch.from_numpy(is_positive)
        self._learn(places, spelling, positive, STRENGTH)
        if of_seeds is not None and not of_seeds[is_positive].all():
            self._learn(places[of_seeds], spelling[of_seeds], positive[of_seeds], SEEDS_STRENGTH)

    def _learn(self, places: Tensor, spelling: Tensor, positive: Tensor, strength: float) -> None:
        """Fit the weights; all positives together weigh as much as all negatives."""
        share = positive.float().mean()
        if not 0 < share < 1:
            return  # nothing to tell apart
        balance = torch.where(positive, 0.5 / share, 0.5 / (1 - share))
        before = torch.from_numpy(self.weights)
        parameters = before.clone().requires_grad_()
        optimiser = torch.optim.LBFGS(
            [parameters], max_iter=STEPS, line_search_fn="strong_wolfe", tolerance_change=1e-7
        )

        def loss() -> Tensor:
            optimiser.zero_grad()
            logits = parameters[places].sum(dim=1) + parameters[-2] * spelling + parameters[-1]
            each = torch.nn.functional.binary_cross_entropy_with_logits(
                logits, positive.float(), weight=balance, reduction="sum"
            )
            value = strength * each + 0.5 * (parameters - before)[:-1].square().sum()
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimiser.step(loss)  # type: ignore[no-untyped-call]
        self.weights = parameters.detach().numpy()

    def score(self, source: Sequence[str], target: Sequence[str]) -> NDArray[np.float32]:
        """Probability that each pair is a translation, by form alone."""
        spelling = SPELLING_SCALE * self._spelling.score(source, target)
        logits = self.weights[self._places(source, target)].sum(axis=1)
        logits = logits + self.weights[-2] * spelling + self.weights[-1]
        return (1 / (1 + np.exp(-logits))).astype(np.float32)

    def _places(self, source: Sequence[str], target: Sequence[str]) -> NDArray[np.int64]:
        """Index (pairs, kinds) of the weight of each combination."""
        check_lengths(source, target)
        left, right = (
            np.array([_codes(word) for word in words], dtype=np.uint64).reshape(-1, 7)
            for words in (source, target)
        )
        columns = []
        for kind, (a, b) in enumerate(COMBINED):
            mixed = left[:, a] * np.uint64(0x9E3779B97F4A7C15) + right[:, b] + np.uint64(kind)
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            columns.append((mixed >> np.uint64(40)).astype(np.int64) % BUCKETS)
        return np.stack(columns, axis=1)

    def save(self, folder: Path) -> dict[str, Any]:
        save_file({"weights": self.weights}, folder / FILE)
        return {}

    @classmethod
    def load(cls, folder: Path, values: dict[str, Any], **_: Any) -> Endings:
        scorer = cls()
        try:
            scorer.weights = load_file(folder / FILE)["weights"]
            if scorer.weights.shape != (BUCKETS + 2,):
                raise ValueError(f"{scorer.weights.shape} weights; expected {BUCKETS + 2}")
            if not np.isfinite(scorer.weights).all():
                raise ValueError("a weight is not a finite number")
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise FileError(folder / FILE, f"cannot be read: {error}") from None
        return scorer


@lru_cache(maxsize=200_000)
def _codes(word: str) -> tuple[int, ...]:
    """Hashes of the word's length, its last 1, 2, 3 letters, its first 2, 3, and nothing."""
    endings = (zlib.crc32(f"{n}{word[-n:]}".encode()) for n in (1, 2, 3))
    beginnings = (zlib.crc32(f"-{n}{word[:n]}".encode()) for n in (2, 3))
    return len(word) // LETTERS_A_STEP, *endings, *beginnings, 0
