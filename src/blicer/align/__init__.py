"""Aligners: two monolingual vector sets and seed pairs in, one shared space out.

Each method is one file with one ``Aligner`` (docs/method.md §6) and one line in ``METHODS``.
Classes are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from blicer.errors import InputError

if TYPE_CHECKING:
    from blicer.align.base import Aligner
    from blicer.align.contrastive import Contrastive
    from blicer.align.encoder_mix import EncoderMix
    from blicer.align.procrustes import Procrustes
    from blicer.align.rcsls import RCSLS
    from blicer.align.space import Space
    from blicer.align.two_view import TwoView
    from blicer.align.vecmap import VecMap

__all__ = [
    "RCSLS",
    "Aligner",
    "Contrastive",
    "EncoderMix",
    "Procrustes",
    "Space",
    "TwoView",
    "VecMap",
]

METHODS = {
    "twoview": ("two_view", "TwoView"),
    "procrustes": ("procrustes", "Procrustes"),
    "vecmap": ("vecmap", "VecMap"),
    "rcsls": ("rcsls", "RCSLS"),
    "c1": ("contrastive", "Contrastive"),
    "c2": ("encoder_mix", "EncoderMix"),
}
"""Name of a method on the command line, its module and its class."""


def aligner_class(method: str) -> type[Aligner]:
    """The class of a method, by its name on the command line; unknown names raise InputError."""
    if method not in METHODS:
        raise InputError(f"there is no space {method!r}; expected one of {', '.join(METHODS)}")
    found: type[Aligner] = __getattr__(METHODS[method][1])
    return found


def __getattr__(name: str) -> Any:
    homes = {kind: module for module, kind in METHODS.values()} | {
        "Aligner": "base",
        "Space": "space",
    }
    if name not in homes:
        raise AttributeError(f"module 'blicer.align' has no attribute {name!r}")
    return getattr(importlib.import_module(f"blicer.align.{homes[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "METHODS", "aligner_class"]
