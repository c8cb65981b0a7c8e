"""The page of a comparison in a real browser, at three widths: whole, quiet, sortable, and deaf to foreign scripts."""

from dataclasses import replace

import polars as pl
import pytest
from tests.browser import WIDTHS
from tests.report.test_compare import comparison
from tests.report.test_compare_figures import questions
from tests.report.test_hostile import PAYLOADS, PWNED

from heatcheck.api.questions import questions as asked
from heatcheck.report.compare_page import render_comparison
from heatcheck.stats.evidence import Evidence

MUTANTS = [
    ("report/templates/style.css", ".marked td { white-space: nowrap; }", ".marked td { overflow-wrap: anywhere; }", "test_no_name_is_broken_inside_a_word"),
    ("report/templates/script.js", "isNaN(x) || isNaN(y) ?", "false ?", "test_a_click_on_a_heading_sorts_its_column"),
]  # fmt: skip
FEW = {"grad_cam": (0.8, 4, 1, 1), "integrated_gradients(steps=64)": (0.5, 8, 9, 9), "lime": (0.4, 4, 9, 0)}
NAMES = ("tv:efficientnet_lite0", "squeezenet1_0@/weights/squeezenet1_0_imagenet.safetensors")


def everything(fake, word="resnet50", rename=None):
    """A comparison with M4 that has every table and figure there is; its texts are `word`, or what `rename` makes of them."""
    more = {"word": rename} if rename else {}
    run = fake(models=NAMES, methods=FEW, metrics=("morf", "abpc", "infidelity"), n=6, side=12, shown=1, **more)
    numerics = {m["name"]: {"device": "cpu"} for m in run.facts["models"]}
    facts = {**run.facts, "numerics": numerics, "peak_bytes": 1_200_000_000}
    evidence = Evidence(run.scores(), facts, resamples=50)
    tables = asked("m4", evidence, [], {}) | questions(word)
    return comparison(word, board=evidence.board, questions=tables, facts=facts)


@pytest.fixture(scope="module")
def page(fake, tmp_path_factory):
    path = tmp_path_factory.mktemp("compare") / "compare.html"
    path.write_text(render_comparison(everything(fake)), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_whole_at_every_width(browser, page, width):
    with browser.open(page, width) as tab:
        assert tab.faults() == []
        assert tab.count("svg.modelfig") >= 8 and tab.count("svg.ci") == 1
        assert tab.count("#models svg.modelfig rect") == 5 * 2 * 3  # average, sum and three metrics


BROKEN = """((roots) => {
  const found = [];
  for (const root of document.querySelectorAll(roots)) {
    const words = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (words.nextNode()) {
      for (const word of words.currentNode.textContent.matchAll(/[\\p{L}\\p{N}]+/gu)) {
        const range = document.createRange();
        range.setStart(words.currentNode, word.index);
        range.setEnd(words.currentNode, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (lines.size > 1) found.push(word[0]);
      }
    }
  }
  return found;
})"""


@pytest.mark.parametrize("width", WIDTHS)
def test_no_name_is_broken_inside_a_word(browser, page, width):
    with browser.open(page, width) as tab:
        assert tab.run(f'{BROKEN}(".lede, .plain, .beside, figcaption, .claims")') == []


def test_a_click_on_a_heading_sorts_its_column(browser, page):
    with browser.open(page, 1400) as tab:
        tab.run('document.querySelector("table.marked").id = "first"')
        heads = tab.run('[...document.querySelectorAll("#first thead th")].map((th) => th.innerText.trim())')
        assert heads[:2] == ["model", "method"] and heads[2].startswith("morf")
        for k in range(3):
            for way in ("descending", "ascending") if k == 2 else ("ascending", "descending"):
                tab.click("#first .sort", k)
                cells = tab.run(f'[...document.querySelectorAll("#first tbody tr")].map((r) => r.cells[{k}].dataset.v)')
                values = [float(v) if k == 2 else v for v in cells]
                assert len(set(values)) > 1 and values == sorted(values, reverse=way == "descending"), (k, way)
        assert tab.faults() == []


def test_a_long_table_is_folded_away_and_says_that_it_is_wide(browser, fake, tmp_path):
    made = everything(fake)
    longer = {**made.questions, "overall": pl.concat([made.questions["overall"]] * 9)}
    path = tmp_path / "long.html"
    path.write_text(render_comparison(replace(made, questions=longer)), encoding="utf-8")
    with browser.open(path, 390) as tab:
        assert tab.text("#questions details > summary") == f"All {longer['overall'].height} rows"
        tab.click("#questions details > summary")
        assert tab.run('document.querySelector("#questions details .hint").hidden') is False
        assert tab.faults() == []


@pytest.mark.slow
def test_no_payload_runs_in_a_browser(browser, fake, tmp_path):
    everyone = [p.encode(errors="replace").decode() for p in PAYLOADS if p and len(p) < 1000]
    for part in range(0, len(everyone), 8):
        payload = " ".join(everyone[part : part + 8])
        numbered = {}

        def word(kind, name, payload=payload, numbered=numbered):
            if kind in ("method", "model", "metric", "sample"):  # these are keys and must stay distinct
                return f"{payload} {numbered.setdefault((kind, name), len(numbered))}"
            return payload

        path = tmp_path / f"{part}.html"
        path.write_text(render_comparison(everything(fake, payload, word)), encoding="utf-8")
        with browser.open(path) as tab:
            tab.click("table.marked .sort")
            assert tab.run(PWNED) is None
            assert tab.count("script") == 2 and tab.count("iframe, base, object, form, meta[http-equiv=refresh]") == 0
            assert tab.faults() == []
