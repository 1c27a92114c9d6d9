"""Tuning an encoder: learning rates, the rows of the embedding table in use, checkpoints."""

from __future__ import annotations

import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from blicer.config import Config
from blicer.encoders.loading import Ints
from blicer.errors import BlicerError
from blicer.files import digest
from blicer.progress import note

# -- embedding rows --------------------------------------------------------------------------------


class EmbeddingRows(nn.Embedding):
    """Some rows of a table, looked up by the ids of the whole table."""

    place: Tensor

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(self.place[ids])


def train_rows_only(model: Any, *token_ids: Ints) -> Callable[[], None]:
    """Replace the embedding table by the rows of these tokens.

    The returned function restores the whole table, with the trained rows.
    """
    rows = np.unique(np.concatenate(token_ids))
    table = model.get_input_embeddings()
    plain = type(table) is nn.Embedding and table.max_norm is None and table.weight.requires_grad
    uses = sum(p is table.weight for m in model.modules() for p in m.parameters(recurse=False))
    # A table that another layer shares (tied weights) stays whole.
    if not plain or uses > 1 or len(rows) >= table.num_embeddings:
        return lambda: None
    chosen = torch.from_numpy(rows).to(table.weight.device)
    place = torch.zeros(table.num_embeddings, dtype=torch.int64, device=table.weight.device)
    place[chosen] = torch.arange(len(rows), device=table.weight.device)
    pad = int(place[table.padding_idx]) if table.padding_idx in rows else None
    make: Any = EmbeddingRows.from_pretrained
    part = make(table.weight.detach()[chosen], freeze=False, padding_idx=pad)
    part.place = place
    model.set_input_embeddings(part)

    @torch.no_grad()
    def restore() -> None:
        table.weight[chosen] = part.weight
        model.set_input_embeddings(table)

    return restore


# -- optimiser -------------------------------------------------------------------------------------


def learning_rate_factor(step: int, total: int, warmup: float) -> float:
    """Linear rise over the first ``warmup`` of the steps, then linear fall to 0 (method §3)."""
    rising = math.ceil(warmup * total)
    if step < rising:
        return step / max(1, rising)
    return (total - step) / max(1, total - rising)


def make_optimiser(model: Any, config: Config) -> torch.optim.AdamW:
    """AdamW over all parameters that require gradients.

    Biases and normalisation gains (one-dimensional) do not decay, as usual for these encoders.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    table = getattr(model.get_input_embeddings(), "weight", None)
    groups: dict[tuple[float, bool], list[nn.Parameter]] = defaultdict(list)
    for parameter in trained:
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        groups[decay, parameter is table].append(parameter)
    return torch.optim.AdamW(
        [
            {"params": members, "weight_decay": decay, "is_table": is_table}
            for (decay, is_table), members in groups.items()
        ],
        lr=config.learning_rate,
        fused=all(p.device.type in ("cpu", "cuda") for p in trained),
    )


def set_step(optimiser: torch.optim.AdamW, config: Config, step: int, total: int) -> None:
    """Set the learning rate of this step, and freeze the embedding table if due."""
    for group in optimiser.param_groups:
        group["lr"] = config.learning_rate * learning_rate_factor(step, total, config.warmup)
        if group["is_table"]:
            for parameter in group["params"]:
                parameter.requires_grad_(step >= round(config.freeze_embeddings * total))


def check_finite(value: float, where: str, rate: float) -> None:
    """Raise ``BlicerError`` if training has diverged."""
    if not math.isfinite(value):
        raise BlicerError(
            f"training failed: at {where} the loss is {value}; learning_rate is {rate:g}: lower it"
        )


# -- checkpoints -----------------------------------------------------------------------------------

# Seconds between checkpoints: at least this, and 20 times what the last one took (5 % overhead).
SECONDS, SHARE = 60.0, 20.0
Groups = dict[str, dict[str, Tensor]]


class Checkpoints:
    """The newest state of one training run, in a file beside its output. Survives ``kill -9``.

    The file has the tensors, their hash and the ``fingerprint`` of the run (data, settings, initial
    weights). It is complete or absent. It is ignored if the hash or the fingerprint does not match,
    so a changed command starts from the beginning.
    """

    def __init__(self, output: Path, fingerprint: str) -> None:
        self.file = output.with_name(f"{output.name}.checkpoint.safetensors")
        self.fingerprint = fingerprint
        self._unfinished = self.file.with_suffix(".part")
        self._saved_at, self._saving_took = time.monotonic(), 0.0

    def due(self) -> bool:
        waited = time.monotonic() - self._saved_at
        return waited > max(SECONDS, SHARE * self._saving_took)

    def save(
        self,
        trained: Mapping[str, nn.Parameter],
        optimiser: torch.optim.Optimizer,
        more: Groups,
        state: dict[str, Any],
    ) -> None:
        """Replace the previous checkpoint. A full disk is noted, not raised.

        ``restore`` restores ``trained`` and ``optimiser``, and returns ``more`` (groups of tensors)
        and ``state`` (JSON values).
        """
        started = time.monotonic()
        moments = optimiser.state_dict()["state"].items()
        groups = {"weights": trained, **more, **{f"moments {i}": found for i, found in moments}}
        tensors = {
            f"{group}|{name}": tensor.detach().contiguous()
            for group, members in groups.items()
            for name, tensor in members.items()
        }
        about = {"fingerprint": self.fingerprint, "state": json.dumps(state)}
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._unfinished.unlink(missing_ok=True)  # never through a link that somebody left
            save_file(tensors, self._unfinished, about | {"hash": _hash(tensors)})
            os.replace(self._unfinished, self.file)
        except (OSError, SafetensorError) as error:
            note(f"no checkpoint could be written ({error}); training goes on without")
        self._saved_at = time.monotonic()
        self._saving_took = self._saved_at - started

    @torch.no_grad()
    def restore(
        self, trained: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer
    ) -> tuple[Groups, dict[str, Any]] | None:
        """Restore the checkpoint of this run; None if there is none, or if it is damaged."""
        if not self.file.exists():
            return None
        try:
            with safe_open(self.file, "pt") as file:
                about = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if about["fingerprint"] != self.fingerprint:
                note(f"{self.file}: belongs to another run (other data or settings); not used")
                return None
            if about["hash"] != _hash(tensors):
                raise ValueError("it does not match its hash")
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            note(f"{self.file}: the checkpoint is damaged ({error}) and is not used")
            return None
        groups: Groups = defaultdict(dict)
        for full, value in tensors.items():
            group, _, name = full.partition("|")
            groups[group][name] = value
        for name, value in groups.pop("weights").items():
            trained[name].copy_(value)
        moments = [group for group in groups if group.startswith("moments ")]
        kept = {int(group.split()[1]): groups.pop(group) for group in moments}
        optimiser.load_state_dict(optimiser.state_dict() | {"state": kept})
        note(f"going on from {self.file}")
        return groups, json.loads(about["state"])

    def clear(self) -> None:
        for file in (self.file, self._unfinished):
            file.unlink(missing_ok=True)


def _hash(tensors: Mapping[str, Tensor]) -> str:
    return digest([(name, digest(tensors[name].cpu().numpy())) for name in sorted(tensors)])
