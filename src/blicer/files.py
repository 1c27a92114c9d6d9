"""Atomic writes: a reader sees the old file or the whole new one, never half of it.

Links are followed, pipes and devices are written to directly, and ``-`` and ``/dev/stdout`` mean
standard output. Our folders have a marker file that lists their files, so that replacing a folder
never deletes others, and their checksums, so that loading detects damage. ``locked`` keeps other
writers out.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import io
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import platformdirs
from safetensors import SafetensorError

from blicer.errors import FileError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

STANDARD_OUTPUT = 1  # its descriptor
COMPRESSED = (".gz", ".zst")  # endings that ``open_output`` compresses by
_STREAMS = {"-": STANDARD_OUTPUT, "/dev/stdout": STANDARD_OUTPUT, "/dev/stderr": 2}
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
LISTED, CHECKSUMS, SEAL, VERIFIED = "files", "sha256", "seal", "verified"
LARGE = 1 << 20  # bytes; larger files are hashed again only if their size or times have changed
LARGEST_TEXT = 1 << 28  # bytes of a JSON or TOML file that are read
_REMEMBERED = 2000  # verified states of large files that are kept
_HELD: set[tuple[str, int]] = set()  # locks held by this process: lock file, thread
_LITTER = (".DS_Store", "Thumbs.db", "desktop.ini")  # left by file managers


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader of our output went away
        raise
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(path, f"cannot be written ({reason})") from error


def _open_mode(path: Path) -> None:
    """Set the mode that the umask allows; temporary files and folders are private at first."""
    mask = os.umask(0o077)
    os.umask(mask)
    mode = (0o777 if path.is_dir() else 0o666) & ~mask
    if path.stat().st_mode & 0o777 != mode:
        path.chmod(mode)


@contextmanager
def locked(path: str | Path, wait: float = 0.0) -> Iterator[None]:
    """Lock ``path`` for this thread; raises ``FileError`` while the lock is held elsewhere.

    ``wait``: seconds to wait for the other holder first.

    The lock is on the file ``.NAME.lock`` beside it and ends with the process, even if killed. It
    is reentrant.
    """
    path = followed(path)
    file = path.absolute().with_name(f".{path.absolute().name}.lock")
    mine = (str(file), threading.get_ident())
    if fcntl is None or mine in _HELD or is_special(path):
        yield
        return
    with _writing(path):
        file.parent.mkdir(parents=True, exist_ok=True)
        ends = time.monotonic() + wait
        while True:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = os.read(descriptor, 20).decode("ascii", "replace").strip()
                os.close(descriptor)
                if time.monotonic() < ends:
                    time.sleep(0.05)
                    continue
                who = f" (process {owner})" if owner.isdigit() else ""
                raise FileError(
                    path,
                    f"is being written by another blicer{who}; wait for it, or choose another "
                    "output",
                ) from error
            # Its last owner may have deleted the file between our two calls.
            if file.exists() and os.path.samestat(os.fstat(descriptor), file.stat()):
                break
            os.close(descriptor)
    _HELD.add(mine)
    try:
        with suppress(OSError):  # on a full disk the lock holds without the process number
            os.truncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        _HELD.discard(mine)
        file.unlink(missing_ok=True)
        os.close(descriptor)


def _prefix(path: Path) -> str:
    """The prefix of temporary names for ``path``, which has this machine and process in it.

    Also deletes what killed processes of this machine left for the same ``path``.
    """
    here = f".{path.name}.{digest(platform.node(), length=6)}-"
    for left in path.parent.glob(f"{glob.escape(here)}*"):
        process = left.name.removeprefix(here).partition(".")[0]
        if process.isdigit() and not _is_alive(int(process)):
            if left.suffix == ".old" and not path.exists():
                os.replace(left, path)  # killed while it replaced the folder
            else:
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
    return f"{here}{os.getpid()}."


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside ``path`` and move it there once it is complete and on disk."""
    path = followed(path)
    text: Any = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    with _writing(path):
        if (opened := open_descriptor(path)) is not None:
            # Opening it by name would truncate a file that the shell appends to.
            sys.stdout.flush()
            with open(os.dup(opened), mode, **text) as file:
                yield file
            return
        if is_special(path):
            with path.open(mode, **text) as file:
                yield file
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(".part", _prefix(path), path.parent)
        try:
            _open_mode(Path(temporary))
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

    Lone surrogates, which UTF-8 cannot encode, are written as question marks.
    """
    with atomic_write(path, "wb") as raw:
        ending = Path(path).suffix.lower()
        packed: Any = raw
        if ending == ".gz":
            import gzip

            packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0)
        elif ending == ".zst":
            import pyarrow

            # It closes its file, so it gets a duplicate.
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
    """Yield a temporary folder beside ``path``, which replaces ``path`` when it is complete."""
    path = followed(path)
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(".part", _prefix(path), path.parent))
        try:
            _open_mode(temporary)
            yield temporary
            for inside in temporary.rglob("*"):
                _open_mode(inside)
            if path.exists() and _exchange(temporary, path):
                return  # the old content is deleted with the temporary folder
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
        except FileError as error:
            if not error.path.is_relative_to(temporary):
                raise
            # Name the final folder, not the temporary one.
            problem = str(error).removeprefix(f"{error.path}: ")
            raise FileError(path / error.path.relative_to(temporary), problem) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders atomically; False if the system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    names = [os.fsencode(path.absolute()) for path in (one, other)]
    return rename is not None and rename(here, names[0], here, names[1], swap) == 0


def followed(path: str | Path) -> Path:
    """The target of a link; any other path unchanged."""
    path = Path(path)
    if open_descriptor(path) is not None:
        return path
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def open_descriptor(path: str | Path) -> int | None:
    """The file descriptor that a name such as ``-`` or ``/dev/stdout`` stands for, or None."""
    match = _DESCRIPTOR.fullmatch(str(path))
    return int(match[1]) if match else _STREAMS.get(str(path))


def is_special(path: Path) -> bool:
    """Whether this is a pipe, a device or the like, which cannot be replaced by a file."""
    if open_descriptor(path) is not None:
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def check_writable(path: str | Path) -> None:
    """Raise ``FileError`` now if the output cannot be written later."""
    path = followed(path)
    if is_special(path):
        return
    if Path(os.path.realpath(path)) == Path.cwd():
        raise FileError(path, "is the folder that this runs in; name another one")
    if path.is_symlink():  # ``followed`` came to no end
        raise FileError(path, "is a link to itself")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()


def check_replaceable(folder: str | Path, marker: str, what: str) -> None:
    """Raise ``FileError`` if replacing ``folder`` would delete files that are not ours.

    ``marker``: the file that identifies such a folder (``write_marker``). ``what``: what the error
    message calls it.
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
    """Write the JSON file that identifies a folder as ours, after all its other files.

    Beside ``values`` it has the names of the files, the SHA-256 of each (also in subfolders), and a
    hash of its own content.
    """
    checksums = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        _open_mode(path)  # before its state is remembered
        checksum = checksums[path.relative_to(folder).as_posix()] = file_sha256(path)
        _remember(path, checksum)
    listed = sorted(path.name for path in folder.iterdir())
    values = json.loads(json.dumps(values | {LISTED: listed, CHECKSUMS: checksums}))
    write_json(folder / marker, values | {SEAL: digest(values)})


