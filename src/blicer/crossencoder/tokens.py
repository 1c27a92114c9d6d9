"""Text pairs as token ids: every distinct text is tokenised once, pairs are then put together.

A tokenizer handles the two texts of a pair apart from each other and only then adds its special
tokens and cuts to ``max_length``. So 28 candidates of 2,000 words, in two orders, need the pieces
of a few thousand distinct texts, not of 112,000 pairs. The layout of the special tokens is read
off the tokenizer itself and compared with its own answers; a tokenizer that does anything else
(or a slow one) is asked for every pair directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from blicer.encoders.loading import Ints
from blicer.errors import InputError

CHECKED_PAIRS = 24
KEPT_TEXTS = 1_000_000


def _ragged_arange(lengths: Ints) -> Ints:
    """``[0..l0), [0..l1), …`` in one array."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


@dataclass(frozen=True)
class PairTokens:
    """Token ids of n pairs, one after another; row i is ``ids[starts[i]:starts[i] + lengths[i]]``.

    The tokenizer says how batches are padded, and whether the model reads token types.
    """

    ids: Ints
    types: NDArray[np.int8]
    lengths: Ints
    tokenizer: Any

    def __len__(self) -> int:
        return len(self.lengths)

    @cached_property
    def starts(self) -> Ints:
        return np.cumsum(self.lengths) - self.lengths

    def batch(self, rows: Ints, device: torch.device) -> dict[str, torch.Tensor]:
        """The model's inputs for some rows, padded to the longest of them only."""
        lengths = self.lengths[rows]
        shape = (len(rows), int(lengths.max()))
        within = _ragged_arange(lengths)
        row, column = np.repeat(np.arange(len(rows)), lengths), within
        if self.tokenizer.padding_side == "left":
            column = within + np.repeat(shape[1] - lengths, lengths)
        source = within + np.repeat(self.starts[rows], lengths)
        inputs = {
            "input_ids": np.full(shape, self.tokenizer.pad_token_id),
            "attention_mask": np.zeros(shape, dtype=np.int64),
        }
        inputs["input_ids"][row, column] = self.ids[source]
        inputs["attention_mask"][row, column] = 1
        if "token_type_ids" in self.tokenizer.model_input_names:
            inputs["token_type_ids"] = np.zeros(shape, dtype=np.int64)
            inputs["token_type_ids"][row, column] = self.types[source]
        return {name: torch.from_numpy(value).to(device) for name, value in inputs.items()}


@dataclass(frozen=True)
class _Section:
    """Part of every pair: special tokens, or the place of the left (0) or right (1) text."""

    text: int | None
    specials: Ints
    type: int


