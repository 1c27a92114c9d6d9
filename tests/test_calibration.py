"""Confidence against data whose true probabilities are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blicer.align.space import Space
from blicer.calibration import (
    FOREIGN,
    LETTER,
    WITH_DIGITS,
    Absent,
    Calibration,
    Reliability,
    Scored,
    calibrate,
    clues,
    doubts,
    reliability,
)
from blicer.embeddings import Embeddings
from blicer.errors import InputError
from blicer.lexicon import Lexicon


def scored(mixed: np.ndarray, parts: np.ndarray | None = None) -> Scored:
    parts = mixed[..., None] if parts is None else parts
    words = len(mixed)
    return Scored(mixed, parts, np.arange(words) % 2 == 1, np.full(words, 100))


def all_lack(share: float) -> tuple[Absent, Absent]:
    return Absent.of_share(share), Absent.of_share(share)


NOBODY = all_lack(0.0)
NOTHING = (0.0, ())


def drawn(words: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, gold marks (the best candidate or none), and the true chance of the best."""
    rng = np.random.default_rng(seed)
    mixed = rng.random((words, 6))
    truth = 1 / (1 + np.exp(-(8 * mixed.max(axis=1) - 6)))
    gold = np.zeros(mixed.shape, bool)
    gold[np.arange(words), mixed.argmax(axis=1)] = rng.random(words) < truth
    return mixed, gold, truth


def test_features_by_hand() -> None:
    one = Scored(
        np.array([[0.9, 0.4, 0.6]]),
        np.array([[[0.1], [0.2], [0.3]]]),
        np.array([True]),
        np.array([19]),
    )
    # Mixed score, lead, lead over the mean of the others, part, backward.
    np.testing.assert_allclose(clues(one)[0, 0], [0.9, 0.3, 0.4, 0.1, 1])
    np.testing.assert_allclose(clues(one)[0, 1], [0.4, -0.5, -0.1, 0.2, 1])
    np.testing.assert_allclose(clues(scored(np.array([[0.5]])))[0, 0, :3], [0.5, 0.0, 0.0])
    for low, high, rank in ((0.0, 9.0, np.log(20) - 1), (0.0, 2.0, 1.0), (4.0, 9.0, 3.0)):
        # log rank less its mean, bounded
        fit = Calibration(NOTHING, NOTHING, NOBODY, ((0.0, 0.0, 0.0), (low, 1.0, high)))
        best, other = fit.features(one)[0, :2]
        np.testing.assert_allclose(best[:6], [1, 0.9, 0.3, 0.4, 0.1, 1])
        np.testing.assert_allclose(best[6:10], rank * np.array([1, 0.9, 0.3, 0.4]))
        np.testing.assert_allclose(best[10:], np.zeros(9))
        np.testing.assert_allclose(other[:10], np.zeros(10))
        np.testing.assert_allclose(other[15:], rank * np.array([1, 0.4, -0.5, -0.1]))


def test_confidence_is_a_chance_on_words_that_the_fit_did_not_see() -> None:
    mixed, gold, _ = drawn(3000, 0)
    other, _, truth = drawn(1000, 1)
    found = calibrate(scored(mixed), gold, NOBODY).confidence(scored(other))
    assert np.abs(found.max(axis=1) - truth).mean() < 0.05


def test_words_whose_translation_is_absent_lower_the_confidence_by_their_share() -> None:
    """A third of all words asked for have no translation, and look just like the others."""
    mixed, gold, _ = drawn(4000, 2)
    calibration = calibrate(scored(mixed), gold, all_lack(1 / 3))
    other, marks, _ = drawn(4000, 3)
    rng = np.random.default_rng(4)
    lacking = rng.random(len(other)) < 1 / 3
    # Their gold is hidden: what is left stands as it is.
    shown = np.where(lacking[:, None] & marks, other.min(axis=1, keepdims=True) - 1, other)
    right = marks & ~lacking[:, None]
    best = np.arange(len(shown)), shown.argmax(axis=1)
    stated = calibration.confidence(scored(shown))[best]
    assert stated.mean() == pytest.approx(right[best].mean(), abs=0.03)
    for low, high in ((0.0, 0.3), (0.3, 0.5), (0.5, 0.8)):
        inside = (stated >= low) & (stated < high)
        if inside.sum() > 200:
            assert stated[inside].mean() == pytest.approx(right[best][inside].mean(), abs=0.07)


