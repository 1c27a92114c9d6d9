"""C2: C1's space mixed with a multilingual encoder's own word vectors (docs/method.md §6).

The steps, in the order of this file: fit C1; tune the encoder on C1's hard negatives; bring both
views of a word to one dimension; mix them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from blicer import progress
from blicer.align.base import Aligner, Folder, Seeds, matrix, orthogonal_map, unit_
from blicer.align.contrastive import VERDICT, Contrastive
from blicer.align.space import Space
from blicer.config import encoder_defaults, setting
from blicer.devices import random_state, set_random_state
from blicer.embeddings import Embeddings
from blicer.encoders.loading import quiet_transformers
from blicer.encoders.tuning import Checkpoints, check_finite, train_rows_only
from blicer.encoders.words import WordEncoder
from blicer.errors import InputError
from blicer.files import atomic_folder, digest, read_json, write_json
from blicer.neighbours.mining import Pairs, nearest_others, silver_pairs

PAPER_WEIGHT = 0.2
SILVER = {"n_aug": 4_000, "n_freq": 20_000, "n_aug_pool": 6_000}
MODEL, LOSSES = "model.safetensors", "losses.json"


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


@dataclass(kw_only=True)
class EncoderMix(Aligner):
    """``normalise((1 - weight) C1 + weight · encoder)``, the encoder tuned on C1's hard negatives.

    The weight and the settings of the tuning default to what the encoder needs (`lite`), or else
    to the paper's.

    >>> space = EncoderMix.preset("supervised").align(english, french, seeds)  # doctest: +SKIP
    """

    method = "c2"
    presets: ClassVar = {
        "supervised": {"mode": "supervised"},
        "semi_supervised": {"mode": "semi_supervised", "silver": True},
        "unsupervised": {"mode": "unsupervised", "silver": True},
    }

    mode: str = setting("supervised", "mode of C1", choices=Contrastive.presets)
    encoder: str = setting("lite", "lite (embedded), a Hugging Face name, or a folder")
    weight: float | None = setting(None, "the encoder's share; none: its usual", low=0, high=1)
    negatives: int = setting(28, "hard negatives on each side of a pair", low=1)
    negatives_from: int = setting(60_000, "most frequent words that can be negatives", low=2)
    silver: bool = setting(False, "also tune on silver pairs of the C1 space")
    epochs: int | None = setting(None, "passes over the pairs", low=0)
    learning_rate: float | None = setting(None, "of AdamW", low=0)
    batch_size: int | None = setting(None, "pairs a step", low=1)
    temperature: float | None = setting(None, "that cosines are divided by", above=0)
    train_table: bool | None = setting(None, "also tune the vectors of word pieces")
    max_length: int = setting(6, "tokens of a word")
    init: str = setting("distributions", "start of C1 without seeds")
    c1: Mapping[str, Any] | None = setting(None, "settings of C1 other than its mode's")
    seed: int = setting(33, "of the random draws", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._first_stage()  # a setting that C1 does not have raises before anything is computed

    def fit(
        self, source: Embeddings, target: Embeddings, pairs: Seeds, *, work: Folder = None
    ) -> Space:
        weight = self.weight
        if weight is None:
            weight = encoder_defaults(self.encoder).c2.get("weight", PAPER_WEIGHT)
        start, x, y, outcome = self._fit_views(source, target, pairs, work)
        outcome |= {"chosen_weight": weight, "c1_settings": start.settings}
        outcome |= {key: value for key, value in start.settings.items() if key in VERDICT}
        return self.space(source, target, _mix(*x, weight), _mix(*y, weight), **outcome)

    def _first_stage(self) -> Contrastive:
        settings = {"device": self.device, **(self.c1 or {})}
        if self.mode == "unsupervised":
            settings = {"init": self.init, **settings}
        return Contrastive.preset(self.mode, **settings)

    def _tuning(self) -> Tuning:
        """The settings of the tuning: those given, else the encoder's, else the paper's."""
        names = [one.name for one in fields(Tuning)]
        given = {name: getattr(self, name, None) for name in names}
        given = {name: value for name, value in given.items() if value is not None}
        usual = {k: v for k, v in encoder_defaults(self.encoder).c2.items() if k in names}
        return Tuning(**{**usual, **given})

    def _fit_views(
        self, source: Embeddings, target: Embeddings, pairs: Seeds, work: Folder
    ) -> tuple[Space, tuple[Tensor, Tensor], tuple[Tensor, Tensor], dict[str, Any]]:
        """C1's space; unit rows of (C1, encoder) of each side, in one dimension; a report."""
        encoder = WordEncoder(self.encoder, max_length=self.max_length, device=self.device)
        # STEP 1: C1
        start = self._first_stage().fit_cached(source, target, pairs, work=work)
        # STEP 2: positives and hard negatives
        known = np.zeros((0, 2), np.int64) if pairs is None else np.unique(pairs, axis=0)
        positives = known
        if self.silver:
            positives = np.concatenate([known, silver_pairs(start.retriever, known, **SILVER)])
        if len(positives) == 0:
            raise InputError("c2 found no pair to tune the encoder on")
        examples = hard_negatives(start, positives, self.negatives, self.negatives_from)
        # STEP 3: tune the encoder, and encode all words
        keep = None
        if work is not None:
            data = digest(examples.positives, examples.targets, examples.sources)
            inputs = [repr(self._tuning()), data, *source.words, *target.words]
            keep = work / f"c2-{encoder.key(inputs)}"
        losses = tune(
            encoder,
            list(source.words),
            list(target.words),
            examples,
            self._tuning(),
            keep=keep / "encoder" if keep else None,
        )
        cache = keep / "words" if keep else None
        vectors = [encoder.encode(side.words, cache=cache) for side in (source, target)]
        # STEP 4: one dimension
        x, y = _one_dimension(start, vectors, positives, encoder.device)
        report = {"tuned_on": len(positives), "silver_pairs": len(positives) - len(known)}
        return start, x, y, {**report, "losses": losses}


