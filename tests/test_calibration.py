"""Confidence against data whose true probabilities are known."""

from __future__ import annotations

import numpy as np
import pytest

from blicer.calibration import Calibration, calibrate, features
from blicer.errors import InputError


def drawn(queries: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, gold marks, and the true probability of each mark (it depends on the score)."""
    rng = np.random.default_rng(seed)
    mixed = rng.random((queries, 6))
    truth = 1 / (1 + np.exp(-(8 * mixed - 6)))
    return mixed, rng.random(mixed.shape) < truth, truth


def test_features_by_hand() -> None:
    found = features(np.array([[0.9, 0.4, 0.6]]))
    np.testing.assert_allclose(found[0, 0], [1, 0.9, 0.3, 0, 0])
    np.testing.assert_allclose(found[0, 1], [0, 0, 0, 0.4, -0.5])
    np.testing.assert_allclose(features(np.array([[0.5]]))[0, 0], [1, 0.5, 0.0, 0, 0])


def test_few_right_among_many_is_fitted_to_the_optimum() -> None:
    """One gold in 28, as in reality: where whole Newton steps swing to and fro for ever."""
    rng = np.random.default_rng(7)
    mixed = np.sort(rng.random((300, 28)) * 0.2 + 0.5)[:, ::-1].copy()
    mixed[:, 0] += 0.3 * rng.random(300)
    gold = np.zeros(mixed.shape, bool)
    gold[:, 0] = rng.random(300) < (mixed[:, 0] - mixed[:, 1]) * 3
    gold[:, 1] = ~gold[:, 0] & (rng.random(300) < 0.2)
    calibration = calibrate(mixed, gold)
    confidence = calibration.confidence(mixed)
    # At the maximum of the likelihood the fit has the right sums, for leaders and for the rest.
    assert confidence[:, 0].sum() == pytest.approx(gold[:, 0].sum(), abs=1)
    assert confidence[:, 1:].sum() == pytest.approx(gold[:, 1:].sum(), abs=1)
    assert calibration.reliability is not None
    assert calibration.reliability.error < 0.1


def test_confidence_meets_the_true_probability() -> None:
    mixed, gold, _ = drawn(1500, 0)
    other, _, truth = drawn(400, 1)
    confidence = calibrate(mixed, gold).confidence(other)
    assert np.abs(confidence - truth).mean() < 0.03


def test_stated_reliability_is_that_of_unseen_words() -> None:
    mixed, gold, _ = drawn(600, 2)
    reliability = calibrate(mixed, gold).reliability
    assert reliability is not None
    assert sum(count for _, _, count in reliability.bins) == 600
    assert reliability.error < 0.08
    expected = sum(n * abs(c - p) for c, p, n in reliability.bins) / 600
    assert reliability.error == pytest.approx(expected)


def test_a_threshold_gives_the_precision_that_it_names() -> None:
    mixed, gold, _ = drawn(1500, 3)
    calibration = calibrate(mixed, gold)
    other, marks, _ = drawn(1500, 4)
    confidence = calibration.confidence(other)
    sure = confidence >= 0.7
    assert marks[sure].mean() >= 0.7


@pytest.mark.parametrize("value", [False, True])
def test_all_right_or_all_wrong_stays_finite(value: bool) -> None:
    mixed = np.random.default_rng(0).random((20, 4))
    calibration = calibrate(mixed, np.full(mixed.shape, value))
    confidence = calibration.confidence(mixed)
    assert np.isfinite(confidence).all()
    assert (confidence > 0.9).all() if value else (confidence < 0.1).all()


def test_separable_data_stays_finite() -> None:
    mixed = np.array([[0.9, 0.1], [0.8, 0.2], [0.95, 0.05]])
    calibration = calibrate(mixed, mixed > 0.5)
    assert np.isfinite(calibration.coefficients).all()
    assert calibration.confidence(mixed)[0, 0] > 0.5 > calibration.confidence(mixed)[0, 1]


def test_one_query_is_enough_not_to_crash() -> None:
    assert calibrate(np.array([[0.4, 0.2]]), np.array([[True, False]])).reliability is not None


def test_it_survives_a_dictionary() -> None:
    calibration = calibrate(*drawn(50, 5)[:2])
    again = Calibration.from_dict(calibration.to_dict())
    np.testing.assert_allclose(again.confidence(np.eye(3)), calibration.confidence(np.eye(3)))
    assert again.reliability == calibration.reliability


def test_shapes_must_fit() -> None:
    with pytest.raises(InputError, match="do not fit"):
        calibrate(np.zeros((2, 3)), np.zeros((2, 2), bool))
