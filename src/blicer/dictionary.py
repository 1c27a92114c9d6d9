"""Writing a whole dictionary: streaming, resumable, memory bounded (``blicer induce``).

Entries go to ``FILE.partial``; a small JSON file beside it says how far that file is valid. The
same call after a kill cuts the file there and goes on; the finished file gets its name at once.
A format is one entry of ``FORMATS``.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from blicer.errors import FileError, InputError
from blicer.files import check_writable, digest, followed, is_special, read_json, write_json
from blicer.io.dictionary import escape_comment, tsv_row
from blicer.progress import note, task

if TYPE_CHECKING:
    from blicer.translator import Translation, Translator

COLUMNS = ("source", "target", "confidence", "score", "rank")
WORDS_A_STEP = 512


@dataclass(frozen=True)
class Format:
    """How entries are written: the text before them, and the lines of one word's entries."""

    name: str
    endings: tuple[str, ...]
    help: str
    header: Callable[[], str]
    rows: Callable[[Translation], Iterable[str]]


def _cells(entry: Translation) -> Iterator[list[str]]:
    for rank, candidate in enumerate(entry.candidates, start=1):
        sure = "" if candidate.confidence is None else f"{candidate.confidence:.4f}"
        yield [entry.word, candidate.word, sure, f"{candidate.score:.4f}", str(rank)]


def _tsv_rows(entry: Translation) -> Iterator[str]:
    return map(tsv_row, _cells(entry))


def _csv_rows(entry: Translation) -> Iterator[str]:
    for cells in _cells(entry):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow([escape_comment(cells[0]), *cells[1:]])
        yield out.getvalue()


def _json_rows(entry: Translation) -> Iterator[str]:
    for rank, candidate in enumerate(entry.candidates, start=1):
        sure = candidate.confidence
        line = {
            "source": entry.word,
            "target": candidate.word,
            "confidence": None if sure is None else round(sure, 4),
            "score": round(candidate.score, 4),
            "rank": rank,
        }
        yield json.dumps(line, ensure_ascii=False) + "\n"


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format("tsv", (".tsv", ".txt"), "tab-separated", lambda: tsv_row(COLUMNS), _tsv_rows),
        Format("csv", (".csv",), "comma-separated", lambda: ",".join(COLUMNS) + "\n", _csv_rows),
        Format("jsonl", (".jsonl",), "one JSON object a line", lambda: "", _json_rows),
    )
}


def format_of(path: Path, given: str | None = None) -> Format:
    """The format named, or the one that the file's ending says; unknown ones raise."""
    ending = path.suffix.lower()
    by_ending = {known: one.name for one in FORMATS.values() for known in one.endings}
    if given is None and ending and ending not in by_ending:
        raise InputError(
            f"{path} ends in {ending}, which no dictionary format has; there are "
            f"{', '.join(by_ending)} (--format writes any of {', '.join(FORMATS)} to any name)"
        )
    name = (given or by_ending.get(ending, "tsv")).lower()
    if name not in FORMATS:
        raise InputError(f"there is no format {name!r}; there are {', '.join(FORMATS)}")
    return FORMATS[name]


@dataclass(frozen=True)
class InducedFile:
    """What ``induce`` wrote."""

    path: Path
    words: int
    translated: int
    entries: int
    resumed_at: int = 0


def induce(
    translator: Translator,
    path: str | Path,
    *,
    words: int | None = None,
    k: int = 1,
    min_confidence: float = 0.0,
    reverse: bool = False,
    format: str | None = None,
) -> InducedFile:
    """Translate the most frequent words and write the dictionary to ``path``.

    ``words``: how many (None: all). ``k``: translations a word at most. ``min_confidence``: leave
    out entries less sure than this. ``reverse``: from target to source. ``format``: one of
    ``FORMATS``; by default the file's ending says.
    """
    path = followed(path)
    written = format_of(path, format)
    if is_special(path):
        raise FileError(path, "is no regular file; a dictionary that can be resumed needs one")
    check_writable(path)
    translator.check_request(k, min_confidence)
    side = translator.target if reverse else translator.source
    vocabulary = side.words[: len(side.words) if words is None else words]
    settings = {
        "translator": digest(
            translator.to_dict(), list(translator.source.words), list(translator.target.words)
        ),
        "words": len(vocabulary),
        "k": k,
        "min_confidence": min_confidence,
        "reverse": reverse,
        "format": written.name,
    }
    job = PartialFile(path, settings)
    state = job.resume(written.header().encode())
    start = state["words"]
    if start:
        note(f"{path}: going on after {start} of {len(vocabulary)} words")
    with job.open(state["bytes"]) as file, task("translating", len(vocabulary)) as running:
        running.advance(start)
        for first in range(start, len(vocabulary), WORDS_A_STEP):
            some = vocabulary[first : first + WORDS_A_STEP]
            found = translator.translate(some, k, reverse=reverse, min_confidence=min_confidence)
            lines = "".join(line for entry in found for line in written.rows(entry))
            job.write(file, lines.encode("utf-8", "replace"))
            state["words"] = first + len(some)
            state["translated"] += sum(bool(entry.candidates) for entry in found)
            state["entries"] += sum(len(entry.candidates) for entry in found)
            job.mark(file, state)
            running.advance(len(some))
    job.finish()
    return InducedFile(path, len(vocabulary), state["translated"], state["entries"], start)


class PartialFile:
    """A file that is being written, and how far it is valid."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.partial = path.with_name(path.name + ".partial")
        self.state_file = path.with_name(path.name + ".partial.json")

    def resume(self, header: bytes) -> dict[str, int]:
        """The state of an earlier run with these settings, or of a new file with its header."""
        if self.partial.is_file() and self.state_file.is_file():
            try:
                kept = read_json(self.state_file)
            except FileError:
                kept = {}
            state = kept.get("state", {})
            if kept.get("settings") == self.settings and (
                self.partial.stat().st_size >= state.get("bytes", 0)
            ):
                return {key: int(state[key]) for key in ("words", "translated", "entries", "bytes")}
        with self._writing():
            self.partial.write_bytes(header)
        return {"words": 0, "translated": 0, "entries": 0, "bytes": len(header)}

    @contextmanager
    def open(self, valid: int) -> Iterator[IO[bytes]]:
        with self._writing():
            file = self.partial.open("r+b")
            file.truncate(valid)
            file.seek(valid)
        try:
            yield file
        finally:
            with self._writing():  # a full disk may only be found here
                file.close()

    def write(self, file: IO[bytes], content: bytes) -> None:
        with self._writing():
            file.write(content)

    def mark(self, file: IO[bytes], state: dict[str, int]) -> None:
        """Record that everything written so far is valid."""
        with self._writing():
            file.flush()
            os.fsync(file.fileno())
        state["bytes"] = file.tell()
        write_json(self.state_file, {"settings": self.settings, "state": state})

    def finish(self) -> None:
        with self._writing():
            os.replace(self.partial, self.path)
        self.state_file.unlink(missing_ok=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FileError(self.partial, f"cannot be written ({error.strerror})") from error
