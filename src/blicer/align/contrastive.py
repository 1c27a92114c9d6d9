"""C1: two linear maps, trained to tell a translation from its hard negatives (METHOD.md §6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from blicer import progress
from blicer.align.base import UNIT_CENTRE_UNIT, Aligner, check_at_least, prepare, seeds_to_indices
from blicer.align.closed_form import final_map_
from blicer.align.contrastive_step import contrastive_step, mapped_unit
from blicer.align.linear import apply_
from blicer.align.mining import NegativeMiner
from blicer.align.space import Space
from blicer.align.vecmap import INITS, VecMap
from blicer.augmentation import silver_pairs
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.retrieval import Retriever

Maps = tuple[Tensor, Tensor]
VERDICT = ("converged", "verdict")  # on a start without seeds
FEW_SEEDS: Mapping[str, Any] = {
    "learning_rate": 2.0,
    "decay": 1.0,
    "steps": 50,
    "negatives": 60,
    "rounds": 3,
    "mined_pairs": 6_000,
    "mined_from": 20_000,
    "train_on_mined": True,
}


class Contrastive(Aligner):
    """Contrastive maps in self-learning rounds (stage 1 of ContrastiveBLI).

    Every round starts from VecMap's closed-form map on the seeds and the pairs mined in the space
    of the round before, then takes ``steps`` steps of gradient descent on
    ``-log softmax`` of each pair's cosine against ``negatives`` hard negatives on either side.

    ``min_recall`` is the share of the true nearest negatives below which the whole vocabulary is
    scanned again (1: at every step); ``pool`` is how many times more candidates than negatives a
    scan keeps. ``through_lengths`` differentiates the division by the mapped words' lengths; the
    public implementation does not, and gains less on held-out seeds.

    >>> space = Contrastive.preset("supervised").align(english, french, seeds)  # doctest: +SKIP
    """

    method = "c1"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "supervised": {},
        "semi_supervised": FEW_SEEDS,
        "unsupervised": {**FEW_SEEDS, "unsupervised": True},
    }

    def __init__(
        self,
        *,
        learning_rate: float = 1.5,
        decay: float = 0.99,
        steps: int = 200,
        negatives: int = 150,
        negatives_from: int = 60_000,
        max_gradient: float = 0.15,
        rounds: int = 2,
        mined_pairs: int = 10_000,
        mined_from: int = 60_000,
        train_on_mined: bool = False,
        unsupervised: bool = False,
        init: str = "distributions",
        encoder: str = "lite",
        centre: bool = True,
        through_lengths: bool = True,
        pool: float = 1.5,
        min_recall: float = 0.99,
        max_words: int = 200_000,
        memory_gb: float = 2.0,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        for name, value, low in (
            ("learning_rate", learning_rate, 0),
            ("decay", decay, 0),
            ("max_gradient", max_gradient, 0),
            ("memory_gb", memory_gb, 0),
        ):
            if not value > low:
                raise InputError(f"{name} = {value}: expected a number above {low}")
        check_at_least(
            steps=(steps, 0),
            negatives=(negatives, 1),
            negatives_from=(negatives_from, 2),
            rounds=(rounds, 1),
            mined_pairs=(mined_pairs, 0),
            mined_from=(mined_from, 1),
            max_words=(max_words, 2),
            seed=(seed, 0),
        )
        if not 0 <= min_recall <= 1:
            raise InputError(f"min_recall = {min_recall}: expected a share from 0 to 1")
        self.learning_rate, self.decay, self.steps = learning_rate, decay, steps
        self.negatives, self.negatives_from = negatives, negatives_from
        self.max_gradient = max_gradient
        self.rounds = rounds
        self.mined_pairs, self.mined_from = mined_pairs, mined_from
        self.train_on_mined, self.unsupervised = train_on_mined, unsupervised
        if init not in INITS[1:]:
            raise InputError(f"init is {init!r}; expected one of {', '.join(INITS[1:])}")
        self.init, self.encoder = init, encoder
        self.centre, self.through_lengths = centre, through_lengths
        self.pool, self.min_recall = pool, min_recall
        self.max_words, self.memory_gb = max_words, memory_gb
        self.seed, self.device = seed, device

    def align(self, source: Embeddings, target: Embeddings, seeds: Lexicon | None = None) -> Space:
        device = resolve_device(self.device)
        if self.unsupervised and seeds is not None:
            raise InputError(
                "C1 in its unsupervised mode takes no seed pairs; use semi_supervised with them"
            )
        known = np.zeros((0, 2), np.int64)
        if not self.unsupervised:
            known = seeds_to_indices(source, target, seeds, method="C1")
        for side, words in (("source", source), ("target", target)):
            if len(words) < 2:
                raise InputError(f"C1 needs at least 2 {side} words to find negatives among")
        outcome: dict[str, Any] = {"seed_pairs": len(known), "rounds_run": []}
        mined = known[:0]
        if self.unsupervised:
            mined, start = self._first_dictionary(source, target)
            outcome |= {"start": start, **{k: v for k, v in start.items() if k in VERDICT}}
        normalisation = UNIT_CENTRE_UNIT if self.centre else ("unit",)
        x, y = prepare(source, target, normalisation=normalisation, device=device)
        for turn in range(self.rounds):
            dictionary = np.concatenate([known, mined])
            trained_on = dictionary if self.train_on_mined or self.unsupervised else known
            label = f"C1, round {turn + 1} of {self.rounds}, {len(trained_on)} pairs"
            maps, report = self._descend(
                x, y, trained_on, closed_form_maps(x, y, dictionary), label
            )
            outcome["rounds_run"].append({"mined_pairs": len(mined), **report})
            if turn + 1 < self.rounds:
                mined = self._mine_pairs(x, y, maps, known)
        return self.space(source, target, apply_(x, maps[0]), apply_(y, maps[1]), **outcome)

    def _first_dictionary(
        self, source: Embeddings, target: Embeddings
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Without seeds: confident pairs of an unsupervised VecMap space, and how that went.

        Whether the start failed is VecMap's to detect and to say; it stays with our space.
        """
        start = VecMap.preset(
            "unsupervised",
            init=self.init,
            encoder=self.encoder,
            seed=self.seed,
            device=self.device,
        )
        space = start.align(source.head(self.max_words), target.head(self.max_words))
        report = {k: v for k, v in space.settings.items() if k not in start.settings}
        return self._confident(space.retriever, np.zeros((0, 2), np.int64)), report

    def _mine_pairs(self, x: Tensor, y: Tensor, maps: Maps, known: np.ndarray) -> np.ndarray:
        a = mapped_unit(x[: self.max_words], maps[0])[0]
        b = mapped_unit(y[: self.max_words], maps[1])[0]
        return self._confident(Retriever(a, b, device=x.device, memory_gb=self.memory_gb), known)

    def _confident(self, retriever: Retriever, known: np.ndarray) -> np.ndarray:
        """Best matches of frequent words, best-scoring first, of both directions; no seed word."""
        return silver_pairs(
            retriever,
            known,
            n_aug=2 * self.mined_pairs,
            n_freq=self.mined_from,
            n_aug_pool=self.mined_pairs,
        )

    def _descend(
        self, x: Tensor, y: Tensor, pairs: np.ndarray, maps: Maps, label: str
    ) -> tuple[Maps, dict[str, Any]]:
        """``steps`` steps of clipped gradient descent; the maps, and how it went."""
        source, source_rows, source_limit = self._working_rows(x, pairs[:, 0])
        target, target_rows, target_limit = self._working_rows(y, pairs[:, 1])
        rows = torch.stack([source_rows, target_rows], dim=1)
        options: dict[str, Any] = {
            "negatives": self.negatives,
            "pool": self.pool,
            "min_recall": self.min_recall,
            "memory_gb": self.memory_gb,
            "seed": self.seed,
        }
        forward = NegativeMiner(target_rows, target_limit, **options)
        backward = NegativeMiner(source_rows, source_limit, **options)
        source_map, target_map = (each.to(x.device, torch.float32) for each in maps)
        rate, losses = self.learning_rate, []
        with torch.no_grad(), progress.task(label, self.steps) as running:
            for _ in range(self.steps):
                step = contrastive_step(
                    source,
                    target,
                    source_map,
                    target_map,
                    rows,
                    forward,
                    backward,
                    candidates=(source_limit, target_limit),
                    through_lengths=self.through_lengths,
                )
                clip = min(1.0, self.max_gradient / (step.norm + 1e-6))
                source_map = source_map - rate * clip * step.source_gradient
                target_map = target_map - rate * clip * step.target_gradient
                rate *= self.decay
                losses.append(step.loss)
                running.advance(status=f"loss {step.loss:.4f}")
        report = {
            "pairs": len(pairs),
            "first_loss": losses[0] if losses else None,
            "last_loss": losses[-1] if losses else None,
            "full_scans": max(forward.scans, backward.scans),
            "lowest_recall": min([1.0, *forward.recalls, *backward.recalls]),
        }
        if losses:
            progress.note(
                f"{label}: loss {losses[0]:.4f} to {losses[-1]:.4f} in {self.steps} steps with "
                f"{report['full_scans']} full scans for negatives"
            )
        return (source_map, target_map), report

    def _working_rows(self, vectors: Tensor, words: np.ndarray) -> tuple[Tensor, Tensor, int]:
        """The rows that the steps need: the frequent words, then rarer dictionary words.

        Returns the rows, the places of ``words`` among them, and how many are candidates.
        """
        limit = min(self.negatives_from, len(vectors))
        rare = np.unique(words[words >= limit])
        places = np.where(words < limit, words, limit + np.searchsorted(rare, words))
        rows = vectors[:limit]
        if len(rare):
            rows = torch.cat([rows, vectors[torch.from_numpy(rare).to(vectors.device)]])
        return rows, torch.from_numpy(places).to(vectors.device), limit


def closed_form_maps(x: Tensor, y: Tensor, pairs: np.ndarray) -> Maps:
    """VecMap's supervised map as two (d, d) matrices: what it makes of the axes themselves.

    Only the dictionary's rows take part, so a copy of these and the axes is all that is mapped.
    """
    axes = torch.eye(x.shape[1], device=x.device)
    sides, places = [], []
    for vectors, words in ((x, pairs[:, 0]), (y, pairs[:, 1])):
        rows, place = np.unique(words, return_inverse=True)
        sides.append(torch.cat([vectors[torch.from_numpy(rows).to(x.device)], axes]))
        places.append(torch.from_numpy(place.reshape(-1)))
    final_map_(sides[0], sides[1], torch.stack(places, dim=1), 0.5)
    return sides[0][-len(axes) :], sides[1][-len(axes) :]
