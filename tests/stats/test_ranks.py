"""Ranks, against scipy, and confidence sets of ranks, against the definition and by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats as oracle

from heatcheck.stats import bootstrap_indices, rank_of
from heatcheck.stats.ranks import _resampled_t, rank_sets, rounded, significantly_better, step_down, strict_rank
from heatcheck.stats.residuals import stretched

MUTANTS = (
    (
        "stats/ranks.py",
        "not too_few(n, tests or methods, level)",
        "n > 1",
        "test_pairs_with_too_few_common_samples_are_not_told_apart",
    ),
    ("stats/ranks.py", "(1 + (v == value).sum(axis=0)) / 2", "(v == value).sum(axis=0) / 2", "test_agrees_with_scipy"),
    ("stats/ranks.py", "_BITS = 44", "_BITS = 60", "test_rounding_does_not_break_ties_but_differences_do"),
    ("stats/ranks.py", "resampled[~up].max", "resampled.max", "test_step_down_is_the_definition"),
    ("stats/ranks.py", "(-observed > limit) & ~down", "(-observed > limit) & down", "test_step_down_is_the_definition"),
    ("stats/ranks.py", "1.0 + better.sum(axis=0)", "1.0 + better.sum(axis=1)", "test_far_methods_have_one_rank_each"),
    (
        "stats/ranks.py",
        "known.astype(np.float64) @ counts.T if gaps",
        "float(n) if gaps",
        "test_sets_are_the_definition",
    ),
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


@given(few_values)
def test_a_rank_counts_who_is_strictly_better(values):
    assert strict_rank(values).tolist() == [1 + sum(other > v for other in values) for v in values]


def slow_step_down(observed, resampled, level):
    """The paper: ordered pairs, the largest statistic among those that are left, until none is beyond its quantile."""
    pairs = {(i, +1): t for i, t in enumerate(observed)} | {(i, -1): -t for i, t in enumerate(observed)}
    left, found = set(pairs), set()
    while left:
        largest = sorted(max(sign * resampled[i, b] for i, sign in left) for b in range(resampled.shape[1]))
        limit = largest[int(np.ceil(level * (len(largest) - 1)))]
        new = {pair for pair in left if pairs[pair] > limit}
        if not new:
            break
        left, found = left - new, found | new
    return found


@given(st.integers(0, 200), st.integers(1, 8), st.sampled_from([0.5, 0.9]))
def test_step_down_is_the_definition(seed, pairs, level):
    rng = np.random.default_rng(seed)
    observed, resampled = rng.normal(0, 3, pairs), rng.normal(size=(pairs, 40))
    up, down = step_down(observed, resampled, level)
    found = {(i, +1) for i in np.flatnonzero(up)} | {(i, -1) for i in np.flatnonzero(down)}
    assert found == slow_step_down(observed, resampled, level)


def test_the_second_step_finds_more_than_the_first():
    narrow = np.concatenate([np.linspace(0, 9, 101)[None], np.linspace(-1, 1, 101)[None]])
    assert step_down(np.array([8.7, 1.5]), narrow, 0.95)[0].tolist() == [True, True]  # 9 × 0.95 and then 0.95
    assert slow_step_down(np.array([8.7, 1.5]), narrow, 0.95) == {(0, 1), (1, 1)}


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_sets_are_the_definition(gaps):
    """Pair by pair and resample by resample, on common samples; the longer tail of each pair is stretched."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(5, 30)) + np.array([0.0, 0.3, 0.6, 2.0, 2.0])[:, None]
    x[rng.random(x.shape) < gaps] = np.nan
    pairs = [(a, b) for a in range(5) for b in range(a + 1, 5)]
    observed, resampled = [], []
    for a, b in pairs:
        d = x[a] - x[b]
        whole = d[~np.isnan(d)]
        observed.append(whole.mean() / (whole.std(ddof=1) / np.sqrt(len(whole))))
        z = (d - whole.mean()) / whole.std(ddof=1)
        rate = 0.3 * np.nanmean(z**3)
        bent = np.expm1(rate * z) / rate
        bent -= np.nanmean(bent)
        row = []
        for index in bootstrap_indices(30, 300, 2):
            drawn = bent[index][~np.isnan(bent[index])]
            error = np.sqrt(max(drawn.var(ddof=1), 0.1 * np.nanvar(bent, ddof=1)) / len(drawn))
            row.append(drawn.mean() / error)
        resampled.append(row)
    d = np.array([x[i] - x[j] for i, j in pairs])
    centred = np.nan_to_num(d - np.nanmean(d, axis=1, keepdims=True))
    t = _resampled_t(*stretched(centred, ~np.isnan(d)), ~np.isnan(d), 300, 2)
    np.testing.assert_allclose(t, resampled, rtol=1e-9, atol=1e-12)
    found = slow_step_down(np.array(observed), np.array(resampled), 0.95)
    low, high = np.ones(5), np.full(5, 5.0)
    for i, sign in found:
        better, worse = pairs[i] if sign > 0 else pairs[i][::-1]
        low[worse] += 1
        high[better] -= 1
    mine = rank_sets(x, seed=2, resamples=300, level=0.95)
    assert np.array_equal(mine, (low, high)) and low.max() > 1


