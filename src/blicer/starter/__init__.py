"""The starter pair that comes with the package: English and Russian vectors, seeds and a test.

Vectors are stored with one byte a number and one scale a word. The README.md beside them states
their sources and licences.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from blicer.embeddings import Embeddings
from blicer.errors import FileError
from blicer.io.matrices import map_tensors
from blicer.lexicon import Lexicon

FOLDER = Path(__file__).resolve().parent
LANGUAGES = ("en", "ru")


class Starter(NamedTuple):
    """Vectors and dictionaries. ``test`` is for the final evaluation, never for choosing."""

    source: Embeddings
    target: Embeddings
    seeds: Lexicon
    test: Lexicon


def load() -> Starter:
    """English and Russian vectors, the seed dictionary and the test dictionary."""
    source, target = map(read_side, LANGUAGES)
    seeds, test = (Lexicon.load(FOLDER / f"en-ru.{part}.tsv") for part in ("seeds", "test"))
    return Starter(source, target, seeds, test)


def read_side(language: str) -> Embeddings:
    """One language's words, most frequent first, and their vectors as float32."""
    path = side_file(language)
    tensors, _ = map_tensors(path)
    try:
        words = tensors["words"].tobytes().decode("utf-8").split("\n")
        vectors = tensors["codes"].astype(np.float32) * tensors["scales"][:, None]
    except (KeyError, UnicodeDecodeError) as error:
        raise FileError(path, f"is damaged ({error}); install blicer again") from error
    return Embeddings(words, vectors, language)


def side_file(language: str) -> Path:
    """Tensors: codes (n, d) int8, scales (n,) float32, words (bytes) uint8 UTF-8 lines."""
    return FOLDER / f"{language}.safetensors"
