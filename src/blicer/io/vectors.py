"""Recognises a vector file by its content and calls the reader for it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from blicer.errors import FileError, InputError
from blicer.io.cache import Entry
from blicer.io.detect import FORMATS, recognise_format
from blicer.io.report import LoadReport
from blicer.io.streams import first_bytes

# === formats.load ===
# Formats whose parsing costs more than reading the cache.
CACHED = ("text", "word2vec", "fasttext")

Loaded = tuple[list[str], np.ndarray, LoadReport, "str | None"]


class Reader(Protocol):
    def __call__(
        self, path: Path, report: LoadReport, /, *, max_words: int | None, lowercase: bool
    ) -> tuple[list[str], np.ndarray]: ...


def load(
    path: Path,
    *,
    max_words: int | None,
    lowercase: bool,
    cache: bool,
    vocabulary: Path | None,
    format: str,
) -> Loaded:
    """Words, vectors, report and (from our own folder) the language."""
    if format not in ("auto", *FORMATS):
        raise InputError(f"format must be auto, {', '.join(FORMATS)}; found {format!r}")
    if not path.exists():
        raise FileError(path, "does not exist")
    format = recognise_format(path) if format == "auto" else format
    options = {"max_words": max_words, "lowercase": lowercase, "format": format}
    entry = Entry.of(path, options) if cache and format in CACHED else None
    if entry is not None and (found := entry.read()) is not None:
        return (*found, None)
    report = LoadReport(source=str(path), format=format)
    words, vectors, language = _read(path, format, report, max_words, lowercase, vocabulary)
    if not words:
        raise FileError(path, "no usable word vectors in it")
    if entry is not None:
        entry.write(words, vectors, report)
    return words, vectors, report, language


def _read(
    path: Path,
    format: str,
    report: LoadReport,
    max_words: int | None,
    lowercase: bool,
    vocabulary: Path | None,
) -> tuple[list[str], np.ndarray, str | None]:
    # Readers are imported where they are used: some need pyarrow, one needs torch.
    if format == "folder":
        from blicer.io.matrices import read_folder

        return read_folder(path, report, max_words=max_words, lowercase=lowercase)
    first_bytes(path)
    if format == "npy":
        from blicer.io.matrices import read_npy

        words, vectors = read_npy(
            path, report, max_words=max_words, lowercase=lowercase, vocabulary=vocabulary
        )
    elif format == "contrastive":
        from blicer.io.matrices import read_torch

        words, vectors = read_torch(
            path, report, max_words=max_words, lowercase=lowercase, vocabulary=vocabulary
        )
    else:
        if vocabulary is not None:
            raise InputError(f"vocabulary= is for matrix files; {path} ({format}) has its words")
        reader = _with_words(format)
        words, vectors = reader(path, report, max_words=max_words, lowercase=lowercase)
    return words, vectors, None


def _with_words(format: str) -> Reader:
    """The reader of a file that holds both words and numbers."""
    if format == "text":
        from blicer.io.text import read_text

        return read_text
    if format == "word2vec":
        from blicer.io.binary import read_word2vec

        return read_word2vec
    from blicer.io.binary import read_fasttext

    return read_fasttext
