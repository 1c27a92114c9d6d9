"""Our own form: a folder with ``vectors.safetensors``, ``words.json`` and ``config.json``."""

from __future__ import annotations

import json
import pickletools
import struct
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blicer.errors import FileError, InputError
from blicer.files import (
    atomic_folder,
    check_replaceable,
    read_json,
    write_json,
    write_marker,
)
from blicer.io.detect import partner_matrix, partner_vocabulary
from blicer.io.report import LoadReport, select_rows

# === formats.pickled ===
_HOW_TO_CONVERT = (
    "save the words as text, one a line, in the order of the matrix, and give vocabulary="
)


@dataclass
class Inert:
    """A name or a call that the pickle mentions and that is never looked up or made."""

    name: str
    arguments: Any = None
    state: Any = None


class _Refused(Exception):
    """An opcode that plain words do not need."""


_MARK = object()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERAL_NAMES = """
    INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8
    UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8
"""
_LITERALS = frozenset(_LITERAL_NAMES.split())
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Walker:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def walk(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return self.stack.pop()
            if opcode.name not in ("PROTO", "FRAME"):
                self._step(opcode.name, argument)
        raise _Refused("no end")

    def _since_mark(self) -> list[Any]:
        items = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in _TUPLES:
            n = _TUPLES[name]
            stack[-n:] = [tuple(stack[-n:])]
        elif name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else self._since_mark()
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else self._since_mark()
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        else:
            self._note(name, argument)

    def _note(self, name: str, argument: Any) -> None:
        """What would run code in a real unpickler: written down, not done."""
        stack = self.stack
        if name == "GLOBAL":
            stack.append(Inert(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute, module = stack.pop(), stack.pop()
            stack.append(Inert(f"{module}.{attribute}"))
        elif name == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            if not isinstance(function, Inert):
                raise _Refused("a call of no function")
            stack.append(Inert(function.name, arguments))
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], Inert):
                raise _Refused("a state without an object")
            stack[-1].state = state
        else:
            raise _Refused(f"opcode {name}")


def words_from_object_array(path: Path) -> list[str]:
    """The words in the order of the matrix, from an array, a list or a word -> row mapping."""
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        read_header(file)
        data = file.read()
    try:
        array = _Walker().walk(data)
        return _words(array)
    except _Refused as refused:
        raise FileError(
            path, f"is a pickle of more than words ({refused}); {_HOW_TO_CONVERT}"
        ) from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise FileError(path, f"is a damaged pickle ({error}); {_HOW_TO_CONVERT}") from error


def _words(array: Any) -> list[str]:
    if not isinstance(array, Inert) or not array.name.endswith(".multiarray._reconstruct"):
        found = array.name if isinstance(array, Inert) else type(array).__name__
        raise _Refused(f"found {found}")
    items = array.state[4]
    if len(items) == 1 and isinstance(items[0], (dict, list, tuple)):
        items = items[0]
    if isinstance(items, dict):
        items = _in_order(items)
    words = list(items)
    for word in words:
        if not isinstance(word, str):
            raise _Refused(f"found {type(word).__name__} among the words")
    return words


def _in_order(mapping: dict[Any, Any]) -> list[Any]:
    """word -> row or row -> word; the rows must be 0 … n-1."""
    if all(isinstance(key, str) for key in mapping):
        rows = {_integer(value): key for key, value in mapping.items()}
    else:
        rows = {_integer(key): value for key, value in mapping.items()}
    if len(rows) != len(mapping) or set(rows) != set(range(len(rows))):
        raise _Refused("the row numbers of the words are not 0, 1, 2, …")
    return [rows[row] for row in range(len(rows))]


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, Inert) and value.name.endswith(".multiarray.scalar"):
        data = value.arguments[1]
        if isinstance(data, Inert):  # old pickles write bytes as a call of _codecs.encode
            data = data.arguments[0]
        raw = data.encode("latin-1") if isinstance(data, str) else data
        return int.from_bytes(raw, "little", signed=True)
    raise _Refused(f"found {type(value).__name__} for a row number")