class PairEncoder:
    """Turns text pairs into ``PairTokens`` with a Hugging Face tokenizer."""

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        if tokenizer.pad_token_id is None:
            raise InputError("the encoder's tokenizer has no padding token, which batches need")
        self.tokenizer, self.max_length = tokenizer, max_length
        self._pieces: dict[str, Ints] = {}
        self._layout = self._read_layout()
        self._checked = False
        specials = tokenizer.num_special_tokens_to_add(pair=True)
        if max_length < specials + 2:
            raise InputError(
                f"max_length is {max_length}, but this tokenizer adds {specials} special tokens "
                f"to a pair, so at least {specials + 2} are needed"
            )

    def encode(self, left: Sequence[str], right: Sequence[str]) -> PairTokens:
        """Tokens of each pair ``(left[i], right[i])``, cut to ``max_length``."""
        if self._layout is None:
            return self._ask_tokenizer(left, right)
        tokens = self._assemble(left, right, self._layout)
        if self._checked or not len(tokens):
            return tokens
        # The first time, compare some pairs and some long texts with the tokenizer's own answer.
        by_length = np.argsort(-tokens.lengths, kind="stable")
        sample = by_length[np.linspace(0, len(tokens) - 1, CHECKED_PAIRS).astype(int)]
        probes = ["a", "a b c", "a b " * self.max_length, "b a c " * self.max_length]
        some = [left[i] for i in sample] + [text for text in probes for _ in probes]
        others = [right[i] for i in sample] + probes * len(probes)
        if self._agrees(some, others, self._layout):
            self._checked = True
            return tokens
        self._layout = None
        return self._ask_tokenizer(left, right)

    def _ask_tokenizer(self, left: Sequence[str], right: Sequence[str]) -> PairTokens:
        ids, types = [], []
        if len(left):
            options = {"truncation": "longest_first", "max_length": self.max_length}
            answer = self.tokenizer(list(left), list(right), return_token_type_ids=True, **options)
            ids, types = answer["input_ids"], answer["token_type_ids"]
        return PairTokens(
            np.array([token for row in ids for token in row], np.int64),
            np.array([kind for row in types for kind in row], np.int8),
            np.array([len(row) for row in ids], np.int64),
            self.tokenizer,
        )

    def _text_pieces(self, texts: Sequence[str]) -> list[Ints]:
        if len(self._pieces) > KEPT_TEXTS:
            self._pieces.clear()
        new = [text for text in texts if text not in self._pieces]
        if new:
            backend = self.tokenizer.backend_tokenizer
            # A call of the tokenizer leaves its truncation and padding switched on in the backend.
            backend.no_truncation()
            backend.no_padding()
            found = backend.encode_batch_fast(new, add_special_tokens=False)
            for text, pieces in zip(new, found, strict=True):
                self._pieces[text] = np.asarray(pieces.ids, dtype=np.int64)
        return [self._pieces[text] for text in texts]

    def _assemble(
        self, left: Sequence[str], right: Sequence[str], layout: list[_Section]
    ) -> PairTokens:
        place: dict[str, int] = {}
        asked = [
            np.array([place.setdefault(text, len(place)) for text in texts], dtype=np.int64)
            for texts in (left, right)
        ]
        pieces = self._text_pieces(list(place))
        sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
        starts = np.cumsum(sizes) - sizes
        flat = np.concatenate([*pieces, *(section.specials for section in layout)])
        room = self.max_length - sum(len(section.specials) for section in layout)
        kept = longest_first(sizes[asked[0]], sizes[asked[1]], room)
        # For each pair and section: where its tokens start in ``flat``, and how many they are.
        start = np.empty((len(left), len(layout)), dtype=np.int64)
        count = np.empty_like(start)
        end = sizes.sum()
        for column, section in enumerate(layout):
            if section.text is None:
                start[:, column], count[:, column] = end, len(section.specials)
                end += len(section.specials)
            else:
                start[:, column] = starts[asked[section.text]]
                count[:, column] = kept[section.text]
        counts = count.ravel()
        ids = flat[np.repeat(start.ravel(), counts) + _ragged_arange(counts)]
        types = np.array([section.type for section in layout] * len(left), dtype=np.int8)
        return PairTokens(ids, np.repeat(types, counts), count.sum(axis=1), self.tokenizer)

    def _read_layout(self) -> list[_Section] | None:
        fast = getattr(self.tokenizer, "is_fast", False)
        if not fast or self.tokenizer.truncation_side != "right":
            return None
        probe = self.tokenizer("a", "a", return_token_type_ids=True)
        parts = (probe["input_ids"], probe.sequence_ids(0), probe["token_type_ids"])
        layout = []
        for (text, kind), run in groupby(zip(*parts, strict=True), key=lambda token: token[1:]):
            specials = [token for token, *_ in run] if text is None else []
            layout.append(_Section(text, np.array(specials, dtype=np.int64), kind))
        texts = [section.text for section in layout if section.text is not None]
        return layout if texts == [0, 1] else None

    def _agrees(self, left: Sequence[str], right: Sequence[str], layout: list[_Section]) -> bool:
        """Whether assembled pairs are those that the tokenizer itself gives."""
        ours, theirs = self._assemble(left, right, layout), self._ask_tokenizer(left, right)
        return (
            np.array_equal(ours.lengths, theirs.lengths)
            and np.array_equal(ours.ids, theirs.ids)
            and np.array_equal(ours.types, theirs.types)
        )


def longest_first(first: Ints, second: Ints, room: int) -> tuple[Ints, Ints]:
    """How many tokens of each text stay when the longer one is cut until both fit.

    The longer text gives way until both are equal; then both are cut alike, and an odd place goes
    to the text that was longer (to the second when they were as long as each other).
    """
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    longer = np.minimum(longer, np.maximum(shorter, room - shorter))
    both = shorter + longer > room
    shorter = np.where(both, room // 2, shorter)
    longer = np.where(both, room // 2 + room % 2, longer)
    swap = first > second
    return np.where(swap, longer, shorter), np.where(swap, shorter, longer)
