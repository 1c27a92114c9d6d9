"""Tuning an encoder: learning rates, the rows of the embedding table in use, checkpoints."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from blicer.config import Config
from blicer.encoders.loading import Ints
from blicer.errors import BlicerError, FileError
from blicer.files import atomic_folder, file_sha256, read_json, write_json
from blicer.progress import note

# -- embedding rows --------------------------------------------------------------------------------


class EmbeddingRows(nn.Embedding):
    """Some rows of a table, looked up by the ids of the whole table."""

    place: Tensor

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(self.place[ids])


def train_rows_only(model: Any, *token_ids: Ints) -> Callable[[], None]:
    """Swap the embedding table for the rows of these tokens.

    The returned function puts the whole table back, with the trained rows.
    """
    rows = np.unique(np.concatenate(token_ids))
    table = model.get_input_embeddings()
    plain = type(table) is nn.Embedding and table.max_norm is None and table.weight.requires_grad
    uses = sum(p is table.weight for m in model.modules() for p in m.parameters(recurse=False))
    # A table that another layer also uses (tied weights) stays whole.
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

_LAYER = re.compile(r"\.(?:layers?|blocks?|h)\.(\d+)\.")


def learning_rate_factor(step: int, total: int, warmup: float) -> float:
    """Linear rise over the first ``warmup`` of the steps, then linear fall to 0 (method §3)."""
    rising = math.ceil(warmup * total)
    if step < rising:
        return step / max(1, rising)
    return (total - step) / max(1, total - rising)


def layer_of(name: str, n_layers: int) -> int:
    """0 for what lies under the layers (embeddings), 1 … n for the layers, n + 1 above them."""
    if found := _LAYER.search(f".{name}"):
        return int(found.group(1)) + 1
    return 0 if "embedding" in name else n_layers + 1


def make_optimiser(model: Any, config: Config) -> torch.optim.AdamW:
    """AdamW over what requires a gradient, one group for each (rate, decay) that occurs.

    Biases and normalisation gains (one-dimensional) do not decay, as usual for these encoders.
    """
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    table = getattr(model.get_input_embeddings(), "weight", None)
    n_layers = max((layer_of(name, -1) for name, _ in trained), default=0)
    groups: dict[tuple[float, float, bool], list[Any]] = defaultdict(list)
    for name, parameter in trained:
        is_table = parameter is table
        rate = config.layer_decay ** (n_layers + 1 - layer_of(name, n_layers))
        rate *= config.embedding_lr if is_table else 1.0
        decay = config.weight_decay if parameter.ndim > 1 else 0.0
        groups[rate, decay, is_table].append(parameter)
    return torch.optim.AdamW(
        [
            {"params": members, "weight_decay": decay, "rate": rate, "is_table": is_table}
            for (rate, decay, is_table), members in groups.items()
        ],
        lr=config.learning_rate,
        fused=all(p.device.type in ("cpu", "cuda") for _, p in trained),
    )


def set_step(
    optimiser: torch.optim.AdamW, config: Config, step: int, total: int
) -> list[nn.Parameter]:
    """Set every group's learning rate for this step; returns what stays frozen in it."""
    factor = learning_rate_factor(step, total, config.warmup)
    frozen: list[nn.Parameter] = []
    for group in optimiser.param_groups:
        group["lr"] = config.learning_rate * factor * group["rate"]
        if group["is_table"] and step < round(config.freeze_embeddings * total):
            frozen += group["params"]
    return frozen


# -- checkpoints -----------------------------------------------------------------------------------

STATE, TENSORS = "state.json", "tensors.safetensors"
# A checkpoint is due after this time, and after 20 times what the last one took (5 % of the work).
SECONDS, SHARE = 60.0, 20.0


class Checkpoints:
    """The newest state of one training run, in a folder of its own. Survives ``kill -9``.

    A checkpoint is a folder with the tensors and a state.json with their hash and the
    ``fingerprint`` of the run (data, settings, initial weights). It is complete or absent. Those
    whose hash or fingerprint does not match are ignored, so a changed command starts anew.
    """

    def __init__(self, folder: str | Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = Path(folder), fingerprint
        self._saved_at, self._saving_took = time.monotonic(), 0.0

    def due(self) -> bool:
        waited = time.monotonic() - self._saved_at
        return waited > max(SECONDS, SHARE * self._saving_took)

    def save(
        self,
        step: int,
        trained: Mapping[str, nn.Parameter],
        optimiser: torch.optim.Optimizer,
        more: Mapping[str, Mapping[str, Tensor]],
        state: dict[str, Any],
    ) -> None:
        """Replace the previous checkpoint. A full disk is noted, but does not stop training.

        ``trained`` and ``optimiser`` come back by ``restore``; ``more`` groups of tensors and the
        JSON ``state`` are returned by it.
        """
        started = time.monotonic()
        moments = optimiser.state_dict()["state"].items()
        groups = {"weights": trained, **more, **{f"moments {i}": found for i, found in moments}}
        tensors = {
            f"{group}|{name}": tensor.detach().contiguous()
            for group, members in groups.items()
            for name, tensor in members.items()
        }
        place = self.folder / f"step-{step:09d}"
        try:
            with atomic_folder(place) as new:
                save_file(tensors, new / TENSORS)
                info = {"fingerprint": self.fingerprint, "sha256": file_sha256(new / TENSORS)}
                write_json(new / STATE, info | {"step": step, "state": state})
            self._remove("step-*", but=place)
        except (BlicerError, SafetensorError) as error:
            note(f"no checkpoint could be written ({error}); training goes on without")
        self._saved_at = time.monotonic()
        self._saving_took = self._saved_at - started

    @torch.no_grad()
    def restore(
        self, trained: Mapping[str, nn.Parameter], optimiser: torch.optim.Optimizer
    ) -> tuple[int, dict[str, dict[str, Tensor]], dict[str, Any]] | None:
        """Go back to the newest sound checkpoint of this very run; returns step, more and state."""
        self._remove(".step-*")  # what a killed process left half-written
        for place in sorted(self.folder.glob("step-*"), reverse=True):
            try:
                info = read_json(place / STATE)
                if info["fingerprint"] != self.fingerprint:
                    note(f"{place}: belongs to another run (other data or settings); not used")
                    continue
                if file_sha256(place / TENSORS) != info["sha256"]:
                    raise FileError(place / TENSORS, "does not match its hash")
                tensors = load_file(place / TENSORS)
            except (BlicerError, SafetensorError, OSError, KeyError, TypeError) as error:
                note(f"{place}: the checkpoint is damaged ({error}) and is not used")
                continue
            more: dict[str, dict[str, Tensor]] = defaultdict(dict)
            moments: dict[int, dict[str, Tensor]] = defaultdict(dict)
            for full, value in tensors.items():
                group, _, name = full.partition("|")
                if group == "weights":
                    trained[name].copy_(value)
                elif group.startswith("moments "):
                    moments[int(group.split()[1])][name] = value
                else:
                    more[group][name] = value
            optimiser.load_state_dict(optimiser.state_dict() | {"state": moments})
            note(f"going on from the checkpoint at step {info['step']}")
            return info["step"], more, info["state"]
        return None

    def clear(self) -> None:
        """Remove every checkpoint, and the folder unless it holds something else."""
        self._remove(".step-*", "step-*")
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _remove(self, *patterns: str, but: Path | None = None) -> None:
        for path in [path for pattern in patterns for path in self.folder.glob(pattern)]:
            if path != but:
                shutil.rmtree(path, ignore_errors=True)
