"""fastText ``.bin`` against a writer and a naive reader that follow the file's definition."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blicer.embeddings import Embeddings
from blicer.errors import FileError
from blicer.io.binary import subwords

WORDS = ["</s>", "the", "été", "Привет", "日本語", "a", "naïve café", "😀x"]
DIM, BUCKET = 3, 50


def naive_hash(data: bytes) -> int:
    """FNV-1a over signed characters: a byte of 128 or more is extended with ones."""
    value = 2166136261
    for byte in data:
        value ^= byte if byte < 128 else byte + 0xFFFFFF00
        value = value * 16777619 % 2**32
    return value


def naive_ngrams(word: str, minn: int, maxn: int) -> list[bytes]:
    if word == "</s>":
        return []
    text = f"<{word}>"
    return [
        text[start : start + n].encode()
        for n in range(max(minn, 1), maxn + 1)
        for start in range(len(text) - n + 1)
        if not (n == 1 and start in (0, len(text) - 1))
    ]


def write_model(
    path: Path,
    matrix: np.ndarray,
    *,
    words: list[str] = WORDS,
    labels: tuple[str, ...] = (),
    minn: int = 2,
    maxn: int = 4,
    bucket: int = BUCKET,
    version: int = 12,
    model: int = 2,
    quantised: bool = False,
    pruned: dict[int, int] | None = None,
) -> None:
    out = struct.pack("<ii", 793712314, version)
    out += struct.pack("<12i", matrix.shape[1], 5, 5, 1, 5, 1, 1, model, bucket, minn, maxn, 100)
    out += struct.pack("<d", 1e-4)
    out += struct.pack("<iiiq", len(words) + len(labels), len(words), len(labels), 1000)
    out += struct.pack("<q", -1 if pruned is None else len(pruned))
    for kind, entries in enumerate((words, labels)):
        for entry in entries:
            out += entry.encode() + b"\0" + struct.pack("<qb", 7, kind)
    for key, value in (pruned or {}).items():
        out += struct.pack("<ii", key, value)
    out += struct.pack("<?", quantised)
    out += struct.pack("<qq", *matrix.shape) + matrix.astype("<f4").tobytes()
    path.write_bytes(out)


def naive_vector(matrix: np.ndarray, row: int, minn: int, maxn: int) -> np.ndarray:
    rows = [matrix[row]]
    for ngram in naive_ngrams(WORDS[row], minn, maxn):
        rows.append(matrix[len(WORDS) + naive_hash(ngram) % BUCKET])
    return np.mean(np.array(rows, dtype=np.float64), axis=0)


@pytest.fixture
def matrix() -> np.ndarray:
    shape = (len(WORDS) + BUCKET, DIM)
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize(("minn", "maxn"), [(2, 4), (3, 6), (1, 1), (5, 5), (0, 0), (1, 30)])
def test_word_vectors(
    version: int, minn: int, maxn: int, matrix: np.ndarray, tmp_path: Path
) -> None:
    path = tmp_path / "model.bin"
    write_model(path, matrix, version=version, minn=minn, maxn=maxn)
    found = Embeddings.load(path, lowercase=False)
    assert found.words == WORDS
    assert found.report.format == "fasttext"
    expected = [naive_vector(matrix, row, minn, maxn) for row in range(len(WORDS))]
    np.testing.assert_allclose(found.vectors, expected, rtol=0, atol=1e-6)
    assert not found.report


def test_known_hashes() -> None:
    """Published values of 32-bit FNV-1a (ASCII, where signedness does not matter)."""
    assert naive_hash(b"a") == 0xE40C292C
    assert naive_hash(b"foobar") == 0xBF9CF968


@settings(max_examples=150)
@given(
    words=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=5),
    minn=st.integers(0, 4),
    more=st.integers(0, 4),
)
def test_subwords(words: list[str], minn: int, more: int) -> None:
    maxn = max(1, minn + more)
    owner, bucket = subwords([word.encode() for word in words], minn, maxn, 1009)
    got = sorted(zip(owner.tolist(), bucket.tolist(), strict=True))
    expected = sorted(
        (i, naive_hash(ngram) % 1009)
        for i, word in enumerate(words)
        for ngram in naive_ngrams(word, minn, maxn)
    )
    assert got == expected


def test_folding_and_limit(matrix: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_model(path, matrix)
    found = Embeddings.load(path, max_words=4)
    assert found.words == ["</s>", "the", "été", "привет"]  # folded after hashing "Привет"
    np.testing.assert_allclose(found.vectors[3], naive_vector(matrix, 3, 2, 4), atol=1e-6)
    assert isinstance(Embeddings.load(path, max_words=4).vectors, np.memmap)


def test_labels_are_no_words(matrix: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_model(path, matrix, labels=("__label__x",), model=3)
    assert Embeddings.load(path, lowercase=False).words == WORDS


def test_broken_models(matrix: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    for options in ({"quantised": True}, {"pruned": {1: 0}}):
        write_model(path, matrix, **options)
        with pytest.raises(FileError, match="quantised fastText model"):
            Embeddings.load(path)
    write_model(path, matrix)
    whole = path.read_bytes()
    for length in (20, 100, 150, len(whole) - 700, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(FileError, match="is cut off or damaged"):
            Embeddings.load(path)
    write_model(path, matrix[:20])
    with pytest.raises(FileError, match="is cut off or damaged"):
        Embeddings.load(path)
    packed = tmp_path / "model.bin.gz"
    packed.write_bytes(gzip.compress(whole))
    with pytest.raises(FileError, match="unpack it"):
        Embeddings.load(packed)


def test_bytes_that_are_no_words(matrix: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_model(path, matrix)
    path.write_bytes(path.read_bytes().replace("日本語".encode(), b"\xff" * 9))
    found = Embeddings.load(path, lowercase=False)
    assert found.words == [word for word in WORDS if word != "日本語"]
    assert found.report["not_utf8"] == 1
    np.testing.assert_allclose(found["a"], naive_vector(matrix, 5, 2, 4), atol=1e-6)
