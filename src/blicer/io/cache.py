"""A second load of the same file comes memory-mapped from here.

One file an entry: magic, length and SHA-256 of a JSON header, the header, the vectors (aligned),
the words. Entries are named after the source's path, size and mtime and the load options, written
beside their place and moved there, so that racing processes both leave a whole file. Everything
is verified on reading, the vectors by sums over blocks at memory speed; what fails is rebuilt.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blicer import progress
from blicer.errors import BlicerError
from blicer.files import atomic_write
from blicer.io.report import LoadReport

# === formats.cache ===
VERSION = 1  # change when a reader's result changes
MAGIC = b"BLICERV1"
_ALIGN = 4096
_SUM_BLOCK = 1 << 20
# A file changed twice within one tick of the filesystem's clock keeps its mtime.
_CLOCK_TICK_SECONDS = 0.02


def cache_folder() -> Path:
    """``BLICER_CACHE``, else the platform's place for caches."""
    if chosen := os.environ.get("BLICER_CACHE"):
        return Path(chosen).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "blicer"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "blicer"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "blicer" / "cache"
    return Path.home() / ".cache" / "blicer"


@dataclass(frozen=True)
class Entry:
    """Where the result of one load (this file as it is now, these options) is kept."""

    source: Path
    size: int
    mtime_ns: int
    options: str
    file: Path

    @classmethod
    def of(cls, path: Path, options: dict[str, Any]) -> Entry | None:
        try:
            source = path.resolve()
            status = source.stat()
            folder = cache_folder() / "vectors"
        except (OSError, RuntimeError):
            return None
        text = json.dumps({"version": VERSION, **options}, sort_keys=True)
        where = hashlib.sha256(os.fsencode(source)).hexdigest()[:20]
        what = f"{status.st_size} {status.st_mtime_ns} {text}"
        name = f"{where}-{hashlib.sha256(what.encode()).hexdigest()[:20]}.vectors"
        return cls(source, status.st_size, status.st_mtime_ns, text, folder / name)

    def _identity(self) -> dict[str, Any]:
        return {
            "source": os.fsencode(self.source).hex(),
            "size": self.size,
            "mtime_ns": self.mtime_ns,
            "options": self.options,
        }

    def read(self) -> tuple[list[str], np.ndarray, LoadReport] | None:
        """None when there is no entry or it is not, byte for byte, what was written."""
        if not self.file.is_file():
            return None
        try:
            return self._read()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
            progress.note(f"{self.source}: the cached copy is damaged ({error}); reading again")
            return None

    def _read(self) -> tuple[list[str], np.ndarray, LoadReport]:
        size = self.file.stat().st_size
        with self.file.open("rb") as file:
            magic, length = struct.unpack("<8sQ", file.read(16))
            digest = file.read(32)
            if magic != MAGIC or length > size:
                raise ValueError("not a cache file")
            text = file.read(length)
            if hashlib.sha256(text).digest() != digest:
                raise ValueError("header changed")
            header = json.loads(text)
            if header["identity"] != self._identity():
                raise ValueError("made from another file")
            rows, dim = header["shape"]
            if size != header["file_size"]:
                raise ValueError("wrong length")
            file.seek(header["words_at"])
            blob = file.read()
        if hashlib.sha256(blob).hexdigest() != header["words_sha256"]:
            raise ValueError("words changed")
        words = json.loads(blob)
        vectors = np.memmap(
            self.file, dtype="<f4", mode="r", offset=header["vectors_at"], shape=(rows, dim)
        )
        if _checksum(vectors) != header["vectors_sums"] or len(words) != rows:
            raise ValueError("vectors changed")
        return words, vectors, LoadReport.from_dict(header["report"])

    def write(self, words: list[str], vectors: np.ndarray, report: LoadReport) -> None:
        """Best effort: a full or read-only disk costs the cache, not the load."""
        if not self._settled():
            return
        try:
            blob = json.dumps(words, ensure_ascii=True, separators=(",", ":")).encode()
            header: dict[str, Any] = {
                "identity": self._identity(),
                "shape": list(vectors.shape),
                "report": report.to_dict(),
                "words_sha256": hashlib.sha256(blob).hexdigest(),
                "vectors_sums": _checksum(vectors),
            }
            room = len(json.dumps(header)) + 256  # for the three positions below
            vectors_at = -(-(48 + room) // _ALIGN) * _ALIGN
            words_at = vectors_at + vectors.nbytes
            header |= {"vectors_at": vectors_at, "words_at": words_at}
            header["file_size"] = words_at + len(blob)
            text = json.dumps(header).encode()
            with atomic_write(self.file, "wb") as file:
                file.write(struct.pack("<8sQ", MAGIC, len(text)))
                file.write(hashlib.sha256(text).digest())
                file.write(text)
                file.write(bytes(vectors_at - 48 - len(text)))
                file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
                file.write(blob)
        except (BlicerError, OSError, MemoryError) as error:
            progress.note(f"{self.source}: not cached ({error})")
            return
        self._remove_outdated()

    def _settled(self) -> bool:
        """The source is still what was read, and a later change will show in its mtime."""
        try:
            age = time.time() - self.mtime_ns / 1e9
            if 0 <= age < _CLOCK_TICK_SECONDS:
                time.sleep(_CLOCK_TICK_SECONDS - age)
            status = self.source.stat()
        except OSError:
            return False
        return (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)

    def _remove_outdated(self) -> None:
        """Entries of earlier states of the same file will never be asked for again."""
        where = self.file.name.partition("-")[0]
        for other in self.file.parent.glob(f"{where}-*.vectors"):
            try:
                with other.open("rb") as file:
                    _, length = struct.unpack("<8sQ", file.read(16))
                    file.seek(48)
                    identity = json.loads(file.read(min(length, 1 << 24)))["identity"]
                if (identity["size"], identity["mtime_ns"]) != (self.size, self.mtime_ns):
                    other.unlink()
            except (OSError, ValueError, KeyError, TypeError, struct.error):
                continue


def _checksum(vectors: np.ndarray) -> str:
    """Of the sums of all numbers' bits, block by block: a flipped bit or a lost page shows."""
    data = vectors.reshape(-1).view(np.uint32)
    sums = [
        np.add.reduce(data[i : i + _SUM_BLOCK], dtype=np.uint64)
        for i in range(0, len(data), _SUM_BLOCK)
    ]
    return hashlib.sha256(np.array(sums, dtype="<u8").tobytes()).hexdigest()
