"""The starter pair that comes with the package: English and Russian vectors, seeds and a test.

Vectors are kept in one byte a number with a scale a word; where they come from and under which
licences is said in the README.md beside them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from blicer.embeddings import Embeddings
from blicer.errors import FileError
from blicer.lexicon import Lexicon

FOLDER = Path(__file__).resolve().parent
LANGUAGES = ("en", "ru")
SEEDS, TEST = FOLDER / "en-ru.seeds.tsv", FOLDER / "en-ru.test.tsv"


class Starter(NamedTuple):
    """What there is to start with. ``test`` is for the last measurement, never for a choice."""

    source: Embeddings
    target: Embeddings
    seeds: Lexicon
    test: Lexicon


def load() -> Starter:
    """English, Russian, the seed dictionary and the test dictionary.

    >>> source, target, seeds, test = load()
    >>> source.language, target.language
    ('en', 'ru')
    """
    source, target = (read_side(language) for language in LANGUAGES)
    return Starter(source, target, Lexicon.load(SEEDS), Lexicon.load(TEST))


def read_side(language: str) -> Embeddings:
    """One language's words, most frequent first, and their vectors as float32."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = side_file(language)
    try:
        tensors = load_file(path)
        words = tensors["words"].tobytes().decode("utf-8").split("\n")
        codes, scales = tensors["codes"], tensors["scales"]
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    except (SafetensorError, KeyError, UnicodeDecodeError) as error:
        raise FileError(path, f"is damaged ({error}); install blicer again") from error
    return Embeddings(words, codes.astype(np.float32) * scales[:, None], language)


def side_file(language: str) -> Path:
    """Tensors: codes (n, d) int8, scales (n,) float32, words (bytes) uint8 UTF-8 lines."""
    return FOLDER / f"{language}.safetensors"
