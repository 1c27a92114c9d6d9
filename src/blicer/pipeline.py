"""From two vector sets and seeds to a ``Translator``, as straight functions in this order:

split → space → training pairs → scorers → held-out view → weights → calibration → translator.

Weights and calibration come from seed pairs that neither the space nor the scorers saw; then
everything is fitted again on all seeds. Seeds become word indices once, in ``seed_indices``. Every
finished stage is cached in ``work_dir``, so that the same call continues after a kill.

Without seeds (docs/method.md §8) the space finds its own start, and weights are chosen on unchecked
pairs. The most confident pairs of the space, which the cross-encoder learns from, are unsuitable:
CSLS is right on them by construction. So the pairs are mutual neighbours in the space and an
encoder's own vectors together, drawn at random whatever their confidence; where one view is wrong,
the other may outvote it. A new map and a new cross-encoder are fitted without their words.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from blicer.align import aligner_class, check_seedless
from blicer.align.base import Aligner, Masks, check_sides, seed_indices, unit_
from blicer.align.space import Space
from blicer.align.two_view import encoder_view, fixed_weights, side_by_side
from blicer.align.vecmap import VecMap
from blicer.calibration import Absent, Calibration, calibrate
from blicer.config import TRAINING, Config
from blicer.devices import resolve_device
from blicer.embeddings import Embeddings
from blicer.encoders.loading import check_encoder, encoder_version
from blicer.errors import BlicerError, InputError, expect
from blicer.expectations import advice, expected, suspects
from blicer.files import digest
from blicer.languages import language_name
from blicer.lexicon import Lexicon, fold_masks, largest_group, queries_with_golds, splits_apart
from blicer.mixing import (
    CSLS,
    HeldOutView,
    Mixture,
    choose_weights,
    gold_marks,
    score_candidates,
)
from blicer.neighbours.mining import Pairs
from blicer.progress import note
from blicer.scorers import CROSS_ENCODER, UNTUNED, Scorer, check_scorers, make_scorer
from blicer.stage_cache import stage, stage_folder
from blicer.templates import Template
from blicer.training_pairs import Examples, Scaling, TrainingPairs, build_pairs
from blicer.translator import Translator

if TYPE_CHECKING:
    from blicer.crossencoder.model import Reranker

Names = tuple[str | None, str | None]

FEWEST_SEEDS = 20
SILVER_PAIRS = 4_000  # positives where there are no seeds
SECOND_VIEW, VIEW_WORDS = "lite", 20_000
NO_PAIRS: Pairs = np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class LanguagePair:
    """What every stage needs: the two vector sets, names, and the cache folder."""

    source: Embeddings
    target: Embeddings
    names: Names = (None, None)
    """The languages' own names, if they do not follow from their tags."""
    work: Path | None = None
    absent: tuple[Absent, Absent] = (Absent(), Absent())
    """Shares of source and of target words without a translation in the other vocabulary."""
    wrong: Pairs = field(default_factory=lambda: NO_PAIRS)
    """Pairs known to be wrong."""

    def names_for(self, config: Config) -> tuple[str, str]:
        """The language names for the template; empty if it does not need them."""
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
    """All that is fitted before the mixing weights are chosen."""

    fitted: Fitted
    held_out: HeldOutView | None
    seeds: int
    refit: bool
    config: Config
    absent: tuple[Absent, Absent] = (Absent(), Absent())
    notes: dict[str, Any] = field(default_factory=dict)
    """More entries of the translator's ``details``."""
    lexicon: Lexicon | None = None
    """The seeds, as the user gave them."""
    wrong: Lexicon | None = None
    """Pairs known to be wrong."""

    def translator(self) -> Translator:
        """Choose mixing weights, calibrate, and assemble the translator."""
        checked = "unsupervised" not in self.notes
        mixture = choose(self.held_out, self.config, checked=checked)
        calibration = None
        if self.held_out is not None:
            calibration = fit_confidence(
                self.held_out, mixture, self.absent, self.config.seed, checked=checked
            )
            if self.notes:  # other pairs' words promise nothing for this one
                calibration = replace(calibration, reliability=None)
        found: dict[str, Any] = {}
        if self.held_out is not None and calibration is not None and not self.notes:
            space = self.fitted.space
            found["expected"] = expected(self.held_out, mixture, self.config.split_seed)
            found["advice"] = advice(found["expected"], space, self.seeds)
            found["suspects"] = suspects(self.held_out, mixture, calibration, space)
        details = {
            "config": self.config.to_dict(),
            "space": self.fitted.space.method,
            "seeds": self.seeds,
            "held_out": len(self.held_out.parts) if self.held_out is not None else 0,
            "refit": self.refit,
            "pairs": asdict(self.fitted.pairs.report),
            **found,
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
            seeds=self.lexicon,
            wrong=self.wrong,
        )


