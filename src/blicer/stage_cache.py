"""On-disk caches of pipeline stages and of arrays, keyed by a hash of all inputs.

So work is not repeated after a kill, nor by other runs that share the folder.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from blicer.errors import FileError
from blicer.files import atomic_write, cache_folder, digest
from blicer.progress import note

FOLDERS_KEPT = 10  # of each kind in the user's cache: the last used
_CHECK = 32  # digits of the hash at the beginning of a file of arrays

# Names of stages, and of the files beside them (checkpoints, temporary folders).
_STAGE = re.compile(r"\.?(?:(?:space|rounds|reranker|c2)-)?[0-9a-f]{16,24}(?:\..*)?")


def stage_folder(work: Path, kind: str, *inputs: Any) -> Path:
    """The folder in ``work`` for a stage of this kind with these inputs."""
    return work / f"{kind}-{digest(*inputs, length=16)}"


def work_folder(output: str | Path) -> Path:
    """``<output>.work``, which caches the stages of an unfinished run.

    The caller deletes it at the end, so this raises if the folder has anything else in it.
    """
    output = Path(output).absolute()  # "." has no name
    folder = output.with_name(f"{output.name}.work")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    for name in sorted(name for name in names if not _STAGE.fullmatch(name)):
        raise FileError(
            folder,
            f"holds {name!r}, which is not part of an unfinished run; it is left as it is: move "
            "it, or choose another output",
        )
    return folder


_LOG: ContextVar[list[Path] | None] = ContextVar("stage_log", default=None)


@contextmanager
def log_stages() -> Iterator[list[Path]]:
    """Record the folders of the stages that the block uses."""
    folders: list[Path] = []
    token = _LOG.set(folders)
    try:
        yield folders
    finally:
        _LOG.reset(token)


@contextmanager
def stage(folder: Path | None) -> Iterator[None]:
    """Wrap computing or loading a stage, so that ``log_stages`` records it."""
    yield
    log = _LOG.get()
    if log is not None and folder is not None:
        log.append(folder)


class ArrayCache:
    """Arrays by name in the user's cache folder; damaged files count as absent.

    ``key``: hash of all that the arrays depend on. Several processes may share the folder.
    """

    def __init__(self, kind: str, key: str) -> None:
        self.folder = cache_folder() / kind / key
        self.usable = True
        if not self.folder.is_dir():
            _forget_oldest(self.folder.parent)

    def rows(
        self, name: str, count: int, compute: Callable[[int, int], dict[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """The first ``count`` rows of the arrays of this name.

        ``compute(start, stop)`` returns the rows that are not cached yet; they are then cached.
        """
        arrays = self._load(name)
        ready = min(map(len, arrays.values()), default=0)
        if ready < count:
            new = compute(ready, count)
            old = arrays if ready else {key: rows[:0] for key, rows in new.items()}
            arrays = {key: np.concatenate([old[key], rows]) for key, rows in new.items()}
            self._save(name, arrays)
        return {key: one[:count] for key, one in arrays.items()}

    def _load(self, name: str) -> dict[str, NDArray[Any]]:
        """The cached arrays; none if the file is missing or damaged."""
        try:
            content = (self.folder / name).read_bytes()
            os.utime(self.folder)
        except OSError:
            return {}
        if digest(content[_CHECK:], length=_CHECK).encode() != content[:_CHECK]:
            return {}
        try:
            arrays: dict[str, NDArray[Any]] = load(content[_CHECK:])
        except SafetensorError:  # of another version
            return {}
        return arrays

    def _save(self, name: str, arrays: dict[str, NDArray[Any]]) -> None:
        """Notes only once that the folder cannot be written."""
        if not self.usable:
            return
        content = save({key: np.ascontiguousarray(one) for key, one in arrays.items()})
        try:
            with atomic_write(self.folder / name, "wb") as file:
                file.write(digest(content, length=_CHECK).encode() + content)
        except FileError as error:
            self.usable = False
            note(f"{error}; scores are not kept for the next time")


def _forget_oldest(parent: Path) -> None:
    try:
        folders = sorted(parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:  # there is none yet, or another process removes some
        return
    for folder in folders[FOLDERS_KEPT - 1 :]:
        shutil.rmtree(folder, ignore_errors=True)
