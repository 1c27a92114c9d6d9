"""``Lexicon``: word pairs with several targets a word, read from whatever users have."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from blicer.errors import InputError
from blicer.files import atomic_write
from blicer.io.dictionary import LexiconReport, looks_like_header, read_dictionary, safe_start

Pair = tuple[str, str]
SAMPLE = 5  # missing words that a coverage report shows

__all__ = ["Coverage", "Lexicon", "LexiconReport", "find_words"]


class Vocabulary(Protocol):
    """Anything that knows its words' rows; ``Embeddings`` does."""

    @property
    def lookup(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Coverage:
    """How much of a lexicon two vocabularies hold."""

    pairs: int
    pairs_found: int
    source_words: int
    source_found: int
    target_words: int
    target_found: int
    queries_found: int
    """Source words that are found and have a found target."""
    other_form: int
    """Words found only in the other Unicode form (composed or decomposed accents)."""
    missing_source: tuple[str, ...]
    missing_target: tuple[str, ...]

    @property
    def fraction(self) -> float:
        """Share of the source words that can be asked and answered."""
        return self.queries_found / self.source_words if self.source_words else 0.0

    def lines(self) -> list[str]:
        said = [f"{self.pairs_found} of {self.pairs} pairs are in both vocabularies"]
        for side, found, words, missing in (
            ("source", self.source_found, self.source_words, self.missing_source),
            ("target", self.target_found, self.target_words, self.missing_target),
        ):
            if missing:
                sample = ", ".join(missing[:SAMPLE])
                more = ", ..." if words - found > SAMPLE else ""
                said.append(
                    f"{words - found} of {words} {side} words are not in the {side} vocabulary: "
                    f"{sample}{more}"
                )
        if self.other_form:
            said.append(
                f"{self.other_form} words were found in their other Unicode form (NFC or NFD)"
            )
        return said

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "fraction": self.fraction}


def find_words(words: Iterable[str], vocabulary: Vocabulary) -> tuple[dict[str, int], int]:
    """Row of each word that the vocabulary holds, and how many were found in another form only.

    Vector files hold accents composed or decomposed, as their corpus did, so neither the lexicon
    nor the vectors are normalised on reading: the word as written is tried first.
    """
    lookup = vocabulary.lookup
    rows: dict[str, int] = {}
    other_form = 0
    for word in words:
        row = lookup.get(word)
        if row is None and not word.isascii():
            for form in ("NFC", "NFD"):
                row = lookup.get(unicodedata.normalize(form, word))
                if row is not None:
                    other_form += 1
                    break
        if row is not None:
            rows[word] = row
    return rows, other_form


