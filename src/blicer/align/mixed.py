"""C2: C1's space mixed with a multilingual encoder's own word vectors (METHOD.md §6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from blicer import progress
from blicer.align.base import Aligner, check_at_least, seeds_to_indices
from blicer.align.biencoder import ContrastivePairs, Tuning, tune
from blicer.align.contrastive import VERDICT, Contrastive
from blicer.align.linear import matrix, orthogonal_map, unit_
from blicer.align.space import Space
from blicer.augmentation import silver_pairs
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.retrieval import Retriever
from blicer.stages import digest
from blicer.wordencoder import WordEncoder

# What an encoder needs other than the paper's; chosen on held-out training seeds.
ENCODER_TUNING: dict[str, dict[str, Any]] = {
    "lite": {"epochs": 1, "learning_rate": 1e-4, "train_table": False},
}
ENCODER_WEIGHT = {"lite": 0.5}
PAPER_WEIGHT = 0.2
CHOOSE = "auto"
WEIGHTS = np.linspace(0.0, 1.0, 21)  # that the encoder's share is chosen among
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
        apart = seeds.splits_apart(self.holdout)
        rest, held = seeds.split(self.holdout, seed=self.seed, share_targets=not apart)
        gold = held.indices(source, target)
        if len(gold) == 0:
            raise InputError("no held-out seed pair is in both vocabularies to choose a weight on")
        progress.note(f"C2: choosing the weight on {len(held)} held-out seed pairs")
        _, x, y, _ = self._two_views(source, target, rest)
        curve = []
        for weight in WEIGHTS:
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
