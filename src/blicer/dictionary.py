"""``Dictionary``: induced word pairs with confidences, an editor's verdicts, and their provenance.

``Translator.induce`` makes one, ``save`` writes it in any of ``blicer.formats``, and ``load`` reads
back the formats that an editor can fill in.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from blicer import __version__, formats
from blicer.errors import FileError, InputError, needed
from blicer.files import check_writable
from blicer.languages import validate_tag
from blicer.lexicon import Lexicon
from blicer.progress import note

ACCEPTED = "accept accepted yes y ok right correct good true 1 + ✓ ✔".split()
REJECTED = "reject rejected no n wrong incorrect bad false 0 - ✗ ✘".split()
REVIEW = ("verdict", "correction", "note")
_SHOWN = 12  # entries in a notebook
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One translation of one word."""

    source: str
    target: str
    confidence: float | None = None
    """The probability that it is right; None if unknown."""
    score: float | None = None
    rank: int = 1
    """Its rank among the translations of ``source``, from 1."""
    seed: bool = False
    """Whether it is a seed."""
    forms: tuple[str, ...] = ()
    """Other forms of the target's lemma that were found too."""
    back_confidence: float | None = None
    """The confidence from target to source, in a dictionary of both directions."""
    verdict: str = ""
    """An editor's verdict: one of ``ACCEPTED`` or ``REJECTED``, or empty."""
    correction: str = ""
    """The editor's replacement of ``target``."""
    note: str = ""

    @property
    def surest(self) -> float | None:
        """The higher of the two confidences."""
        known = [one for one in (self.confidence, self.back_confidence) if one is not None]
        return max(known, default=None)

    @property
    def is_accepted(self) -> bool:
        return self.verdict.strip().lower() in ACCEPTED

    @property
    def is_rejected(self) -> bool:
        return self.verdict.strip().lower() in REJECTED

    def settled(self) -> list[Entry]:
        """The pairs that an editor's decision makes of this one, without a correction.

        The correction is right, and the target wrong unless it is accepted too.
        """
        if not self.correction:
            return [self]
        if self.correction == self.target:
            return [replace(self, verdict="accept", correction="")]
        back = None if self.back_confidence is None else 1.0
        right = replace(self, target=self.correction, confidence=1.0, back_confidence=back)
        right = replace(right, score=None, forms=(), verdict="accept", correction="")
        verdict = self.verdict if self.is_accepted else "reject"
        return [right, replace(self, verdict=verdict, correction="")]

    def reverse(self) -> Entry:
        """The same pair from target to source."""
        return Entry(
            self.target,
            self.source,
            self.back_confidence,
            seed=self.seed,
            back_confidence=self.confidence,
            verdict=self.verdict if not self.correction else "",
            note=self.note,
        )


COLUMNS = tuple(one.name for one in fields(Entry))


def _today() -> str:
    return datetime.now(timezone.utc).date().isoformat()


@dataclass(frozen=True)
class About:
    """Where a dictionary comes from."""

    source: str = ""
    """BCP 47 tag; empty if the language is not known."""
    target: str = ""
    vectors: tuple[str, str] = ("", "")
    seeds: int = 0
    method: str = ""
    date: str = field(default_factory=_today)
    tool: str = "blicer"
    version: str = __version__

    def __post_init__(self) -> None:
        # Line ends in the name of a file would be further lines of an export.
        first, second = (_CONTROL.sub(" ", name) for name in self.vectors)
        object.__setattr__(self, "vectors", (first, second))

    @property
    def tags(self) -> tuple[str, str]:
        """Both language tags, for formats that require them."""
        return self.source or "und", self.target or "und"

    @property
    def title(self) -> str:
        return f"{'-'.join(self.tags)} by {self.tool}"

    def lines(self) -> list[str]:
        """The provenance as sentences."""
        said = [f"{self.title} {self.version}, {self.date}; found by a machine, not checked"]
        if any(self.vectors):
            said.append(f"vectors: {'; '.join(self.vectors)}")
        if self.method:
            said.append(f"method: {self.method}; {self.seeds:,} seed pairs")
        return said

    def reverse(self) -> About:
        turned = (self.vectors[1], self.vectors[0])
        return replace(self, source=self.target, target=self.source, vectors=turned)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> About:
        """Inverse of ``dataclasses.asdict``; other keys are ignored.

        Values that ``provenance`` never has raise ``ValueError``: exports write them as they are.
        """
        if not isinstance(values, dict):
            raise ValueError("the provenance is no object")
        known = {one.name: values[one.name] for one in fields(cls) if one.name in values}
        if "vectors" in known:
            first, second = known["vectors"]
            known["vectors"] = (_plain_text("vectors", first), _plain_text("vectors", second))
        for name in known.keys() & {"source", "target", "method", "date", "tool", "version"}:
            known[name] = _plain_text(name, known[name])
        for side in known.keys() & {"source", "target"}:
            known[side] = known[side] and validate_tag(known[side])
        if (date := known.get("date")) and not _DATE.fullmatch(date):
            raise ValueError(f"date is {date!r}; expected one such as 2026-01-31")
        seeds = known.get("seeds", 0)
        if type(seeds) is not int or seeds < 0:
            raise ValueError("seeds is no number of seeds")
        return cls(**known)