def train(
    source: Embeddings,
    target: Embeddings,
    seeds: Lexicon | None = None,
    config: Config | None = None,
    *,
    wrong: Lexicon | None = None,
    space: Space | None = None,
    names: Names = (None, None),
    work_dir: str | Path | None = None,
) -> Translator:
    """Train a translator for both directions of one language pair.

    ``source``, ``target``: the vectors of the two languages.
    ``seeds``: known translations, source word first; by default none. With fewer than 20 in both
    vocabularies the weights are chosen as without seeds; the space uses them in any case.
    ``config``: all settings; by default the embedded encoder `lite` with the preset that fits the
    number of seeds.
    ``wrong``: pairs known to be wrong; they are negatives, and never given as translations.
    ``space``: a finished space over the same vocabularies; by default ``config.space`` is fitted.
    ``names``: the languages' own names, if they do not follow from their tags.
    ``work_dir``: a folder that caches finished stages; by default nothing is cached.
    """
    check_sides(source, target, seeds)
    for name, value, kind in (("wrong", wrong, Lexicon), ("config", config, Config)):
        expect(name, value, kind, type(None))
    expect("space", space, Space, type(None))
    config = config or Config.for_seeds(len(seeds or ()))
    how: dict[str, Any] = {"space": space, "names": names, "work_dir": work_dir}
    return prepare(source, target, seeds, config, wrong=wrong, **how).translator()


def prepare(
    source: Embeddings,
    target: Embeddings,
    seeds: Lexicon | None,
    config: Config,
    *,
    wrong: Lexicon | None = None,
    space: Space | None = None,
    names: Names = (None, None),
    work_dir: str | Path | None = None,
) -> Prepared:
    """``train`` up to the choice of mixing weights, with the same arguments."""
    pair = LanguagePair(source, target, names, Path(work_dir) if work_dir else None)
    known = NO_PAIRS
    if wrong:
        seeds = seeds and seeds.without(wrong)
        pair = replace(pair, wrong=wrong.indices(source, target))
    if seeds:
        known = seed_indices(source, target, seeds)
        turned = Absent.of_seeds(seeds.reverse(), target, source)
        pair = replace(pair, absent=(Absent.of_seeds(seeds, source, target), turned))
    config = config.for_training(n_pairs(known) or config.n_aug)
    check_config(config, needs_space=space is None)
    given: dict[str, Any] = {"lexicon": seeds, "wrong": wrong}
    if n_pairs(known) >= FEWEST_SEEDS:
        return replace(prepare_pairs([(pair, known)], config, space=space)[0], **given)
    if space is None:
        check_seedless(config.space, n_pairs(known), FEWEST_SEEDS)
    if seeds:
        note(
            f"{n_pairs(known)} seed pairs are too few to hold some out (at least {FEWEST_SEEDS} "
            "are needed): the space uses them, and everything else is chosen as without seeds"
        )
    return replace(prepare_without_seeds(pair, config, known, space=space), **given)


