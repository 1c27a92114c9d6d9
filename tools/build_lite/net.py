"""The net: a one-layer ELECTRA classifier that starts as a comparison of two bags of pieces.

One layer is enough to compare: [CLS] reads the first word's pieces with one half of its heads and
the second word's with the other half, the feed-forward part sums squared differences
(gelu(z) + gelu(-z) is nearly quadratic), the classifier turns the sum into a logit. These
weights are set here by hand; everything then learns from there.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from transformers import ElectraConfig, ElectraForSequenceClassification

from tools.build_lite import features as f

HEADS, HEAD = 8, 32
SIDE = f.FREQUENCY + 1  # columns of a word that are compared: meaning, frequency
INNER = 1024
MEANING_SUM = 248  # the column of [CLS] that holds the sum
SHARPNESS, SUM_SCALE = 1.0, 0.04


def config(vocabulary_size: int) -> ElectraConfig:
    return ElectraConfig(
        vocab_size=vocabulary_size,
        embedding_size=f.WIDTH,
        hidden_size=HEADS * HEAD,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        intermediate_size=INNER,
        max_position_embeddings=128,
        type_vocab_size=2,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.0,
        classifier_dropout=0.1,
        layer_norm_eps=1e-6,
        num_labels=1,
        pad_token_id=0,
        tie_word_embeddings=False,
    )


@torch.no_grad()
def start(table: Tensor, seed: int) -> ElectraForSequenceClassification:
    """The model with ``table`` as its pieces and a hand-made comparison as its weights."""
    torch.manual_seed(seed)
    model = ElectraForSequenceClassification(config(len(table)))
    embeddings = model.electra.embeddings
    embeddings.word_embeddings.weight.copy_(table)
    embeddings.position_embeddings.weight.zero_()
    embeddings.token_type_embeddings.weight.zero_()
    embeddings.token_type_embeddings.weight[:, f.SEGMENT] = torch.tensor([1.0, -1.0])

    project = model.electra.embeddings_project
    project.weight.normal_(0.0, 0.01)
    project.weight[: f.WIDTH] += torch.eye(f.WIDTH)
    project.bias.zero_()
    layer = model.electra.encoder.layer[0]
    attention, read = layer.attention.self, layer.attention.output.dense
    for part in (attention.query, attention.key, attention.value, read):
        part.weight.normal_(0.0, 0.01)
        part.bias.zero_()
    for side, sign in enumerate((1.0, -1.0)):
        for head in range(side * HEADS // 2, (side + 1) * HEADS // 2):
            row = head * HEAD
            attention.query.bias[row] = math.sqrt(HEAD)
            attention.key.weight[row, f.SEGMENT] = 6.0 * sign
            attention.key.weight[row, f.IMPORTANCE] = 0.9
            attention.key.weight[row, f.IS_SPECIAL] = -2.0
        values = slice(side * 128, side * 128 + SIDE)
        columns = slice(side * SIDE, (side + 1) * SIDE)
        attention.value.weight[values, :SIDE] += torch.eye(SIDE)
        read.weight[columns, values] += torch.eye(SIDE)
    # [CLS] is one tall column before it has read anything; take that away again.
    bare = torch.zeros(f.WIDTH)
    bare[f.IS_SPECIAL], bare[f.SEGMENT] = 3.0, 1.0
    read.bias -= project(torch.nn.functional.layer_norm(bare, (f.WIDTH,)))

    inner, outer = layer.intermediate.dense, layer.output.dense
    inner.weight.normal_(0.0, 0.05)
    inner.bias.zero_()
    outer.weight.normal_(0.0, 0.005)
    outer.bias.zero_()
    difference = SHARPNESS * torch.eye(SIDE)
    inner.weight[: 2 * SIDE] = 0.0
    for place, sign in ((0, 1.0), (SIDE, -1.0)):
        inner.weight[place : place + SIDE, :SIDE] = sign * difference
        inner.weight[place : place + SIDE, SIDE : 2 * SIDE] = -sign * difference
        outer.weight[MEANING_SUM, place : place + f.MEANING.stop] = SUM_SCALE

    head = model.classifier
    head.dense.weight.normal_(0.0, 0.02)
    head.dense.bias.zero_()
    head.out_proj.weight.normal_(0.0, 0.02)
    head.out_proj.bias.fill_(-9.0)
    head.dense.weight[0] = 0.0
    head.dense.weight[0, MEANING_SUM] = -1.0
    head.dense.bias[0] = 3.0
    head.out_proj.weight[0, 0] = 4.0
    return model.eval()


@torch.no_grad()
def soften(model: ElectraForSequenceClassification) -> None:
    """Halve the logits and take 1 off, which orders pairs as before.

    Steep logits learn well, but their sigmoids are all near 1 where candidates are close, and
    the mixture with CSLS then cannot tell them apart.
    """
    model.classifier.out_proj.weight.mul_(0.5)
    model.classifier.out_proj.bias.mul_(0.5).sub_(1.0)


def cls_logits(
    model: ElectraForSequenceClassification, ids: Tensor, segments: Tensor, mask: Tensor
) -> Tensor:
    """The model's logits, three times as fast: only [CLS] is read after its one layer."""
    hidden = model.electra.embeddings(input_ids=ids, token_type_ids=segments)
    hidden = model.electra.embeddings_project(hidden)
    layer = model.electra.encoder.layer[0]
    attention = layer.attention.self
    n, length, _ = hidden.shape
    query = attention.query(hidden[:, 0]).view(n, HEADS, 1, HEAD)
    key = attention.key(hidden).view(n, length, HEADS, HEAD).permute(0, 2, 3, 1)
    value = attention.value(hidden).view(n, length, HEADS, HEAD).transpose(1, 2)
    scores = (query @ key) / math.sqrt(HEAD)
    scores = scores.masked_fill(~mask[:, None, None, :].bool(), -1e9)
    read = (scores.softmax(-1) @ value).reshape(n, HEADS * HEAD)
    first = layer.attention.output(read, hidden[:, 0])
    last = layer.output(layer.intermediate(first), first)
    logits: Tensor = model.classifier(last[:, None, :])[:, 0]
    return logits
