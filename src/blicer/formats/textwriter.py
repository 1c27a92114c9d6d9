"""Writing word2vec text, in the shortest digits that read back to the same float32."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from blicer.errors import InputError
from blicer.files import atomic_write
from blicer.formats.textlayout import is_decimal

_SUFFIXES = (".vec", ".txt")
_ROWS_AT_ONCE = 2048
_UNCLEAR_SPACE = re.compile(r"^ | $|  |\t|\n")


def is_text_path(path: Path) -> bool:
    """``x.vec``, ``x.txt`` and these with ``.gz``."""
    return path.name.removesuffix(".gz").endswith(_SUFFIXES)


def write(path: Path, words: list[str], vectors: np.ndarray) -> None:
    for row, word in enumerate(words):
        _check_word(row, word)
    with atomic_write(path, "wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
                _write_to(packed, words, vectors)
        else:
            _write_to(file, words, vectors)


def _check_word(row: int, word: str) -> None:
    """Refuse what would not read back as the same word."""
    if _UNCLEAR_SPACE.search(word) or (" " in word and is_decimal(word.split(" ")[-1].encode())):
        raise InputError(
            f"the word {word!r} (row {row}) cannot be written as text, where a space or a line "
            "end ends a word; save to a folder instead (a path without .vec or .txt)"
        )
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"the word {word!r} (row {row}) is not valid Unicode") from None


def _write_to(file: IO[bytes] | gzip.GzipFile, words: list[str], vectors: np.ndarray) -> None:
    file.write(f"{len(words)} {vectors.shape[1]}\n".encode())
    for start in range(0, len(words), _ROWS_AT_ONCE):
        rows = vectors[start : start + _ROWS_AT_ONCE]
        lines = (
            f"{word} {numbers}\n"
            for word, numbers in zip(words[start : start + len(rows)], _numbers(rows), strict=True)
        )
        file.write("".join(lines).encode("utf-8"))


def _numbers(rows: np.ndarray) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    n, dim = rows.shape
    flat = pa.array(np.asarray(rows, dtype=np.float32).reshape(-1)).cast(pa.string())
    lists = pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * dim), flat)
    for text in pc.binary_join(lists, " "):
        yield text.as_py()
