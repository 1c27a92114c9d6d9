"""Dictionary files: bytes to text, text to columns, columns to word pairs, and back to lines.

Every line is a pair, or is counted in the report: a comment, a header, a line that could not be
read (with the reason).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

from blicer.errors import FileError, InputError
from blicer.io.streams import Stream
from blicer.io.text import vector_columns
from blicer.io.vectors import LoadReport, check_unicode, is_number

_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "vertical bar", " ": "space"}
_SOURCE_TITLES = "source src from word words lemma term headword entry query word1 l1"
_TARGET_TITLES = "target tgt trg to translation translations gloss word2 l2"
_SEVERAL_WORDS = re.compile(r"[^\d\s]\s*[;|/,]\s*\S")  # but not "1,000" or "1/2"
_FORMULA = "=+-@\t\r"  # first characters with which a spreadsheet may take a cell for a formula
_SAMPLE_LINES = 5000  # that tell the delimiter
MOST_LINES = 20_000_000
Pair = tuple[str, str]


def read_dictionary(
    path: str | Path, *, lowercase: bool = True, encoding: str | None = None
) -> tuple[list[Pair], LoadReport]:
    """The pairs of a file, as often as listed, and the report. Arguments as ``Lexicon.load``."""
    path = Path(path)
    report = LoadReport()
    text = read_text(path, encoding)
    # Lines are read again where they are needed: a list of them takes ten times the file.
    start = list(islice(content_lines(text), _SAMPLE_LINES))
    if not start:
        raise FileError(path, "has no word pairs (it is empty, or holds only comments)")
    if start[0][1].startswith('{"'):
        raise FileError(path, "is JSON; expected a pair a line, with a tab between the words")
    delimiter = _detect_delimiter([line for _, line in start], path.suffix.lower())
    report.format = _NAMES[delimiter]

    # In a tab-separated file quotes are part of a word (MUSE has such words), unless every cell is
    # quoted.
    cells = (cell for _, line in content_lines(text) for cell in line.split("\t"))
    quoted = all(len(cell) >= 2 and cell[0] == cell[-1] == '"' for cell in cells)

    def row(number: int, line: str) -> list[str]:
        try:
            return _split(line, delimiter, quoted=quoted)
        except InputError as error:
            raise FileError(path, str(error), line=number) from error

    lines = content_lines(text, report)
    if _first_is_header(row(number, line) for number, line in content_lines(text)):
        number, line = next(lines)
        report.count("header", f"line {number} ({_short(line)})")
    pairs: Counter[Pair] = Counter()
    for number, line in lines:
        found = row(number, line)
        try:
            source, target = _source_and_target(found, delimiter)
        except InputError as error:
            report.count("unreadable", f"line {number} ({error}: {_short(line)})")
            continue
        pair = (source.lower(), target.lower()) if lowercase else (source, target)
        if any(found[2:]):
            report.count("extra_column", _short(next(filter(None, found[2:]))))
        if _SEVERAL_WORDS.search(target):
            report.count("separator", _short(target))
        if pair in pairs:
            report.count("repeated")
        pairs[pair] += 1
    if not pairs and report["unreadable"]:
        example = report.examples["unreadable"][0]
        raise FileError(path, f"none of {report['unreadable']} lines is a word pair: {example}")
    if not pairs:
        raise FileError(path, "has no word pairs after its header")
    return list(pairs.elements()), report


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _line_end(text: str) -> str:
    return "\n" if "\n" in text else "\r"


def count_lines(text: str) -> int:
    return text.count(_line_end(text)) + 1


def text_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of every line, without its end, one at a time.

    ``str.splitlines`` would also split at U+0085 and U+2028, which occur inside words.
    """
    end = _line_end(text)
    start = number = 0
    while start < len(text):
        stop = text.find(end, start)
        stop = len(text) if stop < 0 else stop
        number += 1
        yield number, text[start:stop].removesuffix("\r")
        start = stop + 1


def content_lines(text: str, report: LoadReport | None = None) -> Iterator[tuple[int, str]]:
    """Number and text of every line that is neither blank nor a comment."""
    report = LoadReport() if report is None else report
    for number, line in text_lines(text):
        if not line.strip(" \t"):
            report.count("blank")
        elif line.startswith("#"):
            report.count("comment")
        else:
            yield number, line


def _detect_delimiter(lines: list[str], suffix: str) -> str:
    """A tab if half of the lines have one, else the delimiter of most lines, else a space."""
    half = len(lines) / 2
    if sum("\t" in line for line in lines) >= half:
        return "\t"
    # 'cat chat,chatte' on every line is a list of targets after a space, not a comma-separated
    # file, unless the file is named .csv.
    two_words = re.compile(r'[^\s"]*[^\s",;|]\s+[^\s"]+')
    if suffix != ".csv" and all(two_words.fullmatch(line.strip()) for line in lines):
        return " "
    having = {delimiter: sum(delimiter in line for line in lines) for delimiter in ",;|"}
    # 'cat;chat, chaton, matou': the rarer delimiter separates the columns.
    best = max(having, key=lambda one: (having[one], -sum(line.count(one) for line in lines)))
    return best if having[best] >= half else " "


