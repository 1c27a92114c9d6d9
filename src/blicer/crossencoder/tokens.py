"""Text pairs as token ids: every distinct text is tokenised once, then pairs are assembled.

A tokenizer handles the two texts of a pair separately and only then adds its special tokens and
truncates to ``max_length``. So 28 candidates of 2,000 words, in two orders, need the pieces of some
thousand distinct texts, not of 112,000 pairs. The layout of the special tokens is inferred from the
tokenizer's output and checked against it; a tokenizer that does anything else (or a slow one)
tokenises every pair itself.
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

KEPT_TEXTS = 1_000_000


@dataclass(frozen=True)
class PairTokens:
    """Token ids of n pairs, one after another; row i is ``ids[starts[i]:starts[i] + lengths[i]]``.

    The tokenizer tells how batches are padded, and whether the model takes token types.
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
        """The model's inputs for some rows, padded to the longest of them."""
        lengths = self.lengths[rows, None]
        columns = np.arange(lengths.max())
        inside = columns < lengths
        source = (self.starts[rows, None] + columns)[inside]
        if self.tokenizer.padding_side == "left":
            inside = inside[:, ::-1]

        def padded(values: Any, fill: int) -> torch.Tensor:
            array = np.full(inside.shape, fill)
            array[inside] = values
            return torch.from_numpy(array).to(device)

        inputs = {
            "input_ids": padded(self.ids[source], self.tokenizer.pad_token_id),
            "attention_mask": padded(1, 0),
        }
        if "token_type_ids" in self.tokenizer.model_input_names:
            inputs["token_type_ids"] = padded(self.types[source], 0)
        return inputs


class PairEncoder:
    """Turns text pairs into ``PairTokens`` with a Hugging Face tokenizer."""

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        if tokenizer.pad_token_id is None:
            raise InputError("the encoder's tokenizer has no padding token, which batches need")
        specials = tokenizer.num_special_tokens_to_add(pair=True)
        if max_length < specials + 2:
            raise InputError(
                f"max_length is {max_length}, but this tokenizer adds {specials} special tokens "
                f"to a pair, so at least {specials + 2} are needed"
            )
        self.tokenizer, self.max_length = tokenizer, max_length
        self._pieces: dict[str, Ints] = {}
        # For each part of a pair: its text (0: left, 1: right, None: special tokens), its token
        # type, and its special tokens. Empty if pairs cannot be assembled.
        self._layout: list[tuple[int | None, int, Ints]] = []
        if getattr(tokenizer, "is_fast", False) and tokenizer.truncation_side == "right":
            self._read_layout()

    def encode(self, left: Sequence[str], right: Sequence[str]) -> PairTokens:
        """Tokens of each pair ``(left[i], right[i])``, cut to ``max_length``."""
        if self._layout and len(left):
            return self._assemble(left, right)
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
            # A call of the tokenizer leaves truncation and padding switched on in the backend.
            backend.no_truncation()
            backend.no_padding()
            found = backend.encode_batch_fast(new, add_special_tokens=False)
            for text, pieces in zip(new, found, strict=True):
                self._pieces[text] = np.asarray(pieces.ids, dtype=np.int64)
        return [self._pieces[text] for text in texts]

    def _assemble(self, left: Sequence[str], right: Sequence[str]) -> PairTokens:
        place: dict[str, int] = {}
        asked = [[place.setdefault(text, len(place)) for text in texts] for texts in (left, right)]
        # Every text, then every run of special tokens, in one flat array.
        runs = self._text_pieces(list(place))
        index = np.empty((len(left), len(self._layout)), dtype=np.int64)
        for column, (text, _, specials) in enumerate(self._layout):
            index[:, column] = len(runs) if text is None else asked[text]
            runs += [specials] if text is None else []
        sizes = np.array([len(run) for run in runs])
        starts = np.cumsum(sizes) - sizes
        counts = sizes[index]
        one, other = (column for column, part in enumerate(self._layout) if part[0] is not None)
        room = self.max_length - sum(len(specials) for *_, specials in self._layout)
        counts[:, one], counts[:, other] = longest_first(counts[:, one], counts[:, other], room)
        flat = counts.ravel()
        offsets = starts[index].ravel() - (np.cumsum(flat) - flat)
        types = np.array([kind for _, kind, _ in self._layout] * len(left), dtype=np.int8)
        return PairTokens(
            np.concatenate(runs)[np.repeat(offsets, flat) + np.arange(flat.sum())],
            np.repeat(types, flat),
            counts.sum(axis=1),
            self.tokenizer,
        )

    def _read_layout(self) -> None:
        found = self.tokenizer("a", "a", return_token_type_ids=True)
        tokens = zip(
            found["input_ids"], found.sequence_ids(0), found["token_type_ids"], strict=True
        )
        for (text, kind), run in groupby(tokens, key=lambda token: token[1:]):
            specials = [token for token, *_ in run] if text is None else []
            self._layout.append((text, kind, np.array(specials, dtype=np.int64)))
        if [text for text, *_ in self._layout if text is not None] != [0, 1] or not self._agrees():
            self._layout = []

    def _agrees(self) -> bool:
        """Whether assembled pairs equal those of the tokenizer itself, also for long texts."""
        texts = ["", "a", "a b c", "a b " * self.max_length, "b a c " * self.max_length]
        pairs = [text for text in texts for _ in texts], texts * len(texts)
        ours, theirs = self._assemble(*pairs), self._ask_tokenizer(*pairs)
        return all(
            np.array_equal(getattr(ours, name), getattr(theirs, name))
            for name in ("ids", "types", "lengths")
        )


def longest_first(first: Ints, second: Ints, room: int) -> tuple[Ints, Ints]:
    """The lengths of both texts after truncation to ``room`` tokens together.

    The longer text is cut until both are equal; then both are cut alike, and an odd token goes to
    the text that was longer (to the second if they were equal).
    """
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    longer = np.minimum(longer, np.maximum(shorter, room - shorter))
    both = shorter + longer > room
    shorter = np.where(both, room // 2, shorter)
    longer = np.where(both, room // 2 + room % 2, longer)
    swap = first > second
    return np.where(swap, longer, shorter), np.where(swap, shorter, longer)
