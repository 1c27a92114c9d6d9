"""Matrices and their words: ``.npy``, ContrastiveBLI's ``.pt`` and ``.npy`` pair, safetensors."""

from __future__ import annotations

import io
import json
import pickletools
import struct
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from blicer.errors import FileError
from blicer.files import atomic_write
from blicer.io.streams import Stream
from blicer.io.text import BOM
from blicer.io.vectors import NPY_MAGIC, Batch, LoadReport, check_unicode

# What NumPy raises for a file that is cut off or changed; its header is a Python literal.
_DAMAGED = (ValueError, OSError, EOFError, SyntaxError, MemoryError, tokenize.TokenError)


def read_npy(path: Path, _: LoadReport, vocabulary: Path | None) -> Iterator[Batch]:
    matrix = read_matrix(path).astype(np.float32, copy=False)  # float32 stays mapped
    yield _with_words(matrix, vocabulary or _find_vocabulary(path))


def read_matrix(path: Path) -> np.ndarray:
    """A 2-d array of numbers, mapped where the file allows it. Never unpickles."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except _DAMAGED as error:
        if "object" in str(error).lower():
            problem = "holds pickled Python objects, which are never executed; save numbers only"
            raise FileError(path, problem) from error
        raise FileError(path, f"is not a complete NumPy array ({error})") from error
    if not isinstance(matrix, np.ndarray):
        raise FileError(path, "holds several arrays; expected one .npy matrix")
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu" or 0 in matrix.shape:
        found = f"shape {matrix.shape} of {matrix.dtype}"
        raise FileError(path, f"expected a 2-d array of numbers, one row a word; found {found}")
    return matrix


def read_torch(path: Path, _: LoadReport, vocabulary: Path | None) -> Iterator[Batch]:
    if path.name.endswith("_voc.npy"):
        vocabulary = vocabulary or path
        path = path.with_name(path.name.removesuffix("_voc.npy") + "_emb.pt")
    partner = path.with_name(path.name.removesuffix("_emb.pt") + "_voc.npy")
    if vocabulary is None and path.name.endswith("_emb.pt") and partner.is_file():
        vocabulary = partner
    yield _with_words(_read_tensor(path), vocabulary or _find_vocabulary(path))


def _read_tensor(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileError(path, "does not exist; expected the vectors that go with the words")
    import torch

    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a file with more than tensors
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise FileError(path, f"holds no plain tensor ({reason})") from error
    found = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
    if len(found) != 2 or 0 in found or value.is_complex():
        raise FileError(path, f"expected a 2-d tensor, one row a word; found {found}")
    matrix: np.ndarray = value.detach().to(torch.float32).contiguous().numpy()
    return matrix


# The words of a matrix


def _find_vocabulary(matrix_path: Path) -> Path:
    """The vocabulary file beside ``en.npy`` or ``en.pt``."""
    endings = (".vocab.txt", ".vocab", ".words.txt", ".words", ".txt")
    candidates = [matrix_path.with_suffix(ending) for ending in endings]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    problem = f"is a matrix without words; expected them, one a line, in {candidates[0].name}"
    raise FileError(matrix_path, f"{problem}, or give vocabulary=")


def _with_words(matrix: np.ndarray, vocabulary: Path) -> Batch:
    """The matrix with its words: one a line, or a NumPy array of them."""
    with Stream(vocabulary) as stream:
        data = stream.read_all()
    if data.startswith(NPY_MAGIC):
        raw = [word.encode("utf-8", "surrogatepass") for word in _array_words(vocabulary, data)]
    else:
        raw = _lines(vocabulary, data, len(matrix))
    if len(raw) != len(matrix):
        problem = f"has {len(raw):,} words but the matrix has {len(matrix):,} rows"
        raise FileError(vocabulary, problem)
    return Batch.decoded(raw, matrix, "row", whole=True)


def _lines(path: Path, data: bytes, rows: int) -> list[bytes]:
    if b"\0" in data[:4096]:
        raise FileError(path, "is not a text file; expected one UTF-8 word a line")
    lines = data.removeprefix(BOM).removesuffix(b"\n").split(b"\n")
    while len(lines) > rows and not lines[-1].strip():
        lines.pop()
    return [line.removesuffix(b"\r") if line.strip() else b"" for line in lines]


def _array_words(path: Path, data: bytes) -> list[str]:
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except _DAMAGED as error:
        if "pickle" in str(error):
            return _pickled_words(path, data)
        raise FileError(path, f"is not a readable NumPy array ({error})") from error
    if array.dtype.kind != "U" or array.ndim != 1:
        found = f"{array.ndim}-d of {array.dtype}"
        raise FileError(path, f"expected a 1-d array of strings, found {found}")
    return [str(word) for word in array]


# Pickled words: the opcodes are read, never executed


class _Refused(Exception):
    """The pickle holds more than words."""


class _Call(NamedTuple):
    """A function that the pickle names, which is neither looked up nor called."""

    function: str
    arguments: Any = None
    state: Any = None


_MARK = object()
_LITERAL_NAMES = """
    INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8
    UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8
