"""The page of a comparison, and tables as Markdown and LaTeX: all is said, and foreign strings are harmless."""

import numpy as np
import polars as pl
from tests.report.test_hostile import Shape

from heatcheck.api.compare import PaperComparison
from heatcheck.report.compare import answer, by_verdict, claim_words, correlation_words
from heatcheck.report.compare_page import render_comparison
from heatcheck.report.tables import MarkedTable
from heatcheck.stats.published import BESIDE, CORRELATION

MUTANTS = (
    ("report/tables.py", '"%": r"\\%", ', "", "test_latex_escapes_what_is_its_own"),
    ("report/tables.py", 'then("\'" + text)', "then(text)", "test_formulas_are_neutral_in_csv"),
)
HOSTILE = "<script>alert(1)</script>\"'&\u202e_|%"


def comparison(word=HOSTILE, **other):
    values = {
        "model": word,
        "data": word,
        "metric": word,
        "method": word,
        "as": word,
        "table": "Table 1",
        "doubt": word,
    }
    row = {
        **values,
        "ours": 0.5,
        "low": 0.4,
        "high": 0.6,
        "rank": 1.0,
        "theirs": 0.3,
        "their_model": word,
        "their_rank": 1.0,
        "settings": word,
    }
    beside = pl.DataFrame([row], schema=BESIDE)
    line = {"model": word, "data": word, "metric": word, "their_model": word, "methods": 1, "samples": 3}
    correlations = pl.DataFrame(
        [line | dict.fromkeys(("spearman", "low", "high", "samples_low", "samples_high"))], schema=CORRELATION
    )
    claim = {
        "claim": "c",
        "says": "It is so.",
        "where": "Table 1",
        "paper": "li2023",
        "effect": word,
        "note": word,
        "parts": [],
        "n": 3,
        "counted": "samples",
    }
    claims = (
        {**claim, "verdict": "not testable here", "value": np.nan, "low": np.nan, "high": np.nan},
        {**claim, "verdict": "held", "value": 0.2, "low": 0.1, "high": 0.3},
    )
    made = {
        "questions": {"overall": pl.DataFrame({"model": [word], "raw": [0.5]})},
        "notes": (word,),
        "facts": {"models": [{"name": word}]},
    }
    return PaperComparison(
        run=word, paper="m4", beside=beside, correlations=correlations, claims=claims, **(made | other)
    )


def test_hostile_names_run_no_script():
    page = render_comparison(comparison())
    assert Shape(page).scripts == Shape(render_comparison(comparison("net"))).scripts and page.count("<script") == 2
    assert "<script>alert" not in page and "&lt;script&gt;" in page
    assert "\u202e" not in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page


def test_the_page_has_every_part():
    page = render_comparison(comparison("net"))
    for words in (
        "Of 2 claims, 1 held",
        "Our scores beside theirs",
        "no rank correlation: 1 method in common",
        "Overall score",
        "Table 2",
        "cannot be tested here, and why",
    ):
        assert words in page, words


def test_a_run_without_common_scores_has_no_table_of_them():
    empty = comparison("net", questions={})
    page = render_comparison(
        PaperComparison(
            run="r",
            paper="metarank",
            beside=empty.beside.clear(),
            correlations=empty.correlations.clear(),
            claims=empty.claims,
        )
    )
    assert "Our scores beside theirs" not in page


def test_claims_that_were_tested_come_first():
    claims = comparison().claims
    assert [c["verdict"] for c in by_verdict(claims)] == ["held", "not testable here"]
    assert claim_words(claims[1])["number"].endswith("0.200 (0.100 to 0.300)")
    assert claim_words(claims[0])["number"] == ""
    assert answer(claims).endswith("1 cannot be tested here.")


def test_a_correlation_is_told_with_both_intervals():
    row = {"spearman": 0.8, "methods": 9, "low": 0.2, "high": 0.95, "samples_low": 0.7, "samples_high": 0.9}
    assert correlation_words(row) == (
        "rank correlation 0.80 over 9 methods, 0.20 to 0.95 over methods and samples, 0.70 to 0.90 over samples alone"
    )


TABLE = pl.DataFrame({"method": ["a_b & 5 %", "=1+1"], "score": [0.5, None], "n": [1, 2]})


def marked(frame: pl.DataFrame, **more) -> MarkedTable:
    return MarkedTable("t", "50 %.", frame, **more)


def test_latex_escapes_what_is_its_own():
    shown = marked(TABLE, best=frozenset({(0, "score")})).latex().decode()
    assert r"a\_b \& 5 \% & \textbf{0.500} & 1 \\" in shown
    assert r"\caption{50 \%." in shown
    assert "\\toprule" in shown and "\\bottomrule" in shown
    assert marked(pl.DataFrame({"x": ["\\ ~ ^ { } $ #"]})).latex().count(rb"\textbackslash{}") == 1


def test_markdown_has_as_many_cells_in_every_line():
    *lines, empty, caption = marked(pl.DataFrame({"a|b": ["x|y\nz"], "c": [1.5]})).markdown().decode().splitlines()
    assert {line.replace("\\|", "").count("|") for line in lines} == {3}
    assert not empty and caption == "50 %."


def test_formulas_are_neutral_in_csv():
    assert b"'=1+1,,2" in marked(TABLE).csv()
