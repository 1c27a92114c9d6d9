"""RCSLS: linear maps that maximise the CSLS of the seed pairs (docs/method.md §6).

The steps, in the order of this file: start from Procrustes; find how far to go on held-out seeds;
descend on the loss ``-2·cos + mean of the nearest neighbours on either side``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from blicer import progress
from blicer.align.base import Aligner, Folder, Seeds, apply_, mapped_unit, prepare
from blicer.align.checkpoint import Checkpoint
from blicer.align.procrustes import note_if_undetermined, procrustes_map
from blicer.align.space import Space
from blicer.config import setting
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.neighbours.kernels import Scan
from blicer.neighbours.mining import Pairs

Maps = tuple[Tensor, Tensor]  # of the source side and of the target side
Mapped = tuple[Tensor, Tensor]  # unit rows, and their lengths before normalisation
SMALLEST_RATE = 1e-4
SAFE_RATE = 1.0  # with too few seeds to hold some out
HELD_OUT, FEWEST_HELD_OUT = 0.2, 20  # share of the seed words that judge how far to go
FIRST_STEP, GROWTH, TRIALS = 2.0, 1.5, 12  # far enough for the literature's 10 steps of 25
# Held-out words stop being translated better a little before their loss stops falling.
MOST_OF_THE_GAIN = 0.9


@dataclass(kw_only=True)
class RCSLS(Aligner):
    """Gradient descent on the CSLS of the seed pairs, from the Procrustes map.

    The literature maps the words of one side, and treats the mapped words' lengths as one. On
    held-out seeds a map helped where the words that it moves are the candidates, so one side gained
    for one direction only. Here both sides are mapped, which costs the same and serves both
    directions, and cosines are true ones.

    >>> space = RCSLS().align(english, french, seeds)  # doctest: +SKIP
    """

    method = "rcsls"
    presets: ClassVar = {"supervised": {}, "semi_supervised": {}}

    learning_rate: float | str = setting(
        "auto", "step size; auto: chosen on a fifth of the seed words", above=0, choices=["auto"]
    )
    iterations: int = setting(10, "steps of gradient descent", low=0)
    neighbours: int = setting(10, "neighbours that make up a word's hubness", low=1)
    words: int = setting(200_000, "most frequent words that can be neighbours", low=1)
    centre: bool = setting(True, "subtract the mean vector of each side")
    memory_gb: float = setting(2.0, "bound of working memory", above=0)
    seed: int = setting(0, "of the draw of held-out seeds", low=0)

    def fit(
        self, source: Embeddings, target: Embeddings, pairs: Seeds, *, work: Folder = None
    ) -> Space:
        pairs = self.require_seeds(pairs)
        x, y = prepare(source, target, centre=self.centre, device=resolve_device(self.device))
        note_if_undetermined(pairs, x.shape[1])
        rate = self.learning_rate
        if isinstance(rate, str):
            rate = self._choose_rate(x, y, pairs, work)
        start = _procrustes(x, y, pairs)
        checkpoint = Checkpoint(work, self.settings, x, y, pairs, rate)
        loss = CSLSLoss(x, y, pairs, self)
        maps, losses, rate = descend(loss, start, rate, self.iterations, checkpoint)
        outcome = {"seed_pairs": len(pairs), "rate_used": rate, "losses": losses}
        return self.space(source, target, apply_(x, maps[0]), apply_(y, maps[1]), **outcome)

    def _choose_rate(self, x: Tensor, y: Tensor, pairs: Pairs, work: Folder) -> float:
        """The step size with which ``iterations`` steps go as far as helps held-out seeds.

        Descends in growing steps on four fifths of the seed words, as long as the CSLS loss of
        the other fifth falls.
        """
        words = np.unique(pairs[:, 0])
        count = int(len(words) * HELD_OUT)
        if count < FEWEST_HELD_OUT:
            progress.note(f"RCSLS: too few seeds to hold some out; learning rate {SAFE_RATE:g}")
            return SAFE_RATE
        held = np.isin(pairs[:, 0], np.random.default_rng(self.seed).permutation(words)[:count])
        training, judge = (CSLSLoss(x, y, some, self) for some in (pairs[~held], pairs[held]))
        checkpoint = Checkpoint(work, self.settings, x, y, pairs, "rate")
        if (found := checkpoint.load()) is not None:
            maps, gradients = _both(found[0], x.device)
            trial, value, step, growth, path = found[1]["schedule"]
        else:
            maps = _procrustes(x, y, pairs[~held])
            value, gradients = training(maps)
            path = [(0.0, judge(maps)[0])]  # how far, and the held-out loss there
            trial, step, growth = 0, FIRST_STEP, GROWTH
        with progress.task("RCSLS, choosing how far to go", TRIALS) as running:
            running.advance(trial)
            for number in range(trial, TRIALS):
                state = {"schedule": [number, value, step, growth, path]}
                checkpoint.save(_named(maps, gradients), state)
                tried = moved(maps, gradients, step)
                new_value, new_gradients = training(tried)
                running.advance(status=f"held-out loss {path[-1][1]:.4f}")
                if not new_value <= value:  # too long a step says nothing about how far to go
                    step, growth = step / 2, 1.0
                    continue
                maps, value, gradients = tried, new_value, new_gradients
                path.append((path[-1][0] + step, judge(maps)[0]))
                if path[-1][1] > path[-2][1]:
                    break
                step *= growth
        start, lowest = path[0][1], min(value for _, value in path)
        enough = start - MOST_OF_THE_GAIN * (start - lowest)
        checkpoint.delete()
        distance = next(gone for gone, value in path if value <= enough)
        rate: float = max(distance, FIRST_STEP / 2) / max(1, self.iterations)
        progress.note(
            f"RCSLS: learning rate {rate:g}, by the loss of {int(held.sum())} held-out seeds"
        )
        return rate


def _procrustes(x: Tensor, y: Tensor, pairs: Pairs) -> Maps:
    """The start of the descent: a rotation of the source side; the target side stays as it is."""
    rotation = procrustes_map(x, y, pairs).to(x.device, torch.float32)
    return rotation, torch.eye(len(rotation), device=x.device)


_NAMES = ("map 0", "map 1", "gradient 0", "gradient 1")


def _named(maps: Maps, gradients: Maps) -> dict[str, Tensor]:
    return dict(zip(_NAMES, (*maps, *gradients), strict=True))


def _both(tensors: dict[str, Tensor], device: torch.device) -> tuple[Maps, Maps]:
    """Inverse of ``_named``: maps and gradients."""
    one, two, three, four = (tensors[name].to(device) for name in _NAMES)
    return (one, two), (three, four)


def descend(
    loss: CSLSLoss, maps: Maps, rate: float, steps: int, checkpoint: Checkpoint | None = None
) -> tuple[Maps, list[float], float]:
    """Gradient descent; a step that raises the loss is undone, and the rate halved.

    Returns the maps, the losses at the start and after each step (never rising), and the last rate.
    """
    checkpoint = checkpoint or Checkpoint(None)
    if (found := checkpoint.load()) is not None:
        maps, gradients = _both(found[0], maps[0].device)
        rate, losses = found[1]["rate"], found[1]["losses"]
        value = losses[-1]
    else:
        value, gradients = loss(maps)
        losses = [value]
    with progress.task("RCSLS", steps) as running:
        running.advance(len(losses) - 1)
        for _ in range(len(losses) - 1, steps):
            checkpoint.save(_named(maps, gradients), {"rate": rate, "losses": losses})
            if rate < SMALLEST_RATE:
                break
            tried = moved(maps, gradients, rate)
            new_value, new_gradients = loss(tried)
            if not new_value <= value:
                rate /= 2
            else:
                maps, value, gradients = tried, new_value, new_gradients
            losses.append(value)
            running.advance(status=f"loss {value:.4f}")
    checkpoint.delete()
    return maps, losses, rate


def moved(maps: Maps, gradients: Maps, step: float) -> Maps:
    """The maps after one gradient step."""
    return maps[0] - step * gradients[0], maps[1] - step * gradients[1]


class _Side:
    """One language: its words, its distinct seed words, and the index of each pair's seed word."""

    def __init__(self, vectors: Tensor, of_pair: Tensor, limit: int) -> None:
        rows, self.of_pair, counts = of_pair.unique(return_inverse=True, return_counts=True)
        self.words, self.seeds, self.counts = vectors[:limit], vectors[rows], counts.float()

    def sums(self, rows_of_pairs: Tensor) -> Tensor:
        """For each distinct seed, the sum of its pairs' rows."""
        sums = rows_of_pairs.new_zeros(len(self.seeds), rows_of_pairs.shape[1])
        return sums.index_add_(0, self.of_pair, rows_of_pairs)