def prepare_pairs(
    data: Sequence[tuple[LanguagePair, Pairs]], config: Config, *, space: Space | None = None
) -> list[Prepared]:
    """Fit without the held-out words and score these, then fit on all seeds.

    ``data``: language pairs, which share one cross-encoder, and their seeds. ``space``: a finished
    space, if there is only one pair.
    """
    pairs, known = [pair for pair, _ in data], [seeds for _, seeds in data]
    masks = [held_out_masks(seeds, config) for seeds in known]
    folds = min(map(len, masks))
    masks = [parts[:folds] for parts in masks]
    if folds and space is not None:
        note(
            "the space is taken as it is: if these seeds made it, it knows the held-out words too, "
            "and weights and confidences trust it too much (training from the two vector files "
            "holds them out of the map as well)"
        )
    spaces = [
        repeat(space) if space is not None else fit_spaces(pair, seeds, parts, config)
        for (pair, seeds), parts in zip(data, masks, strict=True)
    ]
    views: list[list[HeldOutView]] = [[] for _ in data]
    fitted: list[Fitted] = []
    for number in range(folds):
        rests = [seeds[~parts[number]] for seeds, parts in zip(known, masks, strict=True)]
        helds = [seeds[parts[number]] for seeds, parts in zip(known, masks, strict=True)]
        many = f" (fold {number + 1} of {config.folds})" if config.folds > 1 else ""
        note(f"fitting on {n_pairs(*rests)} seed pairs, holding out {n_pairs(*helds)}{many}")
        fitted = fit(pairs, rests, [next(one) for one in spaces], config, reserved=helds)
        for own, one, held, seeds in zip(views, fitted, helds, known, strict=True):
            own.append(held_out_view(one, held, seeds, config))
    refit = not fitted or config.refit or config.folds > 1
    if refit:
        note(f"fitting on all {n_pairs(*known)} seed pairs")
        fitted = fit(pairs, known, [next(one) for one in spaces], config)
    for one in fitted:
        if not one.space.settings.get("converged", True):
            note(f"do not trust this space: {one.space.settings['verdict']}")
    return [
        Prepared(
            fitted=one,
            held_out=HeldOutView.joined(own) if own else None,
            seeds=n_pairs(seeds),
            refit=refit,
            config=config,
            absent=pair.absent,
        )
        for pair, one, own, seeds in zip(pairs, fitted, views, known, strict=True)
    ]


def prepare_without_seeds(
    pair: LanguagePair, config: Config, known: Pairs = NO_PAIRS, *, space: Space | None = None
) -> Prepared:
    """Fit space, silver pairs and scorers, and score unchecked pairs to choose weights on.

    ``known``: seed pairs for the space, too few to hold some out.
    """
    config = config if config.n_aug else config.replace(n_aug=SILVER_PAIRS)
    if space is None:
        space = find_space(pair, config, known)
    (fitted,) = fit([pair], [known], [space], config)
    pairs = fitted.pairs
    silver = np.stack([pairs.source, pairs.target], axis=1)[pairs.is_positive]
    if len(silver) < FEWEST_SEEDS:
        raise BlicerError(
            f"the space gave {len(silver)} silver pairs; training needs at least {FEWEST_SEEDS} "
            "(are the vocabularies large enough, most frequent words first?)"
        )
    held, absent = neighbours_in_two_views(pair, space, config, len(silver))
    view = None
    if len(held):  # scored by a new map and new scorers that never see their words
        apart = ~np.isin(silver[:, 0], held[:, 0]) & ~np.isin(silver[:, 1], held[:, 1])
        rest = silver[apart]
        note(f"choosing on {n_pairs(held)} pairs of two views: fitting on {len(rest)} silver pairs")
        # The rest are the only positives: no more are mined.
        second = {k: v for k, v in config.space_settings.items() if k == "encoder"}
        second |= fixed_weights(space)
        again = config.replace(
            n_aug=0,
            space="twoview",
            space_mode="",
            space_settings={**second, "rounds": 0, "descent": "never"},
            folds=1,
        )
        (without,) = fit([pair], [rest], [fit_space(pair, rest, again)], again, reserved=[held])
        view = held_out_view(without, held, held, again)
    tried = space.settings.get("tried", [])
    facts = {"tried": tried, "silver_pairs": len(silver), "chosen_on": len(held)}
    return Prepared(
        fitted=fitted,
        held_out=view,
        seeds=n_pairs(known),
        refit=True,
        config=config,
        absent=absent,
        notes={"unsupervised": facts},
    )


def neighbours_in_two_views(
    pair: LanguagePair, space: Space, config: Config, silver: int
) -> tuple[Pairs, tuple[Absent, Absent]]:
    """Mutual neighbours of frequent words in space and encoder together, drawn at random.

    Such pairs are easy, as words without a mutual neighbour are not among them. So the share of
    these words on each side counts as words without a translation.
    """
    if config.holdout == 0:
        return NO_PAIRS, (Absent(), Absent())
    sides = [
        unit_(torch.tensor(side.vectors[:VIEW_WORDS], dtype=torch.float32))
        for side in (space.source, space.target)
    ]
    if not space.settings.get("chosen_weight"):
        heads = pair.source.head(VIEW_WORDS), pair.target.head(VIEW_WORDS)
        own = encoder_view(SECOND_VIEW, *heads, pair.work, config.device)
        sides = side_by_side([sides, [side.cpu() for side in own]], [1.0, 1.0])
    pairs = VecMap().mutual(*sides).numpy()
    order = np.random.default_rng(config.split_seed).permutation(len(pairs))
    found = pairs[order[: max(1, round(config.holdout * silver))]]
    alone = [1 - len(pairs) / len(side) for side in sides]
    return found, (Absent.of_share(alone[0]), Absent.of_share(alone[1]))


