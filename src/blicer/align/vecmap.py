"""VecMap: supervised, semi-supervised, unsupervised, from identical words or from numerals."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from blicer.align.base import Aligner, prepare, seeds_to_indices
from blicer.align.first_dictionary import (
    from_distributions,
    from_encoder,
    from_identical,
    from_numerals,
)
from blicer.align.linear import apply_, cross_product, orthogonal_map
from blicer.align.procrustes import distinct_pairs
from blicer.align.selflearning import Learned, Schedule, self_learn
from blicer.align.space import Space
from blicer.align.trust import Trust, check_trust
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon
from blicer.progress import note
from blicer.wordencoder import WordEncoder

INITS = ("seeds", "distributions", "encoder", "identical", "numerals")
SMALLEST_VARIANCE = 1e-10  # of the largest: below it a direction is rounding error in float32


class VecMap(Aligner):
    """Artetxe et al.'s map, in closed form or with stochastic self-learning (METHOD.md §6).

    ``init`` says where the first dictionary comes from: the seeds, the sorted similarity
    distributions of the most frequent words (no supervision), a multilingual encoder's own
    vectors of words, identical words, or numerals.

    >>> VecMap.preset("unsupervised").align(finnish, estonian)  # doctest: +SKIP
    """

    method = "vecmap"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "supervised": {"init": "seeds", "self_learning": False},
        "semi_supervised": {"init": "seeds", "self_learning": True},
        "unsupervised": {"init": "distributions", "self_learning": True},
        "encoder": {"init": "encoder", "self_learning": True},
        "identical": {"init": "identical", "self_learning": True},
        "numerals": {"init": "numerals", "self_learning": True},
    }

    def __init__(
        self,
        *,
        init: str = "seeds",
        self_learning: bool = False,
        reweight: float = 0.5,
        words: int = 20_000,
        init_words: int = 4_000,
        encoder: str = "lite",
        k_csls: int = 10,
        keep_start: float = 0.1,
        keep_factor: float = 2.0,
        patience: int = 50,
        threshold: float = 1e-6,
        max_iterations: int | None = None,
        memory_gb: float = 2.0,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        if init not in INITS:
            raise InputError(f"init is {init!r}; expected one of {', '.join(INITS)}")
        if not 0.0 < keep_start <= 1.0:
            raise InputError(f"keep_start is {keep_start}; expected a probability above 0, up to 1")
        if keep_factor <= 1.0:
            raise InputError(f"keep_factor is {keep_factor}; expected more than 1")
        for name, value in (("words", words), ("init_words", init_words), ("patience", patience)):
            if value < 1:
                raise InputError(f"{name} is {value}; expected at least 1")
        self.init = init
        self.self_learning = self_learning
        self.reweight = reweight
        self.words = words
        self.init_words = init_words
        self.encoder = encoder
        self.k_csls = k_csls
        self.keep_start = keep_start
        self.keep_factor = keep_factor
        self.patience = patience
        self.threshold = threshold
        self.max_iterations = max_iterations
        self.memory_gb = memory_gb
        self.seed = seed
        self.device = device

    def align(self, source: Embeddings, target: Embeddings, seeds: Lexicon | None = None) -> Space:
        device = resolve_device(self.device)
        pairs = self._given_dictionary(source, target, seeds)
        x, y = prepare(source, target, device=device)
        if pairs is None:
            pairs = from_distributions(
                x, y, words=self.init_words, k_csls=self.k_csls, memory_gb=self.memory_gb
            )
        outcome: dict[str, Any] = {"first_pairs": len(pairs)}
        if self.self_learning:
            learned = self_learn(
                x, y, pairs, self._schedule(), seed=self.seed, memory_gb=self.memory_gb
            )
            pairs = learned.pairs
            trust = check_trust(
                x, y, pairs, seed=self.seed, k_csls=self.k_csls, memory_gb=self.memory_gb
            )
            outcome |= self._verdict(learned, trust)
        outcome["whitened"] = final_map_(x, y, pairs, self.reweight)
        return self.space(source, target, x, y, **outcome)

    def _given_dictionary(
        self, source: Embeddings, target: Embeddings, seeds: Lexicon | None
    ) -> Tensor | None:
        """The first dictionary as far as words give it; None for the unsupervised start."""
        if self.init == "seeds":
            return torch.from_numpy(seeds_to_indices(source, target, seeds, method="VecMap"))
        if seeds is not None:
            note(f"the seeds are not used: this mode starts from {self.init}")
        if self.init == "identical":
            return from_identical(source, target)
        if self.init == "encoder":
            encoder = WordEncoder(self.encoder, device=self.device)
            return from_encoder(source, target, encoder, words=self.words, k_csls=self.k_csls)
        return from_numerals(source, target) if self.init == "numerals" else None

    def _schedule(self) -> Schedule:
        return Schedule(
            words=self.words,
            k_csls=self.k_csls,
            keep_start=self.keep_start,
            keep_factor=self.keep_factor,
            patience=self.patience,
            threshold=self.threshold,
            max_iterations=self.max_iterations,
        )

    def _verdict(self, learned: Learned, trust: Trust) -> dict[str, Any]:
        """How self-learning went; a run that failed is not handed over in silence."""
        outcome: dict[str, Any] = {
            "objective": learned.objective,
            "iterations": learned.iterations,
            "trust": round(trust.score, 4),
            "converged": trust.enough,
        }
        if not learned.stalled:
            note(f"self-learning was cut short after {learned.iterations} iterations, as set")
        if not trust.enough:
            outcome["verdict"] = (
                "self-learning did not find a common structure of the two spaces (objective "
                f"{100 * learned.objective:.1f} %; {100 * trust.agreement:.0f} % of held-out pairs "
                f"agree, {100 * trust.chance:.0f} % would by chance): {self._advice()}"
            )
            warnings.warn(outcome["verdict"], stacklevel=3)
        return outcome

    def _advice(self) -> str:
        if self.init == "seeds":
            return "give more seed pairs, or check that they are right"
        others = [init for init in ("encoder", "identical", "numerals") if init != self.init]
        return (
            f"give seed pairs (some hundreds suffice), try the mode {' or '.join(others)} or "
            "another seed of the random draws, and check that both sides are vectors of frequent "
            "words, most frequent first"
        )


def whitening(rows: Tensor) -> Tensor | None:
    """The symmetric (d, d) float64 W that makes ``rows @ W`` uncorrelated; None if ill-posed."""
    variances, directions = torch.linalg.eigh(cross_product(rows, rows))
    if float(variances[0]) <= SMALLEST_VARIANCE * float(variances[-1]):
        return None
    scaled: Tensor = (directions / variances.sqrt()) @ directions.T
    return scaled


def final_map_(x: Tensor, y: Tensor, pairs: Tensor, reweight: float) -> bool:
    """VecMap's supervised map, applied to both matrices in place. True if it could whiten.

    Whitened seeds give canonical correlations. With fewer than 2·d distinct seeds some of these
    are 1 whatever the data (two d-dimensional subspaces of a smaller space always meet), with
    fewer than d the whitening itself does not exist. Then the orthogonal map, which is well-posed,
    takes its place (on held-out seeds it is better there by 4 to 20 points of P@1).
    """
    dimensions, distinct = x.shape[1], distinct_pairs(np.asarray(pairs))
    rows_x = x[pairs[:, 0].to(x.device)]
    rows_y = y[pairs[:, 1].to(y.device)]
    whiten_x = whitening(rows_x) if distinct >= 2 * dimensions else None
    whiten_y = whitening(rows_y) if distinct >= 2 * dimensions else None
    if whiten_x is None or whiten_y is None:
        why = (
            f"{distinct} distinct seed pairs are too few to whiten {dimensions} dimensions"
            f" (at least {2 * dimensions} are needed)"
            if distinct < 2 * dimensions
            else "the seed vectors do not span all dimensions"
        )
        note(f"{why}: mapped by orthogonal Procrustes instead")
        apply_(x, orthogonal_map(rows_x, rows_y))
        return False
    correlation = whiten_x.T @ cross_product(rows_x, rows_y) @ whiten_y
    left, scales, right = torch.linalg.svd(correlation)
    weights = torch.diag(scales.clamp(min=0) ** reweight)
    # whiten, rotate, re-weight, de-whiten with the side's own whitening (seen in the rotated axes)
    apply_(x, whiten_x @ left @ weights @ left.T @ torch.linalg.inv(whiten_x) @ left)
    turn = right.T
    apply_(y, whiten_y @ turn @ weights @ right @ torch.linalg.inv(whiten_y) @ turn)
    return True
