"""Scorers: whatever says how much two words look like translations, in [0, 1].

Each has a ``name`` and ``score(source_words, target_words)``; any number can be mixed. One that
learns has ``fit(source_words, target_words, is_positive)``, ``save(folder)`` and
``load(folder, values)`` too.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from blicer.errors import InputError
from blicer.mixing import Scorer

_HOME = {
    "cross-encoder": ("cross_encoder", "CrossEncoderScorer"),
    "endings": ("endings", "Endings"),
    "untuned": ("cross_encoder", "Untuned"),
    "spelling": ("spelling", "Spelling"),
    "use-cosine": ("use_cosine", "UseCosine"),
}
SCORERS = tuple(_HOME)


ENCODERS = ("cross-encoder", "untuned")
NEED_SEEDS = ("endings",)  # learn from the seeds of their own language pair


def check_scorer(name: str) -> None:
    """A name that no scorer has is the user's mistake, and said."""
    if name not in _HOME:
        raise InputError(f"there is no scorer {name!r}; there are {', '.join(SCORERS)}")


def _class(name: str) -> Any:
    check_scorer(name)
    module, class_name = _HOME[name]
    return getattr(importlib.import_module(f"blicer.scorers.{module}"), class_name)


def make_scorer(name: str) -> Scorer:
    """A scorer that needs no encoder, by name; one that learns is not fitted yet."""
    if name in ENCODERS:
        raise InputError(f"the scorer {name} needs an encoder; it cannot be made by name alone")
    scorer: Scorer = _class(name)()
    return scorer


def load_scorer(folder: Path, values: dict[str, Any], **options: Any) -> Scorer:
    """A scorer that a translator saved in ``folder``."""
    kind = _class(values["name"])
    if hasattr(kind, "load"):
        loaded: Scorer = kind.load(folder, values, **options)
        return loaded
    return make_scorer(values["name"])
