"""RCSLS: linear maps that maximise the seeds' CSLS, by gradient descent (METHOD.md §6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from blicer import progress
from blicer.align.base import UNIT_CENTRE_UNIT, Aligner, check_at_least, prepare, seeds_to_indices
from blicer.align.linear import apply_
from blicer.align.procrustes import procrustes_map, say_if_undetermined
from blicer.align.space import Space
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.neighbours.kernels import Scan
from blicer.neighbours.retriever import nearest

# === align.relaxed_csls ===
Maps = tuple[Tensor | None, Tensor | None]  # of source and target; None leaves a side as it is


@dataclass(frozen=True)
class Mapped:
    """Words of one side under its map."""

    rows: Tensor
    lengths: Tensor | None  # before they were brought to length one; None where they were not


@dataclass(frozen=True)
class Side:
    """One language: its words, its distinct seed words, and which of these each pair has."""

    words: Tensor  # the candidates
    seeds: Tensor  # (distinct seeds, d)
    counts: Tensor  # pairs of each distinct seed
    of_pair: Tensor  # place among the distinct seeds, for each pair

    @classmethod
    def of(cls, vectors: Tensor, of_pair: Tensor, limit: int) -> Side:
        rows, places, counts = of_pair.unique(return_inverse=True, return_counts=True)
        return cls(vectors[:limit], vectors[rows], counts.float(), places)


class RelaxedCSLS:
    """Loss and gradients for fixed vectors and seed pairs; neighbours among the first ``words``."""

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        pairs: Tensor,
        *,
        neighbours: int = 10,
        words: int = 200_000,
        memory_gb: float = 2.0,
        cosine: bool = False,
    ) -> None:
        self.pairs, self.cosine = len(pairs), cosine
        self.source = Side.of(x, pairs[:, 0], words)
        self.target = Side.of(y, pairs[:, 1], words)
        self.neighbours = neighbours
        self.memory_gb = memory_gb

    def loss(self, maps: Maps) -> float:
        return self._evaluate(maps, gradient=False)[0]

    def __call__(self, maps: Maps) -> tuple[float, Maps]:
        """The loss, and its gradient for each map that is there."""
        return self._evaluate(maps, gradient=True)

    def _evaluate(self, maps: Maps, *, gradient: bool) -> tuple[float, Maps]:
        source, target = self.source, self.target
        x, y = self._map(source.words, maps[0]), self._map(target.words, maps[1])
        x_seeds, y_seeds = self._map(source.seeds, maps[0]), self._map(target.seeds, maps[1])
        near_x, y_near = self._nearest(x_seeds.rows, y.rows)
        near_y, x_near = self._nearest(y_seeds.rows, x.rows)
        # Sum of the translations of each distinct seed: one row a word, not one a pair.
        y_sums = _sums(y_seeds.rows[target.of_pair], source)
        parts = (
            -2 * (x_seeds.rows * y_sums).sum(dim=1),
            source.counts * near_x.mean(dim=1),
            target.counts * near_y.mean(dim=1),
        )
        # In fp64, which MPS does not have.
        loss = sum(float(part.cpu().double().sum()) for part in parts) / self.pairs
        if not gradient:
            return loss, (None, None)
        first = second = None
        if maps[0] is not None:
            first = self._gradient(source, x_seeds, y_sums, y.rows, y_near)
            first += self._neighbour_gradient(source, x, x_near, y_seeds.rows, target.counts)
        if maps[1] is not None:
            x_sums = _sums(x_seeds.rows[source.of_pair], target)
            second = self._gradient(target, y_seeds, x_sums, x.rows, x_near)
            second += self._neighbour_gradient(target, y, y_near, x_seeds.rows, source.counts)
        return loss, (first, second)

    def _map(self, words: Tensor, weights: Tensor | None) -> Mapped:
        if weights is None:
            return Mapped(words, None)
        rows = words @ weights
        if not self.cosine:
            return Mapped(rows, None)
        lengths = rows.norm(dim=1, keepdim=True).clamp_min_(1e-9)
        return Mapped(rows.div_(lengths), lengths)

    def _nearest(self, queries: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
        k = min(self.neighbours, len(words))
        return nearest(Scan(queries, words), k, memory_gb=self.memory_gb, label="neighbours")

    def _gradient(
        self, side: Side, seeds: Mapped, sums: Tensor, others: Tensor, near: Tensor
    ) -> Tensor:
        """Through the seed words: -2 times their translations, and the mean of the nearest."""
        pull = F.embedding_bag(near, others, mode="mean") * side.counts[:, None] - 2 * sums
        return side.seeds.T @ _before_lengths(pull, seeds.rows, seeds.lengths) / self.pairs

    def _neighbour_gradient(
        self, side: Side, mapped: Mapped, near: Tensor, seeds: Tensor, counts: Tensor
    ) -> Tensor:
        """Through the words z that are nearest to the other side's seeds: each seed / k."""
        k = near.shape[1]
        rows, place = near.reshape(-1).unique(return_inverse=True)
        share = (seeds * (counts / k)[:, None]).repeat_interleave(k, dim=0)
        push = seeds.new_zeros(len(rows), seeds.shape[1]).index_add_(0, place, share)
        lengths = mapped.lengths[rows] if mapped.lengths is not None else None
        return side.words[rows].T @ _before_lengths(push, mapped.rows[rows], lengths) / self.pairs


