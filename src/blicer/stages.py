"""Where finished stages of long work are kept: folders named after all that they depend on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np


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
