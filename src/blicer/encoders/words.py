"""An encoder's own vectors of words: the first-token vector of the bare word (docs/method.md §6).

A large vocabulary is encoded in parts; with a ``cache`` folder every finished part is cached, for
the same call after a kill and for later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from blicer.devices import resolve_device
from blicer.encoders.loading import (
    batch_cost,
    fingerprint,
    load_encoder,
    resolve_precision,
    token_batches,
)
from blicer.errors import FileError, InputError
from blicer.files import atomic_write, digest
from blicer.progress import note, task

PART = 8192  # words encoded between two writes
Vectors = NDArray[np.float32]


class WordEncoder:
    """Any Hugging Face encoder as a bi-encoder, with one vector a word.

    ``encoder``: ``lite``, a name on the Hub, or a folder. ``max_length``: tokens of a word,
    special tokens included; the rest is cut off. ``device``: by default the best there is.
    """

    def __init__(
        self,
        encoder: str | Path = "lite",
        *,
        max_length: int = 6,
        device: str | torch.device = "auto",
    ) -> None:
        self.encoder, self.max_length = str(encoder), max_length
        self.device = resolve_device(device)
        self.model, self.tokenizer = load_encoder(encoder, head=False)
        self.model.to(self.device)
        specials = self.tokenizer.num_special_tokens_to_add(pair=False)
        if max_length <= specials:
            raise InputError(
                f"max_length is {max_length}, but this tokenizer adds {specials} special tokens, "
                f"so at least {specials + 1} are needed"
            )
        self._autocast = resolve_precision("auto", self.device, self.model)

    @property
    def dim(self) -> int:
        return int(self.model.config.hidden_size)

    def tokens(self, words: Sequence[str]) -> list[list[int]]:
        """Token ids of each bare word, with the encoder's special tokens, cut to max_length."""
        if not len(words):
            return []
        found = self.tokenizer(list(words), truncation=True, max_length=self.max_length)
        return found["input_ids"]

    def first_tokens(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """First-token vectors (words, dim) of some words' tokens, with gradients where enabled."""
        lengths = torch.tensor([len(row) for row in ids])
        width, pad = int(lengths.max()), self.tokenizer.pad_token_id or 0
        padded = torch.tensor([[*row, *[pad] * (width - len(row))] for row in ids])
        mask = (torch.arange(width) < lengths[:, None]).long()
        with torch.autocast(self.device.type, self._autocast, self._autocast is not None):
            outputs = self.model(padded.to(self.device), mask.to(self.device))
        return outputs.last_hidden_state[:, 0].float()

    def encode(self, words: Sequence[str], *, cache: str | Path | None = None) -> Vectors:
        """First-token vectors (words, dim) float32, not normalised.

        ``cache``: a folder that caches finished parts, by a hash of the weights and the words.
        """
        folder = Path(cache) / self.key(words) if cache is not None else None
        vectors = np.empty((len(words), self.dim), np.float32)
        self.model.eval()
        with task("encoding words", len(words)) as running:
            for start in range(0, len(words), PART):
                some = list(words[start : start + PART])
                file = folder / f"{start:09d}.npy" if folder is not None else None
                vectors[start : start + len(some)] = self._part(some, file)
                running.advance(len(some))
        return vectors

    def _part(self, words: Sequence[str], file: Path | None) -> Vectors:
        if file is None:
            return self._encode(words)
        with suppress(OSError, ValueError, EOFError):  # missing or damaged
            kept: Vectors = np.load(file, allow_pickle=False)
            if kept.shape == (len(words), self.dim) and kept.dtype == np.float32:
                return kept
        part = self._encode(words)
        try:
            with atomic_write(file, "wb") as out:
                np.save(out, part, allow_pickle=False)
        except FileError as error:  # errors of a cache are only noted
            note(f"the encoder's vectors are not kept: {error}")
        return part

    @torch.inference_mode()
    def _encode(self, words: Sequence[str]) -> Vectors:
        ids = self.tokens(words)
        vectors = np.empty((len(words), self.dim), np.float32)
        lengths = np.array([len(row) for row in ids])
        for rows in token_batches(lengths, *batch_cost(self.device)):
            vectors[rows] = self.first_tokens([ids[row] for row in rows]).cpu().numpy()
        return vectors

    def key(self, words: Sequence[str]) -> str:
        """Hash of all that the vectors depend on: weights, words and settings."""
        weights = fingerprint(self.model, self.max_length, self._autocast)
        return digest(weights, list(words), length=24)