class Lexicon:
    """Distinct pairs of a source and a target word, in the order in which they came.

    >>> Lexicon([("cat", "chat"), ("cat", "chatte"), ("dog", "chien")]).targets["cat"]
    ['chat', 'chatte']
    """

    def __init__(self, pairs: Iterable[Pair], *, report: LexiconReport | None = None) -> None:
        times: Counter[Pair] = Counter()
        for pair in pairs:
            times[_checked(pair)] += 1
        distinct, total = list(times), times.total()
        self.pairs: list[Pair] = distinct
        self.times: dict[Pair, int] = {pair: n for pair, n in times.items() if n > 1}
        """How often a pair was listed, where more than once; a space's fit counts it as often."""
        self.report = report or LexiconReport(
            total_lines=total, pairs=len(distinct), duplicates=total - len(distinct)
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        lowercase: bool = True,
        encoding: str | None = None,
        delimiter: str | None = None,
        header: bool | None = None,
        columns: tuple[int, int] = (1, 2),
        split_targets: str | None = None,
    ) -> Lexicon:
        """Read a TSV, CSV, space-separated, MUSE, XLING or PanLex-BLI file (plain, gz, bz2, xz).

        One pair a line; a word with several targets has several lines. A cell is one word or
        expression and is never cut at commas, semicolons or bars inside it, because words and
        expressions contain them; when they separate translations, say so with ``split_targets``
        (the report mentions it if the file looks like that).

        ``lowercase`` folds case (and counts). ``encoding`` is UTF-8 unless given; bytes that are
        not UTF-8 are an error, not lost pairs. ``delimiter`` and ``header`` are found from the
        content unless given. ``columns``, counted from 1, says where source and target are.
        Lines beginning with ``#`` are comments. ``.report.lines()`` says which lines could not be
        read and why.
        """
        from blicer.progress import note

        pairs, report = read_dictionary(
            path,
            lowercase=lowercase,
            encoding=encoding,
            delimiter=delimiter,
            header=header,
            columns=columns,
            split_targets=split_targets,
        )
        for sentence in report.lines():
            note(f"{path}: {sentence}")
        return cls(pairs, report=report)

    def save(self, path: str | Path) -> None:
        """Write tab-separated UTF-8, one pair a line; ``load(lowercase=False)`` reads the same."""
        rows = [f"{_writable(source)}\t{_writable(target)}\n" for source, target in self.listed()]
        if self.pairs and self._needs_header():
            rows.insert(0, "source\ttarget\n")
        with atomic_write(path) as file:
            file.writelines(safe_start(row) for row in rows)

    def _needs_header(self) -> bool:
        """Whether the first pair would be taken for something else if it opened the file."""
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
        return (
            isinstance(pair, tuple) and len(pair) == 2 and pair[1] in self.targets.get(pair[0], ())
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lexicon) and self.pairs == other.pairs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Lexicon({len(self.pairs)} pairs, {len(self.targets)} source words)"

    @cached_property
    def targets(self) -> dict[str, list[str]]:
        """The targets of each source word; source words in order of appearance."""
        grouped: dict[str, list[str]] = {}
        for source, target in self.pairs:
            grouped.setdefault(source, []).append(target)
        return grouped

    def reverse(self) -> Lexicon:
        """The same pairs, target first."""
        return Lexicon((target, source) for source, target in self.listed())

    def split(
        self, fraction: float, seed: int = 0, *, share_targets: bool = True
    ) -> tuple[Lexicon, Lexicon]:
        """Cut off a ``fraction`` of the source words with all their pairs: (rest, held out).

        No source word is on both sides. A target word may be (``cat``-``chat`` in the rest and
        ``puss``-``chat`` held out), which flatters the reverse direction a little; with
        ``share_targets=False`` words connected by a shared target stay together, and the held-out
        part can be smaller than asked when such a group does not fit. Both parts keep the order
        of the lexicon; the same seed gives the same split.
        """
        if not 0.0 <= fraction <= 1.0:
            raise InputError(f"fraction={fraction!r}: expected a number from 0 to 1")
        words = list(self.targets)
        groups = [[word] for word in words] if share_targets else self._connected()
        quota = round(fraction * len(words))
        if 0.0 < fraction < 1.0 and len(words) > 1:
            quota = min(max(quota, 1), len(words) - 1)
        held: set[str] = set()
        for at in np.random.default_rng(seed).permutation(len(groups)):
            if len(held) + len(groups[at]) <= quota:
                held.update(groups[at])
        return (
            Lexicon(pair for pair in self.listed() if pair[0] not in held),
            Lexicon(pair for pair in self.listed() if pair[0] in held),
        )

    def splits_apart(self, share: float) -> bool:
        """Whether about that share can be held out with no word of either side in both parts."""
        return self.largest_group() <= max(1, share * len(self.targets))

    def largest_group(self) -> int:
        """How many source words hang together by shared targets, at most."""
        return max((len(group) for group in self._connected()), default=0)

    def _connected(self) -> list[list[str]]:
        """Source words grouped so that no two groups share a target."""
        parent = {word: word for word in self.targets}

        def root(word: str) -> str:
            while parent[word] != word:
                parent[word] = parent[parent[word]]
                word = parent[word]
            return word

        first_with: dict[str, str] = {}
        for source, target in self.pairs:
            parent[root(source)] = root(first_with.setdefault(target, source))
        groups: dict[str, list[str]] = {}
        for word in self.targets:
            groups.setdefault(root(word), []).append(word)
        return list(groups.values())

    def listed(self) -> Iterator[Pair]:
        """Every pair as often as it was listed."""
        for pair in self.pairs:
            yield from repeat(pair, self.times.get(pair, 1))

    def indices(
        self, source: Vocabulary, target: Vocabulary, *, repeated: bool = False
    ) -> NDArray[np.int64]:
        """Rows of the pairs that both vocabularies hold, (n, 2), in order.

        Distinct, or as often as they were listed if ``repeated``.
        """
        source_rows, _ = find_words(self.targets, source)
        target_rows, _ = find_words(dict.fromkeys(word for _, word in self.pairs), target)
        found = [
            (source_rows[left], target_rows[right])
            for left, right in self.listed()
            if left in source_rows and right in target_rows
        ]
        rows = found if repeated else list(dict.fromkeys(found))
        return np.array(rows, dtype=np.int64).reshape(-1, 2)

    def coverage(self, source: Vocabulary, target: Vocabulary) -> Coverage:
        """What the two vocabularies hold of this lexicon, with some of the missing words."""
        target_words = dict.fromkeys(word for _, word in self.pairs)
        source_rows, source_other = find_words(self.targets, source)
        target_rows, target_other = find_words(target_words, target)
        found = [pair for pair in self.pairs if pair[0] in source_rows and pair[1] in target_rows]
        return Coverage(
            pairs=len(self.pairs),
            pairs_found=len(found),
            source_words=len(self.targets),
            source_found=len(source_rows),
            target_words=len(target_words),
            target_found=len(target_rows),
            queries_found=len({pair[0] for pair in found}),
            other_form=source_other + target_other,
            missing_source=_missing(self.targets, source_rows),
            missing_target=_missing(target_words, target_rows),
        )


def _missing(words: Iterable[str], found: dict[str, int]) -> tuple[str, ...]:
    missing = (word for word in words if word not in found)
    return tuple(word for word, _ in zip(missing, range(SAMPLE), strict=False))


def _checked(pair: object) -> Pair:
    if isinstance(pair, (tuple, list)) and len(pair) == 2:
        source, target = pair
        if isinstance(source, str) and isinstance(target, str) and source and target:
            return source, target
    raise InputError(f"{pair!r} is not a word pair; expected two words that are not empty")


def _writable(word: str) -> str:
    if word != word.strip(" ") or any(mark in word for mark in "\t\n\r\0"):
        raise InputError(
            f"{word!r} cannot be written to a dictionary file: tabs, line ends, zero bytes and "
            "spaces around a word would not read back"
        )
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{word!r} holds half a character and cannot be written") from error
    return word


def split_pairs(
    pairs: NDArray[np.int64], share: float, seed: int, *, share_targets: bool = True
) -> NDArray[np.bool_]:
    """Stand-in until the index version is merged: which rows are held out."""
    named = Lexicon((str(a), str(b)) for a, b in pairs.tolist())
    _, held = named.split(share, seed, share_targets=share_targets)
    return np.isin(pairs[:, 0], [int(word) for word in held.targets])


def splits_apart(pairs: NDArray[np.int64], share: float) -> bool:
    """Stand-in until the index version is merged."""
    return Lexicon((str(a), str(b)) for a, b in pairs.tolist()).splits_apart(share)
