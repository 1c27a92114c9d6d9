"""Where finished stages of long work are kept: folders named after all that they depend on."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from blicer.errors import FileError

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
