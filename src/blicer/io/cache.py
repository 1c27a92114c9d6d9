"""A second load of the same file comes memory-mapped from here.

One safetensors file for each source file and load options, written atomically, so that racing
processes both leave a whole file. What cannot be read back is rebuilt.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

from blicer import progress
from blicer.errors import BlicerError
from blicer.files import cache_folder, digest
from blicer.io.matrices import map_safetensors, write_safetensors
from blicer.io.vectors import Loaded, LoadReport, load, recognise_format

_VERSION = 4  # change when a reader's result changes
_CACHED = ("text", "word2vec", "fasttext")  # parsing these costs more than reading the cache
# A file changed twice within one tick of the filesystem's clock keeps its mtime.
_CLOCK_TICK_SECONDS = 0.02


def cached_load(
    path: Path, max_words: int | None, lowercase: bool, vocabulary: Path | None
) -> Loaded:
    """What ``load`` returned for this file (by path, size, times and inode) and options before."""
    parse = partial(load, path, max_words, lowercase, vocabulary)
    if vocabulary is not None or recognise_format(path) not in _CACHED:
        return parse()
    try:
        source = path.resolve()
        state = _state(source)
        place = digest(os.fsencode(source), length=20)
        options = digest(_VERSION, max_words, lowercase, length=20)
        name = f"{place}-{digest(state, length=20)}-{options}"
        file = cache_folder() / "vectors" / f"{name}.safetensors"
        if file.is_file() and (found := _read(source, file)) is not None:
            return found
    except (OSError, RuntimeError):  # no home folder, or the source has gone
        return parse()
    words, vectors, report = parse()
    try:
        if _settled(source, state):
            about = {"report": json.dumps(asdict(report)), "hash": digest(words, vectors)}
            write_safetensors(file, words, vectors, about)
            # Entries of earlier states of the same file will never be asked for again.
            for other in file.parent.glob(f"{place}-*"):
                if other.name.split("-")[1] != file.name.split("-")[1]:
                    other.unlink(missing_ok=True)
    except (BlicerError, OSError) as error:  # a full or read-only disk
        progress.note(f"{source}: not cached ({error})")
    return words, vectors, report


def _read(source: Path, file: Path) -> Loaded | None:
    try:
        words, vectors, metadata = map_safetensors(file)
        if metadata["hash"] != digest(words, vectors):
            raise ValueError("it does not match its hash")
        return words, vectors, LoadReport(**json.loads(metadata["report"]))
    except (BlicerError, ValueError, KeyError, TypeError) as error:
        progress.note(f"{source}: the cached copy is damaged ({error}); reading again")
        return None


def _state(source: Path) -> list[int]:
    status = source.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino]


def _settled(source: Path, state: list[int]) -> bool:
    """The source is still what was read, and a later change will show in its mtime."""
    age = time.time() - state[1] / 1e9
    if 0 <= age < _CLOCK_TICK_SECONDS:
        time.sleep(_CLOCK_TICK_SECONDS - age)
    return _state(source) == state
