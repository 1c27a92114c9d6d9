"""RCSLS: a linear map that maximises the seeds' CSLS, by gradient descent (METHOD.md §6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from blicer import progress
from blicer.align.base import UNIT_CENTRE_UNIT, Aligner, prepare, seeds_to_indices
from blicer.align.linear import apply_
from blicer.align.procrustes import procrustes_map, say_if_undetermined
from blicer.align.relaxed_csls import RelaxedCSLS
from blicer.align.space import Space
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon

SIDES = ("source", "target")
SMALLEST_RATE = 1e-4
SAFE_RATE = 1.0  # gained on every pair that was measured, with few seeds and with many
HELD_OUT = 0.2  # share of the seed words that judge how far to go
FEWEST_HELD_OUT = 20
FIRST_STEP, GROWTH, TRIALS = 2.0, 1.5, 12  # far enough for the literature's 10 steps of 25
# Held-out words stop being translated better a little before their loss stops falling.
MOST_OF_THE_GAIN = 0.9
RETRIES = 8


@dataclass(frozen=True)
class Descent:
    weights: Tensor
    losses: list[float]  # at the start, and after each step; never rising
    rate: float  # after the halvings


@dataclass(frozen=True)
class Exploration:
    distance: float  # sum of the steps
    held_out_loss: float


def descend(
    loss: RelaxedCSLS, weights: Tensor, rate: float, steps: int, *, spectral: bool, label: str
) -> Descent:
    """Gradient descent; a step that raises the loss is undone, and the next is half as long."""
    value, gradient = loss(weights)
    losses = [value]
    with progress.task(label, steps) as running:
        for _ in range(steps):
            if rate < SMALLEST_RATE:
                break
            tried = weights - rate * gradient
            if spectral:
                tried = spectral_projection(tried)
            new_value, new_gradient = loss(tried)
            if new_value > value:
                rate /= 2
            else:
                weights, value, gradient = tried, new_value, new_gradient
            losses.append(value)
            running.advance(status=f"loss {value:.4f}")
    return Descent(weights, losses, rate)


def spectral_projection(weights: Tensor) -> Tensor:
    """The nearest matrix with no singular value above one."""
    left, values, right = torch.linalg.svd(weights)
    capped: Tensor = (left * values.clamp(max=1.0)) @ right
    return capped


class RCSLS(Aligner):
    """Gradient descent on the CSLS of the seed pairs, from the Procrustes map.

    The literature's relaxation takes the mapped words' lengths as one; ``relaxed=True`` does so.
    By default the cosines are true ones, which did better on held-out seeds, and then the loss
    cannot be lowered by mere scale.

    ``learning_rate="auto"`` finds out how far to go: on four fifths of the seed words it descends
    in growing steps for as long as the CSLS loss of the other fifth falls, then goes as far with
    all seeds. The loss holds the hubness of both sides, so one space serves both directions;
    ``mapped_side`` says which side's words the map moves: ``auto`` takes the side with the lower
    held-out loss, ``source`` and ``target`` are the literature's two directions.

    >>> space = RCSLS().align(english, french, seeds)  # doctest: +SKIP
    """

    method = "rcsls"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"supervised": {}, "semi_supervised": {}}

    def __init__(
        self,
        *,
        learning_rate: float | str = "auto",
        mapped_side: str = "auto",
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
        if mapped_side not in (*SIDES, "auto"):
            raise InputError(f"mapped_side is {mapped_side!r}; expected source, target or auto")
        for name, value, least in (
            ("iterations", iterations, 0),
            ("neighbours", neighbours, 1),
            ("words", words, 1),
        ):
            if value < least:
                raise InputError(f"{name} is {value}; expected at least {least}")
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
        side, rate = self._choose(x, y, pairs)
        # The loss is the same from both sides; which side the map moves is what differs.
        if side == "source":
            descent = self._descend_safely(x, y, pairs, rate)
            apply_(x, descent.weights)
        else:
            descent = self._descend_safely(y, x, pairs[:, ::-1].copy(), rate)
            apply_(y, descent.weights)
        outcome = {"seed_pairs": len(pairs), "side_mapped": side, "rate_used": descent.rate}
        return self.space(source, target, x, y, **outcome, losses=descent.losses)

    def _choose(self, x: Tensor, y: Tensor, pairs: np.ndarray) -> tuple[str, float]:
        """The side to map and the learning rate, where they are left to us."""
        sides = SIDES if self.mapped_side == "auto" else (self.mapped_side,)
        if len(sides) == 1 and not isinstance(self.learning_rate, str):
            return sides[0], self.learning_rate
        if len(np.unique(pairs[:, 0])) * HELD_OUT < FEWEST_HELD_OUT:
            progress.note(f"RCSLS: too few seeds to hold some out; learning rate {SAFE_RATE:g}")
            rate = self.learning_rate
            return sides[0], SAFE_RATE if isinstance(rate, str) else rate
        explored = {
            side: self._explore(
                *((x, y, pairs) if side == "source" else (y, x, pairs[:, ::-1].copy()))
            )
            for side in sides
        }
        side = min(explored, key=lambda each: explored[each].held_out_loss)
        rate = self.learning_rate
        if isinstance(rate, str):
            rate = max(explored[side].distance, FIRST_STEP / 2) / max(1, self.iterations)
        progress.note(f"RCSLS: maps the {side} side at learning rate {rate:g}, by held-out seeds")
        return side, rate

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

    def _start(self, x: Tensor, y: Tensor, pairs: np.ndarray) -> Tensor:
        return procrustes_map(x, y, pairs).to(x.device, torch.float32)

    def _explore(self, x: Tensor, y: Tensor, pairs: np.ndarray) -> Exploration:
        """How far held-out seeds gain from the descent of the others, and how much."""
        words = np.unique(pairs[:, 0])
        count = int(len(words) * HELD_OUT)
        held = np.isin(pairs[:, 0], np.random.default_rng(self.seed).permutation(words)[:count])
        training = self._loss(x, y, pairs[~held], cosine=not self.relaxed)
        judge = self._loss(x, y, pairs[held], cosine=True)
        weights = self._start(x, y, pairs[~held])
        value, gradient = training(weights)
        path = [(0.0, judge(weights, gradient=False)[0])]  # how far, and the held-out loss there
        step, growth = FIRST_STEP, GROWTH
        with progress.task("RCSLS, choosing how far to go", TRIALS) as running:
            for _ in range(TRIALS):
                tried = weights - step * gradient
                if self.spectral:
                    tried = spectral_projection(tried)
                new_value, new_gradient = training(tried)
                running.advance(status=f"held-out loss {path[-1][1]:.4f}")
                if new_value > value:  # too long a step says nothing of how far to go
                    step, growth = step / 2, 1.0
                    continue
                weights, value, gradient = tried, new_value, new_gradient
                path.append((path[-1][0] + step, judge(weights, gradient=False)[0]))
                if path[-1][1] > path[-2][1]:
                    break
                step *= growth
        start, lowest = path[0][1], min(value for _, value in path)
        enough = start - MOST_OF_THE_GAIN * (start - lowest)
        return Exploration(next(gone for gone, value in path if value <= enough), lowest)

    def _descend_safely(self, x: Tensor, y: Tensor, pairs: np.ndarray, rate: float) -> Descent:
        """Descend; should true cosines end up worse than at the start, go half as far."""
        training = self._loss(x, y, pairs, cosine=not self.relaxed)
        start = self._start(x, y, pairs)
        if not self.relaxed:  # then the loss is that of true cosines, and never rises
            return self._descend(training, start, rate)
        judge = self._loss(x, y, pairs, cosine=True)
        at_start = judge(start, gradient=False)[0]
        for _ in range(RETRIES):
            descent = self._descend(training, start, rate)
            if judge(descent.weights, gradient=False)[0] <= at_start:
                return descent
            progress.note(f"RCSLS: a learning rate of {rate:g} went too far, trying half of it")
            rate /= 2
        return Descent(start, [training(start, gradient=False)[0]], 0.0)

    def _descend(self, loss: RelaxedCSLS, start: Tensor, rate: float) -> Descent:
        return descend(loss, start, rate, self.iterations, spectral=self.spectral, label="RCSLS")
