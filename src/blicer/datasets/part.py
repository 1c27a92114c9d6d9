"""What has come of a file so far: its first bytes, and the version of the file they are of."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from blicer.errors import FileError
from blicer.files import read_json, write_json

try:
    import fcntl
except ImportError:  # not on Windows, where an open file cannot be replaced anyway
    fcntl = None  # type: ignore[assignment]

PIECE = 1 << 16


@dataclass(frozen=True)
class Version:
    """What the server says about a file; bytes are only put together within one version."""

    url: str
    etag: str | None = None
    modified: str | None = None
    length: int | None = None


class Part:
    """``NAME.part`` beside the file that it will become, for one process at a time.

    It always holds the beginning of the published bytes, so that any later run can go on, whether
    it wants the whole file or the first words.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = target.with_name(f"{target.name}.part")
        self._facts = target.with_name(f"{target.name}.part.json")
        self._file: IO[bytes] | None = None
        self.version: Version | None = None
        self.size = 0

    def __enter__(self) -> Part:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._close()
            raise FileError(
                self.path, "is being filled by another process; wait for it or end it"
            ) from error
        except OSError as error:
            self._close()
            raise self._unwritable(error) from error
        self.version = self._read_version()
        if self.version is not None:
            self.size = os.fstat(self._open().fileno()).st_size
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self.size == 0:
            self.path.unlink(missing_ok=True)
            self._facts.unlink(missing_ok=True)

    def begin(self, version: Version) -> None:
        """Empty, for the bytes of this version."""
        self._truncate()
        write_json(self._facts, asdict(version))
        self.version = version

    def append(self, data: bytes) -> None:
        try:
            self._open().write(data)
        except OSError as error:
            raise self._unwritable(error) from error
        self.size += len(data)

    def discard(self) -> None:
        self._truncate()
        self._facts.unlink(missing_ok=True)
        self.version = None

    def pieces(self) -> Iterator[bytes]:
        """What is there, from the start."""
        file = self._open()
        file.seek(0)
        while piece := file.read(PIECE):
            yield piece

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()

    def become_target(self) -> None:
        """The file is whole: move it to its name."""
        try:
            file = self._open()
            file.flush()
            os.fsync(file.fileno())
            os.replace(self.path, self.target)
        except OSError as error:
            raise self._unwritable(error) from error
        self._facts.unlink(missing_ok=True)
        self.version, self.size = None, 0

    def _open(self) -> IO[bytes]:
        assert self._file is not None, "a Part is used inside its with block"
        return self._file

    def _truncate(self) -> None:
        try:
            self._open().truncate(0)
        except OSError as error:
            raise self._unwritable(error) from error
        self.size = 0

    def _close(self) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
        except OSError as error:  # what was buffered does not fit on the disk
            raise self._unwritable(error) from error
        finally:
            self._file = None

    def _read_version(self) -> Version | None:
        """Without it nobody knows what the bytes are of, and they are fetched again."""
        try:
            return Version(**read_json(self._facts))
        except (FileError, TypeError):
            return None

    def _unwritable(self, error: OSError) -> FileError:
        return FileError(self.path, f"cannot be written ({error.strerror or error})")
