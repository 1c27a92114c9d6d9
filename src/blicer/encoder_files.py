"""What tells two versions of an encoder apart: its files, whatever its folder is called."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from blicer import lite

_BLOCK = 1 << 20


def encoder_version(name: str | Path) -> str:
    """A digest that changes with what an encoder computes; empty for a name on the Hub."""
    if str(name) == lite.NAME:
        return lite.version()
    files = local_files(name)
    states = tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    return _digest(states) if files else ""


def local_files(name: str | Path) -> list[Path]:
    """The files of a folder that make up its encoder; none where there is no such folder."""
    folder = Path(name).expanduser()
    if not str(name) or not folder.is_dir():
        return []
    kinds = ("*.safetensors", "*.bin", "*.json", "*.model", "*.txt")
    return sorted(path for kind in kinds for path in folder.glob(kind) if path.is_file())


@lru_cache(maxsize=16)
def _digest(states: tuple[tuple[str, int, int], ...]) -> str:
    """Of names and contents; taken once while sizes and times stay the same."""
    digest = hashlib.sha256()
    for path, _, _ in states:
        digest.update(Path(path).name.encode())
        with Path(path).open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()
