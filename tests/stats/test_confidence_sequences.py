"""Confidence sequences, against the definition written slowly, and by simulation: nothing is claimed falsely at any look."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.stats.confidence_sequences import ASYMPTOTIC, FRACTIONS, asymptotic, betting, log_capital
from heatcheck.stats.race import looks
from heatcheck.stats.student import t_quantile

MUTANTS = (
    (
        "stats/confidence_sequences.py",
        "drift = -before / (population - np.arange(d.shape[1]))",
        "drift = -before / population",
        "test_capital_is_the_definition",
    ),
    (
        "stats/confidence_sequences.py",
        "x = np.where(np.isnan(d), 0.0, d - c)",
        "x = np.where(np.isnan(d), -c, d - c)",
        "test_capital_is_the_definition",
    ),
    (
        "stats/confidence_sequences.py",
        "bar = -math.log(alpha)",
        "bar = -math.log(2 * alpha)",
        "test_an_interval_holds_zero_where_no_bet_wins",
    ),
    ("stats/confidence_sequences.py", "clock = n / (1 - share)", "clock = n", "test_the_boundary_is_the_formula"),
    (
        "stats/confidence_sequences.py",
        "(2 * n * width**2 + 1) / (3 *",
        "0 / (3 *",
        "test_a_long_tail_is_not_seen_yet",
    ),
)
REACH = {"beta": 1.0, "spearman": 2.0}
"""The largest difference of two scores, where scores have a range."""


def draw(name, rng, size):
    """Scores: normal, beta(2, 5), Spearman correlations of two random orders of 16 cells, lognormal with σ = 1."""
    if name == "normal":
        return rng.normal(size=size)
    if name == "beta":
        return rng.beta(2, 5, size)
    if name == "lognormal":
        return rng.lognormal(0, 1, size)
    order = rng.random((*size, 16)).argsort(axis=-1)
    return 1 - 6 * ((order - np.arange(16)) ** 2).sum(axis=-1) / (16 * 255)


def slow_capital(d, c, reach, population):
    """Bets one by one, a gambler for each fraction."""
    total = 0.0
    for fraction in FRACTIONS:
        capital, past = 1.0, 0.0
        for i, value in enumerate(d):
            x = 0.0 if math.isnan(value) else value - c
            expected = -past / (population - i)
            capital *= 1 + fraction * (x - expected) / (expected + reach + c)
            past += x
            if past > (population - i - 1) * (reach + c):
                return math.inf  # what is left cannot bring the mean down to c
        total += capital / len(FRACTIONS)
    return total


@given(st.integers(0, 500), st.sampled_from([math.inf, 60, 41]), st.sampled_from([-0.2, 0.0, 0.3]))
def test_capital_is_the_definition(seed, population, c):
    rng = np.random.default_rng(seed)
    d = rng.uniform(-1, 1, 40)
    d[rng.random(40) < 0.2] = np.nan
    found = log_capital(d, c, reach=1.0, population=population)[0, -1]
    slow = slow_capital(d, c, 1.0, population)
    assert found == pytest.approx(math.log(slow), abs=1e-9)


@given(st.integers(0, 500), st.sampled_from([math.inf, 30, 64]))
def test_capital_falls_as_the_candidate_rises(seed, population):
    rng = np.random.default_rng(seed)
    d = rng.uniform(-1, 1, 30)
    d[rng.random(30) < 0.3] = np.nan
    found = [log_capital(d, c, reach=1.0, population=population)[0, -1] for c in np.linspace(-0.99, 0.99, 41)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(found))


@given(st.integers(0, 500), st.sampled_from([0.0, 0.4]))
@settings(max_examples=8)
def test_without_replacement_it_closes_at_the_mean(seed, gaps):
    rng = np.random.default_rng(seed)
    d = rng.uniform(-1, 1, (3, 50))
    d[:, 1:][rng.random((3, 49)) < gaps] = np.nan
    for low, high in (betting(d, alpha=0.05, reach=1.0, population=50), asymptotic(d, alpha=0.05, population=50)):
        assert np.allclose(low, np.nanmean(d, axis=1)) and np.array_equal(low, high)
    near = betting(d[:, :49], alpha=0.05, reach=1.0, population=50)
    assert np.all(near[1] - near[0] < 0.2) and np.all(near[0] <= np.nanmean(d, axis=1))


def test_rounding_at_the_end_is_no_difference():
    d = np.tile([0.1, 0.2, -0.3], (1, 20))
    assert d.sum() != 0
    assert betting(d, alpha=0.05, reach=1.0, population=60) == (0.0, 0.0)


def test_ends_mirror_each_other():
    d = np.random.default_rng(0).uniform(-1, 0.5, (4, 60))
    for ends in (
        lambda d: betting(d, alpha=0.01, reach=1.0, population=80),
        lambda d: asymptotic(d, alpha=0.01, population=80),
    ):
        (low, high), (mirrored_low, mirrored_high) = ends(d), ends(-d)
        assert np.allclose(low, -mirrored_high) and np.allclose(high, -mirrored_low)
        assert np.all(low < high)


def test_scores_beyond_their_range_are_refused():
    with pytest.raises(ValueError, match=r"1\.5 is beyond the reach of 1"):
        betting(np.array([[0.1, -1.5]]), alpha=0.05, reach=1.0)


@pytest.mark.parametrize("population", [math.inf, 200])
def test_the_boundary_is_the_formula(population):
    d = np.random.default_rng(3).normal(size=(1, 100))
    d = np.concatenate([d, -d], axis=1)[:, :100] if population == math.inf else d
    d = np.sort(np.abs(d))[:, ::-1] * np.tile([1, -1], 50)  # nearly symmetric
    low, high = asymptotic(d, alpha=0.01, population=population)
    tau = 100 / (1 - 100 / population)
    tightest = 240 if population == math.inf else population / 7
    rho = (-2 * math.log(0.01) + math.log(-2 * math.log(0.01) + 1)) / tightest
    half = d.std(ddof=1) / tau * math.sqrt(2 * (tau * rho + 1) / rho * math.log(math.sqrt(tau * rho + 1) / 0.01))
    assert min(high - d.mean(), d.mean() - low) == pytest.approx(half)


def test_too_few_samples_or_equal_ones_say_nothing():
    d = np.random.default_rng(3).normal(size=(1, ASYMPTOTIC - 1))
    assert np.isinf(asymptotic(d, alpha=0.05)).all()
    assert np.isfinite(asymptotic(np.append(d, 0.1)[None], alpha=0.05)).all()
    assert np.isinf(asymptotic(np.zeros((1, 60)), alpha=0.05)).all()


def claims(name, d, alpha, counts, population):
    """Which rows are said to have a mean that is not zero, at any of these sample counts."""
    found = np.zeros(len(d), dtype=bool)
    if name in REACH:
        for sign in (1, -1):
            capital = log_capital(sign * d, 0.0, reach=REACH[name], population=population, at=counts)
            found |= (capital >= math.log(2 / alpha)).any(axis=1)
        return found
    for n in counts:
        low, high = asymptotic(d[:, :n], alpha=alpha, population=population)
        found |= (low > 0) | (high < 0)
    return found


def peeking(d, first):
    """Whether Student's test is significant at 5 %, after every sample from the first look on."""
    k = np.arange(1, d.shape[1] + 1)
    mean = d.cumsum(axis=1) / k
    error = np.sqrt(np.maximum((d**2).cumsum(axis=1) / k - mean**2, 0) / np.maximum(k - 1, 1))[:, first - 1 : -1]
    return np.abs(mean[:, first - 1 : -1]) > [t_quantile(0.95, n - 1) for n in k[first - 1 : -1]] * error


