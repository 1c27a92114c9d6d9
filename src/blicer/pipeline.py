"""From two vector sets and seeds to a ``Translator``: the whole chain, in order.

λ (or the weights of several scorers) and the calibration come from seed pairs that neither the
mapping nor the cross-encoder saw; then everything is fitted again on all seeds, unless told not
to. Every finished stage is kept in ``work_dir``, so that the same call goes on after a kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.align import METHODS, aligner_class
from blicer.align.base import Aligner, seed_indices
from blicer.align.space import Space
from blicer.calibration import Calibration, calibrate
from blicer.config import Config
from blicer.crossencoder.settings import TrainingSettings
from blicer.encoders.loading import encoder_version
from blicer.errors import InputError
from blicer.languages import language_name
from blicer.lexicon import Lexicon
from blicer.mixing import (
    CSLS,
    Mixture,
    Scorer,
    choose_weights,
    gold_marks,
    queries_with_gold,
    score_candidates,
)
from blicer.progress import note
from blicer.scorers import check_scorer, make_scorer
from blicer.scorers.cross_encoder import NAME as CROSS_ENCODER
from blicer.scorers.cross_encoder import UNTUNED, CrossEncoderScorer, Untuned
from blicer.stage_cache import digest, stage, stage_folder
from blicer.templates import Template
from blicer.training_pairs import SETTINGS, Examples, TrainingPairs, build_pairs
from blicer.translator import Translator

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.config import Config
    from blicer.crossencoder.model import Reranker
    from blicer.embeddings import Embeddings


# === recipe ===
# The mode of a space that differs from the preset's name. Self-learning is hundreds of iterations
# (44 minutes of a core for en-fr), and every fold would need its own.
USUAL_MODE = {
    ("vecmap", "semi_supervised"): "supervised",
    # The seeds of zero-shot are few: C1 and C2 take the settings for that (METHOD.md §3).
    **{(method, "zero_shot"): "semi_supervised" for method in METHODS},
    ("vecmap", "zero_shot"): "supervised",
}
# What makes the space of a pair without seeds in zero-shot, whatever makes those of the others.
WITHOUT_SEEDS = "vecmap"
ENOUGH_FOR_SUPERVISED = 3000
FOLDS_FOR_FEW = 4
DEFAULT_ENCODER = "lite"
# Small encoders, and what stands beside CSLS with them: `lite` knows meanings, not forms.
ENCODER_SCORERS = {"lite": ("endings", CROSS_ENCODER)}


@dataclass(frozen=True)
class Recipe:
    """How to train, apart from the numbers in ``Config``."""

    space: str | Space = "vecmap"
    """A method (vecmap, rcsls, c1, procrustes), or a space that is there already."""
    space_mode: str = ""
    """The method's mode (supervised, semi_supervised, ...); by the preset if not given."""
    space_settings: dict[str, Any] = field(default_factory=dict)
    scorers: tuple[str, ...] = ()
    """What is mixed with CSLS; none: the cross-encoder, and with `lite` endings beside it."""
    holdout: float = 0.15
    """Share of the seed words that λ and the calibration are chosen on; 0 needs a fixed λ."""
    folds: int = 0
    """Above 1: as many cross-validation folds instead of one held-out part (for few seeds).
    0: four where seeds are few and the encoder is small, else one part."""
    split_seed: int = 33
    """Which words are held out; apart from the training's own seed, so that runs compare."""
    refit: bool = True
    """Fit everything again on all seeds after the choice."""
    names: tuple[str | None, str | None] = (None, None)
    """What the languages call themselves, where the tag does not tell."""
    device: str = "auto"
    precision: str = "auto"

    def resolved(self, config: Config, seeds: int) -> Recipe:
        """With what was left open settled, for that encoder and that many seed pairs."""
        usual = ENCODER_SCORERS.get(config.encoder, (CROSS_ENCODER,))
        if config.mixing_weight is not None:  # a given λ mixes two
            usual = (CROSS_ENCODER,)
        few = config.encoder in ENCODER_SCORERS and seeds < ENOUGH_FOR_SUPERVISED
        folds = self.folds or (FOLDS_FOR_FEW if few and self.holdout else 1)
        return replace(self, scorers=self.scorers or usual, folds=folds)


