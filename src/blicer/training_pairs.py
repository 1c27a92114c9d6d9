"""The cross-encoder's training set: positives, hard negatives, labels (docs/method.md §1 and §2).

Words are indices here; ``TrainingPairs.examples`` turns them into the texts for the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blicer.config import Config
from blicer.errors import InputError
from blicer.neighbours.mining import (
    Pairs,
    as_pairs,
    first_occurrences,
    nearest_others,
    pair_keys,
    silver_pairs,
)
from blicer.templates import Template

if TYPE_CHECKING:
    from blicer.neighbours.retriever import Retriever

Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

KINDS = ("seed", "silver", "negative")
SEED, SILVER, NEGATIVE = range(len(KINDS))
COLUMNS = ("source", "target", "score", "scaled", "label", "kind", "weight")
# Scores closer together than this differ by rounding alone (CSLS lies in [-4, 4], in float32).
_NO_SPREAD = 1e-6


@dataclass(frozen=True)
class Scaling:
    """``slope * score + intercept``; saved with the model; scores are not clipped."""

    slope: float
    intercept: float

    def __call__(self, scores: ArrayLike) -> NDArray[np.float64]:
        return self.slope * np.asarray(scores, dtype=np.float64) + self.intercept

    def to_dict(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scaling:
        slope, intercept = float(values["slope"]), float(values["intercept"])
        if not np.isfinite([slope, intercept]).all():
            raise ValueError(f"a scaling of slope {slope} and intercept {intercept}")
        return cls(slope, intercept)


def fit_scaling(*pool: NDArray[np.floating[Any]]) -> Scaling:
    """The map that takes the lowest score of the pool to 0 and the highest to 1.

    The pool has the scores of every positive and of its nearest neighbours on both sides, before
    the delta cut. If they are all equal, scores are only shifted, so that the common one becomes
    0.5.
    """
    scores = np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in pool])
    if bad := int(np.count_nonzero(~np.isfinite(scores))):
        raise InputError(
            f"{bad} of {scores.size} similarities are not finite numbers: "
            "the space contains zero, infinite or NaN vectors"
        )
    low, high = float(scores.min()), float(scores.max())
    if high - low < _NO_SPREAD:
        return Scaling(slope=1.0, intercept=0.5 - low)
    slope = 1.0 / (high - low)
    return Scaling(slope=slope, intercept=-low * slope)


@dataclass(frozen=True)
class Examples:
    """Training examples: two texts, the label and the weight of each."""

    left: list[str]
    right: list[str]
    labels: Singles
    weights: Singles

    def __len__(self) -> int:
        return len(self.left)

    @classmethod
    def joined(cls, parts: Sequence[Examples]) -> Examples:
        """The examples of several language pairs together (zero-shot, multilingual training)."""
        return cls(
            [text for part in parts for text in part.left],
            [text for part in parts for text in part.right],
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )


@dataclass(frozen=True)
class PairsReport:
    """Counts of what is in the training set, and of what was left out and why."""

    seeds: int  # distinct seed pairs, in both vocabularies
    seeds_repeated: int
    silver: int
    negatives: int
    below_delta: int  # neighbours that were too far below their positive to be hard
    in_positives: int  # neighbours that are positives themselves
    negatives_repeated: int
    examples: int  # with repeats, in both orders

    def lines(self) -> list[str]:
        repeated = f" ({self.seeds_repeated} repeated ones dropped)" if self.seeds_repeated else ""
        return [
            f"{self.seeds + self.silver} positives: {self.seeds} seeds{repeated}, "
            f"{self.silver} silver pairs",
            f"{self.negatives} hard negatives; neighbours left out: {self.below_delta} below "
            f"delta, {self.in_positives} that are positives, {self.negatives_repeated} repeated",
            f"{self.examples} training examples, with repeats and in both orders",
        ]


@dataclass(frozen=True)
class TrainingPairs:
    """Distinct pairs, positives first (seeds, then silver); one row in each array per pair."""

    source: Ints
    target: Ints
    score: Singles  # CSLS
    scaled: Singles  # CSLS in [0, 1]
    label: Singles
    kind: NDArray[np.int8]  # SEED, SILVER or NEGATIVE
    weight: Ints  # how often the pair appears in each order
    scaling: Scaling
    report: PairsReport

    def __len__(self) -> int:
        return len(self.source)

    @property
    def is_positive(self) -> NDArray[np.bool_]:
        return np.not_equal(self.kind, NEGATIVE)

    @property
    def is_of_seeds(self) -> NDArray[np.bool_]:
        """All but silver pairs, and negatives that share a word with these but with no seed."""

        def shares_word(kind: int) -> NDArray[np.bool_]:
            own = np.equal(self.kind, kind)
            return np.isin(self.source, self.source[own]) | np.isin(self.target, self.target[own])

        of_silver = shares_word(SILVER) & ~shares_word(SEED)
        return ~np.equal(self.kind, SILVER) & ~of_silver

    def examples(
        self,
        source_words: Sequence[str],
        target_words: Sequence[str],
        template: Template | str,
        names: tuple[str, str],
        *,
        repeat: bool = True,
    ) -> Examples:
        """Every pair in both orders, each word with its own language's name in both.

        ``repeat``: repeat each pair as often as it counts, as the paper does; otherwise each order
        of a pair is there once, with a weight.
        """
        template = Template.parse(template)
        source = _texts(source_words, self.source, template, names[0])
        target = _texts(target_words, self.target, template, names[1])
        rows = np.repeat(np.arange(len(self)), self.weight if repeat else 1)
        both = np.concatenate([rows, rows])
        weights = np.ones(len(both)) if repeat else self.weight[both]
        return Examples(
            left=[*source[rows], *target[rows]],
            right=[*target[rows], *source[rows]],
            labels=self.label[both],
            weights=weights.astype(np.float32),
        )


def build_pairs(
    retriever: Retriever,
    seeds: ArrayLike | None,
    config: Config,
    *,
    reserved: ArrayLike | None = None,
    wrong: ArrayLike | None = None,
) -> TrainingPairs:
    """The whole training set of one language pair.

    ``seeds``: (n, 2) word indices (``Lexicon.indices``); without any, only silver pairs are
    positives. ``reserved``: seeds held out for later choices; none of them is a negative, and no
    silver pair shares a word with them. ``wrong``: pairs known to be wrong, which are negatives
    however far apart, and never silver.
    """
    n_source, n_target = retriever.source.shape[0], retriever.target.shape[0]
    given = as_pairs(seeds, n_source, n_target)
    taken = np.concatenate([given, as_pairs(reserved, n_source, n_target)])
    rejected = as_pairs(wrong, n_source, n_target)
    rejected = rejected[~np.isin(pair_keys(rejected, n_target), pair_keys(taken, n_target))]

    gold = given[first_occurrences(pair_keys(given, n_target))]
    silver = silver_pairs(
        retriever, taken, n_aug=config.n_aug, n_freq=config.n_freq, n_aug_pool=config.n_aug_pool
    )
    silver = silver[~np.isin(pair_keys(silver, n_target), pair_keys(rejected, n_target))]
    positives = np.concatenate([gold, silver])
    if not len(positives):
        raise InputError(
            f"there is nothing to train on: no seed pair is in both vocabularies, and the preset "
            f"{config.preset} with n_aug = {config.n_aug} found no silver pair; give seeds, or use "
            "the preset unsupervised"
        )
    positive_scores = retriever.score(positives[:, 0], positives[:, 1])
    neighbours, neighbour_scores = nearest_neighbours(retriever, positives, config.n_neg)
    scaling = fit_scaling(positive_scores, neighbour_scores)
    # Neighbours that score at least their positive's score - delta, both scaled, and are wrong.
    hard = scaling(neighbour_scores) >= scaling(positive_scores)[:, None] - config.delta
    near = np.concatenate([neighbours[hard], rejected])
    near_scores = [neighbour_scores[hard], retriever.score(rejected[:, 0], rejected[:, 1])]
    keys = pair_keys(near, n_target)
    negative = ~np.isin(keys, pair_keys(np.concatenate([positives, taken]), n_target))
    kept = np.flatnonzero(negative)[first_occurrences(keys[negative])]

    pairs = np.concatenate([positives, near[kept]])
    score = np.concatenate([positive_scores, np.concatenate(near_scores)[kept]]).astype(np.float32)
    kinds = np.array([SEED, SILVER, NEGATIVE], np.int8)
    kind = np.repeat(kinds, [len(gold), len(silver), len(kept)])
    # A positive appears n_rep times more than a negative does.
    weight = np.where(kind != NEGATIVE, 1 + config.n_rep, 1)
    return TrainingPairs(
        source=pairs[:, 0],
        target=pairs[:, 1],
        score=score,
        scaled=scaling(score).astype(np.float32),
        label=polarise(scaling(score), kind != NEGATIVE, config.alpha),
        kind=kind,
        weight=weight,
        scaling=scaling,
        report=PairsReport(
            seeds=len(gold),
            seeds_repeated=len(given) - len(gold),
            silver=len(silver),
            negatives=len(kept),
            below_delta=int(np.count_nonzero(~hard)),
            in_positives=int(np.count_nonzero(~negative)),
            negatives_repeated=int(np.count_nonzero(negative)) - len(kept),
            examples=2 * int(weight.sum()),
        ),
    )


def nearest_neighbours(retriever: Retriever, positives: Pairs, n_neg: int) -> tuple[Ints, Singles]:
    """For each positive (x, y): x with its n_neg nearest targets except y, and y likewise.

    Returns pairs (positives, neighbours, 2) and their CSLS (positives, neighbours).
    """
    source, target = positives.T
    targets, target_scores = nearest_others(retriever, source, target, n_neg)
    sources, source_scores = nearest_others(retriever, target, source, n_neg, reverse=True)
    forward = np.stack(np.broadcast_arrays(source[:, None], targets), axis=2)
    backward = np.stack(np.broadcast_arrays(sources, target[:, None]), axis=2)
    return np.hstack([forward, backward]), np.hstack([target_scores, source_scores])


def polarise(scaled: ArrayLike, is_positive: NDArray[np.bool_], alpha: float) -> Singles:
    """Labels: ``a z - a + 1`` for positives and ``a z`` for negatives, clipped to [0, 1]."""
    shift = np.where(is_positive, 1.0 - alpha, 0.0)
    return np.clip(alpha * np.asarray(scaled) + shift, 0.0, 1.0).astype(np.float32)


def _texts(
    words: Sequence[str], indices: Ints, template: Template, name: str
) -> NDArray[np.object_]:
    """The text of each indexed word; the template is filled once for each distinct word."""
    distinct, row = np.unique(indices, return_inverse=True)
    texts = np.empty(len(distinct), dtype=object)
    texts[:] = template.fill_all((words[index] for index in distinct.tolist()), name)
    return texts[row]
