"""Reads compressed and plain files alike; the compression is recognised by the first bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from blicer.errors import FileError, needed


def _zstd(raw: IO[bytes]) -> Any:
    with needed("pyarrow", "reading a zstd file", "train"):
        import pyarrow

    return pyarrow.CompressedInputStream(raw, "zstd")


def _only_member(raw: IO[bytes]) -> IO[bytes]:
    archive = zipfile.ZipFile(raw)
    members = [name for name in archive.namelist() if not name.endswith("/")]
    if len(members) != 1:
        raise zipfile.BadZipFile(f"it has {len(members)} files, expected one: unzip it")
    return archive.open(members[0])


_BINARY = getattr(os, "O_BINARY", 0)  # Windows
LARGEST_WHOLE = 1 << 29  # bytes read into memory; the largest published lists have 100 MB

# Name: first bytes, how to open it.
_COMPRESSIONS: dict[str, tuple[bytes, Callable[[IO[bytes]], Any]]] = {
    "gzip": (rb"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    "xz": (rb"\xfd7zXZ\x00", lzma.LZMAFile),
    "zstd": (rb"\x28\xb5\x2f\xfd", _zstd),
    "bzip2": (rb"BZh[1-9]1AY&SY", bz2.BZ2File),
    "zip": (rb"PK\x03\x04", _only_member),
}
_BROKEN = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    ValueError,
    struct.error,
)
_ZIP_REFUSED = (RuntimeError, NotImplementedError)  # encrypted, or of a rare compression


class Stream:
    """The uncompressed bytes of a file, read in sequence; a broken archive raises ``FileError``.

    The file is opened once, so that pipes can be read too (zip archives excepted).
    """

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise FileError(path, "is a folder; expected a file")
        self.path = path
        self._file: Any = None  # opened by the first read: a .pt file is a zip of many members
        self._pushed = b""
        try:
            # A named pipe without a writer counts as empty; a blocking open would wait for ever.
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
            if hasattr(os, "set_blocking"):
                os.set_blocking(descriptor, True)
            self._raw = open(descriptor, "rb")  # noqa: SIM115
            self.start = self._raw.peek(16)[:16]
        except OSError as error:
            raise FileError(path, f"cannot be read ({error.strerror or error})") from error
        found = (name for name, (magic, _) in _COMPRESSIONS.items() if re.match(magic, self.start))
        self.compression = next(found, None)

    def read(self, size: int) -> bytes:
        """``size`` bytes, fewer only at the end of the file."""
        parts = [self._pushed[:size]] if self._pushed else []
        self._pushed = self._pushed[size:]
        missing = size - sum(map(len, parts))
        try:
            if self._file is None:
                name = self.compression
                self._file = self._raw if name is None else _COMPRESSIONS[name][1](self._raw)
            while missing > 0 and (part := self._file.read(missing)):
                parts.append(part)
                missing -= len(part)
        except (*_BROKEN, *_ZIP_REFUSED) as error:
            what = f"the {self.compression} archive" if self.compression else "it"
            reason = getattr(error, "strerror", None) or error
            raise FileError(self.path, f"{what} is broken or cut off ({reason})") from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_all(self, limit: int = LARGEST_WHOLE) -> bytes:
        """The whole content; more than ``limit`` bytes raise ``FileError``."""
        parts, size = [], 0
        while part := self.read(1 << 24):
            size += len(part)
            if size > limit:
                what = f"unpacks to more than {limit >> 20} MB"
                if self.compression is None:
                    what = f"is larger than {limit >> 20} MB"
                raise FileError(self.path, f"{what}; expected a dictionary or a word list")
            parts.append(part)
        return b"".join(parts)

    def peek(self, size: int) -> bytes:
        """The next bytes, which the next ``read`` returns again."""
        data = self.read(size)
        self._pushed = data + self._pushed
        return data

    def position(self) -> int:
        """Bytes of the file on disk read so far, for the progress bar."""
        return self._raw.tell()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        self._raw.close()