def preset_for(seeds: int) -> str:
    """The paper's setup for that many seed pairs."""
    if seeds == 0:
        return "unsupervised"
    return "supervised" if seeds >= ENOUGH_FOR_SUPERVISED else "semi_supervised"


def defaults_for(seeds: int) -> dict[str, Any]:
    """What `blicer train` uses where nothing else is said: the embedded encoder."""
    return {"preset": preset_for(seeds), "encoder": DEFAULT_ENCODER}


def usual_mode(method: str, preset: str) -> str:
    """The mode of a method that goes with a preset."""
    return USUAL_MODE.get((method, preset), preset)


def make_aligner(method: str, preset: str, recipe: Recipe) -> Any:
    """The method in the mode that fits the preset."""
    aligner = aligner_class(method)
    mode = recipe.space_mode.replace("-", "_") or usual_mode(method, preset)
    if recipe.space_mode and mode not in aligner.presets:
        modes = ", ".join(aligner.presets) or "none"
        raise InputError(f"{method} has no mode {recipe.space_mode!r}; its modes are {modes}")
    settings = {"device": recipe.device, **recipe.space_settings}
    settings = {key: value for key, value in settings.items() if key in aligner.setting_names()}
    if mode not in aligner.presets:
        return aligner.configured(settings)
    return aligner.preset(mode, **settings)


# === workshop ===
FEWEST_SEEDS = 20
RERANKER = "reranker"  # what the stages of trained cross-encoders are called
NONE = Lexicon([])


@dataclass(frozen=True)
class Fitted:
    """A space and the scorers fitted with one set of seeds."""

    space: Space
    pairs: TrainingPairs
    scorers: list[Scorer]

    @property
    def scaling(self) -> Any:
        return self.pairs.scaling


@dataclass(frozen=True)
class HeldOutView:
    """What every scorer says of held-out words' candidates, both directions together."""

    parts: NDArray[np.float64]  # (words, candidates, 1 + scorers), CSLS first
    is_gold: NDArray[np.bool_]  # (words, candidates)

    @classmethod
    def joined(cls, views: Sequence[HeldOutView]) -> HeldOutView:
        """Several views as one; of the candidates as many as all have."""
        width = min(view.parts.shape[1] for view in views)
        return cls(
            np.concatenate([view.parts[:, :width] for view in views]),
            np.concatenate([view.is_gold[:, :width] for view in views]),
        )


@dataclass(frozen=True)
class Lesson:
    """What a cross-encoder is taught, and what says when to stop (None without early stopping)."""

    examples: Examples
    stopping: Examples | None = None

    def __add__(self, other: Lesson) -> Lesson:
        """One cross-encoder for several language pairs."""
        stopping = self.stopping
        if stopping is not None and other.stopping is not None:
            stopping = stopping + other.stopping
        return Lesson(self.examples + other.examples, stopping)


