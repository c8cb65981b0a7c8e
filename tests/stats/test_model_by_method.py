"""Models against methods: standardised, averaged and summed, against a plain loop."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.stats import Facts, averaged_z, model_by_method, raw_sum

MUTANTS = [
    ("stats/model_by_method.py", "facts.sign(metric) * rows", "rows", "test_agrees_with_a_plain_loop"),
    ("stats/model_by_method.py", 'pl.col("n") == len(set(metrics))', 'pl.col("n") > 0', "test_sums_need_all_metrics"),
    ("stats/model_by_method.py", "skip.get(k) in (None, v)", "skip.get(k) == v", "test_blanks_say_why"),
]
FACTS = Facts(higher_is_better={"abpc": True, "infidelity": False})


def board(rows):
    """A leaderboard of (metric, model, method, mean) rows."""
    return pl.DataFrame(
        [
            (metric, model, "d", method, mean, method == "random", mean is not None and method != "random", "")
            for metric, model, method, mean in rows
        ],
        schema=dict.fromkeys(("metric", "model", "data", "method"), pl.String)
        | {"mean": pl.Float64, "control": pl.Boolean, "ranked": pl.Boolean, "reason": pl.String},
        orient="row",
    )


means = st.one_of(st.none(), st.floats(-100, 100).map(lambda v: round(v, 3)))


@given(st.lists(means, min_size=12, max_size=12))
def test_agrees_with_a_plain_loop(values):
    keys = [(k, g, m) for k in ("abpc", "infidelity") for g in ("bert", "mpnet") for m in ("ig", "lime", "random")]
    rows = [(*key, value) for key, value in zip(keys, values, strict=True)]
    cells = model_by_method(board(rows), FACTS)
    found = {(r["metric"], r["model"], r["method"]): r for r in cells.iter_rows(named=True)}
    assert len(found) == cells.height == 8  # no control
    expected = {}
    for metric, sign in (("abpc", 1), ("infidelity", -1)):
        known = [sign * v for k, _, m, v in rows if k == metric and m != "random" and v is not None]
        centre = sum(known) / len(known) if known else 0.0
        spread = math.sqrt(sum((v - centre) ** 2 for v in known) / len(known)) if known else 0.0
        for k, model, method, v in rows:
            if k == metric and method != "random":
                z = None if v is None else (sign * v - centre) / spread if spread > 1e-9 else 0.0
                expected[metric, model, method] = z
                assert found[metric, model, method]["mean"] == v
    assert {key: row["z"] for key, row in found.items()} == pytest.approx(expected, abs=1e-6)
    average = averaged_z(cells, ["abpc", "infidelity"])
    for row in average.iter_rows(named=True):
        own = [expected[k, row["model"], row["method"]] for k in ("abpc", "infidelity")]
        own = [z for z in own if z is not None]
        assert (row["metrics"], row["of"]) == (len(own), 2)
        assert row["mean_z"] == (pytest.approx(sum(own) / len(own), abs=1e-6) if own else None)


def test_sums_need_all_metrics():
    rows = [
        ("abpc", "bert", "ig", 0.5),
        ("infidelity", "bert", "ig", 0.2),
        ("abpc", "bert", "lime", 0.9),
        ("infidelity", "bert", "lime", None),
    ]
    found = raw_sum(model_by_method(board(rows), FACTS), FACTS, ["abpc", "infidelity"])
    assert found.rows() == [("bert", "d", "ig", pytest.approx(0.3))]


def test_blanks_say_why():
    rows = [("abpc", "bert", "ig", 0.5), ("abpc", "cnn", "grad_cam", 0.4), ("infidelity", "cnn", "grad_cam", 0.1)]
    skipped = [
        {"model": "bert", "method": "grad_cam", "metric": None, "reason": "no feature maps"},
        {"model": None, "method": "ig", "metric": "infidelity", "reason": "too slow"},
    ]
    cells = model_by_method(board(rows), FACTS, skipped)
    why = {(r["metric"], r["model"], r["method"]): r["reason"] for r in cells.iter_rows(named=True)}
    assert why["abpc", "bert", "grad_cam"] == why["infidelity", "bert", "grad_cam"] == "no feature maps"
    assert why["infidelity", "bert", "ig"] == "too slow" and why["abpc", "cnn", "ig"] == "not measured"
    assert why["abpc", "bert", "ig"] == ""


def test_equal_cells_are_neither_better_nor_worse():
    rows = [("abpc", g, m, 0.1) for g in ("bert", "mpnet") for m in ("ig", "lime")]
    assert model_by_method(board(rows), FACTS)["z"].to_list() == [0.0] * 4
    assert model_by_method(board([]), FACTS).is_empty()
