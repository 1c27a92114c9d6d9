"""Taking the wanted files, and nothing else, out of a downloaded zip archive."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path, PurePosixPath

from blicer.errors import FileError
from blicer.files import atomic_write

_LARGEST = 100_000_000  # a dictionary has a hundred kilobytes; more is a mistake or an attack


def extract(archive: Path, name: str, target: Path) -> None:
    """Write the file of this name, in whatever folder of the archive, to ``target``.

    Where it goes is decided by the caller alone: no name inside the archive can lead elsewhere.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            content = opened.read(_find(archive, opened, name))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise FileError(archive, f"is a broken zip archive ({error}); delete it") from error
    except (RuntimeError, NotImplementedError) as error:  # a password, an unknown compression
        raise FileError(archive, f"cannot be unpacked ({error})") from error
    except OSError as error:
        raise FileError(archive, f"cannot be read ({error.strerror or error})") from error
    with atomic_write(target, "wb") as file:
        file.write(content)


def _find(archive: Path, opened: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    files = [info for info in opened.infolist() if not info.is_dir()]
    same = [info for info in files if _base_name(info) == name]
    if not same:
        pairs = sorted({_base_name(info).split(".")[0] for info in files} - {""})
        raise FileError(archive, f"has no {name}; what it has: {', '.join(pairs)}")
    if len({(info.CRC, info.file_size) for info in same}) > 1:
        raise FileError(archive, f"has {len(same)} different files {name}")
    if same[0].file_size > _LARGEST:
        raise FileError(archive, f"{name} in it has {same[0].file_size} bytes; not unpacked")
    return same[0]


def _base_name(info: zipfile.ZipInfo) -> str:
    return PurePosixPath(info.filename.replace("\\", "/")).name
