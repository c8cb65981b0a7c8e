"""Models along factors, beside accuracy, and the stability of rankings: by hand, numpy and scipy."""

import numpy as np
import polars as pl
import pytest
from scipy import stats as scipy_stats
from tests.stats.test_paper_claims import evidence, metric, of_seeds

from heatcheck.stats.factors import along_factors, best_and_accuracy, stability

MUTANTS = (
    (
        "stats/factors.py",
        'sign * row["mean"]',
        '-sign * row["mean"]',
        "test_the_best_method_stands_beside_the_accuracy",
    ),
    ("stats/factors.py", "(min(known, key", "(max(known, key", "test_a_fall_is_that_of_the_fitted_line"),
)
MEANS = {(f"m{i}", "sds", m): 0.6 - slope * i for i in range(3) for m, slope in (("a", 0.2), ("b", -0.1))}


def test_a_fall_is_that_of_the_fitted_line():
    found = evidence(MEANS, factors={"depth": {"m0": 10.0, "m1": 20.0, "m2": 40.0}, "bias": {"m0": 1.0}})
    rows = {r["method"]: r for r in along_factors(found, "sds").iter_rows(named=True)}
    assert rows.keys() == {"a", "b"}
    for name, row in rows.items():
        means = [found.cube("sds", [f"m{i}"], [name]).values.mean() for i in range(3)]
        assert row["fall"] == pytest.approx(-np.polyfit([10, 20, 40], means, 1)[0] * 30)
        assert row["low"] < row["fall"] < row["high"]
        assert (row["factor"], row["from"], row["to"], row["n"]) == ("depth", "m0", "m2", 60)
    assert (rows["a"]["rho"], rows["b"]["rho"]) == (pytest.approx(-1), pytest.approx(1))
    assert along_factors(evidence(MEANS), "sds").height == 0


def test_the_best_method_stands_beside_the_accuracy():
    right = {"m0": np.array([1.0] * 30 + [0.0] * 10)}
    rows = best_and_accuracy(evidence(MEANS, right=right), "sds").to_dicts()
    assert [(r["model"], r["best"]) for r in rows] == [("m2", "b"), ("m1", "b"), ("m0", rows[2]["best"])]
    assert rows[2]["accuracy"] == 0.75
    assert rows[0]["accuracy"] is None


def test_stability_is_scipys_correlation_of_means():
    two = [
        metric("sds"),
        metric("sds8", "sds", spec="sds(units=grid(8))"),
        metric("blur", "sds", spec="sds(fill=blur)"),
    ]
    rng = np.random.default_rng(0)
    means = {("net", k, m): float(rng.normal()) for k in ("sds", "sds8", "blur") for m in "abcdef"}
    found = evidence(means, metrics=two)
    rows = {r["over"]: r for r in stability(found).iter_rows(named=True)}
    assert rows.keys() == {"patches", "fill"}
    a, b = (found.cube(k, ["net"], list("abcdef")).values[0].mean(1) for k in ("sds", "sds8"))
    assert rows["patches"]["spearman"] == pytest.approx(scipy_stats.spearmanr(a, b)[0])
    assert rows["fill"]["low"] <= rows["fill"]["spearman"] <= rows["fill"]["high"]


def test_seeds_are_compared_in_pairs_and_over_all_trainings():
    found = of_seeds(["abcdef", "abcdef", "bacdef"])
    rows = stability(found).filter(pl.col("over") == "seed").to_dicts()
    assert [(r["model"], r["a"], r["b"]) for r in rows] == [
        ("net", "one of 3 trainings", "another"),
        ("net", "a0", "a1"),
        ("net", "a0", "a2"),
        ("net", "a1", "a2"),
    ]
    assert rows[0]["spearman"] == pytest.approx(np.mean([r["spearman"] for r in rows[1:]]))
    assert rows[0]["low"] < min(r["low"] for r in rows[1:])  # other seeds may differ more than these
    assert stability(of_seeds(["abcdef"] * 2)).filter(pl.col("over") == "seed").height == 1
