"""Tiny random encoders with fast tokenizers, saved to a folder, so that no test needs a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    ElectraConfig,
    ElectraModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from blicer.embeddings import Embeddings

# Models this small are slower on several threads, and much slower beside other busy processes.
torch.set_num_threads(1)

LETTERS = "abcdefghijklmnopqrstuvwxyz" + "абвгдежзийклмнопрстуфхцчшщъыьэюя" + "éèêàçôûïö"
WORDS = ("the", "word", "cat", "dog", "house", "chat", "chien", "maison", "english", "français")


def _wordpiece() -> PreTrainedTokenizerFast:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*specials, *LETTERS, *(f"##{c}" for c in LETTERS), *"!().'`", *WORDS]
    backend = Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _unigram() -> PreTrainedTokenizerFast:
    """Laid out as XLM-R's: <s> A </s></s> B </s>, padding id 1, no token types."""
    pieces: list[tuple[str, float]] = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(character, -5.0) for character in "▁" + LETTERS + "!().'`"]
    pieces += [(f"▁{word}", -3.0) for word in WORDS]
    backend = Tokenizer(models.Unigram(pieces, unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"],
    )


def tiny_encoder(
    folder: Path,
    kind: str = "bert",
    *,
    seed: int = 0,
    dropout: float = 0.1,
    head: bool = False,
    hidden_size: int = 32,
) -> Path:
    """Save a two-layer encoder of the ``kind`` bert, xlmr or electra, and its tokenizer."""
    tokenizer = _unigram() if kind == "xlmr" else _wordpiece()
    shape: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden_size,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 2 * hidden_size,
        "max_position_embeddings": 70,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "pad_token_id": tokenizer.pad_token_id,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if kind == "xlmr":
            model: Any = XLMRobertaModel(XLMRobertaConfig(**shape, bos_token_id=0, eos_token_id=2))
        elif kind == "electra":
            model = ElectraModel(ElectraConfig(**shape, embedding_size=24))
        elif head:
            model = BertForSequenceClassification(
                BertConfig(**shape, num_labels=1, initializer_range=0.2)
            )
        else:
            model = BertModel(BertConfig(**shape))
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def toy_pairs(count: int = 60) -> tuple[list[str], list[str], list[float]]:
    """Pairs of invented words; a pair is a positive when both start with the same letter."""
    left, right, labels = [], [], []
    for i in range(count):
        a, b = LETTERS[i % 20], LETTERS[(i * (1 + i % 2)) % 20]
        left.append(f"{a}{LETTERS[(3 * i) % 26]}{LETTERS[(5 * i) % 26] * (i % 4)} (english)!")
        right.append(f"{b}{LETTERS[(7 * i) % 26]}{LETTERS[(2 * i) % 26] * (i % 3)} (français)!")
        labels.append(0.9 if a == b else 0.2)
    return left, right, labels


def spelled(number: int, letters: str) -> str:
    """A three-letter word for a number below 1,000."""
    return letters[number % 10] + letters[number // 10 % 10] + letters[number // 100 % 10]


def two_sides(words: int, noise: float) -> tuple[Embeddings, Embeddings]:
    """Target words spell source words with other letters; target vectors are noisy copies."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(words, 12)).astype(np.float32)
    noisy = vectors + noise * rng.normal(size=vectors.shape).astype(np.float32)
    return (
        Embeddings([spelled(i, "abcdefghij") for i in range(words)], vectors, "en"),
        Embeddings([spelled(i, "klmnopqrst") for i in range(words)], noisy, "fr"),
    )
