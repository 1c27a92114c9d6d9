"""Decisions of users on translations: an append-only SQLite file that survives a kill.

Deciding and undoing are events; nothing is ever changed or removed. A decision is on disk before it
is acknowledged (write-ahead log, ``synchronous=FULL``).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from blicer.errors import FileError, InputError
from blicer.files import followed
from blicer.io.dictionary import check_writable_word, tsv_row
from blicer.lexicon import Lexicon

ACCEPT, REJECT, CORRECT, SKIP = VERDICTS = ("accept", "reject", "correct", "skip")
RIGHT = (ACCEPT, CORRECT)
COLUMNS = ("source", "target", "verdict", "who", "when", "note")
FORMAT = 0x626C6963  # "blic": tells our files from other SQLite files
_TABLE = """CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    undoes INTEGER UNIQUE REFERENCES events (id),
    source TEXT NOT NULL, target TEXT NOT NULL, verdict TEXT NOT NULL, reverse INTEGER NOT NULL,
    note TEXT NOT NULL, who TEXT NOT NULL, "when" TEXT NOT NULL
)"""
_APPEND_ONLY = """CREATE TRIGGER IF NOT EXISTS no_{0} BEFORE {0} ON events
    BEGIN SELECT RAISE(ABORT, 'events are only appended'); END"""


def beside(translator: str | Path, ending: str) -> Path:
    """A file or folder beside the translator's, which is replaced as a whole when it learns."""
    folder = followed(translator).absolute()
    return folder.with_name(f"{folder.name}.{ending}")


