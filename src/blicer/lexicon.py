"""``Lexicon``: word pairs, with any number of targets a word, read from many file formats.

The functions that split lexicons work on index pairs, (n, 2) arrays of source and target rows.
"""

from __future__ import annotations

import html
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from blicer import progress
from blicer.errors import InputError, needed
from blicer.files import atomic_write
from blicer.io.dictionary import check_writable_word, looks_like_header, read_dictionary, tsv_row
from blicer.io.vectors import LoadReport

Pair = tuple[str, str]
Ints = NDArray[np.int64]
_SAMPLE = 5  # missing words shown
_SHOWN = 10  # pairs in a notebook


class Vocabulary(Protocol):
    """Anything with the rows of its words, such as ``Embeddings``."""

    @property
    def lookup(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Coverage:
    """How much of a lexicon is in two vocabularies."""

    pairs: int
    pairs_found: int
    source_words: int
    target_words: int
    queries_found: int
    """Source words in the vocabulary with at least one target in the other."""
    missing_source: tuple[str, ...]
    missing_target: tuple[str, ...]

    def lines(self) -> list[str]:
        said = [f"{self.pairs_found} of {self.pairs} pairs are in both vocabularies"]
        for side, words, missing in (
            ("source", self.source_words, self.missing_source),
            ("target", self.target_words, self.missing_target),
        ):
            if missing:
                sample = ", ".join([*missing[:_SAMPLE], *["..."] * (len(missing) > _SAMPLE)])
                where = f"not in the {side} vocabulary: {sample}"
                said.append(f"{len(missing)} of {words} {side} words are {where}")
        return said


def find_words(words: Iterable[str], vocabulary: Vocabulary) -> dict[str, int]:
    """Row of each word that is in the vocabulary.

    Vector files have accents composed or decomposed, like their corpus, so nothing is normalised on
    reading: the word is tried as written first, then in its other Unicode forms. Expressions are
    found whether their words are joined by spaces or underscores.
    """
    lookup = vocabulary.lookup
    rows: dict[str, int] = {}
    for word in words:
        row = next((lookup[one] for one in spellings_of(word) if one in lookup), None)
        if row is not None:
            rows[word] = row
    return rows


def spellings_of(word: str) -> Iterator[str]:
    """The word as written, its Unicode forms, and spaces for underscores or the reverse."""
    yield word
    forms = [word]
    if not word.isascii():
        forms = [unicodedata.normalize(form, word) for form in ("NFC", "NFD")]
        yield from forms
    if " " in word or "_" in word:
        for form in forms:
            yield form.replace(" ", "_")
            yield form.replace("_", " ")


def find_in_any_case(words: Iterable[str], vocabulary: Vocabulary) -> dict[str, int]:
    """Like ``find_words``, then in lower case."""
    found = find_words(words, vocabulary)
    lower = {word: word.lower() for word in words if word not in found}
    folded = find_words(lower.values(), vocabulary)
    return found | {word: folded[form] for word, form in lower.items() if form in folded}


class Lexicon:
    """Distinct pairs of a source and a target word, in the order given.

    >>> Lexicon([("cat", "chat"), ("cat", "chatte"), ("dog", "chien")]).targets["dog"]
    ['chien']
    """

    def __init__(self, pairs: Iterable[Pair], *, report: LoadReport | None = None) -> None:
        # How often each pair is listed; maps weigh it as often.
        self.times: Counter[Pair] = Counter(map(_checked, pairs))
        self.pairs: list[Pair] = list(self.times)
        # Problems found on loading.
        self.report = LoadReport() if report is None else report

    @classmethod
    def load(
        cls, path: str | Path, *, lowercase: bool = True, encoding: str | None = None
    ) -> Lexicon:
        """Read a TSV, CSV, space-separated, MUSE, XLING or PanLex-BLI file (plain, gz, bz2, xz).

        One pair a line, source first; a word with several targets has several lines. Lines
        beginning with ``#`` are comments. ``.report.lines()`` says which lines could not be read
        and why.

        ``lowercase``: fold case.
        ``encoding``: default UTF-8; bytes that do not fit are an error, not lost pairs.
        """
        pairs, report = read_dictionary(path, lowercase=lowercase, encoding=encoding)
        for sentence in report.lines():
            progress.note(f"{path}: {sentence}")
        return cls(pairs, report=report)

    def save(self, path: str | Path) -> None:
        """Write tab-separated UTF-8, one pair a line; ``load(lowercase=False)`` reads the same."""
        for word in (word for pair in self.pairs for word in pair):
            check_writable_word(word)
        with atomic_write(path) as file:
            if self.pairs and self._needs_header():
                file.write("source\ttarget\n")
            file.writelines(map(tsv_row, self.listed()))

    def _needs_header(self) -> bool:
        """Whether the first line would not be read back as a pair."""
        source, target = self.pairs[0]
        return (
            looks_like_header(source, target)
            or source.startswith("\ufeff")
            or all(word[0] == word[-1] == '"' for pair in self.pairs for word in pair)
        )

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def __contains__(self, pair: object) -> bool:
        return pair in self.times

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lexicon) and self.pairs == other.pairs

    def __repr__(self) -> str:
        return f"Lexicon({len(self.pairs)} pairs, {len(self.targets)} source words)"

    def _repr_html_(self) -> str:
        rows = [list(pair) for pair in self.pairs[:_SHOWN]]
        more = [["…", "…"]] if len(self) > _SHOWN else []
        return f"<p>{html.escape(repr(self))}</p>{html_table(['source', 'target'], rows + more)}"

    def to_pandas(self) -> Any:
        """A data frame with the columns ``source`` and ``target``, a row a pair."""
        with needed("pandas", "a data frame of pairs", "bench"):
            import pandas
        return pandas.DataFrame(self.pairs, columns=["source", "target"])

    @cached_property
    def targets(self) -> dict[str, list[str]]:
        """The targets of each source word; source words in order of appearance."""
        grouped: dict[str, list[str]] = {}
        for source, target in self.pairs:
            grouped.setdefault(source, []).append(target)
        return grouped

    def reverse(self) -> Lexicon:
        """The same pairs, target first."""
        return self._reversed

    @cached_property
    def _reversed(self) -> Lexicon:
        return Lexicon((target, source) for source, target in self.listed())

    def without(self, other: Lexicon) -> Lexicon:
        """The pairs that ``other`` does not have."""
        return Lexicon(pair for pair in self.listed() if pair not in other.times)

    def split(
        self, fraction: float, seed: int = 0, *, share_targets: bool = True
    ) -> tuple[Lexicon, Lexicon]:
        """Split off a ``fraction`` of the source words with all their pairs: (rest, held out).

        See ``split_pairs``. Both parts keep the order of the lexicon.
        """
        source = {word: row for row, word in enumerate(self.targets)}
        target = {word: row for row, word in enumerate(self._target_words())}
        numbered = [(source[left], target[right]) for left, right in self.listed()]
        pairs = np.array(numbered, dtype=np.int64).reshape(-1, 2)
        held = split_pairs(pairs, fraction, seed, share_targets=share_targets)
        rest, part = (Lexicon(compress(self.listed(), rows)) for rows in (~held, held))
        return rest, part

    def _target_words(self) -> dict[str, None]:
        return dict.fromkeys(target for _, target in self.pairs)

    def listed(self) -> Iterator[Pair]:
        """Every pair, as often as it is listed."""
        return self.times.elements()

    def indices(self, source: Vocabulary, target: Vocabulary, *, repeated: bool = False) -> Ints:
        """Rows (n, 2) of the pairs that are in both vocabularies, in order.

        Distinct, or, if ``repeated``, as often as they are listed.
        """
        source_rows = find_words(self.targets, source)
        target_rows = find_words(self._target_words(), target)
        found = [
            (source_rows[left], target_rows[right])
            for left, right in self.listed()
            if left in source_rows and right in target_rows
        ]
        rows = found if repeated else list(dict.fromkeys(found))
        return np.array(rows, dtype=np.int64).reshape(-1, 2)

    def coverage(self, source: Vocabulary, target: Vocabulary) -> Coverage:
        """How much of this lexicon is in two vocabularies, and what is missing."""
        target_words = self._target_words()
        source_rows = find_words(self.targets, source)
        target_rows = find_words(target_words, target)
        found = [pair for pair in self.pairs if pair[0] in source_rows and pair[1] in target_rows]
        return Coverage(
            pairs=len(self.pairs),
            pairs_found=len(found),
            source_words=len(self.targets),
            target_words=len(target_words),
            queries_found=len({source for source, _ in found}),
            missing_source=tuple(word for word in self.targets if word not in source_rows),
            missing_target=tuple(word for word in target_words if word not in target_rows),
        )


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for notebooks; texts are escaped."""
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in (header, *rows)]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _checked(pair: object) -> Pair:
    if isinstance(pair, (tuple, list)) and len(pair) == 2:
        source, target = pair
        if isinstance(source, str) and isinstance(target, str) and source and target:
            return source, target
    raise InputError(f"{pair!r} is not a word pair; expected two words that are not empty")


def check_columns(
    pairs: Lexicon, source: Vocabulary, target: Vocabulary, name: str
) -> tuple[int, int]:
    """The number of pairs in both vocabularies, as they are and with the columns swapped.

    Raises ``InputError`` if the columns are clearly swapped. ``name``: what they are columns of.
    """
    found, swapped = (len(one.indices(source, target)) for one in (pairs, pairs.reverse()))
    if swapped > 2 * found > 0:  # names that both languages share are found either way
        raise InputError(
            f"the columns of {name} are swapped: {found} of {len(pairs)} pairs are in the "
            f"vocabularies as they stand, {swapped} the other way round"
        )
    return found, swapped


# Index pairs


def queries_with_golds(pairs: Ints) -> tuple[Ints, list[Ints]]:
    """The distinct source rows, in order of first appearance, and the sorted targets of each."""
    targets: dict[int, set[int]] = {}
    for source, target in pairs.tolist():
        targets.setdefault(source, set()).add(target)
    golds = [np.array(sorted(rows), dtype=np.int64) for rows in targets.values()]
    return np.array(list(targets), dtype=np.int64), golds


def split_pairs(
    pairs: Ints, share: float, seed: int = 0, *, share_targets: bool = True
) -> NDArray[np.bool_]:
    """Mask of the held-out rows of ``pairs``: all rows of a ``share`` of the source words.

    No source word is on both sides. A target word may be (``cat``-``chat`` in the rest and
    ``puss``-``chat`` held out), which makes the reverse direction a little too easy. With
    ``share_targets=False`` words connected by shared targets stay together; fewer words are held
    out if such a group does not fit. The same seed gives the same split, and a few more pairs
    change the side of few words.
    """
    if not 0.0 <= share <= 1.0:
        raise InputError(f"fraction={share!r}: expected a number from 0 to 1")
    words = list(dict.fromkeys(pairs[:, 0].tolist()))
    groups = [[word] for word in words] if share_targets else _connected(pairs)
    # One draw for every row of the vocabulary, so that a word's draw does not depend on the others.
    draws = np.random.default_rng(seed).random(1 + max(words, default=0))
    groups.sort(key=lambda group: draws[min(group)])
    quota = round(share * len(words))
    if 0.0 < share < 1.0 and len(words) > 1:
        quota = min(max(quota, 1), len(words) - 1)
    held: set[int] = set()
    for group in groups:
        if len(held) + len(group) <= quota:
            held.update(group)
    return np.isin(pairs[:, 0], list(held))


def fold_masks(
    pairs: Ints, folds: int, seed: int = 0, *, holdout: float = 0.0
) -> list[NDArray[np.bool_]]:
    """Mask of the held-out rows of ``pairs`` for each fold; every source word is held out once.

    With fewer than 2 ``folds`` there is one mask, of a share ``holdout`` of the source words. No
    word is on both sides of a fold, unless too many are connected by shared targets.
    """
    shares = [1 / left for left in range(folds, 0, -1)] if folds > 1 else [holdout]
    apart = splits_apart(pairs, shares[0])
    masks, left = [], np.ones(len(pairs), dtype=bool)
    for share in shares:  # of what is left
        held = np.zeros(len(pairs), dtype=bool)
        held[left] = split_pairs(pairs[left], share, seed, share_targets=not apart)
        left &= ~held
        if held.any() and not held.all():
            masks.append(held)
    return masks


def splits_apart(pairs: Ints, share: float) -> bool:
    """Whether about that share can be held out with no word in both parts."""
    return largest_group(pairs) <= max(1, share * len(np.unique(pairs[:, 0])))


def largest_group(pairs: Ints) -> int:
    """The largest number of source words that are connected by shared targets."""
    return max(map(len, _connected(pairs)), default=0)


def _connected(pairs: Ints) -> list[list[int]]:
    """Groups of source words such that no two groups share a target, in order of appearance."""
    parent: dict[int, int] = {}

    def root(word: int) -> int:
        while parent[word] != word:
            parent[word] = parent[parent[word]]
            word = parent[word]
        return word

    first_with: dict[int, int] = {}
    for source, target in pairs.tolist():
        parent.setdefault(source, source)
        parent[root(source)] = root(first_with.setdefault(target, source))
    groups: dict[int, list[int]] = {}
    for word in parent:
        groups.setdefault(root(word), []).append(word)
    return list(groups.values())
