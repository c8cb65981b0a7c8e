"""Chart geometry, against numbers worked out by hand."""

import re

import numpy as np
import polars as pl
import pytest

from heatcheck.report.charts import cost_chart, curve_chart, linear, logarithmic, scale


def test_a_linear_axis_has_round_ticks_inside():
    axis = linear([0.0, 1.0])
    assert [label for _, label in axis.ticks] == ["0.0", "0.5", "1.0"]
    assert axis.at(0.5) == 50 and axis.at(-9) == 0 and axis.at(9) == 100
    assert axis.at(1.0) == pytest.approx(100 * 1.04 / 1.08, abs=0.01)


@pytest.mark.parametrize("values", [[], [0.0], [3.5], [-2.0, -2.0], [float("nan")], [1e-9, 2e-9], [-1e12, 1e12]])
def test_any_values_make_an_axis(values):
    for axis in (linear(values), logarithmic(values), scale(values)):
        assert axis.low < axis.high
        assert all(0 <= at <= 100 for at, _ in axis.ticks)


def test_decades_are_equally_wide_on_a_log_axis():
    axis = logarithmic([1, 1000])
    at = dict((label, at) for at, label in axis.ticks)
    assert at["10"] - at["1"] == pytest.approx(at["1000"] - at["100"], abs=0.02)


def test_scale_turns_logarithmic_only_for_wide_positive_values():
    assert scale([0.1, 100]).log and not scale([-0.1, 100]).log and not scale([0.5, 100]).log


def frame(rows):
    numbers = pl.List(pl.Float64)
    schema = {"sample": pl.String, "method": pl.String, "share": numbers, "curve": numbers}
    return pl.DataFrame(rows, schema=schema, orient="row")


def points(path):
    return np.array([[float(v) for v in p.split()] for p in re.split("[ML]", path.strip("Z")) if p])


def test_curves_are_means_with_bands_around_them():
    rng = np.random.default_rng(0)
    share = [0.0, 0.5, 1.0]
    values = rng.normal(size=(40, 3))
    chart = curve_chart(frame([(f"s{i}", "m", share, v.tolist()) for i, v in enumerate(values)]), ["m", "absent"])
    (curve,) = chart.curves
    assert curve.n == 40 and curve.mean == pytest.approx(values.mean(0))
    line, band = points(curve.line), points(curve.band)
    assert line[:, 0].tolist() == [0, 50, 100]
    high, low = band[:3, 1], band[:2:-1, 1]
    assert (high < line[:, 1]).all() and (line[:, 1] < low).all()  # the page's y runs downwards
    half = 1.96 * values.std(0, ddof=1) / np.sqrt(40)
    got = (low - high) / 100 * (chart.y.high - chart.y.low) / 2
    assert got == pytest.approx(half, rel=0.2)


def test_unequal_shares_are_brought_onto_one_grid():
    rows = [("a", "m", [0.0, 1.0], [1.0, 0.0]), ("b", "m", [0.0, 0.5, 1.0], [1.0, 1.0, 0.0])]
    chart = curve_chart(frame(rows), ["m"])
    assert chart.grid == (0.0, 0.5, 1.0)
    assert chart.curves[0].mean == pytest.approx((1.0, 0.75, 0.0))


def test_nothing_to_draw_is_no_chart():
    assert curve_chart(frame([]), ["m"]) is None
    assert curve_chart(frame([("a", "m", [0.0, 1.0], [float("nan"), 1.0])]), ["m"]) is None
    assert curve_chart(frame([("a", "m", [], [])]), ["m"]) is None


def row(method, mean, forwards, ranked=True, seconds=0.1):
    return {"method": method, "mean": mean, "forwards": forwards, "backwards": 0, "seconds": seconds, "ranked": ranked}


@pytest.mark.parametrize("higher", [True, False])
def test_the_front_holds_what_nothing_cheaper_beats(higher):
    sign = 1 if higher else -1
    rows = [("cheap", 0.5, 1), ("waste", 0.4, 10), ("good", 0.7, 10), ("best", 0.9, 100), ("circular", 2.0, 1)]
    chart = cost_chart([row(m, sign * s, f, m != "circular") for m, s, f in rows], higher)
    assert {p.method for p in chart.points if p.front} == {"cheap", "good", "best"}
    by = {p.method: p for p in chart.points}
    assert by["best"].top < by["good"].top < by["cheap"].top < by["waste"].top  # better upwards either way
    assert chart.cost == "passes" and by["cheap"].left < by["good"].left < by["best"].left


def test_seconds_stand_in_for_passes_and_no_cost_is_no_chart():
    assert cost_chart([row("a", 1.0, 0, seconds=0.5)], True).cost == "seconds"
    assert cost_chart([row("a", 1.0, None, seconds=None)], True) is None
    assert cost_chart([row("a", None, 3)], True) is None


def test_names_do_not_run_into_each_other():
    chart = cost_chart([row(f"method_{i}", 0.5 + i * 1e-4, 10 + i) for i in range(20)] + [row("far", 0.0, 1)], True)
    named = [p.method for p in chart.points if p.named]
    assert "far" in named and len(named) < 5
