"""A second load of the same file comes memory-mapped from here.

One safetensors file for each source file and load options, written atomically, so that racing
processes both leave a whole file. Everything is verified on reading, the vectors by sums over
blocks at memory speed; what fails is rebuilt.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blicer import progress
from blicer.errors import BlicerError
from blicer.files import cache_folder, digest
from blicer.io.matrices import map_safetensors, write_safetensors
from blicer.io.vectors import LoadReport

_VERSION = 2  # change when a reader's result changes
_SUM_BLOCK = 1 << 20
# A file changed twice within one tick of the filesystem's clock keeps its mtime.
_CLOCK_TICK_SECONDS = 0.02


@dataclass(frozen=True)
class Entry:
    """Where the result of one load (this file as it is now, these options) is kept."""

    source: Path
    state: tuple[int, int]  # size and mtime of the source
    file: Path  # named after the source's path, its state and the options

    @classmethod
    def of(cls, path: Path, options: dict[str, Any]) -> Entry | None:
        try:
            source = path.resolve()
            state = _state(source)
            folder = cache_folder() / "vectors"
        except (OSError, RuntimeError):
            return None
        parts = (os.fsencode(source), list(state), {"version": _VERSION, **options})
        name = "-".join(digest(part, length=20) for part in parts)
        return cls(source, state, folder / f"{name}.safetensors")

    def read(self) -> tuple[list[str], np.ndarray, LoadReport] | None:
        """None when there is no entry or it is not what was written."""
        if not self.file.is_file():
            return None
        try:
            words, vectors, metadata = map_safetensors(self.file)
            if metadata["checksum"] != _checksum(words, vectors, metadata["report"]):
                raise ValueError("its checksum is wrong")
            return words, vectors, LoadReport(**json.loads(metadata["report"]))
        except (BlicerError, ValueError, KeyError, TypeError) as error:
            progress.note(f"{self.source}: the cached copy is damaged ({error}); reading again")
            return None

    def write(self, words: list[str], vectors: np.ndarray, report: LoadReport) -> None:
        """Best effort: a full or read-only disk costs the cache, not the load."""
        if not self._settled():
            return
        about = json.dumps(asdict(report))
        metadata = {"report": about, "checksum": _checksum(words, vectors, about)}
        try:
            write_safetensors(self.file, words, vectors, metadata)
            # Entries of earlier states of the same file will never be asked for again.
            place, state, _ = self.file.name.split("-")
            for other in self.file.parent.glob(f"{place}-*"):
                if not other.name.startswith(f"{place}-{state}-"):
                    other.unlink(missing_ok=True)
        except (BlicerError, OSError) as error:
            progress.note(f"{self.source}: not cached ({error})")

    def _settled(self) -> bool:
        """The source is still what was read, and a later change will show in its mtime."""
        try:
            age = time.time() - self.state[1] / 1e9
            if 0 <= age < _CLOCK_TICK_SECONDS:
                time.sleep(_CLOCK_TICK_SECONDS - age)
            return _state(self.source) == self.state
        except OSError:
            return False


def _state(source: Path) -> tuple[int, int]:
    status = source.stat()
    return status.st_size, status.st_mtime_ns


def _checksum(words: list[str], vectors: np.ndarray, report: str) -> str:
    """Sums of all numbers' bits, block by block, show a flipped bit or a lost page."""
    data = vectors.reshape(-1).view(np.uint32)
    sums = [
        np.add.reduce(data[i : i + _SUM_BLOCK], dtype=np.uint64)
        for i in range(0, len(data), _SUM_BLOCK)
    ]
    return digest(words, np.array(sums, dtype=np.uint64), report)
