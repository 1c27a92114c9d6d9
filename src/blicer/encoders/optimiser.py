"""Which parameter learns how fast, and the optimiser's state as plain named tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import embedding

from blicer.crossencoder.settings import TrainingSettings, learning_rate_factor
from blicer.crossencoder.tokens import Ints


# === crossencoder.embedding_rows ===
def rows_in_use(ids: Sequence[Ints], pad_id: int) -> Ints:
    """Distinct token ids, ascending, with the padding's."""
    return np.unique(np.concatenate([*(np.unique(array) for array in ids), [pad_id]]))


class EmbeddingRows(nn.Module):
    """Some rows of a table, looked up by the ids of the whole table."""

    place: torch.Tensor

    def __init__(self, table: nn.Embedding, rows: Ints) -> None:
        super().__init__()
        chosen = torch.from_numpy(rows).to(table.weight.device)
        place = torch.zeros(table.num_embeddings, dtype=torch.int64, device=table.weight.device)
        place[chosen] = torch.arange(len(rows), device=table.weight.device)
        self.weight = nn.Parameter(table.weight.detach()[chosen].clone())
        self.register_buffer("place", place, persistent=False)
        pad = table.padding_idx
        self.padding_idx = int(place[pad]) if pad is not None and pad in rows else None

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return embedding(self.place[ids], self.weight, padding_idx=self.padding_idx)


def train_rows_only(model: Any, rows: Ints) -> Callable[[], None]:
    """Swap the table for its rows in use; the returned function puts the whole table back."""
    table = model.get_input_embeddings()
    plain = type(table) is nn.Embedding and table.max_norm is None and table.weight.requires_grad
    uses = sum(p is table.weight for m in model.modules() for p in m.parameters(recurse=False))
    # A table that another layer also uses (tied weights) stays whole.
    if not plain or uses > 1 or len(rows) >= table.num_embeddings:
        return lambda: None
    part = EmbeddingRows(table, rows)
    model.set_input_embeddings(part)

    @torch.no_grad()
    def restore() -> None:
        table.weight[torch.from_numpy(rows).to(table.weight.device)] = part.weight
        model.set_input_embeddings(table)

    return restore


# === crossencoder.optimiser ===
_LAYER = re.compile(r"\.(?:layers?|blocks?|h)\.(\d+)\.")


def layer_of(name: str, n_layers: int) -> int:
    """0 for what lies under the layers (embeddings), 1 … n for the layers, n + 1 above them."""
    found = _LAYER.search(f".{name}")
    if found:
        return int(found.group(1)) + 1
    return 0 if "embedding" in name else n_layers + 1


def make_optimiser(model: Any, settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW over what requires a gradient, one group for each (rate, decay) that occurs.

    Biases and normalisation gains (one-dimensional) do not decay, as usual for these encoders.
    """
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    table = getattr(model.get_input_embeddings(), "weight", None)
    n_layers = max((layer_of(name, -1) for name, _ in trained), default=0)
    groups: dict[tuple[float, float, bool], list[Any]] = {}
    for name, parameter in trained:
        is_table = parameter is table
        depth = layer_of(name, n_layers)
        rate = settings.layer_decay ** (n_layers + 1 - depth)
        rate *= settings.embedding_lr if is_table else 1.0
        decay = settings.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rate, decay, is_table), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": members, "weight_decay": decay, "rate": rate, "is_table": is_table}
            for (rate, decay, is_table), members in groups.items()
        ],
        lr=settings.learning_rate,
        fused=all(p.device.type in ("cpu", "cuda") for _, p in trained),
    )


def set_step(
    optimiser: torch.optim.AdamW, settings: TrainingSettings, step: int, total: int
) -> list[torch.nn.Parameter]:
    """Set every group's learning rate for this step; returns what stays frozen in it."""
    factor = learning_rate_factor(step, total, settings.warmup)
    frozen: list[torch.nn.Parameter] = []
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * factor * group["rate"]
        if group["is_table"] and step < round(settings.freeze_embeddings * total):
            frozen += group["params"]
    return frozen


def optimiser_tensors(
    optimiser: torch.optim.AdamW, names: Mapping[str, torch.nn.Parameter]
) -> dict[str, torch.Tensor]:
    """``<parameter>|<state>`` to tensor."""
    return {
        f"{name}|{key}": value
        for name, parameter in names.items()
        for key, value in optimiser.state.get(parameter, {}).items()
        if torch.is_tensor(value)
    }


def restore_optimiser(
    optimiser: torch.optim.AdamW,
    names: Mapping[str, torch.nn.Parameter],
    tensors: Mapping[str, torch.Tensor],
) -> None:
    for full, value in tensors.items():
        name, _, key = full.rpartition("|")
        parameter = names[name]
        # The step counter stays where AdamW keeps it: with the parameter only when fused.
        fused = bool(optimiser.param_groups[0].get("fused"))
        device = parameter.device if key != "step" or fused else value.device
        optimiser.state[parameter][key] = value.clone().to(device)
