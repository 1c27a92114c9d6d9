"""A report as blocks, so that Markdown and HTML say the same; and the Markdown of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

NOTHING = "–"


@dataclass(frozen=True)
class Item:
    """What stands in one place of a table."""

    text: str
    note: str = ""  # smaller, after the text: the paper's figure, an interval
    value: float | None = None  # what a column is sorted by; the text itself without it
    tone: Literal["", "good", "bad", "soft", "strong"] = ""


Row = Sequence["Item | str"]


@dataclass(frozen=True)
class Group:
    """A row of a table that is the title of the rows below it."""

    text: str


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Row | Group]
    texts: int = 1  # the first so many columns are words, the others numbers
    sortable: bool = False


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    text: str
    soft: bool = False


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Card:
    """One figure that matters."""

    title: str
    big: str
    lines: Sequence[str]
    tone: Literal["", "good", "bad"] = ""


@dataclass(frozen=True)
class Cards:
    cards: Sequence[Card]


@dataclass(frozen=True)
class Picture:
    name: str  # of its file, without the ending
    title: str
    draw: Callable[[], str]
    caption: str

    @cached_property
    def svg(self) -> str:
        """Drawn when it is wanted: that takes longer than all the rest of a report."""
        return self.draw()


@dataclass(frozen=True)
class Pictures:
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Folded:
    """A table that only a few look at: folded away where that can be done."""

    title: str
    table: Table


Block = Heading | Text | Code | Cards | Pictures | Table | Folded


@dataclass(frozen=True)
class Document:
    title: str
    blocks: Sequence[Block]

    def pictures(self) -> list[Picture]:
        found = [block.pictures for block in self.blocks if isinstance(block, Pictures)]
        return [picture for pictures in found for picture in pictures]


# Formats of numbers, the same everywhere. Scores are fractions here and per cent on the page.


def percent(fraction: float | None, digits: int = 1, sign: str = "") -> str:
    return NOTHING if fraction is None else points(100 * fraction, digits, sign)


def points(value: float | None, digits: int = 1, sign: str = "") -> str:
    """A figure that is in per cent already."""
    if value is None:
        return NOTHING
    text = f"{value:{sign}.{digits}f}"
    if float(text) == 0:  # no −0.0
        text = f"{0:{sign}.{digits}f}"
    return text.replace("-", "−")


def with_spread(text: str, spread: float | None, digits: int = 1) -> str:
    return text if spread is None else f"{text} ± {percent(spread, digits)}"


def p_text(p_value: float | None) -> str:
    if p_value is None:
        return NOTHING
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


# Markdown

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~$&])")


def escaped(text: str) -> str:
    """Any text as Markdown that shows it as it is, in a table too."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def markdown(document: Document, picture_folder: str = "pictures") -> str:
    parts = [f"# {escaped(document.title)}"]
    for block in document.blocks:
        parts.append(_block(block, picture_folder))
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block, picture_folder: str) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {escaped(block.text)}"
    if isinstance(block, Text):
        return escaped(block.text)
    if isinstance(block, Code):
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", block.text)), default=0))
        return f"{fence}\n{block.text}\n{fence}"
    if isinstance(block, Cards):
        lines = []
        for card in block.cards:
            rest = "".join(f"; {escaped(line)}" for line in card.lines)
            lines.append(f"- {escaped(card.title)}: **{escaped(card.big)}**{rest}")
        return "\n".join(lines)
    if isinstance(block, Pictures):
        return "\n\n".join(
            f"![{escaped(one.title)}]({picture_folder}/{one.name}.svg)\n\n{escaped(one.caption)}"
            for one in block.pictures
        )
    if isinstance(block, Folded):
        return f"{escaped(block.title)}:\n\n{_table(block.table)}"
    return _table(block)


def _table(table: Table) -> str:
    width = len(table.head)
    rule = ["---"] * table.texts + ["---:"] * (width - table.texts)
    lines = [_line([escaped(name) for name in table.head]), _line(rule[:width])]
    for row in table.rows:
        if isinstance(row, Group):
            lines.append(_line([f"**{escaped(row.text)}**", *[""] * (width - 1)]))
        else:
            lines.append(_line([_item(one) for one in row]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _item(item: Item | str) -> str:
    if isinstance(item, str):
        return escaped(item)
    text = escaped(item.text)
    if item.tone == "strong" and text:
        text = f"**{text}**"
    return f"{text} ({escaped(item.note)})" if item.note else text
