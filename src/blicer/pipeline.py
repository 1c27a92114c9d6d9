"""From two vector sets and seeds to a ``Translator``, as straight functions in this order:

split → space → training pairs → scorers → held-out view → weights → calibration → translator.

Weights and calibration come from seed pairs that neither the space nor the scorers saw; then
everything is fitted again on all seeds. Seeds become word indices once, in ``seed_pairs``. Every
finished stage is cached in ``work_dir``, so that the same call goes on after a kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.align import aligner_class
from blicer.align.base import Aligner, seed_indices
from blicer.calibration import Calibration, calibrate
from blicer.config import PAIRS, TRAINING, Config
from blicer.encoders.loading import encoder_version
from blicer.errors import InputError
from blicer.files import digest
from blicer.languages import language_name
from blicer.lexicon import Lexicon, largest_group, split_pairs, splits_apart
from blicer.mixing import CSLS, HeldOutView, Mixture, choose_weights
from blicer.progress import note
from blicer.scorers import (
    NEED_ENCODER,
    UNTUNED,
    Scorer,
    check_scorers,
    make_scorer,
)
from blicer.stage_cache import stage, stage_folder
from blicer.templates import Template
from blicer.training_pairs import Examples, TrainingPairs, build_pairs
from blicer.translator import Translator

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.crossencoder.model import Reranker
    from blicer.embeddings import Embeddings

Pairs = NDArray[np.int64]  # (n, 2): rows of source and target words
Names = tuple[str | None, str | None]

FEWEST_SEEDS = 20
NO_PAIRS: Pairs = np.zeros((0, 2), np.int64)
RERANKER, SHARED_RERANKER = "reranker", "shared-reranker"  # kinds of cached stages


@dataclass(frozen=True)
class LanguagePair:
    """What every stage needs to know: the two vector sets, names, and the cache folder."""

    source: Embeddings
    target: Embeddings
    names: Names = (None, None)
    """What the languages call themselves, where their tags do not tell."""
    work: Path | None = None

    @cached_property
    def digest(self) -> str:
        return digest(
            list(self.source.words),
            list(self.target.words),
            self.source.vectors,
            self.target.vectors,
        )

    def stage(self, kind: str, *inputs: Any) -> Path | None:
        """The folder that caches a stage with these inputs; None without a cache."""
        return stage_folder(self.work, kind, self.digest, *inputs) if self.work else None

    def names_for(self, config: Config) -> tuple[str, str]:
        """The language names that the template needs; empty texts if it needs none."""
        encodes = set(NEED_ENCODER) & set(config.scorers)
        if not encodes or not Template.parse(config.template).needs_language:
            return ("", "")
        return (
            language_name(self.source.language, self.names[0], side="source"),
            language_name(self.target.language, self.names[1], side="target"),
        )


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
class Prepared:
    """Everything fitted, before the mixing weights are chosen."""

    fitted: Fitted
    held_out: HeldOutView | None
    seeds: int
    refit: bool
    config: Config
    notes: dict[str, Any] = field(default_factory=dict)
    """Further facts for the translator's ``details``."""

    def choose(self) -> tuple[Mixture, Calibration | None]:
        """Mixing weights and calibration, from held-out words alone."""
        return choose(self.held_out, self.config)

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


def train(
    source: Embeddings,
    target: Embeddings,
    seeds: Lexicon,
    config: Config | None = None,
    *,
    space: Space | None = None,
    names: Names = (None, None),
    work_dir: str | Path | None = None,
) -> Translator:
    """Make a translator for both directions of one language pair.

    ``source``, ``target``: the vectors of the two languages.
    ``seeds``: known translations, source word first; at least 20 of them in both vocabularies.
    ``config``: all settings; by default the embedded encoder `lite` with the preset that fits the
    number of seeds.
    ``space``: a finished space over the same vocabularies; by default ``config.space`` is fitted.
    ``names``: what the languages call themselves, where their tags do not tell.
    ``work_dir``: a folder that caches finished stages; by default nothing is cached.
    """
    config = config or Config.for_seeds(len(seeds))
    prepared = prepare(source, target, seeds, config, space=space, names=names, work_dir=work_dir)
    return prepared.translator()


def prepare(
    source: Embeddings,
    target: Embeddings,
    seeds: Lexicon,
    config: Config,
    *,
    space: Space | None = None,
    names: Names = (None, None),
    work_dir: str | Path | None = None,
) -> Prepared:
    """Fit without the held-out words and score these, then fit on all seeds."""
    config = config.for_training(len(seeds))
    check_config(config, needs_space=space is None)
    pair = LanguagePair(source, target, names, Path(work_dir) if work_dir else None)
    known = seed_pairs(pair, seeds)
    splits = held_out_splits(known, config)
    if splits and space is not None:
        note(
            "the space is taken as it is: if these seeds made it, it knows the held-out words too, "
            "and weights and confidences trust it too much (training from the two vector files "
            "holds them out of the map as well)"
        )
    views: list[HeldOutView] = []
    fitted: Fitted | None = None
    for number, (rest, held) in enumerate(splits, start=1):
        many = f" (fold {number} of {config.folds})" if config.folds > 1 else ""
        note(f"fitting on {count(rest)} seed pairs, holding out {count(held)}{many}")
        fitted = fit(pair, rest, config, space=space, reserved=held)
        views.append(held_out_view(fitted, held, known, config))
    refit = fitted is None or config.refit or config.folds > 1
    if fitted is None or refit:
        note(f"fitting on all {count(known)} seed pairs")
        fitted = fit(pair, known, config, space=space)
    view = HeldOutView.joined(views) if views else None
    return Prepared(fitted, view, count(known), refit, config)