def test_a_word_that_stands_out_less_is_less_likely_here() -> None:
    """With the gold on top by far, hiding it is noticed."""
    rng = np.random.default_rng(5)
    mixed = 0.3 * rng.random((600, 12))
    mixed[:, 0] += 0.5
    gold = np.zeros(mixed.shape, bool)
    gold[:, 0] = True
    found = calibrate(scored(mixed), gold, all_lack(0.2))
    assert found.is_here(scored(mixed)).min() > 0.9
    assert found.is_here(scored(mixed).hiding(gold)).max() < 0.1
    assert found.confidence(scored(mixed))[:, 0].mean() > 0.9


@pytest.mark.parametrize("candidates", [1, 2, 5, 28])
def test_a_hidden_translation_is_not_noticed_by_the_hiding(candidates: int) -> None:
    """Where scores tell nothing, words with and without a translation look alike."""
    rng = np.random.default_rng(7)
    mixed = rng.random((600, candidates))
    gold = np.zeros(mixed.shape, bool)
    gold[np.arange(600), rng.integers(0, candidates, 600)] = True
    here = calibrate(scored(mixed), gold, all_lack(0.3)).is_here(scored(mixed))
    assert here.mean() == pytest.approx(0.7, abs=0.1)


def test_the_ranks_that_a_fit_saw() -> None:
    rows = np.arange(100)
    asked = Scored(np.zeros((100, 2)), np.zeros((100, 2, 1)), rows >= 60, rows)
    fitted = calibrate(asked, np.zeros((100, 2), bool), NOBODY)
    for found, own in zip(fitted.ranks, (rows[:60], rows[60:]), strict=True):
        logs = np.log1p(own)
        expected = [np.quantile(logs, 0.1), logs.mean(), np.quantile(logs, 0.9)]
        np.testing.assert_allclose(found, expected)


def test_stated_reliability_by_a_plain_loop() -> None:
    rng = np.random.default_rng(6)
    stated, weights = rng.random((2, 200, 3)), rng.random((2, 200, 3))
    stated[..., 1:] *= 0.5
    right = (rng.random(stated.shape) < stated).astype(float)
    right[1] = 0
    found = reliability(stated, right, weights, 150.0)
    for ranks, error in (([0], found.error), ([1, 2], found.others)):
        gaps, total = dict.fromkeys(range(10), 0.0), 0.0
        for where in np.ndindex(2, 200):
            for rank in ranks:
                sure, mass = stated[where][rank], weights[where][rank]
                gaps[min(9, int(10 * sure))] += mass * (sure - right[where][rank])
                total += mass
        assert error == pytest.approx(sum(map(abs, gaps.values())) / total)
    for least, safe, share in (found.curve[60], found.curve[-1]):
        entries = stated >= least
        kept = weights[entries].sum()
        precision = (weights * right)[entries].sum() / kept
        expected = precision - np.sqrt(precision * (1 - precision) / kept)
        assert safe == pytest.approx(expected, abs=1e-6)
        words = weights[..., 0][entries[..., 0]].sum() / weights[..., 0].sum()
        assert share == pytest.approx(words)


def test_further_translations_are_likely_where_they_raise_f1() -> None:
    """By trying every threshold: first translations always count, others from it on."""
    rng = np.random.default_rng(9)
    stated = rng.random((2, 2000, 4)) * [1.0, 0.6, 0.6, 0.6]
    right = (rng.random(stated.shape) < stated).astype(float)
    golds = right.sum() * 1.2
    found = reliability(stated, right, np.ones(stated.shape), golds)

    def f1(threshold: float) -> float:
        listed = stated >= threshold
        listed[..., 0] = True
        return float(2 * (right * listed).sum() / (listed.sum() + golds))

    best = max(f1(threshold) for threshold in np.linspace(0, 1, 201))
    assert f1(found.likely) == pytest.approx(best, abs=0.003)
    assert 0.2 < found.likely < 0.5
    mixed, gold, _ = drawn(200, 0)
    fitted = calibrate(scored(mixed), gold, NOBODY)
    assert fitted.reliability is not None
    assert fitted.likely == fitted.reliability.likely
    assert replace(fitted, reliability=None).likely == 0.5


def test_a_promised_precision_is_reached() -> None:
    mixed, gold, _ = drawn(3000, 7)
    found = calibrate(scored(mixed), gold, NOBODY)
    assert found.reliability is not None
    threshold = found.reliability.threshold(0.8)
    other, marks, _ = drawn(3000, 8)
    best = np.arange(len(other)), other.argmax(axis=1)
    kept = found.confidence(scored(other))[best] >= threshold
    assert kept.sum() > 100
    assert marks[best][kept].mean() >= 0.78


