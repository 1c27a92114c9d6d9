"""Two views of every word, learned in rounds: its mapped vector, and an encoder's own vector.

The steps, in the order of this file: choose a first dictionary; in each round map both sides by
what is known and mine the mutual nearest neighbours in all views side by side; descend on the
contrastive loss unless that harms; put the views side by side (docs/method.md §9). The encoder's
view comes in up to three forms: its vectors as they are, the same mapped by what is known, and the
static vectors of `lite`, which know many more languages.

What helps is decided by held-out seeds. Several chains run in step, each without one part of the
seeds, and one with all of them; every choice (the start, the encoder's weight, how many rounds,
whether to descend) is made once for all chains, on the seeds that each of them has not seen. With
too few seeds for that, the agreement of halves tells whether the outcome is a real map.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from blicer import lite, progress
from blicer.align.base import (
    PCA_WORDS,
    Aligner,
    Folder,
    Masks,
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
from blicer.encoders.static import StaticVectors
from blicer.encoders.words import WordEncoder
from blicer.errors import InputError
from blicer.files import atomic_folder, digest, read_json, write_json
from blicer.lexicon import fold_masks, queries_with_golds
from blicer.neighbours.mining import Pairs
from blicer.regression import clear_gain
from blicer.stage_cache import stage, stage_folder

STARTS = ("encoder", "identical", "numerals", "distributions")
SELF_LEARNED = "self-learning"
MAPPED, ENCODER, STATIC = "mapped encoder", "encoder", "static"  # the forms of the second view
WEIGHTS = (0.0, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
USUAL = {MAPPED: 0.7, STATIC: 0.35}  # weights unless held-out seeds speak for others
KNOWN = 0.3  # an encoder knows both languages from this mean reciprocal rank on
ENCODER_ALONE = math.inf
CONTENDERS = 50  # best candidates in each view that the gold is ranked among
FEWEST_HELD_OUT = 20  # held-out words below which nothing is decided by them
FEW_SEEDS = 500  # with fewer, rounds are not stopped for want of evidence
FIRST_WORDS = 5_000  # of each side, whose encoder vectors give a first dictionary
POOR = 0.3  # P@1 after the rounds below which VecMap's self-learning is tried
SELF_LEARNING: dict[str, Any] = {"words": 4_000, "patience": 2}
SAMPLE = 500  # words that hubness is estimated from when weights are compared
HUBS = 5
UNUSED = 5e-4  # share of an encoder's variance in the weakest directions, which are dropped
GAIN = 0.003  # of mean reciprocal rank that another round must bring
JUDGED_AMONG = 2  # times as many words as rounds learn from
MOST_JUDGED = 1_000  # held-out pairs of a chain that choices are judged by
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
    """One run of the rounds: its seeds, the seeds held out of it, and what it has learned."""

    seeds: Pairs
    held: Pairs
    mined: Pairs
    maps: tuple[Tensor, Tensor] = field(init=False)
    encoder_maps: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class Questions:
    """Held-out words of a chain in one direction, with their contenders' scores in every view."""

    scores: Tensor  # (views, words, contenders): 2 cos less the contender's hubness
    is_gold: Tensor  # (words, contenders)


@dataclass
class Choice:
    """What was chosen so far, and the evidence for it."""

    start: str = "seeds"
    weights: list[float] = field(default_factory=list)
    """Factor that each form of the second view is scaled by beside the mapped word vector."""
    ranks: list[int] = field(default_factory=list)
    """Rank of the gold of every held-out word."""
    rounds: list[dict[str, Any]] = field(default_factory=list)
    settled: bool = False
    """Whether another round would gain nothing."""
    descended: bool = False
    done: bool = False

    @property
    def score(self) -> float:
        """Mean reciprocal rank of held-out words; -1 without any."""
        return float(np.mean(1 / np.array(self.ranks))) if self.ranks else -1.0

    @property
    def precision(self) -> float | None:
        """P@1 of held-out words; None without any."""
        return float(np.mean(np.array(self.ranks) == 1)) if self.ranks else None


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
    mapped_weight: float | None = setting(None, "of that view as mapped by what is known", low=0)
    static_weight: float | None = setting(None, "of the static vectors of `lite`", low=0)
    words: int = setting(10_000, "most frequent words of each side that rounds learn from", low=1)
    rounds: int = setting(8, "the most rounds of mapping and mining", low=0)
    descent: str = setting(AUTO, "contrastive steps at the end", choices=(AUTO, "always", "never"))
    shrink: float = setting(0.2, "share of all words' covariance in the whitening", low=0, high=1)
    init: str = setting(AUTO, "start without seeds", choices=(AUTO, *STARTS))
    dimensions: int = setting(300, "the most dimensions of both views together", low=1)
    folds: int = setting(3, "parts of the seeds that choices are made on", low=2)
    memory_gb: float = setting(2.0, "bound of working memory", above=0)
    seed: int = setting(0, "of the random draws", low=0)

    def given_weights(self) -> dict[str, float] | None:
        """The weights that the user fixed, the others being 0; None if none is fixed."""
        named = {MAPPED: self.mapped_weight, ENCODER: self.weight, STATIC: self.static_weight}
        fixed = {name: weight for name, weight in named.items() if weight is not None}
        return fixed or None

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
            state = sorted(Choice.__dataclass_fields__)  # another version's is no use
            folder = stage_folder(work, "rounds", *inputs, digest(*held), state)
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


