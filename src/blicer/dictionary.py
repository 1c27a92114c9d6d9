"""Writing a whole dictionary: streaming, resumable, memory bounded (``blicer induce``).

Entries go to ``FILE.partial``; beside it a small JSON says how far the file is valid. The same
call after a kill cuts the file there and goes on; the finished file takes its name at once.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blicer.errors import FileError, InputError
from blicer.files import check_writable, followed, is_special, read_json, write_json
from blicer.io.dictionary import escape_comment, tsv_row
from blicer.progress import note, task

if TYPE_CHECKING:
    from blicer.translator import Translation, Translator

FORMATS = ("tsv", "csv", "jsonl")
ENDINGS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".jsonl": "jsonl"}
COLUMNS = ("source", "target", "confidence", "score", "rank")
WORDS_A_STEP = 512


@dataclass(frozen=True)
class Induced:
    """What was written."""

    path: Path
    words: int
    translated: int
    entries: int
    resumed_at: int = 0


def format_of(path: Path, given: str | None = None) -> str:
    """The format named, or the one that the file's ending says."""
    ending = path.suffix.lower()
    if given is None and ending and ending not in ENDINGS:
        raise InputError(
            f"{path} ends in {ending}, which no dictionary format has; there are "
            f"{', '.join(ENDINGS)} (--format writes any of {', '.join(FORMATS)} to any name)"
        )
    name = (given or ENDINGS.get(ending, "tsv")).lower()
    if name not in FORMATS:
        raise InputError(f"there is no format {name!r}; there are {', '.join(FORMATS)}")
    return name


def induce(
    translator: Translator,
    path: str | Path,
    *,
    words: int | None = None,
    k: int = 1,
    min_confidence: float = 0.0,
    reverse: bool = False,
    format: str | None = None,
) -> Induced:
    """Translate the ``words`` most frequent words (all when None) and write the dictionary."""
    path = followed(path)
    kind = format_of(path, format)
    if is_special(path):
        raise FileError(path, "is no regular file; a dictionary that can be resumed needs one")
    check_writable(path)
    translator.check_request(k, min_confidence)
    side = translator.target if reverse else translator.source
    vocabulary = side.words[: len(side.words) if words is None else words]
    job = Job(
        path,
        {
            "translator": _fingerprint(translator),
            "words": len(vocabulary),
            "k": k,
            "min_confidence": min_confidence,
            "reverse": reverse,
            "format": kind,
        },
    )
    state = job.resume(_header(kind))
    start = state["words"]
    if start:
        note(f"{path}: going on after {start} of {len(vocabulary)} words")
    with job.open(state["bytes"]) as file, task("translating", len(vocabulary)) as running:
        running.advance(start)
        for first in range(start, len(vocabulary), WORDS_A_STEP):
            some = vocabulary[first : first + WORDS_A_STEP]
            found = translator.translate(some, k, reverse=reverse, min_confidence=min_confidence)
            job.write(file, rows(found, kind).encode("utf-8", "replace"))
            state["words"] = first + len(some)
            state["translated"] += sum(bool(entry.candidates) for entry in found)
            state["entries"] += sum(len(entry.candidates) for entry in found)
            job.mark(file, state)
            running.advance(len(some))
    job.finish()
    return Induced(path, len(vocabulary), state["translated"], state["entries"], start)


def rows(translations: Iterable[Translation], kind: str) -> str:
    """The lines of some entries in a format."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for entry in translations:
        for rank, candidate in enumerate(entry.candidates, start=1):
            if kind == "jsonl":
                line = {
                    "source": entry.word,
                    "target": candidate.word,
                    "confidence": _rounded(candidate.confidence),
                    "score": _rounded(candidate.score),
                    "rank": rank,
                }
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
                continue
            sure = "" if candidate.confidence is None else f"{candidate.confidence:.4f}"
            cells = (candidate.word, sure, f"{candidate.score:.4f}", rank)
            if kind == "csv":
                writer.writerow((escape_comment(entry.word), *cells))
            else:
                out.write(tsv_row((entry.word, *cells)))
    return out.getvalue()


def _header(kind: str) -> bytes:
    if kind == "jsonl":
        return b""
    return (("," if kind == "csv" else "\t").join(COLUMNS) + "\n").encode()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _fingerprint(translator: Translator) -> str:
    """What decides the output: a digest of the description and of the vocabularies."""
    digest = hashlib.sha256(json.dumps(translator.to_dict(), sort_keys=True, default=str).encode())
    for side in (translator.source, translator.target):
        digest.update("\n".join(side.words).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


class Job:
    """A file that is being written and how far it is valid."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.partial = path.with_name(path.name + ".partial")
        self.state_file = path.with_name(path.name + ".partial.json")

    def resume(self, header: bytes) -> dict[str, int]:
        """The state of an earlier run of this very job, or a fresh file with its header."""
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
    def open(self, valid: int) -> Iterator[Any]:
        with self._writing():
            file = self.partial.open("r+b")
            file.truncate(valid)
            file.seek(valid)
        try:
            yield file
        finally:
            with self._writing():  # a full disk is found out here too
                file.close()

    def write(self, file: Any, content: bytes) -> None:
        with self._writing():
            file.write(content)

    def mark(self, file: Any, state: dict[str, int]) -> None:
        """All that was written so far is valid."""
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