def test_a_precision_out_of_reach_is_one_sentence() -> None:
    curve = ((0.9, 0.6, 0.1), (0.5, 0.4, 1.0))
    with pytest.raises(InputError, match=r"0\.9 cannot be promised: .* 10% .* reach 0\.600"):
        Reliability((), 0.0, curve).threshold(0.9)
    with pytest.raises(InputError, match="too few held-out words"):
        Reliability((), 0.0).threshold(0.9)


@pytest.mark.parametrize("value", [False, True])
def test_all_right_or_all_wrong_stays_finite(value: bool) -> None:
    mixed = np.random.default_rng(0).random((20, 4))
    calibration = calibrate(scored(mixed), np.full(mixed.shape, value), NOBODY)
    confidence = calibration.confidence(scored(mixed))
    assert np.isfinite(confidence).all()
    assert (confidence > 0.9).all() if value else (confidence < 0.1).all()


def test_separable_data_stays_finite() -> None:
    mixed = np.array([[0.9, 0.1], [0.8, 0.2], [0.95, 0.05]])
    calibration = calibrate(scored(mixed), mixed > 0.5, NOBODY)
    assert np.isfinite([*calibration.right[1], *calibration.here[1]]).all()
    found = calibration.confidence(scored(mixed))
    assert found[0, 0] > 0.5 > found[0, 1]


def test_one_word_is_enough_not_to_crash() -> None:
    mixed = np.array([[0.4, 0.2]])
    assert calibrate(scored(mixed), mixed > 0.3, all_lack(0.1)).reliability is not None


def test_it_survives_a_dictionary() -> None:
    mixed, gold, _ = drawn(150, 5)
    calibration = calibrate(scored(mixed), gold, all_lack(0.1))
    again = Calibration.from_dict(calibration.to_dict())
    assert again == calibration
    with pytest.raises(ValueError, match="finite"):
        Calibration.from_dict({**calibration.to_dict(), "here": [float("nan"), [0.0]]})


def test_confidence_by_a_plain_loop() -> None:
    """The chance that there is a translation, times that of the candidate if there is one."""
    rng = np.random.default_rng(0)
    backward, rows = np.arange(6) % 3 == 0, rng.integers(0, 1000, 6)
    asked = Scored(rng.random((6, 4)), rng.random((6, 4, 2)), backward, rows)
    absent = Absent(-2.0, 0.2), Absent.of_share(0.4)
    fit = Calibration(NOTHING, NOTHING, absent, ((1.0, 3.0, 6.0), (0.5, 2.0, 5.0)))
    known = fit.features(asked)
    right, here = rng.normal(size=known.shape[2]), rng.normal(size=6)
    fit = replace(fit, right=(0.3, tuple(right)), here=(-0.2, tuple(here)))
    fit.check(2)
    found = fit.confidence(asked)
    for word in range(6):
        best = clues(asked)[word, asked.mixed[word].argmax()]
        share = 0.4 if backward[word] else 1 / (1 + np.exp(2.0) / (1 + rows[word]) ** 0.2)
        odds = np.exp(-0.2 + best @ here) * (1 - share) / share
        for candidate in range(4):
            chance = 1 / (1 + np.exp(-0.3 - known[word, candidate] @ right))
            expected = chance * odds / (1 + odds)
            assert found[word, candidate] == pytest.approx(expected, rel=1e-6)
    with pytest.raises(InputError, match=f"has {len(right)} coefficients"):
        fit.check(3)


def test_words_that_lack_a_translation_more_often_are_less_sure() -> None:
    """With odds of 1 that the candidates look right, the chance is the share of such words."""
    fit = Calibration((9.0, (0.0,) * 19), (0.0, (0.0,) * 5), all_lack(0.3), ((0.0, 0.0, 1.0),) * 2)
    asked = scored(np.random.default_rng(0).random((5, 4)))
    np.testing.assert_allclose(fit.is_here(asked), 0.7)
    np.testing.assert_allclose(fit.confidence(asked), 0.7, atol=1e-3)


def test_a_hidden_candidate_stands_behind_all_others() -> None:
    one = scored(np.array([[0.1, 0.9, 0.5]]))
    hidden = one.hiding(np.array([[False, True, False]]))
    assert hidden.mixed[0].argsort().tolist() == [1, 0, 2]
    assert hidden.mixed[0, [0, 2]].tolist() == [0.1, 0.5]