def read_marker(folder: Path, marker: str, format: str, version: int, what: str) -> dict[str, Any]:
    """Content of a folder's marker; other formats and versions raise ``FileError``.

    Checksums are compared if there are any; the key ``verified`` says whether there are.
    """
    path = folder / marker
    if not path.is_file():
        reason = f"is not {what}: there is no {marker} in it"
        raise FileError(folder, reason if folder.exists() else "does not exist")
    values = read_json(path)
    if not isinstance(values, dict) or values.get("format") != format:
        raise FileError(path, f"is not the description of {what}; expected format {format!r}")
    if values.get("version") != version:
        found = values.get("version")
        again = f"this blicer reads version {version}: make {what} again"
        raise FileError(path, f"has version {found!r}; {again}")
    verified = verify(folder, marker, values)
    return values | {VERIFIED: verified}


def verify(folder: Path, marker: str, values: dict[str, Any]) -> bool:
    """Check the files against the checksums, which are removed from ``values``.

    Damage raises ``FileError``. Returns False for a folder without checksums (older versions).
    """
    path = folder / marker
    if (seal := values.pop(SEAL, None)) is None and CHECKSUMS not in values:
        return False
    checksums = values.get(CHECKSUMS)
    if not isinstance(checksums, dict) or digest(values) != seal:
        raise FileError(path, "is damaged: it does not match its own checksum")
    for name, expected in values.pop(CHECKSUMS).items():
        file = folder / name
        if not file.is_file():
            raise FileError(file, f"is missing; {marker} lists it")
        memory = _memory(file, expected)
        if memory is None or not memory.exists():
            if file_sha256(file) != expected:
                raise FileError(file, f"is damaged: it does not match its checksum in {marker}")
            _remember(file, expected)
    return True


def _memory(file: Path, checksum: str) -> Path | None:
    """The file that records that a large file in its present state has this checksum."""
    state = file.stat()
    if state.st_size < LARGE:
        return None
    times = (state.st_mtime_ns, state.st_ctime_ns)
    key = digest([state.st_dev, state.st_ino, state.st_size, *times, checksum])
    return cache_folder() / "verified" / key


def _remember(file: Path, checksum: str) -> None:
    with suppress(OSError):  # a cache never stops the work
        if (memory := _memory(file, checksum)) is not None:
            memory.parent.mkdir(parents=True, exist_ok=True)
            memory.touch()
            kept = sorted(memory.parent.iterdir(), key=lambda one: one.stat().st_mtime)
            for old in kept[:-_REMEMBERED]:
                old.unlink(missing_ok=True)


def write_json(path: str | Path, value: Any) -> None:
    with atomic_write(path) as file:
        json.dump(value, file, ensure_ascii=False, indent=2)
        file.write("\n")


def read_json(path: str | Path) -> Any:
    return read_text_as("JSON", json.loads, path)


def read_text_as(kind: str, parse: Callable[[str], Any], path: str | Path) -> Any:
    """``parse`` a text file; on a ``ValueError`` the ``FileError`` says that it is not ``kind``."""
    path = Path(path)
    try:
        if is_special(path):  # it may never end
            raise FileError(path, "is a pipe or a device; expected a regular file")
        if path.stat().st_size > LARGEST_TEXT:
            raise FileError(path, f"is larger than any {kind} file of ours")
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})") from error
    except RecursionError as error:
        raise FileError(path, f"is not {kind} that can be read: it is nested too deep") from error
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(path, f"is not {kind} ({error})") from error


def cache_folder() -> Path:
    """``BLICER_CACHE`` if set, else the user's cache folder on this platform."""
    if given := os.environ.get("BLICER_CACHE"):
        return Path(given).expanduser()
    return Path(platformdirs.user_cache_dir("blicer", appauthor=False))


def digest(*parts: Any, length: int = 32) -> str:
    """Hash of arrays, strings, bytes and JSON values, in hexadecimal digits.

    The kind and size of every part are hashed too, so parts cannot be confused with each other.
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