@dataclass(frozen=True)
class Decision:
    """What somebody decided on a translation."""

    id: int
    source: str
    """The word that was asked for: of the target language if ``reverse``."""
    target: str
    verdict: str
    reverse: bool
    note: str
    who: str
    when: str
    """UTC, ISO 8601."""

    @property
    def pair(self) -> tuple[str, str]:
        """The two words, that of the source language first."""
        return (self.target, self.source) if self.reverse else (self.source, self.target)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Store:
    """All decisions in one file; one process at a time holds it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._standing: dict[int, Decision] = {}  # those that were not undone, oldest first
        self._pairs: dict[tuple[str, str], list[Decision]] = {}
        self._words: tuple[dict[str, list[Decision]], ...] = ({}, {})  # by source, by target word
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(
                self.path, timeout=0, isolation_level=None, check_same_thread=False
            )
            self._open()
        except (sqlite3.Error, OSError) as error:
            self._refuse(error)

    def _open(self) -> None:
        run = self._file.execute
        run("PRAGMA locking_mode=EXCLUSIVE")  # held until the process ends, however it does
        (kind,) = run("PRAGMA application_id").fetchone()
        if kind != FORMAT and run("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
            raise FileError(self.path, "is not a file of decisions; it is left as it is")
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        run("BEGIN IMMEDIATE")
        run(f"PRAGMA application_id={FORMAT}")
        for statement in (_TABLE, *map(_APPEND_ONLY.format, ("UPDATE", "DELETE"))):
            run(statement)
        run("COMMIT")
        for undoes, *values in run(
            'SELECT undoes, id, source, target, verdict, reverse, note, who, "when" FROM events '
            "ORDER BY id"
        ):
            if undoes is None:
                self._add(_decision(values))
            elif undoes in self._standing:
                self._remove(self._standing[undoes])
            else:
                problem = f"event {values[0]} undoes {undoes}, which does not stand"
                raise FileError(self.path, f"is damaged: {problem}")

    def _refuse(self, error: Exception) -> None:
        problem = f"cannot be used ({error})"
        if "locked" in str(error):
            problem = "is in use by another blicer serve: stop that, or name another --decisions"
        elif "not a database" in str(error):
            problem = "is not a file of decisions; it is left as it is"
        raise FileError(self.path, problem) from error

    def close(self) -> None:
        with self._lock:
            self._file.close()

    # -- events --------------------

    def decide(
        self,
        source: str,
        target: str,
        verdict: str,
        *,
        reverse: bool = False,
        note: str = "",
        who: str = "",
    ) -> Decision:
        """Append a decision; it is on disk when this returns."""
        if verdict not in VERDICTS:
            raise InputError(f"the verdict is {verdict!r}; expected one of {', '.join(VERDICTS)}")
        for word in (source, target) if verdict != SKIP else (source,):
            if not word:
                raise InputError("a decision needs two words; one is empty")
            check_writable_word(word)
        values = (source, target, verdict, reverse, note, who)
        with self._lock:
            when = datetime.now(timezone.utc).isoformat(timespec="seconds")
            decision = _decision([self._append(None, *values, when), *values, when])
            self._add(decision)
        return decision

    def undo(self, number: int | None = None) -> Decision:
        """Take a decision back, by default the last one that stands."""
        with self._lock:
            number = number if number is not None else next(reversed(self._standing), None)
            if number is None:
                raise InputError("there is no decision to undo")
            decision = self._standing.get(number)
            if decision is None:
                raise InputError(f"there is no decision {number} that stands")
            when = datetime.now(timezone.utc).isoformat(timespec="seconds")
            values = (decision.source, decision.target, decision.verdict, decision.reverse)
            self._append(number, *values, "", "", when)
            self._remove(decision)
        return decision

    def _append(self, *values: Any) -> int:
        try:
            done = self._file.execute(
                'INSERT INTO events (undoes, source, target, verdict, reverse, note, who, "when") '
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
        except sqlite3.Error as error:
            raise FileError(self.path, f"cannot be written ({error})") from error
        assert done.lastrowid is not None
        return done.lastrowid

    # -- what stands --------------------

    def _places(self, decision: Decision) -> Iterator[list[Decision]]:
        yield self._pairs.setdefault(decision.pair, [])
        for words, word in zip(self._words, decision.pair, strict=True):
            yield words.setdefault(word, [])

    def _add(self, decision: Decision) -> None:
        self._standing[decision.id] = decision
        for place in self._places(decision):
            place.append(decision)

    def _remove(self, decision: Decision) -> None:
        del self._standing[decision.id]
        for place in self._places(decision):
            place.remove(decision)

    def __len__(self) -> int:
        return len(self._standing)

    def standing(self) -> list[Decision]:
        """Decisions that were not undone, oldest first."""
        with self._lock:
            return list(self._standing.values())

    def on_pair(self, word: str, other: str, *, reverse: bool = False) -> str | None:
        """The last verdict on a translation; None if there is none, or it was skipped."""
        pair = (other, word) if reverse else (word, other)
        last = self._pairs.get(pair)
        return last[-1].verdict if last and last[-1].verdict != SKIP else None

    def on_word(self, word: str, *, reverse: bool = False) -> list[Decision]:
        """Decisions on a word: those asked in this direction, and right pairs of the other one."""
        found = list(self._words[int(reverse)].get(word, ()))
        return [one for one in found if one.reverse == reverse or one.verdict in RIGHT]

    def words(self, *, reverse: bool = False) -> list[str]:
        """Words that ``on_word`` knows decisions of."""
        with self._lock:
            every = list(self._words[int(reverse)])
        return [word for word in every if self.on_word(word, reverse=reverse)]

    def counts(self) -> dict[str, int]:
        standing = self.standing()
        return {v: sum(one.verdict == v for one in standing) for v in (ACCEPT, REJECT, CORRECT)}

    def judged(self) -> tuple[Lexicon, Lexicon]:
        """Right and wrong pairs, source language first; of a pair the last verdict counts."""
        last = {one.pair: one.verdict for one in self.standing() if one.verdict != SKIP}
        right = Lexicon(pair for pair, verdict in last.items() if verdict in RIGHT)
        return right, Lexicon(pair for pair, verdict in last.items() if verdict == REJECT)

    def tsv(self) -> Iterator[str]:
        """Lines of a table of what stands, source language first."""
        yield tsv_row(COLUMNS)
        for one in self.standing():
            yield tsv_row([*one.pair, one.verdict, one.who, one.when, one.note])


def _decision(values: Any) -> Decision:
    number, source, target, verdict, reverse, note, who, when = values
    return Decision(number, source, target, verdict, bool(reverse), note, who, when)
