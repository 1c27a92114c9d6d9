"""VecMap: supervised, semi-supervised, unsupervised, from identical words or from numerals."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from blicer.align.base import Aligner, check_at_least, prepare, seeds_to_indices
from blicer.align.closed_form import final_map_
from blicer.align.colearning import co_learn
from blicer.align.first_dictionary import from_distributions, from_identical, from_numerals
from blicer.align.induction import induce
from blicer.align.linear import orthogonal_map, unit_
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
        encoder_rounds: int = 3,
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
        check_at_least(
            words=(words, 1),
            init_words=(init_words, 1),
            patience=(patience, 1),
            k_csls=(k_csls, 1),
            encoder_rounds=(encoder_rounds, 0),
            seed=(seed, 0),
        )
        if not memory_gb > 0:
            raise InputError(f"memory_gb is {memory_gb}; expected a number above 0")
        self.init = init
        self.self_learning = self_learning
        self.reweight = reweight
        self.words = words
        self.init_words = init_words
        self.encoder = encoder
        self.encoder_rounds = encoder_rounds
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
        learned = None
        if self.init == "encoder":
            learned = self._learn_with_encoder(source, target, x, y)
        elif pairs is None:
            pairs = from_distributions(
                x, y, words=self.init_words, k_csls=self.k_csls, memory_gb=self.memory_gb
            )
        outcome: dict[str, Any] = {}
        if pairs is not None:
            outcome["first_pairs"] = len(pairs)
            if self.self_learning:
                schedule = self._schedule()
                learned = self_learn(
                    x, y, pairs, schedule, seed=self.seed, memory_gb=self.memory_gb
                )
        if learned is not None:
            pairs = learned.pairs
            trust = check_trust(
                x, y, pairs, seed=self.seed, k_csls=self.k_csls, memory_gb=self.memory_gb
            )
            outcome |= self._verdict(learned, trust)
        assert pairs is not None  # one of the starts gave them
        outcome["whitened"] = final_map_(x, y, pairs, self.reweight)
        return self.space(source, target, x, y, **outcome)

    def _learn_with_encoder(
        self, source: Embeddings, target: Embeddings, x: Tensor, y: Tensor
    ) -> Learned:
        """A dictionary from the encoder's own vectors and, with self-learning, from both views."""
        encoder = WordEncoder(self.encoder, device=self.device)
        own = [
            unit_(torch.from_numpy(encoder.encode(words, cache=self.work)).to(x.device))
            for words in (source.words[: self.words], target.words[: self.words])
        ]
        rounds = self.encoder_rounds if self.self_learning else 0
        head_x, head_y = x[: self.words], y[: self.words]
        pairs = co_learn(
            head_x,
            head_y,
            *own,
            rounds=rounds,
            reweight=self.reweight,
            k_csls=self.k_csls,
            memory_gb=self.memory_gb,
        )
        turn = orthogonal_map(head_x[pairs[:, 0]], head_y[pairs[:, 1]]).to(x.dtype).to(x.device)
        generator = torch.Generator().manual_seed(self.seed)
        induced = induce(
            head_x @ turn,
            head_y,
            generator=generator,
            k_csls=self.k_csls,
            memory_gb=self.memory_gb,
        )
        return Learned(pairs, induced.objective, rounds, stalled=True)

    def _given_dictionary(
        self, source: Embeddings, target: Embeddings, seeds: Lexicon | None
    ) -> Tensor | None:
        """The first dictionary as far as words give it; None if vectors have to."""
        if self.init == "seeds":
            return torch.from_numpy(seeds_to_indices(source, target, seeds, method="VecMap"))
        if seeds is not None:
            note(f"the seeds are not used: this mode starts from {self.init}")
        if self.init == "identical":
            return from_identical(source, target)
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
