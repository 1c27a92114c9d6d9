"""An encoder's own vectors of words: the first-token vector of the bare word (METHOD.md §6, C2).

``WordEncoder`` reads any Hugging Face encoder as a bi-encoder: one vector a word, words apart from
each other. A large vocabulary is encoded in parts; with a ``cache`` folder every finished part is
kept, so that a killed run goes on and a second one only reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from blicer.crossencoder.scoring import (
    CPU_PASS_COST,
    CPU_TOKENS,
    GPU_PASS_COST,
    GPU_TOKENS,
    token_batches,
)
from blicer.devices import resolve_device
from blicer.encoders.loading import fingerprint, input_names, load_base, resolve_precision
from blicer.errors import FileError, InputError
from blicer.files import atomic_write
from blicer.progress import note, task

# === wordencoder ===
PART = 8192  # words encoded between two writes
Vectors = NDArray[np.float32]


class WordEncoder:
    """One vector a word, from any Hugging Face encoder (``lite`` or its name or folder)."""

    def __init__(
        self,
        encoder: str | Path = "lite",
        *,
        max_length: int = 6,
        device: str | torch.device = "auto",
        precision: str = "auto",
    ) -> None:
        self.encoder, self.max_length = str(encoder), max_length
        self.device = resolve_device(device)
        self.precision = precision
        self.model, self.tokenizer = load_base(encoder)
        self.model.to(self.device)
        specials = self.tokenizer.num_special_tokens_to_add(pair=False)
        if max_length <= specials:
            raise InputError(
                f"max_length is {max_length}, but this tokenizer adds {specials} special tokens, "
                f"so at least {specials + 1} are needed"
            )
        self._names = input_names(self.model)

    @property
    def dim(self) -> int:
        return int(self.model.config.hidden_size)

    def tokens(self, words: Sequence[str]) -> list[list[int]]:
        """Token ids of each bare word, with the encoder's special tokens, cut to max_length."""
        if not len(words):
            return []
        found = self.tokenizer(list(words), truncation=True, max_length=self.max_length)
        ids: list[list[int]] = found["input_ids"]
        return ids

    def first_tokens(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """First-token vectors (words, dim) of some words' tokens, with a gradient if asked."""
        width = max(len(row) for row in ids)
        padded = torch.full((len(ids), width), self.tokenizer.pad_token_id or 0)
        mask = torch.zeros_like(padded)
        for row, tokens in enumerate(ids):
            padded[row, : len(tokens)] = torch.as_tensor(tokens)
            mask[row, : len(tokens)] = 1
        inputs: dict[str, Any] = {"input_ids": padded, "attention_mask": mask}
        if "token_type_ids" in self._names:
            inputs["token_type_ids"] = torch.zeros_like(padded)
        on_device = {key: value.to(self.device) for key, value in inputs.items()}
        autocast = resolve_precision(self.precision, self.device, self.model)
        with torch.autocast(self.device.type, dtype=autocast, enabled=autocast is not None):
            hidden: Tensor = self.model(**on_device).last_hidden_state
        return hidden[:, 0].float()

    def encode(self, words: Sequence[str], *, cache: str | Path | None = None) -> Vectors:
        """First-token vectors (words, dim) float32, not normalised."""
        folder = Path(cache) / self.key(words) if cache is not None else None
        vectors = np.empty((len(words), self.dim), np.float32)
        self.model.eval()
        with task("encoding words", len(words)) as running:
            for start in range(0, len(words), PART):
                some = list(words[start : start + PART])
                file = folder / f"{start:09d}.npy" if folder is not None else None
                part = _read(file, (len(some), self.dim)) if file is not None else None
                if part is None:
                    part = self._encode(some)
                    if file is not None:
                        _write(file, part)
                vectors[start : start + len(some)] = part
                running.advance(len(some))
        return vectors

    @torch.inference_mode()
    def _encode(self, words: Sequence[str]) -> Vectors:
        ids = self.tokens(words)
        vectors = np.empty((len(words), self.dim), np.float32)
        on_cpu = self.device.type == "cpu"
        budget = CPU_TOKENS if on_cpu else GPU_TOKENS
        cost = CPU_PASS_COST if on_cpu else GPU_PASS_COST
        for rows in token_batches(np.array([len(row) for row in ids]), budget, cost):
            vectors[rows] = self.first_tokens([ids[row] for row in rows]).cpu().numpy()
        return vectors

    def key(self, words: Sequence[str]) -> str:
        """A digest of the weights, the words and whatever else decides the vectors."""
        digest = hashlib.sha256(fingerprint(self.model, self.max_length, self.precision).encode())
        digest.update("\n".join(words).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:24]


def _read(file: Path, shape: tuple[int, int]) -> Vectors | None:
    """A part that is there and whole; None otherwise (it is then made again)."""
    if not file.is_file():
        return None
    try:
        part: Vectors = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return part if part.shape == shape and part.dtype == np.float32 else None


def _write(file: Path, part: Vectors) -> None:
    try:
        with atomic_write(file, "wb") as out:
            np.save(out, part, allow_pickle=False)
    except FileError as error:  # a cache never stops the work
        note(f"the encoder's vectors are not kept: {error}")
