"""A last layer that computes its first token alone, where nothing else is read.

The heads of these architectures read one token, so the other tokens' outputs of the last layer are
never used. With one query a token needs no projection of its own either: its score is
``q·(K h + b) = (Kᵀ q)·h + q·b``, and the values add up to ``Σ a (V h + b) = V (Σ a h) + b Σ a``.
The results are the same up to rounding; an encoder of one layer, as `lite`, needs less than half
of the work.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

READ_FIRST_TOKEN = ("bert", "camembert", "electra", "roberta", "xlm-roberta")


def spare_the_last_layer(model: Any) -> None:
    """Make the model's last layer compute its first token only, if that is all that is read."""
    if model.config.model_type in READ_FIRST_TOKEN:
        attention = model.base_model.encoder.layer[-1].attention
        attention.forward = MethodType(_first_token_attention, attention)


def _first_token_attention(
    attention: Any, hidden_states: Tensor, attention_mask: Tensor | None = None, **_: Any
) -> tuple[Tensor, None]:
    """Takes the place of the attention block's forward: (n, length, d) to (n, 1, d)."""
    own, first = attention.self, hidden_states[:, :1]
    count, heads, size = len(first), own.num_attention_heads, own.attention_head_size
    query = own.query(first).view(count, heads, size)
    plain = type(own.key) is nn.Linear and type(own.value) is nn.Linear
    keys = None if plain else _by_head(own.key(hidden_states), heads)
    if keys is None:
        folded = torch.einsum("nhs,hsd->nhd", query, _weights_by_head(own.key, heads))
        scores = folded @ hidden_states.transpose(1, 2)
        if own.key.bias is not None:  # moves all tokens alike, but keeps its place in the graph
            scores = scores + (query * own.key.bias.view(heads, size)).sum(dim=2, keepdim=True)
    else:  # an adapter stands between: its tokens are projected as usual
        scores = (query[:, :, None] @ keys.transpose(2, 3))[:, :, 0]
    scores = scores * own.scaling
    if attention_mask is not None:
        mask = attention_mask[:, :, 0]
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores + mask
    shares = own.dropout(scores.softmax(dim=-1))
    if plain:
        mean = shares @ hidden_states.to(shares.dtype)
        read = torch.einsum("nhd,hsd->nhs", mean, _weights_by_head(own.value, heads))
        if own.value.bias is not None:
            read = read + shares.sum(dim=2, keepdim=True) * own.value.bias.view(heads, size)
    else:
        values = _by_head(own.value(hidden_states), heads)
        read = (shares[:, :, None] @ values.to(shares.dtype))[:, :, 0]
    return attention.output(read.reshape(count, 1, heads * size), first), None


def _by_head(rows: Tensor, heads: int) -> Tensor:
    """(n, length, heads · size) to (n, heads, length, size)."""
    count, length, _ = rows.shape
    return rows.view(count, length, heads, -1).transpose(1, 2)


def _weights_by_head(linear: nn.Linear, heads: int) -> Tensor:
    """(heads · size, d) to (heads, size, d)."""
    return linear.weight.view(heads, -1, linear.in_features)
