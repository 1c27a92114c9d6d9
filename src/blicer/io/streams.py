"""Opening a file whatever it is compressed with, recognised by its first bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

from blicer.errors import FileError, MissingDependency

# === formats.streams ===
GZIP, XZ, ZSTD, BZ2, ZIP = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh", b"PK\x03\x04"
_ZSTD_PIECE = 1 << 17


def first_bytes(path: Path, n: int = 16) -> bytes:
    """The start of the file as it lies on disk; a sentence when it cannot be opened."""
    if not path.exists():
        raise FileError(path, "does not exist")
    if path.is_dir():
        raise FileError(path, "is a folder; expected a file")
    if not path.is_file():  # it is read more than once, and a pipe gives its bytes once
        raise FileError(path, "is a pipe or a device; expected a file: write it to one first")
    try:
        with path.open("rb") as file:
            return file.read(n)
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error


def compression(start: bytes) -> str | None:
    for magic, name in ((GZIP, "gzip"), (XZ, "xz"), (ZSTD, "zstd"), (BZ2, "bzip2"), (ZIP, "zip")):
        if start.startswith(magic):
            return name
    return None


class _ZstdReader:
    """zstandard's own reader takes a cut-off frame for the end of the file; this one does not."""

    def __init__(self, path: Path, raw: IO[bytes]) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingDependency("zstandard", f"Reading {path}", "zstd") from error
        self._raw, self._new_frame = raw, zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._left = b""  # compressed bytes after the end of a frame

    def read(self, _: int) -> bytes:
        """Some bytes, b"" only at the end."""
        while packed := self._left or self._raw.read(_ZSTD_PIECE):
            self._left = b""
            if self._frame is None:
                self._frame = self._new_frame()
            data: bytes = self._frame.decompress(packed)
            if self._frame.eof:
                self._left, self._frame = self._frame.unused_data, None
            if data:
                return data
        if self._frame is not None:
            raise EOFError
        return b""

    def close(self) -> None:
        self._frame = None


class Stream:
    """Sequential reading of the uncompressed bytes; broken archives give a sentence."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.compression = compression(first_bytes(path))
        self._raw: IO[bytes] = path.open("rb")
        self._pushed = b""
        try:
            self._file: Any = self._decompressor()
        except BaseException:
            self._raw.close()
            raise

    def _decompressor(self) -> Any:
        if self.compression == "gzip":
            return gzip.GzipFile(fileobj=self._raw)
        if self.compression == "xz":
            return lzma.LZMAFile(self._raw)
        if self.compression == "bzip2":
            return bz2.BZ2File(self._raw)
        if self.compression == "zip":
            return self._only_member()
        if self.compression == "zstd":
            return _ZstdReader(self.path, self._raw)
        return self._raw

    def _only_member(self) -> IO[bytes]:
        try:
            archive = zipfile.ZipFile(self._raw)
        except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
            raise FileError(self.path, f"is a broken zip archive ({error})") from error
        members = [name for name in archive.namelist() if not name.endswith("/")]
        if len(members) != 1:
            raise FileError(
                self.path,
                f"is a zip archive of {len(members)} files; expected one vector file: unzip it",
            )
        try:
            return archive.open(members[0])
        # Encrypted, of a rare method, or damaged.
        except (RuntimeError, NotImplementedError, zipfile.BadZipFile, OSError) as error:
            raise FileError(self.path, f"is a zip archive that cannot be read ({error})") from error

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes unless the end comes first."""
        parts: list[bytes] = []
        wanted = size
        if self._pushed:
            parts.append(self._pushed[:wanted])
            self._pushed = self._pushed[wanted:]
            wanted -= len(parts[0])
        try:
            while wanted > 0 and (part := self._file.read(wanted)):
                parts.append(part)
                wanted -= len(part)
                if wanted < 0:  # a zstd frame gives what it has
                    parts[-1], self._pushed = part[:wanted], part[wanted:]
        except EOFError as error:
            raise self._broken("it ends too early") from error
        except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
            raise self._broken(str(error)) from error
        except OSError as error:
            raise self._broken(error.strerror or str(error)) from error
        except Exception as error:
            # zstandard's error class is only known when the package is there.
            if type(error).__module__.startswith("zstandard"):
                raise self._broken(str(error)) from error
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def peek(self, size: int) -> bytes:
        """The next bytes, without moving on."""
        data = self.read(size)
        self._pushed = data + self._pushed
        return data

    def position(self) -> int:
        """Bytes of the file on disk read so far, for the progress bar."""
        return self._raw.tell()

    def _broken(self, reason: str) -> FileError:
        if self.compression is None:
            return FileError(self.path, f"cannot be read ({reason})")
        return FileError(
            self.path,
            f"the {self.compression} archive is broken or cut off ({reason}); "
            "download or copy it again",
        )

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()
