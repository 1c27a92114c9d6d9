"""What a reader mended, merged or dropped, so that nothing disappears silently."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

EXAMPLES_KEPT = 3

# kind -> (sentence for one, sentence for many). Order is the order of the report.
SENTENCES: dict[str, tuple[str, str]] = {
    "wrong_length": (
        "1 line of the wrong length dropped",
        "{n} lines of the wrong length dropped",
    ),
    "truncated": ("the last line is cut off; dropped", "{n} lines cut off; dropped"),
    "not_numbers": (
        "1 line dropped where numbers were expected",
        "{n} lines dropped where numbers were expected",
    ),
    "not_finite": (
        "1 vector with NaN or infinity dropped",
        "{n} vectors with NaN or infinity dropped",
    ),
    "not_utf8": (
        "1 word dropped that is not UTF-8",
        "{n} words dropped that are not UTF-8 "
        "(if the file has another encoding, convert it: iconv -f latin1 -t utf-8)",
    ),
    "no_word": ("1 vector without a word dropped", "{n} vectors without a word dropped"),
    "duplicate": (
        "1 duplicate word dropped (the first is kept)",
        "{n} duplicate words dropped (the first of each is kept)",
    ),
    "case_merged": (
        "1 word dropped that differs only in case from an earlier one",
        "{n} words dropped that differ only in case from an earlier one",
    ),
    "header_count": ("the header gives another number of words than the file has", ""),
    "header_dimension": ("the header gives another dimension than the lines have", ""),
    "zero": ("1 word has an all-zero vector (kept)", "{n} words have an all-zero vector (kept)"),
    "space_in_word": (
        "1 word contains a space, no-break space or line separator (kept as it is)",
        "{n} words contain a space, no-break space or line separator (kept as they are)",
    ),
    "blank": ("1 blank line skipped", "{n} blank lines skipped"),
    "bom": ("a byte-order mark at the start was removed", ""),
    "crlf": ("1 line ends with CR LF (read as LF)", "{n} lines end with CR LF (read as LF)"),
    "no_final_newline": ("the last line has no line end (kept)", ""),
}

# Kinds that cost a vector; the others were mended or only noticed.
DROPPED = frozenset(
    {
        "wrong_length",
        "truncated",
        "not_numbers",
        "not_finite",
        "not_utf8",
        "no_word",
        "duplicate",
        "case_merged",
    }
)


@dataclass
class LoadReport:
    """Counts by kind, each with a few examples; empty when the input was clean."""

    source: str = ""
    format: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def count(self, kind: str, example: str | None = None, n: int = 1) -> None:
        if kind not in SENTENCES:
            raise KeyError(f"unknown kind of irregularity: {kind}")
        if n <= 0:
            return
        self.counts[kind] = self.counts.get(kind, 0) + n
        if example is not None:
            kept = self.examples.setdefault(kind, [])
            if len(kept) < EXAMPLES_KEPT:
                kept.append(example)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __getitem__(self, kind: str) -> int:
        """How many of this kind (0 when none)."""
        return self.counts.get(kind, 0)

    @property
    def dropped(self) -> int:
        """How many vectors of the input are not in the result."""
        return sum(n for kind, n in self.counts.items() if kind in DROPPED)

    def lines(self) -> list[str]:
        """One sentence for each kind, with examples; empty when there is nothing to say."""
        prefix = f"{self.source}: " if self.source else ""
        sentences = []
        for kind, (one, many) in SENTENCES.items():
            n = self.counts.get(kind, 0)
            if not n:
                continue
            text = one if n == 1 or not many else many.format(n=f"{n:,}")
            if examples := self.examples.get(kind):
                more = ", …" if n > len(examples) else ""
                text += f": {', '.join(examples)}{more}"
            sentences.append(prefix + text)
        return sentences

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "format": self.format,
            "counts": dict(self.counts),
            "examples": {kind: list(items) for kind, items in self.examples.items()},
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> LoadReport:
        return cls(
            source=str(value["source"]),
            format=str(value["format"]),
            counts={str(kind): int(n) for kind, n in value["counts"].items()},
            examples={str(kind): [str(x) for x in xs] for kind, xs in value["examples"].items()},
        )
