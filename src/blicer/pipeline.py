"""From two vector sets and seeds to a ``Translator``, as straight functions in this order:

split → space → training pairs → scorers → held-out view → weights → calibration → translator.

Weights and calibration come from seed pairs that neither the space nor the scorers saw; then
everything is fitted again on all seeds. Seeds become word indices once, in ``seed_pairs``. Every
finished stage is cached in ``work_dir``, so that the same call goes on after a kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.align import aligner_class
from blicer.align.base import Aligner, seed_indices
from blicer.calibration import Calibration, calibrate
from blicer.config import TRAINING, Config
from blicer.encoders.loading import encoder_version
from blicer.errors import InputError
from blicer.files import digest
from blicer.languages import language_name
from blicer.lexicon import Lexicon, largest_group, queries, split_pairs, splits_apart
from blicer.mixing import (
    CSLS,
    HeldOutView,
    Mixture,
    choose_weights,
    gold_marks,
    score_candidates,
)
from blicer.progress import note
from blicer.scorers import CROSS_ENCODER, UNTUNED, Scorer, check_scorers, make_scorer
from blicer.stage_cache import stage, stage_folder
from blicer.templates import Template
from blicer.training_pairs import Examples, Scaling, TrainingPairs, build_pairs
from blicer.translator import Translator

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.crossencoder.model import Reranker
    from blicer.embeddings import Embeddings

Pairs = NDArray[np.int64]  # (n, 2): rows of source and target words
Names = tuple[str | None, str | None]

FEWEST_SEEDS = 20
NO_PAIRS: Pairs = np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class LanguagePair:
    """What every stage needs to know: the two vector sets, names, and the cache folder."""

    source: Embeddings
    target: Embeddings
    names: Names = (None, None)
    """What the languages call themselves, where their tags do not tell."""
    work: Path | None = None

    def names_for(self, config: Config) -> tuple[str, str]:
        """The language names that the template needs; empty texts if it needs none."""
        if not Template.parse(config.template).needs_language:
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
    def scaling(self) -> Scaling:
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

    def translator(self) -> Translator:
        """Choose the mixing weights, and put everything together."""
        mixture, calibration = choose(self.held_out, self.config)
        details = {
            "config": self.config.to_dict(),
            "space": self.fitted.space.method,
            "seeds": self.seeds,
            "held_out": len(self.held_out.parts) if self.held_out is not None else 0,
            "refit": self.refit,
            "pairs": asdict(self.fitted.pairs.report),
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
    """``train`` before the mixing weights are chosen; the arguments are the same."""
    config = config.for_training(len(seeds))
    check_config(config, needs_space=space is None)
    pair = LanguagePair(source, target, names, Path(work_dir) if work_dir else None)
    return prepare_pairs([(pair, seeds)], config, space=space)[0]


def prepare_pairs(
    data: Sequence[tuple[LanguagePair, Lexicon]], config: Config, *, space: Space | None = None
) -> list[Prepared]:
    """Fit without the held-out words and score these, then fit on all seeds.

    ``data``: language pairs, which share one cross-encoder, and their seeds. ``space``: of the only
    pair.
    """
    pairs = [pair for pair, _ in data]
    known = [seed_pairs(pair, seeds) for pair, seeds in data]
    splits = list(zip(*(held_out_splits(seeds, config) for seeds in known), strict=False))
    if splits and space is not None:
        note(
            "the space is taken as it is: if these seeds made it, it knows the held-out words too, "
            "and weights and confidences trust it too much (training from the two vector files "
            "holds them out of the map as well)"
        )
    views: list[list[HeldOutView]] = [[] for _ in data]
    fitted: list[Fitted] = []
    for number, parts in enumerate(splits, start=1):
        rests, helds = zip(*parts, strict=True)
        many = f" (fold {number} of {config.folds})" if config.folds > 1 else ""
        note(f"fitting on {count(*rests)} seed pairs, holding out {count(*helds)}{many}")
        fitted = fit(pairs, rests, config, space=space, reserved=helds)
        for own, one, held, seeds in zip(views, fitted, helds, known, strict=True):
            own.append(held_out_view(one, held, seeds, config))
    refit = not fitted or config.refit or config.folds > 1
    if refit:
        note(f"fitting on all {count(*known)} seed pairs")
        fitted = fit(pairs, known, config, space=space)
    return [
        Prepared(one, HeldOutView.joined(own) if own else None, count(seeds), refit, config)
        for one, own, seeds in zip(fitted, views, known, strict=True)
    ]


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
    mode = config.space_mode or kind.usual_mode(config.preset)
    settings = {"device": config.device, **config.space_settings}
    if config.space_mode or mode in kind.presets:
        return kind.preset(mode, **settings)
    return kind.configured(settings)


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


def count(*pairs: Pairs) -> int:
    """Number of distinct pairs in each array, summed."""
    return sum(len(np.unique(part, axis=0)) for part in pairs)


def held_out_splits(seeds: Pairs, config: Config) -> list[tuple[Pairs, Pairs]]:
    """(rest, held out) for each fold; no word of either language is on both sides of a fold.

    Where too many words are connected by shared translations, target words may be on both sides.
    """
    if config.folds <= 1 and config.holdout == 0:
        return []
    folds = config.folds
    shares = [1 / left for left in range(folds, 0, -1)] if folds > 1 else [config.holdout]
    apart = splits_apart(seeds, shares[0])
    if not apart:
        note(
            f"{largest_group(seeds)} seed words are connected by shared translations, too many to "
            "hold out together: a translation of a held-out word may be that of another seed word"
        )
    splits, left = [], np.ones(len(seeds), dtype=bool)
    for share in shares:  # of what is left
        held = np.zeros(len(seeds), dtype=bool)
        held[left] = split_pairs(seeds[left], share, config.split_seed, share_targets=not apart)
        left &= ~held
        if held.any() and not held.all():
            splits.append((seeds[~held], seeds[held]))
    return splits


# -- fit ------------------------------------------------------------------------------------------


def fit(
    pairs: Sequence[LanguagePair],
    seeds: Sequence[Pairs],
    config: Config,
    *,
    space: Space | None = None,
    reserved: Sequence[Pairs] | None = None,
) -> list[Fitted]:
    """Fit the spaces (unless one is given) and the scorers of language pairs.

    They share one cross-encoder. Silver pairs avoid the words of ``reserved``.
    """
    parts = []
    for pair, own, held in zip(pairs, seeds, reserved or [NO_PAIRS] * len(pairs), strict=True):
        made = fit_space(pair, own, config) if space is None else space
        parts.append((pair, made, training_pairs(made, own, config, reserved=held)))
    reranker = train_reranker(parts, config) if CROSS_ENCODER in config.scorers else None
    return [Fitted(*part[1:], fit_scorers(*part, config, reranker)) for part in parts]


def fit_space(pair: LanguagePair, seeds: Pairs | None, config: Config) -> Space:
    space = make_aligner(config).fit_cached(
        pair.source, pair.target, seeds, work=pair.work, k_csls=config.k_csls
    )
    space.use_k_csls(config.k_csls)
    return space


def training_pairs(
    space: Space, seeds: Pairs, config: Config, *, reserved: Pairs = NO_PAIRS
) -> TrainingPairs:
    """Positives and hard negatives (docs/method.md §2); notes what was dropped."""
    space.use_k_csls(config.k_csls)
    pairs = build_pairs(space.retriever, seeds, config, reserved=reserved)
    for line in pairs.report.lines():
        note(line)
    return pairs


def fit_scorers(
    pair: LanguagePair,
    space: Space,
    pairs: TrainingPairs,
    config: Config,
    reranker: Reranker | None,
) -> list[Scorer]:
    """The configuration's scorers, fitted; ``reranker`` is the trained cross-encoder if needed."""
    from blicer.scorers.cross_encoder import CrossEncoderScorer, Untuned

    scorers: list[Scorer] = []
    for name in config.scorers:
        if name == CROSS_ENCODER and reranker is not None:
            names = pair.names_for(config)
            scorers.append(CrossEncoderScorer(reranker, config.template, names))
        elif name == UNTUNED:
            names = pair.names_for(config)
            scorers.append(Untuned(new_reranker(config), config.template, names))
        else:
            scorer = make_scorer(name)
            if hasattr(scorer, "fit"):
                source = [space.source.words[i] for i in pairs.source.tolist()]
                target = [space.target.words[i] for i in pairs.target.tolist()]
                scorer.fit(source, target, pairs.is_positive)
            scorers.append(scorer)
    return scorers


