"""C2: C1's space mixed with a multilingual encoder's own word vectors (METHOD.md §6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from blicer import progress
from blicer.align.base import Aligner, check_at_least, seeds_to_indices
from blicer.align.contrastive import VERDICT, Contrastive
from blicer.align.linear import matrix, orthogonal_map, unit_
from blicer.align.space import Space
from blicer.devices import random_state, set_random_state
from blicer.embeddings import Embeddings
from blicer.encoders.loading import quiet_transformers
from blicer.encoders.tuning import Checkpoints, train_rows_only
from blicer.encoders.words import WordEncoder
from blicer.errors import InputError
from blicer.files import atomic_folder, digest, read_json, write_json
from blicer.lexicon import Lexicon, splits_apart
from blicer.neighbours.mining import silver_pairs
from blicer.neighbours.retriever import Retriever

# === align.biencoder ===
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
    padding = np.array([encoder.tokenizer.pad_token_id or 0])
    restore = train_rows_only(encoder.model, padding, *used)
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
            more = {"random": random_state(self.device)}
            state = {"losses": self.losses}
            self.store.save(len(self.losses), self.trained, self.optimiser, more, state)

    def _resume(self, store: Checkpoints) -> None:
        if (found := store.restore(self.trained, self.optimiser)) is not None:
            _, more, state = found
            set_random_state(more["random"], self.device)
            self.losses = state["losses"]

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


# === align.mixed ===
# What an encoder needs other than the paper's; chosen on held-out training seeds.
ENCODER_TUNING: dict[str, dict[str, Any]] = {
    "lite": {"epochs": 1, "learning_rate": 1e-4, "train_table": False},
}
ENCODER_WEIGHT = {"lite": 0.5}
PAPER_WEIGHT = 0.2
CHOOSE = "auto"
WEIGHTS_MIXED = np.linspace(0.0, 1.0, 21)  # that the encoder's share is chosen among
SILVER = {"n_aug": 4_000, "n_freq": 20_000, "n_aug_pool": 6_000}


class Mixed(Aligner):
    """``normalise((1 - weight) C1 + weight · encoder)``, the encoder tuned on C1's hard negatives.

    A ``weight`` of "auto" is chosen on seed words that neither C1 nor the encoder saw. ``c1`` holds
    settings for C1 other than its mode's. A weight or a setting of the tuning left at None is the
    encoder's own (`lite`) or else the paper's (0.2).

    >>> space = Mixed.preset("supervised").align(english, french, seeds)  # doctest: +SKIP
    """

    method = "c2"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "supervised": {"mode": "supervised"},
        "semi_supervised": {"mode": "semi_supervised", "silver": True},
        "unsupervised": {"mode": "unsupervised", "silver": True},
    }

    def __init__(
        self,
        *,
        mode: str = "supervised",
        encoder: str = "lite",
        weight: float | str | None = None,
        negatives: int = 28,
        negatives_from: int = 60_000,
        silver: bool = False,
        epochs: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        temperature: float | None = None,
        train_table: bool | None = None,
        max_length: int = 6,
        holdout: float = 0.15,
        init: str = "distributions",
        c1: dict[str, Any] | None = None,
        seed: int = 33,
        device: str = "auto",
    ) -> None:
        if mode not in Contrastive.presets:
            raise InputError(f"mode is {mode!r}; expected one of {', '.join(Contrastive.presets)}")
        if isinstance(weight, str):
            if weight != CHOOSE:
                raise InputError(f"weight is {weight!r}; expected {CHOOSE} or a share from 0 to 1")
        elif weight is not None and not 0 <= weight <= 1:
            raise InputError(f"weight is {weight}; expected a share from 0 to 1")
        if negatives < 1 or negatives_from < 2:
            raise InputError(
                f"negatives is {negatives} of {negatives_from}; expected at least 1 of 2"
            )
        check_at_least(
            epochs=(epochs, 0),
            batch_size=(batch_size, 1),
            learning_rate=(learning_rate, 0),
            seed=(seed, 0),
        )
        if temperature is not None and not temperature > 0:
            raise InputError(f"temperature is {temperature}; expected a number above 0")
        if c1 is not None and not isinstance(c1, dict):
            raise InputError(f'c1 is {c1!r}; expected settings of C1, such as {{"steps": 100}}')
        if not 0 < holdout < 1:
            raise InputError(f"holdout is {holdout}; expected a share above 0 and below 1")
        self.mode, self.encoder, self.weight = mode, encoder, weight
        self.negatives, self.negatives_from = negatives, negatives_from
        self.silver = silver
        self.epochs, self.learning_rate = epochs, learning_rate
        self.batch_size, self.temperature = batch_size, temperature
        self.train_table = train_table
        self.max_length, self.holdout, self.init = max_length, holdout, init
        self.c1, self.seed, self.device = c1, seed, device
        self._first_stage()  # a setting that C1 does not have is found before anything is computed

    def align(self, source: Embeddings, target: Embeddings, seeds: Lexicon | None = None) -> Space:
        weight, curve = self.weight, None
        if weight is None:
            weight = ENCODER_WEIGHT.get(self.encoder, PAPER_WEIGHT)
        elif isinstance(weight, str):
            if seeds is None:
                raise InputError("without seeds there is nothing to choose the weight on: give one")
            weight, curve = self._choose_weight(source, target, seeds)
        start, x, y, report = self._two_views(source, target, seeds)
        outcome = {
            **report,
            "chosen_weight": weight,
            "c1_settings": start.settings,
            **{key: value for key, value in start.settings.items() if key in VERDICT},
        }
        if curve is not None:
            outcome["weight_curve"] = curve
        return self.space(source, target, _mix(*x, weight), _mix(*y, weight), **outcome)

    def _first_stage(self) -> Contrastive:
        settings = {"device": self.device, **(self.c1 or {})}
        if self.mode == "unsupervised":
            settings = {"init": self.init, "encoder": self.encoder, **settings}
        return Contrastive.preset(self.mode, **settings)

    def _two_views(
        self, source: Embeddings, target: Embeddings, seeds: Lexicon | None
    ) -> tuple[Space, tuple[Tensor, Tensor], tuple[Tensor, Tensor], dict[str, Any]]:
        """C1's space; (C1, encoder) unit rows of each side, in one dimension; how it went."""
        encoder = WordEncoder(self.encoder, max_length=self.max_length, device=self.device)
        first = self._first_stage()
        first.work = self.work
        start = first.kept(source, target, seeds)
        known = np.zeros((0, 2), np.int64)
        if seeds is not None:
            known = np.unique(seeds_to_indices(source, target, seeds, method="C2"), axis=0)
        positives = known
        if self.silver:
            mined = silver_pairs(start.retriever, known, **SILVER)
            positives = np.concatenate([known, mined])
        if len(positives) == 0:
            raise InputError("C2 found no pair to tune the encoder on")
        pairs = hard_negatives(start, positives, self.negatives, self.negatives_from)
        work = None
        if self.work is not None:
            shown = digest(pairs.positives, pairs.targets, pairs.sources)
            told = [repr(self._tuning()), shown, *source.words, *target.words]
            work = self.work / f"c2-{encoder.key(told)}"
        losses = tune(
            encoder,
            list(source.words),
            list(target.words),
            pairs,
            self._tuning(),
            keep=work / "encoder" if work else None,
        )
        cache = work / "words" if work else None
        vectors = [encoder.encode(side.words, cache=cache) for side in (source, target)]
        x, y = _one_dimension(start, vectors, positives, encoder.device)
        report = {"tuned_on": len(positives), "silver_pairs": len(positives) - len(known)}
        return start, x, y, {**report, "losses": losses}

    def _tuning(self) -> Tuning:
        """The settings of the tuning: as given, else the encoder's own, else the paper's."""
        usual = ENCODER_TUNING.get(self.encoder, {})
        names = [field.name for field in dataclasses.fields(Tuning) if field.name != "seed"]
        given = {name: getattr(self, name, None) for name in names}
        chosen = {name: value for name, value in given.items() if value is not None}
        return Tuning(**{**usual, **chosen, "seed": self.seed})

    def _choose_weight(
        self, source: Embeddings, target: Embeddings, seeds: Lexicon
    ) -> tuple[float, list[list[float]]]:
        """The share with the best P@1 on held-out seed words, of both directions."""
        apart = splits_apart(seeds.numbered(), self.holdout)
        rest, held = seeds.split(self.holdout, seed=self.seed, share_targets=not apart)
        gold = held.indices(source, target)
        if len(gold) == 0:
            raise InputError("no held-out seed pair is in both vocabularies to choose a weight on")
        progress.note(f"C2: choosing the weight on {len(held)} held-out seed pairs")
        _, x, y, _ = self._two_views(source, target, rest)
        curve = []
        for weight in WEIGHTS_MIXED:
            retriever = Retriever(_mix(*x, weight), _mix(*y, weight), device=x[0].device)
            curve.append([float(weight), _precision(retriever, gold)])
        best = max(value for _, value in curve)
        level = [weight for weight, value in curve if value == best]
        chosen = level[len(level) // 2]
        progress.note(f"C2: weight {chosen:.2f} (P@1 {100 * best:.1f} on held-out seeds)")
        return chosen, curve


def hard_negatives(
    space: Space, positives: np.ndarray, negatives: int, words: int
) -> ContrastivePairs:
    """For each positive the nearest wrong words of either side, among the most frequent."""

    def nearest(asked: np.ndarray, right: np.ndarray, *, reverse: bool) -> np.ndarray:
        offered = space.source if reverse else space.target
        limit = min(words, len(offered))
        count = min(negatives, limit - 1)
        # The right word may be one of them; one more is asked for, and the last one cut off.
        found = space.retriever.search(count + 1, asked, reverse=reverse, limit=limit)
        wrong = found.indices != right[:, None]
        order = np.argsort(~wrong, axis=1, kind="stable")
        kept: np.ndarray = np.take_along_axis(found.indices, order, axis=1)[:, :count]
        return kept

    return ContrastivePairs(
        positives,
        nearest(positives[:, 0], positives[:, 1], reverse=False),
        nearest(positives[:, 1], positives[:, 0], reverse=True),
    )


def _one_dimension(
    start: Space, vectors: list[np.ndarray], positives: np.ndarray, device: torch.device
) -> list[tuple[Tensor, Tensor]]:
    """For each side C1's rows mapped to the encoder's, and the encoder's, all unit rows (n, d).

    The map is Procrustes on the training words of both languages. Of the two widths the larger
    is taken, the narrower rows being filled up with zeros, so that neither view loses any of its.
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
    return torch.nn.functional.pad(rows, (0, width - rows.shape[1]))


def _mix(space: Tensor, encoder: Tensor, weight: float) -> Tensor:
    return unit_(torch.lerp(space, encoder, weight))


def _precision(retriever: Retriever, gold: np.ndarray) -> float:
    """P@1 over the distinct words of both sides."""
    hits = []
    for reverse in (False, True):
        pairs = gold[:, ::-1] if reverse else gold
        right: dict[int, set[int]] = {}
        for asked, wanted in pairs.tolist():
            right.setdefault(asked, set()).add(wanted)
        queries = np.array(sorted(right), dtype=np.int64)
        found = retriever.search(1, queries, reverse=reverse).indices[:, 0].tolist()
        hits += [best in right[query] for query, best in zip(queries.tolist(), found, strict=True)]
    return float(np.mean(hits))
