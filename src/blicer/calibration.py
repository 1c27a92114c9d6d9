"""The confidence of a translation: a probability, fitted on held-out seeds (docs/method.md §7).

A logistic regression on what is known of a candidate: its mixed score, its lead over the others,
and every scorer's own score. It is fitted on words that neither the space nor the scorers saw.
Users also ask for words whose translation is not in the vocabulary, and then every candidate is
wrong. So each held-out word is there twice: as it is, and with its right translations hidden,
weighted by the share of words of its frequency that have none here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.errors import InputError
from blicer.metrics import calibration_error, equal_width, separation
from blicer.regression import logistic_regression

if TYPE_CHECKING:
    from blicer.align.space import Space
    from blicer.embeddings import Embeddings
    from blicer.lexicon import Lexicon

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FOLDS = 5
RIDGE = 1.0
FITTED_ON = 6  # best candidates of a word that the fit looks at; the rest are nearly always wrong
NEXT = 5  # candidates behind one that its score is compared with
USUALLY_ABSENT = 0.1  # share of words without a translation in the vocabulary, if seeds say nothing
CURVE_POINTS = 200
FEWEST_TO_BEND = 100
FEWEST_TO_PROMISE = 20  # held-out words that a precision is promised on
Bend = tuple[float, float, float]
STRAIGHT: Bend = (0.0, 1.0, 1.0)
# Share of the distance to the usual log odds that is kept where nobody has checked the pairs: they
# are right and wrong more clearly than others.
UNCHECKED = 0.35
SAFETY = 1.0  # standard errors that a promised precision is kept below the observed one
# Words that seeds say nothing of get less confidence than their scores have.
LETTER, WITH_DIGITS, FOREIGN = 0.3, 0.1, 0.4
ALIKE_RANKS = 2.5  # difference of log ranks up to which a word is at home in both languages


@dataclass(frozen=True)
class Absent:
    """How often a word has no translation in the other vocabulary, by its frequency rank."""

    intercept: float = float(np.log(USUALLY_ABSENT / (1 - USUALLY_ABSENT)))
    slope: float = 0.0  # of the logarithm of the rank

    def share(self, ranks: Ints) -> Floats:
        logits = self.intercept + self.slope * np.log1p(ranks)
        share: Floats = np.clip(1 / (1 + np.exp(-logits)), 0.01, 0.9)
        return share

    @classmethod
    def of_share(cls, share: float) -> Absent:
        """The same share for words of every frequency."""
        share = min(max(share, 0.01), 0.99)
        return cls(float(np.log(share / (1 - share))))

    @classmethod
    def of_seeds(cls, seeds: Lexicon, asked: Embeddings, offered: Embeddings) -> Absent:
        """From the seed words that are in the one vocabulary: has the other a translation?"""
        words = [word for word in seeds.targets if word in asked]
        if not words:
            return cls()
        ranks = np.array([asked.lookup[word] for word in words])
        lacking = [not any(target in offered for target in seeds.targets[word]) for word in words]
        # Ten more words, one of which is lacking: few seeds say little.
        usual = np.full(10, np.median(ranks))
        x = np.log1p(np.concatenate([ranks, usual]))[:, None]
        y = np.concatenate([np.array(lacking, float), np.arange(10) < 10 * USUALLY_ABSENT])
        intercept, slope = logistic_regression(x, y, ridge=RIDGE)
        if slope < 0:  # rarer words never lack a translation less often
            return cls.of_share(float(y.mean()))
        return cls(intercept, slope)


@dataclass(frozen=True)
class Scored:
    """Words with their candidates, as confidence is computed from them."""

    mixed: Floats  # (words, candidates)
    parts: Floats  # (words, candidates, scores)
    backward: Bools  # (words,): whether they are target words

    def __getitem__(self, rows: Any) -> Scored:
        return Scored(self.mixed[rows], self.parts[rows], self.backward[rows])

    def hiding(self, hidden: Bools) -> Scored:
        """The same with some candidates (words, candidates) moved behind all others."""
        last = self.mixed.min(axis=1, keepdims=True) - 1.0
        return Scored(np.where(hidden, last, self.mixed), self.parts, self.backward)


@dataclass(frozen=True)
class Reliability:
    """Stated confidence against observed precision, on words not used for the fit."""

    bins: tuple[tuple[float, float, float], ...]
    """(mean confidence, share right, number) of the best translations in each bin."""
    error: float
    """Expected calibration error: mean gap, weighted by the number in each bin."""
    curve: tuple[tuple[float, float, float], ...] = ()
    """(least confidence, precision of entries that are at least so sure, share of all words that
    have one). All translations of a word count, not the best alone."""
    not_here: float = 0.5
    """How well confidence tells words whose translation was hidden from the others (AUC)."""
    others: float = 0.0
    """``error`` of translations after the best."""
    likely: float = 0.5
    """The confidence from which on a further translation is worth listing: it raises F1."""

    def threshold(self, precision: float) -> float:
        """The least confidence whose entries together are right that often.

        A precision that no threshold reaches raises ``InputError``.
        """
        good = [point[0] for point in self.curve if point[1] >= precision]
        if good:
            return min(good)
        best = max(self.curve, key=lambda point: point[1], default=None)
        if best is None:
            raise InputError("there were too few held-out words to promise any precision")
        raise InputError(
            f"a precision of {precision:g} cannot be promised: on held-out words the surest "
            f"entries, for {best[2]:.0%} of the words, reach {best[1]:.3f}"
        )


@dataclass(frozen=True)
class Calibration:
    """``sigmoid(intercept + coefficients · features)``, bent for the best candidate."""

    intercept: float
    coefficients: tuple[float, ...]
    bends: tuple[Bend, Bend] = (STRAIGHT, STRAIGHT)
    """Of each direction: beta calibration of the best candidate."""
    reliability: Reliability | None = None

    @property
    def likely(self) -> float:
        """The confidence from which on a translation after the best is worth listing."""
        return self.reliability.likely if self.reliability is not None else 0.5

    def unchecked(self, rates: tuple[float, float]) -> Calibration:
        """The same for a fit on pairs that nobody has checked: less sure, and without promises.

        ``rates``: share of words of each direction whose best candidate is right.
        """
        usual = np.log(np.clip(rates, 1e-3, 1 - 1e-3)) - np.log1p(-np.clip(rates, 1e-3, 1 - 1e-3))
        forward, backward = ((1 - UNCHECKED) * usual).tolist()
        bends = (forward, UNCHECKED, UNCHECKED), (backward, UNCHECKED, UNCHECKED)
        return replace(self, bends=bends, reliability=None)

    def check(self, scores: int) -> None:
        """A calibration that was not fitted on so many scores a candidate raises."""
        nothing = Scored(np.zeros((1, 1)), np.zeros((1, 1, scores)), np.ones(1, bool))
        expected = features(nothing).shape[2]
        if expected != (found := len(self.coefficients)):
            raise InputError(f"the calibration has {found} coefficients; expected {expected}")

    def confidence(self, scored: Scored) -> Floats:
        """Probability (words, candidates) that each candidate is right."""
        logits = self.intercept + features(scored) @ np.array(self.coefficients)
        probability: Floats = 1.0 / (1.0 + np.exp(-np.clip(logits, -40, 40)))
        best = scored.mixed.argmax(axis=1)
        for way, bend in zip((~scored.backward, scored.backward), self.bends, strict=True):
            rows = np.flatnonzero(way)
            probability[rows, best[rows]] = bend_to(probability[rows, best[rows]], bend)
        return probability

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        reliability = values["reliability"]
        if reliability is not None:
            points = {name: tuple(map(tuple, reliability[name])) for name in ("bins", "curve")}
            reliability = Reliability(**{**reliability, **points})
        bends = [(float(a), float(b), float(c)) for a, b, c in values["bends"]]
        numbers = [float(values["intercept"]), *map(float, values["coefficients"])]
        likely = [float(reliability.likely)] if reliability is not None else []
        if len(bends) != 2 or not np.isfinite([*numbers, *bends[0], *bends[1], *likely]).all():
            raise ValueError("a coefficient of the calibration is not a finite number")
        return cls(numbers[0], tuple(numbers[1:]), (bends[0], bends[1]), reliability)


def features(scored: Scored) -> Floats:
    """(words, candidates, features): whether a candidate is the best, then what is known of the
    best and of the others in separate columns. Most candidates are wrong and far behind; separate
    columns keep them from deciding how sure the best one is.

    Not how frequent the word is: among seeds, which are frequent, rarer ones are easier, and that
    does not go on for rare words."""
    mixed = scored.mixed
    order = np.sort(mixed, axis=1)[:, ::-1]
    first = np.zeros(mixed.shape)
    first[np.arange(len(mixed)), mixed.argmax(axis=1)] = 1.0
    others = order[:, 1 : 1 + NEXT] if mixed.shape[1] > 1 else order
    lead = mixed - np.where(first > 0, others[:, :1], order[:, :1])
    behind = mixed - others.mean(axis=1, keepdims=True)
    backward = np.broadcast_to(scored.backward[:, None, None], (*mixed.shape, 1))
    known = np.concatenate(
        [np.stack([mixed, lead, behind], axis=2), scored.parts, backward], axis=2
    )
    first = first[..., None]
    return np.concatenate([first, known * first, known * (1 - first)], axis=2)


def calibrate(scored: Scored, is_gold: Bools, absent: Floats, *, seed: int = 0) -> Calibration:
    """Fit on held-out words; reliability is measured by cross-validation over words.

    ``absent``: for each word the share of words like it that have no translation here.
    """
    shapes = (scored.mixed.shape, is_gold.shape, scored.parts.shape[:2])
    if scored.mixed.ndim != 2 or not scored.mixed.size or len(set(shapes)) > 1:
        raise InputError(f"scores {shapes[0]} and gold marks {shapes[1]} do not fit")
    words = len(is_gold)
    folds = np.random.default_rng(seed).permutation(words) % min(FOLDS, words)
    fitted = _fit(scored, is_gold, absent, np.arange(words))
    # Stated and right: the best candidates of each word, as it is and with the gold hidden, by a
    # fit without the word.
    looked = min(FITTED_ON, is_gold.shape[1])
    stated, right = np.zeros((2, words, looked)), np.zeros((2, words, looked))
    weights = np.repeat(np.stack([1 - absent, absent])[..., None], looked, axis=2)
    for fold in np.unique(folds):
        inside = np.flatnonzero(folds == fold)
        rest = np.flatnonzero(folds != fold) if words > 1 else inside
        other = _fit(scored, is_gold, absent, rest)
        some, gold = scored[inside], is_gold[inside]
        for hidden, shown in enumerate((some, some.hiding(gold))):
            best = np.argsort(-shown.mixed, axis=1, kind="stable")[:, :looked]
            marks = np.take_along_axis(gold, best, axis=1)
            stated[hidden, inside] = np.take_along_axis(other.confidence(shown), best, axis=1)
            right[hidden, inside] = marks & (not hidden)
            weights[hidden, inside] *= ~(marks & bool(hidden))  # what is hidden is not there
    bent, bends = stated.copy(), []
    for way in (~scored.backward, scored.backward):
        bends.append(_bend(*(one[:, way, 0] for one in (stated, right, weights))))
        for fold in np.unique(folds[way]):
            rest, inside = way & (folds != fold), way & (folds == fold)
            bend = _bend(*(one[:, rest, 0] for one in (stated, right, weights)))
            bent[:, inside, 0] = bend_to(stated[:, inside, 0], bend)
    golds = (1 - absent) * np.maximum(1, is_gold.sum(axis=1))
    measured = reliability(bent, right, weights, float(golds.sum()))
    return replace(fitted, bends=(bends[0], bends[1]), reliability=measured)


def _fit(scored: Scored, is_gold: Bools, absent: Floats, rows: Ints) -> Calibration:
    some, gold = scored[rows], is_gold[rows]
    x, y, weights = [], [], []
    for hidden in (False, True):
        shown = some.hiding(gold) if hidden else some
        best = np.argsort(-shown.mixed, axis=1, kind="stable")[:, :FITTED_ON]
        right = np.take_along_axis(gold, best, axis=1)
        share = absent[rows] if hidden else 1 - absent[rows]
        # A hidden candidate is not there.
        weight = np.where(right & hidden, 0.0, share[:, None])
        x.append(
            np.take_along_axis(features(shown), best[..., None], axis=1).reshape(best.size, -1)
        )
        y.append((right & (not hidden)).ravel())
        weights.append(weight.ravel())
    counted = np.concatenate(weights)
    kept = counted > 0
    fitted = logistic_regression(
        np.concatenate(x)[kept],
        np.concatenate(y)[kept].astype(np.float64),
        weights=counted[kept],
        ridge=RIDGE,
    )
    return Calibration(fitted[0], tuple(fitted[1:]))


def _bend(stated: Floats, right: Floats, weights: Floats) -> Bend:
    """Beta calibration (Kull et al. 2017) of best candidates; none if there are few words.

    A logistic curve is too flat where even the surest are not all right, as where a dictionary
    lists only some of the right translations.
    """
    if stated.shape[1] < FEWEST_TO_BEND:
        return STRAIGHT
    chance = np.clip(stated.ravel(), 1e-6, 1 - 1e-6)
    x = np.stack([np.log(chance), -np.log1p(-chance)], axis=1)
    constant, rise, fall = logistic_regression(x, right.ravel(), weights=weights.ravel())
    return (constant, rise, fall) if rise >= 0 and fall >= 0 else STRAIGHT


def bend_to(chance: Floats, bend: Bend) -> Floats:
    """The chances after beta calibration, in the same order."""
    if bend == STRAIGHT:
        return chance
    chance = np.clip(chance, 1e-6, 1 - 1e-6)
    logits = bend[0] + bend[1] * np.log(chance) - bend[2] * np.log1p(-chance)
    bent: Floats = 1 / (1 + np.exp(-logits))
    return bent


def reliability(stated: Floats, right: Floats, weights: Floats, golds: float) -> Reliability:
    """How stated confidences, (as they are and with gold hidden, words, ranks), hold.

    ``golds``: number of right translations that there are, weighted.
    """
    first, hits, mass = (one[..., 0].ravel() for one in (stated, right, weights))
    which = equal_width(first)
    bins = []
    for b in np.unique(which[mass > 0]):
        inside = which == b
        means = [float(np.average(one[inside], weights=mass[inside])) for one in (first, hits)]
        bins.append((means[0], means[1], float(mass[inside].sum())))
    error = calibration_error(mass[None], first, hits, which)
    hidden = np.repeat([False, True], stated.shape[1])
    not_here = separation(np.ones((1, len(first))), first, hidden)
    further = [one[..., 1:].ravel() for one in (stated, right, weights)]
    others = 0.0
    if further[2].any():
        sure, found, share = further
        others = float(calibration_error(share[None], sure, found, equal_width(sure))[0])
    return Reliability(
        tuple(bins),
        float(error[0]),
        _precision_curve(stated, right, weights),
        float(not_here[0]),
        others,
        _likely(float((mass * hits).sum()), float(mass.sum()), golds, *further),
    )


def _precision_curve(
    stated: Floats, right: Floats, weights: Floats
) -> tuple[tuple[float, float, float], ...]:
    sure, hits, mass = stated.ravel(), right.ravel(), weights.ravel()
    best = np.zeros(stated.shape)
    best[..., 0] = weights[..., 0]
    order = np.argsort(-sure, kind="stable")
    kept, words = np.cumsum(mass[order]), np.cumsum(best.ravel()[order])
    precision = np.cumsum((mass * hits)[order]) / np.maximum(kept, 1e-12)
    safe = precision - SAFETY * np.sqrt(precision * (1 - precision) / np.maximum(kept, 1.0))
    ends = np.flatnonzero(np.append(np.diff(sure[order]) < 0, True))
    ends = ends[kept[ends] >= FEWEST_TO_PROMISE]
    if len(ends):
        ends = ends[np.unique(np.linspace(0, len(ends) - 1, CURVE_POINTS).astype(int))]
    return tuple(
        (float(sure[order][at]), float(safe[at]), float(words[at] / words[-1])) for at in ends
    )


def _likely(
    hits: float, given: float, golds: float, sure: Floats, right: Floats, weights: Floats
) -> float:
    """Half of the best F1 that further translations reach beside the first ones.

    Where confidence is a chance, F1 is best if all that are surer than half of it are listed.
    """
    order = np.argsort(-sure, kind="stable")
    hits_then = hits + np.append(0.0, np.cumsum((weights * right)[order]))
    given_then = given + np.append(0.0, np.cumsum(weights[order]))
    return float((hits_then / np.maximum(1e-12, given_then + golds)).max())


def doubts(space: Space, queries: Ints, indices: Ints, *, reverse: bool) -> Floats:
    """Factors (words, candidates) of confidence for what seeds say nothing of.

    Single letters; words with digits, unless they stay as they are; and words that are spelled the
    same on both sides but far more frequent on one: foreign words, and names.
    """
    asked, offered = (space.target, space.source) if reverse else (space.source, space.target)
    factors = np.ones(indices.shape)
    for row, query in enumerate(queries.tolist()):
        word = asked.words[query]
        twin = offered.lookup.get(word)
        if any(character.isdigit() for character in word):
            factors[row, indices[row] != twin] = WITH_DIGITS
        elif len(word) == 1 and not "\u2e80" <= word <= "\U0003ffff":  # not Chinese and the like
            factors[row] = LETTER
        elif twin is not None and abs(np.log1p(query) - np.log1p(twin)) > ALIKE_RANKS:
            factors[row, indices[row] == twin] = FOREIGN
    return factors
