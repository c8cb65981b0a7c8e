"""Leaderboards: accounting, ranks, the test against random, and what must not matter."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from scipy import stats as oracle

from heatcheck import stats
from heatcheck.stats import (
    Facts,
    above_zero,
    differences,
    holm,
    leaderboard,
    left_out,
    not_better_than_random,
    overall,
    separation,
    smallest_p_values,
)

CONTROLS = frozenset({"random", "sobel", "oracle"})
UP = Facts({"sds": True, "abpc": True}, controls=CONTROLS)
DOWN = Facts({"sds": False}, controls=CONTROLS)
MUTANTS = (
    (
        "stats/leaderboard.py",
        "group.oriented - group.oriented[other]",
        "group.scores - group.scores[other]",
        "test_effects_against_the_best_and_random_are_those_of_the_differences",
    ),
    (
        "stats/leaderboard.py",
        "strict_rank(rounded(group.sign * group.means[ranked], scale))",
        "strict_rank(rounded(group.means[ranked], scale))",
        "test_lower_is_better_turns_the_board",
    ),
    (
        "stats/leaderboard.py",
        "strict_rank(rounded(group.sign * group.means[ranked], scale))",
        "strict_rank(group.sign * group.means[ranked])",
        "test_rounding_is_no_reason_to_rank",
    ),
    (
        "stats/leaderboard.py",
        "for family in (control, ~control)",
        "for family in (control | ~control,)",
        "test_random_p_is_holm_over_the_methods_and_apart_for_controls",
    ),
    (
        "stats/leaderboard.py",
        "above_zero(-differences[behind]",
        "above_zero(differences[behind]",
        "test_the_test_is_one_sided",
    ),
    ("stats/leaderboard.py", "len(ranked) < 2 or (model", "len(ranked) < 1 or (model", "test_overall_known_answer"),
    (
        "stats/leaderboard.py",
        'facts.sign(metric) * np.array([entry["mean"]',
        'np.array([entry["mean"]',
        "test_overall_known_answer",
    ),
    (
        "stats/leaderboard.py",
        "2 * better >= tested.height",
        "2 * better > tested.height",
        "test_a_metric_leaves_the_mean_rank_where_few_methods_beat_random",
    ),
    (
        "stats/leaderboard.py",
        ">= sign * mean for mean in ranked",
        "<= sign * mean for mean in ranked",
        "test_a_metric_leaves_the_mean_rank_where_random_is_best",
    ),
    ("stats/leaderboard.py", "first and tied", "tied", "test_overall_tells_sole_from_shared_first_places"),
    (
        "stats/table.py",
        "elif k / measured < coverage_floor",
        "elif k / measured <= coverage_floor",
        "test_the_floor_itself_is_enough",
    ),
    (
        "stats/table.py",
        "measured = self.n - self.skipped",
        "measured = self.n",
        "test_samples_that_every_method_skips_do_not_count_against_any",
    ),
    (
        "stats/table.py",
        "(rows > 0) & (n_good == rows)",
        "(rows > 0) & (n_good > 0)",
        "test_several_rows_of_a_sample_count_once",
    ),
)


def board(table, facts=UP, **options):
    return leaderboard(table, facts, **{"resamples": 200} | options)


def row(table, method, metric="sds"):
    return table.row(by_predicate=(pl.col("method") == method) & (pl.col("metric") == metric), named=True)


def noisy(seed=0, n=40, gaps=0.0, methods=("a", "b", "c", "random", "sobel")):
    rng = np.random.default_rng(seed)
    values = {m: rng.normal(i / 4, 1, n) for i, m in enumerate(methods)}
    return {m: np.where(rng.random(n) < gaps, np.nan, v) for m, v in values.items()}


# What a row says ----------------------------------------------------------------------------------


def test_columns_and_known_answer(long):
    table = board(long({"a": [1, 2, 3], "b": [4, 5, 6], "random": [0, 0, 0]}))
    assert table.columns == [
        *("model", "data", "metric", "method", "mean", "low", "high", "heavy_tail", "n_ok", "n", "coverage"),
        *("rank", "rank_low", "rank_high", "beaten_by", "group", "detectable", "spread", "best_effect", "best_share"),
        *("control", "circular", "random_p", "random_effect", "random_share", "beats_random"),
        *("loses_to_random", "ranked", "reason", "seconds", "forwards", "backwards"),
    ]
    assert table["method"].to_list() == ["b", "a", "random"]
    assert table["mean"].to_list() == [5, 2, 0]
    assert table["rank"].to_list() == [1, 2, None]
    assert table["rank_low"].to_list() == [1, 1, None] and table["rank_high"].to_list() == [2, 2, None]  # of 3 samples
    assert table["reason"].to_list() == [None, None, "control"]
    assert table["ranked"].to_list() == [True, True, False] and table["control"].to_list()[2]
    assert table["random_p"].to_list() == [0.25, 0.25, None]  # 2⁻³, twice
    assert table["beats_random"].to_list() == [False, False, None] == table["loses_to_random"].to_list()
    assert (row(table, "a")["seconds"], row(table, "a")["forwards"]) == (1, 2)


def test_lower_is_better_turns_the_board(long):
    scores = noisy()
    up, down = board(long(scores)), board(long({m: -v for m, v in scores.items()}), DOWN)
    assert down["method"].to_list() == up["method"].to_list()
    for column in ("rank", "rank_low", "rank_high", "random_p", "beats_random", "loses_to_random"):
        assert down[column].to_list() == up[column].to_list()
    np.testing.assert_allclose(down["low"], -up["high"])


def test_intervals_are_those_of_the_methods_own_samples(long):
    scores = noisy(gaps=0.2, n=80)
    table = board(long(scores), resamples=4000)
    for method, x in scores.items():
        x = x[~np.isnan(x)]
        theirs = oracle.t.interval(0.95, len(x) - 1, x.mean(), oracle.sem(x))
        mine = row(table, method)
        assert (mine["low"], mine["high"]) == pytest.approx(theirs, abs=0.04)
        assert mine["mean"] == pytest.approx(x.mean())


def test_a_heavy_tail_is_flagged_beside_the_interval(long):
    rng = np.random.default_rng(0)
    table = board(long({"a": rng.lognormal(sigma=2.5, size=40), "b": rng.normal(size=40)}))
    assert row(table, "a")["heavy_tail"] is True and row(table, "b")["heavy_tail"] is False


@given(st.integers(0, 1000), st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_coverage_accounts_for_every_sample(long, seed, gaps):
    scores = noisy(seed, n=7, gaps=gaps)
    table = board(long(scores), resamples=20)
    assert sorted(table["method"]) == sorted(scores)
    for method, x in scores.items():
        mine, k = row(table, method), int(np.sum(~np.isnan(x)))
        assert (mine["n_ok"], mine["n"]) == (k, 7)
        assert mine["coverage"] == k / 7
        assert (mine["mean"] is None) == (k == 0)
        assert mine["ranked"] == (k >= 3.5 and method not in CONTROLS)
        assert mine["ranked"] == (mine["rank"] is not None) == (mine["reason"] is None)


@pytest.mark.parametrize(("k", "n", "floor"), [(2, 4, 0.5), (11, 20, 0.55), (7, 7, 1.0)])
def test_the_floor_itself_is_enough(long, k, n, floor):
    table = long({"a": [1.0] * k + [None] * (n - k), "b": [1.0] * (k - 1) + [None] * (n - k + 1)})
    made = board(table, coverage_floor=floor)
    assert row(made, "a")["ranked"] and not row(made, "b")["ranked"]


def test_samples_that_every_method_skips_do_not_count_against_any(long):
    """Half of the pictures carry a square; on the others there is nothing to measure."""
    scores = {"a": [1.0, 2.0] + [None] * 6, "b": [3.0] + [None] * 7, "random": [0.0, 0.0] + [None] * 6}
    made = board(long(scores, status="skipped: no mask"))
    assert row(made, "a")["ranked"] and row(made, "a")["coverage"] == 0.25
    assert row(made, "b")["ranked"] and not row(board(long(scores, status="failed: oom")), "a")["ranked"]
    mine = row(board(long(scores, status="skipped: no mask"), coverage_floor=0.75), "b")
    assert mine["reason"] == "coverage 1/2 below 0.75 (skipped: no mask)"


def test_a_row_that_is_missing_counts_as_not_covered(long):
    table = long({"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]})
    table = table.filter(~((pl.col("method") == "a") & (pl.col("sample") > "s00000")))
    mine = row(board(table), "a")
    assert (mine["n_ok"], mine["n"], mine["ranked"]) == (1, 4, False)
    assert mine["reason"] == "coverage 1/4 below 0.5 (missing: no row)"
    assert (mine["mean"], mine["low"], mine["high"]) == (1, None, None)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_a_number_that_is_none_is_not_ok_whatever_its_status_says(long, bad):
    table = long({"a": [1, 2, 3], "b": [1, 2, 3]})
    here = (pl.col("method") == "a") & (pl.col("sample") == "s00000")
    table = table.with_columns(score=pl.when(here).then(pl.lit(bad, pl.Float64)).otherwise("score"))
    mine = row(board(table, coverage_floor=0.9), "a")
    assert (mine["n_ok"], mine["mean"]) == (2, 2.5)
    assert mine["reason"] == "coverage 2/3 below 0.9 (undefined: the score is not finite)"


def test_a_number_beside_a_bad_status_is_not_used(long):
    table = long({"a": [1, 2, 3]}).with_columns(
        status=pl.when(pl.col("sample") == "s00002").then(pl.lit("failed: oom")).otherwise("status")
    )
    assert row(board(table), "a")["mean"] == 1.5


def test_methods_without_a_score_stay_last_with_their_reason(long):
    table = pl.concat(
        [
            long({"b": [1, 2, 3], "random": [0, 0, 0]}),
            long({"a": [None] * 3}, status="skipped: needs a conv layer"),
            long({"oracle": [None] * 3}, status="skipped: no mask"),
        ]
    )
    table = board(table)
    assert table["method"].to_list() == ["b", "random", "a", "oracle"]
    mine = row(table, "a")
    assert mine["reason"] == "skipped: needs a conv layer" and mine["coverage"] == 0
    assert all(mine[c] is None for c in ("mean", "low", "high", "rank", "random_p", "beats_random", "seconds"))
    assert row(table, "oracle")["reason"] == "control; skipped: no mask"


def test_the_reason_is_the_most_frequent_status(long):
    table = pl.concat([long({"a": [None] * 3}, status="failed: x"), long({"b": [1] * 3})])
    two = table["status"].to_list()
    two[0] = "failed: a"
    assert row(board(table.with_columns(status=pl.Series(two))), "a")["reason"] == "failed: x"


def test_a_skip_without_sample_adds_no_sample(long):
    skip = long({"a": [None]}, status="skipped: text only").with_columns(sample=pl.lit(None, pl.String))
    table = board(pl.concat([long({"b": [1, 2]}), skip]))
    assert row(table, "b")["n"] == 2 and row(table, "b")["coverage"] == 1
    assert row(table, "a")["reason"] == "skipped: text only"


def test_circular_methods_are_shown_and_unranked(long):
    facts = Facts({"sds": True, "abpc": True}, circular=frozenset({("a", "sds")}))
    scores = {"a": [9, 9, 8], "b": [1, 2, 3], "c": [2, 3, 4]}
    table = board(pl.concat([long(scores), long(scores, metric="abpc")]), facts)
    mine = row(table, "a")
    assert mine["circular"] and not mine["ranked"] and mine["reason"] == "circular" and mine["mean"] > 8
    assert row(table, "c")["rank"] == 1
    assert row(table, "a", "abpc")["rank"] == 1 and not row(table, "a", "abpc")["circular"]


def test_random_is_a_control_even_if_nobody_says_so(long):
    assert row(board(long({"random": [1, 2], "a": [0, 1]}), Facts({"sds": True})), "random")["control"]


def test_several_rows_of_a_sample_count_once(long):
    two = [long({"a": [1, 2], "b": [0, 0]}), long({"a": [3, None], "b": [0, 0]}, target=1)]
    mine = row(board(pl.concat(two)), "a")
    assert (mine["n"], mine["n_ok"], mine["mean"]) == (2, 1, 2)


def test_costs_are_means_over_ok_rows(long):
    table = long({"a": [1, 2, None]}).with_columns(seconds=pl.Series([1.0, 3.0, 100.0]))
    assert row(board(table), "a")["seconds"] == 2


def test_an_empty_table_gives_an_empty_board(long):
    empty = long({})
    for made in (board(empty), differences(empty, UP), separation(empty, UP), overall(board(empty), UP)):
        assert made.height == 0 and made.width > 5
    assert not_better_than_random(board(empty)).height == 0


def test_errors_say_what_is_missing(long):
    with pytest.raises(ValueError, match=r"no direction for metric 'iou' \(known: abpc, sds\)"):
        board(long({"a": [1]}, metric="iou"))
    with pytest.raises(ValueError, match="lacks status"):
        board(long({"a": [1]}).drop("status"))


# Ranks --------------------------------------------------------------------------------------------


def test_equal_methods_share_their_rank(long):
    """1 + the number of strictly better methods; which of two equal ones is better cannot be told."""
    x = np.random.default_rng(0).normal(size=20)
    table = board(long({"a": x, "b": x, "c": x - 5}))
    for method, expected in {"a": (1, 1, 2), "b": (1, 1, 2), "c": (3, 3, 3)}.items():
        mine = row(table, method)
        assert (mine["rank_low"], mine["rank"], mine["rank_high"]) == expected


def test_rounding_is_no_reason_to_rank(long):
    one, two = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]
    assert np.mean(one) != np.mean(two)
    table = board(long({"a": one, "b": two}))
    assert table["rank"].to_list() == [1, 1]


def test_rank_intervals_are_paired(long):
    # Samples differ wildly, methods by a constant: unpaired intervals overlap, ranks are certain.
    x = np.random.default_rng(0).normal(0, 100, 30)
    table = board(long({"a": x + 0.2, "b": x + 0.1, "c": x}))
    assert row(table, "a")["low"] < row(table, "c")["high"]
    assert table["rank_low"].to_list() == table["rank_high"].to_list() == [1, 2, 3]
    assert table["group"].to_list() == ["a", "b", "c"]


def test_methods_share_a_letter_unless_they_are_told_apart(long):
    rng = np.random.default_rng(1)
    x = rng.normal(0, 0.1, (5, 40)) + np.array([0.0, 1.0, 1.01, 2.0, 0.0])[:, None]
    made = board(long(dict(zip(("d", "b", "c", "a", "random"), x, strict=True))))
    groups = dict(made.select("method", "group").iter_rows())
    assert groups == {"a": "a", "b": "b", "c": "b", "d": "c", "random": None}
    least = made.filter("ranked")["detectable"].unique().to_list()
    assert len(least) == 1 and 0.03 < least[0] < 0.12


@pytest.mark.parametrize("facts", [UP, DOWN])
def test_effects_against_the_best_and_random_are_those_of_the_differences(long, facts):
    scores = long(noisy(seed=3, gaps=0.1))
    made = board(scores, facts)
    both = differences(scores, facts, resamples=50).rows(named=True)
    sizes = {(r["a"], r["b"]): (r["effect"], r["share"]) for r in both}
    sizes |= {(b, a): (-effect, 1 - share) for (a, b), (effect, share) in sizes.items()}
    best = made.filter("ranked")["method"][0]
    for r in made.iter_rows(named=True):
        for kind, other in (("best", best), ("random", "random")):
            found = (r[f"{kind}_effect"], r[f"{kind}_share"])
            if r["method"] == other or (kind == "best" and not r["ranked"]):
                assert found == (None, None)
            else:
                assert found == pytest.approx(sizes[r["method"], other])
    without = board(long({"a": [1, 2, 3], "b": [4, 5, 7]}))
    assert without["random_effect"].is_null().all() and without["best_share"].to_list() == [None, 0.0]


@pytest.mark.parametrize(("n", "certain"), [(3, False), (5, False), (6, True)])
@pytest.mark.parametrize("control", ["random", "sobel"])
def test_ranks_are_certain_only_where_a_method_can_beat_random(long, n, certain, control):
    x = np.random.default_rng(0).normal(size=n)
    made = board(long({"a": x + 20, "b": x + 10, "c": x, control: x - 10}))
    (p,) = [row["smallest_p"] for row in smallest_p_values(made).iter_rows(named=True)] or [3 * 2.0**-n]
    assert (p <= 0.05) == certain
    ranked = made.filter("ranked")
    low, high = ([1, 2, 3], [1, 2, 3]) if certain else ([1, 1, 1], [3, 3, 3])
    assert (ranked["rank_low"].to_list(), ranked["rank_high"].to_list()) == (low, high)
    assert ranked["group"].to_list() == (["a", "b", "c"] if certain else ["a"] * 3)


def test_methods_that_are_tested_and_not_ranked_count_for_the_rank_sets(long):
    x = np.random.default_rng(0).normal(size=6)
    few = np.where(np.arange(6) < 2, x, np.nan)
    made = board(long({"a": x + 20, "b": x + 10, "c": few, "d": few, "random": x - 10}))
    assert smallest_p_values(made)["smallest_p"].item() > 0.05  # 4 × 2⁻⁶
    assert made.filter("ranked")["rank_high"].to_list() == [2, 2]


@pytest.mark.parametrize(
    ("id", "spec", "range", "expected"),
    [
        ("sds", "sds", [-1, 1], (-1, 1)),
        ("sds", "sds", [None, 1], (None, 1)),
        ("sds", "sds(units=grid(2))", [-1, 1], (None, None)),
    ],
)
def test_an_interval_ends_where_the_range_of_the_metric_ends(long, id, spec, range, expected):
    metric = {"name": "sds", "id": id, "spec": spec, "better": "higher"}
    table = long({"a": [-1.0, -1.0, 1.0], "b": [1.0, 1.0, 1.0]})
    free, bound = (board(table, Facts.of({"metrics": [m]})) for m in (metric, metric | {"within": range}))
    assert row(free, "a")["low"] < -1 and row(free, "a")["high"] > 1
    for end, limit in zip(("low", "high"), expected, strict=True):
        assert row(bound, "a")[end] == (row(free, "a")[end] if limit is None else limit)
    assert (row(bound, "b")["low"], row(bound, "b")["high"]) == (1, 1)


def test_rank_intervals_widen_when_nothing_is_known(long):
    table = board(long({m: np.random.default_rng(i).normal(size=20) for i, m in enumerate("abcd")}))
    assert (table["rank_high"] - table["rank_low"]).max() >= 2


@given(st.integers(0, 1000), st.integers(6, 30), st.floats(0, 0.4), st.sampled_from([1, 50]))
@settings(max_examples=40, deadline=None)
def test_rank_interval_holds_the_rank(long, seed, n, gaps, resamples):
    table = board(long(noisy(seed, n, gaps)), resamples=resamples).filter("ranked")
    k = table.height
    assume(k)
    assert (table["rank_low"] <= table["rank"]).all() and (table["rank"] <= table["rank_high"]).all()
    assert (table["rank_low"] >= 1).all() and (table["rank_high"] <= k).all()


@given(st.integers(0, 1000), st.integers(13, 30))
@settings(max_examples=20, deadline=None)
def test_unanimity(long, seed, n):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    scores = {"b": x + rng.uniform(0.01, 1, n), "a": x, "c": rng.normal(size=n), "random": x - 0.1}
    table = long(scores)
    made = board(table)
    assert row(made, "b")["rank"] < row(made, "a")["rank"]
    assert row(made, "b")["beats_random"] and row(made, "a")["beats_random"]
    found = differences(table, UP, resamples=50).row(
        by_predicate=(pl.col("a") == "a") & (pl.col("b") == "b"), named=True
    )
    assert found["share"] == 0 and found["difference"] < 0 and found["p"] < 0.01


# What must not matter -----------------------------------------------------------------------------


def everything(table, facts=UP):
    made = board(table, facts)
    return [
        made,
        differences(table, facts, resamples=100),
        separation(table, facts, resamples=100),
        overall(made, facts),
        not_better_than_random(made),
    ]


@given(st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_row_order_does_not_matter_to_the_last_bit(long, seed):
    scores = noisy(seed, n=15, gaps=0.2)
    table = pl.concat(
        [
            long(scores),
            long(scores, target=1, seconds=0.1),
            long(noisy(seed + 1, n=9), metric="abpc", seconds=1 / 3),
        ]
    )
    for one, two in zip(everything(table), everything(table.sample(fraction=1, shuffle=True, seed=seed)), strict=True):
        assert_frame_equal(one, two, check_exact=True)


@given(st.permutations(["a", "b", "c", "d"]))
@settings(max_examples=10, deadline=None)
def test_names_do_not_matter(long, names):
    scores = noisy(n=20, gaps=0.2, methods=("a", "b", "c", "d", "random"))
    new = dict(zip("abcd", names, strict=True)) | {"random": "random"}
    one, two = board(long(scores)), board(long({new[m]: v for m, v in scores.items()}))
    renamed = pl.col("beaten_by").list.eval(pl.element().replace(new)).list.sort()
    assert_frame_equal(one.with_columns(pl.col("method").replace(new), renamed), two, check_exact=True)


def test_other_metrics_models_and_data_do_not_matter(long):
    mine, other = long(noisy(0)), long(noisy(1))
    alone = everything(mine)[:3]
    beside = everything(
        pl.concat(
            [
                other.with_columns(metric=pl.lit("abpc")),
                mine,
                other.with_columns(model=pl.lit("a net")),
                other.with_columns(data=pl.lit("z")),
            ]
        )
    )[:3]
    for one, two in zip(alone, beside, strict=True):
        here = (pl.col("metric") == "sds") & (pl.col("model") == "net") & (pl.col("data") == "pics")
        assert_frame_equal(one, two.filter(here), check_exact=True)


def test_the_seed_matters_and_repeats(long):
    table = long(noisy(gaps=0.1))
    assert_frame_equal(board(table, seed=1), board(table, seed=1), check_exact=True)
    assert board(table, seed=1)["low"].to_list() != board(table, seed=2)["low"].to_list()


def test_a_control_more_does_not_change_the_methods(long):
    scores = noisy()
    with_control = board(long(scores | {"oracle": np.full(40, 9.0)})).filter(~pl.col("control"))
    assert_frame_equal(board(long(scores)).filter(~pl.col("control")), with_control, check_exact=True)


# Against random -----------------------------------------------------------------------------------


def test_random_p_is_holm_over_the_methods_and_apart_for_controls(long):
    scores = noisy(n=10)
    table = board(long(scores))
    raw = {m: above_zero(v - scores["random"])[0] for m, v in scores.items() if m != "random"}
    expected = holm(np.array([raw[m] for m in "abc"]))
    assert [row(table, m)["random_p"] for m in "abc"] == pytest.approx(expected.tolist())
    assert row(table, "sobel")["random_p"] == pytest.approx(raw["sobel"])


def test_random_is_compared_on_common_samples(long):
    # a is scored where everything scores high; on the samples shared with random it is worse.
    a = [50.0] * 20 + [0.0] * 20
    chance = [None] * 20 + [1.0] * 20
    mine = row(board(long({"a": a, "random": chance})), "a")
    assert mine["mean"] == 25 and mine["beats_random"] is False and mine["random_p"] == 1


def test_the_test_is_one_sided(long):
    x = np.random.default_rng(0).normal(size=30)
    table = board(long({"worse": x - 1, "better": x + 1, "random": x}))
    assert row(table, "worse")["random_p"] == 1
    assert row(table, "better")["beats_random"] is True
    assert [row(table, m)["loses_to_random"] for m in ("worse", "better", "random")] == [True, False, None]


@pytest.mark.parametrize("n", [6, 30])
def test_losing_is_beating_with_the_metric_turned(long, n):
    for seed in range(8):
        scores = noisy(seed, n, methods=("random", "a", "b", "c", "sobel"))
        scores["random"] = scores["random"] + seed / 3
        up, turned = board(long(scores), Facts({"sds": True}, CONTROLS)), board(long(scores), DOWN)
        for method in scores:
            assert row(up, method)["loses_to_random"] == row(turned, method)["beats_random"]
            assert row(up, method)["beats_random"] == row(turned, method)["loses_to_random"]


def test_without_random_nothing_is_claimed(long):
    table = board(long({"a": [1, 2], "b": [0, 1]}))
    assert table["beats_random"].null_count() == table["random_p"].null_count() == 2
    assert table["loses_to_random"].null_count() == 2
    assert not_better_than_random(table)["methods"].to_list() == [None]


def test_methods_not_better_than_random_are_listed_per_metric(long):
    x = np.random.default_rng(0).normal(size=30)
    one = {"a": x + 1, "b": x, "c": x - 1, "random": x, "sobel": x - 1}
    two = {"a": x + 1, "b": x + 1, "random": x}
    table = not_better_than_random(board(pl.concat([long(one), long(two, metric="abpc")])))
    assert table.select("metric", "methods").rows() == [("abpc", []), ("sds", ["b", "c"])]


def test_false_alarms_are_as_rare_as_promised(long):
    rng = np.random.default_rng(0)
    alarms = 0
    for trial in range(150):
        scores = {m: rng.exponential(size=20) for m in ("a", "b", "c", "random")}
        table = board(long(scores), resamples=5, seed=trial)
        alarms += table["beats_random"].fill_null(False).any()
    assert alarms / 150 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)
    assert alarms > 0  # a test that never fires would pass the line above


# Over all metrics ---------------------------------------------------------------------------------


def test_overall_known_answer(long):
    facts = Facts({"m1": True, "m2": False, "m3": True}, controls=CONTROLS)
    scores = pl.concat(
        [
            long({"a": [3, 3], "b": [2, 2], "c": [1, 1], "random": [0, 0]}, metric="m1"),
            long({"a": [3, 3], "b": [1, 1], "random": [9, 9]}, metric="m2"),
            long({"a": [1, 1], "b": [None, None]}, metric="m3"),  # ranks one method only: orders nothing
            long({"d": [None, None]}, metric="m1", status="skipped: x"),
        ]
    )
    table = overall(board(scores, facts), facts)
    z = np.sqrt(1.5)
    assert table.drop("model", "data").rows() == [
        ("a", 1.5, 1.0, 2.5, pytest.approx((z - 1) / 2), 1, 0, 2, 2),
        ("b", 1.5, 1.0, 2.5, pytest.approx((0 + 1) / 2), 1, 0, 2, 2),
        ("c", 3.0, 1.0, 3.0, pytest.approx(-z), 0, 0, 1, 2),
        ("d", None, None, None, None, 0, 0, 0, 2),
    ]


def test_overall_of_a_tie(long):
    table = overall(board(long({"a": [0.1, 0.2, 0.3], "b": [0.3, 0.2, 0.1]})), UP)
    assert table["wins"].to_list() == [1, 1] == table["shared"].to_list() and table["mean_z"].to_list() == [0, 0]


def test_overall_tells_sole_from_shared_first_places(long):
    one, two = {"a": [2, 2], "b": [2, 2], "c": [1, 1]}, {"a": [2, 2], "b": [1, 1], "c": [0, 0]}
    table = overall(board(pl.concat([long(one), long(two, metric="abpc")])), UP)
    assert table.select("method", "wins", "shared").rows() == [("a", 2, 1), ("b", 1, 1), ("c", 0, 0)]


def test_metrics_apart_are_ranked_and_do_not_count_in_the_mean_rank(long):
    table = board(pl.concat([long({"a": [2, 2], "b": [1, 1]}), long({"a": [1, 1], "b": [2, 2]}, metric="abpc")]))
    assert row(table, "b", "abpc")["rank"] == 1
    got = overall(table, Facts({"sds": True, "abpc": True}, CONTROLS, outside_mean_rank=frozenset({"abpc"})))
    assert got.select("method", "mean_rank", "wins", "metrics", "of").rows() == [("a", 1, 1, 1, 1), ("b", 2, 0, 1, 1)]


def left(table, **facts):
    facts = Facts({"sds": True, "abpc": True}, CONTROLS, **facts)
    made = board(table, facts)
    return dict(left_out(made, facts).select("metric", "reason").rows()), overall(made, facts)


def against(gaps, n=20, seed=0, **options):
    """A table in which each method's scores are random's, plus a gap, plus noise."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n)
    methods = {f"m{i}": base + gap + 0.1 * rng.normal(size=n) for i, gap in enumerate(gaps)}
    return {**methods, "random": base}