class Workshop:
    """Fits spaces and scorers of one language pair; finished stages are kept in ``folder``."""

    def __init__(
        self,
        source: Embeddings,
        target: Embeddings,
        config: Config,
        recipe: Recipe,
        folder: Path | None,
    ) -> None:
        self.source, self.target = source, target
        self.config, self.recipe, self.folder = config, recipe, folder
        # A name that does not exist is found here, before anything is computed.
        for name in recipe.scorers:
            check_scorer(name)
            if recipe.scorers.count(name) > 1:
                raise InputError(f"the scorer {name} is named twice")
        if not isinstance(recipe.space, Space):
            make_aligner(recipe.space, config.preset, recipe)
        self.template = Template.parse(config.template)
        self.names = self._names()
        self._data = digest(source.words, target.words, source.vectors, target.vectors)

    def _names(self) -> tuple[str, str]:
        encodes = {CROSS_ENCODER, UNTUNED} & set(self.recipe.scorers)
        if not encodes or not self.template.needs_language:
            return ("", "")
        given_source, given_target = self.recipe.names
        return (
            language_name(self.source.language, given_source, side="source"),
            language_name(self.target.language, given_target, side="target"),
        )

    def usable(self, seeds: Lexicon) -> Lexicon:
        """The seed pairs in both vocabularies, enough of them to train and to choose on."""
        indices = seed_indices(self.source, self.target, seeds)
        if (found := len(np.unique(indices, axis=0))) < FEWEST_SEEDS:
            raise InputError(
                f"only {found} of {len(seeds)} seed pairs are in both vocabularies; "
                f"training needs at least {FEWEST_SEEDS}"
            )
        words = [(self.source.words[a], self.target.words[b]) for a, b in indices.tolist()]
        return Lexicon(words)

    def fit(self, seeds: Lexicon, reserved: Lexicon | None = None) -> Fitted:
        """A space and scorers on these seeds; silver pairs keep clear of ``reserved`` words."""
        space = self.space(seeds)
        pairs = self.pairs(space, seeds, reserved)
        return Fitted(space, pairs, self.scorers(space, pairs))

    def space(self, seeds: Lexicon) -> Space:
        """The space of these seeds, or the one that was given."""
        space = self._aligned(seeds)
        space.use_k_csls(self.config.k_csls)
        return space

    def _aligned(self, seeds: Lexicon) -> Space:
        given = self.recipe.space
        if isinstance(given, Space):
            return given
        aligner = make_aligner(given, self.config.preset, self.recipe)
        return self.kept_space(aligner, seeds)

    def kept_space(self, aligner: Aligner, seeds: Lexicon | None) -> Space:
        """What the aligner makes of the two vocabularies, or made of them before."""
        pairs = None if seeds is None else seed_indices(self.source, self.target, seeds)
        k_csls = self.config.k_csls
        return aligner.fit_cached(self.source, self.target, pairs, work=self.folder, k_csls=k_csls)

    def pairs(self, space: Space, seeds: Lexicon, reserved: Lexicon | None = None) -> TrainingPairs:
        """Positives and hard negatives (METHOD.md §2), with what was dropped said."""
        known, held = (
            lexicon.indices(space.source, space.target) for lexicon in (seeds, reserved or NONE)
        )
        mapped = digest(space.source.vectors, space.target.vectors)
        settings = self.config.only(SETTINGS)
        place = self.place("pairs", settings, mapped, digest(known), digest(held))
        with stage(place):
            if place is not None and place.is_dir():
                pairs = TrainingPairs.load(place)
            else:
                pairs = build_pairs(space.retriever, known, self.config, reserved=held)
                if place is not None:
                    pairs.save(place)
        for line in pairs.report.lines():
            note(line)
        return pairs

    def scorers(
        self, space: Space, pairs: TrainingPairs, reranker: Reranker | None = None
    ) -> list[Scorer]:
        """The recipe's scorers, fitted; ``reranker``: a cross-encoder that is trained already."""
        return [self._scorer(name, space, pairs, reranker) for name in self.recipe.scorers]

    def _scorer(
        self, name: str, space: Space, pairs: TrainingPairs, reranker: Reranker | None
    ) -> Scorer:
        if name == CROSS_ENCODER:
            if reranker is None:
                return self.cross_encoder(space, pairs)
            return CrossEncoderScorer(reranker, self.template, self.names)
        if name == UNTUNED:
            return Untuned(new_reranker(self.config, self.recipe), self.template, self.names)
        scorer = make_scorer(name)
        if hasattr(scorer, "fit"):
            source = [space.source.words[i] for i in pairs.source.tolist()]
            target = [space.target.words[i] for i in pairs.target.tolist()]
            scorer.fit(source, target, pairs.is_positive)
        return scorer

    def cross_encoder(self, space: Space, pairs: TrainingPairs) -> CrossEncoderScorer:
        """A cross-encoder trained on these pairs alone."""
        lesson = self.lesson(space, pairs)
        data = digest(pairs.source, pairs.target, pairs.label)
        version = encoder_version(self.config.encoder)
        place = self.place(RERANKER, self.config.to_dict(), data, version)
        reranker = fit_reranker(lesson, self.config, self.recipe, place)
        return CrossEncoderScorer(reranker, self.template, self.names)

    def lesson(self, space: Space, pairs: TrainingPairs) -> Lesson:
        """The pairs as texts; with early stopping, a tenth of the source words apart."""
        if not self.config.early_stopping:
            return Lesson(self._examples(space, pairs))
        # λ's held-out words stay unseen: these are others.
        words = np.random.default_rng(self.config.seed).permutation(np.unique(pairs.source))
        held = np.isin(pairs.source, words[: max(1, len(words) // 10)])
        return Lesson(
            self._examples(space, pairs.only(~held)), self._examples(space, pairs.only(held))
        )

    def _examples(self, space: Space, pairs: TrainingPairs) -> Examples:
        return pairs.examples(
            space.source.words,
            space.target.words,
            self.template,
            self.names,
            repeat=not self.config.weigh_positives,
        )

    def view(self, fitted: Fitted, held: Lexicon, everything: Lexicon) -> HeldOutView:
        """Score held-out words in both directions."""
        views = []
        for reverse in (False, True):
            queries, golds = queries_with_gold(held, everything, fitted.space, reverse=reverse)
            scores = score_candidates(
                fitted.space,
                fitted.scaling,
                fitted.scorers,
                queries,
                self.config.n_cand,
                reverse=reverse,
            )
            views.append(HeldOutView(scores.parts, gold_marks(scores, golds)))
        return HeldOutView.joined(views)

    def place(self, kind: str, *what: Any) -> Path | None:
        """Where the result of a stage with these inputs is kept."""
        if self.folder is None:
            return None
        return stage_folder(self.folder, kind, self._data, *what)


def new_reranker(config: Config, recipe: Recipe) -> Reranker:
    """The encoder as it comes, with the configuration's settings."""
    from blicer.crossencoder.model import Reranker

    return Reranker(
        config.encoder,
        preset=config.preset,
        device=recipe.device,
        precision=recipe.precision,
        **config.only(list(TrainingSettings.__dataclass_fields__)),
    )


def fit_reranker(lesson: Lesson, config: Config, recipe: Recipe, place: Path | None) -> Reranker:
    """Train the encoder; ``place`` is where it is kept, and found again after a kill."""
    shown, stopping = lesson.examples, lesson.stopping
    held_out = (stopping.left, stopping.right, stopping.labels) if stopping is not None else None
    with stage(place):
        return new_reranker(config, recipe).fit(
            shown.left,
            shown.right,
            shown.labels,
            shown.weights,
            output_dir=place,
            validation=held_out,
        )


# === train ===
def train(
    source: Embeddings,
    target: Embeddings,
    seeds: Lexicon,
    config: Config | None = None,
    recipe: Recipe | None = None,
    *,
    work_dir: str | Path | None = None,
) -> Translator:
    """Space, pairs, cross-encoder, mixing, calibration: a translator for both directions."""
    config = config or Config.resolve(defaults=defaults_for(len(seeds)))
    recipe = (recipe or Recipe()).resolved(config, len(seeds))
    check_choice(config, recipe)
    workshop = Workshop(source, target, config, recipe, Path(work_dir) if work_dir else None)
    return prepare(workshop, workshop.usable(seeds)).translator()


def check_choice(config: Config, recipe: Recipe) -> None:
    """Whether λ can be chosen, or used as given: said before anything is fitted."""
    if config.mixing_weight is not None and len(recipe.scorers) != 1:
        raise InputError(
            f"a fixed lambda mixes CSLS with one scorer; there are {len(recipe.scorers)}"
        )
    if config.mixing_weight is None and recipe.holdout == 0 and recipe.folds <= 1:
        raise InputError("without held-out seeds there is nothing to choose lambda on: give one")


@dataclass(frozen=True)
class Prepared:
    """All that was fitted, before the mixing weights are chosen."""

    fitted: Fitted
    held_out: HeldOutView | None
    seeds: int
    refit: bool
    config: Config
    recipe: Recipe
    notes: dict[str, Any] = field(default_factory=dict)
    """What else the translator should say of how it came about."""

    @property
    def scorers(self) -> tuple[str, ...]:
        """What stands beside CSLS in the held-out view, in its order."""
        return self.recipe.scorers

    def choose(self) -> tuple[Mixture, Calibration | None]:
        """Mixing weights and calibration, from held-out words alone."""
        return choose(self.held_out, self.config, self.recipe)

    def translator(self) -> Translator:
        mixture, calibration = self.choose()
        details = {
            "config": self.config.to_dict(),
            "space": self.fitted.space.method,
            "seeds": self.seeds,
            "held_out": len(self.held_out.parts) if self.held_out is not None else 0,
            "refit": self.refit,
            "pairs": self.fitted.pairs.report.to_dict(),
            **self.notes,
        }
        return Translator(
            self.fitted.space,
            self.fitted.scorers,
            mixture,
            self.fitted.scaling,
            calibration=calibration,
            n_cand=self.config.n_cand,
            details=details,
        )


def prepare(workshop: Workshop, seeds: Lexicon) -> Prepared:
    """Fit without the held-out words and score these, then fit on all seeds."""
    recipe = workshop.recipe
    views: list[HeldOutView] = []
    fitted: Fitted | None = None
    splits = held_out_splits(seeds, recipe)
    if splits and isinstance(recipe.space, Space):
        note(
            "the space is taken as it is: if these seeds made it, it knows the held-out words too, "
            "and weights and confidences trust it too much (training from the two vector files "
            "holds them out of the map as well)"
        )
    for number, (rest, held) in enumerate(splits, start=1):
        many = f" (fold {number} of {recipe.folds})" if recipe.folds > 1 else ""
        note(f"fitting on {len(rest)} seed pairs, holding out {len(held)}{many}")
        fitted = workshop.fit(rest, reserved=held)
        views.append(workshop.view(fitted, held, seeds))
    refit = fitted is None or recipe.refit or recipe.folds > 1
    if fitted is None or refit:
        note(f"fitting on all {len(seeds)} seed pairs")
        fitted = workshop.fit(seeds)
    together = HeldOutView.joined(views) if views else None
    return Prepared(fitted, together, len(seeds), refit, workshop.config, recipe)


def held_out_splits(seeds: Lexicon, recipe: Recipe) -> list[tuple[Lexicon, Lexicon]]:
    """(rest, held out) for each fold; no word of either language on both sides of a fold.

    Where too many words hang together by shared translations, target words may be on both sides.
    """
    if not 0 <= recipe.holdout < 1:
        raise InputError(f"holdout is {recipe.holdout}; expected a number from 0 to below 1")
    if recipe.folds < 0:
        raise InputError(f"folds is {recipe.folds}; expected 0 or more")
    if recipe.folds <= 1 and recipe.holdout == 0:
        return []
    share = recipe.holdout if recipe.folds <= 1 else 1 / recipe.folds
    apart = seeds.splits_apart(share)
    if not apart:
        note(
            f"{seeds.largest_group()} seed words hang together by shared translations, too many to "
            "hold out together: a translation of a held-out word may be that of another seed word"
        )
    if recipe.folds <= 1:
        splits = [seeds.split(share, seed=recipe.split_seed, share_targets=not apart)]
    else:
        splits = _folds(seeds, recipe, share_targets=not apart)
    return [(rest, held) for rest, held in splits if len(rest) and len(held)]


def _folds(seeds: Lexicon, recipe: Recipe, *, share_targets: bool) -> list[tuple[Lexicon, Lexicon]]:
    splits, left = [], seeds
    for remaining in range(recipe.folds, 0, -1):
        if remaining == 1:
            held = left
        else:
            left, held = left.split(
                1 / remaining, seed=recipe.split_seed, share_targets=share_targets
            )
        inside = set(held.pairs)
        rest = Lexicon(pair for pair in seeds.listed() if pair not in inside)
        splits.append((rest, held))
    return splits


def choose(
    view: HeldOutView | None, config: Config, recipe: Recipe
) -> tuple[Mixture, Calibration | None]:
    """Mixing weights and calibration, from held-out words alone."""
    check_choice(config, recipe)
    names = [CSLS, *recipe.scorers]
    lam = config.mixing_weight
    if view is None:
        if lam is None:
            raise InputError("there is no held-out word to choose lambda on: give one")
        return Mixture.fixed(lam, names[1]), None
    mixture = choose_weights(view.parts, view.is_gold, names)
    if lam is not None:
        mixture = Mixture(Mixture.fixed(lam, names[1]).weights, mixture.curve, len(view.parts))
    else:
        shown = ", ".join(f"{name} {weight:.2f}" for name, weight in mixture.weights.items())
        note(f"mixing weights chosen on {len(view.parts)} held-out words: {shown}")
    return mixture, calibrate(mixture.combine(view.parts), view.is_gold, seed=config.seed)