@dataclass(frozen=True)
class ContrastivePairs:
    """Positives (n, 2) and the hard negatives of either side (n, negatives), all word rows."""

    positives: Pairs
    targets: Pairs  # wrong targets for the source word
    sources: Pairs  # wrong sources for the target word

    def __len__(self) -> int:
        return len(self.positives)


def hard_negatives(space: Space, positives: Pairs, negatives: int, words: int) -> ContrastivePairs:
    """For each positive the nearest wrong words on both sides, among the most frequent."""
    source, target = positives.T
    targets, _ = nearest_others(space.retriever, source, target, negatives, limit=words)
    sources, _ = nearest_others(
        space.retriever, target, source, negatives, reverse=True, limit=words
    )
    return ContrastivePairs(positives, targets, sources)


def tune(
    encoder: WordEncoder,
    source_words: list[str],
    target_words: list[str],
    pairs: ContrastivePairs,
    tuning: Tuning,
    *,
    keep: Path | None = None,
) -> list[float]:
    """Tune the encoder in place; returns the mean loss of each epoch.

    ``keep``: a folder that caches the tuned weights, whose parent is named after a hash of the
    pairs and settings. A second call only loads them, and a call after a kill continues from the
    last checkpoint. None caches nothing.
    """
    if keep is not None and (keep / LOSSES).is_file():
        from safetensors.torch import load_file

        encoder.model.load_state_dict(load_file(keep / MODEL))
        encoder.model.to(encoder.device).eval()
        progress.note("the tuned encoder was there already; loaded")
        return read_json(keep / LOSSES)
    generator = np.random.default_rng(tuning.seed)
    ids = encoder.tokens(source_words), encoder.tokens(target_words)
    padding = [encoder.tokenizer.pad_token_id or 0]
    used = [np.asarray(row, np.int64) for side in (*ids, [padding]) for row in side]
    table = encoder.model.get_input_embeddings().weight
    table.requires_grad_(tuning.train_table)
    restore = train_rows_only(encoder.model, *used)
    steps = -(-len(pairs) // tuning.batch_size)
    batches = [
        rows
        for _ in range(tuning.epochs)
        for rows in np.array_split(generator.permutation(len(pairs)), steps)
    ]
    encoder.model.train()
    try:
        with torch.random.fork_rng(), progress.task("tuning the encoder", len(batches)) as running:
            torch.manual_seed(tuning.seed)
            state = _TrainingState(encoder, tuning, keep)
            running.advance(len(state.losses))
            for rows in batches[len(state.losses) :]:
                state.step(_batch_loss(encoder, *ids, pairs, rows, tuning))
                running.advance(status=f"loss {state.losses[-1]:.4f}")
    finally:
        restore()
        table.requires_grad_(True)
        encoder.model.eval()
    sizes = [len(rows) for rows in batches[:steps]]
    losses = [
        float(np.average(state.losses[first : first + steps], weights=sizes))
        for first in range(0, len(batches), steps)
    ]
    if keep is not None:
        with atomic_folder(keep) as folder, quiet_transformers():
            encoder.model.save_pretrained(folder)
            write_json(folder / LOSSES, losses)
    if state.checkpoints is not None:
        state.checkpoints.clear()
    return losses


class _TrainingState:
    """Optimiser, losses and checkpoints."""

    def __init__(self, encoder: WordEncoder, tuning: Tuning, keep: Path | None) -> None:
        self.device = encoder.device
        self.trained = {n: p for n, p in encoder.model.named_parameters() if p.requires_grad}
        self.optimiser = torch.optim.AdamW(
            self.trained.values(), lr=tuning.learning_rate, weight_decay=tuning.weight_decay
        )
        self.losses: list[float] = []  # of each step so far
        self.checkpoints = None
        if keep is not None:
            self.checkpoints = Checkpoints(keep, keep.parent.name)
            if (found := self.checkpoints.restore(self.trained, self.optimiser)) is not None:
                more, state = found
                set_random_state(more["random"], self.device)
                self.losses = state["losses"]

    def step(self, loss: Tensor) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.losses.append(float(loss.detach()))
        rate = self.optimiser.param_groups[0]["lr"]
        check_finite(self.losses[-1], f"step {len(self.losses)}", rate)
        if self.checkpoints is not None and self.checkpoints.due():
            more, state = {"random": random_state(self.device)}, {"losses": self.losses}
            self.checkpoints.save(self.trained, self.optimiser, more, state)


def _batch_loss(
    encoder: WordEncoder,
    source_ids: list[list[int]],
    target_ids: list[list[int]],
    pairs: ContrastivePairs,
    rows: Pairs,
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


def _one_dimension(
    start: Space, vectors: list[np.ndarray], positives: Pairs, device: torch.device
) -> list[tuple[Tensor, Tensor]]:
    """For each side C1's rows mapped to the encoder's, and the encoder's, all unit rows (n, d).

    The map is Procrustes on the training words of both languages. The narrower rows are padded
    with zeros to the larger of the two widths, so that neither view loses anything.
    """
    sides = [
        (unit_(matrix(space.vectors, device)), unit_(matrix(own, device)))
        for space, own in zip((start.source, start.target), vectors, strict=True)
    ]
    width = max(start.dim, vectors[0].shape[1])
    trained = [torch.from_numpy(np.unique(words)).to(device) for words in positives.T]
    rows = [(side[0][words], side[1][words]) for side, words in zip(sides, trained, strict=True)]
    ours, theirs = (
        torch.cat([_padded(view, width) for view in views]) for views in zip(*rows, strict=True)
    )
    turn = orthogonal_map(ours, theirs).to(device, torch.float32)[: start.dim]
    return [(space @ turn, _padded(own, width)) for space, own in sides]


def _padded(rows: Tensor, width: int) -> Tensor:
    return F.pad(rows, (0, width - rows.shape[1]))


def _mix(space: Tensor, encoder: Tensor, weight: float) -> Tensor:
    return unit_(torch.lerp(space, encoder, weight))
