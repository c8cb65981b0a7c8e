"""Paired comparisons, against the definition, against scipy and by their laws."""

from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats as oracle

from heatcheck.stats import Facts, against_others, differences, holm, paired, sign_flip, wins_share

MUTANTS = (
    (
        "stats/paired.py",
        "d = group.oriented[group.methods.index(method)] - group.oriented[places]",
        "d = group.oriented[places] - group.oriented[group.methods.index(method)]",
        "test_one_against_the_others_is_a_part_of_all_pairs",
    ),
    (
        "stats/paired.py",
        "np.arange(len(order), 0, -1)",
        "np.arange(1, len(order) + 1)",
        "test_holm_agrees_with_the_definition",
    ),
    (
        "stats/paired.py",
        "np.minimum(np.maximum.accumulate(steps), 1.0)",
        "np.minimum(steps, 1.0)",
        "test_holm_known_answer_and_nan",
    ),
    (
        "stats/paired.py",
        "observed, sums = np.abs(observed), np.abs(sums)",
        "observed, sums = np.abs(observed), sums",
        "test_small_samples_are_exact",
    ),
    (
        "stats/paired.py",
        "count = np.ones(k)",
        "count = np.zeros(k)",
        "test_never_zero_and_the_floor_is_one_in_flips_plus_one",
    ),
    ("stats/paired.py", "(1 - 3 / (4 *", "(1 + 0 / (4 *", "test_the_effect_size_is_right_on_average"),
    ("stats/paired.py", "0.5 * np.sum(d == 0", "1.0 * np.sum(d == 0", "test_share_counts_ties_half"),
    (
        "stats/paired.py",
        "per_sample = oriented[first] - oriented[second]",
        "per_sample = oriented[second] - oriented[first]",
        "test_known_answer",
    ),
    (
        "stats/paired.py",
        "difference=np.divide(total, n,",
        "difference=np.divide(total, per_sample.shape[1],",
        "test_pairs_use_their_common_samples",
    ),
    (
        "stats/paired.py",
        "adjusted[both], adjusted[~both] = holm(p[both]), holm(p[~both])",
        "adjusted = holm(p)",
        "test_controls_are_compared_but_cost_no_power",
    ),
)
UP = Facts({"sds": True}, controls=frozenset({"random", "sobel"}))


def normal(seed, n, shift=0.0):
    return np.random.default_rng(seed).normal(shift, 1, n)


# Holm -------------------------------------------------------------------------------------------


