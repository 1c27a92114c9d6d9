"""Loading word vectors: recognise the format, run its reader, and select rows.

Every reader is a generator of ``Batch``es; case folding, duplicates, NaN, zero vectors and
``max_words`` are handled here, for all formats alike.
"""

from __future__ import annotations

import codecs
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from blicer import progress
from blicer.errors import FileError, InputError
from blicer.io.streams import Stream

# The reader of each format, imported when it is needed: some import pyarrow, one imports torch.
READERS = {
    "text": "blicer.io.text:read_text",
    "word2vec": "blicer.io.binary:read_word2vec",
    "fasttext": "blicer.io.binary:read_fasttext",
    "npy": "blicer.io.matrices:read_npy",
    "torch": "blicer.io.matrices:read_torch",
    "safetensors": "blicer.io.matrices:read_safetensors",
}
_WITHOUT_WORDS = ("npy", "torch")

# What a report counts, and how its sentence ends. Problems that drop a vector:
_DROPPED = {
    "wrong_length": ("line", "of the wrong length dropped"),
    "truncated": ("vector", "cut off at the end of the file, dropped"),
    "not_finite": ("vector", "with NaN or infinity dropped"),
    "not_utf8": ("word", "not in UTF-8 dropped (another encoding? iconv -f latin1 -t utf-8)"),
    "no_word": ("vector", "without a word dropped"),
    "duplicate": ("duplicate word", "dropped (the first one is kept)"),
    "case_merged": ("word", "dropped (same as an earlier one except for case)"),
}
# Problems that do not:
_NOTED = {
    "header_count": ("", "the header gives another number of words than the file has"),
    "header_dimension": ("", "the header gives another dimension than the lines have"),
    "zero": ("word", "with an all-zero vector (kept)"),
    "blank": ("blank line", "skipped"),
}
# Problems of dictionaries:
_DICTIONARY = {
    "unreadable": ("line", "that could not be read"),
    "header": ("", "the first line was taken for a header"),
    "comment": ("line", "beginning with # taken for comments (\\# begins a word with it)"),
    "repeated": ("repeated pair", "kept once (maps weigh them by how often they are listed)"),
    "extra_column": ("line", "with further columns, which were not read"),
    "separator": (
        "target",
        "with separators inside, kept whole (put each word on its own line)",
    ),
}
_SENTENCES = {**_DROPPED, **_NOTED, **_DICTIONARY}
_EXAMPLES_KEPT = 5


@dataclass
class LoadReport:
    """Counts and examples of problems by kind; false if there were none."""

    format: str = ""  # of a dictionary: its delimiter
    language: str | None = None  # if the file states it
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def count(self, kind: str, example: str = "") -> None:
        self.counts[kind] = self[kind] + 1
        examples = self.examples.setdefault(kind, [])
        if example and len(examples) < _EXAMPLES_KEPT:
            examples.append(example)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __getitem__(self, kind: str) -> int:
        return self.counts.get(kind, 0)

    @property
    def dropped(self) -> int:
        """The number of vectors that were dropped."""
        return sum(self[kind] for kind in _DROPPED)

    def lines(self) -> list[str]:
        """One sentence for each kind of problem, with examples."""
        sentences = []
        for kind, (noun, text) in _SENTENCES.items():
            if n := self[kind]:
                said = f"{n:,} {noun}{'' if n == 1 else 's'} {text}" if noun else text
                examples = self.examples[kind] + ["…"] * (n > len(self.examples[kind]) > 0)
                sentences.append(": ".join([said, ", ".join(examples)] if examples else [said]))
        return sentences


@dataclass
class Batch:
    """Some rows of a vector file, in file order."""

    words: list[str]
    vectors: np.ndarray
    numbers: Sequence[int] | np.ndarray  # of the rows, counted from ``first``, for the report
    unit: str  # of the numbers: "line", "word" or "row"
    first: int = 1
    problems: list[tuple[str, int, str]] = field(default_factory=list)  # kind, number, detail
    size: int = 0  # lines, words or rows read, usable or not
    expected: int = 0  # estimated rows of the file, to reserve memory for
    position: int = 0  # bytes of the file read so far
    whole: bool = False  # the whole file: its matrix need not be copied

    @classmethod
    def decoded(cls, raw: Sequence[bytes], vectors: np.ndarray, unit: str, **more: Any) -> Batch:
        """A batch of the rows whose words are UTF-8; other rows become problems."""
        words, numbers, problems = [], [], []
        for number, word in enumerate(raw):
            try:
                words.append(word.decode("utf-8"))
                numbers.append(number)
            except UnicodeDecodeError:
                problems.append(("not_utf8", number, repr(word[:40])[1:]))
        rows = vectors[numbers] if problems else vectors
        return cls(words, rows, numbers, unit, problems=problems, size=len(raw), **more)

    def place(self, number: int, detail: str = "") -> str:
        return f"{self.unit} {self.first + number}" + (f" {detail}" if detail else "")


