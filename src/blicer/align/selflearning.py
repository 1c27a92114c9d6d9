"""VecMap's self-learning loop: map, induce a dictionary, map again, until it stalls."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from blicer import progress
from blicer.align.induction import induce, similarity_buffer
from blicer.align.linear import orthogonal_map


@dataclass(frozen=True)
class Schedule:
    """How the loop runs (METHOD.md §6)."""

    words: int = 20_000  # most frequent words of each side that take part
    k_csls: int = 10
    keep_start: float = 0.1  # share of the similarities kept at first
    keep_factor: float = 2.0  # by which that share grows at every stall
    patience: int = 50  # iterations without a rise that make a stall
    threshold: float = 1e-6  # what counts as a rise of the objective
    max_iterations: int | None = None

    def iterations_left(self, keep: float, since_rise: int) -> int:
        """The fewest iterations that can still come: a stall for each step of ``keep``."""
        steps = math.ceil(math.log(1.0 / keep, self.keep_factor) - 1e-9) if keep < 1.0 else 0
        return self.patience - since_rise + steps * self.patience


@dataclass(frozen=True)
class Learned:
    """What the loop ended with: pairs (pairs, 2), and how it went."""

    pairs: Tensor
    objective: float
    iterations: int
    stalled: bool  # False when max_iterations cut the loop short


def self_learn(
    x: Tensor,
    y: Tensor,
    pairs: Tensor,
    schedule: Schedule,
    *,
    seed: int = 0,
    memory_gb: float = 2.0,
    label: str = "self-learning",
) -> Learned:
    """Self-learning with the orthogonal map from a first dictionary (pairs, 2) of rows."""
    generator = torch.Generator().manual_seed(seed)
    head_x, head_y = x[: schedule.words], y[: schedule.words]
    buffer = similarity_buffer(head_x, head_y, memory_gb)

    def run_induction(mapped: Tensor, keep: float) -> tuple[Tensor, float]:
        induced = induce(
            mapped,
            head_y,
            keep=keep,
            generator=generator,
            k_csls=schedule.k_csls,
            memory_gb=memory_gb,
            buffer=buffer,
        )
        return induced.pairs, induced.objective

    started = time.monotonic()
    keep, best, last_rise, iteration = schedule.keep_start, float("-inf"), 0, 0
    objective, stalled = best, True
    with progress.task(label) as running:
        while True:
            iteration += 1
            if iteration - last_rise > schedule.patience:
                if keep >= 1.0:
                    break
                keep = min(1.0, schedule.keep_factor * keep)
                last_rise = iteration
            if schedule.max_iterations is not None and iteration > schedule.max_iterations:
                stalled = False
                break
            weights = orthogonal_map(*_rows(x, y, pairs), exact=False).to(x.dtype).to(x.device)
            pairs, objective = run_induction(head_x @ weights, keep)
            if objective - best >= schedule.threshold:
                best, last_rise = objective, iteration
            left = schedule.iterations_left(keep, iteration - last_rise)
            seconds = left * (time.monotonic() - started) / iteration
            running.advance(
                status=f"objective {100 * objective:.3f} %, keep probability {keep:.2f}, "
                f"at least {left} iterations ({seconds / 60:.0f} min) more"
            )
    if not stalled and keep < 1.0:
        # Cut short: the dictionary for the final map is induced without dropping anything.
        weights = orthogonal_map(*_rows(x, y, pairs), exact=False).to(x.dtype).to(x.device)
        pairs, objective = run_induction(head_x @ weights, 1.0)
    return Learned(pairs, objective, iteration - 1, stalled)


def _rows(x: Tensor, y: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    return x[pairs[:, 0].to(x.device)], y[pairs[:, 1].to(y.device)]
