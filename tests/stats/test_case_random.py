"""Cases beside the random control: the leaderboard's own tests, case by case."""

import numpy as np
import polars as pl
from tests.stats.conftest import build

from heatcheck.stats import Facts, case_table, cases_against_random, leaderboard
from heatcheck.stats.meta_cases import CaseProtocol

MUTANTS = (
    ("stats/case_random.py", "better[i, k] = p[at] <= 1 - level", "better[i, k] = p[at] <= 1", "test_the_tests_are_the_leaderboards"),
    ("stats/case_random.py", " and not np.isnan(table.ranks[i, k])", "", "test_what_a_case_does_not_rank_does_not_count"),
    ("stats/case_random.py", "few[i] = too_few(most, len(tests), level)", "few[i] = False", "test_too_few_samples_are_known"),
)  # fmt: skip
FACTS = Facts.of(
    {
        "methods": [{"name": "random", "id": "random", "control": True}],
        "metrics": [{"name": "morf", "better": "higher"}, {"name": "lerf", "better": "lower"}],
        "circular": [("c", "lerf")],
    }
)
PROTOCOLS = {name: CaseProtocol(name, name, name, "curve") for name in ("morf", "lerf")}


def scores(n=20, gap=2.0, **more):
    rng = np.random.default_rng(0)
    table = {m: rng.normal(x, 1, n) for m, x in (("a", gap), ("b", 0.1), ("c", gap), ("random", 0))}
    return build(table, **more)


def test_the_tests_are_the_leaderboards():
    whole = pl.concat(
        [
            scores(metric="morf", model="one"),
            scores(metric="lerf", model="one"),
            scores(gap=0.0, metric="morf", model="two"),
        ]
    )
    table = case_table(whole, FACTS, PROTOCOLS)
    found = cases_against_random(whole, FACTS, table)
    board = {
        (r["model"], r["metric"], r["method"]): r["beats_random"]
        for r in leaderboard(whole, FACTS).iter_rows(named=True)
    }
    for case, row in zip(table.cases, found.better, strict=True):
        for method, better in zip(table.methods, row, strict=True):
            if not np.isnan(better):
                assert bool(better) == board[case.model, case.protocol.name, method]
    assert found.tested == 3 and [table.cases[i].name for i in found.nothing] == [
        "one · pics · lerf",
        "two · pics · morf",
    ]
    assert not found.few.any()
    assert found.columns(["c", "a", "b"]).rows() == [("c", 1, 2), ("a", 2, 3), ("b", 3, 3)]


def test_what_a_case_does_not_rank_does_not_count():
    """A circular method that beats random by construction is no reason to say that something does."""
    lerf = scores(metric="lerf").with_columns(
        score=pl.when(pl.col("method").cast(pl.String) == "c").then(pl.col("score") - 9).otherwise("score")
    )
    whole = pl.concat([lerf, scores(metric="morf")])
    table = case_table(whole, FACTS, PROTOCOLS)
    found = cases_against_random(whole, FACTS, table)
    assert table.methods == ("a", "b", "c") and [table.cases[i].protocol.name for i in found.nothing] == ["lerf"]
    board = leaderboard(whole, FACTS).filter(method="c", metric="lerf")
    assert board["beats_random"].to_list() == [True]


def test_too_few_samples_are_known():
    whole = scores(n=4, gap=50.0, metric="morf")
    found = cases_against_random(whole, FACTS, case_table(whole, FACTS, PROTOCOLS))
    assert found.nothing == (0,) and found.few.tolist() == [True]


def test_without_random_nothing_is_said():
    whole = scores(metric="morf").filter(pl.col("method").cast(pl.String) != "random")
    found = cases_against_random(whole, FACTS, case_table(whole, FACTS, PROTOCOLS))
    assert found.tested == 0 and found.nothing == () and np.isnan(found.better).all()
    assert found.columns(["a"]).rows() == [("a", 0, 0)]
