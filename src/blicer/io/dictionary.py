"""Dictionary files: bytes to text, text to columns, columns to word pairs, and back to lines.

Every line is a pair, or is counted in the report: a comment, a header, a line that could not be
read (with the reason).
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from blicer.errors import FileError, InputError
from blicer.io.streams import Stream
from blicer.io.text import vector_columns
from blicer.io.vectors import LoadReport, check_unicode, is_number

_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "vertical bar", " ": "space"}
_JSON = "JSON"  # stands where a delimiter would, for one object a line
_SOURCE_TITLES = "source src from word words lemma term headword entry query word1 l1"
_TARGET_TITLES = "target tgt trg to translation translations gloss word2 l2"
_LANGUAGE_NAMES = """
    afrikaans albanian amharic arabic armenian basque bengali bulgarian catalan chinese croatian
    czech danish dutch english estonian finnish french georgian german greek gujarati hebrew
    hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian
    macedonian malay norwegian persian polish portuguese quechua romanian russian serbian slovak
    slovene slovenian spanish swahili swedish tamil thai turkish ukrainian urdu vietnamese welsh
    deutsch español français hrvatski italiano português suomi türkçe русский
"""
Pair = tuple[str, str]
Line = tuple[int, str]  # its number, from 1, and its text


def read_dictionary(
    path: str | Path,
    *,
    lowercase: bool = True,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    columns: tuple[int, int] = (1, 2),
    split_targets: str | None = None,
) -> tuple[list[Pair], LoadReport]:
    """The pairs of a file, as often as listed, and the report. Arguments as ``Lexicon.load``."""
    path = Path(path)
    if min(columns) < 1 or columns[0] == columns[1]:
        raise InputError(f"columns={columns!r}: expected two different columns, counted from 1")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise InputError(f"delimiter={delimiter!r}: expected one character")
    if split_targets == "":
        raise InputError("split_targets is empty; give the character between two translations")
    report = LoadReport()
    content = list(_content_lines(_read_text(path, encoding), report))
    if not content:
        raise FileError(path, "has no word pairs (it is empty, or holds only comments)")
    if delimiter is None:
        delimiter = _detect_delimiter([text for _, text in content], path.suffix.lower())
    report.format = _NAMES.get(delimiter, delimiter)

    # In a tab-separated file quotes are part of a word (MUSE has such words), unless every cell of
    # the file is quoted.
    cells = (cell for _, text in content for cell in text.split("\t"))
    quoted = all(len(cell) >= 2 and cell[0] == cell[-1] == '"' for cell in cells)
    rows: dict[Line, list[str]] = {}
    unreadable: dict[Line, str] = {}
    for line in content:
        try:
            rows[line] = _split(line[1], delimiter, quoted=quoted)
        except InputError as error:
            unreadable[line] = str(error)
    if rows and (header or (header is None and _first_is_header([*rows.values()], columns))):
        number, text = next(iter(rows))
        report.count("header", f"line {number} ({_short(text)})")
        del rows[number, text]
    pairs: Counter[Pair] = Counter()
    for line, row in rows.items():
        try:
            source, target = _source_and_target(row, columns, delimiter, report)
        except InputError as error:
            unreadable[line] = str(error)
            continue
        parts = [part.strip(" ") for part in target.split(split_targets)] if split_targets else []
        for one in filter(None, parts) if any(parts) else [target]:
            pair = (source.lower(), one.lower()) if lowercase else (source, one)
            if pair != (source, one):
                report.count("lowercased")
            if _looks_like_list(one):
                report.count("separator", _short(one))
            if pair in pairs:
                report.count("repeated")
            pairs[pair] += 1
    for (number, text), reason in sorted(unreadable.items()):
        report.count("unreadable", f"line {number} ({reason}: {_short(text)})")
    if not pairs and unreadable:
        commonest = Counter(unreadable.values()).most_common(1)[0][0]
        number, text = min(line for line, reason in unreadable.items() if reason == commonest)
        problem = f"none of {len(unreadable)} lines is a word pair: {commonest} ({_short(text)})"
        raise FileError(path, problem, line=number)
    if not pairs:
        raise FileError(path, "has no word pairs after its header")
    return list(pairs.elements()), report


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _content_lines(text: str, report: LoadReport) -> Iterator[Line]:
    """Lines other than blank ones and comments.

    Not ``str.splitlines``: it would also break at U+0085 and U+2028, which occur inside words.
    """
    lines = text.split("\n" if "\n" in text else "\r")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r")
        if not line.strip(" \t"):
            report.count("blank")
        elif line.startswith("#"):
            report.count("comment")
        else:
            yield number, line


def _detect_delimiter(lines: list[str], suffix: str) -> str:
    """The delimiter by which most lines have two columns; tabs first, spaces when nothing else."""
    lines = lines[:5000]
    half = len(lines) / 2
    if sum(line.startswith("{") and line.endswith("}") for line in lines) > half:
        return _JSON  # as ``blicer induce`` writes it
    if sum("\t" in line for line in lines) >= half:
        return "\t"
    # 'cat chat,chatte' on every line is a list of targets after a space, not a comma-separated
    # file; a file named .csv is believed.
    named = suffix == ".csv"
    two_words = re.compile(r'[^\s"]*[^\s",;|]\s+[^\s"]+')
    if not named and all(two_words.fullmatch(line.strip()) for line in lines):
        return " "
    regular = {" ": 0}
    for delimiter in (",", ";", "|"):
        having = [line for line in lines if delimiter in line]
        # Further columns are believed under titles, or in a file named .csv.
        titles = [cell.strip(' "') for cell in lines[0].split(delimiter)[:2]]
        most = lines[0].count(delimiter) if named or looks_like_header(*titles) else 2
        if len(having) >= half:
            fits = (line.count(delimiter) <= max(2, most) or '"' in line for line in having)
            regular[delimiter] = sum(fits)
    return max(regular, key=lambda delimiter: regular[delimiter])


def _split(line: str, delimiter: str, *, quoted: bool) -> list[str]:
    """The cells of one line, without the spaces around them and without empty cells at the end."""
    if delimiter == _JSON:
        return _json_cells(line)
    if delimiter == " ":
        cells = re.split("[ \t]+", line.strip(" \t"))
    elif delimiter == "\t" and not quoted:
        cells = line.split("\t")
    else:
        reader = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            cells = next(reader)
        except csv.Error as error:
            end = "unexpected end of data"
            reason = str(error).replace(end, "a quote is opened and not closed")
            raise InputError(reason) from error
    cells = [cell.strip(" ") for cell in cells]
    while len(cells) > 2 and not cells[-1]:
        cells.pop()
    if cells and re.match(r"\\+#", cells[0]):  # see ``escape_comment``
        cells[0] = cells[0][1:]
    return cells


def _json_cells(line: str) -> list[str]:
    """Source, target and what else an object has, of a line such as {"source": …, "target": …}."""
    try:
        entry = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError("it is not a JSON object") from error
    words = [entry.pop(side, None) for side in ("source", "target")] if type(entry) is dict else []
    if not words or not all(isinstance(word, str) for word in words):
        raise InputError("expected a JSON object with the words 'source' and 'target'")
    for word in words:
        check_unicode(word)
    others = ("" if value is None else str(value) for value in entry.values())
    return [*(word.strip() for word in words), *others]


def looks_like_header(source: str = "", target: str = "") -> bool:
    """Column titles, or the names of two different languages (which never are translations)."""
    source, target = source.lower(), target.lower()
    titles = source in _SOURCE_TITLES.split() and target in _TARGET_TITLES.split()
    names = _LANGUAGE_NAMES.split()
    return titles or (source in names and target in names and source != target)


def _first_is_header(rows: list[list[str]], columns: tuple[int, int]) -> bool:
    first, *rest = rows
    if len(first) < max(columns):
        return False
    if looks_like_header(first[columns[0] - 1], first[columns[1] - 1]):
        return True
    # A title over a column of scores.
    scores = len(rest) > 1 and all(len(cells) > 2 and is_number(cells[2]) for cells in rest)
    return scores and len(first) > 2 and not is_number(first[2])


def _source_and_target(
    cells: list[str], columns: tuple[int, int], delimiter: str, report: LoadReport
) -> Pair:
    if len(cells) < max(columns):
        found = "one column" if len(cells) == 1 else f"{len(cells)} columns"
        name = _NAMES.get(delimiter, repr(delimiter))
        raise InputError(f"{found}, expected {max(columns)} separated by a {name}")
    source, target = (cells[column - 1] for column in columns)
    if not source or not target:
        raise InputError(f"the {'target' if source else 'source'} is empty")
    extra = [cell for at, cell in enumerate(cells, start=1) if at not in columns and cell]
    words = [cell for cell in extra if not is_number(cell)]
    if delimiter == " " and columns == (1, 2) and (words or len(cells) > 3):
        raise InputError(f"{len(cells)} words between spaces; put a tab after the source")
    if extra:
        report.count("extra_column" if words else "score", _short(words[0]) if words else "")
    return source, target


def _looks_like_list(target: str) -> bool:
    return any(
        separator in target.strip(separator) and not is_number(target.replace(separator, ""))
        for separator in ";|/,"
    )


# Bytes to text


def _read_text(path: Path, encoding: str | None) -> str:
    """The text without its byte-order mark; raises ``FileError`` for what is no dictionary."""
    with Stream(path) as stream:
        if stream.compression == "zip":
            raise FileError(path, "is a zip archive or an Excel workbook; save it as tab-separated")
        data = stream.read_all()
    if dimension := vector_columns(data[: 1 << 16], fewest=12):
        raise FileError(path, f"looks like word vectors ({dimension} numbers a line)")
    if encoding is None:
        _refuse_utf16(path, data)
    try:
        return data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except LookupError as error:
        raise InputError(f"encoding {encoding!r} is not known") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"byte 0x{data[error.start]:02X} is not {encoding or 'UTF-8'}"
        if encoding is None:
            problem += _likely_encoding(data, error)
        raise FileError(path, problem, line=line) from error


def _refuse_utf16(path: Path, data: bytes) -> None:
    marks = {codecs.BOM_UTF32: "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    found = next((name for mark, name in marks.items() if data.startswith(mark)), "")
    even, odd = data[::2].count(0), data[1::2].count(0)
    if not found and 8 * (even + odd) > len(data):
        if max(even, odd) < 4 * min(even, odd):
            raise FileError(path, "is a binary file (many zero bytes), expected a dictionary")
        found = "utf-16-le" if odd > even else "utf-16-be"
    if found:
        raise FileError(path, f"is {found.upper()}; load it with encoding={found!r}", line=1)


def _likely_encoding(data: bytes, error: UnicodeDecodeError) -> str:
    """A guess: Western text has its high bytes one at a time among ASCII letters; in Cyrillic or
    Greek they come in whole words."""
    if error.end == len(data) and "unexpected end" in error.reason:
        return "; it ends in the middle of a UTF-8 character: is it cut off?"
    guess = "cp1252" if re.search(rb"[\x80-\x9f]", data) else "latin-1"
    if len(re.findall(rb"[\x80-\xff]", data)) >= 3 * len(re.findall(rb"[\x80-\xff]+", data)):
        guess = "cp1251"
    start = data.rfind(b"\n", 0, error.start) + 1
    line = data[start:].partition(b"\n")[0].decode(guess, errors="replace")
    return f"; load it with encoding={guess!r} if this line is {_short(line.strip())}"


# Writing


def tsv_row(cells: Iterable[object]) -> str:
    """One line of a tab-separated file; tabs and line ends inside a cell become spaces."""
    texts = [re.sub(r"[\t\r\n]", " ", str(cell)) for cell in cells]
    return escape_comment("\t".join(texts)) + "\n"


def escape_comment(text: str) -> str:
    """A line or first word that would be read back as a comment, behind a backslash."""
    return f"\\{text}" if text.lstrip("\\")[:1] == "#" else text


def check_writable_word(word: str) -> None:
    """Raises ``InputError`` for a word that a dictionary file would not give back."""
    check_unicode(word)
    if word != word.strip(" ") or any(mark in word for mark in "\t\n\r\0"):
        raise InputError(
            f"{word!r} cannot be written to a dictionary file: tabs, line ends, zero bytes and "
            "spaces around a word would not read back"
        )
