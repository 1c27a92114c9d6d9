"""Matrices and their words: ``.npy`` or ``.pt`` beside a vocabulary, safetensors with both."""

from __future__ import annotations

import json
import struct
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from blicer.errors import FileError
from blicer.files import atomic_write
from blicer.io.streams import Stream
from blicer.io.text import BOM
from blicer.io.vectors import NPY_MAGIC, Batch, LoadReport, check_unicode

# Raised by NumPy for damaged files (a header is a Python literal).
_DAMAGED = (ValueError, OSError, EOFError, SyntaxError, MemoryError, tokenize.TokenError)


def read_npy(path: Path, _: LoadReport, vocabulary: Path | None) -> Iterator[Batch]:
    matrix = _load_array(path)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or 0 in matrix.shape:
        found = f"shape {matrix.shape} of {matrix.dtype}"
        raise FileError(path, f"expected a 2-d array of numbers, one row a word; found {found}")
    matrix = matrix.astype(np.float32, copy=False)  # float32 stays mapped
    yield _with_words(matrix, vocabulary or _find_vocabulary(path))


def _load_array(path: Path) -> np.ndarray:
    """One array, memory-mapped if possible. Never unpickles."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except _DAMAGED as error:
        if "object" in str(error).lower():
            problem = "holds pickled Python objects, which are never executed; save words as text"
            raise FileError(path, f"{problem} and numbers only as an array") from error
        raise FileError(path, f"is not a complete NumPy array ({error})") from error
    if not isinstance(array, np.ndarray):
        raise FileError(path, "holds several arrays; expected one .npy array")
    return array


def read_torch(path: Path, _: LoadReport, vocabulary: Path | None) -> Iterator[Batch]:
    import torch

    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a file with more than tensors
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise FileError(path, f"holds no plain tensor ({reason})") from error
    found = f"{type(value).__name__}"
    plain = isinstance(value, torch.Tensor) and value.layout == torch.strided
    if plain:
        found = f"{tuple(value.shape)} of {value.dtype} on {value.device}"
        plain = value.device.type == "cpu" and not value.is_quantized and not value.is_complex()
    if not plain or value.ndim != 2 or 0 in value.shape:
        raise FileError(path, f"expected a plain 2-d tensor, one row a word; found {found}")
    stored = value.untyped_storage().nbytes()
    if value.numel() * value.element_size() > stored:  # an expanded tensor: few bytes, many rows
        raise FileError(path, f"has {stored} bytes for a tensor of shape {tuple(value.shape)}")
    matrix = value.detach().to(torch.float32).contiguous().numpy()
    yield _with_words(matrix, vocabulary or _find_vocabulary(path))


# The words of a matrix


def _find_vocabulary(matrix_path: Path) -> Path:
    """The word list beside ``en.npy`` or ``en.pt``."""
    endings = (".vocab.txt", ".vocab", ".words.txt", ".words", ".txt")
    candidates = [matrix_path.with_suffix(ending) for ending in endings]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    problem = f"is a matrix without words; expected them, one a line, in {candidates[0].name}"
    raise FileError(matrix_path, f"{problem}, or give vocabulary=")


def _with_words(matrix: np.ndarray, vocabulary: Path) -> Batch:
    """The matrix with the words of a text file (one a line) or of a NumPy array."""
    with Stream(vocabulary) as stream:
        is_array = stream.start.startswith(NPY_MAGIC)
        data = b"" if is_array else stream.read_all()
    if is_array:
        array = _load_array(vocabulary)
        if array.dtype.kind != "U" or array.ndim != 1:
            found = f"{array.ndim}-d of {array.dtype}"
            raise FileError(vocabulary, f"expected a 1-d array of strings, found {found}")
        raw = [word.encode("utf-8", "surrogatepass") for word in array.tolist()]
    elif b"\0" in data[:4096]:
        raise FileError(vocabulary, "is not a text file; expected one UTF-8 word a line")
    else:
        raw = data.removeprefix(BOM).removesuffix(b"\n").split(b"\n")
        while len(raw) > len(matrix) and not raw[-1].strip():
            raw.pop()
        raw = [line.removesuffix(b"\r") if line.strip() else b"" for line in raw]
    if len(raw) != len(matrix):
        problem = f"has {len(raw):,} words but the matrix has {len(matrix):,} rows"
        raise FileError(vocabulary, problem)
    return Batch.decoded(raw, matrix, "row", whole=True)


# Safetensors. The package checks the file; we memory-map the tensors, which it would copy.

_KIND = "blicer.embeddings"
_DTYPES = {"F32": "<f4", "F64": "<f8", "U8": "u1", "I8": "i1", "I64": "<i8"}


def write_safetensors(
    path: Path, words: list[str], vectors: np.ndarray, metadata: Mapping[str, str]
) -> None:
    """Write the tensor ``vectors`` (without a copy), and ``words`` as the bytes of a JSON list."""
    for word in words:
        check_unicode(word)
    listed = json.dumps(words, separators=(",", ":")).encode()
    size, end = vectors.nbytes, vectors.nbytes + len(listed)
    header = {
        "__metadata__": {"kind": _KIND, **metadata},
        "vectors": {"dtype": "F32", "shape": vectors.shape, "data_offsets": [0, size]},
        "words": {"dtype": "U8", "shape": [len(listed)], "data_offsets": [size, end]},
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_write(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
        file.write(listed)


def read_safetensors(path: Path, report: LoadReport, _: Path | None = None) -> Iterator[Batch]:
    words, vectors, metadata = map_safetensors(path)
    report.language = metadata.get("language")
    yield Batch(words, vectors, range(len(words)), "row", whole=True)


def map_safetensors(path: Path) -> tuple[list[str], np.ndarray, dict[str, str]]:
    """Words, memory-mapped vectors and metadata of a file of ``write_safetensors``."""
    tensors, metadata = map_tensors(path)
    if metadata.get("kind") != _KIND or not {"vectors", "words"} <= tensors.keys():
        raise FileError(path, "is not a safetensors file that Embeddings.save wrote")
    vectors = tensors["vectors"]
    try:
        words = json.loads(tensors["words"].tobytes())
    except ValueError as error:
        raise FileError(path, f"is damaged ({error})") from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise FileError(path, "is damaged (expected a list of words)")
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != len(words):
        raise FileError(path, f"has {len(words):,} words but a matrix of shape {vectors.shape}")
    return words, vectors, metadata


def map_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The memory-mapped tensors of a safetensors file and its metadata."""
    tensors: dict[str, np.ndarray] = {}
    try:
        with safe_open(path, framework="np") as checked:  # offsets, shapes and the file's length
            metadata = checked.metadata() or {}
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        for name in header.keys() - {"__metadata__"}:
            dtype, shape = _DTYPES[header[name]["dtype"]], tuple(header[name]["shape"])
            offset = 8 + length + header[name]["data_offsets"][0]
            if 0 in shape:  # cannot be mapped
                tensors[name] = np.empty(shape, dtype)
            else:
                tensors[name] = np.memmap(path, dtype, mode="r", offset=offset, shape=shape)
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    except (SafetensorError, KeyError) as error:
        raise FileError(path, f"is damaged, or no file of ours ({error})") from error
    return tensors, metadata


def map_tensor(path: Path, name: str) -> np.ndarray:
    """One float32 tensor of a safetensors file, memory-mapped."""
    tensor = map_tensors(path)[0].get(name)
    if tensor is None or tensor.dtype != np.float32:
        raise FileError(path, f"is damaged (it has no float32 tensor {name!r})")
    return tensor