def test_a_metric_leaves_the_mean_rank_where_random_is_best(long):
    good, bad = against([2, 1]), against([-1, -2])
    reasons, total = left(pl.concat([long(good), long(bad, metric="abpc")]))
    assert reasons == {"abpc": "random has the best mean of all"}
    assert total.select("method", "mean_rank", "metrics", "of").rows() == [("m0", 1, 1, 1), ("m1", 2, 1, 1)]
    turned, _ = left(long(bad | {"m1": bad["random"] + 3}))
    assert turned == {}  # one of two is half


@pytest.mark.parametrize(
    ("gaps", "reason"),
    [
        ([1, 0, 0.001], "only 1 of 3 methods is better than random"),
        ([1, 1, 0, 0, -1], "only 2 of 5 methods are better than random"),
        ([0.01, -0.01, -0.01], "no method is better than random"),
        ([1, 1, 0, 0], None),
        ([1, 0], None),
    ],
)
def test_a_metric_leaves_the_mean_rank_where_few_methods_beat_random(long, gaps, reason):
    reasons, total = left(long(against(gaps, seed=3)))
    assert reasons.get("sds") == reason
    assert total["mean_rank"].is_null().all() == (reason is not None)
    assert total.height == len(gaps)


def test_a_papers_metrics_all_count(long):
    table = long(against([-1, -2]))
    assert left(table)[0] and left(table)[1]["mean_rank"].is_null().all()
    reasons, total = left(table, paper=True)
    assert reasons == {} and total["mean_rank"].to_list() == [1, 2]


