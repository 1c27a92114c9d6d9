"""Our own form: a folder with ``vectors.safetensors``, ``words.json`` and ``config.json``."""

from __future__ import annotations

import json
import struct
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
from blicer.formats.collect import select_rows
from blicer.formats.report import LoadReport

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
