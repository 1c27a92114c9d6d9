"""Turns what a reader found into the final words and matrix, counting what is left out.

Every reader ends here, so that case folding, duplicates, NaN, zero vectors and ``max_words``
mean the same for every format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# === formats.report ===
EXAMPLES_KEPT = 3

# kind -> (sentence for one, sentence for many). Order is the order of the report.
SENTENCES: dict[str, tuple[str, str]] = {
    "wrong_length": (
        "1 line of the wrong length dropped",
        "{n} lines of the wrong length dropped",
    ),
    "truncated": ("the last line is cut off; dropped", "{n} lines cut off; dropped"),
    "not_numbers": (
        "1 line dropped where numbers were expected",
        "{n} lines dropped where numbers were expected",
    ),
    "not_finite": (
        "1 vector with NaN or infinity dropped",
        "{n} vectors with NaN or infinity dropped",
    ),
    "not_utf8": (
        "1 word dropped that is not UTF-8",
        "{n} words dropped that are not UTF-8 "
        "(if the file has another encoding, convert it: iconv -f latin1 -t utf-8)",
    ),
    "no_word": ("1 vector without a word dropped", "{n} vectors without a word dropped"),
    "duplicate": (
        "1 duplicate word dropped (the first is kept)",
        "{n} duplicate words dropped (the first of each is kept)",
    ),
    "case_merged": (
        "1 word dropped that differs only in case from an earlier one",
        "{n} words dropped that differ only in case from an earlier one",
    ),
    "header_count": ("the header gives another number of words than the file has", ""),
    "header_dimension": ("the header gives another dimension than the lines have", ""),
    "zero": ("1 word has an all-zero vector (kept)", "{n} words have an all-zero vector (kept)"),
    "space_in_word": (
        "1 word contains a space, no-break space or line separator (kept as it is)",
        "{n} words contain a space, no-break space or line separator (kept as they are)",
    ),
    "blank": ("1 blank line skipped", "{n} blank lines skipped"),
    "bom": ("a byte-order mark at the start was removed", ""),
    "crlf": ("1 line ends with CR LF (read as LF)", "{n} lines end with CR LF (read as LF)"),
    "no_final_newline": ("the last line has no line end (kept)", ""),
}

# Kinds that cost a vector; the others were mended or only noticed.
DROPPED = frozenset(
    {
        "wrong_length",
        "truncated",
        "not_numbers",
        "not_finite",
        "not_utf8",
        "no_word",
        "duplicate",
        "case_merged",
    }
)


@dataclass
class LoadReport:
    """Counts by kind, each with a few examples; empty when the input was clean."""

    source: str = ""
    format: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def count(self, kind: str, example: str | None = None, n: int = 1) -> None:
        if kind not in SENTENCES:
            raise KeyError(f"unknown kind of irregularity: {kind}")
        if n <= 0:
            return
        self.counts[kind] = self.counts.get(kind, 0) + n
        if example is not None:
            kept = self.examples.setdefault(kind, [])
            if len(kept) < EXAMPLES_KEPT:
                kept.append(example)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __getitem__(self, kind: str) -> int:
        """How many of this kind (0 when none)."""
        return self.counts.get(kind, 0)

    @property
    def dropped(self) -> int:
        """How many vectors of the input are not in the result."""
        return sum(n for kind, n in self.counts.items() if kind in DROPPED)

    def lines(self) -> list[str]:
        """One sentence for each kind, with examples; empty when there is nothing to say."""
        prefix = f"{self.source}: " if self.source else ""
        sentences = []
        for kind, (one, many) in SENTENCES.items():
            n = self.counts.get(kind, 0)
            if not n:
                continue
            text = one if n == 1 or not many else many.format(n=f"{n:,}")
            if examples := self.examples.get(kind):
                more = ", …" if n > len(examples) else ""
                text += f": {', '.join(examples)}{more}"
            sentences.append(prefix + text)
        return sentences

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "format": self.format,
            "counts": dict(self.counts),
            "examples": {kind: list(items) for kind, items in self.examples.items()},
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> LoadReport:
        return cls(
            source=str(value["source"]),
            format=str(value["format"]),
            counts={str(kind): int(n) for kind, n in value["counts"].items()},
            examples={str(kind): [str(x) for x in xs] for kind, xs in value["examples"].items()},
        )


# === formats.collect ===
# str's \s covers U+0085, U+00A0, U+2028 and U+2029 too.
_SPACE = re.compile(r"\s")
_FIRST_CAPACITY = 4096

# Names row i of a batch for the report ("line 17"); called only for the few that need it.
Place = Callable[[int], str]


class Collector:
    """Takes batches of (word, vector) in file order and keeps the rows that count."""

    def __init__(
        self, report: LoadReport, *, max_words: int | None = None, lowercase: bool = True
    ) -> None:
        self.report = report
        self.words: list[str] = []
        self.consumed = 0  # rows of the last batch that were looked at before it was full
        self._max_words, self._lowercase = max_words, lowercase
        self._first: dict[str, str] = {}  # key (folded) -> the word as it was first written
        self._matrix = np.empty((0, 0), dtype=np.float32)
        self._capacity_hint = _FIRST_CAPACITY

    @property
    def full(self) -> bool:
        return self._max_words is not None and len(self.words) >= self._max_words

    def expect(self, rows: int) -> None:
        """How many rows will come, roughly: memory is reserved, not touched."""
        if self._max_words is not None:
            rows = min(rows, self._max_words)
        self._capacity_hint = max(1, rows)

    def select(
        self,
        words: Sequence[str],
        vectors: np.ndarray,
        place: Place,
        skip: Collection[int] = frozenset(),
    ) -> list[int]:
        """Which rows of the batch are kept; the rest are counted. Updates ``words``.

        Rows in ``skip`` are left out without a word: the reader has counted them already.
        """
        # The sum is finite only if every entry is, unless it overflows: look closer only then.
        with np.errstate(all="ignore"):
            suspicious = np.flatnonzero(~np.isfinite(vectors.sum(axis=1, dtype=np.float32)))
        bad = {int(i) for i in suspicious if not np.isfinite(vectors[i]).all()}
        spaces = _SPACE.search("".join(words)) is not None
        first, count = self._first, self.report.count
        kept: list[int] = []
        self.consumed = len(words)
        room = len(words) if self._max_words is None else self._max_words - len(self.words)
        for i, word in enumerate(words):
            if len(kept) >= room:
                self.consumed = i
                break
            if i in skip:
                continue
            if not word:
                count("no_word", place(i))
                continue
            if i in bad:
                count("not_finite", f"{place(i)} {word!r}")
                continue
            key = word.lower() if self._lowercase else word
            earlier = first.get(key)
            if earlier is not None:
                kind = "duplicate" if earlier == word else "case_merged"
                count(kind, f"{place(i)} {word!r}")
                continue
            if spaces and _SPACE.search(word):
                count("space_in_word", f"{place(i)} {word!r}")
            first[key] = word
            self.words.append(key)
            kept.append(i)
        zero = [i for i in kept if not vectors[i, 0] and not vectors[i].any()]
        for i in zero:
            count("zero", f"{place(i)} {words[i]!r}")
        return kept

    def add(self, words: Sequence[str], vectors: np.ndarray, place: Place) -> None:
        start = len(self.words)
        kept = self.select(words, vectors, place)
        self._reserve(len(self.words), vectors.shape[1])
        rows = vectors if len(kept) == len(words) else vectors[kept]
        self._matrix[start : len(self.words)] = rows

    def _reserve(self, rows: int, dim: int) -> None:
        have = len(self._matrix)
        if have == 0:
            self._matrix = np.empty((max(rows, self._capacity_hint), dim), dtype=np.float32)
        elif rows > have:
            # realloc moves pages rather than copying them: the peak stays near one matrix.
            self._matrix.resize((max(rows, have + have // 4), dim), refcheck=False)

    def matrix(self) -> np.ndarray:
        """The finished matrix; the collector must not be used after this."""
        matrix, self._matrix = self._matrix, np.empty((0, 0), dtype=np.float32)
        matrix.resize((len(self.words), matrix.shape[1]), refcheck=False)
        return matrix


def select_rows(
    words: Sequence[str],
    vectors: np.ndarray,
    report: LoadReport,
    *,
    max_words: int | None,
    lowercase: bool,
    skip: Collection[int] = frozenset(),
) -> tuple[list[str], np.ndarray]:
    """The same rules for a matrix that is already in memory (or mapped): copies only if needed."""
    collector = Collector(report, max_words=max_words, lowercase=lowercase)
    kept = collector.select(words, vectors, lambda i: f"row {i + 1}", skip)
    rows = vectors[: len(kept)] if kept == list(range(len(kept))) else vectors[kept]
    if rows.dtype != np.float32 or not rows.flags.c_contiguous:
        rows = np.ascontiguousarray(rows, dtype=np.float32)
    return collector.words, rows