def test_too_few_samples_are_no_reason_against_a_metric(long):
    assert left(long(against([1, 1, 1], n=3)))[0] == {}
    assert left(long({m: v for m, v in against([-1, -2]).items() if m != "random"}))[0] == {}


def test_form_and_sanity_have_their_own_reason(long):
    reasons, _ = left(long(against([1, 1])), outside_mean_rank=frozenset({"sds"}))
    assert reasons["sds"].startswith("it does not measure faithfulness")


# The house ----------------------------------------------------------------------------------------


def test_importing_stats_is_light():
    # The parent package is stood in for: what it imports is not this test's matter.
    code = (
        "import sys, types; parent = types.ModuleType('heatcheck'); parent.__path__ = [sys.argv[1]];"
        "sys.modules['heatcheck'] = parent; import heatcheck.stats;"
        "print(sorted({'torch', 'scipy'} & set(sys.modules)))"
    )
    home = str(Path(stats.__file__).parent.parent)
    done = subprocess.run([sys.executable, "-c", code, home], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_metric_of_the_model_ranks_nobody_and_holds_nobody_against_random(long):
    facts = Facts({"sds": True}, controls=CONTROLS, of_model=frozenset({"sds"}))
    scores = long({"a": [1, 0, 1], "b": [1, 0, 1], "random": [1, 0, 1]})
    got = board(scores, facts)
    assert not got["ranked"].any() and got["beats_random"].is_null().all() and got["rank"].is_null().all()
    assert row(got, "a")["reason"] == "the metric measures the model, not the map"
    assert row(got, "a")["mean"] == pytest.approx(2 / 3)
    assert not_better_than_random(got)["methods"].is_null().all()
