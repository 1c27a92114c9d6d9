"""On-disk cache of pipeline stages: folders named after a hash of all their inputs.

The same work is never done twice: not after a kill, not by another run that shares the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from blicer.errors import FileError
from blicer.files import digest

# Names of stages, with the files that stand beside them (checkpoints, temporary folders).
_STAGE = re.compile(r"\.?(?:(?:space|rounds|reranker|c2)-)?[0-9a-f]{16,24}(?:\..*)?")


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
    """Wrap the computing, or the loading, of a stage; ``log_stages`` records it."""
    yield
    log = _LOG.get()
    if log is not None and folder is not None:
        log.append(folder)
