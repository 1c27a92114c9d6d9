"""Two views of every word, learned in rounds: its mapped vector, and an encoder's own vector.

The steps, in the order of this file: choose a first dictionary; in each round map both sides by
what is known and mine the mutual nearest neighbours in both views side by side; descend on the
contrastive loss if that helps; put the two views side by side (docs/method.md §9).

What helps is decided by held-out seeds. Several chains run in step, each without one part of the
seeds, and one with all of them; every choice (the start, the encoder's weight, how many rounds,
whether to descend) is made once for all chains, on the seeds that each of them has not seen. With
too few seeds for that, the agreement of halves tells whether the outcome is a real map.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from blicer import progress
from blicer.align.base import (
    PCA_WORDS,
    Aligner,
    Folder,
    Masks,
    Pairs,
    Seeds,
    apply_,
    cross_product,
    prepare,
    unit_,
)
from blicer.align.contrastive import Contrastive
from blicer.align.space import Space
from blicer.align.vecmap import VecMap, from_shared_words, shrunk_maps
from blicer.config import AUTO, setting
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.encoders.words import WordEncoder
from blicer.errors import InputError
from blicer.files import atomic_folder, digest, read_json, write_json
from blicer.lexicon import fold_masks, queries
from blicer.stage_cache import stage, stage_folder

STARTS = ("encoder", "identical", "numerals", "distributions")
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
ENCODER_ALONE = math.inf
FEWEST_HELD_OUT = 20  # questions below which held-out seeds decide nothing
FEW_SEEDS = 500  # below which the first rounds look at the most frequent words only
FIRST_WORDS = 5_000
WEAK_START = 0.3  # P@1 below which few seeds get help from VecMap's self-learning
SELF_LEARNING: dict[str, Any] = {"words": 4_000, "patience": 2}
SAMPLE = 500  # words that hubness is estimated from when weights are compared
HUBS = 5
UNUSED = 5e-4  # share of an encoder's variance that is dropped with its weakest directions
GAIN = 0.003  # of the mean reciprocal rank: what another round must bring
ASKED_AMONG = 2  # times as many words as rounds learn from
MOST_ASKED = 1_000  # held-out pairs of a chain that are asked
DESCENT_MINED = 1_500  # mined pairs, most frequent first, that the descent learns from
DESCENT: dict[str, Any] = {
    "steps": 25,
    "negatives": 30,
    "negatives_from": 10_000,
    "learning_rate": 4.0,
    "decay": 1.0,
    "min_recall": 0.9,
}
ROUNDS_FILE, CHOICE_FILE = "rounds.safetensors", "choice.json"


@dataclass
class Chain:
    """One run of the rounds: the seeds that it uses, those held out of it, and what it found."""

    seeds: Pairs
    held: Pairs
    mined: Pairs
    maps: tuple[Tensor, Tensor] = field(init=False)


@dataclass
class Choice:
    """What was chosen so far, and on which evidence."""

    start: str = "seeds"
    weight: float = 0.0
    """How much longer the encoder's vector is than the mapped one (both have length 1 before)."""
    score: float = -1.0
    """Mean reciprocal rank of held-out seeds."""
    precision: float | None = None
    """P@1 of held-out seeds."""
    asked: int = 0
    curve: list[list[float]] = field(default_factory=list)
    """P@1 of held-out seeds by weight, after the last round."""
    rounds: list[dict[str, Any]] = field(default_factory=list)
    descended: bool = False
    done: bool = False


