"""Agreement of rankings, against scipy and by its laws."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats as oracle

from heatcheck.stats import Facts, agreement, concordance, kendall_tau, kendall_w, leaderboard, spearman

MUTANTS = (
    (
        "stats/agreement.py",
        "np.count_nonzero(dx)) * float(np.count_nonzero(dy))",
        "np.count_nonzero(dx)) * float(np.count_nonzero(dx))",
        "test_correlations_agree_with_scipy",
    ),
    (
        "stats/agreement.py",
        "np.sqrt(np.sum(dx**2) * np.sum(dy**2))",
        "np.sum(dx**2)",
        "test_correlations_agree_with_scipy",
    ),
    ("stats/agreement.py", "12 * np.sum(", "6 * np.sum(", "test_w_known_answers"),
    ("stats/agreement.py", "t**3 - t", "t**2 - t", "test_w_follows_from_friedmans_statistic"),
    ("stats/agreement.py", 'setting["tau"].mean()', 'setting["tau"].max()', "test_concordance_over_all_metrics"),
)
pairs = hnp.arrays(float, st.tuples(st.just(2), st.integers(2, 10)), elements=st.integers(0, 5))
tables = hnp.arrays(float, st.tuples(st.integers(2, 6), st.integers(2, 8)), elements=st.integers(0, 4))


@given(pairs)
def test_correlations_agree_with_scipy(xy):
    x, y = xy
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert np.isnan(kendall_tau(x, y)) and np.isnan(spearman(x, y))
    else:
        assert kendall_tau(x, y) == pytest.approx(oracle.kendalltau(x, y).statistic, abs=1e-12)
        assert spearman(x, y) == pytest.approx(oracle.spearmanr(x, y).statistic, abs=1e-12)


@given(st.permutations(range(6)), st.permutations(range(6)))
def test_reversing_one_ranking_turns_the_sign(x, y):
    x, y = np.array(x), np.array(y)
    assert kendall_tau(x, -y) == pytest.approx(-kendall_tau(x, y))
    assert spearman(x, -y) == pytest.approx(-spearman(x, y))
    assert kendall_tau(x, x) == spearman(x, x) == 1


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_to_correlate(n):
    assert np.isnan(kendall_tau(np.zeros(n), np.zeros(n))) and np.isnan(spearman(np.zeros(n), np.zeros(n)))


@given(tables)
def test_w_follows_from_friedmans_statistic(table):
    m, n = table.shape
    if n < 3 or all(np.ptp(case) == 0 for case in table):
        return
    expected = oracle.friedmanchisquare(*table.T).statistic / (m * (n - 1))
    assert kendall_w(table) == pytest.approx(expected, abs=1e-10)


@given(st.lists(st.permutations(range(5)), min_size=2, max_size=6))
def test_w_and_mean_spearman_are_one_thing(rankings):
    table = np.array(rankings, dtype=float)
    m = len(table)
    mean = np.mean([spearman(table[i], table[j]) for i in range(m) for j in range(i)])
    assert mean == pytest.approx((m * kendall_w(table) - 1) / (m - 1))


def test_w_known_answers():
    assert kendall_w(np.array([[1, 2, 3], [1, 2, 3]])) == 1
    assert kendall_w(np.array([[1, 2, 3], [3, 2, 1]])) == 0
    assert kendall_w(np.array([[1, 2, 3], [1, 3, 2]])) == pytest.approx(0.75)
    assert kendall_w(np.array([[1.5, 1.5, 3], [1.5, 1.5, 3]])) == pytest.approx(1)
    assert np.isnan(kendall_w(np.array([[2, 2, 2.0]])))
    assert np.isnan(kendall_w(np.empty((0, 3)))) and np.isnan(kendall_w(np.empty((2, 0))))


@pytest.fixture(scope="module")
def board(long):
    facts = Facts({"m1": True, "m2": False, "m3": True}, controls=frozenset({"random"}))
    table = pl.concat(
        [
            long({"a": [4, 4], "b": [3, 3], "c": [2, 2], "d": [1, 1], "random": [9, 9]}, metric="m1"),
            long({"a": [1, 1], "b": [2, 2], "c": [3, 3], "d": [4, 4], "random": [9, 9]}, metric="m2"),
            long({"a": [1, 1], "b": [2, 2], "c": [3, 3]}, metric="m3"),
            long({"a": [1, 1], "b": [2, 2], "c": [3, 3], "d": [4, 4]}, metric="m1", model="other"),
        ]
    )
    return leaderboard(table, facts, resamples=20)


def test_metrics_are_compared_on_the_methods_both_rank(board):
    table = agreement(board)
    assert table.columns == ["model", "data", "a", "b", "methods", "tau", "spearman"]
    assert table.rows() == [
        ("net", "pics", "m1", "m2", 4, 1.0, 1.0),
        ("net", "pics", "m1", "m3", 3, -1.0, -1.0),
        ("net", "pics", "m2", "m3", 3, -1.0, -1.0),
    ]


def test_concordance_over_all_metrics(board):
    table = concordance(board)
    assert table.columns == ["model", "data", "cases", "methods", "kendall_w", "tau", "spearman"]
    net, other = table.rows(named=True)
    assert (net["cases"], net["methods"]) == (3, 3)
    assert net["kendall_w"] == pytest.approx(1 / 9)
    assert net["tau"] == net["spearman"] == pytest.approx(-1 / 3)
    assert other["cases"] == 1 and other["kendall_w"] is None and other["tau"] is None


def test_agreement_across_models(board):
    table = agreement(board, across="model")
    assert table.columns[:2] == ["data", "metric"]
    assert table.rows() == [("pics", "m1", "net", "other", 4, -1.0, -1.0)]
    assert concordance(board, across="model").filter(pl.col("metric") == "m1")["kendall_w"].item() == 0


def test_nothing_in_nothing_out(board):
    assert agreement(board.clear()).height == concordance(board.clear()).height == 0
    with pytest.raises(ValueError, match="expected one of model, data, metric"):
        agreement(board, across="method")
