"""Formats that dictionaries are written in: a registry, and one file a family of formats.

A writer is a function of a path and a ``Dictionary``; it opens its files with
``blicer.files.open_output``. ``REVIEWED`` formats take ``review=True`` too: columns for an editor.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from blicer.errors import FileError, InputError
from blicer.files import COMPRESSED, is_special


class Format(NamedTuple):
    """Where a format's functions are, which endings mean it, and what it is for."""

    writer: str
    """``module:function``; likewise ``reader``."""
    endings: tuple[str, ...]
    what: str
    reader: str = ""
    files: int = 1
    """How many files it writes; more than one cannot go to a pipe."""


_HERE = "blicer.formats"
_PAIRS = "one translation a word, without a header; ending .csv: commas"
FORMATS: dict[str, Format] = {
    "tsv": Format(
        f"{_HERE}.tables:write_tsv",
        (".tsv", ".txt"),
        "tab-separated table",
        f"{_HERE}.tables:read_table",
    ),
    "csv": Format(
        f"{_HERE}.tables:write_csv",
        (".csv",),
        "comma-separated table, safe to open in a spreadsheet",
        f"{_HERE}.tables:read_table",
    ),
    "jsonl": Format(
        f"{_HERE}.tables:write_jsonl",
        (".jsonl",),
        "JSON lines, with forms and seed marks",
        f"{_HERE}.tables:read_jsonl",
    ),
    "parquet": Format(
        f"{_HERE}.tables:write_parquet",
        (".parquet",),
        "Parquet, with forms, seed marks and provenance",
        f"{_HERE}.tables:read_parquet",
    ),
    "deepl": Format(f"{_HERE}.glossary:write_deepl", (), f"DeepL glossary: {_PAIRS}"),
    "google": Format(f"{_HERE}.glossary:write_google", (), f"Google glossary: {_PAIRS}"),
    "microsoft": Format(
        f"{_HERE}.glossary:write_microsoft", (), f"Microsoft Translator glossary: {_PAIRS}"
    ),
    "moses": Format(
        f"{_HERE}.glossary:write_moses", (), "lexical table of Moses: target, source, probability"
    ),
    "bicleaner": Format(
        f"{_HERE}.glossary:write_moses", (), "Bicleaner's probabilistic dictionary; name it .gz"
    ),
    "fast_align": Format(
        f"{_HERE}.glossary:write_fast_align", (), "fast_align's table: source, target, log p"
    ),
    "hunalign": Format(f"{_HERE}.glossary:write_hunalign", (".dic",), "hunalign dictionary"),
    "tmx": Format(f"{_HERE}.tmx:write", (".tmx",), "TMX 1.4b, for translation memories"),
    "tbx": Format(f"{_HERE}.tbx:write", (".tbx",), "TBX-Basic, for terminologists"),
    "tei": Format(f"{_HERE}.tei:write", (".tei", ".xml"), "TEI Lex-0, for lexicographers"),
    "ontolex": Format(f"{_HERE}.ontolex:write", (".ttl",), "OntoLex-Lemon as Turtle"),
    "lift": Format(f"{_HERE}.lift:write", (".lift",), "LIFT, for FieldWorks (FLEx)"),
    "apertium": Format(f"{_HERE}.apertium:write", (".dix",), "Apertium bilingual dictionary"),
    "xlsx": Format(
        f"{_HERE}.xlsx:write",
        (".xlsx",),
        "Excel workbook, with columns for an editor",
        f"{_HERE}.xlsx:read",
    ),
    "stardict": Format(
        f"{_HERE}.stardict:write",
        (".ifo",),
        "StarDict, for GoldenDict, KOReader and others",
        files=4,
    ),
    "dictd": Format(f"{_HERE}.dictd:write", (".index",), "dictd, for the DICT protocol", files=2),
    "anki": Format(f"{_HERE}.anki:write", (".apkg",), "Anki deck"),
    "yomitan": Format(f"{_HERE}.yomitan:write", (".zip",), "Yomitan, for reading in the browser"),
    "epub": Format(
        f"{_HERE}.ebook:write", (".epub", ".mobi"), "EPUB or Kindle, by the program pyglossary"
    ),
}
REVIEWED = ("tsv", "csv", "jsonl", "parquet", "xlsx")


def check_output(path: Path, given: str | None = None) -> str:
    """The name of the format asked for, or of the one that the file's ending says.

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


def plain(path: Path) -> Path:
    """The path without the ending of its compression."""
    return path.with_suffix("") if path.suffix.lower() in COMPRESSED else path


def writer(name: str) -> Callable[..., None]:
    found: Callable[..., None] = _function(FORMATS[name].writer)
    return found


def reader(path: Path, given: str | None = None) -> Callable[[Path], Any]:
    """The function that reads such a file; formats without one raise ``InputError``."""
    name = _named(path, given)
    if not FORMATS[name].reader:
        readable = ", ".join(name for name, one in FORMATS.items() if one.reader)
        raise InputError(f"{path} is {name}, which is not read back; there are {readable}")
    found: Callable[[Path], Any] = _function(FORMATS[name].reader)
    return found


def _function(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
