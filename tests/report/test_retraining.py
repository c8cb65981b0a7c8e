"""The page's section on retrained networks."""

from dataclasses import dataclass

import pytest

from heatcheck.report.retraining import leaks, retraining_view
from heatcheck.stats import accuracy_curves

MUTANTS = [
    ("report/retraining.py", 'pl.col("low") > chance', 'pl.col("accuracy") > chance', "test_only_what_is_surely_above_chance_leaks"),
    ("report/retraining.py", '{"roar": [(0.0, whole)], "kar": [(100.0, whole)]}', '{"roar": [(0.0, whole)], "kar": [(0.0, whole)]}', "test_curves_meet_on_the_whole_picture"),
    ("report/charts.py", "y, edge = linear([*drawn, chance])", "y, edge = linear(drawn)", "test_the_axis_reaches_chance"),
]  # fmt: skip


@dataclass(frozen=True)
class Name:
    name: str


METHODS = (Name("good"), Name("random"))


def record(seeds=2, spread=0.01):
    """A study in which the first method finds what matters, and its masks tell the class."""
    means = {
        ("roar", "good"): {10: 0.4, 90: 0.2},
        ("roar", "random"): {10: 0.7, 90: 0.5},
        ("kar", "good"): {10: 0.6, 90: 0.75},
        ("kar", "random"): {10: 0.3, 90: 0.7},
        ("masks", "good"): {10: 0.3, 90: 0.4},
        ("masks", "random"): {10: 0.11, 90: 0.1},
    }
    cells = [("unmodified", "", 0, s, 0.8) for s in range(seeds)]
    for (protocol, method), own in means.items():
        for level, mean in own.items():
            each = [mean] if protocol == "masks" else [mean + spread * (s - (seeds - 1) / 2) for s in range(seeds)]
            cells += [(protocol, method, level, s, a) for s, a in enumerate(each)]
    names = ("protocol", "method", "level", "seed", "accuracy")
    return {
        "cells": [dict(zip(names, cell, strict=True)) for cell in cells],
        "methods": {"good": "good", "random": "random"},
        "levels": [10.0, 90.0],
        "protocols": ["roar", "kar"],
        "chance": 0.1,
    }


def test_tables_and_charts():
    view = retraining_view(record(), METHODS)
    assert [p.id for p in view.protocols] == ["roar", "kar", "masks"] and view.levels == ("10 %", "90 %")
    assert view.whole.startswith("80.0 ± ") and view.trainings == len(record()["cells"])
    roar = view.protocols[0]
    assert [row.method.name for row in roar.rows] == ["good", "random"]
    assert roar.rows[0].cells[0][0].startswith("40.0 ± ") and roar.curves[0].n == 2
    assert all(curve.line.count("L") == 2 and curve.band for curve in roar.curves)
    assert [at for at, _ in roar.y.ticks] == sorted(at for at, _ in roar.y.ticks)


def test_curves_meet_on_the_whole_picture():
    roar, kar, masks = retraining_view(record(), METHODS).protocols
    assert [curve.mean[0] for curve in roar.curves] == [0.8, 0.8]
    assert [curve.mean[-1] for curve in kar.curves] == [0.8, 0.8]
    assert roar.curves[0].line.startswith("M0 ") and "L100 " in kar.curves[0].line
    assert [len(curve.mean) for curve in masks.curves] == [2, 2]


def test_the_axis_reaches_chance():
    for protocol in retraining_view(record(), METHODS).protocols:
        assert protocol.y.low < 0.1 and 0 < protocol.chance < 100


def test_only_what_is_surely_above_chance_leaks():
    found = accuracy_curves(record()["cells"])
    assert leaks(found, 0.1) == [("good", "40 % at 90 %")]
    assert leaks(accuracy_curves(record(spread=0.5)["cells"]), 0.1) == []
    assert leaks(accuracy_curves(record(seeds=1)["cells"]), 0.1) == []
    (who,) = retraining_view(record(), METHODS).leaks
    assert who[0].name == "good"


@pytest.mark.parametrize("seeds", [1, 3])
def test_one_seed_has_no_interval(seeds):
    view = retraining_view(record(seeds), METHODS)
    assert ("±" in view.whole) == bool(view.protocols[0].curves[0].band) == (seeds > 1)


def test_intervals_over_seeds_and_pictures_stand_beside_those_over_seeds():
    known = {"protocol": "roar", "method": "good", "level": 10.0, "accuracy": 0.4, "low": 0.123, "high": 0.678}
    alone = {**known, "protocol": "masks", "low": None, "high": None}
    roar, kar, masks = retraining_view({**record(), "population": [known, alone]}, METHODS).protocols
    assert [ends for _, ends in roar.rows[0].cells] == ["12 to 68", ""]
    assert not any(ends for p in (kar, masks) for row in p.rows for _, ends in row.cells)
