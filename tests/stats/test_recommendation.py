"""Which method to use, on boards with known answers and against loops over all pairs."""

import numpy as np
import polars as pl
import pytest

from heatcheck.stats import Facts, costs, leaderboard, left_out, overall, recommendations
from heatcheck.stats.leaderboard import LEADERBOARD
from heatcheck.stats.ranks import significantly_better

METRICS = ("a", "b", "c")
UP = Facts(dict.fromkeys(METRICS, True), controls=frozenset({"random"}))
MUTANTS = [
    ("stats/recommendation.py", "elif chosen in beaten_by:", "elif method in beaten_by:", "test_ties_are_those_that_no_metric_tells_apart"),
    ("stats/recommendation.py", '2 * pl.col("metrics") >= pl.col("of")', '2 * pl.col("metrics") >= 0', "test_a_method_ranked_under_few_metrics_is_not_recommended"),
    ("stats/recommendation.py", 'on=KEYS, how="anti"', 'on=KEYS, how="semi"', "test_metrics_that_do_not_count_decide_nothing"),
    ("stats/leaderboard.py", "zip(group.methods, better[:, i], strict=True)", "zip(group.methods, better[i], strict=True)", "test_who_beats_whom_stands_on_the_board"),
]  # fmt: skip


def made(long, **by_metric):
    return leaderboard(pl.concat([long(scores, metric=m) for m, scores in by_metric.items()]), UP, resamples=50)


def noisy(level, shift=0.0, n=20):
    return level + np.where(np.arange(n) % 2, 1.0, -1.0) + shift * np.arange(n) % 3


def test_ties_are_those_that_no_metric_tells_apart(long):
    x = np.arange(20.0)
    wiggle = np.where(x % 2, 1.0, -1.1)
    board = made(
        long,
        a={"best": x, "tied": x + wiggle, "below": x - 9, "mixed": x - 9, "random": x - 20},
        b={"best": x, "tied": x + wiggle, "below": x - 9, "mixed": x + 9, "random": x - 20},
        c={"best": x, "tied": x + wiggle, "below": x - 9, "mixed": x - 9, "random": x + wiggle},
    )
    (found,) = recommendations(board, UP)
    assert (found.model, found.data, found.method) == ("net", "pics", "best")
    assert found.ties == ("tied",) and found.behind == ("below",) and found.ahead == {"mixed": ("b",)}
    assert found.metrics == ("a", "b") and found.tested == METRICS  # under c, random does as well as any
    assert found.not_better == ("c",)


def test_who_beats_whom_stands_on_the_board(long):
    rng = np.random.default_rng(0)
    scores = {f"m{i}": rng.normal(i / 2, 1, 30) for i in range(6)}
    board = leaderboard(long(scores, metric="a"), UP, resamples=200)
    better = significantly_better(np.array(list(scores.values())), seed=0, resamples=200, level=0.95)
    names = list(scores)
    assert better.any() and not better.all()
    for j, name in enumerate(names):
        row = board.row(by_predicate=pl.col("method") == name, named=True)
        assert row["beaten_by"] == [names[i] for i in range(len(names)) if better[i, j]]
        assert row["rank_low"] == 1 + len(row["beaten_by"])


@pytest.mark.parametrize("seed", range(8))
def test_a_loop_over_all_pairs_agrees(long, seed):
    rng = np.random.default_rng(seed)
    methods = ("m0", "m1", "m2", "m3", "random")
    board = made(
        long,
        **{
            metric: {m: rng.normal(-4 if m == "random" else rng.normal(0, 1), 0.7, 20) for m in methods}
            for metric in METRICS
        },
    )
    (found,) = recommendations(board, UP)
    count = set(METRICS) - set(left_out(board, UP)["metric"])
    assert found.method == overall(board, UP)["method"][0] and set(found.metrics) == count
    beaten = {(r["metric"], r["method"]): r["beaten_by"] for r in board.iter_rows(named=True) if r["ranked"]}
    for other in {"m0", "m1", "m2", "m3"} - {found.method}:
        wins = [m for m in count if found.method in beaten[m, other]]
        losses = sorted(m for m in count if other in beaten[m, found.method])
        assert (other in found.ties) == (not wins and not losses)
        assert (other in found.behind) == (bool(wins) and not losses)
        assert sorted(found.ahead.get(other, ())) == losses


def test_a_method_ranked_under_few_metrics_is_not_recommended(long):
    x = np.arange(20.0)
    both = {"usual": x, "worse": x - 5, "random": x - 20}
    board = made(long, a=both | {"rare": x + 5}, b=both, c=both)
    assert overall(board, UP)["method"][0] == "rare"
    (found,) = recommendations(board, UP)
    assert found.method == "usual" and found.ties == () and found.behind == ("worse",)


def test_metrics_that_do_not_count_decide_nothing(long):
    x = np.arange(20.0)
    board = made(long, a={"one": x, "two": x - 1, "random": x - 9}, b={"one": x - 5, "two": x, "random": x - 9})
    (found,) = recommendations(board, Facts(UP.higher_is_better, UP.controls, outside_mean_rank=frozenset({"b"})))
    assert found.method == "one" and found.metrics == ("a",) and found.behind == ("two",) and found.ahead == {}


def test_nothing_is_recommended_where_nothing_is_ranked(long):
    assert list(recommendations(made(long, a={"alone": [1, 2], "random": [0, 0]}), UP)) == []
    assert list(recommendations(pl.DataFrame(schema=LEADERBOARD), UP)) == []


def test_a_map_costs_its_passes(long):
    board = leaderboard(
        pl.concat([long({"m": [1, 2]}, metric="a"), long({"z": [1]}, metric="a", forwards=0, backwards=0)]), UP
    )
    assert costs(board).select("method", "passes", "seconds").rows() == [("m", 5, 1), ("z", None, 1)]