# -- checks of the configuration ------------------------------------------------------------------


def check_config(config: Config, *, needs_space: bool = True) -> None:
    """Raise ``InputError`` for settings that contradict each other, and for what is missing."""
    check_scorers(config.scorers)
    if config.mixing_weight is not None and len(config.scorers) != 1:
        raise InputError(
            f"a fixed lambda mixes CSLS with one scorer; there are {len(config.scorers)}"
        )
    if config.mixing_weight is None and config.holdout == 0 and config.folds <= 1:
        raise InputError("without held-out seeds there is nothing to choose lambda on: give one")
    resolve_device(config.device)
    if {CROSS_ENCODER, UNTUNED} & set(config.scorers):
        check_encoder(config.encoder)
    if needs_space:
        make_aligner(config)


def make_aligner(config: Config) -> Aligner:
    """The aligner of the configuration, in the mode for its preset."""
    kind = aligner_class(config.space)
    mode = config.space_mode or kind.usual_mode(config.preset)
    settings = {"device": config.device, **config.space_settings}
    if config.space_mode or mode in kind.presets:
        return kind.preset(mode, **settings)
    return kind.configured(settings)


# -- split ----------------------------------------------------------------------------------------


def n_pairs(*pairs: Pairs) -> int:
    """Number of distinct pairs in each array, summed."""
    return sum(len(np.unique(part, axis=0)) for part in pairs)


def held_out_masks(seeds: Pairs, config: Config) -> Masks:
    """Masks of the seed pairs held out in each fold; none if nothing is held out."""
    if config.folds <= 1 and config.holdout == 0:
        return []
    share = 1 / config.folds if config.folds > 1 else config.holdout
    if not splits_apart(seeds, share):
        note(
            f"{largest_group(seeds)} seed words are connected by shared translations, too many to "
            "hold out together: a translation of a held-out word may be that of another seed word"
        )
    return fold_masks(seeds, config.folds, config.split_seed, holdout=config.holdout)


# -- fit ------------------------------------------------------------------------------------------


def fit(
    pairs: Sequence[LanguagePair],
    seeds: Sequence[Pairs],
    spaces: Sequence[Space],
    config: Config,
    *,
    reserved: Sequence[Pairs] | None = None,
) -> list[Fitted]:
    """Fit the scorers of language pairs, each with its space; they share one cross-encoder.

    Silver pairs avoid the words of ``reserved``.
    """
    parts = [
        (pair, space, training_pairs(space, own, config, reserved=held, wrong=pair.wrong))
        for pair, own, space, held in zip(
            pairs, seeds, spaces, reserved or [NO_PAIRS] * len(pairs), strict=True
        )
    ]
    reranker = train_reranker(parts, config) if CROSS_ENCODER in config.scorers else None
    return [Fitted(*part[1:], fit_scorers(*part, config, reranker)) for part in parts]


def fit_spaces(pair: LanguagePair, seeds: Pairs, held: Masks, config: Config) -> Iterator[Space]:
    """A space without each held-out part of the seeds, then one with all of them."""
    how: dict[str, Any] = {"work": pair.work, "k_csls": config.k_csls}
    return make_aligner(config).fit_folds(pair.source, pair.target, seeds, held, **how)


def fit_space(pair: LanguagePair, seeds: Pairs | None, config: Config) -> Space:
    how: dict[str, Any] = {"work": pair.work, "k_csls": config.k_csls}
    return make_aligner(config).fit_cached(pair.source, pair.target, seeds, **how)


