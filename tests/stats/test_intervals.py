"""Bootstrap intervals, against the definition, against scipy and by simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as oracle

from heatcheck.stats import (
    bootstrap_indices,
    heavy_tailed,
    intervals,
    mean_band,
    mean_interval,
    resampled_means,
    studentised,
)
from heatcheck.stats.student import t_quantile

MUTANTS = (
    (
        "stats/intervals.py",
        "np.divide(total, count, out",
        "np.divide(total, n, out",
        "test_resampled_means_are_nan_means_over_the_shared_indices",
    ),
    (
        "stats/intervals.py",
        "centre - max(right, student) * error",
        "centre - max(-left, student) * error",
        "test_the_interval_is_the_definition",
    ),
    (
        "stats/intervals.py",
        "centre - min(left, -student) * error",
        "centre - left * error",
        "test_no_end_is_nearer_than_students",
    ),
    ("stats/intervals.py", "enough / (enough - 1)", "1.0", "test_t_statistics_are_the_definition"),
    (
        "stats/intervals.py",
        "SMALLEST_VARIANCE = 0.1",
        "SMALLEST_VARIANCE = 1e-9",
        "test_few_ones_have_a_finite_interval",
    ),
    ("stats/intervals.py", "\nTAIL = 0.35", "\nTAIL = 0.6", "test_heavy_tails_are_flagged"),
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


def interval(x, resamples=2000, seed=0, level=0.95):
    x = np.asarray(x, dtype=float)
    return mean_interval(x, studentised(x[None], resamples, seed)[0], level)


def test_t_statistics_are_the_definition():
    """One resample at a time, with the numbers that it holds."""
    x = draws(1, 3, 12)
    x[1, :4] = np.nan
    slow = np.full((3, 300), np.nan)
    for b, index in enumerate(bootstrap_indices(12, 300, 5)):
        for row, values in enumerate(x):
            whole, drawn = values[~np.isnan(values)], values[index][~np.isnan(values[index])]
            if len(drawn) > 1:
                variance = max(drawn.var(ddof=1), 0.1 * whole.var(ddof=1))
                slow[row, b] = (drawn.mean() - whole.mean()) / np.sqrt(variance / len(drawn))
    np.testing.assert_allclose(studentised(x, 300, 5), slow, rtol=1e-9, atol=1e-12)


def test_the_interval_is_the_definition():
    x = np.random.default_rng(0).lognormal(size=25)
    t = studentised(x[None], 999, 3)[0]
    left, right = np.quantile(t, [0.05, 0.95])
    student, error = oracle.t.ppf(0.95, 24), x.std(ddof=1) / 5
    assert -left > student > right  # a long upper tail: the mean is more likely to be far above than far below
    expected = x.mean() - student * error, x.mean() - left * error
    assert mean_interval(x, t, 0.9) == pytest.approx(expected)


@given(st.integers(2, 30), st.integers(0, 50), st.sampled_from([0.8, 0.95]))
@settings(max_examples=30, deadline=None)
def test_no_end_is_nearer_than_students(n, seed, level):
    x = draws(seed, n)
    low, high = interval(x, 100, level=level)
    inner = oracle.t.interval(level, n - 1, x.mean(), oracle.sem(x))
    assert low <= inner[0] + 1e-9 and high >= inner[1] - 1e-9
    assert high - low < 40 * np.ptp(x)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 27, 999, 1000, 1001, 50_000])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_quantiles_of_student(freedom, level):
    assert t_quantile(level, freedom) == pytest.approx(oracle.t.ppf((1 + level) / 2, freedom), rel=1e-7)


def test_it_mirrors_with_the_data():
    x = np.random.default_rng(0).lognormal(size=30)
    low, high = interval(x)
    assert interval(-x) == pytest.approx((-high, -low), rel=1e-9)


def test_it_leans_towards_the_long_tail():
    x = np.random.default_rng(0).lognormal(sigma=1.5, size=40)
    low, high = interval(x)
    assert high - x.mean() > 1.3 * (x.mean() - low)


def test_what_is_missing_is_ignored():
    x = draws(2, 60)
    padded = np.insert(x, [3, 3, 20, 40], np.nan)
    np.testing.assert_allclose(interval(padded, 9000), interval(x, 9000), atol=0.03)


def test_equal_numbers_give_a_point():
    assert interval(np.full(7, 0.1)) == pytest.approx((0.1, 0.1), rel=1e-15)
    low, high = interval(0.1 + 1e-17 * np.arange(7))
    assert low == high


@pytest.mark.parametrize("x", [[], [1.0], [np.nan, 1.0]])
def test_fewer_than_two_numbers_have_no_interval(x):
    assert np.isnan(interval(x)).all()


@pytest.mark.parametrize("ones", [1, 2, 27])
def test_few_ones_have_a_finite_interval(ones):
    """A third of the resamples of a single one hold zeros only, and those have no variance."""
    x = np.zeros(28)
    x[:ones] = 1
    low, high = interval(x)
    assert low < x.mean() < high and high - low < 8 * x.std(ddof=1) / np.sqrt(28)


def test_two_numbers_have_students_interval():
    assert interval([0.0, 1.0]) == pytest.approx(oracle.t.interval(0.95, 1, 0.5, 0.5))


KINDS = {
    "normal": (lambda rng, size: rng.normal(size=size), 0.0),
    "beta(2, 5)": (lambda rng, size: rng.beta(2, 5, size), 2 / 7),
    "beta(5, 1)": (lambda rng, size: rng.beta(5, 1, size), 5 / 6),
    "lognormal 1": (lambda rng, size: rng.lognormal(size=size), np.exp(0.5)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "n", "least"),
    [
        *((kind, n, 0.94) for kind in ("normal", "beta(2, 5)", "beta(5, 1)") for n in (28, 100)),
        ("lognormal 1", 28, 0.91),
        ("lognormal 1", 100, 0.93),
    ],
)
def test_covers_the_true_mean_as_often_as_promised(kind, n, least):
    draw, truth = KINDS[kind]
    x = draw(np.random.default_rng(1), (2000, n))
    ends = np.array([mean_interval(row, t) for row, t in zip(x, studentised(x, 1000, 0), strict=True)])
    covered = np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    assert covered >= least, covered


def test_heavy_tails_are_flagged():
    rng = np.random.default_rng(0)
    for n in (28, 100):
        rate = {
            name: np.mean([heavy_tailed(row) for row in x])
            for name, x in {
                "normal": rng.normal(size=(200, n)),
                "beta": rng.beta(2, 5, size=(200, n)),
                "lognormal 2": rng.lognormal(sigma=2, size=(200, n)),
                "mirrored": -rng.lognormal(sigma=2, size=(200, n)),
                "pareto": rng.pareto(1.5, size=(200, n)),
            }.items()
        }
        assert rate["normal"] <= 0.01 and rate["beta"] <= 0.01
        assert min(rate["lognormal 2"], rate["mirrored"]) > 0.8 and rate["pareto"] > 0.65
    assert not heavy_tailed(np.ones(30)) and not heavy_tailed(np.array([0.0] * 9 + [99.0]))


def test_the_band_is_pointwise_percentiles():
    x = draws(0, 20, 3)
    index = bootstrap_indices(20, 500, 4)
    slow = [np.quantile([x[i, k].mean() for i in index], [0.05, 0.95]) for k in range(3)]
    np.testing.assert_allclose(mean_band(x, seed=4, resamples=500, level=0.9), np.transpose(slow))
    assert mean_band(x[:1]) is None
