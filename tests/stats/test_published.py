"""Our scores beside printed ones: ranks, medians, doubts; and the interval of their rank correlation."""

import numpy as np
import polars as pl
import pytest
from scipy import stats as scipy_stats

from heatcheck.stats import Facts, leaderboard
from heatcheck.stats.published import beside, correlations, rank_correlation

MUTANTS = (
    (
        "stats/published.py",
        "spearman(theirs[some], drawn[some])",
        "spearman(theirs, drawn[some])",
        "test_methods_that_agree_agree_whichever_are_drawn",
    ),
    ("stats/published.py", "rank_of(sign * np", "rank_of(np", "test_lower_is_better_turns_ranks_around"),
    ("stats/published.py", "np.median(", "np.mean(", "test_a_model_of_its_own_is_beside_the_median_of_theirs"),
)


def row(method, value, model="R50", metric="sds", doubt=""):
    return {"model": model, "method": method, "metric": metric, "value": value, "table": "Table 1", "doubt": doubt}


def put(long, scores, printed, *, higher=True, models=None):
    table = long(scores)
    board = leaderboard(table, Facts({"sds": higher}), resamples=50)
    named = {m.upper(): m for m in scores}
    sign = 1.0 if higher else -1.0
    return table, beside(board, printed, named, models or {}, {"sds": sign}, {"sds": "sds"}, {"B": "b(steps=2)"})


SCORES = {"a": [0.1, 0.3], "b": [0.5, 0.5], "c": [0.2, 0.2]}


def test_ours_are_beside_theirs(long):
    _, found = put(long, SCORES, [row("A", 3.0), row("B", 9.0, doubt="scan"), row("X", 1.0)])
    rows = {r["as"]: r for r in found.iter_rows(named=True)}
    assert rows.keys() == {"A", "B"}
    assert (rows["B"]["ours"], rows["B"]["theirs"], rows["B"]["rank"], rows["B"]["their_rank"]) == (0.5, 9.0, 1, 1)
    assert (rows["B"]["doubt"], rows["B"]["settings"], rows["A"]["settings"]) == ("scan", "b(steps=2)", "")
    assert rows["A"]["their_model"] == "R50"


def test_lower_is_better_turns_ranks_around(long):
    _, found = put(long, SCORES, [row("A", 3.0), row("B", 9.0)], higher=False)
    assert {r["as"]: (r["rank"], r["their_rank"]) for r in found.iter_rows(named=True)} == {"A": (1, 1), "B": (2, 2)}


def test_a_model_of_its_own_is_beside_the_median_of_theirs(long):
    printed = [row("A", 1.0), row("A", 2.0, "R101"), row("A", 9.0, "VGG", doubt="outlier")]
    _, found = put(long, SCORES, printed)
    assert found.select("theirs", "their_model", "doubt").row(0) == (
        2.0,
        "median over its models",
        "1 of its 3 cells is doubtful",
    )
    _, same = put(long, SCORES, printed, models={"net": "R101"})
    assert same.select("theirs", "their_model").row(0) == (2.0, "R101")


def test_the_correlation_is_scipys(long):
    rng = np.random.default_rng(0)
    ours = {f"m{i}": (rng.normal(size=20) + i / 3).tolist() for i in range(9)}
    theirs = rng.normal(size=9)
    table, found = put(long, ours, [row(f"M{i}", float(v)) for i, v in enumerate(theirs)])
    got = correlations(found, table, resamples=100).row(0, named=True)
    means = [np.mean(values) for values in ours.values()]
    assert got["spearman"] == pytest.approx(scipy_stats.spearmanr(means, theirs)[0])
    assert got["low"] <= got["samples_low"] <= got["spearman"] <= got["samples_high"] <= got["high"]
    assert (got["methods"], got["samples"], got["their_model"]) == (9, 20, "R50")


def test_two_methods_have_no_correlation(long):
    table, found = put(long, SCORES, [row("A", 3.0), row("B", 9.0)])
    assert correlations(found, table, resamples=50)["spearman"].to_list() == [None]


def test_methods_that_agree_agree_whichever_are_drawn():
    ours = np.arange(6.0)[:, None] + np.zeros((6, 5))
    found = rank_correlation(np.arange(6.0), ours, resamples=100)
    assert (found.value, found.low, found.high) == pytest.approx((1, 1, 1))
    holes = ours.copy()
    holes[2, :4] = np.nan
    assert rank_correlation(np.arange(6.0), holes, resamples=100).value == 1


@pytest.mark.slow
def test_the_interval_holds_what_another_draw_of_methods_would_give():
    """Methods are drawn with a rank correlation of about 0.7; 19 of them and 60 samples, normal scores."""
    rng = np.random.default_rng(1)
    true = float(scipy_stats.spearmanr(*(rng.normal(size=(2, 20000)) * 0.6 + rng.normal(size=20000)))[0])
    hits = 0
    for i in range(100):
        merit = rng.normal(size=(2, 19)) * 0.6 + rng.normal(size=19)
        ours = merit[1][:, None] + rng.normal(size=(19, 60))
        found = rank_correlation(merit[0], ours, resamples=150, seed=i)
        hits += found.low <= true <= found.high
    assert hits >= 88


def test_a_board_without_common_methods_gives_an_empty_table(long):
    table, found = put(long, SCORES, [])
    assert found.height == correlations(found, table).height == 0
    assert found.schema["doubt"] == pl.String
