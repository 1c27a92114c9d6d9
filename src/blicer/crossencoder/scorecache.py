"""Scores kept on disk, keyed by the model's fingerprint and the pair.

One SQLite file per model, in write-ahead mode: several processes may read and write it at once,
and a killed one loses only what it had not yet written. A cache never stops the work: a damaged
file is replaced, and where nothing can be written scoring goes on without it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blicer.progress import note

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