class CSLSLoss:
    """The loss and its gradients for fixed vectors and seed pairs."""

    def __init__(self, x: Tensor, y: Tensor, pairs: Pairs, settings: RCSLS) -> None:
        self.pairs, self.settings = len(pairs), settings
        rows = torch.from_numpy(pairs).to(x.device)
        self.source = _Side(x, rows[:, 0], settings.words)
        self.target = _Side(y, rows[:, 1], settings.words)

    def __call__(self, maps: Maps) -> tuple[float, Maps]:
        """The loss, and its gradient for each map."""
        source, target = self.source, self.target
        x, x_seeds = (mapped_unit(rows, maps[0]) for rows in (source.words, source.seeds))
        y, y_seeds = (mapped_unit(rows, maps[1]) for rows in (target.words, target.seeds))
        near_x, y_near = self._nearest(x_seeds[0], y[0])
        near_y, x_near = self._nearest(y_seeds[0], x[0])
        # Sum of the translations of each distinct seed: one row a word, not one a pair.
        y_sums = source.sums(y_seeds[0][target.of_pair])
        x_sums = target.sums(x_seeds[0][source.of_pair])
        parts = (
            -2 * (x_seeds[0] * y_sums).sum(dim=1),
            source.counts * near_x.mean(dim=1),
            target.counts * near_y.mean(dim=1),
        )
        # In fp64, which MPS does not have.
        loss = sum(float(part.cpu().double().sum()) for part in parts) / self.pairs
        first = self._seed_gradient(source, x_seeds, y_sums, y[0], y_near)
        first += self._neighbour_gradient(source, x, x_near, y_seeds[0], target.counts)
        second = self._seed_gradient(target, y_seeds, x_sums, x[0], x_near)
        second += self._neighbour_gradient(target, y, y_near, x_seeds[0], source.counts)
        return loss, (first, second)

    def _nearest(self, queries: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        scan = Scan(queries, words, memory_gb=self.settings.memory_gb, label="neighbours")
        return scan.best(min(self.settings.neighbours, len(words)))

    def _seed_gradient(
        self, side: _Side, seeds: Mapped, sums: Tensor, others: Tensor, near: Tensor
    ) -> Tensor:
        """Through the seed words: -2 times their translations, and the mean of the nearest."""
        pull = F.embedding_bag(near, others, mode="mean") * side.counts[:, None] - 2 * sums
        return side.seeds.T @ _before_lengths(pull, *seeds) / self.pairs

    def _neighbour_gradient(
        self, side: _Side, mapped: Mapped, near: Tensor, seeds: Tensor, counts: Tensor
    ) -> Tensor:
        """Through the words that are nearest to the other side's seeds: each seed / k."""
        k = near.shape[1]
        rows, place = near.reshape(-1).unique(return_inverse=True)
        share = (seeds * (counts / k)[:, None]).repeat_interleave(k, dim=0)
        push = seeds.new_zeros(len(rows), seeds.shape[1]).index_add_(0, place, share)
        unit, lengths = (part[rows] for part in mapped)
        return side.words[rows].T @ _before_lengths(push, unit, lengths) / self.pairs


def _before_lengths(gradient: Tensor, unit: Tensor, lengths: Tensor) -> Tensor:
    """Gradient of the mapped rows before normalisation, from that of the unit rows."""
    return (gradient - unit * (unit * gradient).sum(dim=1, keepdim=True)) / lengths
