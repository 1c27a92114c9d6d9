"""Dictionary files: bytes to text, text to columns, columns to word pairs, and back to lines.

Every line is a pair, or is counted (a comment, a header, a duplicate), or is listed with its
number and the reason why it could not be read.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from blicer.errors import FileError, InputError
from blicer.io.streams import Stream
from blicer.io.text import vector_columns
from blicer.io.vectors import check_unicode, is_number

DELIMITER_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "vertical bar", " ": "space"}
_JSON = "JSON"  # stands where a delimiter would, for one object a line
_SNIFFED = 1 << 16
_FEWEST_DIMENSIONS = 12
_SHOWN = 10  # unreadable lines that a report spells out
_TARGET_SEPARATORS = (";", "|", "/", ",")
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


@dataclass
class LexiconReport:
    """What a dictionary file held besides its pairs."""

    delimiter: str | None = None
    total_lines: int = 0
    pairs: int = 0
    duplicates: int = 0
    lowercased: int = 0
    comments: int = 0
    blank: int = 0
    header: tuple[int, str] | None = None
    scores: int = 0
    extra_columns: int = 0
    extra_example: str = ""
    separators_in_targets: Counter[str] = field(default_factory=Counter)
    unreadable: list[tuple[int, str, str]] = field(default_factory=list)
    """Line number, reason, and the line itself, of each line that gave no pair."""

    def lines(self) -> list[str]:
        """One sentence for each thing that a user may want to know; none for a clean file."""
        said = [
            f"line {number} could not be read: {reason} ({_short(text)})"
            for number, reason, text in self.unreadable[:_SHOWN]
        ]
        if len(self.unreadable) > _SHOWN:
            said.append(f"{len(self.unreadable) - _SHOWN} further lines could not be read")
        if self.header is not None:
            number, text = self.header
            said.append(f"line {number} was taken for a header ({_short(text)})")
        extra = f"such as {self.extra_example!r}"
        for count, noun, text in (
            (
                self.comments,
                "line",
                "beginning with # taken for comments (write \\# for a word that begins with it)",
            ),
            (
                self.duplicates,
                "repeated pair",
                "kept once (the fit of a map counts them as often as listed)",
            ),
            (self.lowercased, "pair", "folded to lower case"),
            (self.scores, "line", "with a score after the pair; not used"),
            (self.extra_columns, "line", f"with further columns, which were not read ({extra})"),
        ):
            if count:
                said.append(f"{_count(count, noun)} {text}")
        for separator, count in self.separators_in_targets.items():
            said.append(
                f"{_count(count, 'target')} with {separator!r} inside, kept whole; if it separates "
                f"translations, load with split_targets={separator!r}"
            )
        return said


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def read_dictionary(
    path: str | Path,
    *,
    lowercase: bool = True,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    columns: tuple[int, int] = (1, 2),
    split_targets: str | None = None,
) -> tuple[list[tuple[str, str]], LexiconReport]:
    """The pairs of a file, as often as they are listed, and the report.

    The arguments are those of ``Lexicon.load``.
    """
    path = Path(path)
    if min(columns) < 1 or columns[0] == columns[1]:
        raise InputError(f"columns={columns!r}: expected two different columns, counted from 1")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise InputError(f"delimiter={delimiter!r}: expected one character")
    if split_targets == "":
        raise InputError("split_targets is empty; give the character between two translations")
    report = LexiconReport()
    content = list(_content_lines(_read_text(path, encoding), report))
    if not content:
        raise FileError(path, "has no word pairs (it is empty, or holds only comments)")
    report.delimiter = delimiter or _detect_delimiter([line for _, line in content], path.suffix)
    records = _records(content, report)
    if records and (header or (header is None and _first_is_header(records, columns))):
        number, line, _ = records.pop(0)
        report.header = (number, line)

    pairs: Counter[tuple[str, str]] = Counter()
    for number, line, cells in records:
        if problem := _problem(cells, columns, report.delimiter):
            report.unreadable.append((number, problem, line))
            continue
        _count_extra(cells, columns, report)
        source, target = cells[columns[0] - 1], cells[columns[1] - 1]
        parts = [part.strip(" ") for part in target.split(split_targets)] if split_targets else []
        for one in [part for part in parts if part] or [target]:
            pair = (source.lower(), one.lower()) if lowercase else (source, one)
            report.lowercased += pair != (source, one)
            _count_separators(pair[1], report)
            pairs[pair] += 1
    report.unreadable.sort()
    report.pairs, report.duplicates = len(pairs), pairs.total() - len(pairs)
    if not pairs:
        raise _nothing_readable(path, report)
    return list(pairs.elements()), report


def _content_lines(text: str, report: LexiconReport) -> Iterator[tuple[int, str]]:
    """Numbered lines other than blank ones and comments.

    Not ``str.splitlines``: it would also break at U+0085 and U+2028, which occur inside words.
    """
    lines = text.split("\n" if "\n" in text else "\r")
    if lines[-1] == "":
        lines.pop()
    report.total_lines = len(lines)
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r")
        if not line.strip(" \t"):
            report.blank += 1
        elif line.startswith("#"):
            report.comments += 1
        else:
            yield number, line


Record = tuple[int, str, list[str]]  # line number, line, cells


def _records(content: list[tuple[int, str]], report: LexiconReport) -> list[Record]:
    # In a tab-separated file quotes are part of a word (MUSE has such words), unless all cells
    # of the file are quoted.
    cells = (cell for _, line in content for cell in line.split("\t"))
    quoted = all(len(cell) >= 2 and cell[0] == cell[-1] == '"' for cell in cells)
    records: list[Record] = []
    for number, line in content:
        try:
            records.append((number, line, _split(line, report.delimiter or "\t", quoted=quoted)))
        except csv.Error as error:
            reason = "a quote is opened and not closed" if "end of data" in str(error) else error
            report.unreadable.append((number, str(reason), line))
        except ValueError as error:
            report.unreadable.append((number, str(error), line))
    return records


def _detect_delimiter(lines: list[str], suffix: str) -> str:
    """The delimiter by which most lines have two columns; tabs first, spaces when nothing else."""
    lines = lines[:5000]
    half = len(lines) / 2
    if sum(line.startswith("{") and line.endswith("}") for line in lines) > half:
        return _JSON  # as ``blicer induce`` writes it
    if sum("\t" in line for line in lines) >= half:
        return "\t"
    named_csv = suffix.lower() == ".csv"
    # 'cat chat,chatte' on every line is a list of targets after a space, not a comma-separated
    # file; a file named .csv is believed.
    two_words = all(
        len(words := line.split()) == 2 and not words[0].endswith((",", ";", "|")) for line in lines
    )
    if two_words and not named_csv and not any('"' in line for line in lines):
        return " "
    best, best_count = " ", 0
    for delimiter in (",", ";", "|"):
        having = [line for line in lines if delimiter in line]
        # Further columns are believed under titles, or in a file named .csv.
        titles = _split(lines[0], delimiter) if '"' not in lines[0] else []
        columns = named_csv or (len(titles) > 1 and looks_like_header(*titles[:2]))
        most = max(2, lines[0].count(delimiter)) if columns else 2
        regular = sum(line.count(delimiter) <= most or '"' in line for line in having)
        if len(having) >= half and regular > best_count:
            best, best_count = delimiter, regular
    return best


def _split(line: str, delimiter: str, *, quoted: bool = False) -> list[str]:
    """The cells of one line, without the spaces around them and without empty cells at the end."""
    if delimiter == _JSON:
        return _json_cells(line)
    if delimiter == " ":
        cells = re.split("[ \t]+", line.strip(" \t"))
    elif delimiter == "\t" and not quoted:
        cells = line.split("\t")
    else:
        cells = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True))
    cells = [cell.strip(" ") for cell in cells]
    while len(cells) > 2 and not cells[-1]:
        cells.pop()
    if re.match(r"\\+#", cells[0]):  # see ``escape_comment``
        cells[0] = cells[0][1:]
    return cells


def _json_cells(line: str) -> list[str]:
    """Source, target and what else an object has, of a line such as {"source": …, "target": …}."""
    try:
        entry = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError("it is not a JSON object") from error
    words = [entry.get(name) for name in ("source", "target")] if isinstance(entry, dict) else []
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError("expected a JSON object with the words 'source' and 'target'")
    for word in words:
        check_unicode(word)
    others = [value for name, value in entry.items() if name not in ("source", "target")]
    shown = ["" if value is None else str(value) for value in others]
    return [word.strip() for word in words] + shown


def looks_like_header(source: str, target: str = "") -> bool:
    """Column titles, or the names of two different languages (which never are translations)."""
    source, target = source.lower(), target.lower()
    titles = source in _SOURCE_TITLES.split() and target in _TARGET_TITLES.split()
    names = _LANGUAGE_NAMES.split()
    return titles or (source in names and target in names and source != target)


def _first_is_header(records: list[Record], columns: tuple[int, int]) -> bool:
    first, *rest = (cells for _, _, cells in records)
    if len(first) < max(columns):
        return False
    if looks_like_header(first[columns[0] - 1], first[columns[1] - 1]):
        return True
    # A title over a column of scores.
    scores = len(rest) > 1 and all(len(cells) > 2 and is_number(cells[2]) for cells in rest)
    return scores and len(first) > 2 and not is_number(first[2])


def _problem(cells: list[str], columns: tuple[int, int], delimiter: str) -> str | None:
    """Why a line gives no pair; ``None`` when it does."""
    if len(cells) < max(columns):
        name = DELIMITER_NAMES.get(delimiter, repr(delimiter))
        found = "one column" if len(cells) == 1 else f"{len(cells)} columns"
        return f"{found}, expected {max(columns)} separated by a {name}"
    for side, column in zip(("source", "target"), columns, strict=True):
        if not cells[column - 1]:
            return f"the {side} (column {column}) is empty"
    pair_and_score = len(cells) == 2 or (len(cells) == 3 and is_number(cells[2]))
    if delimiter == " " and columns == (1, 2) and not pair_and_score:
        return (
            f"{len(cells)} words with spaces between them, and no way to tell where the source "
            "ends; separate the two by a tab"
        )
    return None


def _count_extra(cells: list[str], columns: tuple[int, int], report: LexiconReport) -> None:
    extra = [cell for at, cell in enumerate(cells, start=1) if at not in columns and cell]
    words = [cell for cell in extra if not is_number(cell)]
    if words:
        report.extra_columns += 1
        report.extra_example = report.extra_example or words[0]
    elif extra:
        report.scores += 1


def _count_separators(target: str, report: LexiconReport) -> None:
    for separator in _TARGET_SEPARATORS:
        if separator in target.strip(separator) and not is_number(target.replace(separator, "")):
            report.separators_in_targets[separator] += 1
            break


def _nothing_readable(path: Path, report: LexiconReport) -> FileError:
    if not report.unreadable:
        return FileError(path, "has no word pairs after its header")
    commonest, _ = Counter(reason for _, reason, _ in report.unreadable).most_common(1)[0]
    number, text = next((n, t) for n, r, t in report.unreadable if r == commonest)
    return FileError(
        path,
        f"none of {_count(len(report.unreadable), 'line')} could be read as a word pair: "
        f"{commonest} ({_short(text)})",
        line=number,
    )


# Bytes to text


def _read_text(path: Path, encoding: str | None) -> str:
    """The text without its byte-order mark; raises ``FileError`` for what is no dictionary."""
    with Stream(path) as stream:
        if stream.compression == "zip":
            raise FileError(
                path, "is a zip archive or an Excel workbook; save it as tab-separated text first"
            )
        data = stream.read_all()
    if dimension := vector_columns(data[:_SNIFFED], _FEWEST_DIMENSIONS):
        raise FileError(
            path, f"looks like word vectors ({dimension} numbers a line), expected a dictionary"
        )
    if encoding is None and (found := _utf16_or_32(path, data)):
        start = " ".join(f"0x{byte:02X}" for byte in data[:2])
        raise FileError(
            path,
            f"is {found.upper()} (it begins with the bytes {start}), expected UTF-8; "
            f"load it with encoding={found!r}, or save it as UTF-8",
            line=1,
        )
    try:
        return data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except LookupError as error:
        raise InputError(f"encoding {encoding!r} is not known") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(path, _undecodable(data, error, encoding), line=line) from error


def _utf16_or_32(path: Path, data: bytes) -> str | None:
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = data[::2].count(0), data[1::2].count(0)
    if 8 * (even + odd) <= len(data):
        return None
    # Without a mark: in UTF-16 the zero bytes are on one side.
    if max(even, odd) < 4 * min(even, odd):
        raise FileError(path, "is a binary file (many zero bytes), expected a dictionary")
    return "utf-16-le" if odd > even else "utf-16-be"


def _undecodable(data: bytes, error: UnicodeDecodeError, encoding: str | None) -> str:
    found = f"byte 0x{data[error.start]:02X} is not {encoding or 'UTF-8'}"
    if encoding is not None:
        return found
    if error.end == len(data) and "unexpected end" in error.reason:
        return "ends in the middle of a UTF-8 character; is it cut off?"
    # A guess: Western text has its high bytes one at a time among ASCII letters; in Cyrillic or
    # Greek they come in whole words.
    if len(re.findall(rb"[\x80-\xff]", data)) >= 3 * len(re.findall(rb"[\x80-\xff]+", data)):
        guess, name = "cp1251", "an 8-bit encoding of another script (cp1251 if it is Cyrillic)"
    elif re.search(rb"[\x80-\x9f]", data):
        guess, name = "cp1252", "Windows-1252 (Western European)"
    else:
        guess, name = "latin-1", "Latin-1 (ISO 8859-1)"
    start = data.rfind(b"\n", 0, error.start) + 1
    line = data[start:].partition(b"\n")[0].decode(guess, errors="replace").strip()[:60]
    return (
        f"{found}. The file looks like {name}, in which the line reads {line!r}; load it with "
        f"encoding={guess!r}, or save it as UTF-8"
    )


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
    if word != word.strip(" ") or any(mark in word for mark in "\t\n\r\0"):
        raise InputError(
            f"{word!r} cannot be written to a dictionary file: tabs, line ends, zero bytes and "
            "spaces around a word would not read back"
        )
    check_unicode(word)
