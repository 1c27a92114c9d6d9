"""What a file or folder contains, and what is wrong with it, as plain data."""

from __future__ import annotations

import bz2
import gzip
import lzma
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from blicer.errors import FileError, InputError
from blicer.io.dictionary import DELIMITER_NAMES, looks_like_header, read_dictionary, vector_columns
from blicer.lexicon import Lexicon

KINDS = ("vectors", "dictionary", "space", "translator")
_HEAD = 1 << 16
_VECTOR_SUFFIXES = {".vec", ".bin", ".npy", ".npz", ".pt", ".safetensors"}
_COMPRESSIONS: dict[str, Callable[..., IO[Any]]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}


def kind_of(path: str | Path) -> str:
    """One of ``KINDS``, from the name and the first bytes."""
    path = Path(path)
    if path.is_dir():
        for name in ("translator", "space"):
            if (path / f"{name}.json").exists():
                return name
        return "vectors"
    if not path.exists():
        raise FileError(path, "does not exist")
    if _VECTOR_SUFFIXES & set(path.suffixes[-2:]) or path.suffix == ".zst":
        return "vectors"
    head = _head(path)
    first, _, rest = head.partition(b"\n")
    counts = first.split()
    # word2vec's binary format: 'words dimension' as text, then words and raw floats.
    binary = len(counts) == 2 and all(cell.isdigit() for cell in counts) and b"\0" in rest
    if head.startswith((b"\x93NUMPY", b"\xba\x16\x4f\x2f")) or binary:
        return "vectors"
    if looks_like_header(*first.decode("utf-8", "replace").split("\t")[:2]):
        return "dictionary"  # words, then scores: without its titles it might be vectors
    return "vectors" if vector_columns(head, fewest=3) else "dictionary"


def _head(path: Path) -> bytes:
    try:
        with _COMPRESSIONS.get(path.suffix, open)(path, "rb") as file:
            return bytes(file.read(_HEAD))
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(path, f"is a damaged compressed file ({error})") from error
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error


def inspect(
    path: str | Path, *, kind: str | None = None, encoding: str | None = None
) -> dict[str, Any]:
    """Facts under plain names, and ``problems``: sentences about what was dropped or is odd.

    Raises ``FileError`` for what cannot be read at all.
    """
    kind = kind or kind_of(path)
    if kind not in KINDS:
        raise InputError(f"{kind!r} is not a kind of file; use one of {', '.join(KINDS)}")
    facts: dict[str, Any] = {"file": str(path), "kind": kind}
    if kind == "dictionary":
        return facts | describe_dictionary(path, encoding=encoding)
    if kind == "vectors":
        return facts | _describe_vectors(path)
    return facts | _describe_folder(Path(path), kind)


def _describe_vectors(path: str | Path) -> dict[str, Any]:
    from blicer.embeddings import describe

    facts = describe(path)
    if "words" not in facts:
        raise InputError(facts["problems"][0])
    sentences = [*facts.pop("problems"), *facts.pop("report")]
    del facts["path"], facts["kind"], facts["counts"]
    return {**facts, "problems": [line.removeprefix(f"{path}: ") for line in sentences]}


def _describe_folder(path: Path, kind: str) -> dict[str, Any]:
    """What the folder says of itself; an error if a space does not load."""
    from blicer.align.space import Space, read_description
    from blicer.translator import read_translator

    if kind == "space":
        Space.load(path)
    described = read_description(path) if kind == "space" else read_translator(path)
    facts = {
        name: value for name, value in described.items() if name not in ("file", "kind", "problems")
    }
    return {**facts, "problems": []}


def describe_dictionary(path: str | Path, *, encoding: str | None = None) -> dict[str, Any]:
    listed, report = read_dictionary(path, encoding=encoding)
    lexicon = Lexicon(listed, report=report)
    pairs = lexicon.pairs
    back = lexicon.reverse()
    counts = [len(targets) for targets in lexicon.targets.values()]
    source_script, target_script = main_script(lexicon.targets), main_script(back.targets)
    problems = report.lines()
    swapped = _swapped(pairs, source_script, target_script)
    if swapped:
        problems.append(
            f"{len(swapped)} pairs have a {target_script} source and a {source_script} target, "
            f"such as {swapped[0][0]!r} and {swapped[0][1]!r}; are their columns swapped?"
        )
    delimiter = report.delimiter or "\t"
    return {
        "separator": DELIMITER_NAMES.get(delimiter, delimiter),
        "lines": report.total_lines,
        "pairs": len(pairs),
        "source_words": len(lexicon.targets),
        "target_words": len(back.targets),
        "source_script": source_script,
        "target_script": target_script,
        "targets_per_word": sum(counts) / len(counts),
        "most_targets": max(counts),
        "expressions": sum(" " in source or " " in target for source, target in pairs),
        "identical": sum(source == target for source, target in pairs),
        "comments": report.comments,
        "unreadable": len(report.unreadable),
        "sample": [list(pair) for pair in pairs[:5]],
        "problems": problems,
    }


def script_of(word: str) -> str | None:
    """The script of a word's first letter, as Unicode names it: Latin, Cyrillic, Hebrew..."""
    for letter in word:
        if letter.isalpha():
            return unicodedata.name(letter, "unknown").split()[0].capitalize()
    return None


def main_script(words: Iterable[str]) -> str | None:
    scripts = Counter(script for word in words if (script := script_of(word)))
    return scripts.most_common(1)[0][0] if scripts else None


def _swapped(
    pairs: list[tuple[str, str]], source_script: str | None, target_script: str | None
) -> list[tuple[str, str]]:
    if source_script == target_script:
        return []
    return [
        (source, target)
        for source, target in pairs
        if script_of(source) == target_script and script_of(target) == source_script
    ]
