"""Scores many text pairs with a cross-encoder in as little computing as the exact answer allows.

Equal pairs are scored once; texts are tokenised once; pairs are sorted by length, so that a batch
is padded by next to nothing; batches hold a number of tokens, not of pairs, so that every batch
fills the machine alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from blicer.encoder import input_names
from blicer.errors import InputError
from blicer.pair_tokens import Ints, PairEncoder, PairTokens
from blicer.progress import task
from blicer.scorecache import ScoreCache

Scores = NDArray[np.float32]
# Measured: on a CPU more tokens than this leave its caches, fewer leave its cores idle.
CPU_TOKENS = 1024
GPU_TOKENS = 32768
PAIRS_PER_WRITE = 8192


def distinct_pairs(left: Sequence[str], right: Sequence[str]) -> tuple[list[str], list[str], Ints]:
    """Every different pair once, and for each given pair its place among them."""
    if len(left) != len(right):
        raise InputError(f"{len(left)} left texts and {len(right)} right texts; expected as many")
    place: dict[tuple[str, str], int] = {}
    inverse = np.array(
        [place.setdefault(pair, len(place)) for pair in zip(left, right, strict=True)],
        dtype=np.int64,
    )
    return [pair[0] for pair in place], [pair[1] for pair in place], inverse


def token_batches(lengths: Ints, tokens: int) -> Iterator[Ints]:
    """Rows from the longest to the shortest, in batches of at most ``tokens`` padded tokens."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        # The first row of a batch is its longest, so its length is the batch's width.
        count = max(1, tokens // int(lengths[order[start]]))
        yield order[start : start + count]
        start += count


@torch.inference_mode()
def score_tokens(
    model: Any,
    pairs: PairTokens,
    device: torch.device,
    autocast: torch.dtype | None,
    *,
    tokens_per_batch: int | None = None,
) -> Scores:
    """Sigmoid of the logit of every row."""
    tokens = tokens_per_batch or (CPU_TOKENS if device.type == "cpu" else GPU_TOKENS)
    names = input_names(model)
    logits = torch.empty(len(pairs), dtype=torch.float32, device=device)
    was_training = model.training
    model.eval()
    try:
        with (
            task("Scoring pairs", len(pairs)) as progress,
            torch.autocast(device.type, dtype=autocast, enabled=autocast is not None),
        ):
            for rows in token_batches(pairs.lengths, tokens):
                inputs = {k: v for k, v in pairs.batch(rows, device).items() if k in names}
                found = model(**inputs).logits[:, 0].float()
                logits[torch.from_numpy(rows).to(device)] = found
                progress.advance(len(rows))
    finally:
        model.train(was_training)
    scores: Scores = torch.sigmoid(logits).cpu().numpy()
    return scores


def score_pairs(
    model: Any,
    encoder: PairEncoder,
    left: Sequence[str],
    right: Sequence[str],
    *,
    device: torch.device,
    autocast: torch.dtype | None = None,
    cache: ScoreCache | None = None,
    tokens_per_batch: int | None = None,
) -> Scores:
    """Sigmoid scores, float32, of ``left[i]`` with ``right[i]`` in this order."""
    one, other, inverse = distinct_pairs(left, right)
    scores = cache.get(one, other) if cache else np.full(len(one), np.nan, dtype=np.float32)
    missing = np.flatnonzero(np.isnan(scores))
    # With a cache the work is kept piece by piece, so that a killed run loses little.
    step = PAIRS_PER_WRITE if cache else max(1, len(missing))
    for start in range(0, len(missing), step):
        part = missing[start : start + step]
        some, others = [one[i] for i in part], [other[i] for i in part]
        pairs = encoder.encode(some, others)
        found = score_tokens(model, pairs, device, autocast, tokens_per_batch=tokens_per_batch)
        scores[part] = found
        if cache:
            cache.put(some, others, found)
    answer: Scores = scores[inverse]
    return answer