Reader = Callable[[Path, LoadReport, "Path | None"], Iterator[Batch]]
Loaded = tuple[list[str], np.ndarray, LoadReport]


def load(
    path: Path,
    max_words: int | None = None,
    lowercase: bool = True,
    vocabulary: Path | None = None,
) -> Loaded:
    """Words, vectors and report. The arguments are those of ``Embeddings.load``."""
    format = recognise_format(path)
    if vocabulary is not None and format not in _WITHOUT_WORDS:
        raise InputError(f"vocabulary= is for matrix files; {path} ({format}) has its words")
    reader: Reader = resolve_name(READERS[format])
    report = LoadReport(format)
    collector = Collector(report, max_words=max_words, lowercase=lowercase)
    with progress.task(f"Reading {path.name}", total=path.stat().st_size) as task:
        for batch in reader(path, report, vocabulary):
            collector.add(batch)
            task.advance(batch.position - task.done)
            if collector.full:
                break
    _check_usable(path, collector, report)
    return collector.words, collector.matrix(), report


def _check_usable(path: Path, collector: Collector, report: LoadReport) -> None:
    """Raise ``FileError`` for a file that is mostly unreadable."""
    words, not_utf8 = len(collector.words), report["not_utf8"]
    total = words + report.dropped
    broken = report["wrong_length"] + report["truncated"]
    other_encoding = not_utf8 >= 20 and not_utf8 > 0.05 * total
    if not words or broken > collector.offered or other_encoding:
        why = "; ".join(report.lines())
        raise FileError(path, f"only {words:,} of {total:,} entries are usable: {why}")


# Selecting rows

_FIRST_CAPACITY = 4096


