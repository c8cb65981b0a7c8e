"""Separation of methods from random and from each other."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as oracle

from heatcheck.stats import Facts, auroc, differences, eta_squared, separation

MUTANTS = (
    (
        "stats/separation.py",
        "(below + below_or_equal).sum()",
        "(2 * below).sum()",
        "test_auroc_is_the_share_of_ordered_pairs",
    ),
    ("stats/separation.py", "between = sum(len(row) * (", "between = sum((", "test_eta_squared_known_answers"),
    (
        "stats/separation.py",
        "np.sum(compared.difference >= 0)",
        "np.sum(compared.difference > 0)",
        "test_a_tie_with_random_is_not_last",
    ),
    (
        "stats/separation.py",
        "compared.error[known]).min()",
        "compared.error[known]).max()",
        "test_margin_is_the_mean_in_standard_errors",
    ),
    ("stats/separation.py", "(compared.low > 0).all()", "(compared.high > 0).all()", "test_last_but_not_apart"),
)
UP = Facts({"sds": True}, controls=frozenset({"random", "sobel"}))
numbers = st.lists(st.sampled_from([0.0, 0.1, 0.5, 2.0]), min_size=1, max_size=15).map(np.array)


def only(table, facts=UP, **options):
    return separation(table, facts, **{"resamples": 200} | options).row(0, named=True)


@given(numbers, numbers)
def test_auroc_is_the_share_of_ordered_pairs(x, y):
    slow = np.mean([(a > b) + (a == b) / 2 for a in x for b in y])
    assert auroc(x, y) == pytest.approx(slow)
    assert auroc(x, y) == pytest.approx(1 - auroc(y, x))
    assert auroc(x, y) == pytest.approx(oracle.mannwhitneyu(x, y).statistic / (len(x) * len(y)))


def test_auroc_of_nothing():
    assert np.isnan(auroc(np.array([np.nan]), np.array([1.0])))


def test_eta_squared_known_answers():
    assert eta_squared(np.array([[1.0, 1], [3, 3]])) == 1
    assert eta_squared(np.array([[1.0, 3], [3, 1]])) == 0
    assert eta_squared(np.array([[0.0, 2], [2, 4]])) == pytest.approx(0.5)  # between 4, within 4
    assert np.isnan(eta_squared(np.full((2, 3), 0.1)))
    assert np.isnan(eta_squared(np.full((2, 3), np.nan)))


def test_eta_squared_follows_from_the_f_statistic():
    x = np.random.default_rng(0).normal(size=(4, 12)) + np.arange(4)[:, None] / 2
    x[1, :3] = np.nan
    rows = [r[~np.isnan(r)] for r in x]
    f, df1, df2 = oracle.f_oneway(*rows).statistic, 3, sum(map(len, rows)) - 4
    assert eta_squared(x) == pytest.approx(f * df1 / (f * df1 + df2))


def test_a_metric_that_separates_everything(long):
    x = np.random.default_rng(0).normal(0, 0.01, 40)
    y = np.random.default_rng(1).normal(0, 0.01, 40)
    found = only(long({"a": x + 3, "b": y + 2, "random": x[::-1], "sobel": x - 5}))
    assert found["methods"] == 2 and found["pairs"] == 1
    assert found["random_is_last"] and found["apart_from_random"] and found["random_rank"] == 3
    assert found["auroc"] == 1 and found["separable"] == 1 and found["eta_squared"] > 0.99
    assert found["spread"] == pytest.approx(1, abs=0.01)


def test_a_metric_that_sees_nothing(long):
    rng = np.random.default_rng(0)
    found = only(long({m: rng.normal(size=40) for m in ("a", "b", "c", "d", "random")}))
    assert not found["apart_from_random"] and found["separable"] == 0
    assert 0.35 < found["auroc"] < 0.65 and found["eta_squared"] < 0.1


def test_random_between_the_methods(long):
    found = only(long({"a": [3, 4, 5], "b": [1, 1, 1], "c": [0, 1, 0], "random": [2, 2, 2]}))
    assert found["random_is_last"] is False and found["random_rank"] == 2
    assert found["random_margin"] < 0


def test_a_tie_with_random_is_not_last(long):
    found = only(long({"a": [3, 4, 5], "random": [3, 4, 5]}))
    assert found["random_is_last"] is False and found["random_rank"] == 2
    assert found["random_margin"] is None and found["auroc"] == 0.5


def test_last_but_not_apart(long):
    found = only(long({"a": [3.0, -2, 1, 0], "random": [0, 0, 0, 1]}))
    assert found["random_is_last"] is True and found["apart_from_random"] is False


def test_margin_is_the_mean_in_standard_errors(long):
    rng = np.random.default_rng(0)
    x, r = rng.normal(1, 1, 60), rng.normal(size=60)
    found = only(long({"a": x, "b": x + 5, "random": r}), resamples=4000)
    d = x - r
    assert found["random_margin"] == pytest.approx(d.mean() / (d.std() / np.sqrt(60)), rel=0.05)


def test_lower_is_better_turns_nothing_else(long):
    rng = np.random.default_rng(0)
    scores = {m: rng.normal(i, 1, 20) for i, m in enumerate(["random", "a", "b"])}
    up = only(long(scores))
    down = only(long({m: -v for m, v in scores.items()}), Facts({"sds": False}))
    assert down == pytest.approx(up)


def test_separable_is_the_share_of_significant_ranked_pairs(long):
    rng = np.random.default_rng(3)
    table = long({m: rng.normal(i / 2, 1, 30) for i, m in enumerate(["random", "a", "b", "c", "d"])})
    pairs = differences(table, UP, resamples=50).filter("ranked")
    found = only(table)
    assert 0 < found["separable"] < 1
    assert found["separable"] == pairs["significant"].mean()
    assert found["spread"] == pytest.approx(pairs["difference"].abs().mean())


def test_without_random_or_rivals_there_is_no_answer(long):
    alone = only(long({"a": [1, 2, 3]}))
    for column in ("random_is_last", "random_rank", "random_margin", "apart_from_random", "auroc"):
        assert alone[column] is None
    assert alone["pairs"] == 0 and alone["separable"] is None and alone["eta_squared"] is None
    apart = separation(long({"a": [1, None], "random": [None, 1]}), UP, resamples=20)
    assert apart["random_is_last"].to_list() == [None]


def test_unranked_methods_are_left_out(long):
    x = np.arange(10.0)
    rare = np.where(x < 3, -99, np.nan)
    facts = Facts({"sds": True}, circular=frozenset({("c", "sds")}))
    found = separation(long({"a": x + 2, "b": x + 1, "c": x - 50, "rare": rare, "random": x}), facts, resamples=50)
    assert found.select(pl.col("methods", "random_is_last")).rows() == [(2, True)]


def test_an_equal_margin_everywhere_has_no_standard_error(long):
    # Differences are exactly 1; means over 7 samples are rounded, and rounding is no error bar.
    x = np.arange(7.0)
    found = only(long({"a": x + 1, "random": x}))
    assert found["random_margin"] is None and found["apart_from_random"] is True
