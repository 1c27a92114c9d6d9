"""First dictionaries for self-learning without seeds (METHOD.md §6)."""

from __future__ import annotations

import unicodedata

import numpy as np
import torch
from torch import Tensor

from blicer.align.induction import induce
from blicer.align.linear import normalise_
from blicer.embeddings import Embeddings
from blicer.errors import InputError


def similarity_distributions(rows: Tensor) -> Tensor:
    """Each word's similarities to all others, sorted, from the square root of the Gram matrix.

    The sorted list forgets which words the similarities belong to, so that the lists of the two
    languages can be compared; words that mean the same have similar lists.
    """
    left, scales, _ = torch.linalg.svd(rows.cpu().double(), full_matrices=False)
    root = ((left * scales) @ left.T).float().to(rows.device)
    return normalise_(root.sort(dim=1).values, ("unit", "centre", "unit"))


def from_distributions(
    x: Tensor, y: Tensor, *, words: int = 4000, k_csls: int = 10, memory_gb: float = 2.0
) -> Tensor:
    """Pairs (pairs, 2) int64 of the most frequent words with alike similarity distributions."""
    size = min(words, len(x), len(y))
    lists_x, lists_y = similarity_distributions(x[:size]), similarity_distributions(y[:size])
    unused = torch.Generator()  # nothing is dropped, so nothing is drawn
    return induce(lists_x, lists_y, generator=unused, k_csls=k_csls, memory_gb=memory_gb).pairs


def from_identical(source: Embeddings, target: Embeddings) -> Tensor:
    """Words that are spelled the same in both languages."""
    pairs = [(row, target.lookup[word]) for row, word in enumerate(source.words) if word in target]
    if not pairs:
        raise InputError(
            "no word is spelled the same in both vocabularies; expected some for a start from "
            "identical words (give seeds, or start from encoder, numerals or distributions)"
        )
    return torch.from_numpy(np.array(pairs, dtype=np.int64))


def from_numerals(source: Embeddings, target: Embeddings) -> Tensor:
    """Numbers written in digits, of whatever script, that both languages have."""
    wanted = _numerals(target)
    pairs = [(row, wanted[value]) for value, row in _numerals(source).items() if value in wanted]
    if not pairs:
        raise InputError(
            "the vocabularies share no numeral; expected some for a start from numerals (give "
            "seeds, or start from encoder, identical or distributions)"
        )
    return torch.from_numpy(np.array(pairs, dtype=np.int64))


def _numerals(embeddings: Embeddings) -> dict[str, int]:
    """Row of each numeral, by its digits; of two spellings the more frequent counts."""
    rows: dict[str, int] = {}
    for row, word in enumerate(embeddings.words):
        if word.isdecimal():
            rows.setdefault("".join(str(unicodedata.decimal(digit)) for digit in word), row)
    return rows
