"""``.npy`` matrix + vocabulary file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from blicer.errors import FileError
from blicer.formats.collect import select_rows
from blicer.formats.report import LoadReport
from blicer.formats.vocabulary import DAMAGED, find_vocabulary, read_vocabulary


def is_object_array(path: Path) -> bool:
    """True when the file holds pickled Python objects rather than numbers."""
    try:
        np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        return "object" in str(error).lower()
    except DAMAGED:
        return False
    return False


def read_matrix(path: Path) -> np.ndarray:
    """A 2-d array of numbers, mapped where the file allows it. Never unpickles."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGED as error:
        if is_object_array(path):
            problem = (
                "holds pickled Python objects, which are never executed here; "
                "expected a 2-d array of numbers (save it again with np.save(path, matrix))"
            )
        else:
            problem = f"is not a complete NumPy array ({error})"
        raise FileError(path, problem) from error
    if not isinstance(matrix, np.ndarray):
        raise FileError(path, "holds several arrays; expected one .npy matrix")
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or 0 in matrix.shape:
        raise FileError(
            path,
            "expected a 2-d array of numbers, one row a word, "
            f"found shape {matrix.shape} of {matrix.dtype}",
        )
    return matrix


def read_npy(
    path: Path,
    report: LoadReport,
    *,
    max_words: int | None,
    lowercase: bool,
    vocabulary: Path | None,
) -> tuple[list[str], np.ndarray]:
    matrix = read_matrix(path)
    words, skip = read_vocabulary(vocabulary or find_vocabulary(path), len(matrix), report)
    # A float32 matrix that needs no change stays mapped.
    if matrix.dtype != np.float32:
        matrix = matrix.astype(np.float32)
    return select_rows(words, matrix, report, max_words=max_words, lowercase=lowercase, skip=skip)
