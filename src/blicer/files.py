"""Atomic writes: a reader sees the old file or the whole new one, never half of it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from blicer.errors import FileError


def _sentence(path: Path, error: OSError) -> FileError:
    reason = error.strerror or str(error)
    return FileError(path, f"cannot be written ({reason})")


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path`` and move it there once it is complete and on disk."""
    path = Path(path)
    encoding = None if "b" in mode else "utf-8"
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=".part"
        )
        temporary = Path(name)
        os.fchmod(descriptor, 0o644)
        with os.fdopen(
            descriptor, mode, encoding=encoding, newline=None if encoding is None else "\n"
        ) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise _sentence(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Fill a temporary folder beside ``path``; it takes the place of ``path`` when complete."""
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
        temporary.chmod(0o755)
        yield temporary
        _put_in_place(temporary, path)
    except OSError as error:
        raise _sentence(path, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _put_in_place(new: Path, path: Path) -> None:
    """Move a folder to ``path``; what stood there is put back if that fails."""
    old = new.with_suffix(".old")
    if path.exists():
        os.replace(path, old)
    try:
        os.replace(new, path)
    except OSError:
        if old.exists():
            os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def check_writable(path: str | Path) -> None:
    """Fail before the work rather than after it when the output cannot be written."""
    path = Path(path)
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _sentence(path, error) from error


def check_replaceable(folder: str | Path, marker: str, what: str) -> None:
    """Our folder may take the place of its like or of nothing, never of the user's other files.

    ``marker`` is the file that tells such a folder, ``what`` its name in the sentence.
    """
    folder = Path(folder)
    if folder.is_dir() and ((folder / marker).is_file() or not any(folder.iterdir())):
        return
    if folder.exists():
        raise FileError(folder, f"exists and is not {what}; it is left as it is")


def write_json(path: str | Path, value: Any) -> None:
    with atomic_write(path) as file:
        json.dump(value, file, ensure_ascii=False, indent=2)
        file.write("\n")


def read_json(path: str | Path) -> Any:
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FileError(path, f"is not JSON ({error})") from error
