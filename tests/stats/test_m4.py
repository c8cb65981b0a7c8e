"""M4's questions on its own printed table and on small ones, against scipy and by hand."""

import numpy as np
import polars as pl
import pytest
from scipy import stats as scipy_stats

from heatcheck.profiles.published import published_scores, published_tables
from heatcheck.stats.m4 import (
    best_faithfulness,
    costs,
    matrix,
    metric_correlation,
    overall_score,
    pearson,
    sensitivity,
    standardised,
    wide,
)

MUTANTS = (
    (
        "stats/m4.py",
        "values[known, i], values[known, j]",
        "values[known, i], -values[known, j]",
        "test_the_papers_table_gives_the_known_correlations",
    ),
    (
        "stats/m4.py",
        "a += standardised(x[rows])",
        "a += x[rows].tolist()",
        "test_within_models_nothing_is_left_of_what_models_differ_in",
    ),
    ("stats/m4.py", "signs[m] * means.get", "means.get", "test_raw_sums_are_those_that_were_derived"),
    ("stats/m4.py", "own.std(ddof=1)", "own.std()", "test_sensitivity_is_the_spread_over_methods"),
)
SIGNS = {"morf": 1.0, "abpc": 1.0, "pscore": 1.0, "infidelity": -1.0, "synscore": 1.0}


@pytest.fixture(scope="module")
def printed():
    return pl.DataFrame([{**row, "mean": row["value"]} for row in published_scores("m4")])


def test_the_papers_table_gives_the_known_correlations(printed):
    found = {(r["a"], r["b"]): r for r in metric_correlation(printed, SIGNS).iter_rows(named=True)}
    known = {
        ("abpc", "pscore"): (0.58, 0.47, 0.40),
        ("abpc", "infidelity"): (0.44, -0.31, -0.10),
        ("pscore", "infidelity"): (0.59, 0.23, 0.06),
    }
    for pair, (whole, ranks, without) in known.items():
        row = found[pair]
        assert (round(row["pearson"], 2), round(row["spearman"], 2), round(row["pearson_without"], 2)) == (
            whole,
            ranks,
            without,
        )
        assert row["most_influential"] == "VGG16 · GradCAM"
        assert row["rows"] == 35
        assert row["pearson_lowest"] == row["pearson_without"]
    assert len(found) == 10


def test_correlations_are_scipys(printed):
    names, _, values = matrix(printed, SIGNS)
    for row in metric_correlation(printed, SIGNS).iter_rows(named=True):
        x, y = values[:, names.index(row["a"])], values[:, names.index(row["b"])]
        assert row["pearson"] == pytest.approx(scipy_stats.pearsonr(x, y)[0])
        assert row["spearman"] == pytest.approx(scipy_stats.spearmanr(x, y)[0])
        left = [scipy_stats.spearmanr(np.delete(x, i), np.delete(y, i))[0] for i in range(len(x))]
        assert (row["spearman_lowest"], row["spearman_highest"]) == pytest.approx((min(left), max(left)))


def test_raw_sums_are_those_that_were_derived(printed):
    table = next(t for t in published_tables("m4") if t.name == "m4_table1_derived")
    derived = {
        (r["model"], r["method"]): float(r["overall_raw_derived=MoRF+ABPC+PScore-INFD+SynScore"]) for r in table.rows
    }
    for row in overall_score(printed, SIGNS).iter_rows(named=True):
        assert row["raw"] == pytest.approx(derived[row["model"], row["method"]], abs=1e-4)
        assert row["metrics"] == row["of"] == 5


def cells(values, metrics=("a", "b")):
    return pl.DataFrame(
        [
            {"model": model, "method": method, "metric": metric, "mean": v}
            for model, rows in values.items()
            for method, row in rows.items()
            for metric, v in zip(metrics, row, strict=True)
        ]
    )


