"""Scores many text pairs with a cross-encoder, exactly and with little computing.

Equal pairs are scored once; texts are tokenised once; pairs are sorted by length, so that batches
need little padding; batches have a fixed number of tokens, not of pairs. ``best_first`` finds the
best candidate without scoring all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from blicer.crossencoder.tokens import PairTokens
from blicer.encoders.loading import Ints, batch_cost, token_batches
from blicer.errors import InputError
from blicer.progress import task

Scores = NDArray[np.float32]
Floats = NDArray[np.float64]


def distinct_pairs(left: Sequence[str], right: Sequence[str]) -> tuple[list[str], list[str], Ints]:
    """The distinct pairs, and the index of each given pair among them."""
    if len(left) != len(right):
        raise InputError(f"{len(left)} left texts and {len(right)} right texts; expected as many")
    place: dict[tuple[str, str], int] = {}
    pairs = zip(left, right, strict=True)
    inverse = np.array([place.setdefault(pair, len(place)) for pair in pairs], dtype=np.int64)
    return [pair[0] for pair in place], [pair[1] for pair in place], inverse


@torch.inference_mode()
def score_tokens(
    model: Any, pairs: PairTokens, device: torch.device, autocast: torch.dtype | None
) -> Scores:
    """Sigmoid of the logit of every row."""
    logits = torch.empty(len(pairs), dtype=torch.float32, device=device)
    model.eval()
    with (
        task("Scoring pairs", len(pairs)) as progress,
        torch.autocast(device.type, dtype=autocast, enabled=autocast is not None),
    ):
        for rows in token_batches(pairs.lengths, *batch_cost(device)):
            try:
                found = model(**pairs.batch(rows, device)).logits[:, 0].float()
            except IndexError as error:  # of the embedding table
                raise InputError(
                    "the cross-encoder is damaged: its tokenizer has pieces that its weights lack"
                ) from error
            logits[torch.from_numpy(rows).to(device)] = found
            progress.advance(len(rows))
    return torch.sigmoid(logits).cpu().numpy()


# -- early exit ------------------------------------------------------------------------------------

ScoreParts = Callable[[Ints, Ints, Ints], ArrayLike]
"""``score(queries, candidates, parts)``: positions in, scores in [0, 1] out, all of one length."""


def best_first(
    known: ArrayLike, weights: Sequence[float], score: ScoreParts, *, batch_size: int = 64
) -> Ints:
    """The best candidate of each query (ties: the earlier), without scoring all candidates.

    A candidate's final score is a ``known`` part (queries, candidates) plus ``weights`` times
    expensive parts in [0, 1]. Method §4 is ``(1-λ)·scaled CSLS + λ/2·sigmoid(x,y) +
    λ/2·sigmoid(y,x)``: each order of the cross-encoder is a part of its own, so a candidate with a
    low score in the first order is dropped at half the cost. Candidates whose known part is
    ``-inf`` are ignored.

    Parts that are not scored yet count as 1, which gives an upper bound. Every round scores one
    part of the most promising candidate of each open query; when the candidate with the highest
    bound is fully scored, no other can win. Rounded addition and multiplication are monotone and
    parts are always added in the same order, so a bound is never below the final score, not even in
    the last bit, and the result is that of full scoring. If few queries are open, a round takes
    more candidates of each, so that calls stay near ``batch_size``.
    """
    known = np.asarray(known, dtype=np.float64)
    if known.ndim != 2 or known.shape[1] == 0 or np.isnan(known).any():
        raise InputError("known scores must be an array (queries, candidates) without NaN")
    if not all(np.isfinite(weight) and weight >= 0 for weight in weights):
        raise InputError(f"weights are {list(weights)}; expected numbers of at least 0")
    parts = np.flatnonzero(weights)
    values = np.ones((len(parts), *known.shape))  # 1 where a part is not scored yet

    def mixed(where: Any) -> Floats:
        final = known[where]
        for weight, part in zip(np.take(weights, parts), values, strict=True):
            final = final + weight * part[where]
        return final

    done = np.where(np.isneginf(known), len(parts), 0)  # parts are scored in order
    bound = mixed(...)
    open_queries = np.arange(len(known))
    while True:
        leader = bound[open_queries].argmax(axis=1)
        open_queries = open_queries[done[open_queries, leader] < len(parts)]
        if not len(open_queries):
            break
        per_query = max(1, batch_size // len(open_queries))
        complete = done[open_queries] == len(parts)
        rows, columns = _most_promising(bound[open_queries], complete, per_query)
        rows = open_queries[rows]
        stage = done[rows, columns]
        found = np.asarray(score(rows, columns, parts[stage]), dtype=np.float64)
        if found.shape != rows.shape or not ((found >= 0) & (found <= 1)).all():
            raise InputError("a scorer gave a score outside [0, 1], or not one for each pair")
        values[stage, rows, columns] = found
        done[rows, columns] += 1
        bound[rows, columns] = mixed((rows, columns))
    return bound.argmax(axis=1)


def _most_promising(bound: Floats, complete: NDArray[np.bool_], count: int) -> tuple[Ints, Ints]:
    """Rows and columns of up to ``count`` incomplete candidates of each query, by bound.

    Candidates whose bound is below a final score of the same query are left out: they cannot win.
    """
    floor = np.where(complete, bound, -np.inf).max(axis=1, keepdims=True)
    wanted = np.where(complete | (bound < floor), -np.inf, bound)
    order = np.argsort(-wanted, axis=1, kind="stable")[:, :count]
    rows, slots = np.nonzero(np.take_along_axis(wanted, order, axis=1) > -np.inf)
    return rows, order[rows, slots]
