"""Static word vectors of a hundred languages: the mean of the vectors of a word's pieces.

They come with `lite`, are very fast, and cover languages that its net does not know.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from blicer import lite

START = "▁"  # begins a piece that begins a word
CHUNK = 16_384  # words averaged at a time
_SEPARATORS = re.compile(r"[\s_‐-]+")
Vectors = NDArray[np.float32]


class StaticVectors:
    """Word vectors from a table of pieces; ``StaticVectors.load()`` is the table of `lite`.

    Row i of the table is the vector of ``pieces[i]``: ``low + scale * codes[i]``.
    """

    def __init__(
        self, pieces: Sequence[str], codes: NDArray[np.uint8], scale: Vectors, low: Vectors
    ) -> None:
        self.codes, self.scale, self.low = codes, scale, low
        self._row = {piece: row for row, piece in enumerate(pieces)}
        self._longest = max(map(len, pieces), default=0)

    @staticmethod
    def load() -> StaticVectors:
        """The table that comes with blicer, cached."""
        return _embedded()

    @property
    def dim(self) -> int:
        return int(self.codes.shape[1])

    def segment(self, word: str) -> list[int]:
        """Rows of a word's pieces: from the left, always the longest known piece.

        Characters that begin no piece are skipped. Spaces, underscores and hyphens separate words.
        """
        rows = []
        for part in _SEPARATORS.split(unicodedata.normalize("NFKC", word).lower()):
            text, place = START + part, 0
            while place < len(text):
                for end in range(min(len(text), place + self._longest), place, -1):
                    if (row := self._row.get(text[place:end])) is not None:
                        rows.append(row)
                        place = end
                        break
                else:
                    place += 1
        return rows

    def encode(self, words: Sequence[str]) -> Vectors:
        """Unit vectors (words, dim) float32; zeros for words without a known piece."""
        vectors = np.zeros((len(words), self.dim), np.float32)
        for start in range(0, len(words), CHUNK):
            segments = [self.segment(word) for word in words[start : start + CHUNK]]
            lengths = np.array([len(rows) for rows in segments])
            known = np.flatnonzero(lengths)
            if not len(known):
                continue
            flat = np.concatenate([segments[i] for i in known]).astype(np.int64)
            begins = np.concatenate([[0], np.cumsum(lengths[known])[:-1]])
            sums = np.add.reduceat(self.codes[flat], begins, axis=0, dtype=np.float32)
            # Averaging codes before decoding them gives the same result.
            means = self.low + self.scale * (sums / lengths[known, None].astype(np.float32))
            norms = np.linalg.norm(means, axis=1, keepdims=True)
            vectors[start + known] = means / np.where(norms > 0, norms, 1)
        return vectors


@cache
def _embedded() -> StaticVectors:
    from safetensors.numpy import load_file

    lite.check_files(lite.STATIC, lite.PIECES)
    table = load_file(lite.HERE / lite.STATIC)
    # Not splitlines, which would split at other Unicode line ends.
    pieces = (lite.HERE / lite.PIECES).read_bytes().decode("utf-8").split("\n")
    return StaticVectors(pieces, table["codes"], table["scale"], table["low"])
