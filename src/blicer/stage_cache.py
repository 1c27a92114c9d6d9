"""On-disk cache of pipeline stages: folders named after a hash of all their inputs.

The same work is never done twice: not after a kill, not by another run that shares the folder.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blicer.errors import FileError
from blicer.files import digest, read_json, write_json

# Names of stages, with the files that stand beside them (checkpoints, times, temporary folders).
_STAGE = re.compile(r"\.?(?:(?:space|reranker|c2)-)?[0-9a-f]{16,24}(?:\..*)?")


def stage_folder(work: Path, kind: str, *inputs: Any) -> Path:
    """The folder in ``work`` for a stage of this kind with these inputs."""
    return work / f"{kind}-{digest(*inputs, length=16)}"


def work_folder(output: str | Path) -> Path:
    """``<output>.work``, where the stages of unfinished work are cached.

    The caller removes it at the end, so a folder of that name with anything else in it raises.
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


@dataclass
class StageLog:
    """The stages that some work used."""

    saved_seconds: float = 0.0
    """How long the stages that were found on disk took when they were computed."""
    folders: list[Path] = field(default_factory=list)


_LOG: ContextVar[StageLog | None] = ContextVar("stage_log", default=None)


@contextmanager
def log_stages() -> Iterator[StageLog]:
    """Record stages and their times, so that shared work can report its time on its own."""
    log = StageLog()
    token = _LOG.set(log)
    try:
        yield log
    finally:
        _LOG.reset(token)


@contextmanager
def stage(folder: Path | None) -> Iterator[None]:
    """Wrap the computing, or the loading, of a stage; ``log_stages`` records its time."""
    log = _LOG.get()
    if log is None or folder is None:
        yield
        return
    was_there, started, before = folder.is_dir(), time.perf_counter(), log.saved_seconds
    yield
    seconds = time.perf_counter() - started
    log.folders.append(folder)
    if not was_there:  # including what stages inside it saved
        write_json(_times(folder), seconds + log.saved_seconds - before)
    elif _times(folder).is_file():
        log.saved_seconds += max(0.0, float(read_json(_times(folder))) - seconds)


def remove_stages(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        _times(folder).unlink(missing_ok=True)


def _times(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.seconds.json")
