"""How much memory a unit takes, roughly, so that no more of them run at a time than fit."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from blicer.benchmark.dataset import Dataset
from blicer.benchmark.machine import GIGABYTE
from blicer.benchmark.setups import FILES
from blicer.benchmark.unit import Unit
from blicer.errors import FileError
from blicer.io.matrices import read_matrix

# torch, transformers and their friends, before any data.
BASE = int(0.8 * GIGABYTE)
# The vectors as read, normalised, mapped, and what the methods hold beside them.
COPIES = 8
# A line of text vectors, a number of a binary one; compressed files hold more of them.
_BYTES_A_NUMBER = 7
_USUAL_DIMENSION = 300
_FLOAT32 = 4
# Weights, gradients and two moments while training, and what the largest batches hold.
ENCODERS = {
    "lite": 0.8,
    "xlm-roberta-large": 12.0,
    "xlm-roberta-base": 6.0,
    "bert-base-multilingual-uncased": 4.0,
}
_OTHER_ENCODER = 6.0
_WHILE_TRAINING = 5


def unit_memory(unit: Unit, dataset: Dataset) -> int:
    """Bytes that a process running this unit will hold at its peak, on the safe side."""
    if unit.space == FILES:
        folder = dataset.saved_space(unit.source, unit.target, unit.setup)
        vectors = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    else:
        languages = [language for language in (unit.source, unit.target, unit.pivot) if language]
        vectors = sum(
            matrix_bytes(dataset.vectors(language), unit.max_words) for language in languages
        )
    return BASE + COPIES * vectors + encoder_memory(unit.encoder)


def matrix_bytes(path: Path, max_words: int) -> int:
    """Bytes of the vectors once they are read, cut at ``max_words``."""
    if path.suffix == ".npy":
        try:
            rows, width = read_matrix(path).shape
        except FileError:  # what is wrong with it, the unit will say
            return path.stat().st_size
        return min(int(rows), max_words) * int(width) * _FLOAT32
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files)
    compressed = path.suffix in (".gz", ".xz", ".zst", ".bz2")
    numbers = size * (3 if compressed else 1) // _BYTES_A_NUMBER
    return min(numbers, max_words * _USUAL_DIMENSION) * _FLOAT32


def encoder_memory(encoder: str) -> int:
    folder = Path(encoder)
    if folder.is_dir():
        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        return weights * _WHILE_TRAINING
    return int(ENCODERS.get(encoder, _OTHER_ENCODER) * GIGABYTE)


def jobs_that_fit(asked: int, units: Iterable[Unit], dataset: Dataset, free: int) -> int:
    """As many jobs as were asked for, or as the largest units leave room for; at least one."""
    distinct = {
        (unit.source, unit.target, unit.pivot, unit.space, unit.encoder, unit.max_words): unit
        for unit in units
    }
    largest = max((unit_memory(unit, dataset) for unit in distinct.values()), default=0)
    if not free or not largest:
        return asked
    return max(1, min(asked, free // largest))
