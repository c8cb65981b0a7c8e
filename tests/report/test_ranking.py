"""The page, tables and figures of a ranking over cases."""

import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.browser import WIDTHS
from tests.report.test_hostile import PAYLOADS

from heatcheck import stats
from heatcheck.report.drawing import VectorFigure, cut
from heatcheck.report.html import ranking_page
from heatcheck.report.ranking import ranking_view
from heatcheck.report.tables import MarkedTable, tex
from heatcheck.stats.meta_cases import CaseProtocol, CaseTable, MetaCase
from heatcheck.stats.ranks import rank_of

MUTANTS = (
    ("report/tables.py", "text + TIED * tied", "text", "test_the_best_are_bold_and_ties_are_marked"),
    ("report/tables.py", r'"\\": r"\textbackslash{}", ', "", "test_hostile_names_stay_text"),
    ("report/drawing.py", "{escape(s.words)}", "{s.words}", "test_hostile_names_stay_text"),
    ("report/ranking_tables.py", "as_rank(won) if met == of else", "as_rank(won) if True else", "test_wins_say_of_how_many_cases"),
    ("report/ranking.py", "if len(tied) == len(behind) > 1:", "if False:", "test_noise_is_not_read_as_an_order"),
    ("report/ranking_figures.py", "y0 + (1 - a / 100) * _TALL)", "y0 + a / 100 * _TALL)", "test_a_panel_for_each_case_falls_with_its_accuracy"),
    ("report/ranking_figures.py", "round(8 * won / n)", "round(8 * (1 - won / n))", "test_the_strongest_colour_wins_most"),
)  # fmt: skip
HOSTILE = "<script>alert(1)</script>&\"'|$_{}\\input"


def against_random(table):
    """In the first case nothing is better than random, elsewhere only the last method is not."""
    better = np.where(np.isnan(table.ranks), np.nan, 1.0)
    better[:, -1] = np.where(np.isnan(better[:, -1]), np.nan, 0.0)
    better[0] = 0
    return stats.CasesAgainstRandom(table.cases, table.methods, better, np.zeros(len(better), dtype=bool))


def shares_of(table):
    """A table of accuracies that fall from 90 to 10 per cent, for every case and method, and for random."""
    rows = [
        {
            **case.record(),
            "method": m,
            "share": s,
            "accuracy": 90 - 80 * s,
            "low": 85 - 80 * s,
            "high": 95 - 80 * s,
            "n": 6,
        }
        for case in table.cases
        for m in (*table.methods, "random")
        for s in (0.0, 0.5, 1.0)
    ]
    return pl.DataFrame(rows)


def view_of(methods=("good", "fair", "bad"), models=("net", "mobile", "vit"), samples=6, gap=3.0):
    rng = np.random.default_rng(0)
    protocols = (CaseProtocol("morf", "morf", "morf", "c", "%"), CaseProtocol("lerf", "lerf", "lerf", "c", "%"))
    cases = tuple(MetaCase(m, "pictures", p, samples) for m in models for p in protocols)
    scores = tuple(rng.normal(size=(len(methods), samples)) - gap * np.arange(len(methods))[:, None] for _ in cases)
    means = np.array([s.mean(axis=1) for s in scores])
    ranks = rank_of(means.T).T
    ranks[-1, -1] = means[-1, -1] = np.nan
    table = CaseTable(cases, tuple(methods), means, ranks, scores, ((cases[-1], methods[-1], f"skipped: {HOSTILE}"),))
    facts = stats.Facts(higher_is_better={"morf": True, "lerf": True})
    return ranking_view(
        names=["runs/one"],
        facts=facts,
        table=table,
        board=stats.meta_rank(table, resamples=50),
        agreement=stats.meta_agreement(table, resamples=50),
        factor=stats.by_factor(table, "protocol", methods),
        along=[],
        orders=stats.falls_faster_under_lerf(table, resamples=50),
        random=against_random(table),
        by_share=shares_of(table),
        notes=[f"a note {HOSTILE}"],
    )


@pytest.fixture(scope="module")
def view():
    return view_of()


def test_the_page_has_all_parts(view):
    page = ranking_page(view)
    for part in ("ranking", "wins", "cases", "agreement", "shares", "factor", "gaps"):
        assert f'<section id="{part}"' in page
    assert page.count('<svg class="modelfig"') == 5
    assert "Not every case ranks every method" in page and "5 of 6 cases" in page
    assert page == ranking_page(view_of())