def find_space(pair: LanguagePair, config: Config, seeds: Pairs = NO_PAIRS) -> Space:
    """A space from few seeds or none; raises ``BlicerError`` if it did not converge."""
    check_seedless(config.space, n_pairs(seeds), FEWEST_SEEDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # failures are reported below
        space = fit_space(
            pair, seeds if len(seeds) else None, config.replace(space_mode="unsupervised")
        )
    if not space.settings.get("converged", True):
        raise BlicerError(f"{space.settings['verdict']}; no space is handed over")
    return space


def training_pairs(
    space: Space,
    seeds: Pairs,
    config: Config,
    *,
    reserved: Pairs = NO_PAIRS,
    wrong: Pairs = NO_PAIRS,
) -> TrainingPairs:
    """Positives and hard negatives (docs/method.md §2), with a note on what was dropped."""
    space.use_k_csls(config.k_csls)
    pairs = build_pairs(space.retriever, seeds, config, reserved=reserved, wrong=wrong)
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
    """The configuration's scorers, fitted; ``reranker``: the trained cross-encoder, if needed."""
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
                scorer.fit(source, target, pairs.is_positive, pairs.is_of_seeds)
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

    The work folder caches the cross-encoder, and its checkpoints until it is trained.
    """
    taught = Examples.joined(
        [
            pairs.examples(
                space.source.words,
                space.target.words,
                config.template,
                pair.names_for(config),
                repeat=not config.weigh_positives,
            )
            for pair, space, pairs in data
        ]
    )
    folder = None
    if (work := data[0][0].work) is not None:
        texts = digest(*vars(taught).values())
        version = encoder_version(config.encoder)
        folder = stage_folder(work, "reranker", config.only(TRAINING), texts, version)
    with stage(folder):
        return new_reranker(config).fit(
            taught.left, taught.right, taught.labels, taught.weights, output_dir=folder
        )


# -- choose ---------------------------------------------------------------------------------------


def held_out_view(fitted: Fitted, held: Pairs, everything: Pairs, config: Config) -> HeldOutView:
    """Score held-out words in both directions with what was fitted without them.

    Words of which ``everything`` has other translations are left out, as those were trained on.
    """
    views = []
    for reverse in (False, True):
        pairs, known = (held[:, ::-1], everything[:, ::-1]) if reverse else (held, everything)
        words, golds = queries_with_golds(pairs)
        every = dict(zip(*queries_with_golds(known), strict=True))
        whole = [at for at, word in enumerate(words) if len(every[word]) == len(golds[at])]
        scores = score_candidates(
            fitted.space,
            fitted.scaling,
            fitted.scorers,
            words[whole],
            config.n_cand,
            reverse=reverse,
        )
        golds = [golds[at] for at in whole]
        view = HeldOutView(
            parts=scores.parts,
            is_gold=gold_marks(scores, golds),
            queries=scores.queries,
            candidates=scores.indices,
            backward=np.full(len(whole), reverse),
            golds=golds,
        )
        views.append(view)
    return HeldOutView.joined(views)


def choose(view: HeldOutView | None, config: Config, *, checked: bool = True) -> Mixture:
    """Mixing weights chosen on held-out words, or the fixed λ.

    ``checked``: whether the held-out pairs are seeds, not pairs of the space itself.
    """
    names = [CSLS, *config.scorers]
    lam = config.mixing_weight
    if view is None:
        if lam is None:
            raise InputError("there is no held-out word to choose lambda on: give one")
        return Mixture.fixed(lam, names[1])
    mixture = choose_weights(
        view.parts, view.is_gold, names, backward=view.backward, checked=checked
    )
    if lam is not None:
        mixture = Mixture(Mixture.fixed(lam, names[1]).weights, mixture.curve, len(view.parts))
    else:
        how = f"chosen on {len(view.parts)} held-out words" if checked else "as usual"
        note(f"mixing weights {how}: {mixture}")
    return mixture


def fit_confidence(
    view: HeldOutView,
    mixture: Mixture,
    absent: tuple[Absent, Absent],
    seed: int,
    *,
    checked: bool = True,
) -> Calibration:
    """The calibration by held-out words, which allows for words without a translation.

    ``checked``: whether the held-out pairs are seeds, not pairs of the space itself.
    """
    scored = mixture.scored(view)
    fitted = calibrate(scored, view.is_gold, absent, seed=seed)
    if checked:
        return fitted
    right = view.is_gold[np.arange(len(view.is_gold)), scored.mixed.argmax(axis=1)]
    right = right * (1 - fitted.shares(scored))
    forward, backward = (
        float(right[way].mean()) if way.any() else 0.5 for way in (~view.backward, view.backward)
    )
    return fitted.unchecked((forward, backward))