"""
_LITERALS = frozenset(_LITERAL_NAMES.split())
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "MARK": _MARK}
_EMPTY = {"EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_DICT": dict}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _pickled_words(path: Path, data: bytes) -> list[str]:
    """The words in the order of the matrix, from an array, a list or a word -> row mapping."""
    convert = "save the words as text, one a line, and give vocabulary="
    try:
        header = "<H" if data[6] == 1 else "<I"  # by the version of the .npy format
        (length,) = struct.unpack_from(header, data, 8)
        return _words(_read_pickle(data[8 + struct.calcsize(header) + length :]))
    except _Refused as refused:
        raise FileError(path, f"is a pickle of more than words ({refused}); {convert}") from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        raise FileError(path, f"is a damaged pickle ({error}); {convert}") from error


def _read_pickle(data: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        items: list[Any] = []
        while (item := stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    argument: Any
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in _TUPLES:
            stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
        elif name == "TUPLE":
            stack.append(tuple(since_mark()))
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else since_mark()
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else since_mark()
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name == "GLOBAL":
            stack.append(_Call(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            stack[-2:] = [_Call(".".join(stack[-2:]))]
        elif name == "REDUCE":
            stack[-2:] = [stack[-2]._replace(arguments=stack[-1])]
        elif name == "BUILD":
            stack[-2:] = [stack[-2]._replace(state=stack[-1])]
        elif name == "STOP":
            return stack.pop()
        elif name not in ("PROTO", "FRAME"):
            raise _Refused(f"opcode {name}")
    raise _Refused("no end")


def _words(value: Any) -> list[str]:
    if not isinstance(value, _Call) or not value.function.endswith(".multiarray._reconstruct"):
        raise _Refused("it is no array")
    items = value.state[4]
    if len(items) == 1 and isinstance(items[0], (dict, list)):
        items = items[0]
    if isinstance(items, dict):  # word -> row, or row -> word
        by_word = all(isinstance(key, str) for key in items)
        pairs = ((value, key) if by_word else (key, value) for key, value in items.items())
        rows = {_integer(row): word for row, word in pairs}
        if len(rows) != len(items) or set(rows) != set(range(len(rows))):
            raise _Refused("the row numbers of the words are not 0, 1, 2, …")
        items = [rows[row] for row in range(len(rows))]
    for word in items:
        if not isinstance(word, str):
            raise _Refused(f"found {type(word).__name__} among the words")
    return list(items)


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, _Call) and value.function.endswith(".multiarray.scalar"):
        raw = value.arguments[1]
        if isinstance(raw, _Call):  # old pickles write bytes as a call of _codecs.encode
            raw = raw.arguments[0].encode("latin-1")
        return int.from_bytes(raw, "little", signed=True)
    raise _Refused(f"found {type(value).__name__} for a row number")


# Safetensors, our own form. The safetensors package copies what can be mapped.

_KIND = "blicer.embeddings"
_LONGEST_HEADER = 1 << 24
_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(dtype) for name, dtype in (("F32", "<f4"), ("U8", "u1"), ("I8", "i1"))
}


def write_safetensors(
    path: Path, words: list[str], vectors: np.ndarray, metadata: Mapping[str, str]
) -> None:
    """One file: the tensor ``vectors``, and ``words`` as the bytes of a JSON list."""
    for word in words:
        check_unicode(word)
    listed = np.frombuffer(json.dumps(words, separators=(",", ":")).encode(), dtype=np.uint8)
    with atomic_write(path, "wb") as file:
        write_tensors(file, {"vectors": vectors, "words": listed}, {"kind": _KIND, **metadata})


def read_safetensors(path: Path, report: LoadReport, _: Path | None = None) -> Iterator[Batch]:
    words, vectors, metadata = map_safetensors(path)
    report.language = metadata.get("language")
    yield Batch(words, vectors, range(len(words)), "row", whole=True)


def map_safetensors(path: Path) -> tuple[list[str], np.ndarray, dict[str, str]]:
    """Words, memory-mapped vectors and metadata of what ``write_safetensors`` wrote."""
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


def write_tensors(
    file: IO[bytes], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """A safetensors file, written from the arrays' own memory."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    codes = {dtype: code for code, dtype in _DTYPES.items()}
    at = 0
    for name, tensor in tensors.items():
        offsets = [at, at := at + tensor.nbytes]
        header[name] = {
            "dtype": codes[tensor.dtype],
            "shape": tensor.shape,
            "data_offsets": offsets,
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for tensor in tensors.values():
        file.write(np.ascontiguousarray(tensor).data)


def map_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The memory-mapped tensors of a safetensors file and its metadata; every claim is checked."""
    tensors: dict[str, np.ndarray] = {}
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, _LONGEST_HEADER):
                raise ValueError("impossible header length")
            header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        end = 0
        for name, entry in header.items():
            if entry["dtype"] not in _DTYPES:
                raise ValueError(f"found numbers of type {entry['dtype']}")
            dtype, shape = _DTYPES[entry["dtype"]], tuple(int(n) for n in entry["shape"])
            start, stop = entry["data_offsets"]
            if stop - start != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
                raise ValueError("shape and length disagree")
            if start < 0 or min(shape, default=0) < 0 or 8 + length + stop > size:
                raise ValueError("it is cut off")
            tensors[name] = np.empty(shape, dtype)
            if tensors[name].size:
                offset = 8 + length + start
                tensors[name] = np.memmap(path, dtype, mode="r", offset=offset, shape=shape)
            end = max(end, stop)
        if 8 + length + end != size:
            raise ValueError("it has more bytes than it says")
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise FileError(path, f"is damaged ({error})") from error
    return tensors, metadata


def map_tensor(path: Path, name: str) -> np.ndarray:
    """One float32 tensor of a safetensors file, memory-mapped."""
    tensor = map_tensors(path)[0].get(name)
    if tensor is None or tensor.dtype != np.float32:
        raise FileError(path, f"is damaged (it has no float32 tensor {name!r})")
    return tensor
