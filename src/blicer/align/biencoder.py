"""Contrastive tuning of an encoder's own word vectors: the first half of C2 (METHOD.md §6).

A step encodes every distinct word of its batch once (positives and their hard negatives), and takes
the similarities that it needs from products of these vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from blicer import progress
from blicer.crossencoder.checkpoints import Checkpoints
from blicer.crossencoder.embedding_rows import rows_in_use, train_rows_only
from blicer.crossencoder.encoder import quiet_transformers
from blicer.crossencoder.optimiser import optimiser_tensors, restore_optimiser
from blicer.devices import random_state, set_random_state
from blicer.files import atomic_folder, read_json, write_json
from blicer.wordencoder import WordEncoder

Integers = NDArray[np.int64]
WEIGHTS, LOSSES = "model.safetensors", "losses.json"


@dataclass(frozen=True)
class Tuning:
    """How the encoder is tuned; the defaults are the paper's."""

    epochs: int = 5
    learning_rate: float = 2e-5
    weight_decay: float = 0.01
    batch_size: int = 100
    temperature: float = 0.1
    train_table: bool = True
    seed: int = 33


@dataclass(frozen=True)
class ContrastivePairs:
    """Positives (n, 2) and the hard negatives of either side (n, negatives), all word rows."""

    positives: Integers
    targets: Integers  # wrong targets for the source word
    sources: Integers  # wrong sources for the target word

    def __len__(self) -> int:
        return len(self.positives)


def contrastive_loss(
    source: Tensor, target: Tensor, wrong_targets: Tensor, wrong_sources: Tensor, temperature: float
) -> Tensor:
    """Mean -log softmax of each positive's cosine against all its negatives' of both sides.

    Unit rows: source and target (n, d), wrong_targets and wrong_sources (n, negatives, d).
    """
    positive = (source * target).sum(dim=1, keepdim=True)
    forward = torch.bmm(wrong_targets, source[:, :, None]).squeeze(2)
    backward = torch.bmm(wrong_sources, target[:, :, None]).squeeze(2)
    logits = torch.cat([positive, forward, backward], dim=1) / temperature
    return -F.log_softmax(logits, dim=1)[:, 0].mean()


def tune(
    encoder: WordEncoder,
    source_words: list[str],
    target_words: list[str],
    pairs: ContrastivePairs,
    tuning: Tuning,
    *,
    keep: Path | None = None,
) -> list[float]:
    """Tune the encoder in place; the mean loss of each epoch.

    ``keep``: a folder for the tuned weights; with it a second call only loads them, and one after
    a kill goes on from the last checkpoint. Its parent's name tells these pairs and settings.
    """
    if keep is not None and (keep / LOSSES).is_file():
        _load(encoder, keep)
        progress.note("the tuned encoder was there already; loaded")
        kept: list[float] = read_json(keep / LOSSES)
        return kept
    generator = np.random.default_rng(tuning.seed)
    ids = {
        "source": encoder.tokens(source_words),
        "target": encoder.tokens(target_words),
    }
    used = [np.asarray(row, np.int64) for side in ids.values() for row in side]
    table = encoder.model.get_input_embeddings().weight
    table.requires_grad_(tuning.train_table)
    pad = encoder.tokenizer.pad_token_id or 0
    restore = train_rows_only(encoder.model, rows_in_use(used, pad))
    steps = -(-len(pairs) // tuning.batch_size)
    batches = [
        rows
        for _ in range(tuning.epochs)
        for rows in np.array_split(generator.permutation(len(pairs)), steps)
    ]
    sizes = [len(rows) for rows in batches[:steps]]
    encoder.model.train()
    try:
        with (
            torch.random.fork_rng(),
            progress.task("tuning the encoder", len(batches)) as running,
        ):
            torch.manual_seed(tuning.seed)
            course = _Course(encoder, tuning, keep)
            running.advance(len(course.losses))
            for step in range(len(course.losses), len(batches)):
                rows = batches[step]
                loss = _batch_loss(encoder, ids["source"], ids["target"], pairs, rows, tuning)
                course.step(loss)
                running.advance(status=f"loss {course.losses[-1]:.4f}")
    finally:
        restore()
        table.requires_grad_(True)
        encoder.model.eval()
    losses = [
        float(np.average(course.losses[first : first + steps], weights=sizes))
        for first in range(0, len(batches), steps)
    ]
    if keep is not None:
        with atomic_folder(keep) as folder, quiet_transformers():
            encoder.model.save_pretrained(folder)
            write_json(folder / LOSSES, losses)
        course.clear()
    return losses


class _Course:
    """Optimiser and losses of a tuning, and the checkpoints that it goes on from after a kill."""

    def __init__(self, encoder: WordEncoder, tuning: Tuning, keep: Path | None) -> None:
        self.device = encoder.device
        self.trained = {n: p for n, p in encoder.model.named_parameters() if p.requires_grad}
        self.optimiser = torch.optim.AdamW(
            self.trained.values(), lr=tuning.learning_rate, weight_decay=tuning.weight_decay
        )
        self.losses: list[float] = []  # of each step so far
        self.store = None
        if keep is not None:
            self.store = Checkpoints(keep.with_name(f"{keep.name}.checkpoint"), keep.parent.name)
            self._resume(self.store)

    def step(self, loss: Tensor) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.losses.append(float(loss.detach()))
        if self.store is not None and self.store.due():
            tensors = {
                "weights": self.trained,
                "optimiser": optimiser_tensors(self.optimiser, self.trained),
                "random": random_state(self.device),
            }
            self.store.save(len(self.losses), tensors, {"losses": self.losses})

    @torch.no_grad()
    def _resume(self, store: Checkpoints) -> None:
        store.clear_unfinished()
        found = store.load()
        if found is None:
            return
        step, tensors, state = found
        for name, value in tensors["weights"].items():
            self.trained[name].copy_(value)
        restore_optimiser(self.optimiser, self.trained, tensors["optimiser"])
        set_random_state(tensors["random"], self.device)
        self.losses = [float(loss) for loss in state["losses"]]
        progress.note(f"the encoder's tuning goes on from step {step}")

    def clear(self) -> None:
        if self.store is not None:
            self.store.clear()


def _batch_loss(
    encoder: WordEncoder,
    source_ids: list[list[int]],
    target_ids: list[list[int]],
    pairs: ContrastivePairs,
    rows: Integers,
    tuning: Tuning,
) -> Tensor:
    """Every distinct word of the batch is encoded once."""
    positives, n = pairs.positives[rows], len(rows)
    sources = np.concatenate([positives[:, :1], pairs.sources[rows]], axis=1)
    targets = np.concatenate([positives[:, 1:], pairs.targets[rows]], axis=1)
    asked, source_place = np.unique(sources, return_inverse=True)
    offered, target_place = np.unique(targets, return_inverse=True)
    tokens = [source_ids[i] for i in asked.tolist()] + [target_ids[i] for i in offered.tolist()]
    vectors = F.normalize(encoder.first_tokens(tokens), dim=1)
    x = vectors[: len(asked)][torch.from_numpy(source_place.reshape(n, -1))]
    y = vectors[len(asked) :][torch.from_numpy(target_place.reshape(n, -1))]
    return contrastive_loss(x[:, 0], y[:, 0], y[:, 1:], x[:, 1:], tuning.temperature)


def _load(encoder: WordEncoder, folder: Path) -> None:
    from safetensors.torch import load_file

    encoder.model.load_state_dict(load_file(folder / WEIGHTS))
    encoder.model.to(encoder.device).eval()
