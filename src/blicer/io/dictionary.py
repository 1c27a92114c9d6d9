"""Reading a dictionary file: bytes to text, text to columns, columns to word pairs.

Every line is either a pair, or something that is counted (a comment, a header, a duplicate), or
listed with its number and the reason why it could not be read. Nothing is dropped silently.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import json
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from blicer.errors import FileError, InputError

# === formats.dictionary_text ===
_SNIFFED = 1 << 16
_FEWEST_DIMENSIONS = 12


def read_bytes(path: Path) -> bytes:
    """The content of a plain, gzip, bzip2 or xz file; an error for what cannot be a dictionary."""
    if path.is_dir():
        raise FileError(path, "is a folder, expected a dictionary file")
    try:
        with path.open("rb") as file:
            head = file.read(_SNIFFED)
            _refuse_other_formats(path, head)
            data = head + file.read()
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    try:
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        elif data.startswith(b"BZh") and data[4:10] == b"1AY&SY":
            data = bz2.decompress(data)
        elif data.startswith(b"\xfd7zXZ\x00"):
            data = lzma.decompress(data)
        else:
            return data
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise FileError(path, f"is a damaged compressed file ({error})") from error
    _refuse_other_formats(path, data[:_SNIFFED])
    return data


def safe_start(text: str) -> str:
    """A first word that would be read back as a comment, behind a backslash."""
    return f"\\{text}" if text.lstrip("\\")[:1] == "#" else text


def tsv_row(cells: Iterable[str]) -> str:
    """One line of tab-separated text; tabs and line ends inside a cell become spaces."""
    return "\t".join(re.sub(r"[\t\r\n]", " ", cell) for cell in cells) + "\n"


def _refuse_other_formats(path: Path, head: bytes) -> None:
    if head.startswith(b"PK\x03\x04"):
        raise FileError(
            path, "is a zip archive or an Excel workbook; save it as tab-separated text first"
        )
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        raise FileError(path, "is compressed with zstd; unpack it first")
    columns = vector_columns(head)
    if columns:
        raise FileError(
            path, f"looks like word vectors ({columns} numbers a line), expected a dictionary"
        )


def vector_columns(head: bytes, fewest: int = _FEWEST_DIMENSIONS) -> int:
    """The dimension if the first lines are words followed by numbers, 0 otherwise."""
    lines = [line for line in head.split(b"\n")[:20] if line.strip()]
    if len(lines) > 1 and re.fullmatch(rb"\d+ \d+\s*", lines[0]):
        del lines[0]  # word2vec's header: number of words, dimension
    if len(lines) > 1 and len(head) >= _SNIFFED:
        lines.pop()  # may be cut off
    widths = [len(line.split()) - 1 for line in lines if _is_vector_line(line, fewest)]
    return max(widths) if len(widths) * 2 > len(lines) else 0


def _is_vector_line(line: bytes, fewest: int) -> bool:
    numbers = line.split()[1:]
    if len(numbers) < fewest:
        return False
    number = re.compile(rb"[-+]?[\d.]+(e[-+]?\d+)?|nan|[-+]?inf", re.IGNORECASE)
    return all(number.fullmatch(cell) for cell in numbers[-fewest:])


def decode(path: Path, data: bytes, encoding: str | None) -> tuple[str, bool]:
    """The text without its byte order mark, and whether it had one."""
    if encoding is not None:
        try:
            text = data.decode(encoding)
        except LookupError as error:
            raise InputError(f"encoding {encoding!r} is not known") from error
        except UnicodeDecodeError as error:
            raise FileError(
                path,
                f"byte 0x{data[error.start]:02X} is not {encoding}",
                line=_line_of(data, error.start),
            ) from error
    else:
        _refuse_utf16(path, data)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(path, data, error) from error
    return text.removeprefix("\ufeff"), text.startswith("\ufeff")


def _line_of(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1


def _refuse_utf16(path: Path, data: bytes) -> None:
    name = None
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        name = "utf-32"
    elif data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        name = "utf-16"
    elif data.count(0) * 8 > len(data):
        # Without a mark: in UTF-16 every line end has a zero byte on the same side.
        ends = max(data.count(b"\n"), 1)
        if data.count(b"\n\x00") >= ends - 1 and data[1::2].count(0) > data[::2].count(0):
            name = "utf-16-le"
        elif data.count(b"\x00\n") >= ends - 1 and data[::2].count(0) > data[1::2].count(0):
            name = "utf-16-be"
        else:
            raise FileError(path, "is a binary file (many zero bytes), expected a dictionary")
    if name is None:
        return
    found = " ".join(f"0x{byte:02X}" for byte in data[:2])
    raise FileError(
        path,
        f"is {name.upper()} (it begins with the bytes {found}), expected UTF-8; "
        f"load it with encoding={name!r}, or save it as UTF-8",
        line=1,
    )


def _not_utf8(path: Path, data: bytes, error: UnicodeDecodeError) -> FileError:
    start = data.rfind(b"\n", 0, error.start) + 1
    end = data.find(b"\n", error.start)
    line = data[start:] if end < 0 else data[start:end]
    number = _line_of(data, error.start)
    if error.end == len(data) and "unexpected end" in error.reason:
        return FileError(
            path, "ends in the middle of a UTF-8 character; is it cut off?", line=number
        )
    bad = sum(not _is_utf8(one) for one in data.split(b"\n"))
    others = f"; {bad} lines have such bytes" if bad > 1 else ""
    encoding, name = _likely_encoding(data)
    shown = line.decode(encoding, errors="replace").strip()[:60]
    return FileError(
        path,
        f"byte 0x{data[error.start]:02X} is not UTF-8{others}. The file looks like {name}, in "
        f"which the line reads {shown!r}; load it with encoding={encoding!r}, or save it as UTF-8",
        line=number,
    )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _likely_encoding(data: bytes) -> tuple[str, str]:
    """A guess for the message only. Western text has its high bytes one at a time among ASCII
    letters; in Cyrillic or Greek they come in whole words."""
    high = len(re.findall(rb"[\x80-\xff]", data))
    runs = len(re.findall(rb"[\x80-\xff]+", data))
    if high >= 3 * runs:
        return "cp1251", "an 8-bit encoding of another script (cp1251 if it is Cyrillic)"
    if re.search(rb"[\x80-\x9f]", data):
        return "cp1252", "Windows-1252 (Western European)"
    return "latin-1", "Latin-1 (ISO 8859-1)"


# === formats.dictionary_file ===
JSON = "JSON"  # stands where a delimiter would, for one object a line
SHOWN = 10  # unreadable lines that a report spells out
DELIMITER_NAMES = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "vertical bar", " ": "space"}
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
    byte_order_mark: bool = False
    separators_in_targets: Counter[str] = field(default_factory=Counter)
    unreadable: list[tuple[int, str, str]] = field(default_factory=list)
    """Line number, reason, and the line itself, of each line that gave no pair."""

    def lines(self) -> list[str]:
        """One sentence for each thing that a user may want to know; nothing for a clean file."""
        said: list[str] = []
        for number, reason, text in self.unreadable[:SHOWN]:
            said.append(f"line {number} could not be read: {reason} ({_short(text)})")
        if len(self.unreadable) > SHOWN:
            said.append(f"{len(self.unreadable) - SHOWN} further lines could not be read")
        if self.header is not None:
            number, text = self.header
            said.append(f"line {number} was taken for a header ({_short(text)})")
        if self.comments:
            said.append(
                f"{_count(self.comments, 'line')} beginning with # taken for comments "
                "(write \\# for a word that begins with it)"
            )
        if self.duplicates:
            said.append(
                f"{_count(self.duplicates, 'repeated pair')} kept once (the fit of a map counts "
                "them as often as listed)"
            )
        if self.lowercased:
            said.append(f"{_count(self.lowercased, 'pair')} folded to lower case")
        if self.scores:
            said.append(f"{_count(self.scores, 'line')} with a score after the pair; not used")
        if self.extra_columns:
            said.append(
                f"{_count(self.extra_columns, 'line')} with further columns, which were not read "
                f"(such as {self.extra_example!r}); further translations need lines of their own"
            )
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
    """The distinct pairs of a file in its order, and the report. Arguments as ``Lexicon.load``."""
    path = Path(path)
    if min(columns) < 1 or columns[0] == columns[1]:
        raise InputError(f"columns={columns!r}: expected two different columns, counted from 1")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise InputError(f"delimiter={delimiter!r}: expected one character")
    if split_targets == "":
        raise InputError("split_targets is empty; give the character between two translations")
    text, had_mark = decode(path, read_bytes(path), encoding)
    report = LexiconReport(byte_order_mark=had_mark)
    content = list(_content_lines(text, report))
    if not content:
        raise FileError(path, "has no word pairs (it is empty, or holds only comments)")
    lines = [line for _, line in content]
    report.delimiter = delimiter or detect_delimiter(lines, path.suffix.lower())
    quoted = report.delimiter == "\t" and _all_quoted(lines)

    records: list[tuple[int, str, list[str]]] = []
    for number, line in content:
        try:
            cells = split_cells(line, report.delimiter, quoted=quoted)
        except csv.Error as error:
            reason = "a quote is opened and not closed" if "end of data" in str(error) else error
            report.unreadable.append((number, str(reason), line))
        except ValueError as error:
            report.unreadable.append((number, str(error), line))
        else:
            records.append((number, line, cells))
    first_titles = header is None and _first_is_header([cells for *_, cells in records], columns)
    if records and (header or first_titles):
        number, line, _ = records.pop(0)
        report.header = (number, line)

    pairs: dict[tuple[str, str], int] = {}
    for number, line, cells in records:
        problem = _problem(cells, columns, report.delimiter)
        if problem:
            report.unreadable.append((number, problem, line))
            continue
        _count_extra(cells, columns, report)
        source, target = cells[columns[0] - 1], cells[columns[1] - 1]
        found = [part.strip(" ") for part in target.split(split_targets)] if split_targets else []
        for one in [part for part in found if part] or [target]:
            _add(pairs, source, one, lowercase, report)
    report.unreadable.sort()
    report.pairs = len(pairs)
    if not pairs:
        raise _nothing_readable(path, report)
    return list(Counter(pairs).elements()), report


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


def detect_delimiter(lines: list[str], suffix: str = "") -> str:
    """The delimiter by which most lines have two columns; tabs first, spaces when nothing else.

    ``JSON`` for a file of one JSON object a line, as ``blicer induce`` writes it.
    """
    lines = lines[:5000]
    half = len(lines) / 2
    if sum(line.startswith("{") and line.endswith("}") for line in lines) > half:
        return JSON
    if sum("\t" in line for line in lines) >= half:
        return "\t"
    # 'cat chat,chatte' on every line is a list of targets after a space, not a comma-separated
    # file; a file named .csv is believed.
    two_words = all(
        len(words := line.split()) == 2 and not words[0].endswith((",", ";", "|")) for line in lines
    )
    if two_words and suffix != ".csv" and not any('"' in line for line in lines):
        return " "
    best, best_count = " ", 0
    for delimiter in (",", ";", "|"):
        having = [line for line in lines if delimiter in line]
        # Further columns are believed under titles, or in a file named .csv.
        titles = split_cells(lines[0], delimiter) if '"' not in lines[0] else []
        columns = suffix == ".csv" or (len(titles) > 1 and looks_like_header(*titles[:2]))
        most = lines[0].count(delimiter) if columns else 2
        regular = sum(line.count(delimiter) <= max(2, most) or '"' in line for line in having)
        if len(having) >= half and regular > best_count:
            best, best_count = delimiter, regular
    return best


def split_cells(line: str, delimiter: str, *, quoted: bool = False) -> list[str]:
    """The cells of one line, without the spaces around them and without empty cells at the end.

    Quotes mean something in comma-like files; in a tab-separated one they are part of the word
    (MUSE has such words) unless every cell of the file is quoted.
    """
    if delimiter == JSON:
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
    # Lexicon.save writes a first word that would look like a comment behind a backslash.
    if re.match(r"\\+#", cells[0]):
        cells[0] = cells[0][1:]
    return cells


def _json_cells(line: str) -> list[str]:
    """Source, target and what else an object has, of a line such as {"source": …, "target": …}."""
    try:
        entry = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError("it is not a JSON object") from error
    named = isinstance(entry, dict) and all(
        isinstance(entry.get(name), str) for name in ("source", "target")
    )
    if not named:
        raise ValueError("expected a JSON object with the words 'source' and 'target'")
    try:
        f"{entry['source']}{entry['target']}".encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds half of a character (a lone surrogate)") from error
    others = [value for name, value in entry.items() if name not in ("source", "target")]
    shown = ["" if value is None else str(value) for value in others]
    return [entry["source"].strip(), entry["target"].strip(), *shown]


def _all_quoted(lines: list[str]) -> bool:
    return all(
        len(cell) >= 2 and cell[0] == cell[-1] == '"' for line in lines for cell in line.split("\t")
    )


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def looks_like_header(source: str, target: str = "") -> bool:
    """Column titles, or the names of two different languages (which never are translations)."""
    source, target = source.lower(), target.lower()
    titles = source in _SOURCE_TITLES.split() and target in _TARGET_TITLES.split()
    names = _LANGUAGE_NAMES.split()
    return titles or (source in names and target in names and source != target)


def _first_is_header(records: list[list[str]], columns: tuple[int, int]) -> bool:
    if not records or len(records[0]) < max(columns):
        return False
    if looks_like_header(records[0][columns[0] - 1], records[0][columns[1] - 1]):
        return True
    # A title over a column of scores.
    rest = records[1:]
    return (
        len(records[0]) > 2
        and not is_number(records[0][2])
        and len(rest) > 1
        and all(len(cells) > 2 and is_number(cells[2]) for cells in rest)
    )


def _problem(cells: list[str], columns: tuple[int, int], delimiter: str) -> str | None:
    """Why a line gives no pair; ``None`` when it does."""
    name = DELIMITER_NAMES.get(delimiter, repr(delimiter))
    if len(cells) < max(columns):
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
    if not extra:
        return
    if all(is_number(cell) for cell in extra):
        report.scores += 1
    else:
        report.extra_columns += 1
        report.extra_example = report.extra_example or next(c for c in extra if not is_number(c))


def _add(
    pairs: dict[tuple[str, str], int],
    source: str,
    target: str,
    lowercase: bool,
    report: LexiconReport,
) -> None:
    pair = (source, target)
    if lowercase:
        folded = (source.lower(), target.lower())
        report.lowercased += folded != pair
        pair = folded
    for separator in _TARGET_SEPARATORS:
        if separator in pair[1].strip(separator) and not is_number(pair[1].replace(separator, "")):
            report.separators_in_targets[separator] += 1
            break
    if pair in pairs:
        report.duplicates += 1
    pairs[pair] = pairs.get(pair, 0) + 1


def _nothing_readable(path: Path, report: LexiconReport) -> FileError:
    if not report.unreadable:
        return FileError(path, "has no word pairs after its header")
    reasons = Counter(reason for _, reason, _ in report.unreadable)
    reason, _ = reasons.most_common(1)[0]
    number, text = next((n, t) for n, r, t in report.unreadable if r == reason)
    return FileError(
        path,
        f"none of {_count(len(report.unreadable), 'line')} could be read as a word pair: "
        f"{reason} ({_short(text)})",
        line=number,
    )