def test_the_least_confidence_that_keeps_a_promise() -> None:
    curve = ((0.9, 0.95, 0.1), (0.7, 0.8, 0.4), (0.5, 0.85, 0.6), (0.2, 0.3, 1.0))
    found = Reliability((), 0.0, curve)
    assert [found.threshold(one) for one in (0.95, 0.85, 0.81, 0.8, 0.3)] == [
        *(0.9, 0.5, 0.5, 0.5, 0.2)
    ]


def test_shapes_must_fit() -> None:
    with pytest.raises(InputError, match="do not fit"):
        calibrate(scored(np.zeros((2, 3))), np.zeros((2, 2), bool), NOBODY)


# -- how often a word has no translation ----------------------------------------------------------


def test_rarer_words_lack_translations_more_often() -> None:
    """The target vocabulary has the words up to 600; beyond that every second one is missing."""
    source = Embeddings([f"s{i}" for i in range(1000)], np.eye(1000, 4, dtype=np.float32) + 1)
    has = [f"t{i}" for i in range(1000) if i < 600 or i % 2]
    target = Embeddings(has, np.ones((len(has), 4), np.float32))
    seeds = Lexicon([(f"s{i}", f"t{i}") for i in range(1000)])
    found = Absent.of_seeds(seeds, source, target).share(np.arange(1000))
    assert found[50] < 0.1 < found[900]
    assert found.mean() == pytest.approx(0.2, abs=0.03)
    backward = Absent.of_seeds(seeds.reverse(), target, source).share(np.arange(500))
    assert backward.mean() < 0.05
    # Where frequent words lack a translation more often, all are taken to lack it as often.
    here = [(word, f"no {word}" if i < 60 else "t0") for i, word in enumerate(source.words[:300])]
    level = Absent.of_seeds(Lexicon(here), source, target).share(np.arange(1000))
    np.testing.assert_allclose(level, 61 / 310)
    assert Absent().share(np.array([3, 30_000])).tolist() == pytest.approx([0.1, 0.1])
    assert Absent.of_seeds(Lexicon([("no", "t0")]), source, target) == Absent()
    ranks = np.array([0, 10, 10_000])
    for share, expected in ((0.25, 0.25), (0.0, 0.01), (1.0, 0.9)):
        np.testing.assert_allclose(Absent.of_share(share).share(ranks), expected, rtol=1e-6)
    rising = Absent(-3.0, 0.5).share(ranks)
    np.testing.assert_allclose(rising[1], 1 / (1 + np.exp(3) / np.sqrt(11)))
    assert rising[0] < rising[1] < rising[2]


def test_what_seeds_say_nothing_of() -> None:
    words = ["o", "1999", "house", "nation", "дом", *(f"w{i}x" for i in range(95))]
    source = Embeddings(words, np.eye(100, 4, dtype=np.float32) + 1)
    target = Embeddings(
        ["a", "1999", "b", "nation", "c", *(f"v{i}" for i in range(94)), "house"],
        np.eye(100, 4, dtype=np.float32) + 1,
    )
    space = Space(source, target)
    candidates = np.array([[1, 3, 99]] * 5)
    found = doubts(space, np.arange(5), candidates, reverse=False)
    assert found[0].tolist() == [LETTER] * 3
    assert found[1].tolist() == [1.0, WITH_DIGITS, WITH_DIGITS]
    assert found[2].tolist() == [1.0, 1.0, FOREIGN]  # third of one language, last of the other
    assert found[3].tolist() == [1.0, 1.0, 1.0]
    assert found[4].tolist() == [1.0, 1.0, 1.0]


def test_what_nobody_checked_is_nearer_to_the_usual_chance_and_promises_nothing() -> None:
    rng = np.random.default_rng(3)
    mixed = np.sort(rng.random((300, 5)), axis=1)[:, ::-1]
    is_gold = np.zeros(mixed.shape, bool)
    is_gold[:, 0] = rng.random(300) < mixed[:, 0] - mixed[:, 1] + 0.5
    scored = Scored(mixed, mixed[..., None], rng.random(300) < 0.5, rng.integers(0, 99, 300))
    fitted = calibrate(scored, is_gold, all_lack(0.5))
    usual = np.array([0.2, -1.0])[scored.backward.astype(int)]  # log odds
    rates = tuple(1 / (1 + np.exp([-0.2, 1.0])))
    sure, drawn = (
        np.log(one) - np.log1p(-one)
        for one in (kind.confidence(scored)[:, 0] for kind in (fitted, fitted.unchecked(rates)))
    )
    np.testing.assert_allclose(drawn - usual, 0.35 * (sure - usual))
    assert fitted.unchecked(rates).reliability is None
