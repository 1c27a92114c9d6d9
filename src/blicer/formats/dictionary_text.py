"""The bytes of a dictionary file as text, or one sentence that says what the bytes are instead."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
import zlib
from pathlib import Path

from blicer.errors import FileError, InputError

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