def _sums(rows_of_pairs: Tensor, side: Side) -> Tensor:
    """For each distinct seed of ``side``, the sum of its pairs' rows."""
    sums = rows_of_pairs.new_zeros(len(side.seeds), rows_of_pairs.shape[1])
    return sums.index_add_(0, side.of_pair, rows_of_pairs)


def _before_lengths(gradient: Tensor, unit: Tensor, lengths: Tensor | None) -> Tensor:
    """Gradient of the rows as mapped, from that of the rows at length one."""
    if lengths is None:
        return gradient
    return (gradient - unit * (unit * gradient).sum(dim=1, keepdim=True)) / lengths


# === align.rcsls ===
SIDES = ("both", "source", "target")
SMALLEST_RATE = 1e-4
SAFE_RATE = 1.0  # where there are too few seeds to hold some out
HELD_OUT = 0.2  # share of the seed words that judge how far to go
FEWEST_HELD_OUT = 20
FIRST_STEP, GROWTH, TRIALS = 2.0, 1.5, 12  # far enough for the literature's 10 steps of 25
# Held-out words stop being translated better a little before their loss stops falling.
MOST_OF_THE_GAIN = 0.9
RETRIES = 8


@dataclass(frozen=True)
class Descent:
    maps: Maps
    losses: list[float]  # at the start, and after each step; never rising
    rate: float  # after the halvings


def descend(
    loss: RelaxedCSLS, maps: Maps, rate: float, steps: int, *, spectral: bool, label: str
) -> Descent:
    """Gradient descent; a step that raises the loss is undone, and the next is half as long."""
    value, gradients = loss(maps)
    losses = [value]
    with progress.task(label, steps) as running:
        for _ in range(steps):
            if rate < SMALLEST_RATE:
                break
            tried = moved(maps, gradients, rate, spectral=spectral)
            new_value, new_gradients = loss(tried)
            if new_value > value:
                rate /= 2
            else:
                maps, value, gradients = tried, new_value, new_gradients
            losses.append(value)
            running.advance(status=f"loss {value:.4f}")
    return Descent(maps, losses, rate)


def moved(maps: Maps, gradients: Maps, step: float, *, spectral: bool) -> Maps:
    """The maps after a step against their gradients."""

    def one(weights: Tensor | None, gradient: Tensor | None) -> Tensor | None:
        if weights is None or gradient is None:
            return weights
        weights = weights - step * gradient
        return spectral_projection(weights) if spectral else weights

    return one(maps[0], gradients[0]), one(maps[1], gradients[1])


def spectral_projection(weights: Tensor) -> Tensor:
    """The nearest matrix with no singular value above one."""
    left, values, right = torch.linalg.svd(weights)
    capped: Tensor = (left * values.clamp(max=1.0)) @ right
    return capped


