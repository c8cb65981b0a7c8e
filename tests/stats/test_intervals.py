"""Bootstrap intervals, against scipy and against the definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as oracle

from heatcheck.stats import bca, bootstrap_indices, intervals, mean_band, resampled_means

MUTANTS = (
    (
        "stats/intervals.py",
        "np.divide(total, count, out",
        "np.divide(total, n, out",
        "test_resampled_means_are_nan_means_over_the_shared_indices",
    ),
    ("stats/intervals.py", "6 * np.sum(d**2) ** 1.5", "3 * np.sum(d**2) ** 1.5", "test_bca_agrees_with_scipy"),
    (
        "stats/intervals.py",
        "bias + z / (1 - acceleration * z)",
        "bias + z / (1 + acceleration * z)",
        "test_bca_leans_towards_the_long_tail",
    ),
    ("stats/intervals.py", "for t in bias + z /", "for t in z /", "test_bca_corrects_the_bias_twice"),
    (
        "stats/intervals.py",
        "np.array([(1 - level) / 2, (1 + level) / 2])",
        "np.array([1 - level, level])",
        "test_one_sided_resamples_fall_back_to_percentiles",
    ),
    (
        "stats/intervals.py",
        "[(1 - level) / 2, (1 + level) / 2], axis=0",
        "[1 - level, level], axis=0",
        "test_the_band_is_pointwise_percentiles",
    ),
)


def draws(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def test_indices_are_seeded_and_within_range():
    index = bootstrap_indices(7, 500, 3)
    assert index.shape == (500, 7)
    assert set(np.unique(index)) == set(range(7))
    assert np.array_equal(index, bootstrap_indices(7, 500, 3))
    assert not np.array_equal(index, bootstrap_indices(7, 500, 4))


def test_indices_are_uniform():
    counts = np.bincount(bootstrap_indices(5, 20_000, 0).ravel(), minlength=5)
    assert oracle.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("block", [1, 10, 64, 10_000])
def test_the_stream_does_not_depend_on_the_block_size(monkeypatch, block):
    whole = bootstrap_indices(6, 100, 1)
    x = draws(0, 2, 6)
    means = resampled_means(x, 100, 1)
    monkeypatch.setattr(intervals, "_BLOCK", block)
    assert np.array_equal(bootstrap_indices(6, 100, 1), whole)
    assert np.array_equal(resampled_means(x, 100, 1), means)


def test_resampled_means_are_nan_means_over_the_shared_indices():
    x = draws(1, 3, 9)
    x[1, :4] = np.nan
    index = bootstrap_indices(9, 200, 5)
    slow = [[np.mean([v for v in row[i] if not np.isnan(v)] or [np.nan]) for i in index] for row in x]
    np.testing.assert_allclose(resampled_means(x, 200, 5), slow, rtol=1e-12)


def test_a_resample_without_a_number_is_nan():
    x = np.array([[1.0, np.nan]])
    means = resampled_means(x, 200, 0)
    empty = (bootstrap_indices(2, 200, 0) == 1).all(axis=1)
    assert empty.any()
    assert np.array_equal(np.isnan(means[0]), empty)


@given(st.integers(1, 40), st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_equal_rows_stay_bit_equal_beside_others(n, seed):
    x = draws(seed, 5, n)
    x[3] = x[0]
    means = resampled_means(x, 50, seed)
    assert np.array_equal(means[0], means[3])
    assert np.array_equal(means[0], resampled_means(x[:1], 50, seed)[0])


@pytest.mark.parametrize("kind", ["normal", "skewed", "binary"])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_bca_agrees_with_scipy(kind, level):
    rng = np.random.default_rng(4)
    x = {
        "normal": rng.normal(size=40),
        "skewed": rng.lognormal(sigma=1.5, size=40),
        "binary": rng.integers(0, 2, 40).astype(float),
    }[kind]
    mine = bca(x, resampled_means(x[None], 20_000, 0)[0], level)
    theirs = oracle.bootstrap(
        (x,), np.mean, n_resamples=20_000, confidence_level=level, method="BCa", rng=np.random.default_rng(1)
    ).confidence_interval
    np.testing.assert_allclose(mine, theirs, atol=0.03 * x.std())


def test_bca_leans_towards_the_long_tail():
    x = np.random.default_rng(0).lognormal(sigma=1.5, size=40)
    means = resampled_means(x[None], 20_000, 0)[0]
    low, high = bca(x, means)
    plain_low, plain_high = np.quantile(means, [0.025, 0.975])
    assert low > plain_low + 0.02 and high > plain_high + 0.1


def test_bca_mirrors_with_the_data():
    x = np.random.default_rng(0).lognormal(size=30)
    means = resampled_means(x[None], 999, 0)[0]
    low, high = bca(x, means)
    assert bca(-x, -means) == pytest.approx((-high, -low), rel=1e-9)


def test_bca_ignores_what_is_missing():
    x = draws(2, 30)
    padded = np.concatenate([x, [np.nan] * 5])
    means = resampled_means(x[None], 500, 0)[0]
    assert bca(padded, np.append(means, np.nan)) == bca(x, means)


def test_equal_numbers_give_a_point():
    x = np.full(7, 0.1)
    assert bca(x, resampled_means(x[None], 100, 0)[0]) == (0.1, 0.1)


@pytest.mark.parametrize("x", [[], [1.0], [np.nan, 1.0]])
def test_fewer_than_two_numbers_have_no_interval(x):
    x = np.array(x, dtype=float)
    assert np.isnan(bca(x, resampled_means(x[None], 100, 0)[0])).all()


def test_one_sided_resamples_fall_back_to_percentiles():
    x, means = np.array([0.0, 1.0]), np.linspace(2, 3, 101)
    assert bca(x, means) == pytest.approx((2.025, 2.975))


def test_covers_the_true_mean_about_as_often_as_promised():
    hits = 0
    for seed in range(300):
        x = draws(seed, 30)
        low, high = bca(x, resampled_means(x[None], 300, seed)[0])
        hits += low <= 0 <= high
    assert 0.90 <= hits / 300 <= 0.98


def test_bca_corrects_the_bias_twice():
    # Symmetric data have no acceleration; 30 % of the resampled means lie below the mean: z0 = Φ⁻¹(0.3).
    x, means = np.array([-1.0, 0.0, 1.0]), np.linspace(-0.3, 0.7, 100_001)
    z0 = oracle.norm.ppf(0.3)
    expected = oracle.norm.cdf(2 * z0 + oracle.norm.ppf([0.025, 0.975])) - 0.3
    assert bca(x, means) == pytest.approx(tuple(expected), abs=1e-3)


def test_the_band_is_pointwise_percentiles():
    x = draws(0, 20, 3)
    index = bootstrap_indices(20, 500, 4)
    slow = [np.quantile([x[i, k].mean() for i in index], [0.05, 0.95]) for k in range(3)]
    np.testing.assert_allclose(mean_band(x, seed=4, resamples=500, level=0.9), np.transpose(slow))
    assert mean_band(x[:1]) is None