def test_the_verdict_names_the_best(view):
    words = "".join(part.text for part in view.verdict)
    assert words.startswith("good leads with κ") and "agree almost completely" in words


def words(view):
    return "".join(part.text for part in view.verdict)


def test_noise_is_not_read_as_an_order():
    told = words(view_of(models=("net",), gap=0.0))
    assert "over samples): " in told and "on these samples, nothing here tells it apart from any other method. " in told
    assert "Samples that do not tell the methods apart do not say how far the cases agree: Kendall's W" in told
    assert "1 pair of model and data set is too few to say how sure that is on other models and data. " in told
    sure = words(view_of(models=("net",), samples=12))
    assert "on these samples, every other method is behind it by more than chance. " in sure
    assert (
        "agree almost completely: Kendall's W of the 2 methods that all of them rank is 1.00 (1.00 to 1.00 over samples)"
        in sure
    )
    assert "over models and data): " in words(view_of())


def test_every_interval_says_what_it_is_over(view):
    few, page = view_of(models=("net",)), ranking_page(view)
    assert view.chips_over == "models and data" and few.chips_over == "samples"
    assert all(ends for _, _, ends in few.chips)
    assert "95 % interval over models and data</th>" in page and "Intervals of 95 % over pairs of model" in page
    other = ranking_page(few)
    assert "95 % interval over samples</th>" in other and "Intervals of 95 % over samples, with the cases" in other


def test_the_dagger_is_explained_where_it_is():
    for noise, gap in ((True, 0.0), (False, 3.0)):
        made = view_of(models=("net",), samples=12, gap=gap)
        page = ranking_page(made)
        head = page[page.index('id="ranking"') : page.index('id="wins"')]
        assert ("†" in head) is noise and (made.tied_over == "samples") is noise
        assert ("† not told apart from the best over other samples" in made.figures["kappa"].svg()) is noise


def test_random_is_told_case_by_case_and_method_by_method(view):
    assert view.random_told == "In 1 of 6 cases nothing is significantly better than random: net · pictures · morf."
    assert [row.random for row in view.rows] == ["1 of 6", "1 of 6", "5 of 5"]
    assert view.random_told in ranking_page(view)
    assert view.table("leaderboard").frame["not_better"].to_list() == [1, 1, 5]


def test_wins_say_of_how_many_cases(view):
    table = view.table("wins")
    rows = [[text for text, _, _ in row] for row in table.rows()]
    assert rows[0] == ["good", "–", "6", "5/5"] and rows[2][1:3] == ["0/5", "0/5"]
    assert table.caption.startswith("In how many of 6 cases, or of those after the slash where fewer rank both, ")
    assert table.frame.row(0) == ("good", None, 6.0, 5.0)


def test_intervals_stay_on_phones(view):
    page = ranking_page(view)
    for row in view.rows:
        assert f'{row.kappa}<small class="narrow">{row.ends}</small>' in page


def test_a_panel_for_each_case_falls_with_its_accuracy(view):
    root = ET.fromstring(view.figures["accuracy_by_share"].svg())
    lines = [e.get("points") for e in root.iter() if e.tag.endswith("polyline")]
    assert len(lines) == 6 * 4
    for line in lines:
        heights = [float(point.split(",")[1]) for point in line.split()]
        assert heights == sorted(heights) and heights[0] < heights[-1]
    shown = view.table("accuracy_at_shares")
    assert shown.frame.columns[-3:] == ["0 %", "50 %", "100 %"] and shown.frame.height == 24
    long = view.table("accuracy_by_share").frame
    assert long.columns == ["model", "data", "metric", "protocol", "method", "share", "accuracy", "low", "high", "n"]
    assert long["share"].unique().sort().to_list() == [0, 50, 100]


def test_hostile_names_stay_text():
    bad = view_of(methods=(HOSTILE, f"{HOSTILE}2", "\u202eb\x00ad"), models=(HOSTILE, "b", "c"))
    page = ranking_page(bad)
    assert "<script>alert" not in page and "\u202e" not in page and "\x00" not in page
    for figure in bad.figures.values():
        root = ET.fromstring(figure.svg())
        assert not [e for e in root.iter() if e.tag.endswith("script")]
        figure.png()
    for table in bad.tables:
        text = table.latex().decode()
        assert "\\input" not in text.replace("\\textbackslash{}input", "") and "<script>" not in text
        assert "<script>" not in table.markdown().decode()


