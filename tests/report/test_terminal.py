"""The terminal's leaderboard: what it says, that it fits, and that names stay names."""

import io

import polars as pl
import pytest
from rich.console import Console

from heatcheck import stats
from heatcheck.report.terminal import leaderboard, leaderboard_table
from heatcheck.report.wording import decimals, half_interval, number, rank_set
from heatcheck.stats import Facts
from heatcheck.stats.leaderboard import LEADERBOARD

MUTANTS = (
    (
        "report/terminal.py",
        "if len(parts) > 1 and cell_len(parts[-1]) < _REST:",
        "if False:",
        "test_words_of_headings_stay_whole",
    ),
)


def printed(thing, width=160, **options):
    console = Console(width=width, file=io.StringIO(), color_system=None, **options)
    console.print(thing)
    return console.file.getvalue()


def small(fake, **other):
    few = {
        "grad_cam": (0.8, 4, 1, 1),
        "occlusion(units=grid(4))": (0.9, 4, 17, 0),
        "lime": (0.5, 4, 9, 0),
        "bad": (0, 8, 1, 1),
    }
    return fake(**{"methods": few, "metrics": ("sds", "morf"), "n": 12, "side": 8, "shown": 0} | other)


def line(text, start):
    return next(row for row in text.splitlines() if row.strip().startswith(start))


def test_it_shows_means_intervals_and_ranks(fake):
    run = small(fake)
    board = stats.leaderboard(run.scores(), Facts.of(run.facts))
    text = printed(leaderboard(run))
    mine = board.filter((pl.col("method") == "grad_cam") & (pl.col("metric") == "sds")).row(0, named=True)
    half = (mine["high"] - mine["low"]) / 2
    assert f"{mine['mean']:.3f} ±{half:.3f}" in line(text, "grad_cam")
    assert "sds ↑" in text and "morf ↓" in text
    assert "·" in line(text, "occlusion") and "circular:" in text
    assert "not better than random under morf, sds: bad" in text
    assert "lime not ranked under morf, sds: coverage 4/12 below 0.5" in text
    assert "–" in line(text, "constant")


