"""Figures from arrays, against plain loops over lists of words and pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blicer import metrics
from blicer.metrics import FIGURES, PROMISED, Answers, figures, risk_coverage

CANDIDATES = 3
# Confidences from a coarse grid, so that many are equal.
SURE = st.integers(0, 20).map(lambda n: n / 20)
WORD = st.tuples(
    st.lists(st.tuples(SURE, st.booleans()), min_size=CANDIDATES, max_size=CANDIDATES),
    st.booleans(),  # has an entry
    st.integers(0, 2),  # gold translations in the vocabulary beyond the candidates
    st.integers(0, 2),  # and outside
)
WORDS = st.lists(st.tuples(WORD, st.integers(0, 3)), min_size=1, max_size=12)


def answers_of(words: list, *, calibrated: bool = True) -> Answers:
    entries = [word[1] for word in words]
    right = np.array([[hit and word[1] for _, hit in word[0]] for word in words])
    known = right.sum(axis=1) + [word[2] for word in words]
    return Answers(
        sure=np.array([[sure if word[1] else 0.0 for sure, _ in word[0]] for word in words]),
        right=right,
        has_entry=np.array(entries),
        golds=known + np.array([word[3] for word in words]),
        golds_known=known,
        calibrated=calibrated,
    )


def share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def naive(words: list, least: float) -> dict[str, float]:
    """Every figure by loops; ``words`` holds a word as often as it was drawn."""
    entries = [word for word in words if word[1]]
    golds = sum(
        (sum(hit for _, hit in word[0]) if word[1] else 0) + word[2] + word[3] for word in words
    )
    first = [word[0][0] for word in entries]
    found: dict[str, float] = {}

    predicted = [hit for word in entries for sure, hit in word[0] if sure >= least]
    found["precision"] = share(sum(predicted), len(predicted))
    found["recall"] = share(sum(predicted), golds)
    found["f1"] = share(2 * sum(predicted), len(predicted) + golds)
    found["translations"] = share(len(predicted), len(entries))
    hits = sum(hit for _, hit in first)
    found["f1_first"] = share(2 * hits, len(first) + golds)
    found["right"] = share(hits, len(first))
    found["stated"] = share(sum(sure for sure, _ in first), len(first))

    # Average precision: for every right pair, the precision of all pairs at least as sure.
    pairs = [pair for word in entries for pair in word[0]]
    total = 0.0
    for sure, hit in pairs:
        if hit:
            above = [other for level, other in pairs if level >= sure]
            total += sum(above) / len(above)
    found["ap"] = share(total, golds)

    # Cuts of the list of first translations: keep those at least as sure as some word.
    cuts = []
    for level in sorted({sure for sure, _ in first}, reverse=True):
        kept = [(sure, hit) for sure, hit in first if sure >= level]
        precision = sum(hit for _, hit in kept) / len(kept)
        cuts.append((level, len(kept), precision, sum(sure for sure, _ in kept) / len(kept)))
    for percent in (90, 95):
        enough = [number for _, number, precision, _ in cuts if precision >= percent / 100 - 1e-9]
        found[f"coverage@{percent}"] = share(max(enough, default=0), len(first))
    risks = [
        next(1 - precision for level, _, precision, _ in cuts if level == sure) for sure, _ in first
    ]
    found["aurc"] = share(sum(risks), len(risks))
    keeping = [cut for cut in cuts if cut[3] >= PROMISED - 1e-9]
    found["reached@95"] = keeping[-1][2] if keeping else math.nan
    found["kept@95"] = share(keeping[-1][1] if keeping else 0, len(first))
    each = [hit for sure, hit in first if sure >= PROMISED]
    found["reached_each@95"] = share(sum(each), len(each))
    found["kept_each@95"] = share(len(each), len(first))

    bins: dict[int, list] = {}
    for sure, hit in first:
        bins.setdefault(min(int(sure * 10), 9), []).append(sure - hit)
    found["ece"] = share(sum(abs(sum(gaps)) for gaps in bins.values()), len(first))
    spreads = {b: sum(c * (1 - c) for c, _ in first if min(int(c * 10), 9) == b) for b in bins}
    noise = sum(math.sqrt(2 / math.pi * spread) for spread in spreads.values())
    found["ece_floor"] = share(noise, len(first))

    lost = [word[0][0][0] for word in entries if not (any(h for _, h in word[0]) or word[2])]
    here = [word[0][0][0] for word in entries if any(h for _, h in word[0]) or word[2]]
    wins = sum((a < b) + 0.5 * (a == b) for a in lost for b in here)
    found["auc_absent"] = share(wins, len(lost) * len(here))
    return found


@given(drawn=WORDS, least=SURE)
def test_against_plain_loops(drawn: list, least: float) -> None:
    words = [word for word, _ in drawn]
    answers = answers_of(words)
    weights = np.array([[1.0] * len(words), [times for _, times in drawn]])
    computed = figures(answers, weights, least)
    repeated = [word for word, times in drawn for _ in range(times)]
    for draw, some in enumerate((words, repeated)):
        expected = naive(some, least)
        assert {*expected, "ace"} == set(computed) == set(FIGURES)
        for name, value in expected.items():
            assert computed[name][draw] == pytest.approx(value, nan_ok=True), name


@given(
    firsts=st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60, unique=True)
)
def test_bins_of_equal_size(firsts: list[tuple[float, bool]]) -> None:
    sure, right = np.array(firsts, dtype=np.float64).T
    bins = metrics.equal_mass(sure)
    order = np.argsort(sure, kind="stable")
    assert (np.diff(bins[order]) >= 0).all()
    if len(set(sure)) == len(sure):  # the sizes differ by one at most
        sizes = np.bincount(bins, minlength=10)
        assert sizes.max() - sizes.min() <= 1
    for value in set(sure):  # equal confidences share a bin
        assert len(set(bins[sure == value])) == 1
    gaps = [abs(sum((sure - right)[bins == b])) for b in range(10)]
    error = metrics.calibration_error(np.ones((1, len(sure))), sure, right, bins)
    assert error[0] == pytest.approx(sum(gaps) / len(sure))


@given(firsts=st.lists(st.tuples(SURE, st.booleans()), min_size=1, max_size=30))
def test_curve_and_bins_by_loops(firsts: list[tuple[float, bool]]) -> None:
    sure, right = np.array(firsts, dtype=np.float64).T
    curve = risk_coverage(sure, right)
    assert [row[2] for row in curve] == sorted(set(sure), reverse=True)
    for coverage, precision, level in curve:
        kept = [hit for value, hit in firsts if value >= level]
        assert coverage == pytest.approx(len(kept) / len(firsts))
        assert precision == pytest.approx(sum(kept) / len(kept))
    inside: dict[int, list[tuple[float, bool]]] = {}
    for value, hit in firsts:
        inside.setdefault(min(int(value * 10), 9), []).append((value, hit))
    expected = [
        (*np.mean(inside[number], axis=0).tolist(), len(inside[number]))
        for number in sorted(inside)
    ]
    assert np.allclose(metrics.reliability_bins(sure, right), expected)


def test_by_hand() -> None:
    # Two candidates a word. Gold pairs: a has 2 (one of them out of vocabulary), b 1, c 1 (out of
    # vocabulary), d 1; e is not in the source vocabulary and has 1.
    answers = Answers(
        sure=np.array([[0.98, 0.6], [0.96, 0.1], [0.7, 0.2], [0.4, 0.3], [0, 0]]),
        right=np.array([[1, 0], [1, 0], [0, 0], [0, 1], [0, 0]], dtype=bool),
        has_entry=np.array([1, 1, 1, 1, 0], dtype=bool),
        golds=np.array([2, 1, 1, 1, 1]),
        golds_known=np.array([1, 1, 0, 1, 1]),
        calibrated=True,
    )
    found = {name: one.item() for name, one in figures(answers, np.ones((1, 5)), 0.5).items()}
    # From 0.5 on: a 0.98 right, a 0.6 wrong, b 0.96 right, c 0.7 wrong.
    assert found["precision"] == 2 / 4
    assert found["recall"] == 2 / 6
    assert found["f1"] == 2 * 2 / (4 + 6)
    assert found["translations"] == 4 / 4
    assert found["f1_first"] == 2 * 2 / (4 + 6)
    # Hits are 1st, 2nd and (0.98 0.96 0.7 0.6 0.4 0.3) 6th in the list.
    assert found["ap"] == pytest.approx((1 / 1 + 2 / 2 + 3 / 6) / 6)
    # First translations right, right, wrong, wrong: precision 1, 1, 2/3, 1/2.
    assert found["coverage@95"] == found["coverage@90"] == 2 / 4
    assert found["aurc"] == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)
    # Mean confidences of the cuts: 0.98, 0.97, 0.88, 0.76.
    assert (found["reached@95"], found["kept@95"]) == (1.0, 0.5)
    assert (found["reached_each@95"], found["kept_each@95"]) == (1.0, 0.5)
    assert found["stated"] == pytest.approx((0.98 + 0.96 + 0.7 + 0.4) / 4)
    assert found["right"] == 0.5
    # Bins: 0.98 and 0.96 (gap 0.06 in all), 0.7 (0.7), 0.4 (0.4).
    assert found["ece"] == pytest.approx((0.06 + 0.7 + 0.4) / 4)
    # c is the word without a gold: surer than d only, less sure than a and b.
    assert found["auc_absent"] == pytest.approx(2 / 3)

    here = answers.in_vocabulary()  # a, b and d with one gold each
    found = {name: one.item() for name, one in figures(here, np.ones((1, 3)), 0.5).items()}
    assert (found["precision"], found["recall"]) == (2 / 3, 2 / 3)
    assert found["ap"] == pytest.approx((1 + 1 + 3 / 5) / 3)
    assert math.isnan(found["auc_absent"])


def simple(sure: list[float], right: list[int]) -> dict[str, float]:
    """Figures of words with one candidate and one gold in the vocabulary."""
    answers = Answers(
        np.array(sure, dtype=np.float64).reshape(-1, 1),
        np.array(right, dtype=bool).reshape(-1, 1),
        np.ones(len(sure), dtype=bool),
        np.ones(len(sure), dtype=np.int64),
        np.ones(len(sure), dtype=np.int64),
        True,
    )
    weights = np.ones((1, len(sure)))
    return {name: one.item() for name, one in figures(answers, weights, 0.5).items()}


def test_the_first_entry_is_given_and_others_that_are_likely() -> None:
    """Two words: right at ranks 1 and 2 (0.4, 0.3); wrong, then right (0.2, 0.1)."""
    answers = Answers(
        np.array([[0.4, 0.3], [0.2, 0.1]]),
        np.array([[True, True], [False, True]]),
        np.ones(2, dtype=bool),
        np.array([2, 1]),
        np.array([2, 1]),
        True,
        likely=0.25,
    )
    found = {name: one.item() for name, one in figures(answers, np.ones((1, 2))).items()}
    given = (found["precision"], found["recall"], found["translations"])
    assert given == pytest.approx((2 / 3, 2 / 3, 1.5))


def test_all_right_all_wrong_and_nothing() -> None:
    found = simple([0.9, 0.8, 0.7], [1, 1, 1])
    for name in ("precision", "recall", "f1", "ap", "coverage@90", "coverage@95", "right"):
        assert found[name] == 1.0, name
    assert found["aurc"] == 0.0
    found = simple([0.9, 0.8, 0.7], [0, 0, 0])
    for name in ("precision", "recall", "f1", "ap", "coverage@90", "coverage@95", "right"):
        assert found[name] == 0.0, name
    assert found["aurc"] == 1.0
    assert math.isnan(found["reached@95"])  # nothing is promised
    assert found["kept@95"] == 0.0
    found = simple([0.3], [1])  # no entry is sure enough
    assert math.isnan(found["precision"])
    assert (found["recall"], found["f1"]) == (0.0, 0.0)
    assert all(math.isnan(value) for value in simple([], []).values())


def test_equal_confidences_are_kept_or_left_together() -> None:
    first, second = simple([0.9] * 4, [1, 0, 1, 1]), simple([0.9] * 4, [1, 1, 1, 0])
    assert first == pytest.approx(second, nan_ok=True)
    # Three of four gold pairs are found, at a precision of 3/4.
    assert (first["ap"], first["coverage@90"], first["aurc"]) == (0.75 * 0.75, 0.0, 0.25)
    # 19 of 20 is 95 %, whatever rounding says.
    assert simple([0.9] * 20, [1] * 19 + [0])["coverage@95"] == 1.0


def test_scores_that_are_no_confidences_only_order() -> None:
    generator = np.random.default_rng(0)
    sure = generator.random((30, 4))
    right = generator.random((30, 4)) < sure
    golds = right.sum(axis=1) + generator.integers(0, 2, 30)
    everything = Answers(sure, right, np.ones(30, bool), golds, golds, True)
    scores = Answers(7 * sure - 9, right, np.ones(30, bool), golds, golds, False)
    weights = generator.integers(0, 3, (5, 30)).astype(float)
    expected, found = figures(everything, weights), figures(scores, weights)
    ordered = {"f1_first", "ap", "coverage@90", "coverage@95", "aurc", "right", "auc_absent"}
    assert set(found) == ordered
    for name, values in found.items():
        assert np.allclose(values, expected[name], equal_nan=True), name


def test_draws_do_not_depend_on_how_many_pairs_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    sure = generator.random((40, 5)).round(1)
    right, weights = (
        generator.random((40, 5)) < 0.3,
        generator.integers(0, 3, (9, 40)).astype(float),
    )
    golds = weights @ right.sum(axis=1)
    whole = metrics.average_precision(weights, sure, right, golds)
    monkeypatch.setattr(metrics, "_PAIRS_AT_ONCE", 150)
    assert np.allclose(whole, metrics.average_precision(weights, sure, right, golds))


@pytest.mark.parametrize("size", [200, 1000])
def test_perfect_confidences_have_the_error_of_the_floor(size: int) -> None:
    generator = np.random.default_rng(0)
    errors, floors = [], []
    for _ in range(200):
        sure = generator.beta(3, 1, size)
        right = (generator.random(size) < sure).astype(float)
        bins, ones = metrics.equal_width(sure), np.ones((1, size))
        errors.append(metrics.calibration_error(ones, sure, right, bins))
        floors.append(metrics.calibration_noise(ones, sure, bins))
    assert np.mean(floors) == pytest.approx(np.mean(errors), rel=0.05)
