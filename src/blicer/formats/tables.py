"""Tables with one entry a row, all of which are read back: TSV, CSV, JSON, Parquet and Excel."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from blicer.dictionary import COLUMNS, REVIEW, About, Dictionary, Entry
from blicer.errors import FileError, InputError, MissingDependency, needed
from blicer.files import open_output
from blicer.formats.markup import ILLEGAL
from blicer.io.dictionary import (
    content_lines,
    count_lines,
    escape_comment,
    escape_formula,
    read_dictionary,
    read_text,
    text_lines,
    tsv_row,
    unescape_comment,
    unescape_formula,
)
from blicer.io.streams import LARGEST_WHOLE
from blicer.io.vectors import LoadReport, check_unicode
from blicer.progress import note

TEXTS = ("source", "target", *REVIEW)
NUMBERS = ("confidence", "score", "back_confidence")
YES = "yes"
PARQUET_ABOUT = b"blicer"  # key of the provenance in a Parquet file
XLSX_ENTRIES, XLSX_ABOUT = "dictionary", "about"  # sheets
XLSX_ROWS = 1_048_576  # the most in a sheet
XLSX_COLUMNS = 64  # that are read
XLSX_RATIO = 200  # the most that a workbook's words and numbers are compressed
PARQUET_BATCH = 4096  # rows read at once
FEW_ROWS = 1_000_000  # read however small the file is


def columns(dictionary: Dictionary, review: bool, *, forms: bool = True) -> list[str]:
    """The columns of a table; ``review``: with those for an editor."""
    hidden = {*(() if review else REVIEW), *(() if forms else ["forms"])}
    if not dictionary.is_two_way:
        hidden.add("back_confidence")
    return [name for name in COLUMNS if name not in hidden]


def _text(value: Any) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return YES
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def write_tsv(path: Path, dictionary: Dictionary, review: bool = False) -> None:
    names = columns(dictionary, review, forms=False)
    with open_output(path) as file:
        file.write(tsv_row(names))
        for entry in dictionary:
            file.write(tsv_row(_text(getattr(entry, name)) for name in names))


def write_csv(path: Path, dictionary: Dictionary, review: bool = False) -> None:
    names = columns(dictionary, review, forms=False)
    texts = [name for name in names if name not in (*NUMBERS, "rank")]
    with open_output(path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(names)
        for entry in dictionary:
            cells = {name: _text(getattr(entry, name)) for name in names}
            for name in texts:
                cells[name] = escape_formula(cells[name])
            rows.writerow([escape_comment(cells.pop("source")), *cells.values()])


def write_jsonl(path: Path, dictionary: Dictionary, review: bool = False) -> None:
    names = columns(dictionary, review)
    with open_output(path) as file:
        for row in dictionary.rows():
            row |= {key: round(row[key], 4) for key in NUMBERS if row[key] is not None}
            shown = {name: row[name] for name in names}
            file.write(json.dumps(shown, ensure_ascii=False) + "\n")


def write_parquet(path: Path, dictionary: Dictionary, review: bool = False) -> None:
    with needed("pyarrow", "Parquet", "tables"):
        import pyarrow
        from pyarrow import parquet

    kinds = dict.fromkeys(COLUMNS, pyarrow.string()) | dict.fromkeys(NUMBERS, pyarrow.float64())
    kinds |= {"rank": pyarrow.int32(), "seed": pyarrow.bool_()}
    kinds["forms"] = pyarrow.list_(pyarrow.string())
    about = {PARQUET_ABOUT: json.dumps(asdict(dictionary.about)).encode()}
    table = pyarrow.Table.from_pylist(
        list(dictionary.rows()), pyarrow.schema(list(kinds.items()), metadata=about)
    )
    with open_output(path, "wb") as file:
        parquet.write_table(table, file, compression="zstd")


def write_xlsx(path: Path, dictionary: Dictionary, review: bool = True) -> None:
    """A workbook whose columns for an editor are always there, and a sheet of provenance."""
    with needed("openpyxl", "an Excel workbook", "xlsx"):
        import openpyxl
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter
    from openpyxl.worksheet.datavalidation import DataValidation

    names = columns(dictionary, review=True)
    book = openpyxl.Workbook(write_only=True)
    sheet, about = book.create_sheet(XLSX_ENTRIES), book.create_sheet(XLSX_ABOUT)
    sheet.freeze_panes = "A2"
    for place, name in enumerate(names, start=1):
        if name in ("source", "target", "correction", "note"):
            sheet.column_dimensions[get_column_letter(place)].width = 24  # characters
    verdict = get_column_letter(names.index("verdict") + 1)
    allowed = DataValidation("list", formula1='"accept,reject"', allow_blank=True)
    allowed.add(f"{verdict}2:{verdict}{XLSX_ROWS}")
    sheet.data_validations.append(allowed)
    dropped = 0

    def cell(value: Any, on: Any, **style: Any) -> Any:
        nonlocal dropped
        if not isinstance(value, str):
            return WriteOnlyCell(on, value)
        text, count = ILLEGAL.subn("", value)
        dropped += count
        made = WriteOnlyCell(on, text)
        made.data_type = "s"  # never a formula
        for key, one in style.items():
            setattr(made, key, one)
        return made

    sheet.append([cell(name, sheet, font=Font(bold=True)) for name in names])
    entries = dictionary.entries[: XLSX_ROWS - 1]
    if len(entries) < len(dictionary):
        note(f"{path}: {len(dictionary) - len(entries):,} entries left out: a sheet is full")
    for entry in entries:
        values = [getattr(entry, name) for name in names]
        flat = ["; ".join(one) if isinstance(one, tuple) else one for one in values]
        sheet.append([cell(value, sheet) for value in flat])
    for key, value in asdict(dictionary.about).items():
        about.append([cell(key, about), cell(json.dumps(value, ensure_ascii=False), about)])
    with open_output(path, "wb") as file:
        book.save(file)
    if dropped:
        note(f"{path}: {dropped} control characters were left out; XML cannot hold them")


# -- reading --------------------


def read_table(path: Path) -> Dictionary:
    """A table with our column titles, wherever they stand, or any file of word pairs."""
    text = read_text(path, None)
    _check_rows(path, count_lines(text))
    _, head = next(content_lines(text), (0, ""))
    delimiter = _titled(head)
    if delimiter is None:
        pairs, report = read_dictionary(path, lowercase=False)
        for line in report.lines():
            note(f"{path}: {line}")
        return Dictionary(Entry(*pair) for pair in pairs)
    report = LoadReport()
    rows: Iterator[tuple[int, list[str]]]
    if delimiter == "\t" and not head.startswith('"'):
        rows = ((line, row.split("\t")) for line, row in content_lines(text, report))
    else:
        rows = _split_quoted(path, text, delimiter, report)
    titles = [title.strip().lower() for title in next(rows)[1]]
    found = Dictionary(_table_entry(path, line, titles, cells, delimiter) for line, cells in rows)
    if comments := report["comment"]:
        note(f"{path}: {comments:,} lines beginning with # taken for comments")
    return found


def _titled(line: str) -> str | None:
    """The delimiter that makes our column titles of a line, or None."""
    for delimiter in "\t,;":
        with suppress(csv.Error):
            titles = next(csv.reader([line], delimiter=delimiter))
            if {"source", "target"} <= {title.strip().lower() for title in titles}:
                return delimiter
    return None


def _table_entry(
    path: Path, line: int, titles: list[str], cells: list[str], delimiter: str
) -> Entry:
    if delimiter != "\t":
        cells = list(map(unescape_formula, cells))
    record = dict(zip(titles, cells, strict=False))
    return make_entry(path, line, record | {"source": unescape_comment(record.get("source", ""))})


def _split_quoted(
    path: Path, text: str, delimiter: str, report: LoadReport
) -> Iterator[tuple[int, list[str]]]:
    """Cells of every row, and the number of its first line: a quoted cell can have several.

    A quote that is not closed raises ``FileError``: it would hide all rows up to the next quote.
    """
    first = 0  # line of the row that is being read; 0 between two rows

    def lines() -> Iterator[str]:
        nonlocal first
        for number, line in enumerate(io.StringIO(text, newline=""), start=1):
            if not first and line.startswith("#"):
                report.count("comment")
                continue
            first = first or number
            yield line

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            number, first = first, 0
            if any(cell.strip() for cell in cells):
                yield number, cells
    except csv.Error as error:
        wrong = f"is not a table from here on ({error}); is a quote opened and not closed?"
        raise FileError(path, wrong, line=first) from error


def read_jsonl(path: Path) -> Dictionary:
    entries = []
    text = read_text(path, None)
    _check_rows(path, count_lines(text))
    for number, line in text_lines(text):
        if line.strip():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FileError(path, f"is not JSON ({error})", line=number) from error
            if not isinstance(record, dict):
                raise FileError(path, "holds no object; expected an entry", line=number)
            entries.append(make_entry(path, number, record))
    return Dictionary(entries)


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Whatever a library raises for a damaged file, also while its rows are read, is a sentence."""
    try:
        yield
    except (FileError, MissingDependency, MemoryError):
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(path, f"is damaged, or no {kind} ({reason[:200]})") from error


