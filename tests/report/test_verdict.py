"""The first screen: which method, how sure, at what cost, and what the run cannot say."""

import dataclasses
import re

import polars as pl
import pytest
from tests.report.test_page import levels, small

from heatcheck import stats
from heatcheck.report import render
from heatcheck.report.page import page_view

MUTANTS = [
    ("report/verdict.py", "ratio = own / least", "ratio = least / own", "test_a_much_cheaper_method_is_named"),
    ("report/verdict.py", 'front = r["mean_rank"] < best', 'front = r["mean_rank"] > best', "test_the_picture_has_ranks_by_cost"),
    ("report/verdict.py", "if rank < raw[found.method]", "if rank > raw[found.method]", "test_a_better_mean_rank_is_passed_over_where_another_method_beats_it"),
    ("report/verdict.py", '"better" if won', '"better" if lost', "test_the_fold_has_effects_and_shares_against_every_other"),
    ("report/views.py", "for m in (*self.best, *self.tied) if m in", "for m in self.tied if m not in", "test_no_method_is_best_and_random_without_a_word"),
    ("report/views.py", " and m not in self.worse", "", "test_what_is_worse_than_random_does_not_vary_too_much_to_tell"),
    ("core/papers.py", 'paper.partition(",")[0], re', "paper, re", "test_papers_are_cited_by_author_and_year"),
]  # fmt: skip


def said(run):
    """Headline and the sentences below it, of the only case."""
    (case,) = page_view(run).cases
    words = [
        ["".join(p.method.name if p.method else p.text for p in s) for s in part]
        for part in ([case.verdict.headline], case.verdict.body, case.verdict.limits)
    ]
    return words[0][0], " ".join(words[1]), words[2], case


def test_a_much_cheaper_method_is_named(fake):
    # rise has a map of 9 passes, grad_cam of 2; nothing tells them apart.
    known = {
        ("sds", "rise"): 0.9,
        ("sds", "grad_cam"): 0.9,
        ("sds", "bad"): 0.1,
        ("morf", "grad_cam"): 0.0,
        ("morf", "rise"): 0.0,
        ("morf", "bad"): 0.9,
    }
    run = levels(small(fake, spoil=False, n=12), known)
    odd = pl.col("sample").rank("dense") % 2 == 1
    wobble = pl.when(~pl.col("method").str.starts_with("rise")).then(0.0).when(odd).then(0.011).otherwise(-0.01)
    run._scores = run._scores.with_columns(
        score=pl.col("score") + pl.when(pl.col("metric") == "sds").then(wobble).otherwise(-wobble)
    )
    headline, body, _, case = said(run)
    group = "rise(masks=9), grad_cam or occlusion(units=grid(4))"
    assert headline == f"Use {group}: nothing here tells them apart, and grad_cam costs 4.5 times less."
    assert "A map of rise(masks=9) takes 9 passes (0.1 s), one of grad_cam 2 passes (0.02 s)." in body
    assert case.verdict.ties == ()


def test_too_few_samples_recommend_nothing_for_sure(fake):
    headline, body, _, case = said(small(fake, spoil=False, n=3))
    assert headline.startswith("3 samples tell no two methods apart. ") and "may be as good" in headline
    assert "significantly" not in body and "A map of" in body
    assert case.verdict.ties == ()


def test_what_is_better_somewhere_is_named(fake):
    known = {
        ("sds", "grad_cam"): 0.9,
        ("sds", "rise"): 0.5,
        ("sds", "bad"): 0.1,
        ("morf", "grad_cam"): -0.5,
        ("morf", "rise"): -0.9,
    }
    headline, body, _, _ = said(
        levels(small(fake, spoil=False, n=12, metrics=("sds", "morf", "abpc")), known | {("abpc", "grad_cam"): 0.5})
    )
    assert headline == "Use grad_cam: it has the best mean rank, 1.33 over 3 metrics."
    assert body.startswith("grad_cam is significantly better than 2 of the 3 others and nowhere worse than them; ")
    assert "but rise(masks=9) is better than it under morf and worse under abpc and sds (95 % confidence" in body


def decided(run, beaten):
    """The run with other tests: who is significantly better than a method under a metric; elsewhere nobody is."""
    made = run.leaderboard()
    lists = [
        [f"{m}(masks=9)" if m == "rise" else m for m in beaten.get((r["metric"], r["method"].partition("(")[0]), ())]
        if r["ranked"]
        else None
        for r in made.full.iter_rows(named=True)
    ]
    board = made.full.with_columns(beaten_by=pl.Series(lists, dtype=pl.List(pl.String)))
    run.leaderboard = lambda: dataclasses.replace(made, full=board)
    return run


