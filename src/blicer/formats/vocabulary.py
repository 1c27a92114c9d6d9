"""Word lists that stand beside a matrix: one word a line, or a NumPy array of strings."""

from __future__ import annotations

import tokenize
from pathlib import Path

import numpy as np

from blicer.errors import FileError
from blicer.formats.report import LoadReport

# What NumPy raises for a file that is cut off or changed; its header is a Python literal.
DAMAGED = (ValueError, OSError, EOFError, SyntaxError, MemoryError, tokenize.TokenError)

# Beside ``en.npy``: the first of these that exists.
SIBLINGS = (".vocab.txt", ".vocab", ".words.txt", ".words", ".txt")
BOM = b"\xef\xbb\xbf"


def find_vocabulary(matrix_path: Path) -> Path:
    """The vocabulary file that belongs to ``en.npy`` or ``en.pt``."""
    stem = matrix_path.name.removesuffix(matrix_path.suffix)
    candidates = [matrix_path.with_name(stem + suffix) for suffix in SIBLINGS]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise FileError(
        matrix_path,
        f"is a matrix without words; expected its words, one a line, in {candidates[0].name} "
        "beside it, or give vocabulary=",
    )


def read_vocabulary(path: Path, rows: int, report: LoadReport) -> tuple[list[str], set[int]]:
    """Exactly ``rows`` words, in order, and the rows to skip because their bytes are no text."""
    skip: set[int] = set()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    if data.startswith(b"\x93NUMPY"):
        words = _from_array(path)
    else:
        words = _from_lines(path, data, rows, report, skip)
    if len(words) != rows:
        raise FileError(path, f"has {len(words):,} words but the matrix has {rows:,} rows")
    return words, skip


def _from_lines(
    path: Path, data: bytes, rows: int, report: LoadReport, skip: set[int]
) -> list[str]:
    if data.startswith(BOM):
        data = data.removeprefix(BOM)
        report.count("bom")
    if b"\0" in data[:4096]:
        raise FileError(path, "is not a text file; expected one UTF-8 word a line")
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    while len(lines) > rows and not lines[-1].strip():
        lines.pop()
        report.count("blank", f"{path.name}, line {len(lines) + 1}")
    words = []
    for number, line in enumerate(lines, start=1):
        if line.endswith(b"\r"):
            line = line[:-1]
            report.count("crlf")
        try:
            words.append(line.decode("utf-8") if line.strip(b" \t") else "")
        except UnicodeDecodeError:
            report.count("not_utf8", f"{path.name}, line {number} {line[:40]!r}")
            skip.add(number - 1)
            words.append("")
    return words


def _from_array(path: Path) -> list[str]:
    try:
        array = np.load(path, allow_pickle=False)
    except DAMAGED as error:
        if "pickle" not in str(error):
            raise FileError(path, f"is not a readable NumPy array ({error})") from error
        from blicer.formats.pickled import words_from_object_array

        return words_from_object_array(path)
    if array.dtype.kind != "U" or array.ndim != 1:
        raise FileError(
            path, f"expected a 1-d array of strings, found {array.ndim}-d of {array.dtype}"
        )
    return [str(word) for word in array]