# -- what is asked for ----------------------------------------------------------------------------


def check_config(config: Config, *, needs_space: bool = True) -> None:
    """Settings that contradict each other raise before anything is computed."""
    check_scorers(config.scorers)
    if config.mixing_weight is not None and len(config.scorers) != 1:
        raise InputError(
            f"a fixed lambda mixes CSLS with one scorer; there are {len(config.scorers)}"
        )
    if config.mixing_weight is None and config.holdout == 0 and config.folds <= 1:
        raise InputError("without held-out seeds there is nothing to choose lambda on: give one")
    if needs_space:
        make_aligner(config)


def make_aligner(config: Config) -> Aligner:
    """The space method of the configuration, in the mode that fits its preset."""
    kind = aligner_class(config.space)
    mode = config.space_mode.replace("-", "_") or kind.usual_mode(config.preset)
    if config.space_mode and mode not in kind.presets:
        modes = ", ".join(kind.presets) or "none"
        raise InputError(f"{config.space} has no mode {config.space_mode!r}; its modes are {modes}")
    settings = {"device": config.device, **config.space_settings}
    settings = {key: value for key, value in settings.items() if key in kind.setting_names()}
    made: Aligner = (
        kind.preset(mode, **settings) if mode in kind.presets else kind.configured(settings)
    )
    return made


# -- split ----------------------------------------------------------------------------------------


def seed_pairs(pair: LanguagePair, seeds: Lexicon) -> Pairs:
    """The seed pairs in both vocabularies as indices; too few to train on raise ``InputError``."""
    known = seed_indices(pair.source, pair.target, seeds)
    if (found := count(known)) < FEWEST_SEEDS:
        raise InputError(
            f"only {found} of {len(seeds)} seed pairs are in both vocabularies; "
            f"training needs at least {FEWEST_SEEDS}"
        )
    return known


def count(pairs: Pairs) -> int:
    """Number of distinct pairs."""
    return len(np.unique(pairs, axis=0))


def held_out_splits(seeds: Pairs, config: Config) -> list[tuple[Pairs, Pairs]]:
    """(rest, held out) for each fold; no word of either language is on both sides of a fold.

    Where too many words are connected by shared translations, target words may be on both sides.
    """
    if config.folds <= 1 and config.holdout == 0:
        return []
    share = config.holdout if config.folds <= 1 else 1 / config.folds
    apart = splits_apart(seeds, share)
    if not apart:
        note(
            f"{largest_group(seeds)} seed words are connected by shared translations, too many to "
            "hold out together: a translation of a held-out word may be that of another seed word"
        )

    def split(pairs: Pairs, part: float) -> NDArray[np.bool_]:
        return split_pairs(pairs, part, config.split_seed, share_targets=not apart)

    if config.folds <= 1:
        masks = [split(seeds, share)]
    else:
        masks, left = [], np.ones(len(seeds), dtype=bool)
        for remaining in range(config.folds, 1, -1):
            held = np.zeros(len(seeds), dtype=bool)
            held[left] = split(seeds[left], 1 / remaining)
            masks.append(held)
            left = left & ~held
        masks.append(left)
    return [(seeds[~held], seeds[held]) for held in masks if held.any() and not held.all()]


# -- fit ------------------------------------------------------------------------------------------


def fit(
    pair: LanguagePair,
    seeds: Pairs,
    config: Config,
    *,
    space: Space | None = None,
    reserved: Pairs = NO_PAIRS,
) -> Fitted:
    """Fit a space (unless given) and scorers; silver pairs avoid the words of ``reserved``."""
    space = fit_space(pair, seeds, config) if space is None else space
    pairs = training_pairs(pair, space, seeds, config, reserved=reserved)
    return Fitted(space, pairs, fit_scorers(pair, space, pairs, config))


def fit_space(pair: LanguagePair, seeds: Pairs | None, config: Config) -> Space:
    space = make_aligner(config).fit_cached(
        pair.source, pair.target, seeds, work=pair.work, k_csls=config.k_csls
    )
    space.use_k_csls(config.k_csls)
    return space


