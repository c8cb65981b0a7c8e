"""The tables of a comparison: what is best is bold, what may be as good is marked, and numbers are in people's units."""

import csv
from dataclasses import replace

import polars as pl
import pytest
from tests.report.test_compare import comparison
from tests.report.test_compare_figures import questions

from heatcheck.report.compare import TITLES, groups
from heatcheck.report.compare_page import render_comparison
from heatcheck.report.compare_tables import best_cells, caption, marked_table, marked_tables
from heatcheck.stats.factors import BEST
from heatcheck.stats.published import BESIDE

MUTANTS = (
    ("report/compare.py", "not by & methods[key]", "not by", "test_ties_are_among_the_methods_that_both_have"),
    ("report/compare_tables.py", "elif better.get(key) == set():", "elif key in better:", "test_table_1_marks_the_best_and_the_tied"),
    ("report/compare_tables.py", "row[low] <= rows[i][high] and rows[i][low] <= row[high]", "True", "test_models_whose_intervals_meet_may_be_as_good"),
    ("report/compare_tables.py", "pl.col(column).min() if least", "pl.col(column).max() if least", "test_costs_are_in_units_for_people_and_the_fastest_is_bold"),
)  # fmt: skip
FACTS = {"metrics": [{"name": "abpc", "better": "higher"}, {"name": "infidelity", "better": "lower"}]}


def board(beaten, metric="abpc"):
    """A leaderboard, best first: the methods that beat each one; None where it is not ranked."""
    ranked = [m for m, by in beaten.items() if by is not None]
    rows = [("net", "d", metric, m, None if by is None else 1.0 + ranked.index(m), by) for m, by in beaten.items()]
    texts = dict.fromkeys(("model", "data", "metric", "method"), pl.String)
    return pl.DataFrame(rows, schema={**texts, "rank": pl.Float64, "beaten_by": pl.List(pl.String)}, orient="row")


def beside(methods, theirs):
    """Our scores, best first, and theirs."""
    rows = [
        {
            **dict.fromkeys(("table", "doubt", "settings"), ""),
            **{"model": "net", "data": "d", "metric": "abpc", "method": m, "as": m.upper()},
            "ours": 1.0 - i,
            "rank": 1.0 + i,
            "theirs": t,
            "their_model": "median over its models",
            "their_rank": 1.0 + sorted(theirs, reverse=True).index(t),
        }
        for i, (m, t) in enumerate(zip(methods, theirs, strict=True))
    ]
    return pl.DataFrame(rows, schema=BESIDE)


def test_ties_are_among_the_methods_that_both_have():
    """`d` beats `b` and is not printed, so that nothing here is better than `b`; `e` is not ranked."""
    made = comparison("net")
    table = beside(["a", "b", "c", "e"], [0.1, 0.4, 0.3, 0.2])
    lines = made.correlations.with_columns(data=pl.lit("d"), metric=pl.lit("abpc"))
    won = board({"d": [], "a": [], "b": ["d"], "c": ["a"], "e": None})
    made = replace(made, beside=table, correlations=lines, board=won)
    marked = marked_table(made, "beside", table)
    assert marked.best == {(0, "ours"), (1, "theirs")}
    assert marked.tied == {(1, "ours")}
    [group] = groups(made)
    assert [(r.best, r.their_best, r.tied) for r in group.rows[:2]] == [(True, False, False), (False, True, True)]
    assert not any(r.best or r.their_best or r.tied for r in group.rows[2:])
    page = render_comparison(replace(made, paper="idsds"))
    assert page.count(' best"') == 2 and "0.00‡" in page


def test_one_method_is_not_the_best_of_itself():
    made = comparison("net")
    made = replace(made, beside=beside(["a"], [0.5]), board=board({"a": []}))
    marked = marked_table(made, "beside", made.beside)
    assert not marked.best and not marked.tied


def test_table_1_marks_the_best_and_the_tied():
    frame = pl.DataFrame(
        {
            "model": ["net"] * 4,
            "method": list("abcd"),
            "abpc": [0.4, 0.3, 0.1, 0.9],
            "infidelity": [9.0, 1.0, 2.0, None],
        }
    )
    won = pl.concat(
        [
            board({"a": [], "b": [], "c": ["a"], "d": None}),
            board({"b": [], "c": ["b"], "a": ["b", "c"]}, "infidelity"),
        ]
    )
    marked = marked_table(comparison("net", board=won, facts=FACTS), "table1", frame)
    assert marked.best == {(0, "abpc"), (1, "infidelity")}
    assert marked.tied == {(1, "abpc")}
    assert marked.columns == ["model", "method", "abpc ↑", "infidelity ↓"]