def test_far_methods_have_one_rank_each():
    x = np.random.default_rng(0).normal(size=(3, 30)) + np.array([0.0, 20.0, 40.0])[:, None]
    low, high = rank_sets(x, seed=0, resamples=500, level=0.95)
    assert low.tolist() == high.tolist() == [3, 2, 1]


def test_a_constant_difference_is_certain_and_none_is_a_tie():
    x = np.random.default_rng(0).normal(0, 100, 30)
    found = significantly_better(np.stack([x, x + 0.1, x]), seed=0, resamples=200, level=0.95)
    assert found.tolist() == [[False, False, False], [True, False, True], [False, False, False]]


def test_pairs_with_too_few_common_samples_are_not_told_apart():
    x = np.stack([np.arange(12.0) + 20, np.arange(12.0) + 10, np.arange(12.0)])
    x[2, 4:] = np.nan
    low, high = rank_sets(x, seed=0, resamples=200, level=0.95)
    assert low.tolist() == [1, 2, 1] and high.tolist() == [2, 3, 3]


def test_methods_without_a_common_sample_are_not_told_apart():
    x = np.array([[1.0, 2.0, np.nan, np.nan], [np.nan, np.nan, 9.0, 8.0], [np.nan, 1.0, 5.0, np.nan]])
    low, high = rank_sets(x, seed=0, resamples=200, level=0.95)
    assert low.tolist() == [1, 1, 1] and high.tolist() == [3, 3, 3]


def covered(gap, n, replications, draw):
    """How often the sets of ten methods, paired by sample, all hold their ranks."""
    rng = np.random.default_rng(n)
    truth = gap * np.arange(10)[::-1]
    ranks = strict_rank(truth)
    hits = 0
    for _ in range(replications):
        x = truth[:, None] + draw(rng, (1, n)) + draw(rng, (10, n))
        low, high = rank_sets(x, seed=0, resamples=400, level=0.95)
        hits += ((low <= ranks) & (ranks <= high)).all()
    return hits / replications


@pytest.mark.slow
@pytest.mark.parametrize("n", [28, 100, 300])
@pytest.mark.parametrize("gap", [0.0, 0.05, 1.0])
def test_all_ranks_are_covered_at_once(gap, n):
    replications = 400
    found = covered(gap, n, replications, lambda rng, size: rng.normal(size=size))
    assert found >= 0.93 - 0.01, found  # one standard error of 400 replications


@pytest.mark.slow
def test_all_ranks_are_covered_at_once_with_skewed_scores():
    assert covered(0.0, 28, 200, lambda rng, size: rng.lognormal(size=size)) >= 0.93