# === formats.vocabulary ===
# What NumPy raises for a file that is cut off or changed; its header is a Python literal.
DAMAGED = (ValueError, OSError, EOFError, SyntaxError, MemoryError, tokenize.TokenError)

# Beside ``en.npy``: the first of these that exists.
SIBLINGS = (".vocab.txt", ".vocab", ".words.txt", ".words", ".txt")
BOM = b"\xef\xbb\xbf"


def find_vocabulary(matrix_path: Path) -> Path:
    """The vocabulary file that belongs to ``en.npy`` or ``en.pt``."""
    stem = matrix_path.name.removesuffix(matrix_path.suffix)
    candidates = [matrix_path.with_name(stem + suffix) for suffix in SIBLINGS]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise FileError(
        matrix_path,
        f"is a matrix without words; expected its words, one a line, in {candidates[0].name} "
        "beside it, or give vocabulary=",
    )


def read_vocabulary(path: Path, rows: int, report: LoadReport) -> tuple[list[str], set[int]]:
    """Exactly ``rows`` words, in order, and the rows to skip because their bytes are no text."""
    skip: set[int] = set()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    if data.startswith(b"\x93NUMPY"):
        words = _from_array(path)
    else:
        words = _from_lines(path, data, rows, report, skip)
    if len(words) != rows:
        raise FileError(path, f"has {len(words):,} words but the matrix has {rows:,} rows")
    return words, skip


def _from_lines(
    path: Path, data: bytes, rows: int, report: LoadReport, skip: set[int]
) -> list[str]:
    if data.startswith(BOM):
        data = data.removeprefix(BOM)
        report.count("bom")
    if b"\0" in data[:4096]:
        raise FileError(path, "is not a text file; expected one UTF-8 word a line")
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    while len(lines) > rows and not lines[-1].strip():
        lines.pop()
        report.count("blank", f"{path.name}, line {len(lines) + 1}")
    words = []
    for number, line in enumerate(lines, start=1):
        if line.endswith(b"\r"):
            line = line[:-1]
            report.count("crlf")
        try:
            words.append(line.decode("utf-8") if line.strip(b" \t") else "")
        except UnicodeDecodeError:
            report.count("not_utf8", f"{path.name}, line {number} {line[:40]!r}")
            skip.add(number - 1)
            words.append("")
    return words


def _from_array(path: Path) -> list[str]:
    try:
        array = np.load(path, allow_pickle=False)
    except DAMAGED as error:
        if "pickle" not in str(error):
            raise FileError(path, f"is not a readable NumPy array ({error})") from error

        return words_from_object_array(path)
    if array.dtype.kind != "U" or array.ndim != 1:
        raise FileError(
            path, f"expected a 1-d array of strings, found {array.ndim}-d of {array.dtype}"
        )
    return [str(word) for word in array]


# === formats.numpyfile ===
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


# === formats.torchfile ===
def read_torch(
    path: Path,
    report: LoadReport,
    *,
    max_words: int | None,
    lowercase: bool,
    vocabulary: Path | None,
) -> tuple[list[str], np.ndarray]:
    if path.name.endswith("_voc.npy"):
        vocabulary, path = vocabulary or path, partner_matrix(path)
    if vocabulary is None:
        partner = partner_vocabulary(path)
        paired = path.name.endswith("_emb.pt") and partner.is_file()
        vocabulary = partner if paired else find_vocabulary(path)
    matrix = _read_tensor(path)
    words, skip = read_vocabulary(vocabulary, len(matrix), report)
    return select_rows(words, matrix, report, max_words=max_words, lowercase=lowercase, skip=skip)


