"""Figures of a comparison with a paper: what is drawn is what the tables say."""

import io
import re
import xml.etree.ElementTree as ET

import polars as pl
import pytest
from PIL import Image
from tests.report.test_compare import HOSTILE, comparison

from heatcheck.report.compare_figures import comparison_figures, interval_figure
from heatcheck.report.compare_page import render_comparison
from heatcheck.stats.factors import ALONG, BEST, STABILITY
from heatcheck.stats.m4 import CORRELATIONS
from heatcheck.stats.separation import SEPARATION

MUTANTS = [
    ("report/compare_figures.py", "top + (1 - up.at(y) / 100) * high", "top + up.at(y) / 100 * high", "test_better_models_are_higher_and_more_accurate_ones_further_right"),
    ("report/compare_figures.py", "cells[i, k] = cells[k, i] = cell", "cells[i, k] = cell", "test_pairs_stand_on_both_sides"),
    ("report/compare_figures.py", "round(8 * v) if v >= 0 else -10 - round(-4 * v)", "round(8 * abs(v))", "test_negative_correlations_have_another_colour"),
    ("report/compare_figures.py", "word += 14", "break", "test_names_do_not_lie_over_each_other"),
    ("report/compare_figures.py", "x(row.x_theirs), y, 4.5", "x(row.x), y, 4.5", "test_ours_and_theirs_are_where_their_scores_are"),
]  # fmt: skip


def questions(word="net"):
    best = [
        (f"{word} 1", "d", "idsds", "lrp", 0.6, 0.55, 0.65, 0.9, 0.88, 0.92),
        (f"{word} 2", "d", "idsds", "ig", 0.59, 0.5, 0.68, 0.89, 0.88, 0.91),
        (f"{word} 3", "d", "idsds", "ig", 0.3, None, None, 0.7, None, None),
        (f"{word} 4", "d", "idsds", "ig", 0.2, None, None, None, None, None),
    ]
    along = [("depth", "idsds", word, "a", "b", 0.05, 0.02, 0.08, -1.0, 9)]
    stable = [("patches", word, "4", "16", 0.9, 0.8, 0.95, 9), ("seed", "", "0", "1", None, None, None, 9)]
    pairs = [("a", "b", 9, 0.5, -0.5, 0.1, 0.4, 0.6, -0.6, -0.4, word, 0.4), ("a", "c", 9, None, 0.2, *([None] * 7))]
    apart = [(word, "d", "sds", 3, True, 3, 2.0, True, 0.9, 3, 1.0, 0.2, 0.5), (word, "d", "abpc", *([None] * 10))]
    separation = pl.DataFrame(apart, schema=SEPARATION, orient="row").insert_column(0, pl.Series("run", [word, "r2"]))
    disagree = {"model": [word] * 2, "a": ["ig", "ig"], "b": ["lrp", word], "disagreement": [0.25, None]}
    return {
        "accuracy": pl.DataFrame(best, schema=BEST, orient="row"),
        "factors": pl.DataFrame(along, schema=ALONG, orient="row"),
        "stability": pl.DataFrame(stable, schema=STABILITY, orient="row"),
        "metric_correlation": pl.DataFrame(pairs, schema=CORRELATIONS, orient="row"),
        "separation": separation,
        "disagreement": pl.DataFrame(disagree),
    }


@pytest.fixture(scope="module")
def figures():
    return comparison_figures(comparison("net", questions=questions()))


def dots(figure):
    """Where each dot is, by the beginning of its explanation."""
    found = re.findall(r"<title>([^<]*)</title><circle[^>]* cx=\"([\d.]+)\" cy=\"([\d.]+)\"", figure.svg())
    return {re.split(r"[:,] ", about)[0]: (float(x), float(y)) for about, x, y in found}


def test_every_question_with_a_picture_has_one(figures):
    assert set(figures) == {
        "beside_1",
        "accuracy",
        "factors_depth",
        "stability",
        "disagreement_1",
        "metric_correlation_pearson",
        "metric_correlation_spearman",
        "separation",
    }


