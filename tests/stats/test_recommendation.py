"""Which method to use, on boards with known answers and against loops over all pairs."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.stats import Facts, costs, leaderboard, left_out, overall, recommendations
from heatcheck.stats.leaderboard import LEADERBOARD
from heatcheck.stats.ranks import significantly_better
from heatcheck.stats.recommendation import undominated

METRICS = ("a", "b", "c")
UP = Facts(dict.fromkeys(METRICS, True), controls=frozenset({"random"}))
MUTANTS = [
    ("stats/recommendation.py", "found.setdefault((other, method)", "found.setdefault((method, other)", "test_ties_are_those_that_no_metric_tells_apart"),
    ("stats/recommendation.py", "(one, other) in better and (other, one) not in better", "False", "test_the_best_mean_rank_is_passed_over_where_another_dominates_it"),
    ("stats/recommendation.py", "ties=tuple(m for m in alike if m not in dominated)", "ties=tuple(alike)", "test_a_tie_that_another_dominates_is_not_recommended_either"),
    ("stats/recommendation.py", "above[m] |= above[between]", "pass", "test_a_circle_is_left_to_those_in_it"),
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
    assert set(found.metrics) == count
    check_by_loops(board, found, count)


def check_by_loops(board, found, count):
    """The whole recommendation again, by loops over pairs of the methods that enough metrics rank."""
    beaten = {(r["metric"], r["method"]): r["beaten_by"] for r in board.iter_rows(named=True) if r["ranked"]}
    totals = overall(board, UP).filter(2 * pl.col("metrics") >= pl.col("of"))
    names = totals["method"].to_list()

    def wins(a, b):
        return sorted(m for m in count if a in beaten.get((m, b), ()))

    def free(b):
        return not any(wins(a, b) and not wins(b, a) for a in names)

    def met(other):
        return any((m, found.method) in beaten and (m, other) in beaten for m in count)

    assert found.method in names
    if any(map(free, names)):
        assert found.method == next(m for m in names if free(m))
    else:
        assert found.method in found.dominated
    for other in set(names) - {found.method}:
        won, lost = wins(found.method, other), wins(other, found.method)
        assert (other in found.ties) == (not won and not lost and free(other) and met(other))
        assert (other in found.lesser) == (not won and not lost and not free(other) and met(other))
        assert (other in found.behind) == (bool(won) and not lost)
        assert sorted(found.ahead.get(other, ())) == lost and sorted(found.wins.get(other, ())) == won
    assert set(found.dominated) == {m for m in names if not free(m)}
    for method, (by, metrics) in found.dominated.items():
        assert sorted(metrics) == wins(by, method) != [] and not wins(method, by)
        assert by == found.method or not wins(found.method, method) or wins(method, found.method)


def told(levels, gaps):
    """A board on which a method is significantly better than another under a metric if it is better by more than the gap."""
    rows = []
    for metric, by_method in levels.items():
        for method, level in by_method.items():
            row = dict.fromkeys(LEADERBOARD) | {"model": "net", "data": "pics", "metric": metric, "method": method}
            row |= {"control": False, "circular": False, "ranked": True, "mean": float(level), "n_ok": 20, "n": 20}
            row["rank"] = row["rank_low"] = row["rank_high"] = 1.0 + sum(x > level for x in by_method.values())
            row["beaten_by"] = [m for m, x in by_method.items() if x > level + gaps[metric]]
            rows.append(row)
    return pl.DataFrame(rows, schema=LEADERBOARD)


def test_the_best_mean_rank_is_passed_over_where_another_dominates_it():
    """As it was seen: LIME has the best mean rank, but Grad-CAM is better under one metric and not worse under the other."""
    board = told(
        {
            "a": {"grad_cam": 9, "occlusion": 6, "lime": 5, "saliency": 2},
            "b": {"lime": 9, "occlusion": 8, "saliency": 7, "grad_cam": 6},
        },
        {"a": 3, "b": 5},
    )
    assert overall(board, UP)["method"].to_list() == ["lime", "occlusion", "grad_cam", "saliency"]
    (found,) = recommendations(board, UP)
    assert (found.method, found.ties) == ("occlusion", ("grad_cam",))
    assert found.dominated == {"lime": ("grad_cam", ("a",)), "saliency": ("occlusion", ("a",))}


def test_a_tie_that_another_dominates_is_not_recommended_either():
    board = told({"a": {"top": 9, "also": 8, "near": 6, "last": 1}}, {"a": 3})
    (found,) = recommendations(board, UP)
    assert (found.method, found.ties, found.behind) == ("top", ("also", "near"), ("last",))
    board = told(
        {
            "a": {"top": 9, "also": 8, "near": 7},
            "b": {"top": 8, "also": 9, "near": 6},
            "c": {"top": 9, "also": 8, "near": 7},
        },
        {"a": 3, "b": 2, "c": 3},
    )
    (found,) = recommendations(board, UP)
    assert (
        (found.method, found.ties) == ("top", ("also",))
        and found.lesser == ("near",)
        and found.dominated == {"near": ("also", ("b",))}
    )


def test_a_circle_is_left_to_those_in_it():
    circle = {("a", "b"): ["x"], ("b", "c"): ["y"], ("c", "a"): ["z"]}
    assert undominated(["d", "c", "b", "a"], circle | {("a", "d"): ["x"]}) == ["c", "b", "a"]
    assert undominated(["e", "c", "b", "a"], circle) == ["e"]
    levels = {"a": (2, 0, 1), "b": (1, 2, 0), "c": (0, 1, 2)}
    board = told({m: dict(zip("pqr", x, strict=True)) for m, x in levels.items()}, dict.fromkeys("abc", 1))
    (found,) = recommendations(board, UP)
    assert found.method == "p" and found.ahead == {"r": ("c",)} and found.wins == {"q": ("a",)}
    assert set(found.dominated) == {"p", "q", "r"} and found.ties == ()


@given(st.data())
def test_no_other_method_dominates_the_recommended_one(data):
    """Any levels, gaps and missing cells: a dominated method is recommended only where every method is dominated."""
    methods = [f"m{i}" for i in range(data.draw(st.integers(2, 5)))]
    cell = st.one_of(st.none(), *[st.integers(0, 9)] * 4)
    drawn = {m: data.draw(st.lists(cell, min_size=len(methods), max_size=len(methods))) for m in METRICS}
    levels = {m: {k: x for k, x in zip(methods, drawn[m], strict=True) if x is not None} for m in METRICS}
    board = told(levels, {m: data.draw(st.integers(0, 5)) for m in METRICS})
    counting = {m for m in METRICS if len(levels[m]) > 1}
    found = list(recommendations(board, UP))
    assert bool(found) == bool(
        counting and any(2 * sum(k in levels[m] for m in counting) >= len(counting) for k in methods)
    )
    for one in found:
        check_by_loops(board, one, counting)


def test_a_method_ranked_under_few_metrics_is_not_recommended(long):
    x = np.arange(20.0)
    both = {"usual": x, "worse": x - 5, "random": x - 20}
    board = made(long, a=both | {"rare": x + 5}, b=both, c=both)
    assert overall(board, UP)["method"][0] == "rare"
    (found,) = recommendations(board, UP)
    assert found.method == "usual" and found.ties == () and found.behind == ("worse",)
    assert found.seldom == {"rare": ("a",)} and found.ahead == {} and found.dominated == {"worse": ("usual", METRICS)}


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