FOUR = {"morf": ("grad_cam", "bad", "rise", "occlusion"), "abpc": ("rise", "bad", "occlusion", "grad_cam")}
"""Methods by mean: rise has a mean rank of 2.0, bad of 2.0, grad_cam of 2.5, occlusion of 3.5."""


def four(fake, **beaten):
    known = {
        (m, method): (i if m == "morf" else -i) / 10 for m, names in FOUR.items() for i, method in enumerate(names)
    }
    run = levels(small(fake, spoil=False, n=12, metrics=tuple(FOUR)), known)
    return said(decided(run, {tuple(k.split("_", 1)): v for k, v in beaten.items()}))


def test_a_better_mean_rank_is_passed_over_where_another_method_beats_it(fake):
    headline, body, _, case = four(fake, morf_rise=["grad_cam"], morf_bad=["grad_cam"], abpc_occlusion=["rise", "bad"])
    assert (
        headline == "Use grad_cam: of the methods that no other beats, it has the best mean rank, 2.50 over 2 metrics."
    )
    assert (
        "grad_cam is significantly better than 2 of the 3 others under some metric, and worse than none under any"
        in body
    )
    assert (
        "bad and rise(masks=9) have better mean ranks, but grad_cam is significantly better than them under morf and"
        in body
    )
    assert (
        "Nothing tells occlusion(units=grid(4)) apart from it, but bad is significantly better than that one under"
        in body
    )
    assert [r.method.name for r in case.verdict.chart.rows if r.chosen] == ["grad_cam"]
    _, body, _, _ = four(fake, morf_rise=["grad_cam"], morf_bad=["rise"], abpc_occlusion=["rise"])
    assert "bad and rise(masks=9) have better mean ranks, but each of them is significantly worse than another" in body


def test_nowhere_worse_is_said_of_all_or_of_those_that_are_meant(fake):
    _, body, _, _ = four(fake, morf_bad=["grad_cam"], abpc_grad_cam=["rise"], morf_rise=["grad_cam"])
    assert body.startswith("grad_cam is significantly better than rise(masks=9) under morf and worse under abpc (95 %")
    _, body, _, _ = four(fake, morf_bad=["rise"], abpc_grad_cam=["rise"], morf_rise=["grad_cam"])
    start = "rise(masks=9) is significantly better than 1 of the 3 others and nowhere worse than it; but "
    assert body.startswith(f"{start}grad_cam is better than it under morf and worse under abpc (95 %")
    _, body, _, _ = four(fake)
    start = "bad is not significantly better than any of the 3 others under any metric, and not worse "
    assert body.startswith(f"{start}(95 % confidence within each metric).")


def test_a_circle_of_methods_is_called_one(fake):
    circle = {"morf_bad": ["grad_cam"], "abpc_grad_cam": ["rise"], "abpc_rise": ["bad"], "morf_occlusion": ["rise"]}
    headline, body, _, _ = four(fake, **circle)
    assert headline == (
        "Each method here is beaten by another. Of those that beat one another in a circle, bad has the best mean rank, "
        "2.00 over 2 metrics."
    )
    assert "grad_cam is better than it under morf and worse under none (95 %" in body and "have better mean" not in body


def test_a_method_that_few_metrics_rank_is_named_where_it_is_better(fake):
    metrics = ("sds", "morf", "abpc")
    known = {
        (m, method): (-1 if m == "morf" else 1) * i / 10
        for m in metrics
        for i, method in enumerate(("bad", "occlusion", "rise", "grad_cam"))
    }
    run = levels(small(fake, spoil=False, n=12, metrics=metrics), known)
    gone = (pl.col("method") == "grad_cam") & (pl.col("metric") != "sds")
    run._scores = run._scores.with_columns(
        score=pl.when(~gone).then("score"), status=pl.when(gone).then(pl.lit("failed: x")).otherwise("status")
    )
    headline, body, _, _ = said(run)
    assert headline.startswith(
        "Use rise(masks=9): of the methods that most metrics rank, it has the best mean rank, 1.33"
    )
    assert (
        "grad_cam is significantly better than it under some metric and nowhere worse, but too few metrics rank it"
        in body
    )


@pytest.mark.parametrize("random", [0.0, 0.95])
def test_metrics_that_do_not_beat_random_are_named(fake, random):
    known = {("sds", "grad_cam"): 0.9, ("sds", "rise"): 0.5, ("sds", "random"): random, ("morf", "grad_cam"): -0.5}
    _, body, _, _ = said(levels(small(fake, spoil=False, n=12), known))
    expected = "not better than a random map under sds." if random else "better than a random map under all 2 metrics."
    assert f"It is {expected}" in body