def test_ours_and_theirs_are_where_their_scores_are(figures):
    drawn = figures["beside_1"]
    spots = [float(x) for x in re.findall(r"circle class=\"(?:spot|s1 point)\" cx=\"([\d.]+)\"", drawn.svg())[2:]]
    reach = re.search(r"line class=\"reach\" x1=\"([\d.]+)\" y1=\"[\d.]+\" x2=\"([\d.]+)\"", drawn.svg())
    theirs, ours = spots  # 0.3 and 0.5, which lies in the middle of 0.4 to 0.6
    assert theirs < float(reach[1]) < ours < float(reach[2])
    assert ours == pytest.approx((float(reach[1]) + float(reach[2])) / 2, abs=0.2)


def test_better_models_are_higher_and_more_accurate_ones_further_right(figures):
    at = dots(figures["accuracy"])
    assert set(at) == {"net 1", "net 2", "net 3"}  # the fourth has no accuracy
    assert at["net 3"][0] < at["net 2"][0] < at["net 1"][0]
    assert at["net 1"][1] < at["net 2"][1] < at["net 3"][1]


def test_names_do_not_lie_over_each_other(figures):
    words = re.findall(r"<text class=\"s\d label\" x=\"[\d.]+\" y=\"([\d.]+)\"", figures["accuracy"].svg())
    first, second, _ = map(float, words)
    assert abs(first - second) >= 13.9


def test_an_interval_lies_around_its_number():
    drawn = interval_figure("i", "Falls", [("a", 0.5, 0.25, 1.0), ("b", -0.5, None, None)])
    assert "a: 0.500 (0.250 to 1.000)" in drawn.svg() and "b: −0.500<" in drawn.svg()
    low, high = map(
        float, re.search(r"class=\"reach\" x1=\"([\d.]+)\" y1=\"[\d.]+\" x2=\"([\d.]+)\"", drawn.svg()).groups()
    )
    at = dots(drawn)
    assert low < at["a"][0] < high and at["a"][0] - low == pytest.approx((high - low) / 3, abs=0.5)
    assert at["b"][0] < low


def test_pairs_stand_on_both_sides(figures):
    assert figures["disagreement_1"].svg().count("ig and lrp: 0.250") == 2
    assert figures["disagreement_1"].svg().count("ig and net: not defined") == 2


def test_negative_correlations_have_another_colour(figures):
    assert 'class="q4"' in figures["metric_correlation_pearson"].svg()
    assert 'class="q-12"' in figures["metric_correlation_spearman"].svg()


def test_what_is_not_measured_is_a_dash(figures):
    svg = figures["separation"].svg()
    assert svg.count("not measured") == 3 and "AUROC against random: 0.900" in svg
    assert "net · sds" in svg and "r2 · abpc" in svg


def test_figures_are_files_that_open(figures):
    for figure in figures.values():
        ET.fromstring(figure.svg())
        image = Image.open(io.BytesIO(figure.png(scale=1)))
        assert image.size == (round(figure.width), round(figure.height)) and len(image.getcolors(1 << 20)) > 2


def test_the_page_has_each_figure_at_its_question(figures):
    page = render_comparison(comparison("net", questions=questions()))
    assert page.count('<svg class="modelfig"') == len(figures) - 1  # scores side by side are a table there
    assert page.index("Scores and accuracy") < page.index(figures["accuracy"].title)


def test_hostile_names_stay_text():
    found = comparison(HOSTILE, questions=questions(HOSTILE))
    assert "<script>alert" not in render_comparison(found) and render_comparison(found).count("<script") == 2
    for figure in comparison_figures(found).values():
        assert not [e for e in ET.fromstring(figure.svg()).iter() if e.tag.endswith("script")]
        figure.png()


def test_without_accuracies_there_is_no_picture_of_them():
    blank = pl.DataFrame([("a", "d", "sds", "lrp", 0.6, *([None] * 5))], schema=BEST, orient="row")
    assert "accuracy" not in comparison_figures(comparison("net", questions={"accuracy": blank}))
