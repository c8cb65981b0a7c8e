"""Summaries of a leaderboard, on tables with known answers."""

import numpy as np
import polars as pl
import pytest

from heatcheck.stats import (
    Facts,
    best_and_tied,
    leaderboard,
    missing_scores,
    never_better_than_random,
    not_better_than_random,
    sign_flip,
    smallest_p,
    smallest_p_values,
    too_few,
)

UP = Facts({"sds": True, "abpc": True}, controls=frozenset({"random", "sobel"}))
MUTANTS = (
    ("stats/summary.py", '["rank"].min()', '["rank"].max()', "test_the_best_and_those_that_may_be"),
    (
        "stats/summary.py",
        '~first & (pl.col("rank_low") == 1)',
        "~first",
        "test_the_best_and_those_that_may_be",
    ),
    ("stats/summary.py", "set.intersection(", "set.union(", "test_methods_that_never_beat_random"),
    (
        "stats/summary.py",
        'min(max(tested["n_ok"]',
        'max(max(tested["n_ok"]',
        "test_the_smallest_p_is_attained_by_a_method_that_always_wins",
    ),
    (
        "stats/paired.py",
        "tests * 2.0**-samples",
        "tests * 2.0 ** (1 - samples)",
        "test_the_smallest_p_is_attained_by_a_method_that_always_wins",
    ),
)


def board(table, facts=UP):
    return leaderboard(table, facts, resamples=20)


def test_the_best_and_those_that_may_be(long):
    x = np.arange(20.0)
    noise = np.where(x % 2, 1.0, -1.1)
    scores = {"top": x, "close": x + noise, "far": x - 9, "random": x - 99}
    table = pl.concat([long(scores), long({"a": [1, 1], "b": [1, 1], "c": [0, 0.9]}, metric="abpc")])
    found = best_and_tied(board(table))
    assert found.select("metric", "best", "tied").rows() == [("abpc", ["a", "b"], ["c"]), ("sds", ["top"], ["close"])]


def test_a_metric_that_ranks_nobody_has_no_best(long):
    table = long({"random": [1, 2]})
    assert best_and_tied(board(table)).height == 0


def test_methods_that_never_beat_random(long):
    x = np.random.default_rng(0).normal(size=20)
    one = {"good": x + 1, "half": x + 1, "bad": x, "worse": x - 1, "random": x, "sobel": x}
    two = {"good": x + 1, "half": x, "bad": x, "worse": x - 1, "random": x}
    made = board(pl.concat([long(one), long(two, metric="abpc"), long({"good": [1]}, metric="sds", model="other")]))
    assert not_better_than_random(made).select("model", "metric", "methods").rows() == [
        ("net", "abpc", ["bad", "half", "worse"]),
        ("net", "sds", ["bad", "worse"]),
        ("other", "sds", None),
    ]
    assert never_better_than_random(made).rows() == [("net", "pics", ["bad", "worse"])]


@pytest.mark.parametrize(("n", "of_random"), [(4, 4), (6, 3), (12, 12)])
def test_the_smallest_p_is_attained_by_a_method_that_always_wins(long, n, of_random):
    up = np.arange(1.0, n + 1)
    chance = [0.0] * of_random + [None] * (n - of_random)
    made = board(long({"a": up, "b": -up, "random": chance, "sobel": up}))
    (row,) = smallest_p_values(made).iter_rows(named=True)
    assert (row["samples"], row["tests"]) == (of_random, 2)
    best = made.row(by_predicate=pl.col("method") == "a", named=True)
    assert row["smallest_p"] == 2 * sign_flip(up[:of_random], alternative="greater")[0]
    assert best["random_p"] == row["smallest_p"] if of_random == n else best["random_p"] >= row["smallest_p"]


def test_without_random_there_is_no_smallest_p(long):
    assert smallest_p_values(board(long({"a": [1, 2], "b": [2, 1]}))).height == 0


@pytest.mark.parametrize(("samples", "tests", "few"), [(4, 1, True), (5, 1, False), (5, 2, True), (0, 1, True)])
def test_too_few_samples(samples, tests, few):
    assert too_few(samples, tests) is few
    assert (smallest_p(samples, tests) > 0.05) is few and smallest_p(samples, tests) <= 1


def test_missing_scores_are_counted(long):
    table = pl.concat(
        [long({"a": [1, None, None], "b": [1, 2, 3]}), long({"a": [None]}, metric="abpc", status="failed: x")]
    )
    silent = (pl.col("method") == "b") & (pl.col("sample") == "s00001")
    table = table.with_columns(score=pl.when(silent).then(float("nan")).otherwise("score"))
    assert missing_scores(table).select("metric", "method", "status", "n", "total", "example").rows() == [
        ("sds", "a", "undefined: constant map", 2, 3, "s00001"),
        ("abpc", "a", "failed: x", 1, 1, "s00000"),
        ("sds", "b", "undefined: the score is not finite", 1, 3, "s00001"),
    ]
    assert missing_scores(long({"a": [1]})).height == 0
