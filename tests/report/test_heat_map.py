"""M4's figure: models against methods, on a run whose numbers are known."""

import re
import xml.etree.ElementTree as ET

import polars as pl
import pytest

from heatcheck.report import models_figure, render
from heatcheck.report.heat_map import heat_map

MUTANTS = [
    (
        "report/heat_map.py",
        'facts.sign(metric) * r["mean"]',
        'r["mean"]',
        "test_the_best_cell_has_the_strongest_colour",
    ),
    ("report/heat_map.py", "len(models) < 2", "len(models) < 9", "test_several_models_have_a_figure"),
]
FEW = {"lime": (0.9, 4, 9, 0), "grad_cam": (0.5, 4, 1, 1), "saliency": (0.1, 4, 1, 1)}


@pytest.fixture(scope="module")
def run(fake):
    metrics = ("morf", "abpc", "infidelity")
    return fake(models=("bert", "mpnet"), methods=FEW, metrics=metrics, n=4, text=True, shown=1, spoil=False)


def figure(run):
    return heat_map(run.leaderboard().full, run.facts)


def test_several_models_have_a_figure(run, fake):
    found = figure(run)
    assert [p.title for p in found.panels] == ["average", "M4's raw sum", "morf", "abpc", "infidelity"]
    assert all(len(p.cells) == 2 * 3 for p in found.panels)
    assert found.averaged == found.summed == ("morf", "abpc", "infidelity")
    assert 'id="models"' in render(run)
    alone = fake(models=("bert",), methods=FEW, metrics=("morf", "abpc"), n=3, text=True, shown=1)
    assert figure(alone) is None and models_figure(alone) is None and 'id="models"' not in render(alone)
    alone.facts["profile"] = "m4"
    assert figure(alone) is not None


def test_the_best_cell_has_the_strongest_colour(run):
    board = run.leaderboard().full
    for panel in figure(run).panels[2:]:
        rows = board.filter((board["metric"] == panel.title) & ~board["control"]).sort("mean")
        best = rows[-1 if "higher" in panel.way else 0]
        strongest = [c for c in panel.cells if c.shade == 8]
        assert f"{best['method'].item()} on {best['model'].item()}," in strongest[0].about
        assert sum(c.best for c in panel.cells) == 2  # of each model


@pytest.mark.parametrize(
    ("factor", "title"), [(2e-4, "infidelity, 10⁻³"), (2e-7, "infidelity, 10⁻⁶"), (1e7, "infidelity, 10⁶")]
)
def test_numbers_of_any_size_fit_into_their_cells(run, factor, title):
    """They are given in thousandths, millions and so on, which the title says; under the pointer they are whole."""
    board = run.leaderboard().full
    means = board.filter((board["metric"] == "infidelity") & ~board["control"])["mean"].drop_nulls()
    size = factor / means.max()
    small = board.with_columns(mean=pl.when(metric="infidelity").then(pl.col("mean") * size).otherwise("mean"))
    panel = heat_map(small, run.facts).panels[-1]
    assert panel.title == title
    assert all(len(cell.text) <= 6 for cell in panel.cells)
    best = next(cell for cell in panel.cells if cell.shade == 8)
    whole = float(best.about.split("infidelity: ")[1].split(", z")[0].replace("−", "-"))
    power = int(title.split(", 10")[1].translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")))
    assert float(best.text.replace("−", "-")) * 10.0**power == pytest.approx(whole, rel=0.02)


def test_blank_cells_have_a_reason(run):
    first = run.facts["skipped"]
    run.facts["skipped"] = [{"model": "mpnet", "method": "grad_cam", "metric": None, "reason": "no feature maps"}]
    scores = run._scores
    run._scores = scores.filter(~((scores["model"] == "mpnet") & (scores["method"] == "grad_cam")))
    try:
        found = figure(run)
    finally:
        run.facts["skipped"], run._scores = first, scores
    blank = [c for p in found.panels[2:] for c in p.cells if c.shade < 0]
    assert len(blank) == 3 and all(c.text == "–" and "no feature maps" in c.about for c in blank)
    assert found.blanks == (("grad_cam on mpnet", "no feature maps"),)


def test_the_file_is_a_drawing_of_its_own(run):
    drawing = ET.fromstring(models_figure(run))
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    cells = drawing.findall(".//{*}rect")
    assert len(cells) == 5 * 6 and all(re.fullmatch("#[0-9a-f]{6}", c.get("fill")) for c in cells)
    assert not drawing.findall(".//{*}script") and not drawing.findall(".//{*}style")


def test_hostile_names_stay_names(fake):
    evil = "</text><script>alert(1)</script>"
    methods = {f"{evil}{i}": v for i, v in enumerate(FEW.values())}
    run = fake(models=(f"{evil}a", f"{evil}b"), methods=methods, metrics=("morf", "abpc"), n=2, text=True, shown=1)
    assert "<script>alert" not in models_figure(run) and "<script>alert" not in render(run)
    ET.fromstring(models_figure(run))


def test_words_above_a_panel_end_before_the_next(run):
    first, second, *_ = figure(run).panels
    for panel in (first, second):
        assert max(8 * len(panel.title), 6 * len(panel.way)) < second.x - first.x