@dataclass(kw_only=True)
class TwoView(Aligner):
    """Rounds of mapping and mining in two views, the mapped vectors and an encoder's own.

    Takes any number of seeds, also none, and always keeps them.

    >>> space = TwoView().align(english, french, seeds)  # doctest: +SKIP
    """

    method = "twoview"
    presets: ClassVar = {"supervised": {}, "semi_supervised": {}, "unsupervised": {}}

    encoder: str = setting("lite", "whose vectors of words are the second view; none: one view")
    weight: float | None = setting(None, "of the encoder's view; none: by held-out seeds", low=0)
    words: int = setting(10_000, "most frequent words of each side that rounds learn from", low=1)
    rounds: int = setting(8, "the most rounds of mapping and mining", low=0)
    descent: str = setting(AUTO, "contrastive steps at the end", choices=(AUTO, "always", "never"))
    shrink: float = setting(0.2, "share of all words' covariance in the whitening", low=0, high=1)
    init: str = setting(AUTO, "start without seeds", choices=(AUTO, *STARTS))
    dimensions: int = setting(300, "the most dimensions of both views together", low=1)
    folds: int = setting(3, "parts of the seeds that choices are made on", low=2)
    memory_gb: float = setting(2.0, "bound of working memory", above=0)
    seed: int = setting(0, "of the random draws", low=0)

    def fit(
        self, source: Embeddings, target: Embeddings, pairs: Seeds, *, work: Folder = None
    ) -> Space:
        held = [] if pairs is None else fold_masks(pairs, self.folds, self.seed)
        return self._learn(source, target, pairs, held, work).space(-1)

    def fit_folds(
        self,
        source: Embeddings,
        target: Embeddings,
        pairs: Pairs,
        held: Masks,
        *,
        work: Folder = None,
        k_csls: int | None = None,
    ) -> Iterator[Space]:
        if not held:  # then the choices are made on folds of its own
            yield from super().fit_folds(source, target, pairs, held, work=work, k_csls=k_csls)
            return
        learner = None
        inputs = [*self.inputs(source, target, pairs), digest(*held)] if work is not None else []

        def fit(number: int) -> Space:
            nonlocal learner
            learner = learner or self._learn(source, target, pairs, held, work)
            return learner.space(number)

        for number in range(len(held) + 1):
            folder = None if work is None else stage_folder(work, "space", *inputs, number)
            yield self.cached(folder, partial(fit, number), (source, target), k_csls)

    def _learn(
        self, source: Embeddings, target: Embeddings, pairs: Seeds, held: Masks, work: Folder
    ) -> Learner:
        known = np.zeros((0, 2), np.int64) if pairs is None else pairs
        chains = [Chain(known[~part], known[part], known[:0]) for part in held]
        chains.append(Chain(known, known[:0], known[:0]))
        folder = None
        if work is not None:
            inputs = self.inputs(source, target, pairs)
            folder = stage_folder(work, "rounds", *inputs, digest(*held))
        with stage(folder):
            learner = Learner(self, source, target, chains, work, folder)
            learner.learn()
        return learner


def encoder_view(
    name: str, source: Embeddings, target: Embeddings, work: Folder, device: str
) -> list[Tensor]:
    """Unit rows of both sides from the encoder, without the dimensions that it does not use."""
    encoder = WordEncoder(name, device=device)
    sides = [
        unit_(torch.from_numpy(encoder.encode(side.words, cache=work)).to(encoder.device))
        for side in (source, target)
    ]
    return strongest(sides, encoder.dim, UNUSED)


def strongest(sides: list[Tensor], dimensions: int, dropped: float = 0.0) -> list[Tensor]:
    """Unit rows of both sides in the strongest directions of their frequent words.

    At most ``dimensions`` of them, without those that hold no more than a share ``dropped`` of the
    variance together.
    """
    used = sum(cross_product(side[:PCA_WORDS], side[:PCA_WORDS]) for side in sides)
    strengths, directions = torch.linalg.eigh(torch.as_tensor(used))  # weakest first
    few = int((strengths.cumsum(0) <= dropped * strengths.sum()).sum())
    few = max(few, len(strengths) - dimensions)
    if few == 0:
        return sides
    kept = directions[:, few:].to(sides[0])
    return [unit_(side @ kept) for side in sides]