def test_the_best_of_every_group_are_marked():
    overall = {"model": list("aabb"), "data": ["d"] * 4, "method": list("xyxy"), "raw": [1.0, 2.0, None, 3.0], "standardised": [0.5, -0.5, 0.1, 0.1]}  # fmt: skip
    made = comparison("net")
    assert marked_table(made, "overall", pl.DataFrame(overall)).best == {
        (1, "raw"),
        (0, "standardised"),
        (2, "standardised"),
        (3, "standardised"),
    }
    methods = {"modality": ["image", "image", "text"], "method": list("xyx"), "raw": [1.0, 3.0, 9.0], "wins": [2, 1, 1]}
    assert marked_table(made, "best_faithfulness", pl.DataFrame(methods)).best == {(1, "raw"), (0, "wins")}
    assert best_cells(pl.DataFrame({"k": ["a", "a"], "x": [None, 1.0]}), "x", ["k"]) == set()


def test_models_whose_intervals_meet_may_be_as_good():
    rows = [
        ("a", "d", "sds", "m", 0.6, 0.5, 0.7, 0.5, 0.4, 0.6),
        ("b", "d", "sds", "m", 0.5, 0.4, 0.55, 0.9, 0.8, 0.95),
        ("c", "d", "sds", "m", 0.2, 0.1, 0.3, None, None, None),
        ("d", "other", "sds", "m", 0.9, 0.8, 1.0, 0.85, 0.8, 0.9),
    ]
    marked = marked_table(comparison("net", facts=FACTS), "accuracy", pl.DataFrame(rows, schema=BEST, orient="row"))
    assert marked.best == {(0, "score"), (1, "accuracy")}
    assert marked.tied == {(1, "score")}


def test_costs_are_in_units_for_people_and_the_fastest_is_bold(tmp_path):
    frame = pl.DataFrame(
        {
            "model": ["net"] * 2,
            "data": ["d"] * 2,
            "method": ["lime", "grad_cam"],
            "seconds": [943.338, 0.0210742],
            "forwards": [12800.0, 100.0],
            "backwards": [0.0, 100.0],
            "peak_bytes": [1177968640, None],
            "device": ["cpu", "cuda:0 (NVIDIA A100)"],
        }
    )
    marked = marked_table(comparison("net"), "table2", frame)
    assert marked.best == {(1, "seconds")}
    lines = marked.markdown().decode().splitlines()
    assert (
        lines[0] == "| model | data | method | seconds | forward passes | backward passes | peak memory (MB) | device |"
    )
    assert lines[2] == "| net | d | lime | 943 | 12,800 | 0 | 1,178 | cpu |"
    assert lines[3] == "| net | d | grad\\_cam | **0.0211** | 100 | 100 | – | cuda:0 (NVIDIA A100) |"
    whole = list(csv.DictReader(marked.csv().decode().splitlines()))
    assert (whole[0]["peak_bytes"], whole[0]["forwards"], whole[1]["seconds"]) == ("1177968640", "12800.0", "0.0210742")


def test_ranks_are_whole_numbers_unless_they_are_shared():
    made = comparison("net")
    table = beside(["a", "b"], [0.5, 0.5]).with_columns(their_rank=pl.lit(1.5))
    made = replace(made, beside=table)
    marked = marked_table(made, "beside", table)
    at = {name: i for i, name in enumerate(marked.columns)}
    first = next(iter(marked.rows()))
    assert (first[at["our rank"]][0], first[at["their rank"]][0]) == ("1", "1.5")
    assert first[at["their model"]][0] == "median over its models"
    assert "doubt" not in at and "other settings here" not in at  # nothing is in them


def test_numbers_of_any_size_keep_their_digits():
    frame = pl.DataFrame({"model": ["a"], "data": ["d"], "metric": ["m"], "deviation": [0.000123], "range": [51234.5]})
    assert "| 0.000123 | 51234 |" in marked_table(comparison("net"), "sensitivity", frame).markdown().decode()


def test_captions_are_sentences_and_heads_are_words():
    made = comparison("net", questions={**questions(), **comparison("net").questions})
    for table in marked_tables(made):
        assert table.caption.endswith(".") and "?." not in table.caption, table.caption
        assert len(table.caption.split()) > 4
        assert not [head for head in table.columns if "_" in head], table.columns
        assert len(set(table.columns)) == len(table.columns), table.columns
    assert caption(made, "best_faithfulness").startswith("Which method is best? Means over models.")
    assert caption(made, "beside").startswith("Our scores beside those that Li et al. printed")


@pytest.mark.parametrize("name", sorted(TITLES))
def test_every_question_says_what_it_is(name):
    title, about = TITLES[name]
    assert title and about.endswith(".")
