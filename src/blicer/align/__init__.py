"""Aligners: two monolingual vector sets and seed pairs in, one shared space out.

Each method is one file with one ``Aligner`` (docs/method.md §6) and one line in ``METHODS``.
Classes are imported on first use.
"""

from __future__ import annotations

from pkgutil import resolve_name
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
    "twoview": "blicer.align.two_view:TwoView",
    "procrustes": "blicer.align.procrustes:Procrustes",
    "vecmap": "blicer.align.vecmap:VecMap",
    "rcsls": "blicer.align.rcsls:RCSLS",
    "c1": "blicer.align.contrastive:Contrastive",
    "c2": "blicer.align.encoder_mix:EncoderMix",
}
"""Name of a method on the command line, and where its class is."""


def aligner_class(method: str) -> type[Aligner]:
    """The class of a method, by its name on the command line; unknown names raise InputError."""
    if method not in METHODS:
        raise InputError(f"there is no space {method!r}; expected one of {', '.join(METHODS)}")
    return resolve_name(METHODS[method])


def check_seedless(method: str, seeds: int, needed: int) -> None:
    """Raise if the method cannot do with fewer seed pairs than are needed."""
    if "unsupervised" not in aligner_class(method).presets:
        few = f"at least {needed} seed pairs here, not {seeds}; with fewer take twoview or vecmap"
        wanted = few if seeds else "seed pairs; without any take twoview or vecmap"
        raise InputError(f"{method} needs {wanted}")


def __getattr__(name: str) -> Any:
    places = [*METHODS.values(), "blicer.align.base:Aligner", "blicer.align.space:Space"]
    place = next((place for place in places if place.endswith(f":{name}")), None)
    if place is None:
        raise AttributeError(f"module 'blicer.align' has no attribute {name!r}")
    return resolve_name(place)


def __dir__() -> list[str]:
    return [*__all__, "METHODS", "aligner_class", "check_seedless"]
