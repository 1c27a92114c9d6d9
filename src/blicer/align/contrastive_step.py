"""One step of C1: the contrastive loss over mined negatives, and its gradient (METHOD.md §6)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from blicer.align.mining import NegativeMiner


@dataclass(frozen=True)
class StepResult:
    loss: float
    source_gradient: Tensor  # (d, d), of the source map
    target_gradient: Tensor

    @property
    def norm(self) -> float:
        """Of both gradients together, as the clipping takes it."""
        both = torch.stack([self.source_gradient.norm(), self.target_gradient.norm()])
        return float(both.norm())


def mapped_unit(vectors: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Mapped rows at unit length, and the lengths that they had."""
    mapped = vectors @ matrix
    lengths = mapped.norm(dim=1, keepdim=True).clamp_min_(1e-9)
    return mapped.div_(lengths), lengths


def contrastive_step(
    source: Tensor,
    target: Tensor,
    source_map: Tensor,
    target_map: Tensor,
    pairs: Tensor,
    forward: NegativeMiner,
    backward: NegativeMiner,
    *,
    candidates: tuple[int, int],
    through_lengths: bool,
) -> StepResult:
    """Loss and gradients for all dictionary pairs at once (the full batch).

    ``pairs`` (n, 2) are rows of ``source`` and ``target``; negatives come from the first
    ``candidates`` rows of each side. Every word is mapped once. The mined similarities are the
    logits, so the gradient of a mapped word is a sparse sum of mapped words of the other side:
    with p = softmax(logits) and cos(x, y) first among them,

        d loss / d a_x = (p_0 - 1) b_y + sum of p_j b_j over x's negatives,
        d loss / d a_j = p_j b_y           for each negative j of y,

    and likewise with the sides changed, all divided by n.
    """
    a, a_lengths = mapped_unit(source, source_map)
    b, b_lengths = mapped_unit(target, target_map)
    x, y = a[pairs[:, 0]], b[pairs[:, 1]]
    a_candidates, b_candidates = a[: candidates[0]], b[: candidates[1]]
    near_x = forward.mine(x, b_candidates)
    near_y = backward.mine(y, a_candidates)

    positive = (x * y).sum(dim=1, keepdim=True)
    logits = torch.cat([positive, near_x.scores, near_y.scores], dim=1)
    log_total = logits.logsumexp(dim=1, keepdim=True)
    loss = float((log_total - positive).mean())
    share = (logits - log_total).exp_().div_(len(pairs))
    pull = share[:, :1] - 1 / len(pairs)
    push_x = share[:, 1 : 1 + near_x.scores.shape[1]].contiguous()
    push_y = share[:, 1 + near_x.scores.shape[1] :].contiguous()

    a_gradient, b_gradient = torch.zeros_like(a), torch.zeros_like(b)
    a_gradient[: candidates[0]] = near_y.to_candidates(push_y, y)
    b_gradient[: candidates[1]] = near_x.to_candidates(push_x, x)
    a_gradient.index_add_(0, pairs[:, 0], near_x.to_queries(push_x, b_candidates).addcmul_(pull, y))
    b_gradient.index_add_(0, pairs[:, 1], near_y.to_queries(push_y, a_candidates).addcmul_(pull, x))
    return StepResult(
        loss,
        source.T @ _before_lengths(a_gradient, a, a_lengths, through_lengths),
        target.T @ _before_lengths(b_gradient, b, b_lengths, through_lengths),
    )


def _before_lengths(gradient: Tensor, unit: Tensor, lengths: Tensor, through: bool) -> Tensor:
    """Gradient of the mapped rows before they were brought to unit length.

    The public implementation takes the lengths as constants; ``through`` differentiates them,
    which takes out the part of the gradient that would only change a length.
    """
    if through:
        along = (gradient * unit).sum(dim=1, keepdim=True)
        gradient = gradient.addcmul_(unit, along, value=-1)
    return gradient.div_(lengths)