def test_controls_are_dimmed_and_below(fake):
    console = Console(width=160, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(leaderboard(small(fake)))
    rows = console.file.getvalue().splitlines()
    at = {
        name: i
        for i, row in enumerate(rows)
        for name in ("grad_cam", "random", "sobel")
        if row.strip("\x1b[0123456789m ").startswith(name)
    }
    assert at["grad_cam"] < at["random"] < at["sobel"]
    assert "\x1b[2m" in rows[at["random"]].partition("random")[0]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_it_fits_and_loses_no_number(fake, width):
    run = small(fake, metrics=("sds", "morf", "abpc", "infidelity", "mprt"), spoil=False)
    text = printed(leaderboard(run), width)
    assert all(len(row) <= width for row in text.splitlines())
    board = stats.leaderboard(run.scores(), Facts.of(run.facts))
    for mean in board.filter(pl.col("metric") == "sds")["mean"]:
        assert f"{mean:.3f}".replace("-", "−") in text


def test_names_stay_names(fake):
    words = {"grad_cam": "[bold]x[/bold]", "bad": "evil\x1b]0;title\x07\u202e"}
    run = small(fake, word=lambda kind, name: words.get(name, name))
    text = printed(leaderboard(run))
    assert "[bold]x[/bold]" in text and "\x1b" not in text and "\u202e" not in text
    assert "evil\\u001b" in text


def test_an_empty_board_says_so(fake):
    run = small(fake, n=0)
    board = stats.leaderboard(run.scores(), Facts.of(run.facts))
    assert "No scores yet" in printed(leaderboard_table(board, run.facts))


def test_a_partial_mean_is_starred(fake):
    run = small(fake, spoil=False)
    gone = (pl.col("method") == "grad_cam") & pl.col("sample").str.ends_with("#3")
    run._scores = run.scores().with_columns(
        score=pl.when(~gone).then("score"), status=pl.when(gone).then(pl.lit("failed: x")).otherwise("status")
    )
    text = printed(leaderboard(run))
    assert "*" in line(text, "grad_cam") and "* mean over part of the samples" in text


LONG = {
    "sds": "faithfulness_correlation",
    "morf": "random_logit",
    "abpc": "morf(fill=migan, units=grid(4))",
    "infidelity": "a" * 40,
}


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_long_headings_fold_and_keep_arrows_numbers_and_ranks(fake, width):
    run = small(fake, metrics=("sds", "morf", "abpc", "infidelity", "mprt"), word=lambda _, name: LONG.get(name, name))
    text = printed(leaderboard(run), width)
    head = "".join(row for row in text.splitlines() if "↑" in row or "↓" in row)
    assert (head.count("↑"), head.count("↓")) == (3, 2)
    assert "…" not in text and all(len(row) <= width for row in text.splitlines())
    assert all(word in text for word in ("faithfulness_", "correlation ↑", "logit ↓", "fill=migan,", "a" * 16))
    shown = " ".join(" ".join(row.split()) for row in text.splitlines() if row.strip().startswith("grad_cam "))
    board = stats.leaderboard(run.scores(), Facts.of(run.facts))
    for (_,), rows in board.group_by("metric"):
        mine = rows.row(by_predicate=pl.col("method") == "grad_cam", named=True)
        places = decimals(rows["mean"].abs().max())
        half = half_interval(mine, places, Facts.of(run.facts).bounds(mine["metric"])) if width >= 110 else ""
        span = rank_set(mine)
        place = f"{mine['rank']:g} ({span})" if span and width >= 110 else span or f"{mine['rank']:g}"
        assert f"{number(mine['mean'], places)}{half} {place} " in f"{shown} "


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_words_of_headings_stay_whole(fake, width):
    names = {"sds": "comprehensiveness", "morf": "soft_comprehensiveness(units=sentence)", "abpc": "b" * 33}
    run = small(fake, metrics=("sds", "morf", "abpc"), word=lambda _, name: names.get(name, name))
    text = printed(leaderboard(run), width)
    assert all(len(row) <= width for row in text.splitlines())
    head = [word for row in text.splitlines() for word in row.split()]
    assert {"comprehensiveness", "comprehensiveness(", "soft_", "units=sentence)", "b" * 17, "b" * 16} <= set(head)
    assert [word in ("↑", "↓") for word in head].count(True) == 3


@pytest.mark.parametrize("width", [40, 80, 160])
def test_a_mean_rank_over_a_part_of_the_metrics_says_so(fake, width):
    text = printed(leaderboard(small(fake)), width)
    rows = text.splitlines()
    at = next(i for i, row in enumerate(rows) if row.strip().startswith("occl"))
    assert "(1/2)" in " ".join(rows[at : at + 2])
    assert "/2)" not in line(text, "grad_cam")
    assert width < 60 or "1.00 (1/2)" in text or "2.00 (1/2)" in text
    assert "(1/2) ranked under 1 of 2 metrics" in " ".join(text.split())


@pytest.mark.parametrize(("n", "samples"), [(1, "1 sample"), (3, "3 samples")])
def test_few_samples_are_no_finding(fake, n, samples):
    text = printed(leaderboard(small(fake, n=n, spoil=False)))
    assert text.count(f"With {samples}, no method can be significantly better than random; use more.") == 1
    assert "not better than random" not in text


def test_only_the_metric_with_few_scores_has_too_few(fake):
    run = small(fake, spoil=False)
    gone = (pl.col("metric") == "morf") & ~pl.col("sample").str.contains("#[01]$")
    run._scores = run.scores().with_columns(
        score=pl.when(~gone).then("score"), status=pl.when(gone).then(pl.lit("undefined: x")).otherwise("status")
    )
    text = printed(leaderboard(run))
    assert "no method can be significantly better than random under morf; use more." in text
    assert "not better than random under sds: bad" in text


def test_samples_that_random_has_no_score_for_do_not_count(fake):
    run = small(fake, spoil=False, metrics=("sds",))
    gone = (pl.col("method") == "random") & ~pl.col("sample").str.contains("#[012]$")
    run._scores = run.scores().with_columns(
        score=pl.when(~gone).then("score"), status=pl.when(gone).then(pl.lit("undefined: x")).otherwise("status")
    )
    assert "With 3 samples, no method can be significantly better than random; use more." in printed(leaderboard(run))


@pytest.mark.parametrize(("width", "shown"), [(80, ["1–3", "2", "1–3"]), (120, ["1 (1–3)", "2", "3 (1–3)"])])
def test_a_rank_set_stands_beside_its_rank_where_there_is_room(width, shown):
    row = dict.fromkeys(LEADERBOARD)
    row |= {"model": "net", "data": "pics", "metric": "sds", "control": False, "circular": False, "ranked": True}
    row |= {"mean": 0.5, "low": 0.4, "high": 0.6, "heavy_tail": False, "n_ok": 30, "n": 30}
    sets = {"a": (1, 1, 3), "b": (2, 2, 2), "c": (1, 3, 3)}
    rows = [row | {"method": m, "rank_low": low, "rank": at, "rank_high": high} for m, (low, at, high) in sets.items()]
    board = pl.DataFrame(rows, schema=LEADERBOARD)
    text = printed(leaderboard_table(board, {"metrics": [{"name": "sds", "better": "higher"}]}), width)
    assert all(line(text, f"{m} ").rstrip().endswith(f" {end}") for m, end in zip("abc", shown, strict=True))


def test_a_column_of_mean_ranks_is_shown_only_if_a_method_has_one(fake):
    run = small(fake, spoil=False)
    assert "mean rank" in printed(leaderboard(run))
    run._scores = run.scores().with_columns(score=None, status=pl.lit("failed: x"))
    text = printed(leaderboard(run), 80)
    assert "mean" not in text and "bad, grad_cam, lime" in text


def test_a_control_that_failed_says_why(fake):
    run = small(fake, spoil=False)
    gone = pl.col("method") == "random"
    run._scores = run.scores().with_columns(
        score=pl.when(~gone).then("score"), status=pl.when(gone).then(pl.lit("failed: oom")).otherwise("status")
    )
    assert "random no score under morf, sds: failed: oom" in printed(leaderboard(run))
