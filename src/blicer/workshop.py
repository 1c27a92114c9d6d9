"""Fits what a translator is made of, for one language pair: space, pairs, scorers.

Every finished stage is kept in a folder under the digest of all that it depends on, so that the
same work is never done twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.align.base import Aligner, seeds_to_indices
from blicer.align.space import Space
from blicer.candidates import gold_marks, queries_with_gold, score_candidates
from blicer.config import Config
from blicer.crossencoder.training_settings import TrainingSettings
from blicer.encoder_files import encoder_version
from blicer.errors import InputError
from blicer.languages import language_name
from blicer.lexicon import Lexicon
from blicer.mixing import Scorer
from blicer.pairs import SETTINGS, Examples, TrainingPairs, build_pairs
from blicer.progress import note
from blicer.recipe import Recipe, make_aligner
from blicer.scorers import check_scorer, make_scorer
from blicer.scorers.cross_encoder import NAME as CROSS_ENCODER
from blicer.scorers.cross_encoder import UNTUNED, CrossEncoderScorer, Untuned
from blicer.stages import digest, stage, stage_folder
from blicer.templates import Template

if TYPE_CHECKING:
    from blicer.embeddings import Embeddings
    from blicer.reranker import Reranker

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
        aligner.work = self.folder
        return self.kept_space(aligner, seeds)

    def kept_space(self, aligner: Aligner, seeds: Lexicon | None) -> Space:
        """What the aligner makes of the two vocabularies, or made of them before."""
        return aligner.kept(self.source, self.target, seeds, k_csls=self.config.k_csls)

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
    from blicer.reranker import Reranker

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
