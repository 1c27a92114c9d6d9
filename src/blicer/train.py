"""From two vector sets and seeds to a ``Translator``: the whole chain, in order.

λ (or the weights of several scorers) and the calibration come from seed pairs that neither the
mapping nor the cross-encoder saw; then everything is fitted again on all seeds, unless told not
to. Every finished stage is kept in ``work_dir``, so that the same call goes on after a kill.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.align import METHODS
from blicer.align.base import seeds_to_indices
from blicer.align.space import Space
from blicer.calibration import Calibration, calibrate
from blicer.candidates import gold_marks, queries_with_gold, score_candidates
from blicer.config import Config
from blicer.crossencoder.training_settings import TrainingSettings
from blicer.errors import InputError
from blicer.languages import language_name
from blicer.lexicon import Lexicon
from blicer.mixing import CSLS, Mixture, Scorer, choose_weights
from blicer.pairs import Examples, TrainingPairs, build_pairs
from blicer.progress import note
from blicer.scorers import make_scorer
from blicer.scorers.cross_encoder import NAME as CROSS_ENCODER
from blicer.scorers.cross_encoder import CrossEncoderScorer
from blicer.templates import Template
from blicer.translator import Translator

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings

# The mode of a space that differs from the preset's name. Self-learning costs VecMap hundreds of
# iterations, and with 1,000 seeds brings no more than 0.3 points (results/spaces.md).
USUAL_MODE = {
    ("vecmap", "semi_supervised"): "supervised",
    **{(method, "zero_shot"): "supervised" for method in METHODS},
}
FEWEST_SEEDS = 20
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


def work_folder(output: str | Path) -> Path:
    """Where the stages of an unfinished training are kept: beside its output."""
    output = Path(output)
    return output.with_name(f"{output.name}.work")


def preset_for(seeds: int) -> str:
    """The paper's setup for that many seed pairs."""
    if seeds == 0:
        return "unsupervised"
    return "supervised" if seeds >= ENOUGH_FOR_SUPERVISED else "semi_supervised"


