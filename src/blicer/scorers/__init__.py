"""Scorers, which score how much two words look like translations, in [0, 1].

A scorer is one file here and one line in ``SCORERS``. Its class has a ``name``, a docstring whose
first line is its help text, and ``score(source_words, target_words)``; one that uses the space
instead of words has ``score_retrieved(found)`` (``retrieval.py``). One that learns also has
``fit(source_words, target_words, is_positive, of_seeds)`` (``of_seeds`` marks the seeds and the
wrong pairs of their words), ``save(folder)`` and ``load(folder, values)``. ``needs_seeds``: it
learns from seeds of its own language pair. ``signed``: its weight may be negative.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from blicer.errors import InputError
from blicer.files import file_sha256

CROSS_ENCODER, UNTUNED = "cross-encoder", "untuned"
# The pipeline builds these two: they need an encoder, which it loads, trains and caches.
NEED_ENCODER = (CROSS_ENCODER, UNTUNED)

SCORERS: dict[str, str] = {
    CROSS_ENCODER: "blicer.scorers.cross_encoder:CrossEncoderScorer",
    UNTUNED: "blicer.scorers.cross_encoder:Untuned",
    "endings": "blicer.scorers.endings:Endings",
    "transducer": "blicer.scorers.transducer:Transducer",
    "static": "blicer.scorers.static:Static",
    "way-back": "blicer.scorers.retrieval:WayBack",
    "frequency": "blicer.scorers.retrieval:Frequency",
    "frequency-match": "blicer.scorers.retrieval:FrequencyMatch",
    "spelling": "blicer.scorers.spelling:Spelling",
    "use-cosine": "blicer.scorers.use_cosine:UseCosine",
}


class Scorer(Protocol):
    """Scores how much two words look like translations, in [0, 1]."""

    @property
    def name(self) -> str: ...

    def score(self, source: Sequence[str], target: Sequence[str], /) -> NDArray[np.float32]:
        """Score each pair ``(source[i], target[i])``."""
        ...


def scorer_class(name: str) -> Any:
    """The class of a scorer; unknown names raise ``InputError``."""
    if name not in SCORERS:
        raise InputError(f"there is no scorer {name!r}; there are {', '.join(SCORERS)}")
    return resolve_name(SCORERS[name])


def make_scorer(name: str) -> Scorer:
    """A new scorer that needs no encoder; one that learns is not fitted yet."""
    if name in NEED_ENCODER:
        raise InputError(f"the scorer {name} needs an encoder; it cannot be made by name alone")
    return scorer_class(name)()


def needs_seeds(name: str) -> bool:
    """Whether the scorer learns from seeds of its own language pair."""
    return bool(getattr(scorer_class(name), "needs_seeds", False))


def is_signed(name: str) -> bool:
    """Whether the scorer's weight may be negative: more of it need not be better."""
    return name in SCORERS and bool(getattr(scorer_class(name), "signed", False))


def check_scorers(names: Sequence[str]) -> None:
    """Raise ``InputError`` for unknown and repeated names."""
    for name in names:
        scorer_class(name)
        if list(names).count(name) > 1:
            raise InputError(f"the scorer {name} is named twice")


def save_scorers(scorers: Sequence[Scorer], folder: Path) -> list[dict[str, Any]]:
    """Write what the scorers have learned; returns further values for ``load_scorer``."""
    saved = []
    for scorer in scorers:
        save = getattr(scorer, "save", None)
        saved.append({"name": scorer.name, **(save(folder) if save else {})})
    return saved


def scorer_states(scorers: Sequence[Scorer]) -> list[Any]:
    """Values and file hashes of what the scorers have learned: equal if they score alike."""
    with tempfile.TemporaryDirectory() as name:
        values: list[Any] = list(save_scorers(scorers, Path(name)))
        files = sorted(path for path in Path(name).rglob("*") if path.is_file())
        return values + [[path.name, file_sha256(path)] for path in files]


def load_scorer(folder: Path, values: dict[str, Any], **options: Any) -> Scorer:
    """Load a scorer that a translator saved in ``folder``."""
    kind = scorer_class(values["name"])
    return kind.load(folder, values, **options) if hasattr(kind, "load") else kind()


def check_lengths(source: Sequence[str], target: Sequence[str]) -> None:
    if len(source) != len(target):
        raise InputError(f"{len(source)} source words were given with {len(target)} target words")