def _split(line: str, delimiter: str, *, quoted: bool) -> list[str]:
    """The stripped cells of a line, without empty ones at the end; none if a quote is unclosed."""
    if delimiter == " ":
        cells = re.split("[ \t]+", line.strip(" \t"))
    elif delimiter == "\t" and not quoted:
        cells = line.split("\t")
    else:
        reader = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            cells = next(reader)
        except csv.Error as error:
            if len(line) > csv.field_size_limit():
                raise InputError(f"a line of {len(line)} characters ({error})") from error
            return []
    cells = [cell.strip(" ") for cell in cells]
    while len(cells) > 2 and not cells[-1]:
        cells.pop()
    if cells:
        cells[0] = unescape_comment(cells[0])
    return list(map(unescape_formula, cells)) if delimiter == "," else cells


def looks_like_header(source: str = "", target: str = "") -> bool:
    """Whether these are column titles, or the names of two different languages."""
    source, target = source.lower(), target.lower()
    titles = source in _SOURCE_TITLES.split() and target in _TARGET_TITLES.split()
    return titles or (source != target and {source, target} <= _language_names())


@lru_cache(maxsize=1)
def _language_names() -> set[str]:
    from babel.core import Locale

    return {name.lower() for name in Locale("en").languages.values()}


def _first_is_header(rows: Iterator[list[str]]) -> bool:
    first, second = next(rows), list(islice(rows, 2))
    if looks_like_header(*first[:2]):
        return True
    # A third column of scores below a title.
    titled = len(first) > 2 and not is_number(first[2]) and len(second) > 1
    return titled and all(len(one) > 2 and is_number(one[2]) for one in chain(second, rows))


def _source_and_target(cells: list[str], delimiter: str) -> Pair:
    if not cells:
        raise InputError("a quote is opened and not closed")
    if len(cells) < 2:
        wanted = "tab" if delimiter == " " else _NAMES[delimiter]
        raise InputError(f"one column, expected 2 separated by a {wanted}")
    source, target, *extra = cells
    if not source or not target:
        raise InputError(f"the {'target' if source else 'source'} is empty")
    # A score may follow the two words.
    if delimiter == " " and (len(extra) > 1 or not all(map(is_number, extra))):
        raise InputError(f"{len(cells)} words between spaces; put a tab after the source")
    return source, target


# Files that users pass by mistake, by their first bytes.
_OTHERS = {
    rb"\x80[\x02-\x05]": "a Python pickle, which is never loaded: it could run any program",
    rb"\x89PNG\r\n\x1a\n": "a PNG image",
    rb"\xff\xd8\xff": "a JPEG image",
    rb"%PDF-": "a PDF document",
    rb"SQLite format 3\x00": "an SQLite database",
    rb"\x7fELF": "a program",
}


def other_kind(start: bytes) -> str | None:
    """What a file with these first bytes is, if known to be neither vectors nor a dictionary."""
    return next((what for magic, what in _OTHERS.items() if re.match(magic, start)), None)


def read_text(path: Path, encoding: str | None) -> str:
    """The text without a byte-order mark; raises ``FileError`` if it cannot be a dictionary."""
    with Stream(path) as stream:
        if stream.compression == "zip":
            raise FileError(path, "is a zip archive or an Excel workbook; save it as tab-separated")
        data = stream.read_all()
    other = "a NumPy array" if data.startswith(b"\x93NUMPY") else other_kind(data[:16])
    if other:
        raise FileError(path, f"is {other}, not a dictionary")
    if dimension := vector_columns(data[: 1 << 16], fewest=12):
        raise FileError(path, f"looks like word vectors ({dimension} numbers a line)")
    try:
        text = data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except LookupError as error:
        raise InputError(f"encoding {encoding!r} is not known") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"byte 0x{data[error.start]:02X} is not {encoding or 'UTF-8'}: name its encoding"
        rather = "(--encoding latin-1, encoding='latin-1'), or convert it"
        raise FileError(path, f"{problem} {rather}", line=line) from error
    if (lines := count_lines(text)) > MOST_LINES:
        raise FileError(
            path, f"has {lines:,} lines; expected a dictionary of {MOST_LINES:,} at most"
        )
    if "\0" in text:
        raise FileError(path, "holds zero bytes: it is UTF-16, or no text file")
    return text


def tsv_row(cells: Iterable[object]) -> str:
    """One line of a tab-separated file; tabs and line ends inside a cell become spaces."""
    texts = [re.sub(r"[\t\r\n]", " ", str(cell)) for cell in cells]
    return escape_comment("\t".join(texts)) + "\n"


def escape_comment(text: str) -> str:
    """Put a backslash before a line or word that would be read back as a comment."""
    return f"\\{text}" if text.lstrip("\\")[:1] == "#" else text


def unescape_comment(text: str) -> str:
    """Inverse of ``escape_comment``."""
    return text[1:] if re.match(r"\\+#", text) else text


def escape_formula(text: str) -> str:
    """Put an apostrophe, which makes it text, before a cell that a spreadsheet would compute."""
    return f"'{text}" if text.lstrip("'")[:1] in tuple(_FORMULA) else text


def unescape_formula(text: str) -> str:
    """Inverse of ``escape_formula``."""
    return text[1:] if re.match(f"'+[{re.escape(_FORMULA)}]", text) else text


def check_writable_word(word: str) -> None:
    """Raise ``InputError`` for a word that would not read back from a dictionary file."""
    check_unicode(word)
    if word != word.strip(" ") or any(mark in word for mark in "\t\n\r\0"):
        raise InputError(
            f"{word!r} cannot be written to a dictionary file: tabs, line ends, zero bytes and "
            "spaces around a word would not read back"
        )