class Collector:
    """Takes batches in file order, keeps usable rows, and counts the others in the report."""

    def __init__(self, report: LoadReport, *, max_words: int | None, lowercase: bool) -> None:
        self.words: list[str] = []
        self.offered = 0  # rows of all batches
        self._report, self._max_words, self._lowercase = report, max_words, lowercase
        self._first: dict[str, str] = {}  # key (folded) -> the word as it was first written
        self._matrix = np.empty((0, 0), dtype=np.float32)

    @property
    def full(self) -> bool:
        return self._max_words is not None and len(self.words) >= self._max_words

    def add(self, batch: Batch) -> None:
        start = len(self.words)
        self.offered += len(batch.words)
        kept, consumed = self._select(batch)
        last = batch.numbers[consumed - 1] if self.full else batch.size
        for kind, number, detail in batch.problems:
            if number <= last:  # problems after the last wanted word are not reported
                self._report.count(kind, batch.place(number, detail and f"({detail})"))
        in_a_row = not kept or kept[-1] == len(kept) - 1
        rows = batch.vectors[: len(kept)] if in_a_row else batch.vectors[kept]
        if batch.whole:
            as_it_is = rows.dtype == np.float32 and rows.flags.c_contiguous  # it stays mapped
            self._matrix = rows if as_it_is else np.ascontiguousarray(rows, dtype=np.float32)
            return
        self._reserve(len(self.words), batch)
        self._matrix[start : len(self.words)] = rows

    def _select(self, batch: Batch) -> tuple[list[int], int]:
        """Rows of the batch to keep, and how many were examined until there were enough."""
        words, vectors = batch.words, batch.vectors
        # If the sum of a row is finite, so are its entries; only other rows are checked closely.
        with np.errstate(all="ignore"):
            suspicious = np.flatnonzero(~np.isfinite(vectors.sum(axis=1, dtype=np.float32)))
        bad = {int(i) for i in suspicious if not np.isfinite(vectors[i]).all()}
        first = self._first

        def count(kind: str, i: int) -> None:
            self._report.count(kind, batch.place(batch.numbers[i], words[i] and repr(words[i])))

        kept: list[int] = []
        room = len(words) if self._max_words is None else self._max_words - len(self.words)
        consumed = len(words)
        for i, word in enumerate(words):
            if len(kept) >= room:
                consumed = i
                break
            if not word:
                count("no_word", i)
                continue
            if i in bad:
                count("not_finite", i)
                continue
            key = word.lower() if self._lowercase else word
            earlier = first.get(key)
            if earlier is not None:
                count("duplicate" if earlier == word else "case_merged", i)
                continue
            first[key] = word
            self.words.append(key)
            kept.append(i)
        for i in kept:
            if not vectors[i, 0] and not vectors[i].any():
                count("zero", i)
        return kept, consumed

    def _reserve(self, rows: int, batch: Batch) -> None:
        have, dim = len(self._matrix), batch.vectors.shape[1]
        if have == 0:
            wanted = max(1, batch.expected or _FIRST_CAPACITY)
            if self._max_words is not None:
                wanted = min(wanted, self._max_words)
            self._matrix = np.empty((max(rows, wanted), dim), dtype=np.float32)
        elif rows > have:
            # realloc moves pages instead of copying them, so peak memory is about one matrix.
            self._matrix.resize((max(rows, have + have // 4), dim), refcheck=False)

    def matrix(self) -> np.ndarray:
        """The finished matrix; the collector must not be used after this."""
        matrix, self._matrix = self._matrix, np.empty((0, 0), dtype=np.float32)
        if len(matrix) != len(self.words):
            matrix.resize((len(self.words), matrix.shape[1]), refcheck=False)
        return matrix


# Recognising the format, by content; the name is used only where content does not tell

FASTTEXT_MAGIC = struct.pack("<i", 793712314)
NPY_MAGIC = b"\x93NUMPY"
_SNIFFED = 1 << 16
HEADER = re.compile(rb"[ \t]*(\d{1,15})[ \t]+(\d{1,9})[ \t\r]*")  # word2vec's: words, dimension
_NUMBER = re.compile(rb"(?i)[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf|infinity)")


def is_number(token: bytes | str) -> bool:
    if isinstance(token, str):
        token = token.encode("utf-8", "replace")
    return _NUMBER.fullmatch(token) is not None


def check_unicode(word: str) -> None:
    """Raise ``InputError`` for a lone surrogate, which UTF-8 cannot encode."""
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{word!r} holds half of a character, which cannot be written") from None


def recognise_format(path: Path) -> str:
    """One of ``READERS``; raises ``FileError`` for files known not to be vectors."""
    if not path.is_file():  # nor a pipe, which cannot be read twice
        raise FileError(path, "is not a file" if path.exists() else "does not exist")
    with Stream(path) as stream:
        if stream.start.startswith(NPY_MAGIC):
            return "npy"
        if stream.start[3:9] == b"\0\0\0\0\0{":  # the length of a JSON header, below 16 MB
            return "safetensors"
        if stream.compression == "zip" and _is_torch_archive(path):
            return "torch"
        head = stream.peek(_SNIFFED)
    if not head:
        raise FileError(path, "is empty")
    if head.startswith(FASTTEXT_MAGIC):
        return "fasttext"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        raise FileError(path, "is a Python pickle, which is never executed; save it as .vec")
    return "word2vec" if _is_word2vec_binary(head) else "text"


def _is_word2vec_binary(head: bytes) -> bool:
    """Whether there is a header, then lines not ending in numbers, and bytes that no text has."""
    line, _, rest = head.partition(b"\n")
    lines = [line.split() for line in rest.split(b"\n")[:20]]
    numeric = [is_number(tokens[-1]) for tokens in lines if len(tokens) > 1]
    if not HEADER.fullmatch(line) or 2 * sum(numeric) >= len(numeric) > 0:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(rest)
    except UnicodeDecodeError:
        return True
    return re.search(rb"[\x00-\x08\x0e-\x1f]", rest) is not None


def _is_torch_archive(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, struct.error):
        # A truncated archive has lost its table of contents.
        return path.suffix in (".pt", ".pth", ".bin")
