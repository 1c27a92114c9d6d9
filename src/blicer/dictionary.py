"""Writing a whole dictionary: streaming, resumable, memory bounded (``blicer induce``).

Entries go to ``FILE.partial``; a small JSON file beside it says how far that file is valid. The
same call after a kill goes on from there; the finished file gets its name at once.
A format is one entry of ``FORMATS``.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from blicer.config import MOST
from blicer.errors import FileError, InputError
from blicer.files import check_writable, digest, followed, is_special, read_json, write_json
from blicer.io.dictionary import escape_comment, tsv_row
from blicer.progress import note, task

if TYPE_CHECKING:
    from blicer.translator import Translation, Translator

COLUMNS = ("source", "target", "confidence", "score", "rank")
WORDS_A_STEP = 512


class Format(NamedTuple):
    """How entries are written."""

    endings: tuple[str, ...]
    header: str
    rows: Callable[[Translation], Iterable[str]]
    """The lines of one word's entries."""


def _cells(entry: Translation) -> Iterator[list[str]]:
    for rank, candidate in enumerate(entry.candidates, start=1):
        sure = "" if candidate.confidence is None else f"{candidate.confidence:.4f}"
        score = "" if candidate.score is None else f"{candidate.score:.4f}"
        yield [entry.word, candidate.word, sure, score, str(rank)]


def _csv_rows(entry: Translation) -> Iterator[str]:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([escape_comment(word), *others] for word, *others in _cells(entry))
    yield out.getvalue()


def _json_rows(entry: Translation) -> Iterator[str]:
    for source, target, sure, score, rank in _cells(entry):
        words = {"source": source, "target": target, "confidence": float(sure) if sure else None}
        line = {**words, "score": float(score) if score else None, "rank": int(rank)}
        yield json.dumps(line, ensure_ascii=False) + "\n"


FORMATS: dict[str, Format] = {
    "tsv": Format((".tsv", ".txt"), tsv_row(COLUMNS), lambda entry: map(tsv_row, _cells(entry))),
    "csv": Format((".csv",), ",".join(COLUMNS) + "\n", _csv_rows),
    "jsonl": Format((".jsonl",), "", _json_rows),
}


def check_output(path: Path, given: str | None = None) -> str:
    """The format named, or the one that the file's ending says.

    Unknown formats raise, and so does a path that no dictionary can be written to.
    """
    ending = path.suffix.lower()
    by_ending = {known: name for name, one in FORMATS.items() for known in one.endings}
    if given is None and ending and ending not in by_ending:
        raise InputError(
            f"{path} ends in {ending}, which no dictionary format has; there are "
            f"{', '.join(by_ending)} (--format writes any of {', '.join(FORMATS)} to any name)"
        )
    name = (given or by_ending.get(ending, "tsv")).lower()
    if name not in FORMATS:
        raise InputError(f"there is no format {name!r}; there are {', '.join(FORMATS)}")
    if path.is_dir() or is_special(path):
        raise FileError(path, "is no regular file; expected the name of a dictionary file")
    check_writable(path)
    return name


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
    k: int = MOST,
    min_confidence: float | None = None,
    seeds_as_evidence: bool = False,
    reverse: bool = False,
    format: str | None = None,
) -> InducedFile:
    """Translate the most frequent words and write the dictionary to ``path``.

    ``words``: how many (None: all). ``k``, ``min_confidence``, ``seeds_as_evidence`` and
    ``reverse``: see ``Translator.translate_stream``. ``format``: one of ``FORMATS``; by default the
    file's ending says.
    """
    path = followed(path)
    format = check_output(path, format)
    translator.check_request([], k, min_confidence)
    side = translator.target if reverse else translator.source
    vocabulary = side.words[: len(side.words) if words is None else words]
    asked = {
        "reverse": reverse,
        "min_confidence": min_confidence,
        "seeds_as_evidence": seeds_as_evidence,
    }
    settings = {
        "translator": digest(
            translator.to_dict(), list(translator.source.words), list(translator.target.words)
        ),
        "words": len(vocabulary),
        "k": k,
        **asked,
        "format": format,
    }
    _, header, rows = FORMATS[format]
    partial = PartialFile(path, settings)
    state = partial.resume() or {"words": 0, "translated": 0, "entries": 0, "bytes": 0}
    start = state["words"]
    if not start:
        partial.append(header, state)
    if start:
        note(f"{path}: going on after {start} of {len(vocabulary)} words")
    with task("translating", len(vocabulary)) as running:
        running.advance(start)
        for first in range(start, len(vocabulary), WORDS_A_STEP):
            some = vocabulary[first : first + WORDS_A_STEP]
            found = translator.translate(some, k, **asked)
            state["words"] = first + len(some)
            state["translated"] += sum(bool(entry.candidates) for entry in found)
            state["entries"] += sum(len(entry.candidates) for entry in found)
            partial.append("".join(line for entry in found for line in rows(entry)), state)
            running.advance(len(some))
    partial.finish()
    return InducedFile(path, len(vocabulary), state["translated"], state["entries"], start)


class PartialFile:
    """A file that is being written, and how far it is valid."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.partial = path.with_name(path.name + ".partial")
        self.state_file = path.with_name(path.name + ".partial.json")

    def resume(self) -> dict[str, int] | None:
        """The state of an earlier run with these settings, if there is one."""
        try:
            kept = read_json(self.state_file)
            if kept["settings"] == self.settings and (
                self.partial.stat().st_size >= kept["state"]["bytes"]
            ):
                return dict(kept["state"])
        except (FileError, OSError, KeyError, TypeError):
            pass  # none, or damaged
        return None

    def append(self, text: str, state: dict[str, int]) -> None:
        """Write after the valid part and record ``state``, all of which is valid then."""
        content = text.encode("utf-8", "replace")
        try:
            with self.partial.open("r+b" if state["bytes"] else "wb") as file:
                file.truncate(state["bytes"])
                file.seek(state["bytes"])
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FileError(self.partial, f"cannot be written ({error.strerror})") from error
        state["bytes"] += len(content)
        write_json(self.state_file, {"settings": self.settings, "state": state})

    def finish(self) -> None:
        try:
            os.replace(self.partial, self.path)
        except OSError as error:
            raise FileError(self.path, f"cannot be written ({error.strerror})") from error
        self.state_file.unlink(missing_ok=True)
