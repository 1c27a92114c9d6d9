"""Describes a file or folder and its problems as plain data (``blicer inspect``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from blicer.errors import FileError, InputError
from blicer.io.dictionary import looks_like_header, other_kind, read_dictionary
from blicer.io.streams import Stream
from blicer.io.text import vector_columns
from blicer.io.vectors import load, recognise_format
from blicer.lexicon import Lexicon

KINDS = ("vectors", "dictionary", "space", "translator")
_VECTOR_SUFFIXES = {".vec", ".bin", ".npy", ".npz", ".pt", ".safetensors"}


def inspect(
    path: str | Path, *, kind: str | None = None, encoding: str | None = None
) -> dict[str, Any]:
    """Facts by name, and ``problems``: sentences about what was dropped or looks wrong.

    ``kind`` is one of ``KINDS`` (default: found from the name and the first bytes), ``encoding``
    that of a dictionary (default: UTF-8). Raises ``FileError`` for what cannot be read at all.
    """
    path = Path(path)
    kind = kind or kind_of(path)
    facts = {"file": str(path), "kind": kind, "problems": []}
    if kind == "dictionary":
        return facts | _dictionary(path, encoding)
    if kind == "vectors":
        return facts | _vectors(path)
    if kind == "space":
        from blicer.align.space import Space, read_description

        Space.load(path)  # raises if it is damaged
        return read_description(path) | facts
    if kind == "translator":
        from blicer.translator import read_translator

        return read_translator(path) | facts
    raise InputError(f"{kind!r} is not a kind of file; use one of {', '.join(KINDS)}")


def kind_of(path: Path) -> str:
    """One of ``KINDS``, from the name and the first bytes."""
    if path.is_dir():
        return next((kind for kind in KINDS[2:] if (path / f"{kind}.json").exists()), "vectors")
    if not path.exists():
        raise FileError(path, "does not exist")
    with Stream(path) as stream:
        if other := other_kind(stream.start):
            raise FileError(path, f"is {other}; expected {', '.join(KINDS[:-1])} or {KINDS[-1]}")
        if _VECTOR_SUFFIXES & set(path.suffixes[-2:]):
            return "vectors"
        head = stream.peek(1 << 16)
    first = head.partition(b"\n")[0].decode("utf-8", "replace")
    if looks_like_header(*first.split("\t")[:2]):
        return "dictionary"  # words, then scores: without its titles it might be vectors
    vectors = vector_columns(head, fewest=3) or (head and recognise_format(path) != "text")
    return "vectors" if vectors else "dictionary"


def _vectors(path: Path) -> dict[str, Any]:
    words, vectors, report = load(path, lowercase=False)
    norms = np.linalg.norm(vectors, axis=1)
    named = {"smallest": norms.min(), "median": np.median(norms), "largest": norms.max()}
    return {
        "format": report.format,
        "words": len(words),
        "dimension": vectors.shape[1],
        "language": report.language,
        "first_words": words[:10],
        "norms": {name: float(value) for name, value in named.items()},
        "problems": report.lines(),
    }


def _dictionary(path: Path, encoding: str | None) -> dict[str, Any]:
    listed, report = read_dictionary(path, encoding=encoding)
    lexicon = Lexicon(listed)
    pairs, sources, targets = lexicon.pairs, lexicon.targets, lexicon.reverse().targets
    return {
        "separator": report.format,
        "pairs": len(pairs),
        "source_words": len(sources),
        "target_words": len(targets),
        "targets_per_word": len(pairs) / len(sources),
        "most_targets": max(map(len, sources.values())),
        "expressions": sum(" " in source or " " in target for source, target in pairs),
        "identical": sum(source == target for source, target in pairs),
        "sample": [list(pair) for pair in pairs[:5]],
        "problems": report.lines(),
    }
