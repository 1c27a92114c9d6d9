"""Formats that dictionaries are written in: a registry, and one file a family of formats.

A writer is a function of a path and a ``Dictionary``; it opens its files with
``blicer.files.open_output``. ``REVIEWED`` formats take ``review=True`` too: columns for an editor.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from blicer.errors import FileError, InputError
from blicer.files import COMPRESSED, is_special


class Format(NamedTuple):
    """Where a format's functions are, which endings mean it, and what it is for."""

    writer: str
    """``module:function``, the module being one of this package; likewise ``reader``."""
    endings: tuple[str, ...]
    what: str
    reader: str = ""
    files: int = 1
    """How many files it writes; more than one cannot go to a pipe."""


_PAIRS = "one translation a word, without a header; ending .csv: commas"
_SHEET = "comma-separated table, safe to open in a spreadsheet"
_PARQUET = "Parquet, with forms, seed marks and provenance"
_JSONL = "JSON lines, with forms and seed marks"
_XLSX = "Excel workbook, with columns for an editor"
_MOSES = "lexical table of Moses: target, source, probability"
_BICLEANER = "Bicleaner's probabilistic dictionary; name it .gz"
_FAST_ALIGN = "fast_align's table: source, target, log p"
_STARDICT = "StarDict, for GoldenDict, KOReader and others"
_EPUB = "EPUB or Kindle, by the program pyglossary"
FORMATS: dict[str, Format] = {
    "tsv": Format("tables:write_tsv", (".tsv", ".txt"), "tab-separated table", "tables:read_table"),
    "csv": Format("tables:write_csv", (".csv",), _SHEET, "tables:read_table"),
    "jsonl": Format("tables:write_jsonl", (".jsonl",), _JSONL, "tables:read_jsonl"),
    "parquet": Format("tables:write_parquet", (".parquet",), _PARQUET, "tables:read_parquet"),
    "deepl": Format("glossary:write_deepl", (), f"DeepL glossary: {_PAIRS}"),
    "google": Format("glossary:write_google", (), f"Google glossary: {_PAIRS}"),
    "microsoft": Format("glossary:write_microsoft", (), f"Microsoft Translator glossary: {_PAIRS}"),
    "moses": Format("glossary:write_moses", (), _MOSES),
    "bicleaner": Format("glossary:write_moses", (), _BICLEANER),
    "fast_align": Format("glossary:write_fast_align", (), _FAST_ALIGN),
    "hunalign": Format("glossary:write_hunalign", (".dic",), "hunalign dictionary"),
    "tmx": Format("markup:write_tmx", (".tmx",), "TMX 1.4b, for translation memories"),
    "tbx": Format("markup:write_tbx", (".tbx",), "TBX-Basic, for terminologists"),
    "tei": Format("markup:write_tei", (".tei", ".xml"), "TEI Lex-0, for lexicographers"),
    "ontolex": Format("markup:write_ontolex", (".ttl",), "OntoLex-Lemon as Turtle"),
    "lift": Format("markup:write_lift", (".lift",), "LIFT, for FieldWorks (FLEx)"),
    "apertium": Format("markup:write_apertium", (".dix",), "Apertium bilingual dictionary"),
    "xlsx": Format("tables:write_xlsx", (".xlsx",), _XLSX, "tables:read_xlsx"),
    "stardict": Format("apps:write_stardict", (".ifo",), _STARDICT, files=4),
    "dictd": Format("apps:write_dictd", (".index",), "dictd, for the DICT protocol", files=2),
    "anki": Format("apps:write_anki", (".apkg",), "Anki deck"),
    "yomitan": Format("apps:write_yomitan", (".zip",), "Yomitan, for reading in the browser"),
    "epub": Format("apps:write_ebook", (".epub", ".mobi"), _EPUB),
}
REVIEWED = ("tsv", "csv", "jsonl", "parquet", "xlsx")
# Others hold no rejected entries. TMX and LIFT could hold a verdict, but no program looks at it.
SHOWS_REJECTED = ("tbx",)


def check_output(path: Path, given: str | None = None) -> str:
    """The name of the given format, or of that of the file's ending.

    Unknown formats raise, and so does a path that cannot take the format.
    """
    name = _named(path, given)
    if path.is_dir():
        raise FileError(path, "is a folder; expected the name of a dictionary file")
    several = FORMATS[name].files > 1
    if several and (is_special(path) or path.suffix.lower() in COMPRESSED):
        raise InputError(f"{name} is {FORMATS[name].files} files: give the name of the first")
    return name


def _named(path: Path, given: str | None) -> str:
    ending = plain(path).suffix.lower()
    by_ending = {known: name for name, one in FORMATS.items() for known in one.endings}
    if given is None and ending and ending not in by_ending and not is_special(path):
        raise InputError(
            f"{path} ends in {ending}, which no dictionary format has; there are "
            f"{', '.join(by_ending)} (--format takes any name with any of {', '.join(FORMATS)})"
        )
    name = (given or by_ending.get(ending, "tsv")).lower()
    if name not in FORMATS:
        raise InputError(f"there is no format {name!r}; there are {', '.join(FORMATS)}")
    return name


def names_languages(path: Path, given: str | None = None) -> bool:
    """Whether files of that format say which languages they are of."""
    return FORMATS[_named(path, given)].writer.startswith(("markup:", "apps:write_yomitan"))


def plain(path: Path) -> Path:
    """The path without the ending of its compression."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def writer(name: str) -> Callable[..., None]:
    return resolve_name(f"{__name__}.{FORMATS[name].writer}")


def reader(path: Path, given: str | None = None) -> Callable[[Path], Any]:
    """The function that reads such a file; formats without one raise ``InputError``."""
    name = _named(path, given)
    if not FORMATS[name].reader:
        readable = ", ".join(name for name, one in FORMATS.items() if one.reader)
        raise InputError(f"{path} is {name}, which is not read back; there are {readable}")
    return resolve_name(f"{__name__}.{FORMATS[name].reader}")
