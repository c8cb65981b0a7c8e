"""Bradley and Terry's strengths against another maximiser of the same likelihood."""

import numpy as np
import pytest
from scipy.optimize import minimize

from heatcheck.stats.bradley_terry import bradley_terry
from heatcheck.stats.ranks import rank_of
from heatcheck.stats.win_matrix import win_matrix

MUTANTS = (
    ("stats/bradley_terry.py", "met = points + PRIOR * there, cases + 2 * PRIOR * there", "met = points, cases + 2 * PRIOR * there", "test_strengths_are_the_most_likely"),
    ("stats/bradley_terry.py", "won - met * p", "won - p", "test_strengths_are_the_most_likely"),
    ("stats/bradley_terry.py", "return np.asarray(strength - strength.mean(axis=-1, keepdims=True))", "return strength + 1", "test_strengths_are_the_most_likely"),
)  # fmt: skip


def most_likely(points, cases, prior):
    """Scipy's maximum of the likelihood, pair by pair, with its sum shifted to 0."""
    n = len(points)

    def loss(strength):
        total = 0.0
        for p in range(n):
            for q in range(n):
                if p != q and cases[p, q] > 0:
                    total += (points[p, q] + prior) * np.logaddexp(0.0, strength[q] - strength[p])
        return total + strength.sum() ** 2  # holds the sum at 0

    found = minimize(loss, np.zeros(n), method="BFGS", options={"gtol": 1e-9})
    return found.x


@pytest.mark.parametrize("seed", range(4))
def test_strengths_are_the_most_likely(seed):
    rng = np.random.default_rng(seed)
    ranks = rank_of(rng.normal(size=(9, 5)).round(1).T + np.arange(5)[:, None] * 0.4).T
    if seed % 2:
        ranks[rng.random(ranks.shape) < 0.3] = np.nan
    points, cases = win_matrix(ranks)
    assert bradley_terry(points, cases) == pytest.approx(most_likely(points, cases, 0.5), abs=1e-4)


def test_two_methods_have_the_log_odds_between_them():
    points = np.array([[0.0, 7.0], [2.0, 0.0]])
    found = bradley_terry(points, points + points.T)
    assert found[0] - found[1] == pytest.approx(np.log(7.5 / 2.5))


def test_many_tables_at_once_are_each_alone():
    rng = np.random.default_rng(0)
    points = rng.integers(0, 9, size=(6, 4, 4)).astype(float) * (1 - np.eye(4))
    cases = points + points.transpose(0, 2, 1)
    compared = np.ones((4, 4)) - np.eye(4)
    together = bradley_terry(points, cases, compared)
    for p, c, found in zip(points, cases, together, strict=True):
        assert found == pytest.approx(bradley_terry(p, c, compared), abs=1e-8)


def test_a_hundred_unanimous_cases_have_finite_strengths():
    found = bradley_terry(*win_matrix(np.tile(np.arange(1.0, 13.0), (100, 1))))
    assert np.isfinite(found).all() and (np.diff(found) < 0).all()