def static_view(source: Embeddings, target: Embeddings, device: torch.device) -> list[Tensor]:
    """Centred unit rows of both sides from `lite`'s static vectors; zeros for unknown words."""
    table = StaticVectors.load()
    sides = []
    for side in (source, target):
        rows = torch.from_numpy(table.encode(side.words)).to(device)
        known = rows.any(dim=1, keepdim=True)
        mean = rows[:PCA_WORDS].sum(dim=0) / known[:PCA_WORDS].sum().clamp(min=1)
        sides.append(unit_(torch.where(known, rows - mean, 0.0)))
    return sides


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
    """Runs all chains, in step, on one pair of vector sets."""

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
        self.chains, self.work, self.folder = chains, work, folder
        # The mean of frequent words: with that of all words, few seeds lead to a poor map.
        device = resolve_device(settings.device)
        self._prepare = partial(prepare, source, target, frequent=settings.words, device=device)
        # Maps choose the dimensions of the wider side by what is known.
        self.vectors = self._prepare(reduced=False)
        self.given = settings.given_weights()
        self.views: dict[str, list[Tensor]] = {}
        wanted = self.given is None or any(self.given.values())
        if settings.encoder not in ("", "none") and wanted:
            own = encoder_view(settings.encoder, source, target, work, settings.device)
            centred = [side - side[: settings.words].mean(dim=0) for side in own]
            if settings.encoder == lite.NAME:
                self.views[STATIC] = static_view(source, target, own[0].device)
            self.views |= {MAPPED: [unit_(side) for side in centred], ENCODER: own}
        self.choice = Choice(weights=self._weights(self.given or {}))
        self.outcome: dict[str, Any] = {}
        self.hubness: dict[tuple[str, tuple[int, int]], Tensor] = {}
        self.few = len(chains[-1].seeds) < FEW_SEEDS
        self.vecmap = VecMap(**SELF_LEARNING, memory_gb=settings.memory_gb, seed=settings.seed)
        self.covariances, self.view_covariances = (
            [cross_product(head, head) / len(head) for head in (s[: settings.words] for s in sides)]
            for sides in (self.vectors, self.views.get(MAPPED, []))
        )
        asked = sum(len(np.unique(part[:, 0])) for one in chains for part in self._questions(one))
        self.evidence = asked >= FEWEST_HELD_OUT

    def space(self, number: int) -> Space:
        """The space of a chain: the mapped vectors and, unless it weighs 0, the encoder's view."""
        sides = self.all_views(self.chains[number], self.choice.weights)
        if any(self.choice.weights):
            sides = strongest(sides, self.settings.dimensions)
        return self.settings.space(self.source, self.target, *sides, **self.outcome)

    @cached_property
    def reduced(self) -> tuple[Tensor, Tensor]:
        """Sides of one dimension, for self-learning, which knows too little to choose any."""
        same = self.source.dim == self.target.dim
        return self.vectors if same else self._prepare()

    # -- the steps --------------------------------------------------------------------------------

    def learn(self) -> None:
        """Run all steps; after a kill, those that were not finished."""
        outcome: dict[str, Any] = {"seed_pairs": len(self.chains[-1].seeds)}
        settings = self.settings
        if self.given is not None and not settings.rounds and settings.descent == "never":
            for chain in self.chains:  # nothing to choose or to learn
                self._fit_maps(chain, chain.mined)
        elif self.evidence:
            if not self._load_state():
                self._choose_start()
            if not self.choice.done:
                self._rounds()
                if self.few and (self.choice.precision or 0.0) < POOR:
                    self._self_learn()
                self._descend()
                self.choice.done = True
                self._save_state()
        else:
            outcome |= self._without_evidence()
        choice = self.choice
        self.outcome = outcome | {
            "start": choice.start,
            "chosen_weight": math.hypot(*choice.weights),
            "chosen_weights": dict(zip(self.views, choice.weights, strict=True)),
            "held_out_precision": choice.precision,
            "held_out_words": len(choice.ranks),
            "rounds_run": choice.rounds,
            "descended": choice.descended,
        }

    def _choose_start(self) -> None:
        """Start from the seeds, or from seeds and identical words."""
        starts = {"seeds": self.chains[-1].mined}
        if self.few:
            with suppress(InputError):  # no word is spelled alike in both languages
                starts["identical"] = self._first_dictionary("identical")
        for name, first in starts.items():
            for chain in self.chains:
                self._fit_maps(chain, first)
            seen = self._evaluate(with_encoder_alone=self.settings.rounds > 0)
            self._note(f"start from {name}", seen)
            if seen.score > self.choice.score:
                self.choice = replace(seen, start=name)
        for chain in self.chains:
            self._fit_maps(chain, starts[self.choice.start])

    def _self_learn(self) -> None:
        """Rounds from what VecMap's self-learning makes of each chain's start, if clearly better.

        It needs no second view. Where there is one, rounds alone lead further.
        """
        first, before = self.choice, [copy(chain) for chain in self.chains]
        alike = before[0].mined[:0]
        with suppress(InputError):
            alike = self._first_dictionary("identical")
        for chain in self.chains:  # each from its own seeds, not from those held out
            self._fit_maps(chain, self._self_learned(np.concatenate([chain.seeds, alike])))
        self.choice = replace(self._evaluate(), start=SELF_LEARNED, rounds=[], settled=False)
        self._rounds()
        if not clear_gain(self.choice.ranks, first.ranks):
            self.choice, self.chains = first, before

    def _self_learned(self, pairs: Pairs) -> Pairs:
        known = torch.from_numpy(pairs)
        learned = self.vecmap.self_learn(*self.reduced, known, work=self.work)
        return learned.pairs.unique(dim=0).numpy()

    def _rounds(self) -> None:
        """Alternate mapping and mining until the held-out seeds gain nothing more.

        Rounds serve the rarer words most, and held-out seeds are frequent. So where seeds are few,
        all rounds are run unless one clearly harms, and the first one always counts.
        """
        with progress.task("learning in rounds", self.settings.rounds) as running:
            while not self.choice.settled and len(self.choice.rounds) < self.settings.rounds:
                weights, old = self.choice.weights, [copy(chain) for chain in self.chains]
                for chain in self.chains:
                    self._fit_maps(chain, self._mine(chain, weights, self.settings.words))
                seen = self._evaluate()
                log = {"mined": len(self.chains[-1].mined), "weights": weights}
                rounds = [*self.choice.rounds, {**log, "precision": seen.precision}]
                self._note(f"round {len(rounds)}, {log['mined']} pairs mined", seen)
                gained = seen.score > self.choice.score + GAIN
                better = seen.score > self.choice.score
                if self.few:
                    gained = better = not clear_gain(self.choice.ranks, seen.ranks)
                if better or len(rounds) == 1:
                    self.choice = seen
                else:
                    self.chains = old
                self.choice = replace(self.choice, rounds=rounds, settled=not gained)
                if self.choice.start != SELF_LEARNED:  # after a kill it is tried anew
                    self._save_state()
                running.advance()

    def _descend(self) -> None:
        """C1's contrastive steps from the learned maps, undone if held-out seeds get worse."""
        if self.settings.descent == "never":
            return
        own = {name: getattr(self.settings, name) for name in ("memory_gb", "seed", "device")}
        c1, before = Contrastive(**DESCENT, **own), [chain.maps for chain in self.chains]
        for chain in self.chains:
            taught = np.concatenate([chain.seeds, chain.mined[:DESCENT_MINED]])
            label = "contrastive steps"
            chain.maps = c1.descend(*self.vectors, taught, chain.maps, label, self.work)[0]
        if not self.evidence:
            self.choice.descended = True
            return
        seen = self._evaluate()
        self._note("contrastive steps", seen)
        worse = clear_gain(self.choice.ranks, seen.ranks)  # than before the steps
        if not worse or self.settings.descent == "always":
            self.choice = replace(seen, descended=True)
            return
        for chain, maps in zip(self.chains, before, strict=True):
            chain.maps = maps

    def _without_evidence(self) -> dict[str, Any]:
        """Try each start until ``VecMap.verdict`` accepts the outcome as a real map."""
        wanted = STARTS if self.settings.init == AUTO else (self.settings.init,)
        attempts = [(start, start in ("identical", "numerals")) for start in wanted]
        if self.views and ("identical", True) in attempts:  # with a second view rounds may do
            attempts.insert(attempts.index(("identical", True)), ("identical", False))
        tried: list[dict[str, Any]] = []
        verdict: dict[str, Any] = {}
        (chain,) = self.chains[-1:]
        chance = self.vecmap.by_chance(*self.reduced)
        for start, self_learned in attempts:
            weights = self._usual_weights(known=start == "encoder")
            try:
                rounds = self._fixed_rounds(chain, start, weights, self_learned)
            except InputError as error:
                if start not in (one["start"] for one in tried):
                    tried.append({"start": start, "converged": False, "verdict": str(error)})
                continue
            self.choice = Choice(start, weights, rounds=rounds)
            learned = torch.from_numpy(np.concatenate([chain.seeds, chain.mined]))
            verdict = self.vecmap.verdict(*self.reduced, learned, start=start, chance=chance)
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
            self._fixed_rounds(one, self.choice.start, self.choice.weights, self_learned)
        self._descend()
        return {**verdict, "tried": tried}

    def _fixed_rounds(
        self, chain: Chain, start: str, weights: list[float], self_learned: bool
    ) -> list[dict[str, Any]]:
        """Map and mine from a start as often as there are rounds, and report them."""
        first = self._first_dictionary(start)
        if self_learned:
            first = self._self_learned(np.concatenate([chain.seeds, first]))
        self._fit_maps(chain, first)
        rounds = []
        for _ in range(self.settings.rounds):
            self._fit_maps(chain, self._mine(chain, weights, self.settings.words))
            rounds.append({"mined": len(chain.mined)})
        return rounds

    # -- parts of the steps -----------------------------------------------------------------------

    def _first_dictionary(self, start: str) -> Pairs:
        """A dictionary of frequent words, made without seeds."""
        words = self.settings.words
        if start == "encoder":
            if not self.views:
                raise InputError("there is no encoder to start from")
            heads = [side[:FIRST_WORDS] for side in self.views[ENCODER]]
            if STATIC in self.views:
                own = [side[:FIRST_WORDS] for side in self.views[STATIC]]
                heads = side_by_side([heads, own], [1.0, USUAL[STATIC]])
            found = self.vecmap.mutual(*heads).numpy()
            if not len(found):
                raise InputError("the encoder finds no two words near each other")
            return found
        if start == "distributions":  # too few of them are right for rounds to begin with
            return self._self_learned(self.vecmap.from_distributions(*self.reduced).numpy())
        shared = self.source.head(2 * words), self.target.head(2 * words)
        return from_shared_words(*shared, numerals=start == "numerals").numpy()

    def _fit_maps(self, chain: Chain, pairs: Pairs) -> None:
        """Fit the chain's maps on its seeds and on mined pairs that share no word with them."""
        taken = np.isin(pairs[:, 0], chain.seeds[:, 0]) | np.isin(pairs[:, 1], chain.seeds[:, 1])
        chain.mined = pairs[~taken]
        known = np.concatenate([chain.seeds, chain.mined])
        if not len(known):
            raise InputError("no two words are near each other in both languages: give seed pairs")
        chain.maps = shrunk_maps(
            *self.vectors, torch.from_numpy(known), self.covariances, self.settings.shrink
        )
        self._fit_encoder_maps(chain)

    def _fit_encoder_maps(self, chain: Chain) -> None:
        """Fit the maps of the encoder's view on the same dictionary."""
        if MAPPED in self.views:
            known = torch.from_numpy(np.concatenate([chain.seeds, chain.mined]))
            own = self.views[MAPPED]
            chain.encoder_maps = shrunk_maps(
                own[0], own[1], known, self.view_covariances, self.settings.shrink
            )

    def _mine(self, chain: Chain, weights: Sequence[float], words: int) -> Pairs:
        """Mutual best matches by CSLS among the most frequent words, in all views."""
        return self.vecmap.mutual(*self.all_views(chain, weights, words)).numpy()

    def all_views(
        self, chain: Chain, weights: Sequence[float], words: int | None = None
    ) -> list[Tensor]:
        """Unit rows of both sides: mapped word vectors beside every view of weight above 0."""
        if ENCODER_ALONE in weights:
            return [side[:words] for side in self.views[ENCODER]]
        views = [[self.mapped(chain, side, words) for side in (0, 1)]]
        for name, weight in zip(self.views, weights, strict=True):
            if weight:
                views.append(self.view(chain, name, words))
        return side_by_side(views, [1.0, *(weight for weight in weights if weight)])

    def mapped(self, chain: Chain, side: int, words: int | None = None) -> Tensor:
        """Unit rows of a side under a chain's map."""
        rows = self.vectors[side][:words]
        return unit_(rows @ chain.maps[side].to(rows))

    def view(self, chain: Chain, name: str, words: int | None = None) -> list[Tensor]:
        """Unit rows of both sides in one form of the second view."""
        rows = [side[:words] for side in self.views[name]]
        if name == MAPPED and chain.encoder_maps is not None:
            both = zip(rows, chain.encoder_maps, strict=True)
            rows = [unit_(apply_(side.clone(), one)) for side, one in both]
        return rows

    def _weights(self, named: dict[str, float]) -> list[float]:
        return [named.get(name, 0.0) for name in self.views]

    def _usual_weights(self, *, known: bool) -> list[float]:
        """The weights given, or those that suit languages that the encoder knows, or does not."""
        usual = USUAL if known else {STATIC: USUAL[STATIC]}
        return self._weights(usual if self.given is None else self.given)

    # -- evidence ---------------------------------------------------------------------------------

    def _questions(self, chain: Chain) -> tuple[Pairs, Pairs]:
        """Held-out pairs of frequent words, forward and backward, that choices are judged by."""
        limit = JUDGED_AMONG * self.settings.words
        held = chain.held[(chain.held < limit).all(axis=1)][:MOST_JUDGED]
        return held, np.ascontiguousarray(held[:, ::-1])

    def _evaluate(self, *, with_encoder_alone: bool = False) -> Choice:
        """The weights that rank the held-out words of all chains best, and the ranks.

        They are compared by reciprocal rank: with few words, or a poor map, P@1 is too coarse.
        """
        asked = [one for chain in self.chains[:-1] for one in self._contenders(chain)]
        alone = [ENCODER_ALONE if name == ENCODER else 0.0 for name in self.views]
        others = ranks(asked, alone) if self.views else np.array([math.inf])
        known = bool((1 / others).mean() > KNOWN)
        weights = self._usual_weights(known=known)
        if self.given is None:
            for place in 2 * list(range(len(weights))):  # twice: weights depend on each other
                weights[place] = self._best_weight(asked, weights, place)
        found = ranks(asked, weights)
        if with_encoder_alone and self.given is None and (1 / others).mean() > (1 / found).mean():
            weights, found = alone, others
        return replace(self.choice, weights=weights, ranks=found.tolist())

    def _best_weight(self, asked: Sequence[Questions], weights: list[float], place: int) -> float:
        """The best weight of one view with the others fixed; the old one unless clearly better."""
        tried = [ranks(asked, [*weights[:place], one, *weights[place + 1 :]]) for one in WEIGHTS]
        best = int(np.argmax([(1 / one).mean() for one in tried]))
        now = ranks(asked, weights)
        return WEIGHTS[best] if clear_gain(tried[best], now) else weights[place]

    def _contenders(self, chain: Chain) -> Iterator[Questions]:
        """For each direction the held-out words, with their golds and best candidates in each view.

        The cosine of concatenated views is a weighted mean of all views' cosines. So, nearly, is
        the hubness, which is estimated from a sample of the words.
        """
        limit = JUDGED_AMONG * self.settings.words
        views = {"": [self.mapped(chain, side, limit) for side in (0, 1)]}
        views |= {name: self.view(chain, name, limit) for name in self.views}
        for order, pairs in zip(((0, 1), (1, 0)), self._questions(chain), strict=True):
            if not len(pairs):
                continue
            words, golds = queries_with_golds(pairs)
            scores = []
            for name, view in views.items():
                left, right = view[order[0]], view[order[1]]
                near = self._hubness(name, left, right, order)
                scores.append(2 * left[torch.from_numpy(words).to(left.device)] @ right.T - near)
            most = max(map(len, golds))
            right_ones = np.array([[*gold, *[gold[0]] * (most - len(gold))] for gold in golds])
            gold = torch.from_numpy(right_ones).to(scores[0].device)
            best = [one.topk(min(CONTENDERS, one.shape[1]), dim=1).indices for one in scores]
            places = torch.cat([gold, *best], dim=1).sort(dim=1).values
            again = torch.zeros_like(places, dtype=torch.bool)
            again[:, 1:] = places[:, 1:] == places[:, :-1]
            is_gold = (places[:, :, None] == gold[:, None]).any(dim=2)
            found = torch.stack([one.gather(1, places).masked_fill(again, -9.0) for one in scores])
            yield Questions(found, is_gold)

    def _hubness(self, name: str, left: Tensor, right: Tensor, order: tuple[int, int]) -> Tensor:
        """Of the right words, from a sample of the left ones; kept for views that never change."""
        if (near := self.hubness.get((name, order))) is not None:
            return near
        sample = left[:: max(1, len(left) // SAMPLE)]
        near = (right @ sample.T).topk(min(HUBS, len(sample)), dim=1).values.mean(dim=1)
        if name in (ENCODER, STATIC):
            self.hubness[name, order] = near
        return near

    def _note(self, what: str, seen: Choice) -> None:
        if seen.precision is not None:
            named = zip(self.views, seen.weights, strict=True)
            how = ", ".join(f"{name} {weight:g}" for name, weight in named if weight)
            if ENCODER_ALONE in seen.weights:
                how = "the encoder alone"
            progress.note(
                f"two views, {what}: P@1 {100 * seen.precision:.1f} on {len(seen.ranks)} held-out "
                f"words ({how or 'one view'})"
            )

    # -- saved state ------------------------------------------------------------------------------

    def _save_state(self) -> None:
        """Save the chains and the choice, from which the same call continues after a kill."""
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

    def _load_state(self) -> bool:
        """Load what ``_save_state`` saved; False if there is nothing."""
        if self.folder is None or not (self.folder / CHOICE_FILE).is_file():
            return False
        self.choice = Choice(**read_json(self.folder / CHOICE_FILE))
        arrays = load_file(self.folder / ROUNDS_FILE)
        for number, chain in enumerate(self.chains):
            chain.mined = arrays[f"mined {number}"].numpy()
            first, second = (arrays[f"map {number} {side}"] for side in (0, 1))
            chain.maps = (first.to(self.vectors[0].device), second.to(self.vectors[1].device))
            self._fit_encoder_maps(chain)
        progress.note(f"two views: goes on after round {len(self.choice.rounds)}")
        return True


def fixed_weights(space: Space) -> dict[str, float]:
    """Settings that give another ``TwoView`` the weights of this space."""
    chosen = space.settings.get("chosen_weights") or {}
    names = {MAPPED: "mapped_weight", ENCODER: "weight", STATIC: "static_weight"}
    return {"weight": 0.0} | {names[name]: float(weight) for name, weight in chosen.items()}


def ranks(asked: Sequence[Questions], weights: Sequence[float]) -> NDArray[np.int64]:
    """Rank of the best gold of every word; ``weights`` of the views after the first."""
    shares = np.array([1.0, *(weight**2 for weight in weights)])
    if ENCODER_ALONE in weights:
        shares = np.isinf(shares).astype(float)
    shares /= shares.sum()
    found = []
    for one in asked:
        mixed = torch.zeros_like(one.scores[0])
        for score, share in zip(one.scores, shares.tolist(), strict=True):
            if share:
                mixed += share * score
        best = mixed.masked_fill(~one.is_gold, -torch.inf).amax(dim=1, keepdim=True)
        found.append(1 + ((mixed > best) & ~one.is_gold).sum(dim=1).cpu().numpy())
    return np.concatenate(found)


def side_by_side(views: Sequence[Sequence[Tensor]], weights: Sequence[float]) -> list[Tensor]:
    """Unit rows of all views concatenated; their cosine is the mean of all, weighted by weight²."""
    if len(views) == 1:
        return list(views[0])
    return [
        unit_(torch.cat([weight * rows for rows, weight in zip(side, weights, strict=True)], dim=1))
        for side in zip(*views, strict=True)
    ]
