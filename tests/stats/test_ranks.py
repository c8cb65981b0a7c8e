"""Ranks, ameanst scipy, and rank intervals."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats as oracle

from heatcheck.stats import rank_of
from heatcheck.stats.ranks import rank_interval, rounded

MUTANTS = (
    ("stats/ranks.py", "(1 + (v == value).sum(axis=0)) / 2", "(v == value).sum(axis=0) / 2", "test_agrees_with_scipy"),
    ("stats/ranks.py", "_BITS = 44", "_BITS = 60", "test_rounding_does_not_break_ties_but_differences_do"),
    (
        "stats/ranks.py",
        "np.quantile(ranks, (1 - level) / 2, axis",
        "np.quantile(ranks, (1 - level), axis",
        "test_interval_ends_are_quantiles_of_the_ranks",
    ),
    ("stats/ranks.py", 'method="higher"', 'method="linear"', "test_interval_ends_are_attained_ranks"),
)
few_values = hnp.arrays(float, st.integers(1, 12), elements=st.sampled_from([-1.0, 0.0, 0.25, 3.0]))


@given(few_values)
def test_agrees_with_scipy(values):
    assert np.array_equal(rank_of(values, higher=False), oracle.rankdata(values))
    assert np.array_equal(rank_of(values, higher=True), oracle.rankdata(-values))


@given(few_values)
def test_sum_and_reversal(values):
    n = len(values)
    ranks = rank_of(values)
    assert ranks.sum() == n * (n + 1) / 2
    assert np.array_equal(rank_of(-values), n + 1 - ranks)


@given(few_values, st.randoms())
def test_follows_a_permutation_of_the_labels(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    assert np.array_equal(rank_of(values[order]), rank_of(values)[order])


def test_columns_are_ranked_apart():
    values = np.random.default_rng(0).integers(0, 4, (6, 5)).astype(float)
    each = [rank_of(column) for column in values.T]
    assert np.array_equal(rank_of(values), np.stack(each, axis=1))


def test_nan_is_unranked_and_counts_for_nobody():
    assert np.array_equal(rank_of(np.array([1.0, np.nan, 2.0])), [2, np.nan, 1], equal_nan=True)


def test_rounding_does_not_break_ties_but_differences_do():
    a, b = 0.1 + 0.2, 0.3
    assert a != b
    assert np.ptp(rounded(np.array([a, b]), 0.3)) == 0
    assert np.ptp(rounded(np.array([0.3, 0.3 + 1e-11]), 0.3)) > 0
    assert np.array_equal(rounded(np.zeros(2), 0.0), np.zeros(2))


def test_interval_ends_are_quantiles_of_the_ranks():
    # Method 0 is first in 90 of 100 resamples, second in 10; method 2 is always last.
    means = np.tile([[3.0], [2.0], [1.0]], 100)
    means[0, :10] = 1.5
    low, high = rank_interval(means, 0.95)
    assert low.tolist() == [1, 1, 3] and high.tolist() == [2, 2, 3]
    low, high = rank_interval(means, 0.85)
    assert low.tolist() == [1, 1, 3] and high.tolist() == [2, 2, 3]
    low, high = rank_interval(means, 0.7)
    assert low.tolist() == [1, 2, 3] and high.tolist() == [1, 2, 3]


def test_resamples_with_a_hole_are_left_out():
    means = np.array([[1.0, np.nan], [2.0, 0.0]])
    assert [end.tolist() for end in rank_interval(means)] == [[2, 1], [2, 1]]
    assert np.isnan(rank_interval(np.full((2, 3), np.nan))).all()


def test_interval_ends_are_attained_ranks():
    low, high = rank_interval(np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]]), 0.5)
    assert low.tolist() == [1, 2, 1] and high.tolist() == [3, 2, 3]
