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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from blicer.errors import InputError

# === crossencoder.pair_tokens ===
Ints = NDArray[np.int64]
CHECKED_PAIRS = 24
KEPT_TEXTS = 1_000_000


def _ragged_arange(lengths: Ints) -> Ints:
    """``[0..l0), [0..l1), …`` in one array."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


@dataclass(frozen=True)
class PairTokens:
    """Token ids of n pairs, one after another; row i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: Ints
    types: NDArray[np.int8]
    offsets: Ints
    pad_id: int
    pad_left: bool
    with_types: bool

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def batch(self, rows: Ints, device: torch.device) -> dict[str, torch.Tensor]:
        """The model's inputs for some rows, padded to the longest of them only."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        width = int(lengths.max())
        within = _ragged_arange(lengths)
        row = np.repeat(np.arange(len(rows)), lengths)
        column = within + np.repeat(width - lengths, lengths) if self.pad_left else within
        source = within + np.repeat(self.offsets[rows], lengths)
        ids = np.full((len(rows), width), self.pad_id, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        ids[row, column] = self.ids[source]
        mask[row, column] = 1
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self.with_types:
            inputs["token_type_ids"] = np.zeros((len(rows), width), dtype=np.int64)
            inputs["token_type_ids"][row, column] = self.types[source]
        return {name: torch.from_numpy(value).to(device) for name, value in inputs.items()}


@dataclass(frozen=True)
class _Layout:
    """Special tokens before, between and after the two texts, and the type of each section."""

    before: Ints
    between: Ints
    after: Ints
    types: tuple[NDArray[np.int8], int, NDArray[np.int8], int, NDArray[np.int8]]


class PairEncoder:
    """Turns text pairs into :class:`PairTokens` with a Hugging Face tokenizer."""

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

    @property
    def assembles(self) -> bool:
        """Whether pairs are put together here (True) or by the tokenizer, one by one (False)."""
        return self._layout is not None

    def encode(self, left: Sequence[str], right: Sequence[str]) -> PairTokens:
        if self._layout is None:
            return self._ask_tokenizer(left, right)
        tokens = self._assemble(left, right, self._layout)
        if not self._checked and len(tokens):
            order = np.argsort(-tokens.lengths, kind="stable")
            sample = order[np.unique(np.linspace(0, len(order) - 1, CHECKED_PAIRS).astype(int))]
            if not self._agrees([left[i] for i in sample], [right[i] for i in sample]):
                self._layout = None
                return self._ask_tokenizer(left, right)
            self._checked = True
        return tokens

    def _tokens(self, ids: Ints, types: NDArray[np.int8], lengths: Ints) -> PairTokens:
        return PairTokens(
            ids=ids,
            types=types,
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            pad_id=int(self.tokenizer.pad_token_id),
            pad_left=self.tokenizer.padding_side == "left",
            with_types="token_type_ids" in self.tokenizer.model_input_names,
        )

    def _ask_tokenizer(self, left: Sequence[str], right: Sequence[str]) -> PairTokens:
        if not len(left):
            return self._tokens(np.zeros(0, np.int64), np.zeros(0, np.int8), np.zeros(0, np.int64))
        answer = self.tokenizer(
            list(left),
            list(right),
            truncation="longest_first",
            max_length=self.max_length,
            return_token_type_ids=True,
        )
        lengths = np.array([len(row) for row in answer["input_ids"]], dtype=np.int64)
        ids = np.concatenate([np.asarray(row, dtype=np.int64) for row in answer["input_ids"]])
        types = np.concatenate([np.asarray(row, dtype=np.int8) for row in answer["token_type_ids"]])
        return self._tokens(ids, types, lengths)

    def _text_pieces(self, texts: Sequence[str]) -> list[Ints]:
        if len(self._pieces) > KEPT_TEXTS:
            self._pieces.clear()
        new = [text for text in texts if text not in self._pieces]
        if new:
            backend = self.tokenizer.backend_tokenizer
            # A call of the tokenizer leaves its truncation and padding switched on in the backend.
            backend.no_truncation()
            backend.no_padding()
            for text, found in zip(
                new, backend.encode_batch_fast(new, add_special_tokens=False), strict=True
            ):
                self._pieces[text] = np.asarray(found.ids, dtype=np.int64)
        return [self._pieces[text] for text in texts]

    def _assemble(self, left: Sequence[str], right: Sequence[str], layout: _Layout) -> PairTokens:
        place: dict[str, int] = {}
        first = np.array([place.setdefault(text, len(place)) for text in left], dtype=np.int64)
        second = np.array([place.setdefault(text, len(place)) for text in right], dtype=np.int64)
        pieces = self._text_pieces(list(place))
        sizes = np.array([len(piece) for piece in pieces], dtype=np.int64)
        flat = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)
        starts = np.cumsum(sizes) - sizes

        specials = len(layout.before) + len(layout.between) + len(layout.after)
        room = self.max_length - specials
        n_first, n_second = longest_first(sizes[first], sizes[second], room)
        lengths = n_first + n_second + specials
        offsets = np.cumsum(lengths) - lengths
        ids = np.empty(int(lengths.sum()), dtype=np.int64)
        types = np.zeros(len(ids), dtype=np.int8)

        def put_special(at: Ints, values: Ints, kinds: NDArray[np.int8]) -> Ints:
            for i, (value, kind) in enumerate(zip(values, kinds, strict=True)):
                ids[at + i], types[at + i] = value, kind
            return at + len(values)

        def put_text(at: Ints, which: Ints, count: Ints, kind: int) -> Ints:
            within = _ragged_arange(count)
            target = np.repeat(at, count) + within
            ids[target] = flat[np.repeat(starts[which], count) + within]
            types[target] = kind
            return at + count

        at = put_special(offsets, layout.before, layout.types[0])
        at = put_text(at, first, n_first, layout.types[1])
        at = put_special(at, layout.between, layout.types[2])
        at = put_text(at, second, n_second, layout.types[3])
        put_special(at, layout.after, layout.types[4])
        return self._tokens(ids, types, lengths)

    def _read_layout(self) -> _Layout | None:
        tokenizer = self.tokenizer
        if not getattr(tokenizer, "is_fast", False) or tokenizer.truncation_side != "right":
            return None
        probe = tokenizer("a", "a", return_token_type_ids=True)
        sides = probe.sequence_ids(0)
        if 0 not in sides or 1 not in sides:
            return None
        begin, end = sides.index(0), len(sides) - 1 - sides[::-1].index(0)
        begin2, end2 = sides.index(1), len(sides) - 1 - sides[::-1].index(1)
        if end > begin2:
            return None
        ids = np.asarray(probe["input_ids"], dtype=np.int64)
        types = np.asarray(probe["token_type_ids"], dtype=np.int8)
        layout = _Layout(
            before=ids[:begin],
            between=ids[end + 1 : begin2],
            after=ids[end2 + 1 :],
            types=(
                types[:begin],
                int(types[begin]),
                types[end + 1 : begin2],
                int(types[begin2]),
                types[end2 + 1 :],
            ),
        )
        long, longer = "a b " * self.max_length, "b a c " * self.max_length
        texts = ["a", "a b c", long, longer]
        left = [text for text in texts for _ in texts]
        self._layout = layout
        return layout if self._agrees(left, texts * len(texts)) else None

    def _agrees(self, left: Sequence[str], right: Sequence[str]) -> bool:
        if self._layout is None:
            return False
        ours = self._assemble(left, right, self._layout)
        theirs = self._ask_tokenizer(left, right)
        return (
            np.array_equal(ours.offsets, theirs.offsets)
            and np.array_equal(ours.ids, theirs.ids)
            and (not ours.with_types or np.array_equal(ours.types, theirs.types))
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
