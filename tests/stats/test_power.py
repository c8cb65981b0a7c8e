"""What samples can tell apart, against the noncentral t distribution and by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from scipy import stats as oracle

from heatcheck.stats import Facts, leaderboard
from heatcheck.stats.power import (
    detectable,
    detectable_on,
    finer,
    in_words,
    minimum_detectable_difference,
    needed,
    samples_needed,
)

MUTANTS = (
    (
        "stats/power.py",
        "if spread > 0]",
        "]",
        "test_methods_with_equal_scores_say_nothing_about_the_spread",
    ),
    (
        "stats/power.py",
        "and least <= within[1] - within[0]",
        "",
        "test_what_exceeds_the_range_of_a_metric_is_not_told_apart",
    ),
    (
        "stats/power.py",
        'math.comb(row["methods"], 2)',
        'row["methods"]',
        "test_a_quarter_of_the_difference_has_its_price",
    ),
    ("stats/power.py", "freedom)) + beyond)", "freedom)))", "test_the_power_is_that_of_the_noncentral_t"),
    ("stats/power.py", "(1 - level) / tests", "1 - level", "test_the_power_is_that_of_the_noncentral_t"),
    (
        "stats/power.py",
        "return high\n\n\ndef _check",
        "return low\n\n\ndef _check",
        "test_samples_needed_are_the_fewest",
    ),
    ("stats/power.py", "tests=len(d), level", "tests=1, level", "test_a_metric_says_what_it_can_tell_apart"),
)


@pytest.mark.parametrize("n", [5, 28, 200])
@pytest.mark.parametrize("tests", [1, 45])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
def test_the_power_is_that_of_the_noncentral_t(n, tests, power):
    least = minimum_detectable_difference(0.3, n, tests=tests, power=power)
    critical = oracle.t.ppf(1 - 0.025 / tests, n - 1)
    found = 1 - oracle.nct.cdf(critical, n - 1, least * math.sqrt(n) / 0.3)
    assert found == pytest.approx(power, abs=0.04 if n == 5 else 0.01)


@given(st.floats(0.01, 2), st.floats(0.05, 2), st.integers(1, 50))
def test_samples_needed_are_the_fewest(difference, spread, tests):
    n = samples_needed(difference, spread, tests=tests)
    assert minimum_detectable_difference(spread, n, tests=tests) <= difference
    assert minimum_detectable_difference(spread, n - 1, tests=tests) > difference


@pytest.mark.parametrize("name", ["normal", "beta", "spearman", "lognormal"])
def test_differences_of_that_size_are_found_as_often_as_promised(name):
    """4,000 paired t-tests on 60 samples of differences of two scores: 80 % are significant, give or take three."""
    rng = np.random.default_rng(0)
    size = (2, 4000, 60)
    scores = {
        "normal": lambda: rng.normal(size=size),
        "beta": lambda: rng.beta(2, 5, size),
        "lognormal": lambda: rng.lognormal(0, 1, size),
        "spearman": lambda: 1 - 6 * ((rng.random((*size, 16)).argsort(-1) - np.arange(16)) ** 2).sum(-1) / (16 * 255),
    }[name]()
    d = scores[0] - scores[1]
    d += minimum_detectable_difference(float(d.std()), 60)
    found = oracle.ttest_1samp(d, 0, axis=1).pvalue <= 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.06 if name == "lognormal" else 0.03)


def test_a_metric_says_what_it_can_tell_apart(long):
    rng = np.random.default_rng(2)
    scores = {m: rng.normal(0, 0.1, 28) for m in ("a", "b", "c", "random")}
    found = detectable(long(scores), Facts(higher_is_better={"sds": True})).row(0, named=True)
    d = [scores[a] - scores[b] for a, b in (("a", "b"), ("a", "c"), ("b", "c"))]
    spread = np.median([row.std(ddof=1) for row in d])
    assert (found["samples"], found["methods"]) == (28, 3) and found["spread"] == pytest.approx(spread)
    assert found["difference"] == pytest.approx(minimum_detectable_difference(spread, 28, tests=3))
    assert in_words(found).startswith("28 samples tell apart means that differ by 0.0")


def test_a_leaderboard_knows_what_its_scores_can_tell_apart(long):
    rng = np.random.default_rng(3)
    scores = long({m: rng.normal(0, 0.1, 20) for m in ("a", "b", "c", "random")})
    facts = Facts({"sds": True}, controls=frozenset({"random"}))
    assert_frame_equal(detectable_on(leaderboard(scores, facts, resamples=50)), detectable(scores, facts))
    assert detectable_on(leaderboard(long({"a": [0.1], "b": [0.2]}), facts)).is_empty()


def test_a_quarter_of_the_difference_has_its_price():
    """The example of the page: with two methods and 28 samples 0.08; 0.02 takes about sixteen times as many."""
    row = {"metric": "sds", "samples": 28, "methods": 2, "spread": 0.15, "difference": 0.0823}
    assert finer(row) == (0.02, 440) and needed(row, 0.02) == samples_needed(0.02, 0.15) == 444
    assert needed(row | {"methods": 10}, 0.02) == samples_needed(0.02, 0.15, tests=45)
    assert in_words(row).endswith("; 0.02 would need about 440")
    assert in_words(row | {"difference": 3210.0, "spread": 5800.0}).endswith("3200 under sds; 800 would need about 420")
    assert finer(row | {"difference": 0.0}) is None and "need" not in in_words(row | {"difference": 0.0})


def test_methods_with_equal_scores_say_nothing_about_the_spread(long):
    rng = np.random.default_rng(4)
    facts = Facts(higher_is_better={"sds": True})
    a, b = rng.normal(0, 0.1, (2, 28))
    scores = {"a": a, "b": b, "c": a, "d": a, "e": a + 0.5}
    (found,) = detectable(long(scores), facts).iter_rows(named=True)
    assert found["spread"] == pytest.approx((a - b).std(ddof=1)) and found["difference"] > 0
    (alike,) = detectable(long({"a": a, "b": a, "c": a}), facts).iter_rows(named=True)
    assert alike["difference"] is None


def test_what_exceeds_the_range_of_a_metric_is_not_told_apart(long):
    scores = long({"a": [0.9, 0.1, 0.2], "b": [0.1, 0.8, 0.3]})
    free, bounded = Facts({"sds": True}), Facts({"sds": True}, within={"sds": (-1.0, 1.0)})
    assert detectable(scores, free)["difference"][0] > 2
    assert detectable(scores, bounded)["difference"].to_list() == [None]
    assert leaderboard(scores, bounded, resamples=50)["detectable"].to_list() == [None, None]


def test_one_sample_tells_nothing_apart(long):
    found = detectable(long({"a": [0.1], "b": [0.2]}), Facts(higher_is_better={"sds": True}))
    assert found["difference"].to_list() == [None]
    assert in_words(found.row(0, named=True)) == "1 sample tells no means apart under sds"
    assert detectable(long({"a": [0.1]}), Facts(higher_is_better={"sds": True})).is_empty()


@pytest.mark.parametrize(
    "wrong", [{"spread": -1.0}, {"spread": math.nan}, {"tests": 0}, {"level": 1.0}, {"power": 0.0}]
)
def test_other_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="should not be negative"):
        minimum_detectable_difference(**{"spread": 0.1, "samples": 10, **wrong})
    with pytest.raises(ValueError, match="cannot be looked for"):
        samples_needed(0.0, 0.1)
