"""Every number of cross-encoder training; those that the paper fixes come from the presets."""

from __future__ import annotations

import dataclasses
import math
import numbers
from dataclasses import dataclass
from typing import Any

from blicer.config import PRESETS, Config, preset_name
from blicer.errors import InputError

SUPERVISED = Config()


@dataclass(frozen=True)
class TrainingSettings:
    """METHOD.md §3, and a few choices beyond it that are off by default."""

    epochs: int = SUPERVISED.epochs
    learning_rate: float = SUPERVISED.learning_rate
    weight_decay: float = SUPERVISED.weight_decay
    batch_size: int = SUPERVISED.batch_size
    max_length: int = SUPERVISED.max_length
    warmup: float = SUPERVISED.warmup
    """Part of all steps over which the learning rate rises; it then falls to 0."""
    seed: int = SUPERVISED.seed
    max_grad_norm: float = 1.0
    micro_batch_size: int = 0
    """Pairs in one forward pass; gradients of a batch's passes add up to the whole batch's.
    0: the whole batch on a GPU, 64 on a CPU."""

    freeze_embeddings: float = 0.0
    """Part of all steps, from the first, during which the table of word pieces stays as it is."""
    embedding_lr: float = 1.0
    """The table's learning rate, as a multiple of the others'."""
    layer_decay: float = 1.0
    """Each layer's learning rate as a multiple of that of the layer above it."""
    average_last: float = 0.0
    """Part of all steps, at the end, whose mean weights are the result (0: the last weights)."""
    lora_rank: int = 0
    """Rank of LoRA updates (needs peft), merged into plain weights at the end. 0: full training."""
    early_stopping: int = 0
    """Stop after so many looks at held-out pairs without a better loss; keep the best. 0: off."""
    looks_per_epoch: int = 2
    """How often in an epoch the loss on held-out pairs is measured, when some are given."""

    def __post_init__(self) -> None:
        positive = ("epochs", "learning_rate", "batch_size", "max_length", "max_grad_norm")
        for name in (*positive, "looks_per_epoch"):
            self._expect(name, getattr(self, name) > 0, "a number above 0")
        for name in ("weight_decay", "micro_batch_size", "embedding_lr", "lora_rank"):
            self._expect(name, getattr(self, name) >= 0, "a number of at least 0")
        self._expect("early_stopping", self.early_stopping >= 0, "a number of at least 0")
        for name in ("warmup", "freeze_embeddings", "average_last"):
            self._expect(name, 0 <= getattr(self, name) <= 1, "a number from 0 to 1")
        self._expect("layer_decay", 0 < self.layer_decay <= 1, "a number above 0 and up to 1")
        if self.early_stopping and self.average_last:
            raise InputError("early_stopping and average_last both choose the weights; give one")

    def _expect(self, name: str, good: bool, expected: str) -> None:
        value = getattr(self, name)
        if not good or not math.isfinite(value):
            raise InputError(f"{name} is {value!r}; expected {expected}")

    @classmethod
    def from_preset(cls, preset: str, **overrides: Any) -> TrainingSettings:
        """A preset's numbers with some changed; a name that there is not gives a sentence."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        paper = {**dataclasses.asdict(SUPERVISED), **PRESETS[preset_name(preset)]}
        values = {name: value for name, value in paper.items() if name in fields}
        for name, value in overrides.items():
            if name not in fields:
                raise InputError(f"there is no setting {name!r}; there are {', '.join(fields)}")
            whole = isinstance(fields[name].default, int)
            kinds: Any = numbers.Integral if whole else numbers.Real
            if isinstance(value, bool) or not isinstance(value, kinds):
                kind = "a whole number" if whole else "a number"
                raise InputError(f"{name} is {value!r}; expected {kind}")
            values[name] = int(value) if whole else float(value)
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def learning_rate_factor(step: int, total: int, warmup: float) -> float:
    """Linear rise over the first ``warmup`` of the steps, then linear fall to 0 (METHOD.md §3)."""
    rising = math.ceil(warmup * total)
    if step < rising:
        return step / max(1, rising)
    return (total - step) / max(1, total - rising)
