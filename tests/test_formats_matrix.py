"""Matrices and their words: ``.npy``, ``.pt``, safetensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from blicer.embeddings import Embeddings
from blicer.errors import FileError

MATRIX = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float32)


def write_pair(folder: Path, matrix: np.ndarray, words: bytes, name: str = "en.vocab.txt") -> Path:
    np.save(folder / "en.npy", matrix)
    (folder / name).write_bytes(words)
    return folder / "en.npy"


@pytest.mark.parametrize("name", ["en.vocab.txt", "en.vocab", "en.txt", "en.words"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32])
def test_npy(name: str, kind: type, tmp_path: Path) -> None:
    found = Embeddings.load(write_pair(tmp_path, MATRIX.astype(kind), b"a\nb\nc\n", name))
    assert found.words == ["a", "b", "c"]
    assert found.vectors.dtype == np.float32
    np.testing.assert_array_equal(found.vectors, MATRIX)
    assert not found.report


def test_npy_float32_stays_mapped(tmp_path: Path, own_cache: Path) -> None:
    path = write_pair(tmp_path, MATRIX, b"a\nb\nc")
    assert isinstance(Embeddings.load(path).vectors, np.memmap)
    assert Embeddings.load(path, max_words=2).vectors.tolist() == [[1, 2], [3, 4]]
    assert not list(own_cache.iterdir())


def test_npy_fortran_order(tmp_path: Path) -> None:
    found = Embeddings.load(write_pair(tmp_path, np.asfortranarray(MATRIX), b"a\nb\nc"))
    assert found.vectors.flags.c_contiguous
    np.testing.assert_array_equal(found.vectors, MATRIX)


@pytest.mark.parametrize(
    ("words", "kept", "counts"),
    [
        (b"\xef\xbb\xbfa\r\nb\r\nc\r\n", ["a", "b", "c"], {}),
        (b"a\nb\nc\n\n\n", ["a", "b", "c"], {}),
        (b"a\n\nc\n", ["a", "c"], {"no_word": 1}),
        (b"a\n\xe9\nc\n", ["a", "c"], {"not_utf8": 1}),
        (b"a\nA\nc\n", ["a", "c"], {"case_merged": 1}),
        (b"a\na\nc\n", ["a", "c"], {"duplicate": 1}),
        ("a\nx\u2028y\nb\u0085\n".encode(), ["a", "x\u2028y", "b\u0085"], {}),
        (b"a\nnew york\nc\n", ["a", "new york", "c"], {}),
    ],
)
def test_vocabulary_irregularities(
    words: bytes, kept: list[str], counts: dict[str, int], tmp_path: Path
) -> None:
    found = Embeddings.load(write_pair(tmp_path, MATRIX, words))
    assert found.words == kept
    assert found.report.counts == counts
    assert found.vectors[-1].tolist() == [5, 6]


def test_npy_rows(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="has 2 words but the matrix has 3 rows"):
        Embeddings.load(write_pair(tmp_path, MATRIX, b"a\nb\n"))
    with pytest.raises(FileError, match="has 4 words but the matrix has 3 rows"):
        Embeddings.load(write_pair(tmp_path, MATRIX, b"a\nb\nc\nd\n"))
    bad = MATRIX.copy()
    bad[1, 1] = np.inf
    found = Embeddings.load(write_pair(tmp_path, bad, b"a\nb\nc\n"))
    assert found.words == ["a", "c"]
    assert found.report.lines()[0].endswith("1 vector with NaN or infinity dropped: row 2 'b'")
    # Overflow of the row's sum alone is no infinity.
    large = np.full((3, 2), 3e38, dtype=np.float32)
    assert len(Embeddings.load(write_pair(tmp_path, large, b"a\nb\nc\n"))) == 3


def test_vocabulary_given(tmp_path: Path) -> None:
    np.save(tmp_path / "en.npy", MATRIX)
    (tmp_path / "list.txt").write_text("a\nb\nc\n")
    np.save(tmp_path / "list.npy", np.array(["a", "b", "c"]))
    for name in ("list.txt", "list.npy"):
        found = Embeddings.load(tmp_path / "en.npy", vocabulary=tmp_path / name)
        assert found.words == ["a", "b", "c"]
    with pytest.raises(FileError, match="cannot be read"):
        Embeddings.load(tmp_path / "en.npy", vocabulary=tmp_path / "none.txt")
    np.save(tmp_path / "numbers.npy", np.arange(3))
    with pytest.raises(FileError, match="1-d array of strings"):
        Embeddings.load(tmp_path / "en.npy", vocabulary=tmp_path / "numbers.npy")


# torch.save of a tensor


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_torch(kind: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.from_numpy(MATRIX).to(getattr(torch, kind)), tmp_path / "x.pt")
    with pytest.raises(FileError, match="is a matrix without words"):
        Embeddings.load(tmp_path / "x.pt")
    (tmp_path / "x.vocab.txt").write_text("a\nb\nc\n")
    found = Embeddings.load(tmp_path / "x.pt")
    assert found.words == ["a", "b", "c"]
    np.testing.assert_array_equal(found.vectors, MATRIX)


class Evil:
    """Writes a file when unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.target,))


def test_no_pickle_is_executed(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    target = tmp_path / "executed"
    words = np.array(["a", Evil(target), "c"], dtype=object)
    np.save(tmp_path / "words.npy", words, allow_pickle=True)
    np.save(tmp_path / "en.npy", MATRIX)
    with pytest.raises(FileError, match="pickled Python objects, which are never executed"):
        Embeddings.load(tmp_path / "en.npy", vocabulary=tmp_path / "words.npy")
    torch.save(Evil(target), tmp_path / "x.pt")
    with pytest.raises(FileError, match="holds no plain tensor"):
        Embeddings.load(tmp_path / "x.pt")
    assert not target.exists()


def test_broken_torch_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "x.vocab.txt").write_text("a\nb\nc\n")
    path = tmp_path / "x.pt"
    torch.save([torch.ones(2)], path)
    with pytest.raises(FileError, match="expected a plain 2-d tensor"):
        Embeddings.load(path)
    torch.save(torch.from_numpy(MATRIX), path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(FileError, match="holds no plain tensor"):
        Embeddings.load(path)


# Safetensors


def test_damaged_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "en.safetensors"
    saved = Embeddings(["a", "B", "b"], MATRIX)
    saved.save(path)
    assert Embeddings.load(path).words == ["a", "b"]  # folded on loading
    whole = path.read_bytes()
    for damaged in (
        whole[:-1],
        whole + b"x",
        whole[:60],
        whole.replace(b"[3,2]", b"[2,2]"),
        whole.replace(b'["a"', b'["a('),
        whole.replace(b'["a","B","b"]', b'["a",0.0,"b"]'),
        whole.replace(b'["a","B","b"]', b'["a",    "b"]'),
        whole.replace(b'"F32"', b'"F16"'),
        whole.replace(b"blicer.embeddings", b"another.thing_____"[:17]),
        b"\xff\xff\0\0\0\0\0\0{" + b"\xff" * 64,
    ):
        assert damaged != whole
        path.write_bytes(damaged)
        with pytest.raises(FileError, match=r"is damaged|is not a safetensors|3 words|2 words"):
            Embeddings.load(path)


def test_safetensors_opens_in_safetensors(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    Embeddings(["a", "b", "c"], MATRIX).save(tmp_path / "en.safetensors")
    tensors = load_file(tmp_path / "en.safetensors")
    np.testing.assert_array_equal(tensors["vectors"], MATRIX)
    assert json.loads(tensors["words"].tobytes()) == ["a", "b", "c"]