def _read_tensor(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileError(path, "does not exist; expected the vectors that go with the words")
    import torch

    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises many kinds for a file that is cut off or holds more than tensors.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(
            path, f"holds no plain tensor, and nothing else is executed here ({reason[:200]})"
        ) from error
    usable = isinstance(value, torch.Tensor) and value.ndim == 2 and not value.is_complex()
    if not usable or value.shape[1] == 0:
        found = f"shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value)
        raise FileError(path, f"expected a 2-d tensor, one row a word; found {found}")
    matrix: np.ndarray = value.detach().to(torch.float32).contiguous().numpy()
    return matrix


# === formats.folder ===
VERSION = 1
KIND = "blicer.embeddings"
MARKER = "config.json"
_LONGEST_HEADER = 1 << 24


def write(path: Path, words: list[str], vectors: np.ndarray, language: str | None) -> None:
    from safetensors.numpy import save_file

    if (path / MARKER).is_file() and not _is_ours(path):
        raise FileError(path, "exists and is not a folder of vectors; it is left as it is")
    check_replaceable(path, MARKER, "a folder of vectors")
    for word in words:
        try:
            word.encode("utf-8")
        except UnicodeEncodeError:
            raise InputError(
                f"the word {word!r} is not valid Unicode and cannot be saved"
            ) from None
    with atomic_folder(path) as folder:
        save_file({"vectors": np.ascontiguousarray(vectors)}, folder / "vectors.safetensors")
        write_json(folder / "words.json", words)
        write_marker(
            folder,
            MARKER,
            {
                "kind": KIND,
                "version": VERSION,
                "words": len(words),
                "dimension": int(vectors.shape[1]),
                "language": language,
            },
        )


def _is_ours(path: Path) -> bool:
    try:
        return bool(read_json(path / MARKER).get("kind") == KIND)
    except (FileError, AttributeError):
        return False


def read_folder(
    path: Path, report: LoadReport, *, max_words: int | None, lowercase: bool
) -> tuple[list[str], np.ndarray, str | None]:
    config = _config(path)
    words = read_json(path / "words.json")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise FileError(path / "words.json", "expected a list of words")
    vectors = map_tensor(path / "vectors.safetensors", "vectors")
    if vectors.ndim != 2 or len(vectors) != len(words):
        raise FileError(
            path, f"words.json has {len(words):,} words but the matrix has shape {vectors.shape}"
        )
    words, vectors = select_rows(words, vectors, report, max_words=max_words, lowercase=lowercase)
    language = config.get("language")
    return words, vectors, language if isinstance(language, str) else None


def _config(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise FileError(path, "is a file; expected a folder of vectors")
    if not (path / "config.json").is_file():
        raise FileError(
            path,
            "is a folder without config.json; expected a vector file or a folder that "
            "Embeddings.save made",
        )
    config = read_json(path / "config.json")
    if not isinstance(config, dict) or config.get("kind") != KIND:
        raise FileError(path / "config.json", f"is not of saved vectors (no kind {KIND!r} in it)")
    if not isinstance(config.get("version"), int) or config["version"] > VERSION:
        raise FileError(
            path, f"was written in form {config.get('version')!r}, newer than {VERSION}: upgrade"
        )
    return config


def map_tensor(path: Path, name: str) -> np.ndarray:
    """One float32 tensor of a safetensors file, memory-mapped; every claim is checked first."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size, _LONGEST_HEADER):
                raise ValueError("impossible header length")
            entry = json.loads(file.read(length))[name]
        start, stop = entry["data_offsets"]
        shape = tuple(int(n) for n in entry["shape"])
        if entry["dtype"] != "F32":
            raise ValueError(f"expected float32, found {entry['dtype']}")
        if stop - start != 4 * int(np.prod(shape, dtype=np.int64)) or min(shape, default=0) < 0:
            raise ValueError("shape and length disagree")
        if start < 0 or 8 + length + stop > size:
            raise ValueError("it is cut off")
        if 0 in shape:
            return np.empty(shape, dtype=np.float32)
        return np.memmap(path, dtype="<f4", mode="r", offset=8 + length + start, shape=shape)
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise FileError(path, f"is damaged ({error})") from error