def test_the_strongest_colour_wins_most(view):
    svg = view.figures["wins"].svg()
    shades = dict(re.findall(r"<title>(\w+ beats \w+) in[^<]*</title><rect class=\"q(-?\d)\"", svg))
    assert shades["good beats fair"] == "8" and shades["fair beats good"] == "0"


def test_figures_are_as_large_as_they_say(view):
    for figure in view.figures.values():
        image = Image.open(io.BytesIO(figure.png(scale=1)))
        assert image.size == (round(figure.width), round(figure.height))
        assert len(image.getcolors(1 << 20)) > 2
        root = ET.fromstring(figure.svg())
        assert (float(root.get("width")), float(root.get("height"))) == pytest.approx(
            (figure.width, figure.height), abs=0.1
        )


def test_words_are_where_they_should_be():
    drawn = VectorFigure("one", "words", 100, 40)
    drawn.text(50, 30, "■", "#000000", anchor="middle", size=20)
    dark = np.asarray(Image.open(io.BytesIO(drawn.png(scale=1))).convert("L")) < 128
    assert 40 < np.flatnonzero(dark.any(axis=0)).mean() < 60
    turned = VectorFigure("one", "words", 100, 100)
    turned.text(50, 50, "■■■■", "#000000", turn=90.0, size=12)
    dark = np.asarray(Image.open(io.BytesIO(turned.png(scale=1))).convert("L")) < 128
    rows, columns = np.nonzero(dark)
    assert rows.mean() > 58 and abs(columns.mean() - 52) < 8  # clockwise, as in SVG


def test_the_best_are_bold_and_ties_are_marked():
    frame = pl.DataFrame({"case": ["a_b", "=1+1"], "x": [0.5, None], "y": [0.25, 0.125]})
    table = MarkedTable("t", "What it shows.", frame, {"x": 2}, frozenset({(0, "x")}), frozenset({(1, "y")}))
    assert table.markdown().decode().splitlines() == [
        "| case | x | y |",
        "| --- | ---: | ---: |",
        "| a\\_b | **0.50** | 0.250 |",
        "| =1+1 | – | 0.125† |",
        "",
        "What it shows. Bold: best. † may be as good.",
    ]
    latex = table.latex().decode()
    assert "a\\_b & \\textbf{0.50} & 0.250 \\\\" in latex
    assert "=1+1 & – & 0.125\\textsuperscript{\\textdagger} \\\\" in latex
    assert latex.index("\\toprule") < latex.index("\\midrule") < latex.index("\\bottomrule")
    assert table.csv().decode() == "case,x,y\na_b,0.5,0.25\n'=1+1,,0.125\n"
    assert pl.read_parquet(io.BytesIO(table.parquet())).equals(frame)


def test_tables_mark_the_best_of_each_case(view):
    scores = view.table("scores")
    rows = scores.frame.rows(named=True)
    for i, row in enumerate(rows):
        best = {column for r, column in scores.best if r == i}
        assert best == {max(("good", "fair", "bad"), key=lambda m: -np.inf if row[m] is None else row[m])}
    assert view.table("wins").frame.row(0)[1] is None


def test_numbers_that_are_not_known_are_numbers():
    alone = view_of(models=("net",))
    agreement = alone.table("agreement")
    assert agreement.is_number("value_low") and agreement.frame["value_low"].null_count() > 3
    assert alone.table("morf_lerf").frame.schema["tau_low"] == pl.Float64


def test_names_are_cut_in_the_middle():
    assert cut("short") == "short"
    assert len(cut("x" * 99)) == 44 and cut("trained:a/b/c/d/e · data · morf", 20).endswith("data · morf")
    assert tex("50%") == "50\\%"


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_runs_nothing_foreign_and_complains_of_nothing(browser, tmp_path, width):
    page = tmp_path / "rank.html"
    page.write_text(ranking_page(view_of(methods=PAYLOADS[:3], models=PAYLOADS[3:6])), encoding="utf-8")
    with browser.open(page, width) as tab:
        assert tab.faults() == []
        assert not tab.run("document.documentElement.hasAttribute('data-pwned')")
        assert tab.count("svg.ci") == 3 and tab.count("circle") > 9
