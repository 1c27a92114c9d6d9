"""Where finished stages of long work are kept: folders named after all that they depend on."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from blicer.errors import FileError
from blicer.files import read_json, write_json

# === stages ===
# What stages are called (also encoded words, by their digest), with what stands beside them.
_STAGE = re.compile(r"\.?(?:(?:space|pairs|reranker|shared-reranker|c2)-)?[0-9a-f]{16,24}(?:\..*)?")


def stage_folder(folder: Path, kind: str, *what: Any) -> Path:
    """A folder named after the digest of ``what``."""
    key = hashlib.sha256(json.dumps(what, default=str).encode()).hexdigest()
    return folder / f"{kind}-{key[:16]}"


def digest(*things: Any) -> str:
    """Of arrays and lists of words."""
    digest = hashlib.blake2b(digest_size=16)
    for thing in things:
        if isinstance(thing, np.ndarray):
            digest.update(np.ascontiguousarray(thing).data)
        else:
            digest.update("\n".join(thing).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def work_folder(output: str | Path) -> Path:
    """Where the stages of unfinished work are kept: beside its output.

    It is removed at the end, so a folder of that name that holds anything else is not taken.
    """
    output = Path(output).absolute()  # "." has no name
    folder = output.with_name(f"{output.name}.work")
    if folder.exists():
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else [""]
        if strange := sorted(name for name in names if not _STAGE.fullmatch(name)):
            raise FileError(
                folder,
                f"holds {strange[0] or 'no folder'!r}, which is not of an unfinished run; it is "
                "left as it is: move it, or choose another output",
            )
    return folder


@dataclass
class Watch:
    """What became of the stages of some work."""

    spared: float = 0.0
    """Seconds that those found on disk took when they were made."""
    places: list[Path] = field(default_factory=list)


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watch() -> Iterator[Watch]:
    """Work that shares its stages with others can still say how long it takes on its own."""
    watching = Watch()
    token = _WATCH.set(watching)
    try:
        yield watching
    finally:
        _WATCH.reset(token)


@contextmanager
def stage(place: Path | None) -> Iterator[None]:
    """Around the making of a stage, or the finding of it; while watched, its time is kept."""
    watching = _WATCH.get()
    if watching is None or place is None:
        yield
        return
    was_there, started, before = place.is_dir(), time.perf_counter(), watching.spared
    yield
    seconds = time.perf_counter() - started
    watching.places.append(place)
    if not was_there:  # with what it was spared by stages inside it
        write_json(_record(place), seconds + watching.spared - before)
    elif _record(place).is_file():
        watching.spared += max(0.0, float(read_json(_record(place))) - seconds)


def remove_stages(places: Iterable[Path]) -> None:
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
        _record(place).unlink(missing_ok=True)


def _record(place: Path) -> Path:
    return place.with_name(f"{place.name}.seconds.json")