class RCSLS(Aligner):
    """Gradient descent on the CSLS of the seed pairs, from the Procrustes map.

    The literature maps the words of one side, and takes the mapped words' lengths as one
    (``mapped_side="source", relaxed=True``). On held-out seeds a map helped where the words that
    it moves are the candidates, so that one side gained for one direction; here by default both
    sides are mapped, which costs the same and serves both directions, and cosines are true ones.

    ``learning_rate="auto"`` finds out how far to go: on four fifths of the seed words it descends
    in growing steps for as long as the CSLS loss of the other fifth falls, then goes as far with
    all seeds.

    >>> space = RCSLS().align(english, french, seeds)  # doctest: +SKIP
    """

    method = "rcsls"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"supervised": {}, "semi_supervised": {}}

    def __init__(
        self,
        *,
        learning_rate: float | str = "auto",
        mapped_side: str = "both",
        iterations: int = 10,
        neighbours: int = 10,
        words: int = 200_000,
        relaxed: bool = False,
        spectral: bool = False,
        centre: bool = True,
        memory_gb: float = 2.0,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        if isinstance(learning_rate, str):
            if learning_rate != "auto":
                raise InputError(f"learning_rate is {learning_rate!r}; expected a number or 'auto'")
        elif not learning_rate > 0:
            raise InputError(f"learning_rate is {learning_rate}; expected a number above 0")
        if mapped_side not in SIDES:
            raise InputError(f"mapped_side is {mapped_side!r}; expected both, source or target")
        check_at_least(
            iterations=(iterations, 0), neighbours=(neighbours, 1), words=(words, 1), seed=(seed, 0)
        )
        if not memory_gb > 0:
            raise InputError(f"memory_gb is {memory_gb}; expected a number above 0")
        self.learning_rate = learning_rate
        self.mapped_side = mapped_side
        self.iterations = iterations
        self.neighbours = neighbours
        self.words = words
        self.relaxed = relaxed
        self.spectral = spectral
        self.centre = centre
        self.memory_gb = memory_gb
        self.seed = seed
        self.device = device

    def align(self, source: Embeddings, target: Embeddings, seeds: Lexicon | None = None) -> Space:
        device = resolve_device(self.device)
        pairs = seeds_to_indices(source, target, seeds, method="RCSLS")
        normalisation = UNIT_CENTRE_UNIT if self.centre else ("unit",)
        x, y = prepare(source, target, normalisation=normalisation, device=device)
        say_if_undetermined(pairs, x.shape[1])
        rate = self.learning_rate
        if isinstance(rate, str):
            rate = self._choose_rate(x, y, pairs)
        descent = self._descend_safely(x, y, pairs, rate)
        for words, weights in ((x, descent.maps[0]), (y, descent.maps[1])):
            if weights is not None:
                apply_(words, weights)
        outcome = {"seed_pairs": len(pairs), "rate_used": descent.rate, "losses": descent.losses}
        return self.space(source, target, x, y, **outcome)

    def _loss(self, x: Tensor, y: Tensor, pairs: np.ndarray, *, cosine: bool) -> RelaxedCSLS:
        return RelaxedCSLS(
            x,
            y,
            torch.from_numpy(pairs).to(x.device),
            neighbours=self.neighbours,
            words=self.words,
            memory_gb=self.memory_gb,
            cosine=cosine,
        )

    def _start(self, x: Tensor, y: Tensor, pairs: np.ndarray) -> Maps:
        """Procrustes, as a map of whichever side is to be moved."""
        rotation = procrustes_map(x, y, pairs).to(x.device, torch.float32)
        if self.mapped_side == "source":
            return rotation, None
        if self.mapped_side == "target":
            return None, rotation.T.contiguous()
        return rotation, torch.eye(len(rotation), device=x.device)

    def _choose_rate(self, x: Tensor, y: Tensor, pairs: np.ndarray) -> float:
        """The step with which ``iterations`` steps go as far as held-out seeds gain from."""
        words = np.unique(pairs[:, 0])
        count = int(len(words) * HELD_OUT)
        if count < FEWEST_HELD_OUT:
            progress.note(f"RCSLS: too few seeds to hold some out; learning rate {SAFE_RATE:g}")
            return SAFE_RATE
        held = np.isin(pairs[:, 0], np.random.default_rng(self.seed).permutation(words)[:count])
        training = self._loss(x, y, pairs[~held], cosine=not self.relaxed)
        judge = self._loss(x, y, pairs[held], cosine=True)
        maps = self._start(x, y, pairs[~held])
        value, gradients = training(maps)
        path = [(0.0, judge.loss(maps))]  # how far, and the held-out loss there
        step, growth = FIRST_STEP, GROWTH
        with progress.task("RCSLS, choosing how far to go", TRIALS) as running:
            for _ in range(TRIALS):
                tried = moved(maps, gradients, step, spectral=self.spectral)
                new_value, new_gradients = training(tried)
                running.advance(status=f"held-out loss {path[-1][1]:.4f}")
                if new_value > value:  # too long a step says nothing of how far to go
                    step, growth = step / 2, 1.0
                    continue
                maps, value, gradients = tried, new_value, new_gradients
                path.append((path[-1][0] + step, judge.loss(maps)))
                if path[-1][1] > path[-2][1]:
                    break
                step *= growth
        start, lowest = path[0][1], min(value for _, value in path)
        enough = start - MOST_OF_THE_GAIN * (start - lowest)
        distance = next(gone for gone, value in path if value <= enough)
        rate = max(distance, FIRST_STEP / 2) / max(1, self.iterations)
        progress.note(
            f"RCSLS: learning rate {rate:g}, by the loss of {int(held.sum())} held-out seeds"
        )
        return rate

    def _descend_safely(self, x: Tensor, y: Tensor, pairs: np.ndarray, rate: float) -> Descent:
        """Descend; should true cosines end up worse than at the start, go half as far."""
        training = self._loss(x, y, pairs, cosine=not self.relaxed)
        start = self._start(x, y, pairs)
        if not self.relaxed:  # then the loss is that of true cosines, and never rises
            return self._descend(training, start, rate)
        judge = self._loss(x, y, pairs, cosine=True)
        at_start = judge.loss(start)
        for _ in range(RETRIES):
            descent = self._descend(training, start, rate)
            if judge.loss(descent.maps) <= at_start:
                return descent
            progress.note(f"RCSLS: a learning rate of {rate:g} went too far, trying half of it")
            rate /= 2
        return Descent(start, [training.loss(start)], 0.0)

    def _descend(self, loss: RelaxedCSLS, start: Maps, rate: float) -> Descent:
        return descend(loss, start, rate, self.iterations, spectral=self.spectral, label="RCSLS")
