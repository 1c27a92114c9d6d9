"""The confidence of a translation: a probability, fitted on held-out seeds (docs/method.md §7).

The product of two chances: that the word has a translation in the other vocabulary at all, and
that the candidate is right if so. Each is a logistic regression on what is known of candidates: the
mixed score, the lead over the others, every scorer's own score. They are fitted on words that
neither the space nor the scorers saw. The first tells these words as they are from the same words
with their right translations hidden, and is weighed with the share of words as frequent as the one
asked that have none here, which the seeds tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blicer.errors import InputError
from blicer.metrics import calibration_error, equal_width
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
FEWEST_TO_PROMISE = 20  # held-out words that a precision is promised on
COMPARED = 3  # first clues: how a candidate's mixed score compares with the others'
EXTREMES = (0.1, 0.9)  # quantiles of the ranks of words beyond which words count as these
Curve = tuple[float, tuple[float, ...]]  # logistic: the constant, and the slopes
Span = tuple[float, float, float]
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
    rows: Ints  # (words,): their places in the vector file, most frequent first

    def __getitem__(self, some: Any) -> Scored:
        return Scored(self.mixed[some], self.parts[some], self.backward[some], self.rows[some])

    def hiding(self, hidden: Bools) -> Scored:
        """The same with some candidates (words, candidates) moved behind all others."""
        last = self.mixed.min(axis=1, keepdims=True) - 1e-9  # further down, it would be a clue
        return replace(self, mixed=np.where(hidden, last, self.mixed))


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
    """The chance that a candidate is right, and the chance that a word has a translation here."""

    right: Curve
    """Of ``features``: that a candidate is right if there is a translation."""
    here: Curve
    """Of ``clues``: that there is one, if half of all words had one."""
    absent: tuple[Absent, Absent]
    """How often source and target words have none."""
    ranks: tuple[Span, Span]
    """Lowest, mean and highest log rank of the source and target words that the fit saw."""
    usual: tuple[float, float] | None = None
    """Log odds that the best candidates of each direction are drawn to; none: they stay."""
    reliability: Reliability | None = None

    @property
    def likely(self) -> float:
        """The confidence from which on a translation after the best is worth listing."""
        return self.reliability.likely if self.reliability is not None else 0.5

    def unchecked(self, rates: tuple[float, float]) -> Calibration:
        """The same for a fit on pairs that nobody has checked: less sure, and without promises.

        ``rates``: share of words of each direction whose best candidate is right.
        """
        forward, backward = _log_odds(np.clip(rates, 1e-3, 1 - 1e-3)).tolist()
        return replace(self, usual=(forward, backward), reliability=None)

    def check(self, scores: int) -> None:
        """A calibration that was not fitted on so many scores a candidate raises."""
        nobody = np.zeros(1, np.int64)
        nothing = Scored(np.zeros((1, 1)), np.zeros((1, 1, scores)), nobody > 0, nobody)
        for curve, of in ((self.right, self.features(nothing)), (self.here, clues(nothing))):
            if of.shape[-1] != (found := len(curve[1])):
                raise InputError(
                    f"the calibration has {found} coefficients; expected {of.shape[-1]}"
                )

    def features(self, scored: Scored) -> Floats:
        """What is known of every candidate (words, candidates, features).

        Whether it is the best, then its clues in separate columns for the best and for the others:
        most candidates are wrong and far behind, and must not decide how sure the best one is.
        Among frequent words, for which a dictionary lists only some of the right translations,
        scores tell less. So the clues are there once more times the log rank; words beyond the
        ranks that the fit saw count as the last ones that it saw.
        """
        low, mean, high = np.array(self.ranks)[scored.backward.astype(int)].T
        rank = np.clip(np.log1p(scored.rows), low, high) - mean
        known = clues(scored)
        ranked = rank[:, None, None] * np.concatenate(
            [np.ones((*scored.mixed.shape, 1)), known[..., :COMPARED]], axis=2
        )
        known = np.concatenate([known, ranked], axis=2)
        first = _is_best(scored)[..., None]
        return np.concatenate([first, known * first, known * (1 - first)], axis=2)

    def is_here(self, scored: Scored) -> Floats:
        """Probability (words,) that a word has a translation in the other vocabulary."""
        return _sigmoid(self.stands_out(scored) - _log_odds(self.shares(scored)))

    def stands_out(self, scored: Scored) -> Floats:
        """How much (words,) the best candidates look as those of words with a translation do."""
        best = np.arange(len(scored.mixed)), scored.mixed.argmax(axis=1)
        return _logits(self.here, clues(scored)[best])

    def shares(self, scored: Scored) -> Floats:
        """Share (words,) of words like each that have no translation here."""
        forward, backward = (one.share(scored.rows) for one in self.absent)
        return np.where(scored.backward, backward, forward)

    def confidence(self, scored: Scored) -> Floats:
        """Probability (words, candidates) that each candidate is right."""
        probability = _sigmoid(_logits(self.right, self.features(scored)))
        probability *= self.is_here(scored)[:, None]
        if self.usual is not None:
            best = np.arange(len(probability)), scored.mixed.argmax(axis=1)
            usual = np.array(self.usual)[scored.backward.astype(int)]
            kept = UNCHECKED * _log_odds(probability[best])
            probability[best] = _sigmoid((1 - UNCHECKED) * usual + kept)
        return probability

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        reliability = values["reliability"]
        if reliability is not None:
            points = {name: tuple(map(tuple, reliability[name])) for name in ("bins", "curve")}
            reliability = Reliability(**{**reliability, **points})
        curves = [
            (float(constant), tuple(map(float, slopes)))
            for constant, slopes in (values["right"], values["here"])
        ]
        absent = [Absent(float(one["intercept"]), float(one["slope"])) for one in values["absent"]]
        ranks = [(float(low), float(mean), float(high)) for low, mean, high in values["ranks"]]
        usual = None
        if values["usual"] is not None:
            forward, backward = map(float, values["usual"])
            usual = (forward, backward)
        numbers = [number for curve in curves for number in (curve[0], *curve[1])]
        numbers += [number for one in absent for number in (one.intercept, one.slope)]
        numbers += [number for one in (*ranks, usual or ()) for number in one]
        numbers += [float(reliability.likely)] if reliability is not None else []
        if not len(absent) == len(ranks) == 2 or not np.isfinite(numbers).all():
            raise ValueError("a coefficient of the calibration is not a finite number")
        return cls(
            *(curves[0], curves[1], (absent[0], absent[1]), (ranks[0], ranks[1]), usual),
            reliability,
        )


def clues(scored: Scored) -> Floats:
    """(words, candidates, clues): mixed score, lead over the best other candidate and over the
    next ones, every score, and the direction."""
    mixed = scored.mixed
    order = np.sort(mixed, axis=1)[:, ::-1]
    others = order[:, 1 : 1 + NEXT] if mixed.shape[1] > 1 else order
    lead = mixed - np.where(_is_best(scored) > 0, others[:, :1], order[:, :1])
    behind = mixed - others.mean(axis=1, keepdims=True)
    backward = np.broadcast_to(scored.backward[:, None, None], (*mixed.shape, 1))
    return np.concatenate([np.stack([mixed, lead, behind], axis=2), scored.parts, backward], axis=2)


def _is_best(scored: Scored) -> Floats:
    first = np.zeros(scored.mixed.shape)
    first[np.arange(len(first)), scored.mixed.argmax(axis=1)] = 1.0
    return first


def _logits(curve: Curve, known: Floats) -> Floats:
    found: Floats = curve[0] + known @ np.array(curve[1])
    return found


def _log_odds(chance: Floats) -> Floats:
    chance = np.clip(chance, 1e-6, 1 - 1e-6)
    odds: Floats = np.log(chance) - np.log1p(-chance)
    return odds


def _sigmoid(logits: Floats) -> Floats:
    chance: Floats = 1.0 / (1.0 + np.exp(-np.clip(logits, -40, 40)))
    return chance


def calibrate(
    scored: Scored, is_gold: Bools, absent: tuple[Absent, Absent], *, seed: int = 0
) -> Calibration:
    """Fit on held-out words; reliability is measured by cross-validation over words.

    ``absent``: how often source and target words have no translation here.
    """
    shapes = (scored.mixed.shape, is_gold.shape, scored.parts.shape[:2])
    if scored.mixed.ndim != 2 or not scored.mixed.size or len(set(shapes)) > 1:
        raise InputError(f"scores {shapes[0]} and gold marks {shapes[1]} do not fit")
    words = len(is_gold)
    folds = np.random.default_rng(seed).permutation(words) % min(FOLDS, words)
    fitted = _fit(scored, is_gold, absent)
    # Stated and right: the best candidates of each word, as it is and with the gold hidden, by a
    # fit without the word.
    looked = min(FITTED_ON, is_gold.shape[1])
    stated, right = np.zeros((2, words, looked)), np.zeros((2, words, looked))
    lacking = fitted.shares(scored)
    weights = np.repeat(np.stack([1 - lacking, lacking])[..., None], looked, axis=2)
    for fold in np.unique(folds):
        inside = np.flatnonzero(folds == fold)
        rest = np.flatnonzero(folds != fold) if words > 1 else inside
        other = _fit(scored[rest], is_gold[rest], absent)
        some, gold = scored[inside], is_gold[inside]
        for hidden, shown in enumerate((some, some.hiding(gold))):
            best = np.argsort(-shown.mixed, axis=1, kind="stable")[:, :looked]
            marks = np.take_along_axis(gold, best, axis=1)
            stated[hidden, inside] = np.take_along_axis(other.confidence(shown), best, axis=1)
            right[hidden, inside] = marks & (not hidden)
            weights[hidden, inside] *= ~(marks & bool(hidden))  # what is hidden is not there
    golds = (1 - lacking) * np.maximum(1, is_gold.sum(axis=1))
    return replace(fitted, reliability=reliability(stated, right, weights, float(golds.sum())))


def _fit(scored: Scored, is_gold: Bools, absent: tuple[Absent, Absent]) -> Calibration:
    spans = []
    for way in (~scored.backward, scored.backward):
        ranks = np.log1p(scored.rows[way]) if way.any() else np.zeros(1)
        low, high = np.quantile(ranks, EXTREMES).tolist()
        spans.append((low, float(ranks.mean()), high))
    nothing: Curve = (0.0, ())
    unfitted = Calibration(nothing, nothing, absent, (spans[0], spans[1]))
    best = np.argsort(-scored.mixed, axis=1, kind="stable")[:, :FITTED_ON]
    known = np.take_along_axis(unfitted.features(scored), best[..., None], axis=1)
    marks = np.take_along_axis(is_gold, best, axis=1).ravel().astype(np.float64)
    right = logistic_regression(known.reshape(best.size, -1), marks, ridge=RIDGE)
    shown, hidden = (
        clues(one)[np.arange(len(one.mixed)), one.mixed.argmax(axis=1)]
        for one in (scored, scored.hiding(is_gold))
    )
    is_shown = np.repeat([1.0, 0.0], len(shown))
    here = logistic_regression(np.concatenate([shown, hidden]), is_shown, ridge=RIDGE)
    return replace(unfitted, right=(right[0], tuple(right[1:])), here=(here[0], tuple(here[1:])))


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
    further = [one[..., 1:].ravel() for one in (stated, right, weights)]
    others = 0.0
    if further[2].any():
        sure, found, share = further
        others = float(calibration_error(share[None], sure, found, equal_width(sure))[0])
    return Reliability(
        tuple(bins),
        float(error[0]),
        _precision_curve(stated, right, weights),
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
