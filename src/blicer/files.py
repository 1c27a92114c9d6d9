"""Atomic writes: a reader sees the old file or the whole new one, never half of it.

What is written through a link goes to where the link leads; a pipe or a device is written to as
it is, and ``-`` and ``/dev/stdout`` are standard output. A folder of ours lists what it holds, so
that nothing else is lost when it is replaced.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import platformdirs

from blicer.errors import FileError

LISTED = "files"
STANDARD_OUTPUT = 1  # its descriptor
COMPRESSED = (".gz", ".zst")  # endings that ``open_output`` compresses by
_OPEN_FILE = re.compile(r"/dev/(?:std(out|err)|fd/(\d+))|/proc/self/fd/(\d+)|-")
_LITTER = (".DS_Store", "Thumbs.db", "desktop.ini")  # that file managers leave


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader of our output went away
        raise
    except OSError as error:
        raise FileError(path, f"cannot be written ({error.strerror or error})") from error


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path`` and move it there once it is complete and on disk."""
    path = followed(path)
    text: Any = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    with _writing(path):
        if (opened := open_descriptor(path)) is not None:
            # Opening it by its name would cut off what a file has that output is appended to.
            sys.stdout.flush()
            with open(os.dup(opened), mode, **text) as file:
                yield file
            return
        if is_special(path):
            with path.open(mode, **text) as file:
                yield file
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
        try:
            os.fchmod(descriptor, 0o644)
            with open(descriptor, mode, **text) as file:
                yield file
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)


@contextmanager
def open_output(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """``atomic_write``, compressed if the name ends in ``.gz`` or ``.zst``.

    Half a surrogate pair, which no file can hold, is written as a question mark.
    """
    with atomic_write(path, "wb") as raw:
        ending = Path(path).suffix.lower()
        packed: Any = raw
        if ending == ".gz":
            import gzip

            packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0)
        elif ending == ".zst":
            import pyarrow

            # It closes the file that it writes to; ``atomic_write`` still needs its own.
            packed = pyarrow.CompressedOutputStream(os.fdopen(os.dup(raw.fileno()), "wb"), "zstd")
        if "b" in mode:
            yield packed
        else:
            text = io.TextIOWrapper(packed, "utf-8", errors="replace", newline="\n")
            yield text
            text.flush()
            text.detach()
        if packed is not raw:
            packed.close()


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Fill a temporary folder beside ``path``; it takes the place of ``path`` when complete."""
    path = followed(path)
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(".part", f".{path.name}.", path.parent))
        try:
            temporary.chmod(0o755)
            yield temporary
            old = temporary.with_suffix(".old")
            if path.exists():
                os.replace(path, old)
            try:
                os.replace(temporary, path)
            except OSError:
                if old.exists():
                    os.replace(old, path)
                raise
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def followed(path: str | Path) -> Path:
    """The path that a link leads to; any other as it is."""
    path = Path(path)
    if open_descriptor(path) is not None:
        return path
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def open_descriptor(path: str | Path) -> int | None:
    """The number of the open file that a name such as ``-`` or ``/dev/stdout`` stands for."""
    if (match := _OPEN_FILE.fullmatch(str(path))) is None:
        return None
    stream, *numbers = match.groups()
    return next(
        (int(number) for number in numbers if number), 2 if stream == "err" else STANDARD_OUTPUT
    )


def is_special(path: Path) -> bool:
    """A pipe, a device or the like, which no file can take the place of."""
    if open_descriptor(path) is not None:
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def check_writable(path: str | Path) -> None:
    """Fail before the work rather than after it when the output cannot be written."""
    path = followed(path)
    if is_special(path):
        return
    if path.resolve() == Path.cwd():
        raise FileError(path, "is the folder that this runs in; name another one")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()


def check_replaceable(folder: str | Path, marker: str, what: str) -> None:
    """Our folder may take the place of its like or of nothing, never of the user's other files.

    ``marker`` is the file that tells such a folder (``write_marker``), ``what`` its name in the
    sentence.
    """
    folder = Path(folder)
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    if names and marker not in names:
        raise FileError(folder, f"exists and is not {what}; it is left as it is")
    values = read_json(folder / marker) if names else {}
    listed = values.get(LISTED, ()) if isinstance(values, dict) else ()
    if strange := sorted(names - {marker, *listed, *_LITTER}):
        raise FileError(
            folder,
            f"holds {strange[0]!r}, which is not of {what}; it is left as it is: move that file, "
            "or choose another output",
        )


def write_marker(folder: Path, marker: str, values: dict[str, Any]) -> None:
    """The file that tells a folder of ours, written last: it lists what else is in the folder."""
    write_json(folder / marker, values | {LISTED: sorted(path.name for path in folder.iterdir())})


def read_marker(folder: Path, marker: str, format: str, version: int, what: str) -> dict[str, Any]:
    """Content of the marker of a folder of ours; other formats and versions raise ``FileError``."""
    path = folder / marker
    if not path.is_file():
        raise FileError(folder, f"is not {what}: there is no {marker} in it")
    values = read_json(path)
    if not isinstance(values, dict) or values.get("format") != format:
        raise FileError(path, f"is not the description of {what}; expected format {format!r}")
    if values.get("version") != version:
        found = values.get("version")
        raise FileError(path, f"has version {found!r}; this blicer reads version {version}")
    return values


def write_json(path: str | Path, value: Any) -> None:
    with atomic_write(path) as file:
        json.dump(value, file, ensure_ascii=False, indent=2)
        file.write("\n")


def read_json(path: str | Path) -> Any:
    return read_text_as("JSON", json.loads, path)


def read_text_as(kind: str, parse: Callable[[str], Any], path: str | Path) -> Any:
    """``parse`` the content of a text file; its ``ValueError`` says that it is not ``kind``."""
    path = Path(path)
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        raise FileError(path, f"is not {kind} ({error})") from error


def cache_folder() -> Path:
    """``BLICER_CACHE`` if set, else the platform's cache folder for this user."""
    if given := os.environ.get("BLICER_CACHE"):
        return Path(given).expanduser()
    return Path(platformdirs.user_cache_dir("blicer", appauthor=False))


def digest(*parts: Any, length: int = 32) -> str:
    """Hash of arrays, texts, bytes, lists of words and JSON values, in hexadecimal digits.

    The kind and size of every part are hashed with it, so parts never run into each other.
    """
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            content: Any = np.ascontiguousarray(part).data
            kind = f"array {part.dtype.str} {part.shape}"
        elif isinstance(part, bytes):
            kind, content = "bytes", part
        elif isinstance(part, str):
            kind, content = "text", part.encode("utf-8", "surrogatepass")
        else:
            kind, content = "json", json.dumps(part, default=_as_json, sort_keys=True).encode()
        total.update(f"{kind} {len(content)} ".encode())
        total.update(content)
    return total.hexdigest()[:length]


def _as_json(value: Any) -> Any:
    return list(value) if hasattr(value, "__iter__") else str(value)


def file_sha256(path: str | Path) -> str:
    total = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()
