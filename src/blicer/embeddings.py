"""``Embeddings``: words and their vectors, from whatever file a user has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blicer import progress
from blicer.errors import BlicerError, InputError
from blicer.io.report import LoadReport

__all__ = ["Embeddings", "LoadReport", "describe"]


class Embeddings:
    """Words, most frequent first, and one float32 row for each.

    ``vectors`` may be a read-only memory map; copy before changing it in place.
    """

    words: list[str]
    vectors: np.ndarray  # (n, d) float32, C order
    report: LoadReport

    def __init__(self, words: Iterable[str], vectors: Any, language: str | None = None) -> None:
        self.words = list(words)
        self.vectors = _checked_matrix(self.words, vectors)
        self.language = language
        self.report = LoadReport()
        self._lookup: dict[str, int] | None = None

    @classmethod
    def _trusted(
        cls,
        words: list[str],
        vectors: np.ndarray,
        language: str | None,
        report: LoadReport | None = None,
    ) -> Embeddings:
        """Without the checks, for words and vectors that already passed them."""
        self = cls.__new__(cls)
        self.words, self.vectors, self.language = words, vectors, language
        self.report = report if report is not None else LoadReport()
        self._lookup = None
        return self

    @property
    def language(self) -> str | None:
        """The language's BCP 47 tag; a tag that is given to it is checked and made canonical."""
        return self._language

    @language.setter
    def language(self, tag: str | None) -> None:
        self._language = _checked_language(tag)

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
        format: str = "auto",
    ) -> Embeddings:
        """Read a vector file. What was dropped or mended is in ``.report``.

        ``max_words`` keeps that many words from the top of the file. ``lowercase`` folds case:
        the first spelling of a word wins. ``vocabulary`` is the word list of a matrix file
        (found by itself when it stands beside it). ``format`` is recognised from the content
        unless given.
        """
        from blicer.io import vectors as load

        if max_words is not None and max_words < 1:
            raise InputError(f"max_words must be at least 1, found {max_words}")
        language = _checked_language(language)
        words, vectors, report, stored_language = load.load(
            Path(path),
            max_words=max_words,
            lowercase=lowercase,
            cache=cache,
            vocabulary=Path(vocabulary) if vocabulary is not None else None,
            format=format,
        )
        for line in report.lines():
            progress.note(line)
        return cls._trusted(words, vectors, language or stored_language, report)

    @classmethod
    def from_gensim(cls, vectors: Any, language: str | None = None) -> Embeddings:
        """From a gensim ``KeyedVectors`` (or a model that has one as ``.wv``)."""
        vectors = getattr(vectors, "wv", vectors)
        words = getattr(vectors, "index_to_key", None)
        matrix = getattr(vectors, "vectors", None)
        if words is None or matrix is None:
            raise InputError(
                "from_gensim expects a KeyedVectors of gensim 4 or later, "
                f"found {type(vectors).__name__}"
            )
        return cls(words, matrix, language)

    def save(self, path: str | Path) -> None:
        """Write word2vec text (``.vec``, ``.txt``, also with ``.gz``), else a folder."""
        from blicer.io import matrices as folder
        from blicer.io import text as textwriter

        path = Path(path)
        if textwriter.is_text_path(path):
            textwriter.write(path, self.words, self.vectors)
        else:
            folder.write(path, self.words, self.vectors, self.language)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.lookup

    def __getitem__(self, word: str) -> np.ndarray:
        try:
            row: np.ndarray = self.vectors[self.lookup[word]]
        except KeyError:
            raise KeyError(f"{word!r} is not among the {len(self):,} words") from None
        return row

    def __repr__(self) -> str:
        language = f", language={self.language!r}" if self.language else ""
        return f"Embeddings({len(self):,} words, dim={self.dim}{language})"

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def lookup(self) -> dict[str, int]:
        """Word -> row."""
        if self._lookup is None:
            self._lookup = {word: row for row, word in enumerate(self.words)}
        return self._lookup

    def head(self, n: int) -> Embeddings:
        """The ``n`` most frequent words (all, if there are fewer); shares memory."""
        if n < 0:
            raise InputError(f"head(n) needs n of at least 0, found {n}")
        if n >= len(self):
            return self
        return self._trusted(self.words[:n], self.vectors[:n], self.language, self.report)

    def with_vectors(self, vectors: Any) -> Embeddings:
        """The same words and language with other vectors, such as mapped ones."""
        matrix = _checked_matrix(self.words, vectors, distinct=False)
        other = self._trusted(self.words, matrix, self.language, self.report)
        other._lookup = self._lookup
        return other


def _checked_matrix(words: Sequence[str], vectors: Any, *, distinct: bool = True) -> np.ndarray:
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
    if distinct:
        _check_words(words)
    return matrix


def _check_words(words: Sequence[str]) -> None:
    seen: dict[str, int] = {}
    for row, word in enumerate(words):
        if not isinstance(word, str) or not word:
            raise InputError(f"word {row} must be a non-empty string, found {word!r}")
        if seen.setdefault(word, row) != row:
            raise InputError(f"{word!r} occurs twice, in rows {seen[word]} and {row}")


def _checked_language(language: str | None) -> str | None:
    if language is None:
        return None
    from blicer.languages import validate_tag

    return validate_tag(language)


def describe(path: str | Path, *, shown: int = 10) -> dict[str, Any]:
    """What a vector file holds and what is wrong with it, for ``blicer inspect``.

    ``problems`` is empty for a readable file; otherwise it says why it cannot be read.
    """
    result: dict[str, Any] = {"path": str(path), "kind": "vectors", "problems": []}
    try:
        found = Embeddings.load(path, lowercase=False, cache=False)
    except BlicerError as error:
        return {**result, "problems": [str(error)]}
    norms = np.linalg.norm(found.vectors, axis=1)
    return {
        **result,
        "format": found.report.format,
        "words": len(found),
        "dimension": found.dim,
        "language": found.language,
        "first_words": found.words[:shown],
        "norms": {
            "smallest": float(norms.min()),
            "median": float(np.median(norms)),
            "largest": float(norms.max()),
        },
        "counts": dict(found.report.counts),
        "report": found.report.lines(),
    }
