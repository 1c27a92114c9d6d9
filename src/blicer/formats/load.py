"""Recognises a vector file by its content and calls the reader for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blicer.errors import FileError, InputError
from blicer.formats.report import LoadReport

FORMATS = ("auto", "text", "word2vec", "fasttext", "npy", "contrastive", "folder")

Loaded = tuple[list[str], np.ndarray, LoadReport, "str | None"]


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
    if format not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, found {format!r}")
    if not path.exists():
        raise FileError(path, "does not exist")
    report = LoadReport(source=str(path), format="npy")
    from blicer.formats.numpyfile import read_npy

    words, vectors = read_npy(
        path, report, max_words=max_words, lowercase=lowercase, vocabulary=vocabulary
    )
    return words, vectors, report, None
