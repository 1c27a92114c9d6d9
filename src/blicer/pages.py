"""Renders pages from jinja2 templates, and formats their tables and numbers.

Templates hold plain text; the macros and filters that they call escape it as Markdown or HTML.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blicer.errors import needed as needed

NOTHING = "–"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~$&])")
_NUMBER = re.compile(rf"({NOTHING}|[+−<]? ?\d[\d,.]*)( .*)?")


class Strong(str):
    """Text to be shown in bold."""

    __slots__ = ()


class Number(float):
    """A number formatted with a true minus sign, never as −0, and as ``–`` if it is NaN."""

    def __format__(self, how: str) -> str:
        if self != self:
            return NOTHING
        text = format(float(self), how)
        if not re.search("[1-9]", text):
            text = format(0.0, how)
        return text.replace("-", "−")


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def fill(text: str, values: Mapping[str, Any]) -> str:
    """Format values into a text; omits ± and brackets without a number; ** makes it bold."""
    known = {key: Number("nan") if one is None else one for key, one in values.items()}
    known |= {key: Number(one) for key, one in known.items() if isinstance(one, float)}
    filled = re.sub(rf" (± {NOTHING}|\({NOTHING}\))", "", text.strip("*").format_map(known))
    return Strong(filled) if text.startswith("**") else filled


def markdown(text: str) -> str:
    """Any text as one line of escaped Markdown, also for tables."""
    escaped = _SPECIAL.sub(r"\\\1", " ".join(text.split()))
    return f"**{escaped}**" if isinstance(text, Strong) and escaped else escaped


def html_cell(text: str) -> str:
    """The text of a table cell as HTML; brackets at its end become small."""
    end = re.search(r" \(.*\)$", text, re.DOTALL)
    start = html.escape(text[: end.start()] if end else text)
    if isinstance(text, Strong):
        start = f"<strong>{start}</strong>"
    return f"{start} <small>{html.escape(end[0].strip())}</small>" if end else start


def table_rows(
    rows: Any, columns: Mapping[str, str] | None = None, above: str = ""
) -> list[tuple[str, list[str]]]:
    """The rows of a table, each with its texts, and with a title if one begins there.

    ``rows``: a data frame, or dictionaries. ``columns``: by title, a format string for the row's
    values; without columns the values are texts already. ``above``: a format string for the title
    above the rows that share it.
    """
    records = rows if isinstance(rows, list) else rows.to_dict("records")
    found, last = [], ""
    for record in records:
        texts = [fill(text, record) for text in columns.values()] if columns else record.values()
        title = fill(above, record)
        found.append((title if title != last else "", list(texts)))
        last = title
    return found


def number_columns(rows: Sequence[tuple[str, list[str]]]) -> list[bool]:
    """Which columns of a table hold numbers, and so are aligned right."""
    columns = zip(*(texts for _, texts in rows), strict=True)
    return [all(not text or _NUMBER.fullmatch(text) for text in column) for column in columns]


def environment() -> Any:
    """The jinja2 environment of the package's templates, each named by its path."""
    with needed("jinja2", "writing a page", "demo"):
        import jinja2
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.filters |= {
        "md": markdown,
        "cell": html_cell,
        "rows": table_rows,
        "numbers": number_columns,
        "fill": fill,
        "number": lambda value, how: format(Number(value), how),
        "inline": lambda svg: base64.b64encode(svg.encode()).decode(),
    }
    found.globals["plural"] = plural
    return found


def render(template: str, **values: Any) -> str:
    return str(environment().get_template(template).render(**values))
