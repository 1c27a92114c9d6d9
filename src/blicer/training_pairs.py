"""The cross-encoder's training set: positives, hard negatives, labels (docs/method.md §1 and §2).

One function per step, in the order in which ``build_pairs`` calls them. Words are indices here;
``TrainingPairs.examples`` turns them into the texts that the model reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from blicer.config import Config
from blicer.errors import FileError, InputError
from blicer.files import atomic_folder, read_json, write_json
from blicer.neighbours.mining import Pairs, as_pairs, first_occurrences, pair_keys, silver_pairs
from blicer.templates import Template

if TYPE_CHECKING:
    from blicer.lexicon import Coverage
    from blicer.neighbours.retriever import Retriever


# Scores closer together than this differ by rounding alone (CSLS lies in [-4, 4], in float32).
_NO_SPREAD = 1e-6


@dataclass(frozen=True)
class Scaling:
    """``slope * score + intercept``; kept with the model and applied to test scores unclipped."""

    slope: float
    intercept: float

    def __call__(self, scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return self.slope * np.asarray(scores, dtype=np.float64) + self.intercept

    def to_dict(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scaling:
        try:
            slope, intercept = float(values["slope"]), float(values["intercept"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"the scaling {values!r} should have numbers 'slope' and 'intercept'"
            ) from error
        return cls(slope, intercept)


def fit_scaling(*pool: npt.NDArray[np.floating[Any]]) -> Scaling:
    """The map that takes the least score of the pool to 0 and the greatest to 1.

    The pool is every positive's score and those of its nearest neighbours on both sides, before
    the delta cut. When all its scores are equal there is no such map; then scores keep their
    differences and the common one becomes 0.5, which says neither yes nor no.
    """
    scores = np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in pool])
    if not scores.size:
        raise InputError("there are no scores to fit the scaling on: the training set is empty")
    if not np.isfinite(scores).all():
        bad = int(np.count_nonzero(~np.isfinite(scores)))
        raise InputError(
            f"{bad} of {scores.size} similarities are not finite numbers: "
            "the space contains zero, infinite or NaN vectors"
        )
    low, high = float(scores.min()), float(scores.max())
    if high - low < _NO_SPREAD:
        return Scaling(slope=1.0, intercept=0.5 - low)
    slope = 1.0 / (high - low)
    return Scaling(slope=slope, intercept=-low * slope)


KINDS = ("seed", "silver", "negative")
SEED, SILVER, NEGATIVE = range(len(KINDS))
COLUMNS = ("source", "target", "score", "scaled", "label", "kind", "weight")
ARRAYS, ABOUT = "pairs.safetensors", "pairs.json"

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Examples:
    """What the model is shown: two texts, the label, and how much the example counts."""

    left: list[str]
    right: list[str]
    labels: Floats
    weights: Floats

    def __len__(self) -> int:
        return len(self.left)

    def __iter__(self) -> Iterator[tuple[str, str, float]]:
        return zip(self.left, self.right, self.labels.tolist(), strict=True)

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
    """What went into the training set and what was left out, with the reason."""

    seeds: int  # distinct seed pairs, in both vocabularies
    seeds_repeated: int
    silver: int
    negatives: int
    below_delta: int  # neighbours that were too far below their positive to be hard
    in_positives: int  # neighbours that are positives themselves
    negatives_repeated: int
    examples: int  # with repeats, in both orders
    coverage: Coverage | None = None

    def lines(self) -> list[str]:
        said = self.coverage.lines() if self.coverage is not None else []
        repeated = f" ({self.seeds_repeated} repeated ones dropped)" if self.seeds_repeated else ""
        return [
            *said,
            f"{self.seeds + self.silver} positives: {self.seeds} seeds{repeated}, "
            f"{self.silver} silver pairs",
            f"{self.negatives} hard negatives; neighbours left out: {self.below_delta} below "
            f"delta, {self.in_positives} that are positives, {self.negatives_repeated} repeated",
            f"{self.examples} training examples, with repeats and in both orders",
        ]

    def to_dict(self) -> dict[str, Any]:
        values = {key: value for key, value in vars(self).items() if key != "coverage"}
        if self.coverage is not None:
            values["coverage"] = self.coverage.to_dict()
        return values


@dataclass(frozen=True)
class TrainingPairs:
    """Distinct pairs, positives first (seeds, then silver); one row in each array per pair."""

    source: Integers
    target: Integers
    score: Floats  # CSLS
    scaled: Floats  # CSLS in [0, 1]
    label: Floats
    kind: npt.NDArray[np.int8]  # SEED, SILVER or NEGATIVE
    weight: Integers  # how often the pair appears in each order
    scaling: Scaling
    report: PairsReport

    def __len__(self) -> int:
        return len(self.source)

    @property
    def is_positive(self) -> npt.NDArray[np.bool_]:
        return np.not_equal(self.kind, NEGATIVE)

    def only(self, rows: npt.NDArray[np.bool_]) -> TrainingPairs:
        """Some of the pairs; scaling and report stay those of all."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    def save(self, folder: Path) -> None:
        """Write the pairs for ``load``; what the report says of coverage is not kept."""
        from safetensors.numpy import save_file

        report = {key: value for key, value in self.report.to_dict().items() if key != "coverage"}
        with atomic_folder(folder) as temporary:
            arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in COLUMNS}
            save_file(arrays, temporary / ARRAYS)
            write_json(temporary / ABOUT, {"scaling": self.scaling.to_dict(), "report": report})

    @classmethod
    def load(cls, folder: Path) -> TrainingPairs:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        about = read_json(folder / ABOUT)
        try:
            return cls(
                **load_file(folder / ARRAYS),
                scaling=Scaling.from_dict(about["scaling"]),
                report=PairsReport(**about["report"]),
            )
        except (OSError, SafetensorError, KeyError, TypeError, InputError) as error:
            raise FileError(folder, f"cannot be read as training pairs ({error})") from error

    def expanded(self, *, repeat: bool = True) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Row of each training example, both orders, and whether it is in the reverse order."""
        rows = np.repeat(np.arange(len(self)), self.weight if repeat else 1)
        reverse = np.arange(2 * len(rows)) >= len(rows)
        return np.concatenate([rows, rows]), reverse

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

        ``repeat`` writes a pair as often as it counts, as the paper does; without it each order
        of a pair is there once, and its weight says how much it counts.
        """
        template = Template.parse(template)
        source = _texts(source_words, self.source, template, names[0])
        target = _texts(target_words, self.target, template, names[1])
        rows, reverse = self.expanded(repeat=repeat)
        return Examples(
            left=np.where(reverse, target[rows], source[rows]).tolist(),
            right=np.where(reverse, source[rows], target[rows]).tolist(),
            labels=self.label[rows],
            weights=np.ones(len(rows), np.float32)
            if repeat
            else self.weight[rows].astype(np.float32),
        )


