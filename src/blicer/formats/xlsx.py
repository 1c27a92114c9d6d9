"""XLSX: a workbook with columns for an editor, which is read back, and a sheet of provenance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from blicer.dictionary import COLUMNS, REVIEW, About, Dictionary, provenance
from blicer.errors import FileError, MissingDependency
from blicer.files import open_output
from blicer.formats.markup import ILLEGAL
from blicer.formats.tables import make_entry
from blicer.progress import note

ENTRIES, ABOUT = "dictionary", "about"
WIDE = 24  # characters
MOST_ROWS = 1_048_576


def _openpyxl() -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise MissingDependency("openpyxl", "an Excel workbook", "xlsx") from error
    return openpyxl


def write(path: Path, dictionary: Dictionary, review: bool = True) -> None:
    """The columns for an editor are always there."""
    openpyxl = _openpyxl()
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Font
    from openpyxl.utils import get_column_letter
    from openpyxl.worksheet.datavalidation import DataValidation

    names = [*(name for name in COLUMNS if name not in ("back_confidence", *REVIEW))]
    names += [*(["back_confidence"] if dictionary.is_two_way else []), *REVIEW]
    book = openpyxl.Workbook(write_only=True)
    sheet, about = book.create_sheet(ENTRIES), book.create_sheet(ABOUT)
    sheet.freeze_panes = "A2"
    for place, name in enumerate(names, start=1):
        if name in ("source", "target", "correction", "note"):
            sheet.column_dimensions[get_column_letter(place)].width = WIDE
    verdict = get_column_letter(names.index("verdict") + 1)
    allowed = DataValidation("list", formula1='"accept,reject"', allow_blank=True)
    allowed.add(f"{verdict}2:{verdict}{MOST_ROWS}")
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
    entries = dictionary.entries[: MOST_ROWS - 1]
    if len(entries) < len(dictionary):
        note(f"{path}: {len(dictionary) - len(entries):,} entries left out: a sheet is full")
    for entry in entries:
        values = [getattr(entry, name) for name in names]
        flat = ["; ".join(one) if isinstance(one, tuple) else one for one in values]
        sheet.append([cell(value, sheet) for value in flat])
    for key, value in provenance(dictionary.about).items():
        about.append([cell(key, about), cell(json.dumps(value, ensure_ascii=False), about)])
    with open_output(path, "wb") as file:
        book.save(file)
    if dropped:
        note(f"{path}: {dropped} control characters were left out; XML cannot hold them")


def read(path: Path) -> Dictionary:
    openpyxl = _openpyxl()
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (OSError, KeyError, ValueError, openpyxl.utils.exceptions.InvalidFileException) as error:
        raise FileError(path, f"is no Excel workbook ({error})") from error
    except Exception as error:  # zipfile.BadZipFile and whatever its XML parser raises
        raise FileError(path, f"is a damaged Excel workbook ({error})") from error
    try:
        about = None
        if ABOUT in book.sheetnames:
            kept = {row[0]: row[1] for row in book[ABOUT].iter_rows(values_only=True)}
            try:
                values = {key: json.loads(text) for key, text in kept.items()}
                about = About.from_dict(values)
            except (TypeError, ValueError):  # an editor's own sheet of that name
                about = None
        sheet = book[ENTRIES] if ENTRIES in book.sheetnames else book.worksheets[0]
        rows = sheet.iter_rows(values_only=True)
        titles = [str(title or "").strip().lower() for title in next(rows, ())]
        if not {"source", "target"} <= set(titles):
            raise FileError(path, f"has the columns {titles}; expected source and target", line=1)
        records = (
            (line, dict(zip(titles, row, strict=False)))
            for line, row in enumerate(rows, start=2)
            if any(value not in (None, "") for value in row)
        )
        return Dictionary((make_entry(path, line, record) for line, record in records), about)
    finally:
        book.close()