def test_an_interval_holds_zero_where_no_bet_wins():
    d = draw("beta", np.random.default_rng(1), (40, 60)) - np.linspace(0, 0.3, 40)[:, None]
    low, high = betting(d, alpha=0.1, reach=1.0, population=90)
    assert np.array_equal((low > 0) | (high < 0), claims("beta", d, 0.1, [60], 90))


@pytest.mark.parametrize("name", ["normal", "beta", "spearman", "lognormal"])
def test_the_mean_is_covered_at_every_look(name):
    """Endless values, 500 sequences, looked at 12 times at the level of 80 %: at most 20 % ever miss."""
    rng = np.random.default_rng(5)
    d = draw(name, rng, (500, 240)) - draw(name, rng, (500, 240))
    missed = claims(name, d, 0.2, range(20, 241, 20), math.inf).mean()
    assert 0.01 < missed <= 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "beta", "spearman", "lognormal"])
def test_nothing_is_claimed_falsely(name):
    """1,000 null runs of 10 methods with equal means, at every look before the last: at most 5 % claim anything.

    Whoever tests after every sample claims something in nearly every run.
    """
    rng = np.random.default_rng(11)
    runs, methods, n = 1000, 10, 120
    values = draw(name, rng, (runs, n))
    scores = [rng.permuted(values, axis=1) for _ in range(methods)]
    pairs = [(a, b) for a in range(methods) for b in range(a)]
    claimed, peeked = np.zeros((2, runs), dtype=bool)
    for a, b in pairs:
        d = scores[a] - scores[b]
        claimed |= claims(name, d, 0.05 / len(pairs), looks(n)[:-1], n)
        peeked |= peeking(d, looks(n)[0]).any(axis=1)
    assert claimed.mean() <= 0.05
    assert peeked.mean() > 0.85


def test_a_long_tail_is_not_seen_yet():
    """Lognormal losses against a method without spread: 1,000 null runs of one pair."""
    rng = np.random.default_rng(2)
    values = draw("lognormal", rng, (1000, 400))
    d = values - values.mean(axis=1, keepdims=True)
    assert claims("lognormal", d, 0.05, looks(400)[:-1], 400).mean() <= 0.05