def test_within_models_nothing_is_left_of_what_models_differ_in():
    apart = cells({"x": {"m": (0, 0), "n": (1, -1)}, "y": {"m": (100, 100), "n": (101, 99)}})
    row = metric_correlation(apart, {"a": 1.0, "b": 1.0}).row(0, named=True)
    assert row["pearson"] > 0.99
    assert row["within"] == pytest.approx(-1)


def test_a_metric_that_is_missing_leaves_a_row_out_and_a_constant_one_has_no_correlation():
    some = cells({"x": {"m": (0.0, 1.0), "n": (1.0, None), "o": (2.0, 1.0)}})
    row = metric_correlation(some, {"a": 1.0, "b": 1.0}).row(0, named=True)
    assert row["rows"] == 2
    assert row["pearson"] is None
    assert row["spearman"] is None
    overall = {r["method"]: r for r in overall_score(some, {"a": 1.0, "b": 1.0}).iter_rows(named=True)}
    assert overall["n"]["raw"] is None
    assert overall["n"]["metrics"] == 1
    assert np.isnan(pearson(np.array([1.0]), np.array([1.0])))


def test_standardised_scores_are_within_a_model_and_wins_are_counted():
    some = cells({"x": {"m": (0, 1), "n": (10, 3)}, "y": {"m": (5, 5), "n": (1, 1)}})
    overall = overall_score(some, {"a": 1.0, "b": -1.0})
    by = {(r["model"], r["method"]): r for r in overall.iter_rows(named=True)}
    assert by["x", "n"]["raw"] == 7
    assert by["x", "m"]["standardised"] == by["y", "m"]["standardised"] == 0
    best = best_faithfulness(overall_score(some, {"a": 1.0})).to_dicts()
    assert {(r["method"], r["wins"], r["models"]) for r in best} == {("m", 1, 2), ("n", 1, 2)}
    assert standardised(np.array([3.0, np.nan, 3.0]))[0] == 0


def test_sensitivity_is_the_spread_over_methods(printed):
    found = sensitivity(printed, SIGNS)
    row = found.filter((pl.col("model") == "VGG16") & (pl.col("metric") == "infidelity")).row(0, named=True)
    values = [208.3502, 58.2901, 58.8416]
    assert row["deviation"] == pytest.approx(np.std(values, ddof=1))
    assert row["range"] == pytest.approx(max(values) - min(values))
    assert row["best"] == "IG"
    first = found.filter(pl.col("metric") == "infidelity").row(0, named=True)
    assert first["model"] == "VGG16"


def test_table_1_is_a_row_per_model_and_method(printed):
    table = wide(printed, list(SIGNS))
    assert table.shape == (35, 7)
    assert table.filter((pl.col("model") == "ViT/B") & (pl.col("method") == "GA"))["synscore"].item() == 0.9631


def test_table_1_keeps_data_sets_apart():
    cells = pl.DataFrame(
        {"model": ["net"] * 2, "data": ["a", "b"], "method": ["ig"] * 2, "metric": ["abpc"] * 2, "mean": [0.1, 0.2]}
    )
    assert wide(cells, ["abpc"]).rows() == [("net", "a", "ig", 0.1), ("net", "b", "ig", 0.2)]
    assert wide(cells[:1], ["abpc"]).rows() == [("net", "ig", 0.1)]


def test_table_2_is_for_a_hundred_samples_and_without_controls(long):
    from heatcheck.stats import Facts, leaderboard

    rows = pl.concat([long({"ig": [0.1, 0.2], "random": [0, 0]}, seconds=0.5, metric=m) for m in ("sds", "morf")])
    board = leaderboard(rows, Facts({"sds": True, "morf": True}), resamples=20)
    row = costs(board, memory={"net": 7}, devices={"net": "cpu"}).row(0, named=True)
    assert (row["seconds"], row["forwards"], row["backwards"]) == (50, 200, 300)
    assert (row["peak_bytes"], row["device"]) == (7, "cpu")
    assert costs(board, memory={"net": 0}).select("peak_bytes", "device").row(0) == (None, "")
    assert costs(board).height == 1