def _plain_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or _CONTROL.search(value):
        raise ValueError(f"{name} of the provenance is no text of one line")
    return value


class Dictionary:
    """Entries in the order in which they are written, indexed by source word.

    >>> words = Dictionary([Entry("cat", "chat", 0.9), Entry("cat", "chatte", 0.4, rank=2)])
    >>> words["cat"][0].target
    'chat'
    """

    def __init__(
        self, entries: Iterable[Entry], about: About | None = None, *, asked: int | None = None
    ) -> None:
        self.entries = list(entries)
        self.about = about or About()
        self.asked = len(self.words) if asked is None else asked
        """The number of words that were to be translated."""
        self.inflected: dict[str, str] = {}
        """Other forms of headwords in the source language, each with its headword."""

    @cached_property
    def words(self) -> dict[str, list[Entry]]:
        """The translations of each source word; source words in order of appearance."""
        grouped: dict[str, list[Entry]] = {}
        for entry in self.entries:
            grouped.setdefault(entry.source, []).append(entry)
        return grouped

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __getitem__(self, word: str) -> list[Entry]:
        if word not in self.words:
            raise KeyError(f"{word!r} is not among the {len(self.words):,} words")
        return self.words[word]

    def __contains__(self, word: object) -> bool:
        return word in self.words

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dictionary) and self.entries == other.entries

    def __repr__(self) -> str:
        pair = "-".join(self.about.tags)
        return f"Dictionary({pair}, {len(self):,} entries for {len(self.words):,} words)"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(entry.source)}</td><td>{html.escape(entry.target)}</td>"
            f"<td>{'' if entry.confidence is None else f'{entry.confidence:.2f}'}</td></tr>"
            for entry in self.entries[:_SHOWN]
        )
        head = "<tr><th>source</th><th>target</th><th>confidence</th></tr>"
        more = f"<p>… {len(self) - _SHOWN:,} more</p>" if len(self) > _SHOWN else ""
        return f"<p>{html.escape(repr(self))}</p><table>{head}{rows}</table>{more}"

    # -- parts --------------------

    def best(self, k: int | None = None, min_confidence: float | None = None) -> Dictionary:
        """Only the first ``k`` translations of each word that are at least that sure."""
        kept = [
            entry
            for entry in self.entries
            if (k is None or entry.rank <= k)
            and (min_confidence is None or (entry.surest or 0.0) >= min_confidence)
        ]
        return self.of(kept)

    def of(self, entries: Iterable[Entry]) -> Dictionary:
        """Other entries with the same provenance."""
        found = Dictionary(entries, self.about, asked=self.asked)
        found.inflected = {form: head for form, head in self.inflected.items() if head in found}
        return found

    def reverse(self) -> Dictionary:
        """The same pairs from target to source, in order of the target words' appearance.

        A correction becomes an accepted pair, and the target that it replaces a rejected one.
        """
        grouped: dict[str, list[Entry]] = {}
        for entry in self._settled():
            grouped.setdefault(entry.target, []).append(entry.reverse())
        ranked = (
            replace(entry, rank=rank)
            for group in grouped.values()
            for rank, entry in enumerate(group, start=1)
        )
        return Dictionary(ranked, self.about.reverse())

    def _settled(self) -> Iterable[Entry]:
        """The entries; of a reviewed dictionary every pair once, with what was decided on it."""
        if not self.is_reviewed:
            return self.entries
        found: dict[tuple[str, str], Entry] = {}
        for entry in (settled for one in self.entries for settled in one.settled()):
            pair = entry.source, entry.target
            if pair not in found or (entry.verdict and not found[pair].is_accepted):
                found[pair] = entry
        return found.values()

    @property
    def is_reviewed(self) -> bool:
        """Whether an editor has filled in anything."""
        return any(entry.verdict or entry.correction or entry.note for entry in self.entries)

    @property
    def is_two_way(self) -> bool:
        return any(entry.back_confidence is not None for entry in self.entries)

    def curated(self) -> tuple[Lexicon, Lexicon]:
        """An editor's decisions: pairs that are right (or corrected), and pairs that are wrong.

        An entry without a verdict is neither. One with a correction was wrong, unless it is
        accepted too.
        """
        right, wrong = [], []
        for entry in self.entries:
            if entry.correction:
                right.append((entry.source, entry.correction))
            if entry.is_accepted:
                right.append((entry.source, entry.target))
            elif (entry.is_rejected or entry.correction) and entry.correction != entry.target:
                wrong.append((entry.source, entry.target))
        return Lexicon(dict.fromkeys(right)), Lexicon(dict.fromkeys(wrong))

    # -- tables, files --------------------

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every entry as a dictionary of its columns."""
        for entry in self.entries:
            yield dict(zip(COLUMNS, astuple(entry), strict=True)) | {"forms": list(entry.forms)}

    def to_pandas(self) -> Any:
        """A pandas data frame, one row an entry."""
        with needed("pandas", "to_pandas", "tables"):
            import pandas
        return pandas.DataFrame(self.rows(), columns=list(COLUMNS))

    def to_polars(self) -> Any:
        """A polars data frame, one row an entry."""
        with needed("polars", "to_polars", "tables"):
            import polars
        text, number = polars.String, polars.Float64
        types: Any = dict.fromkeys(COLUMNS, text) | {
            "confidence": number,
            "score": number,
            "back_confidence": number,
            "rank": polars.Int64,
            "seed": polars.Boolean,
            "forms": polars.List(text),
        }
        return polars.DataFrame(self.rows(), schema=types)

    def save(self, path: str | Path, format: str | None = None, *, review: bool = False) -> None:
        """Write the dictionary.

        ``format``: one of ``blicer.formats.FORMATS``; by default the file's ending says.
        ``review``: tables get columns for an editor (``REVIEW``), which ``load`` reads back. Other
        formats have corrections in the place of the targets, and no rejected pairs.
        """
        path = Path(path)
        name = formats.check_output(path, format)
        if review and name not in formats.REVIEWED:
            raise InputError(
                f"{name} has no columns for an editor; there are {', '.join(formats.REVIEWED)}"
            )
        check_writable(path)
        if name in formats.REVIEWED:
            formats.writer(name)(path, self, review=review or self.is_reviewed)
        else:
            formats.writer(name)(path, self._decided(path, name))

    def _decided(self, path: Path, name: str) -> Dictionary:
        """What a format without columns for an editor holds; what changes is noted."""
        if not self.is_reviewed:
            return self
        corrected = sum(bool(one.correction) and one.correction != one.target for one in self)
        kept = list(self._settled())
        if name not in formats.SHOWS_REJECTED:
            kept = [one for one in kept if not one.is_rejected]
            if rejected := sum(one.is_rejected and not one.correction for one in self):
                note(f"{path}: {rejected:,} rejected entries left out")
        if corrected:
            note(f"{path}: {corrected:,} targets replaced by their corrections")
        return self.of(kept)

    @classmethod
    def load(cls, path: str | Path, format: str | None = None) -> Dictionary:
        """Read a dictionary that ``save`` wrote, or any table of word pairs (see ``Lexicon.load``).

        ``format``: one of those with a reader; by default the file's ending says.
        """
        path = Path(path)
        if not path.is_file():
            raise FileError(path, "is no file" if path.exists() else "does not exist")
        found: Dictionary = formats.reader(path, format)(path)
        for entry in found:
            if entry.verdict.strip() and not (entry.is_accepted or entry.is_rejected):
                raise FileError(
                    path,
                    f"{entry.source} - {entry.target} has the verdict {entry.verdict!r}; expected "
                    "accept, reject, or nothing",
                )
        return found


def merged(forward: Dictionary, backward: Dictionary) -> Dictionary:
    """Both directions as one dictionary: pairs found in both directions first, then the others.

    ``confidence`` is that of the forward direction, ``back_confidence`` of the other; each group is
    sorted by the surer of the two.
    """
    back = {(entry.target, entry.source): entry for entry in backward}
    pairs: list[tuple[bool, Entry]] = []  # whether it was found from both sides
    for entry in forward:
        other = back.pop((entry.source, entry.target), None)
        sure = other.confidence if other is not None else None
        pairs.append((other is not None, replace(entry, back_confidence=sure)))
    for (source, target), entry in back.items():
        turned = Entry(source, target, score=entry.score, seed=entry.seed)
        pairs.append((False, replace(turned, back_confidence=entry.confidence)))
    pairs.sort(key=lambda pair: (not pair[0], -(pair[1].surest or 0.0)))
    ranks: dict[str, int] = {}
    entries = []
    for _, entry in pairs:
        ranks[entry.source] = ranks.get(entry.source, 0) + 1
        entries.append(replace(entry, rank=ranks[entry.source]))
    found = Dictionary(entries, forward.about)
    found.inflected = {form: head for form, head in forward.inflected.items() if form not in found}
    return found


def joined(parts: Sequence[Dictionary]) -> Dictionary:
    """Several dictionaries as one, in order; of equal pairs the first entry is kept."""
    entries: dict[tuple[str, str], Entry] = {}
    for entry in (entry for part in parts for entry in part):
        entries.setdefault((entry.source, entry.target), entry)
    found = Dictionary(entries.values(), parts[0].about, asked=sum(one.asked for one in parts))
    inflected = {form: head for part in parts for form, head in part.inflected.items()}
    found.inflected = {form: head for form, head in inflected.items() if form not in found}
    return found
