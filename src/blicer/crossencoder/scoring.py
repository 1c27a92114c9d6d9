"""Scores many text pairs with a cross-encoder in as little computing as the exact answer allows.

Equal pairs are scored once; texts are tokenised once; pairs are sorted by length, so that a batch
is padded by next to nothing; batches hold a number of tokens, not of pairs, so that every batch
fills the machine alike.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from blicer.crossencoder.tokens import Ints, PairEncoder, PairTokens
from blicer.encoders.loading import input_names
from blicer.errors import InputError
from blicer.progress import note, task

# === crossencoder.scorecache ===
KEYS_PER_QUERY = 900
WAIT_SECONDS = 30.0


def default_folder() -> Path:
    """``$BLICER_CACHE/scores``, or blicer's folder in the user's cache."""
    base = os.environ.get("BLICER_CACHE")
    if base:
        return Path(base) / "scores"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "blicer" / "scores"


class ScoreCache:
    """Scores of one model; open it with the model's fingerprint."""

    def __init__(self, folder: str | Path, fingerprint: str) -> None:
        self.path = Path(folder) / f"{fingerprint[:32]}.sqlite"
        self._salt = bytes.fromhex(hashlib.sha256(fingerprint.encode()).hexdigest())[:16]
        self._off = False

    def _keys(self, left: Sequence[str], right: Sequence[str]) -> list[bytes]:
        keys = []
        for one, other in zip(left, right, strict=True):
            first = one.encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(digest_size=16, key=self._salt)
            # The length keeps ("ab", "c") apart from ("a", "bc").
            digest.update(len(first).to_bytes(4, "little") + first)
            digest.update(other.encode("utf-8", "surrogatepass"))
            keys.append(digest.digest())
        return keys

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=WAIT_SECONDS)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS scores (pair BLOB PRIMARY KEY, score REAL NOT NULL) "
                "WITHOUT ROWID"
            )
            yield connection

    def _failed(self, error: Exception) -> None:
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError
        )
        if damaged:
            note(f"{self.path}: the score cache is damaged ({error}) and starts anew")
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            return
        self._off = True
        note(f"{self.path}: the score cache cannot be used ({error}); going on without it")

    def get(self, left: Sequence[str], right: Sequence[str]) -> NDArray[np.float32]:
        """The kept scores of the pairs; NaN for a pair that is not there."""
        scores = np.full(len(left), np.nan, dtype=np.float32)
        if self._off or not self.path.exists():
            return scores
        keys = self._keys(left, right)
        found: dict[bytes, float] = {}
        try:
            with self._connection() as connection:
                for start in range(0, len(keys), KEYS_PER_QUERY):
                    part = keys[start : start + KEYS_PER_QUERY]
                    marks = ",".join("?" * len(part))
                    found.update(
                        connection.execute(
                            f"SELECT pair, score FROM scores WHERE pair IN ({marks})", part
                        )
                    )
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            return scores
        for i, key in enumerate(keys):
            value = found.get(key)
            if isinstance(value, float) and 0.0 <= value <= 1.0:
                scores[i] = value
        return scores

    def put(self, left: Sequence[str], right: Sequence[str], scores: NDArray[np.float32]) -> None:
        if self._off or not len(left):
            return
        rows = zip(self._keys(left, right), (float(score) for score in scores), strict=True)
        try:
            with self._connection() as connection, connection:
                connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?)", rows)
        except (sqlite3.Error, OSError) as error:
            self._failed(error)


# === crossencoder.scoring ===
Scores = NDArray[np.float32]
# Measured on a CPU: time per token no longer falls from here on, and the fixed cost of a pass is
# that of some 20 tokens (12 layers, 768 wide) to 60 (3 layers, 256 wide). A GPU wants full passes.
CPU_TOKENS, CPU_PASS_COST = 1024, 32
GPU_TOKENS, GPU_PASS_COST = 32768, 4096
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


def token_batches(lengths: Ints, tokens: int, pass_cost: int = 0) -> Iterator[Ints]:
    """Rows from the longest to the shortest, in batches of at most ``tokens`` padded tokens.

    A pass of the model costs as much as ``pass_cost`` tokens beside its own. Batches are cut
    between two lengths wherever that saves more padding than one more pass costs (the cheapest
    cut of all, found by dynamic programming over the distinct lengths).
    """
    if not len(lengths):
        return
    order = np.argsort(-lengths, kind="stable")
    widths, counts = np.unique(-lengths, return_counts=True)
    widths = -widths
    ends = np.concatenate([[0], np.cumsum(counts)])
    cheapest = np.zeros(len(widths) + 1)
    cut = np.zeros(len(widths) + 1, dtype=np.int64)
    for i in range(1, len(widths) + 1):
        # A group of the lengths j … i-1 is as wide as its first; it may need several passes.
        padded = (ends[i] - ends[:i]) * widths[:i]
        costs = cheapest[:i] + padded + pass_cost * np.ceil(padded / tokens)
        cut[i] = int(costs.argmin())
        cheapest[i] = costs[cut[i]]
    bounds = [len(widths)]
    while bounds[-1] > 0:
        bounds.append(int(cut[bounds[-1]]))
    for last, first in zip(bounds[-2::-1], bounds[:0:-1], strict=True):
        count = max(1, tokens // int(widths[first]))
        for start in range(int(ends[first]), int(ends[last]), count):
            yield order[start : min(start + count, int(ends[last]))]


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
    on_cpu = device.type == "cpu"
    tokens = tokens_per_batch or (CPU_TOKENS if on_cpu else GPU_TOKENS)
    pass_cost = CPU_PASS_COST if on_cpu else GPU_PASS_COST
    names = input_names(model)
    logits = torch.empty(len(pairs), dtype=torch.float32, device=device)
    was_training = model.training
    model.eval()
    try:
        with (
            task("Scoring pairs", len(pairs)) as progress,
            torch.autocast(device.type, dtype=autocast, enabled=autocast is not None),
        ):
            for rows in token_batches(pairs.lengths, tokens, pass_cost):
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
