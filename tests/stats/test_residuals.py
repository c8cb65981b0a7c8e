"""Stretched residuals: centred, longer on the side of the skewness, and as they were without it."""

import numpy as np
import pytest

from heatcheck.stats.residuals import stretched

MUTANTS = (
    ("stats/residuals.py", "rate = -STRETCH * ", "rate = STRETCH * ", "test_the_longer_tail_grows"),
    ("stats/residuals.py", "rate = np.maximum(rate, 0.0)", "pass", "test_an_upper_tail_can_be_left_alone"),
    ("stats/residuals.py", "z - (z.sum(axis=1) / count)[:, None]", "z", "test_they_are_centred_with_gaps_and_without"),
)
SKEWED = np.array([-1.0, -1.0, -1.0, -1.0, 0.0, 4.0])


def whole(*rows):
    d = np.array(rows)
    return d - d.mean(axis=1, keepdims=True), np.ones(d.shape, dtype=bool)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_longer_tail_grows(sign):
    centred, known = whole(sign * SKEWED)
    z, variance = stretched(centred, known)
    plain = centred / centred.std(ddof=1)
    assert sign * z[0, -1] > 1.2 * sign * plain[0, -1] and variance[0] > 1
    assert np.array_equal(np.argsort(z[0], kind="stable"), np.argsort(plain[0], kind="stable"))


def test_symmetric_residuals_stay():
    centred, known = whole([-2.0, -1.0, 0.0, 1.0, 2.0])
    z, variance = stretched(centred, known)
    np.testing.assert_allclose(z[0], centred[0] / centred[0].std(ddof=1), atol=1e-7)
    assert variance[0] == pytest.approx(1)


def test_an_upper_tail_can_be_left_alone():
    centred, known = whole(SKEWED)
    z, _ = stretched(centred, known, lower_only=True)
    np.testing.assert_allclose(z[0], centred[0] / centred[0].std(ddof=1), atol=1e-7)
    low, _ = stretched(-centred, known, lower_only=True)
    np.testing.assert_allclose(low, stretched(-centred, known)[0])


def test_they_are_centred_with_gaps_and_without():
    centred, known = whole(SKEWED, SKEWED)
    centred = np.concatenate([centred, np.zeros((2, 2))], axis=1)
    known = np.concatenate([known, np.zeros((2, 2), dtype=bool)], axis=1)
    z, variance = stretched(centred, known)
    np.testing.assert_allclose(z.sum(axis=1), 0, atol=1e-12)
    assert (z[~known] == 0).all()
    np.testing.assert_allclose(variance, stretched(*whole(SKEWED, SKEWED))[1])
