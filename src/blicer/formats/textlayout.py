"""What a text vector file looks like (header, dimension, line ends), told from its first lines.

A header is believed only as far as the lines bear it out.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from blicer.errors import FileError

SAMPLE_LINES = 200
BLANKS = b" \t\r"
_SPLIT = re.compile(rb"[ \t]+")
_HEADER = re.compile(rb"[ \t]*(\d{1,15})[ \t]+(\d{1,9})[ \t\r]*")
_NUMBER = re.compile(
    rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE
)
_DECIMAL = re.compile(rb"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")


def is_number(token: bytes) -> bool:
    return _NUMBER.fullmatch(token) is not None


def is_decimal(token: bytes) -> bool:
    """A number that is written like a vector's entry, not like a part of a name ("Catch 22")."""
    return _DECIMAL.fullmatch(token) is not None


def without_ends(line: bytes) -> bytes:
    """Without the blanks around it; a return counts as a blank only at the line's end."""
    return line.rstrip(BLANKS).lstrip(b" \t")


def tokens_of(line: bytes) -> list[bytes]:
    """The pieces between spaces and tabs; nothing else separates (U+0085 and U+00A0 do not)."""
    return _SPLIT.split(without_ends(line))


@dataclass(frozen=True)
class Layout:
    dim: int
    header: tuple[int, int] | None  # (words, dimension) as the first line claims
    tail: bytes  # what stands between the last number of a line and the next line


def recognise(path: Path, sample: bytes, complete: bool) -> Layout:
    """``sample`` starts after any byte-order mark; ``complete`` when it is the whole file."""
    lines = sample.split(b"\n")
    if not complete or not lines[-1].strip(BLANKS):
        lines.pop()  # cut off by the sample, or nothing after the last line end
    total, lines = len(lines), lines[: SAMPLE_LINES + 1]
    if not lines:
        raise FileError(path, "has no line end in its first megabytes; expected one word a line")
    found = _HEADER.fullmatch(lines[0])
    header = (int(found[1]), int(found[2])) if found else None
    body = [line for line in (lines[1:] if header else lines) if line.strip(BLANKS)]
    if not body:
        raise FileError(
            path, "has a header but no vectors" if header else "has no vectors, only blank lines"
        )
    dim = _dimension(path, body, header)
    if (
        header is not None
        and dim == 1
        and not _one_dimensional_header(header, total - 1, complete and total <= SAMPLE_LINES)
    ):
        header = None  # the word "7" with the vector [3], not a header
    return Layout(dim, header, _tail(body, dim))


def _dimension(path: Path, body: list[bytes], header: tuple[int, int] | None) -> int:
    """The commonest number of numbers at the end of a line; the header settles a tie."""
    votes: Counter[int] = Counter()
    for line in body:
        tokens = tokens_of(line)
        n = 0
        while n < len(tokens) - 1 and is_number(tokens[-1 - n]):
            n += 1
        if n:
            votes[n] += 1
    if not votes:
        shown = body[0][:60].decode("utf-8", errors="replace").strip()
        raise FileError(
            path, f"is not a vector file: expected a word and its numbers, found {shown!r}"
        )
    most = max(votes.values())
    best = [n for n, count in votes.items() if count == most]
    if header is not None and header[1] in best:
        return header[1]
    return max(best)


def _one_dimensional_header(header: tuple[int, int], others: int, whole: bool) -> bool:
    """In a 1-d file every line looks like a header, so the claim must be borne out."""
    words, dim = header
    return dim == 1 and (words == others if whole else words >= others)


def _tail(body: list[bytes], dim: int) -> bytes:
    """The commonest line ending, among those that the fast path knows: '\\n', ' \\n', '\\r\\n' …"""
    tails: Counter[bytes] = Counter()
    for line in body:
        rest = line[len(line.rstrip(BLANKS)) :]
        if len(rest) <= 2:
            tails[rest + b"\n"] += 1
    return tails.most_common(1)[0][0] if tails else b"\n"