def _check_rows(path: Path, rows: int) -> None:
    """Raise for a small file that unpacks to more rows than it can hold words for."""
    size = path.stat().st_size
    if rows > max(FEW_ROWS, size):
        raise FileError(path, f"has {rows:,} rows in {size:,} bytes; expected a dictionary")


def read_parquet(path: Path) -> Dictionary:
    with needed("pyarrow", "Parquet", "tables"):
        from pyarrow import parquet

    with _reading(path, "Parquet file"), parquet.ParquetFile(path) as file:
        _check_rows(path, file.metadata.num_rows)
        kept = (file.schema_arrow.metadata or {}).get(PARQUET_ABOUT)
        about = About.from_dict(json.loads(kept)) if kept else None
        names = [name for name in file.schema_arrow.names if name in COLUMNS]
        batches = file.iter_batches(PARQUET_BATCH, columns=names)
        rows = enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
        return Dictionary((make_entry(path, number, row) for number, row in rows), about)


def read_xlsx(path: Path) -> Dictionary:
    with needed("openpyxl", "an Excel workbook", "xlsx"):
        import openpyxl
    with _reading(path, "Excel workbook"):
        _check_unpacked(path)
        with closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
            about = _read_about(book) if XLSX_ABOUT in book.sheetnames else None
            sheet = book[XLSX_ENTRIES] if XLSX_ENTRIES in book.sheetnames else book.worksheets[0]
            rows = _sheet_rows(sheet)
            titles = [str(title or "").strip().lower() for title in next(rows, ())]
            if not {"source", "target"} <= set(titles):
                found = [title for title in titles if title]
                raise FileError(
                    path, f"has the columns {found}; expected source and target", line=1
                )
            records = (
                (line, dict(zip(titles, row, strict=True)))
                for line, row in enumerate(rows, start=2)
                if any(value not in (None, "") for value in row)
            )
            return Dictionary((make_entry(path, line, one) for line, one in records), about)