class Candidates(NamedTuple):
    """For each positive (row), the pairs that may become its negatives (columns)."""

    source: Integers
    target: Integers
    score: Floats


class Negatives(NamedTuple):
    pairs: Pairs
    score: Floats
    below_delta: int
    in_positives: int
    repeated: int


def build_pairs(
    retriever: Retriever,
    seeds: npt.ArrayLike | None,
    config: Config,
    *,
    reserved: npt.ArrayLike | None = None,
    coverage: Coverage | None = None,
) -> TrainingPairs:
    """The whole training set of one language pair.

    ``seeds`` are (n, 2) word indices (``Lexicon.indices``); None or none of them trains on silver
    pairs alone. ``reserved`` are seeds held out for later choices: none of them is a negative, and
    no silver pair contains a word of theirs. ``coverage`` goes into the report, so that dropped
    seeds are seen.
    """
    if coverage is not None and coverage.pairs and not coverage.pairs_found:
        raise InputError(
            f"no seed pair is in both vocabularies ({'; '.join(coverage.lines()[1:])}): are the "
            "columns swapped, or is it another script or case?"
        )
    n_source, n_target = retriever.source.shape[0], retriever.target.shape[0]
    given = as_pairs(seeds, n_source, n_target)
    taken = np.concatenate([given, as_pairs(reserved, n_source, n_target)])

    gold = given[first_occurrences(pair_keys(given, n_target))]
    silver = silver_pairs(
        retriever, taken, n_aug=config.n_aug, n_freq=config.n_freq, n_aug_pool=config.n_aug_pool
    )
    positives = np.concatenate([gold, silver])
    if not len(positives):
        raise InputError(
            f"there is nothing to train on: no seed pair is in both vocabularies, and the preset "
            f"{config.preset} with n_aug = {config.n_aug} found no silver pair; give seeds, or use "
            "the preset unsupervised"
        )
    positive_scores = retriever.score(positives[:, 0], positives[:, 1])
    neighbours = nearest_neighbours(retriever, positives, config.n_neg)
    scaling = fit_scaling(positive_scores, neighbours.score)
    negatives = hard_negatives(
        neighbours,
        np.concatenate([positives, taken]),
        scaling(positive_scores),
        scaling,
        config.delta,
        n_target,
    )

    pairs = np.concatenate([positives, negatives.pairs])
    score = np.concatenate([positive_scores, negatives.score]).astype(np.float32)
    kind = np.repeat(
        np.array([SEED, SILVER, NEGATIVE], np.int8), [len(gold), len(silver), len(negatives.pairs)]
    )
    weight = repeats(kind != NEGATIVE, config.n_rep)
    report = PairsReport(
        seeds=len(gold),
        seeds_repeated=len(given) - len(gold),
        silver=len(silver),
        negatives=len(negatives.pairs),
        below_delta=negatives.below_delta,
        in_positives=negatives.in_positives,
        negatives_repeated=negatives.repeated,
        examples=2 * int(weight.sum()),
        coverage=coverage,
    )
    return TrainingPairs(
        source=pairs[:, 0],
        target=pairs[:, 1],
        score=score,
        scaled=scaling(score).astype(np.float32),
        label=polarise(scaling(score), kind != NEGATIVE, config.alpha),
        kind=kind,
        weight=weight,
        scaling=scaling,
        report=report,
    )


