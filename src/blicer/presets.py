"""The paper's numbers, in one place (METHOD.md sections 1 to 4 and the table of setups)."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from blicer.errors import InputError


def number(
    *, low: float, high: float | None = None, above: bool = False, **default: Any
) -> Any:  # Any, as dataclasses.field is declared: it stands where a number is declared
    """A dataclass field with its value's range (``above``: ``low`` itself is not in it)."""
    return field(metadata={"low": low, "high": high, "above": above}, **default)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Every number of the reranker. Names are the paper's where it has them."""

    preset: str

    # What differs between the setups
    n_aug: int = number(low=0)  # silver pairs added to the positives
    n_rep: int = number(low=0)  # how many times more often a positive appears than a negative
    delta: float = number(low=0)  # a negative scores at least its positive's score - delta
    alpha: float = number(low=0, high=1)  # labels: a z - a + 1 for positives, a z for negatives
    epochs: int = number(low=1)

    # Training pairs
    n_neg: int = number(low=1, default=28)  # nearest neighbours on each side of a positive
    n_freq: int = number(low=1, default=20_000)  # most frequent words that silver pairs start from
    n_aug_pool: int = number(low=1, default=6_000)  # silver candidates kept in each direction
    k_csls: int = number(low=1, default=10)  # neighbours that make a word's hubness
    template: str = "T15"

    # Cross-encoder
    learning_rate: float = number(low=0, above=True, default=1.2e-5)
    weight_decay: float = number(low=0, default=0.01)
    batch_size: int = number(low=1, default=256)
    max_length: int = number(low=4, default=20)  # tokens of both texts and their separators
    warmup: float = number(low=0, high=1, default=0.1)  # share of the steps
    seed: int = number(low=0, high=2**32 - 1, default=33)

    # Reranking
    n_cand: int = number(low=1, default=28)


SUPERVISED = Preset(preset="supervised", n_aug=0, n_rep=8, delta=0.1, alpha=0.7, epochs=3)
SEMI_SUPERVISED = Preset(
    preset="semi_supervised", n_aug=4_000, n_rep=4, delta=0.2, alpha=1.0, epochs=5
)
# As semi-supervised; the silver pairs are all the positives.
UNSUPERVISED = Preset(preset="unsupervised", n_aug=4_000, n_rep=4, delta=0.2, alpha=1.0, epochs=5)
# As supervised, on the pairs of two spaces that share a pivot language.
ZERO_SHOT = Preset(preset="zero_shot", n_aug=0, n_rep=8, delta=0.1, alpha=0.7, epochs=3)

PRESETS: dict[str, Preset] = {
    preset.preset: preset for preset in (SUPERVISED, SEMI_SUPERVISED, UNSUPERVISED, ZERO_SHOT)
}


# What an encoder needs other than the paper's; chosen on held-out training seeds.
# It stands between the preset and what the user says.
ENCODER_SETTINGS: dict[str, dict[str, Any]] = {
    "lite": {
        "template": "T1",
        "alpha": 0.0,
        "n_neg": 4,
        "epochs": 1,
        "n_rep": 1,
        "learning_rate": 1e-4,
        "batch_size": 512,
        "micro_batch_size": 512,
        "freeze_embeddings": 1.0,
        "average_last": 0.3,
        "weigh_positives": 1,
    },
}


def get_preset(name: str) -> Preset:
    """A preset by name; ``semi-supervised`` and ``Semi_Supervised`` are the same one."""
    key = "_".join(str(name).lower().replace("-", " ").replace("_", " ").split())
    if key not in PRESETS:
        near = get_close_matches(key, PRESETS, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(f"preset = {name!r}: expected one of {', '.join(PRESETS)}{hint}")
    return PRESETS[key]
