"""The spaces: two monolingual vector sets and seeds in, one shared space out (METHOD.md §6).

One file a method, all of one shape (``base.Aligner``). Names load on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blicer.align.base import Aligner
    from blicer.align.contrastive import Contrastive
    from blicer.align.encoder_mix import Mixed
    from blicer.align.procrustes import Procrustes
    from blicer.align.rcsls import RCSLS
    from blicer.align.space import Space
    from blicer.align.vecmap import VecMap

__all__ = ["METHODS", "RCSLS", "Aligner", "Contrastive", "Mixed", "Procrustes", "Space", "VecMap"]

_HOME = {
    "Aligner": "base",
    "Contrastive": "contrastive",
    "Mixed": "encoder_mix",
    "Procrustes": "procrustes",
    "RCSLS": "rcsls",
    "Space": "space",
    "VecMap": "vecmap",
}

METHODS = {
    "procrustes": "Procrustes",
    "vecmap": "VecMap",
    "rcsls": "RCSLS",
    "c1": "Contrastive",
    "c2": "Mixed",
}
"""What a method is called on the command line, and its class here."""


def aligner_class(name: str) -> Any:
    if name not in METHODS:
        from blicer.errors import InputError

        raise InputError(
            f"there is no space {name!r}; give one of {', '.join(METHODS)} or the folder of a "
            "saved space"
        )
    return __getattr__(METHODS[name])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'blicer.align' has no attribute {name!r}")
    return getattr(importlib.import_module(f"blicer.align.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
