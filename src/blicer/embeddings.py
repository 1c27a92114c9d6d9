"""``Embeddings``: words and their vectors, read from many file formats.

Parsed files are cached: a second load of the same file with the same options is memory-mapped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from blicer import progress
from blicer.errors import BlicerError, InputError
from blicer.files import cache_folder, digest
from blicer.io.matrices import map_safetensors, write_safetensors
from blicer.io.text import write_text
from blicer.io.vectors import Loaded, LoadReport, load, recognise_format
from blicer.languages import validate_tag

__all__ = ["Embeddings", "LoadReport"]

_CACHE_VERSION = 4  # change when a reader's result changes
_CACHED = ("text", "word2vec", "fasttext")  # parsing these costs more than reading the cache
# A file changed twice within one tick of the filesystem's clock keeps its mtime.
_CLOCK_TICK_SECONDS = 0.02


class Embeddings:
    """Words, most frequent first, and one float32 row for each.

    ``words``: the words, all different.
    ``vectors``: array or tensor, one row for each word. May be a read-only memory map afterwards:
    copy it before changing it in place.
    ``language``: BCP 47 tag, if known.
    """

    words: list[str]
    vectors: np.ndarray  # (n, d) float32, C order
    report: LoadReport  # what loading dropped or repaired

    def __init__(self, words: Iterable[str], vectors: Any, language: str | None = None) -> None:
        self.words = list(words)
        for row, word in enumerate(self.words):
            if not isinstance(word, str) or not word:
                raise InputError(f"word {row} must be a non-empty string, found {word!r}")
        if len(self.lookup) < len(self.words):
            twice = next(word for row, word in enumerate(self.words) if self.lookup[word] != row)
            rows = f"rows {self.words.index(twice)} and {self.lookup[twice]}"
            raise InputError(f"{twice!r} occurs twice, in {rows}")
        self.vectors = _checked_matrix(self.words, vectors)
        self.language = language
        self.report = LoadReport()

    @classmethod
    def _trusted(
        cls, words: list[str], vectors: np.ndarray, language: str | None, report: LoadReport
    ) -> Embeddings:
        """Construct without the checks."""
        self = cls.__new__(cls)
        self.words, self.vectors, self.language, self.report = words, vectors, language, report
        return self

    @property
    def language(self) -> str | None:
        """BCP 47 tag of the language; setting it checks the tag and makes it canonical."""
        return self._language

    @language.setter
    def language(self, tag: str | None) -> None:
        self._language = None if tag is None else validate_tag(tag)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        max_words: int | None = None,
        lowercase: bool = True,
        language: str | None = None,
        cache: bool = True,
        vocabulary: str | Path | None = None,
        checked: bool = False,
    ) -> Embeddings:
        """Read a vector file; its format is recognised from its content.

        ``.report`` says what was dropped or repaired.

        ``max_words``: keep that many words from the top of the file (default: all).
        ``lowercase``: fold case; the first spelling of a word wins.
        ``language``: BCP 47 tag (default: the one that the file states, if any).
        ``cache``: cache the parsed vectors, so that the next load memory-maps them.
        ``vocabulary``: word list of a matrix file (default: found beside it).
        ``checked``: the file is known to be as ``save`` wrote it; skip all checks.
        """
        if max_words is not None and max_words < 1:
            raise InputError(f"max_words must be at least 1, found {max_words}")
        if language is not None:
            validate_tag(language)  # before the work
        found = None if vocabulary is None else Path(vocabulary)
        if checked:
            return cls._trusted(*map_safetensors(Path(path))[:2], language, LoadReport())
        read = cached_load if cache else load
        words, vectors, report = read(Path(path), max_words, lowercase, found)
        for line in report.lines():
            progress.note(f"{path}: {line}")
        return cls._trusted(words, vectors, language or report.language, report)

    def save(self, path: str | Path) -> None:
        """Write word2vec text (``.vec``, ``.txt``, also with ``.gz``), else a safetensors file."""
        path = Path(path)
        if path.name.removesuffix(".gz").endswith((".vec", ".txt")):
            write_text(path, self.words, self.vectors)
        else:
            about = {"language": self.language} if self.language else {}
            write_safetensors(path, self.words, self.vectors, about)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.lookup

    def __getitem__(self, word: str) -> np.ndarray:
        if word not in self.lookup:
            raise KeyError(f"{word!r} is not among the {len(self):,} words")
        return self.vectors[self.lookup[word]]

    def __repr__(self) -> str:
        language = f", language={self.language!r}" if self.language else ""
        return f"Embeddings({len(self):,} words, dim={self.dim}{language})"

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    @cached_property
    def lookup(self) -> dict[str, int]:
        """Word -> row."""
        return {word: row for row, word in enumerate(self.words)}

    def head(self, n: int) -> Embeddings:
        """The ``n`` most frequent words (all, if there are fewer); shares memory."""
        if n >= len(self):
            return self
        return self._trusted(self.words[:n], self.vectors[:n], self.language, self.report)

    def with_vectors(self, vectors: Any) -> Embeddings:
        """The same words and language with other vectors, such as mapped ones."""
        other = copy(self)
        other.vectors = _checked_matrix(self.words, vectors)
        return other


def _checked_matrix(words: Sequence[str], vectors: Any) -> np.ndarray:
    if hasattr(vectors, "detach"):  # a torch tensor, without importing torch
        vectors = vectors.detach().cpu().float().numpy()  # NumPy has no bfloat16
    try:
        matrix = np.ascontiguousarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"vectors must be a 2-d array of numbers ({error})") from error
    if np.ndim(vectors) != 2:
        raise InputError(f"vectors must be 2-d, one row a word, found {np.ndim(vectors)}-d")
    if len(words) != len(matrix):
        raise InputError(f"{len(words):,} words but {len(matrix):,} vectors")
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise InputError(f"the vector of {words[row]!r} (row {row}) has NaN or infinity in it")
    return matrix


# -- the cache of parsed files --------------------------------------------------------------------


def cached_load(
    path: Path, max_words: int | None, lowercase: bool, vocabulary: Path | None
) -> Loaded:
    """``load``, cached in a safetensors file for each source file and options.

    A source file is known by its path, size, times and inode. Cache files are written atomically,
    so racing processes both leave a whole file. What cannot be read back is parsed again.
    """
    parse = partial(load, path, max_words, lowercase, vocabulary)
    if vocabulary is not None or recognise_format(path) not in _CACHED:
        return parse()
    try:
        source = path.resolve()
        state = _state(source)
        place = digest(os.fsencode(source), length=20)
        options = digest(_CACHE_VERSION, max_words, lowercase, length=20)
        name = f"{place}-{digest(state, length=20)}-{options}"
        file = cache_folder() / "vectors" / f"{name}.safetensors"
        if file.is_file() and (found := _read_cached(source, file)) is not None:
            return found
    except (OSError, RuntimeError):  # no home folder, or the source has gone
        return parse()
    words, vectors, report = parse()
    try:
        if _settled(source, state):
            about = {"report": json.dumps(asdict(report)), "hash": digest(words, vectors)}
            write_safetensors(file, words, vectors, about)
            # Delete entries of earlier states of the same file.
            for other in file.parent.glob(f"{place}-*"):
                if other.name.split("-")[1] != file.name.split("-")[1]:
                    other.unlink(missing_ok=True)
    except (BlicerError, OSError) as error:  # a full or read-only disk
        progress.note(f"{source}: not cached ({error})")
    return words, vectors, report


def _read_cached(source: Path, file: Path) -> Loaded | None:
    try:
        words, vectors, metadata = map_safetensors(file)
        if metadata["hash"] != digest(words, vectors):
            raise ValueError("it does not match its hash")
        return words, vectors, LoadReport(**json.loads(metadata["report"]))
    except (BlicerError, ValueError, KeyError, TypeError) as error:
        progress.note(f"{source}: the cached copy is damaged ({error}); reading again")
        return None


def _state(source: Path) -> list[int]:
    status = source.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino]


def _settled(source: Path, state: list[int]) -> bool:
    """Whether the source is unchanged, and a later change would change its mtime."""
    age = time.time() - state[1] / 1e9
    if 0 <= age < _CLOCK_TICK_SECONDS:
        time.sleep(_CLOCK_TICK_SECONDS - age)
    return _state(source) == state