def test_the_fold_has_effects_and_shares_against_every_other(fake):
    run = small(fake, spoil=False, n=12)
    (case,) = page_view(run).cases
    table = case.verdict.apart
    facts = stats.Facts.of(run.facts)
    (found,) = stats.recommendations(run.leaderboard().full, facts)
    assert table.chosen.name == found.method and table.metrics == ("sds", "morf")
    sizes = stats.against_others(run.scores(), facts, found.method)
    expected = {(r["method"], r["metric"]): r for r in sizes.iter_rows(named=True)}
    assert sum(cell is not None for _, cells in table.rows for cell in cells) == len(expected)
    verdicts = set()
    for method, cells in table.rows:
        for metric, cell in zip(table.metrics, cells, strict=True):
            if cell is not None:
                row = expected[method.name, metric]
                assert cell.share == f"{100 * row['share']:.0f} %"
                assert cell.effect.replace("−", "-") == f"{row['effect']:.2f}"
                assert (cell.verdict == "better") == (metric in found.wins.get(method.name, ()))
                assert (cell.verdict == "worse") == (metric in found.ahead.get(method.name, ()))
                verdicts.add(cell.verdict)
    assert {"better", ""} <= verdicts
    page = render(run)
    assert '<details class="apart">' in page and '<b class="good" title="significantly better">' in page


def test_the_picture_has_ranks_by_cost(fake):
    run = small(fake, spoil=False, n=12)
    (case,) = page_view(run).cases
    chart = case.verdict.chart
    assert [r.method.name for r in chart.rows] == sorted(
        (r.method.name for r in chart.rows),
        key=lambda name: (
            float({"grad_cam": 2, "bad": 2, "rise(masks=9)": 9}.get(name, 17)),
            next(o.raw for o in case.overall if o.method.name == name),
        ),
    )
    best = float("inf")
    for row in chart.rows:
        mine = next(o.raw for o in case.overall if o.method is row.method)
        assert row.front == (mine < best)
        best = min(best, mine)
        assert row.left <= row.x <= row.right
    assert chart.cost == "passes" and chart.more == 0 and all(row.brief for row in chart.rows)


def test_many_methods_leave_the_picture_readable(fake):
    many = {f"m(k={i})": (i / 60, 4, i, 0) for i in range(40)}
    (case,) = page_view(small(fake, methods=many, metrics=("sds",), spoil=False)).cases
    assert len(case.verdict.chart.rows) == 24 and case.verdict.chart.more == 16
    assert not any(row.brief for row in case.verdict.chart.rows)


def test_what_the_run_cannot_say(fake):
    run = small(fake, n=12)
    run.facts["methods"].append({"name": "oracle", "id": "oracle", "control": True})
    _, _, limits, _ = said(run)
    assert any("on 12 samples" in line for line in limits) and any("profile quick" in line for line in limits)
    assert not any("oracle" in line for line in limits)  # it has no score here
    named = pl.when(pl.col("method") == "sobel").then(pl.lit("oracle")).otherwise("method")
    run._scores = run._scores.with_columns(method=named)
    assert any("no upper bound" in line for line in said(run)[2])


def test_no_method_is_best_and_random_without_a_word(fake):
    run = small(fake, n=12, metrics=("sds",), spoil=False)
    run._scores = run._scores.with_columns(
        score=(pl.col("sample").rank("dense") + pl.col("method").str.len_chars()) % 5 / 5.0
    )
    html = render(run)
    (metric,) = page_view(run).cases[0].metrics
    both = {m.name for m in (*metric.best, *metric.tied)} & {m.name for m in metric.not_better}
    assert both and {m.name for m in metric.undecided} == both
    assert "too much to be told from the best or from random" in html


def test_what_is_worse_than_random_does_not_vary_too_much_to_tell(fake):
    """Where random scores best (a map that never moves), the best method is worse than random, and nothing else is said."""
    run = small(fake, n=30, metrics=("sds",), spoil=False)
    random = pl.when(pl.col("method") == "random").then(1.0).otherwise(pl.col("score") * 0.01)
    run._scores = run._scores.with_columns(score=random)
    html = render(run)
    (metric,) = page_view(run).cases[0].metrics
    assert metric.best and set(metric.best) <= set(metric.worse) and not metric.undecided
    assert "Worse than random, even the best" in html and "too much to be told" not in html
    assert "even the best" not in render(small(fake, n=30, metrics=("sds",), spoil=False))


def test_papers_are_cited_by_author_and_year(fake):
    html = render(small(fake))
    assert "Paper: <bdi>Hesse et al. (2024)</bdi>" in html and "hesse2024" not in html


def test_names_break_between_words_only(fake):
    html = render(small(fake))
    assert "<bdi>grad_<wbr>cam</bdi>" in html
    assert re.search(
        r'class="method anywhere"><code><bdi>x{30}</bdi>', render(small(fake, methods={"x" * 30: (0.5, 4, 1, 1)}))
    )
