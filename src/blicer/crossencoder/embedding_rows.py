"""Trains only those rows of the embedding table that occur in the data.

A multilingual table has 250,000 rows, of which a training set touches a few thousand. A row that
never occurs has no gradient, yet a plain optimiser holds moments for it and passes over it at
every step. So the table is swapped for its rows in use while training and put back afterwards.
Rows that do not occur stay as they were (plain AdamW would only shrink them, by some 0.03 %
in the paper's setups); the others are trained as in the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import embedding

from blicer.crossencoder.pair_tokens import Ints


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