def nearest_neighbours(retriever: Retriever, positives: Pairs, n_neg: int) -> Candidates:
    """The n_neg targets nearest to x other than y, and the n_neg sources nearest to y, not x."""
    source, target = positives.T
    other_targets, target_scores = _nearest_others(retriever, source, target, n_neg)
    other_sources, source_scores = _nearest_others(retriever, target, source, n_neg, reverse=True)
    return Candidates(
        source=np.hstack([np.repeat(source[:, None], other_targets.shape[1], 1), other_sources]),
        target=np.hstack([other_targets, np.repeat(target[:, None], other_sources.shape[1], 1)]),
        score=np.hstack([target_scores, source_scores]),
    )


def _nearest_others(
    retriever: Retriever, words: Integers, partners: Integers, k: int, *, reverse: bool = False
) -> tuple[Integers, Floats]:
    """The k nearest words of the other language, without each word's own partner."""
    candidates = retriever.source if reverse else retriever.target
    # One more than wanted, because the partner may be among them; each distinct word once.
    width = min(k + 1, candidates.shape[0])
    queries, row = np.unique(words, return_inverse=True)
    found = retriever.search(width, queries, measure="csls", reverse=reverse)
    indices, scores = found.indices[row], found.scores[row]
    # The partner moves to the end (stable: the others keep their order), then the end is cut.
    order = np.argsort(indices == partners[:, None], axis=1, kind="stable")[:, : width - 1]
    return np.take_along_axis(indices, order, 1), np.take_along_axis(scores, order, 1)


def hard_negatives(
    candidates: Candidates,
    right: Pairs,
    positive_scaled: npt.NDArray[np.float64],
    scaling: Scaling,
    delta: float,
    n_target: int,
) -> Negatives:
    """Neighbours that score at least their positive's score - delta (both scaled), none ``right``.

    ``right``: the positives, and pairs that are known to be translations but are not taught.
    """
    hard = scaling(candidates.score) >= positive_scaled[:, None] - delta
    pairs = np.column_stack([candidates.source[hard], candidates.target[hard]])
    keys = pair_keys(pairs, n_target)
    wrong = ~np.isin(keys, pair_keys(right, n_target))
    kept = np.flatnonzero(wrong)[first_occurrences(keys[wrong])]
    return Negatives(
        pairs=pairs[kept],
        score=candidates.score[hard][kept],
        below_delta=int(np.count_nonzero(~hard)),
        in_positives=int(np.count_nonzero(~wrong)),
        repeated=int(np.count_nonzero(wrong)) - len(kept),
    )


def polarise(scaled: npt.ArrayLike, is_positive: npt.NDArray[np.bool_], alpha: float) -> Floats:
    """Labels: ``a z - a + 1`` for positives and ``a z`` for negatives, clipped to [0, 1]."""
    shift = np.where(is_positive, 1.0 - alpha, 0.0)
    return np.clip(alpha * np.asarray(scaled) + shift, 0.0, 1.0).astype(np.float32)


def repeats(is_positive: npt.NDArray[np.bool_], n_rep: int) -> Integers:
    """A positive appears n_rep times more than a negative does: 1 + n_rep times."""
    return np.where(is_positive, 1 + n_rep, 1).astype(np.int64)


def _texts(
    words: Sequence[str], indices: Integers, template: Template, name: str
) -> npt.NDArray[np.object_]:
    """The text of each indexed word; the template is filled once per distinct word."""
    distinct, row = np.unique(indices, return_inverse=True)
    texts = np.empty(len(distinct), dtype=object)
    texts[:] = template.fill_all((words[index] for index in distinct.tolist()), name)
    return texts[row]