class Learner:
    """The rounds of all chains over one pair of vector sets."""

    def __init__(
        self,
        settings: TwoView,
        source: Embeddings,
        target: Embeddings,
        chains: list[Chain],
        work: Folder,
        folder: Folder,
    ) -> None:
        self.settings, self.source, self.target = settings, source, target
        self.chains, self.folder = chains, folder
        # The mean of frequent words: with that of all words, few seeds lead to a poor map.
        self.vectors = prepare(
            source, target, frequent=settings.words, device=resolve_device(settings.device)
        )
        self.second = None
        if settings.encoder not in ("", "none") and settings.weight != 0:
            self.second = encoder_view(settings.encoder, source, target, work, settings.device)
        self.choice, self.outcome = Choice(), dict[str, Any]()
        self.first: list[Pairs] = []  # of each chain: the first dictionary of the best start
        self.few = len(chains[-1].seeds) < FEW_SEEDS
        self.vecmap = VecMap(**SELF_LEARNING, memory_gb=settings.memory_gb, seed=settings.seed)
        frequent = [side[: settings.words] for side in self.vectors]
        self.covariances = [cross_product(side, side) / len(side) for side in frequent]
        asked = sum(len(np.unique(part[:, 0])) for one in chains for part in self._asked(one))
        self.evidence = asked >= FEWEST_HELD_OUT

    def space(self, number: int) -> Space:
        """The space of a chain: the mapped vectors and, unless it weighs 0, the encoder's view."""
        sides = [self.mapped(self.chains[number], side) for side in (0, 1)]
        if self.second is not None and self.choice.weight > 0:
            sides = strongest(
                side_by_side(sides, self.second, self.choice.weight), self.settings.dimensions
            )
        return self.settings.space(self.source, self.target, *sides, **self.outcome)

    # -- the steps --------------------------------------------------------------------------------

    def learn(self) -> None:
        """Run all steps, or what a killed run has left of them."""
        outcome: dict[str, Any] = {"seed_pairs": len(self.chains[-1].seeds)}
        given, settings = self.settings.weight, self.settings
        if given is not None and not settings.rounds and settings.descent == "never":
            for chain in self.chains:  # nothing is left to choose or to learn
                self._take(chain, chain.mined)
            self.choice = Choice(weight=given)
        elif self.evidence:
            if not self._resume():
                self._choose_start()
            if not self.choice.done:
                self._rounds()
                self._descend()
                self.choice.done = True
                self._keep()
        else:
            outcome |= self._without_evidence()
        choice = self.choice
        self.outcome = outcome | {
            "start": choice.start,
            "chosen_weight": choice.weight,
            "weight_curve": choice.curve,
            "held_out_precision": choice.precision,
            "held_out_words": choice.asked,
            "rounds_run": choice.rounds,
            "descended": choice.descended,
        }

    def _choose_start(self) -> None:
        """Begin with the seeds, words spelled alike beside them, or self-learning from both."""
        alike = self.chains[-1].mined
        self._try_start("seeds", [alike] * len(self.chains))
        if self.few:
            with suppress(InputError):  # no word is spelled alike in both languages
                alike = self._first_dictionary("identical")
                self._try_start("identical", [alike] * len(self.chains))
        if self.few and (self.choice.precision or 0.0) < WEAK_START:
            # Each chain from its own seeds: a shared run would know the held-out ones.
            self._try_start("self-learning", [self._self_learn(one, alike) for one in self.chains])
        for chain, first in zip(self.chains, self.first, strict=True):
            self._take(chain, first)

    def _try_start(self, name: str, firsts: list[Pairs]) -> None:
        """Map every chain by its first dictionary; the best start so far is ``self.first``."""
        for chain, first in zip(self.chains, firsts, strict=True):
            self._take(chain, first)
        seen = self._look(with_encoder_alone=self.settings.rounds > 0)
        self._note(f"start from {name}", seen)
        if seen.score > self.choice.score:
            self.choice, self.first = replace(seen, start=name), firsts

    def _self_learn(self, chain: Chain, first: Pairs) -> Pairs:
        """What VecMap's self-learning makes of the seeds and a first dictionary."""
        known = torch.from_numpy(np.concatenate([chain.seeds, first]))
        learned: Pairs = self.vecmap.self_learn(*self.vectors, known).pairs.unique(dim=0).numpy()
        return learned

    def _rounds(self) -> None:
        """Map and mine by turns, until the held-out seeds gain nothing more."""
        most = self.settings.words
        first = [(FIRST_WORDS, 2)] if self.few and most > FIRST_WORDS else []
        with progress.task("learning in rounds") as running:
            for words, patience in [*first, (most, 1)]:
                if any(one["words"] >= words for one in self.choice.rounds):
                    continue  # a killed run has finished this phase
                stale, turns = 0, 0
                kept = [(chain.mined, chain.maps) for chain in self.chains]
                while stale < patience and turns < self.settings.rounds:
                    turns += 1
                    weight = self.choice.weight
                    for chain in self.chains:
                        self._take(chain, self._mine(chain, weight, words))
                        running.advance(status=f"{len(chain.mined)} pairs mined")
                    seen = self._look()
                    log = {"words": words, "mined": len(self.chains[-1].mined), "weight": weight}
                    seen.rounds = [*self.choice.rounds, {**log, "precision": seen.precision}]
                    self._note(f"round {len(seen.rounds)}, {log['mined']} pairs mined", seen)
                    # The first round with more words counts whatever the evidence: rarer words
                    # are what it adds, and held-out seeds are frequent.
                    if seen.score > self.choice.score or (turns == 1 and words == most):
                        stale = 0 if seen.score > self.choice.score + GAIN else stale + 1
                        self.choice = seen
                        kept = [(chain.mined, chain.maps) for chain in self.chains]
                    else:
                        self.choice.rounds, stale = seen.rounds, stale + 1
                for chain, (mined, maps) in zip(self.chains, kept, strict=True):
                    chain.mined, chain.maps = mined, maps
                self._keep()

    def _descend(self) -> None:
        """C1's contrastive steps from the learned maps, kept if held-out seeds gain by them."""
        if self.settings.descent == "never":
            return
        own = {name: getattr(self.settings, name) for name in ("memory_gb", "seed", "device")}
        c1, before = Contrastive(**DESCENT, **own), [chain.maps for chain in self.chains]
        for chain in self.chains:
            taught = np.concatenate([chain.seeds, chain.mined[:DESCENT_MINED]])
            chain.maps = c1.descend(*self.vectors, taught, chain.maps, "contrastive steps")[0]
        if not self.evidence:
            self.choice.descended = True
            return
        seen = self._look()
        self._note("contrastive steps", seen)
        if seen.score > self.choice.score or self.settings.descent == "always":
            self.choice = replace(seen, descended=True)
            return
        for chain, maps in zip(self.chains, before, strict=True):
            chain.maps = maps

    def _without_evidence(self) -> dict[str, Any]:
        """Try each start until the outcome is a real map; the agreement of halves tells."""
        wanted = STARTS if self.settings.init == AUTO else (self.settings.init,)
        tried: list[dict[str, Any]] = []
        verdict: dict[str, Any] = {}
        (chain,) = self.chains[-1:]
        for start in wanted:
            weight = self.settings.weight
            if weight is None:
                weight = 1.0 if start == "encoder" else 0.0
            try:
                rounds = self._fixed_rounds(chain, start, weight)
            except InputError as error:
                tried.append({"start": start, "converged": False, "verdict": str(error)})
                continue
            self.choice = Choice(start, weight, rounds=rounds)
            learned = torch.from_numpy(np.concatenate([chain.seeds, chain.mined]))
            verdict = self.vecmap.verdict(*self.vectors, learned, start=start)
            tried.append({"start": start, **verdict})
            if verdict["converged"]:
                progress.note(
                    f"two views: with {len(chain.seeds) or 'no'} seed pairs none can be held out: "
                    f"halves of what was learned are compared; starting from {start} holds up "
                    f"({verdict.get('convergence', 1):.2f} on a scale from 0, chance, to 1)"
                )
                break
            progress.note(f"starting from {start} failed: {verdict['verdict']}")
        if not verdict:
            raise InputError("; ".join(f"{one['start']}: {one['verdict']}" for one in tried))
        for one in self.chains[:-1]:
            self._fixed_rounds(one, self.choice.start, self.choice.weight)
        if self.settings.descent == "always":
            self._descend()
        return {**verdict, "tried": tried}

    def _fixed_rounds(self, chain: Chain, start: str, weight: float) -> list[dict[str, Any]]:
        """Map and mine four times from a start, and report the rounds."""
        first = self._first_dictionary(start)
        self._take(chain, first if start == "encoder" else self._self_learn(chain, first))
        rounds = []
        for words in (FIRST_WORDS, FIRST_WORDS, self.settings.words, self.settings.words):
            self._take(chain, self._mine(chain, weight, words))
            rounds.append({"words": words, "mined": len(chain.mined)})
        return rounds

    # -- what the steps are made of ---------------------------------------------------------------

    def _first_dictionary(self, start: str) -> Pairs:
        """A dictionary of the most frequent words that needs no seeds."""
        words = self.settings.words
        if start == "encoder":
            if self.second is None:
                raise InputError("there is no encoder to start from")
            found = self.vecmap.mutual(*(side[:FIRST_WORDS] for side in self.second)).numpy()
            if not len(found):
                raise InputError("the encoder finds no two words near each other")
            return found
        x, y = self.vectors
        if start == "distributions":
            return self.vecmap.from_distributions(x, y).numpy()
        heads = self.source.head(2 * words), self.target.head(2 * words)
        return from_shared_words(*heads, numerals=start == "numerals").numpy()

    def _take(self, chain: Chain, pairs: Pairs) -> None:
        """Use a mined dictionary beside the seeds, whose words it leaves alone; fit the maps."""
        taken = np.isin(pairs[:, 0], chain.seeds[:, 0]) | np.isin(pairs[:, 1], chain.seeds[:, 1])
        chain.mined = pairs[~taken]
        known = np.concatenate([chain.seeds, chain.mined])
        if not len(known):
            raise InputError("no two words are near each other in both languages: give seed pairs")
        chain.maps = shrunk_maps(
            *self.vectors, torch.from_numpy(known), self.covariances, self.settings.shrink
        )

    def _mine(self, chain: Chain, weight: float, words: int) -> Pairs:
        """Mutual best matches by CSLS among the most frequent words, in both views."""
        sides = [self.mapped(chain, side, words) for side in (0, 1)]
        if self.second is not None and weight > 0:
            own = [side[:words] for side in self.second]
            sides = own if weight == ENCODER_ALONE else side_by_side(sides, own, weight)
        return self.vecmap.mutual(*sides).numpy()

    def mapped(self, chain: Chain, side: int, words: int | None = None) -> Tensor:
        """Unit rows of a side under a chain's map."""
        return unit_(apply_(self.vectors[side][:words].clone(), chain.maps[side]))

    # -- evidence ---------------------------------------------------------------------------------

    def _asked(self, chain: Chain) -> tuple[Pairs, Pairs]:
        """The held-out pairs that are asked, forward and backward: frequent words on both sides."""
        limit = ASKED_AMONG * self.settings.words
        held = chain.held[(chain.held < limit).all(axis=1)][:MOST_ASKED]
        return held, np.ascontiguousarray(held[:, ::-1])

    def _look(self, *, with_encoder_alone: bool = False) -> Choice:
        """How well every weight ranks the held-out seeds of all chains, and the weight to take.

        Compared by reciprocal ranks: with few held-out words, or a poor map, P@1 tells too little.
        """
        weights: tuple[float, ...] = WEIGHTS
        if self.second is None:
            weights = (0.0,)
        elif self.settings.weight is not None:
            weights = (self.settings.weight,)
        elif with_encoder_alone:
            weights = (*WEIGHTS, ENCODER_ALONE)
        ranks = np.concatenate([self._ranks(chain, weights) for chain in self.chains[:-1]], axis=1)
        scores = (1 / ranks).mean(axis=1)
        best = int(scores.argmax())
        # One view unless two are better by more than the standard error of their difference.
        difference = 1 / ranks[best] - 1 / ranks[0]
        if weights[0] == 0 and difference.mean() <= difference.std() / math.sqrt(ranks.shape[1]):
            best = 0
        hits = (ranks == 1).mean(axis=1).tolist()
        curve = [[weight, right] for weight, right in zip(weights, hits, strict=True)]
        return replace(
            self.choice,
            weight=weights[best],
            score=float(scores[best]),
            precision=hits[best],
            asked=ranks.shape[1],
            curve=curve,
        )

    def _ranks(self, chain: Chain, weights: Sequence[float]) -> NDArray[np.int64]:
        """Rank by CSLS of the best gold: (weights, held-out words of both directions).

        The cosine side by side is the mean of both views' cosines, the encoder's weighing w². So
        is the hubness, nearly, which is estimated from a sample of the words.
        """
        limit = ASKED_AMONG * self.settings.words
        views = [[self.mapped(chain, side, limit) for side in (0, 1)]]
        if self.second is not None:
            views.append([side[:limit] for side in self.second])
        columns = []
        for order, pairs in zip(((0, 1), (1, 0)), self._asked(chain), strict=True):
            asked, golds = queries(pairs)
            scores = []
            for view in views:
                left, right = view[order[0]], view[order[1]]
                sample = left[:: max(1, len(left) // SAMPLE)]
                near = (right @ sample.T).topk(min(HUBS, len(sample)), dim=1).values.mean(dim=1)
                scores.append(2 * left[torch.from_numpy(asked).to(left.device)] @ right.T - near)
            wrong = torch.ones_like(scores[0], dtype=torch.bool)
            for row, gold in zip(wrong, golds, strict=True):
                row[torch.from_numpy(gold)] = False
            found = []
            for weight in weights:
                share = 1.0 if weight == ENCODER_ALONE else weight**2 / (1 + weight**2)
                mixed = torch.lerp(scores[0], scores[-1], share) if share else scores[0]
                best = mixed.masked_fill(wrong, -torch.inf).amax(dim=1, keepdim=True)
                found.append(1 + (mixed > best).sum(dim=1).cpu().numpy())
            columns.append(np.stack(found))
        return np.concatenate(columns, axis=1)

    def _note(self, what: str, seen: Choice) -> None:
        if seen.precision is not None:
            how = "the encoder alone" if seen.weight == ENCODER_ALONE else f"weight {seen.weight:g}"
            progress.note(
                f"two views, {what}: P@1 {100 * seen.precision:.1f} on {seen.asked} held-out words "
                f"({how})"
            )

    # -- going on after a kill --------------------------------------------------------------------

    def _keep(self) -> None:
        """Write the chains and the choice, so that the same run goes on from here."""
        if self.folder is None:
            return
        arrays = {}
        for number, chain in enumerate(self.chains):
            arrays[f"mined {number}"] = torch.from_numpy(np.ascontiguousarray(chain.mined))
            for side, one in enumerate(chain.maps):
                arrays[f"map {number} {side}"] = one.cpu().contiguous()
        with atomic_folder(self.folder) as folder:
            save_file(arrays, folder / ROUNDS_FILE)
            write_json(folder / CHOICE_FILE, vars(self.choice))

    def _resume(self) -> bool:
        """Read what ``_keep`` wrote; whether there was anything."""
        if self.folder is None or not (self.folder / CHOICE_FILE).is_file():
            return False
        self.choice = Choice(**read_json(self.folder / CHOICE_FILE))
        arrays = load_file(self.folder / ROUNDS_FILE)
        for number, chain in enumerate(self.chains):
            chain.mined = arrays[f"mined {number}"].numpy()
            first, second = (arrays[f"map {number} {side}"] for side in (0, 1))
            chain.maps = (first.to(self.vectors[0].device), second.to(self.vectors[1].device))
        progress.note(f"two views: goes on after round {len(self.choice.rounds)}")
        return True


def side_by_side(mapped: Sequence[Tensor], own: Sequence[Tensor], weight: float) -> list[Tensor]:
    """Unit rows of both views; their cosine is the mean of both, the second's weighing weight²."""
    both = zip(mapped, own, strict=True)
    return [unit_(torch.cat([one, weight * two], dim=1)) for one, two in both]