def defaults_for(seeds: int) -> dict[str, Any]:
    """What `blicer train` uses where nothing else is said: the embedded encoder."""
    return {"preset": preset_for(seeds), "encoder": DEFAULT_ENCODER}


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
    workshop = Workshop(source, target, config, recipe, Path(work_dir) if work_dir else None)
    usable = workshop.usable(seeds)
    views: list[HeldOutView] = []
    fitted: Fitted | None = None
    for number, (rest, held) in enumerate(held_out_splits(usable, recipe), start=1):
        many = f" (fold {number} of {recipe.folds})" if recipe.folds > 1 else ""
        note(f"fitting on {len(rest)} seed pairs, holding out {len(held)}{many}")
        fitted = workshop.fit(rest, reserved=held)
        views.append(workshop.view(fitted, held, usable))
    mixture, calibration = _choose(views, config, recipe)
    if fitted is None or recipe.refit or recipe.folds > 1:
        note(f"fitting on all {len(usable)} seed pairs")
        fitted = workshop.fit(usable)
    details = {
        "config": config.to_dict(),
        "space": fitted.space.method,
        "seeds": len(usable),
        "held_out": sum(len(view.parts) for view in views),
        "refit": bool(recipe.refit or recipe.folds > 1 or not views),
        "pairs": fitted.pairs.report.to_dict() if fitted.pairs else None,
    }
    return Translator(
        fitted.space,
        fitted.scorers,
        mixture,
        fitted.scaling,
        calibration=calibration,
        n_cand=config.n_cand,
        details=details,
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
class HeldOutView:
    """What every scorer says of held-out words' candidates, both directions together."""

    parts: NDArray[np.float64]
    is_gold: NDArray[np.bool_]


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
        self.template = Template.parse(config.template)
        self.names = self._names()
        self._data = _digest(source.words, target.words, source.vectors, target.vectors)

    def _names(self) -> tuple[str, str]:
        if CROSS_ENCODER not in self.recipe.scorers or not self.template.needs_language:
            return ("", "")
        given_source, given_target = self.recipe.names
        return (
            language_name(self.source.language, given_source, side="source"),
            language_name(self.target.language, given_target, side="target"),
        )

    def usable(self, seeds: Lexicon) -> Lexicon:
        """The seed pairs in both vocabularies, enough of them to train and to choose on."""
        indices = seeds_to_indices(self.source, self.target, seeds, method="training")
        if (found := len(np.unique(indices, axis=0))) < FEWEST_SEEDS:
            raise InputError(
                f"only {found} of {len(seeds)} seed pairs are in both vocabularies; "
                f"training needs at least {FEWEST_SEEDS}"
            )
        words = [(self.source.words[a], self.target.words[b]) for a, b in indices.tolist()]
        return Lexicon(words)

    def fit(self, seeds: Lexicon, reserved: Lexicon | None = None) -> Fitted:
        """A space and scorers on these seeds; silver pairs keep clear of ``reserved`` words."""
        space = self._space(seeds)
        held = reserved.indices(space.source, space.target) if reserved is not None else None
        pairs = build_pairs(
            space.retriever,
            seeds.indices(space.source, space.target),
            self.config,
            reserved=held,
        )
        for line in pairs.report.lines():
            note(line)
        scorers: list[Scorer] = []
        for name in self.recipe.scorers:
            if name == CROSS_ENCODER:
                scorers.append(self._cross_encoder(space, pairs))
            else:
                scorers.append(fitted_scorer(name, space, pairs))
        return Fitted(space, pairs, scorers)

    def _space(self, seeds: Lexicon) -> Space:
        space = self._aligned(seeds)
        space.settings["k_csls"] = self.config.k_csls
        return space

    def _aligned(self, seeds: Lexicon) -> Space:
        given = self.recipe.space
        if isinstance(given, Space):
            return given
        how = (given, self.recipe.space_mode, self.recipe.space_settings)
        folder = self._stage("space", *how, seeds.pairs)
        if folder is not None and (folder / "space.json").is_file():
            note(f"{given}: taken from {folder}")
            return Space.load(folder)
        aligner = make_aligner(given, self.config.preset, self.recipe)
        space: Space = aligner.align(self.source, self.target, seeds)
        if folder is not None:
            space.save(folder)
        return space

    def _cross_encoder(self, space: Space, pairs: TrainingPairs) -> CrossEncoderScorer:
        from blicer.reranker import Reranker

        names = list(TrainingSettings.__dataclass_fields__)
        reranker = Reranker(
            self.config.encoder,
            preset=self.config.preset,
            device=self.recipe.device,
            precision=self.recipe.precision,
            **self.config.only(names),
        )
        shown, validation = pairs, None
        if self.config.early_stopping:
            # A tenth of the source words say when to stop; λ's held-out words stay unseen.
            words = np.random.default_rng(self.config.seed).permutation(np.unique(pairs.source))
            held = np.isin(pairs.source, words[: max(1, len(words) // 10)])
            shown = pairs.only(~held)
            stopping = self._examples(space, pairs.only(held))
            validation = (stopping.left, stopping.right, stopping.labels)
        examples = self._examples(space, shown)
        data = _digest(pairs.source, pairs.target, pairs.label)
        stage = self._stage("reranker", self.config.to_dict(), data)
        reranker.fit(
            examples.left,
            examples.right,
            examples.labels,
            examples.weights,
            output_dir=stage,
            validation=validation,
        )
        return CrossEncoderScorer(reranker, self.template, self.names)

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
        parts, marks = [], []
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
            parts.append(scores.parts)
            marks.append(gold_marks(scores, golds))
        width = min(part.shape[1] for part in parts)
        return HeldOutView(
            np.concatenate([part[:, :width] for part in parts]),
            np.concatenate([mark[:, :width] for mark in marks]),
        )

    def _stage(self, kind: str, *what: Any) -> Path | None:
        """Where the result of a stage with these inputs is kept."""
        if self.folder is None:
            return None
        key = hashlib.sha256(json.dumps([self._data, *what], default=str).encode()).hexdigest()
        return self.folder / f"{kind}-{key[:16]}"


def fitted_scorer(name: str, space: Space, pairs: TrainingPairs) -> Scorer:
    """A scorer by name; one that learns from pairs of words does so here."""
    scorer = make_scorer(name)
    if hasattr(scorer, "fit"):
        source = [space.source.words[i] for i in pairs.source.tolist()]
        target = [space.target.words[i] for i in pairs.target.tolist()]
        scorer.fit(source, target, pairs.is_positive)
    return scorer


def make_aligner(method: str, preset: str, recipe: Recipe) -> Any:
    """The method in the mode that fits the preset."""
    if method not in METHODS:
        raise InputError(
            f"there is no space {method!r}; give one of {', '.join(METHODS)} or the folder of a "
            "saved space"
        )
    import blicer.align

    aligner = getattr(blicer.align, METHODS[method])
    mode = recipe.space_mode.replace("-", "_") or USUAL_MODE.get((method, preset), preset)
    if recipe.space_mode and mode not in aligner.presets:
        modes = ", ".join(aligner.presets) or "none"
        raise InputError(f"{method} has no mode {recipe.space_mode!r}; its modes are {modes}")
    settings = {"device": recipe.device, **recipe.space_settings}
    settings = {key: value for key, value in settings.items() if key in aligner.setting_names()}
    if mode not in aligner.presets:
        return aligner.configured(settings)
    return aligner.preset(mode, **settings)


def held_out_splits(seeds: Lexicon, recipe: Recipe) -> list[tuple[Lexicon, Lexicon]]:
    """(rest, held out) for each fold; no word of either language on both sides of a fold."""
    if not 0 <= recipe.holdout < 1:
        raise InputError(f"holdout is {recipe.holdout}; expected a number from 0 to below 1")
    if recipe.folds < 0:
        raise InputError(f"folds is {recipe.folds}; expected 0 or more")
    if recipe.folds <= 1:
        if recipe.holdout == 0:
            return []
        return [seeds.split(recipe.holdout, seed=recipe.split_seed, share_targets=False)]
    splits, left = [], seeds
    for remaining in range(recipe.folds, 0, -1):
        if remaining == 1:
            held = left
        else:
            left, held = left.split(1 / remaining, seed=recipe.split_seed, share_targets=False)
        inside = set(held.pairs)
        rest = Lexicon(pair for pair in seeds.listed() if pair not in inside)
        splits.append((rest, held))
    return splits


def _choose(
    views: Sequence[HeldOutView], config: Config, recipe: Recipe
) -> tuple[Mixture, Calibration | None]:
    """Mixing weights and calibration, from held-out words alone."""
    names = [CSLS, *recipe.scorers]
    lam = config.mixing_weight
    if lam is not None and len(names) != 2:
        raise InputError(f"a fixed lambda mixes CSLS with one scorer; there are {len(names) - 1}")
    if not views:
        if lam is None:
            raise InputError(
                "without held-out seeds there is nothing to choose lambda on: give one"
            )
        return Mixture.fixed(lam, names[1]), None
    width = min(view.parts.shape[1] for view in views)
    parts = np.concatenate([view.parts[:, :width] for view in views])
    is_gold = np.concatenate([view.is_gold[:, :width] for view in views])
    mixture = choose_weights(parts, is_gold, names)
    if lam is not None:
        mixture = Mixture(Mixture.fixed(lam, names[1]).weights, mixture.curve, len(parts))
    else:
        note(f"mixing weights chosen on {len(parts)} held-out words: {_weights(mixture)}")
    return mixture, calibrate(mixture.combine(parts), is_gold, seed=config.seed)


def _weights(mixture: Mixture) -> str:
    return ", ".join(f"{name} {weight:.2f}" for name, weight in mixture.weights.items())


def _digest(*things: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for thing in things:
        if isinstance(thing, np.ndarray):
            digest.update(np.ascontiguousarray(thing).data)
        else:
            digest.update("\n".join(thing).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