def _sheet_rows(sheet: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a sheet, whatever size it says it has."""
    rows: Iterator[tuple[Any, ...]] = sheet.iter_rows(
        max_row=XLSX_ROWS, max_col=XLSX_COLUMNS, values_only=True
    )
    return rows


def _check_unpacked(path: Path) -> None:
    """Raise before a small workbook unpacks to more than fits in memory."""
    with zipfile.ZipFile(path) as pack:
        size = sum(member.file_size for member in pack.infolist())
    # A full sheet of ours has about 500 MB.
    if size > min(2 * LARGEST_WHOLE, max(1 << 24, XLSX_RATIO * path.stat().st_size)):
        raise FileError(path, f"unpacks to {size >> 20:,} MB; expected a dictionary")


def _read_about(book: Any) -> About | None:
    """The provenance; None if the sheet is an editor's own of that name."""
    rows = (row[:2] for row in _sheet_rows(book[XLSX_ABOUT]))
    try:
        values = {key: json.loads(text) for key, text in rows if key is not None}
    except (TypeError, ValueError, RecursionError):
        return None
    return About.from_dict(values) if {"tool", "version", "date"} <= set(values) else None


def make_entry(path: Path, line: int, record: dict[str, Any]) -> Entry:
    """An entry from the columns of a row; a cell that is wrong raises ``FileError``."""
    given = {key: value for key, value in record.items() if key in COLUMNS and value is not None}
    try:
        values: dict[str, Any] = {key: _read_text(given, key) for key in TEXTS}
        if not values["source"] or not values["target"]:
            raise InputError("the source or the target is empty")
        values |= {key: _read_number(given, key) for key in NUMBERS}
        return Entry(
            **values,
            rank=_read_rank(given.get("rank", "")),
            forms=_read_forms(given.get("forms", "")),
            seed=str(given.get("seed", "")).lower() in (YES, "true", "1"),
        )
    except InputError as error:
        raise FileError(path, str(error), line=line) from None


def _read_text(given: dict[str, Any], key: str) -> str:
    value = given.get(key, "")
    if isinstance(value, (list, tuple, dict)):
        raise InputError(f"{key} is a {type(value).__name__}; expected a text")
    text = str(value).strip(" ")
    check_unicode(text)
    return text


def _read_number(given: dict[str, Any], key: str) -> float | None:
    """A confidence is a probability, a score any finite number."""
    value = given.get(key, "")
    if value == "":
        return None
    number = _float(key, value)
    if key != "score" and not 0 <= number <= 1:
        raise InputError(f"{key} is {_shortened(value)}; expected a number from 0 to 1")
    return number


def _read_rank(value: Any) -> int:
    rank = 1.0 if value == "" else _float("rank", value)
    if not rank.is_integer() or not 1 <= rank < 1 << 31:
        raise InputError(f"rank is {_shortened(value)}; expected 1 or a higher whole number")
    return int(rank)


def _float(key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # also an integer of 400 digits
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{key} is {_shortened(value)}; expected a number")
    return number


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _read_forms(value: Any) -> tuple[str, ...]:
    forms = re.split(r"\s*;\s*", value) if isinstance(value, str) and value else value or ()
    if not isinstance(forms, (list, tuple)) or not all(isinstance(one, str) for one in forms):
        raise InputError("forms is no text and no list of texts")
    for form in forms:
        check_unicode(form)
    return tuple(forms)