# -- the cross-encoder ----------------------------------------------------------------------------


def new_reranker(config: Config) -> Reranker:
    """The encoder before training, with the configuration's settings."""
    from blicer.crossencoder.model import Reranker

    return Reranker(config.encoder, config=config, device=config.device, precision=config.precision)


def train_reranker(
    data: Sequence[tuple[LanguagePair, Space, TrainingPairs]], config: Config
) -> Reranker:
    """Train one cross-encoder on the training pairs of one or several language pairs.

    Early stopping holds out a tenth of the source words. The work folder caches the cross-encoder,
    and its checkpoints until it is trained.
    """
    shown: list[Examples] = []
    held_out: list[Examples] = []
    for pair, space, pairs in data:
        held = np.zeros(len(pairs), dtype=bool)
        if config.early_stopping:  # λ's held-out words stay unseen: these are others
            words = np.random.default_rng(config.seed).permutation(np.unique(pairs.source))
            held = np.isin(pairs.source, words[: max(1, len(words) // 10)])
        for part, rows in ((shown, ~held), (held_out, held)):
            part.append(
                pairs.only(rows).examples(
                    space.source.words,
                    space.target.words,
                    config.template,
                    pair.names_for(config),
                    repeat=not config.weigh_positives,
                )
            )
    taught, stopping = Examples.joined(shown), Examples.joined(held_out)
    folder = None
    if (work := data[0][0].work) is not None:
        texts = digest(*vars(taught).values(), *vars(stopping).values())
        version = encoder_version(config.encoder)
        folder = stage_folder(work, "reranker", config.only(TRAINING), texts, version)
    with stage(folder):
        return new_reranker(config).fit(
            taught.left,
            taught.right,
            taught.labels,
            taught.weights,
            output_dir=folder,
            validation=(stopping.left, stopping.right, stopping.labels) if len(stopping) else None,
        )


# -- choose ---------------------------------------------------------------------------------------


def held_out_view(fitted: Fitted, held: Pairs, everything: Pairs, config: Config) -> HeldOutView:
    """Score held-out words in both directions with what was fitted without them.

    A word that ``everything`` has other translations of is left out: those were trained on.
    """
    views = []
    for reverse in (False, True):
        pairs, known = (held[:, ::-1], everything[:, ::-1]) if reverse else (held, everything)
        words, golds = queries(pairs)
        every = dict(zip(*queries(known), strict=True))
        whole = [at for at, word in enumerate(words) if len(every[word]) == len(golds[at])]
        scores = score_candidates(
            *(fitted.space, fitted.scaling, fitted.scorers, words[whole], config.n_cand),
            reverse=reverse,
        )
        views.append(HeldOutView(scores.parts, gold_marks(scores, [golds[at] for at in whole])))
    return HeldOutView.joined(views)


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
        note(f"mixing weights chosen on {len(view.parts)} held-out words: {mixture}")
    return mixture, calibrate(mixture.combine(view.parts), view.is_gold, seed=config.seed)