def slow_holm(p):
    """The paper: step down through the sorted p-values, never below an earlier one."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, floor = [0.0] * len(p), 0.0
    for step, i in enumerate(order):
        floor = max(floor, min(1.0, (len(p) - step) * p[i]))
        adjusted[i] = floor
    return adjusted


probabilities = st.lists(st.floats(0, 1) | st.sampled_from([0.0, 0.01, 0.02, 1.0]), max_size=12)


@given(probabilities)
def test_holm_agrees_with_the_definition(p):
    np.testing.assert_allclose(holm(np.array(p)), slow_holm(p), rtol=1e-15)


@given(probabilities)
def test_holm_lies_between_raw_and_bonferroni(p):
    p = np.array(p)
    adjusted = holm(p)
    assert (adjusted >= p).all() and (adjusted <= np.minimum(1, p * len(p))).all()


def test_holm_known_answer_and_nan():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm(np.array([0.01, np.nan, 0.03])), [0.02, np.nan, 0.03])


# The sign-flip test -------------------------------------------------------------------------------


def slow_sign_flip(d, alternative):
    """Every pattern of signs, one by one."""
    totals = [sum(s * x for s, x in zip(signs, d, strict=True)) for signs in product([1, -1], repeat=len(d))]
    if alternative == "two-sided":
        return np.mean([abs(t) >= abs(sum(d)) - 1e-9 for t in totals])
    return np.mean([t >= sum(d) - 1e-9 for t in totals])


lattice = st.lists(st.sampled_from([-2.0, -0.3, -0.1, 0.0, 0.1, 0.2, 0.3, 1.0]), min_size=1, max_size=8)


@given(lattice, st.sampled_from(["two-sided", "greater"]))
@settings(max_examples=60, deadline=None)
def test_small_samples_are_exact(d, alternative):
    assert sign_flip(np.array(d), alternative=alternative)[0] == pytest.approx(slow_sign_flip(d, alternative))


@pytest.mark.parametrize(("alternative", "n", "p"), [("greater", 5, 2**-5), ("two-sided", 5, 2**-4)])
def test_one_sign_everywhere_is_the_most_extreme_pattern(alternative, n, p):
    assert sign_flip(np.arange(1.0, n + 1), alternative=alternative)[0] == p


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
@pytest.mark.parametrize("shift", [0.0, 0.3, -0.3])
def test_large_samples_agree_with_scipy(alternative, shift):
    d = np.random.default_rng(1).exponential(size=30) - 1 + shift
    mine = sign_flip(d, alternative=alternative, flips=19_999)[0]
    theirs = oracle.permutation_test(
        (d,),
        lambda x, axis: np.mean(x, axis=axis),
        permutation_type="samples",
        alternative=alternative,
        n_resamples=19_999,
        vectorized=True,
        rng=np.random.default_rng(2),
    ).pvalue
    assert mine == pytest.approx(theirs, abs=0.015)


def test_monte_carlo_agrees_with_enumeration(monkeypatch):
    d = np.array([[0.5, -0.2, 0.9, 0.1, -0.4, 0.3, 0.8, -0.1, 0.2, 0.6]])
    exact = sign_flip(d)[0]
    monkeypatch.setattr(paired, "EXACT", 0)
    sampled = sign_flip(d, flips=40_000)[0]
    assert sampled != exact
    assert sampled == pytest.approx(exact, abs=0.01)


def test_agrees_with_wilcoxon_where_magnitudes_are_ranks():
    d = np.array([1.0, -2, 3, 4, -5, 6, 7, 8, 9, 10])
    for alternative in ("greater", "two-sided"):
        expected = oracle.wilcoxon(d, alternative=alternative, method="exact").pvalue
        assert sign_flip(d, alternative=alternative)[0] == pytest.approx(expected)


@pytest.mark.parametrize("n", [1, 5, 500])
def test_equal_methods_have_p_one(n):
    assert sign_flip(np.zeros(n))[0] == 1 == sign_flip(np.zeros(n), alternative="greater")[0]


def test_no_common_sample_has_no_p():
    assert np.isnan(sign_flip(np.full((1, 4), np.nan))).all()


def test_missing_samples_and_ties_change_nothing():
    d = normal(0, 40, 0.2)
    gaps = np.insert(d, [3, 3, 20], [np.nan, 0.0, np.nan])
    few = np.array([0.2, 0.5, -0.1])
    assert sign_flip(np.concatenate([few, [np.nan] * 50, np.zeros(50)]))[0] == sign_flip(few)[0]
    assert sign_flip(gaps)[0] == pytest.approx(sign_flip(d)[0], abs=0.02)


def test_never_zero_and_the_floor_is_one_in_flips_plus_one():
    assert sign_flip(np.ones(100), flips=999, alternative="greater")[0] == 1 / 1000


@pytest.mark.parametrize("block", [50, 1000, 1 << 21])
def test_p_does_not_depend_on_blocks_or_neighbours(monkeypatch, block):
    d = np.stack([normal(s, 50, 0.2) for s in range(4)])
    alone = [sign_flip(row, seed=7)[0] for row in d]
    monkeypatch.setattr(paired, "_BLOCK", block)
    assert sign_flip(d, seed=7).tolist() == alone
    assert sign_flip(d, seed=8).tolist() != alone


def test_p_is_uniform_without_a_difference():
    d = np.random.default_rng(0).standard_t(3, size=(2000, 25))
    p = sign_flip(d, flips=999)
    for alpha in (0.05, 0.2, 0.5):
        assert np.mean(p <= alpha) == pytest.approx(alpha, abs=3.5 * np.sqrt(alpha * (1 - alpha) / 2000))


@given(hnp.arrays(float, st.integers(1, 30), elements=st.floats(-5, 5)))
@settings(max_examples=30, deadline=None)
def test_two_sided_p_is_symmetric(d):
    assert sign_flip(d, flips=499)[0] == sign_flip(-d, flips=499)[0]


def test_enough_flips_for_many_pairs():
    tests = 780
    p = np.full(tests, 1 / (paired.flips_for(tests, 0.95) + 1))
    assert holm(p).max() <= 0.05 / 2
    assert paired.flips_for(1, 0.95) == paired.FLIPS


def test_share_counts_ties_half():
    assert wins_share(np.array([[1.0, -1, 0, 0, np.nan], [np.nan] * 5])).tolist()[0] == 0.5
    assert wins_share(np.array([1.0, 2, 0, -1])).tolist() == [0.625]
    assert np.isnan(wins_share(np.array([np.nan]))).all()


def test_the_effect_size_is_right_on_average():
    """20,000 samples of 8 differences with mean 0.5 and standard deviation 1: without the correction it is 0.56."""
    d = np.random.default_rng(0).normal(0.5, 1, (20_000, 8))
    assert paired.standardised_difference(d).mean() == pytest.approx(0.5, abs=0.01)
    assert paired.standardised_difference(-3 * d[:1]) == pytest.approx(-paired.standardised_difference(d[:1]))
    few = np.array([[1.0, 2.0, np.nan], [1.0, 1.0, 1.0]])
    assert np.isnan(paired.standardised_difference(few)).all()


# The table of differences -------------------------------------------------------------------------


def pair(table, a="a", b="b"):
    return table.row(by_predicate=(pl.col("a") == a) & (pl.col("b") == b), named=True)


def test_known_answer(long):
    row = pair(differences(long({"a": [1, 2, 3, 4], "b": [0, 0, 3, 5]}), UP))
    assert row["difference"] == 0.5 and row["n"] == 4
    assert row["share"] == 0.625
    assert row["p"] == slow_sign_flip([1, 2, 0, -1], "two-sided")
    assert row["p_holm"] == row["p"] and row["significant"] is False and row["ranked"] is True


@pytest.mark.parametrize("higher", [True, False])
def test_one_against_the_others_is_a_part_of_all_pairs(long, higher):
    rng = np.random.default_rng(4)
    scores = {m: np.where(rng.random(30) < 0.1, np.nan, rng.normal(i, 2, 30)) for i, m in enumerate("abcd")}
    facts = Facts({"sds": higher}, controls=frozenset({"d"}))
    found = against_others(long(scores), facts, "b")
    assert found["method"].to_list() == ["a", "c"]
    for one in found.iter_rows(named=True):
        a, b = sorted((one["method"], "b"))
        row = pair(differences(long(scores), facts, resamples=50), a, b)
        sign = 1 if a == "b" else -1
        assert one["n"] == row["n"] < 30
        assert (one["difference"], one["effect"]) == pytest.approx((sign * row["difference"], sign * row["effect"]))
        assert one["share"] == pytest.approx(row["share"] if sign > 0 else 1 - row["share"])
    assert against_others(long(scores), facts, "d").is_empty()


def test_lower_is_better_turns_the_sign(long):
    table = long({"a": [1, 2, 3, 4], "b": [0, 0, 3, 5]})
    up, down = pair(differences(table, UP)), pair(differences(table, Facts({"sds": False})))
    assert down["difference"] == -up["difference"]
    assert (down["low"], down["high"]) == pytest.approx((-up["high"], -up["low"]))
    assert down["share"] == 1 - up["share"] and down["p"] == up["p"]


@given(st.integers(0, 10_000), st.integers(2, 20))
@settings(max_examples=25, deadline=None)
def test_swapping_two_methods_turns_everything(long, seed, n):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, n)).round(1)
    x[rng.random(n) < 0.2] = np.nan
    one = pair(differences(long({"a": x, "b": y}), UP, resamples=200)) if not np.isnan(x).all() else None
    if one is None:
        return
    two = pair(differences(long({"a": y, "b": x}), UP, resamples=200))
    assert two["difference"] == pytest.approx(-one["difference"], abs=1e-12)
    if one["low"] is not None:
        assert (two["low"], two["high"]) == pytest.approx((-one["high"], -one["low"]), abs=1e-9)
    assert two["share"] == pytest.approx(1 - one["share"])
    assert two["p"] == one["p"] and two["n"] == one["n"]


def test_pairs_use_their_common_samples(long):
    # On its own samples a looks better (mean 5 against 3); wherever both were scored, b is.
    table = long({"a": [9, 9, 1, 1, None], "b": [None, None, 2, 2, 5]})
    row = pair(differences(table, UP))
    assert row["n"] == 2 and row["difference"] == -1 and row["share"] == 0
    assert (row["low"], row["high"]) == (-1, -1)


def test_interval_of_a_pair_with_gaps_is_that_of_the_complete_samples(long):
    x, y = normal(0, 200, 0.3), normal(1, 200)
    gaps = np.random.default_rng(2).random(200) < 0.3
    row = pair(differences(long({"a": np.where(gaps, np.nan, x), "b": y}), UP))
    d = (x - y)[~gaps]
    theirs = oracle.bootstrap((d,), np.mean, n_resamples=5000, rng=np.random.default_rng(0))
    assert (row["low"], row["high"]) == pytest.approx(tuple(theirs.confidence_interval), abs=0.03)
    assert row["difference"] == pytest.approx(d.mean())


def test_no_common_sample_is_null(long):
    row = pair(differences(long({"a": [1, None], "b": [None, 1]}), UP))
    assert row["n"] == 0
    assert all(row[c] is None for c in ("difference", "low", "high", "p", "p_holm", "significant", "share"))


def test_controls_are_compared_but_cost_no_power(long):
    rng = np.random.default_rng(0)
    methods = {m: rng.normal(i / 3, 1, 30) for i, m in enumerate(["a", "b", "c"])}
    bare = differences(long(methods), UP)
    full = differences(long(methods | {"random": rng.normal(size=30), "sobel": rng.normal(size=30)}), UP)
    assert full.height == 10 and full["ranked"].sum() == 3
    assert full.filter("ranked")["p_holm"].to_list() == bare["p_holm"].to_list()
    np.testing.assert_allclose(bare["p_holm"], slow_holm(bare["p"].to_list()))
    rest = full.filter(~pl.col("ranked"))
    np.testing.assert_allclose(rest["p_holm"], slow_holm(rest["p"].to_list()))


def test_a_clear_difference_is_significant_and_equal_methods_are_not(long):
    x = normal(0, 50)
    table = differences(long({"a": x + 1, "b": x + normal(1, 50, 0) * 0.1, "c": x + 1}), UP)
    assert pair(table)["significant"] is True
    same = pair(table, "a", "c")
    assert same["significant"] is False and same["p"] == 1 and same["share"] == 0.5
    assert (same["low"], same["high"]) == (0, 0)
