"""Reading a file whatever it is compressed with, recognised by its first bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from blicer.errors import FileError

_MAGIC = {
    "gzip": rb"\x1f\x8b",
    "xz": rb"\xfd7zXZ\x00",
    "zstd": rb"\x28\xb5\x2f\xfd",
    "bzip2": rb"BZh[1-9]1AY&SY",
    "zip": rb"PK\x03\x04",
}


def _zstd(raw: IO[bytes]) -> Any:
    import pyarrow

    return pyarrow.CompressedInputStream(raw, "zstd")


_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    "gzip": lambda raw: gzip.GzipFile(fileobj=raw),
    "xz": lzma.LZMAFile,
    "bzip2": bz2.BZ2File,
    "zstd": _zstd,
}


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
            self._raw = path.open("rb")
            self.start = self._raw.peek(16)[:16]
        except OSError as error:
            raise FileError(path, f"cannot be read ({error.strerror or error})") from error
        names = (name for name, magic in _MAGIC.items() if re.match(magic, self.start))
        self.compression = next(names, None)

    def _open(self) -> Any:
        if self.compression == "zip":
            return self._only_member()
        return self._raw if self.compression is None else _OPENERS[self.compression](self._raw)

    def _only_member(self) -> IO[bytes]:
        try:
            archive = zipfile.ZipFile(self._raw)
            members = [name for name in archive.namelist() if not name.endswith("/")]
            if len(members) == 1:
                return archive.open(members[0])
        # Encrypted, compressed by a rare method, or damaged.
        except (RuntimeError, NotImplementedError, zipfile.BadZipFile, OSError) as error:
            raise FileError(self.path, f"is a zip archive that cannot be read ({error})") from error
        raise FileError(
            self.path, f"is a zip archive of {len(members)} files; expected one file: unzip it"
        )

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes unless the file ends before."""
        parts = [self._pushed[:size]] if self._pushed else []
        self._pushed = self._pushed[size:]
        missing = size - sum(map(len, parts))
        try:
            self._file = self._file or self._open()
            while missing > 0 and (part := self._file.read(missing)):
                parts.append(part)
                missing -= len(part)
        except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
            reason = getattr(error, "strerror", None) or error
            if self.compression is None:
                raise FileError(self.path, f"cannot be read ({reason})") from error
            raise FileError(
                self.path,
                f"the {self.compression} archive is broken or cut off ({reason}); "
                "download or copy it again",
            ) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_all(self) -> bytes:
        parts = iter(lambda: self.read(1 << 24), b"")
        return b"".join(parts)

    def peek(self, size: int) -> bytes:
        """The next bytes, without moving on."""
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