def training_pairs(
    pair: LanguagePair, space: Space, seeds: Pairs, config: Config, *, reserved: Pairs = NO_PAIRS
) -> TrainingPairs:
    """Positives and hard negatives (docs/method.md §2); notes what was dropped."""
    space.use_k_csls(config.k_csls)
    mapped = digest(space.source.vectors, space.target.vectors)
    folder = pair.stage("pairs", config.only(PAIRS), config.k_csls, mapped, seeds, reserved)
    with stage(folder):
        if folder is not None and folder.is_dir():
            pairs = TrainingPairs.load(folder)
        else:
            pairs = build_pairs(space.retriever, seeds, config, reserved=reserved)
            if folder is not None:
                pairs.save(folder)
    for line in pairs.report.lines():
        note(line)
    return pairs


def fit_scorers(
    pair: LanguagePair,
    space: Space,
    pairs: TrainingPairs,
    config: Config,
    *,
    reranker: Reranker | None = None,
) -> list[Scorer]:
    """The configuration's scorers, fitted; ``reranker`` is a cross-encoder trained already."""
    return [fit_scorer(name, pair, space, pairs, config, reranker) for name in config.scorers]


def fit_scorer(
    name: str,
    pair: LanguagePair,
    space: Space,
    pairs: TrainingPairs,
    config: Config,
    reranker: Reranker | None,
) -> Scorer:
    if name in NEED_ENCODER:
        from blicer.scorers.cross_encoder import CrossEncoderScorer, Untuned

        names = pair.names_for(config)
        if name == UNTUNED:
            return Untuned(new_reranker(config), config.template, names)
        if reranker is None:
            lesson = make_lesson(pair, space, pairs, config)
            folder = pair.stage(RERANKER, *reranker_inputs(config, lesson))
            reranker = train_reranker(lesson, config, folder)
        return CrossEncoderScorer(reranker, config.template, names)
    scorer = make_scorer(name)
    if hasattr(scorer, "fit"):
        source = [space.source.words[i] for i in pairs.source.tolist()]
        target = [space.target.words[i] for i in pairs.target.tolist()]
        scorer.fit(source, target, pairs.is_positive)
    return scorer


# -- the cross-encoder ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Lesson:
    """What a cross-encoder is trained on, and what decides when to stop (None: nothing does)."""

    examples: Examples
    stopping: Examples | None = None

    @classmethod
    def joined(cls, lessons: Sequence[Lesson]) -> Lesson:
        """One lesson for the cross-encoder of several language pairs."""
        stopping = [lesson.stopping for lesson in lessons if lesson.stopping is not None]
        return cls(
            Examples.joined([lesson.examples for lesson in lessons]),
            Examples.joined(stopping) if stopping else None,
        )


def make_lesson(pair: LanguagePair, space: Space, pairs: TrainingPairs, config: Config) -> Lesson:
    """The pairs as texts; early stopping holds out a tenth of the source words."""

    def examples(some: TrainingPairs) -> Examples:
        return some.examples(
            space.source.words,
            space.target.words,
            config.template,
            pair.names_for(config),
            repeat=not config.weigh_positives,
        )

    if not config.early_stopping:
        return Lesson(examples(pairs))
    # λ's held-out words stay unseen: these are others.
    words = np.random.default_rng(config.seed).permutation(np.unique(pairs.source))
    held = np.isin(pairs.source, words[: max(1, len(words) // 10)])
    return Lesson(examples(pairs.only(~held)), examples(pairs.only(held)))


def reranker_inputs(config: Config, lesson: Lesson) -> tuple[Any, ...]:
    """All that decides the weights of a trained cross-encoder."""
    shown = lesson.examples
    texts = digest(shown.left, shown.right, shown.labels, shown.weights)
    return config.only(TRAINING), texts, encoder_version(config.encoder)


def new_reranker(config: Config) -> Reranker:
    """The encoder before training, with the configuration's settings."""
    from blicer.crossencoder.model import Reranker

    return Reranker(config.encoder, config=config, device=config.device, precision=config.precision)


def train_reranker(lesson: Lesson, config: Config, folder: Path | None) -> Reranker:
    """Train the encoder; ``folder`` keeps it, and its checkpoints until then."""
    shown, stopping = lesson.examples, lesson.stopping
    held_out = (stopping.left, stopping.right, stopping.labels) if stopping is not None else None
    with stage(folder):
        return new_reranker(config).fit(
            shown.left,
            shown.right,
            shown.labels,
            shown.weights,
            output_dir=folder,
            validation=held_out,
        )


# -- choose ---------------------------------------------------------------------------------------


def held_out_view(fitted: Fitted, held: Pairs, everything: Pairs, config: Config) -> HeldOutView:
    """Score held-out words in both directions with what was fitted without them."""
    return HeldOutView.of(
        fitted.space, fitted.scaling, fitted.scorers, held, everything, config.n_cand
    )


def choose(view: HeldOutView | None, config: Config) -> tuple[Mixture, Calibration | None]:
    """Mixing weights (or the fixed λ) and the calibration, from held-out words alone."""
    names = [CSLS, *config.scorers]
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
