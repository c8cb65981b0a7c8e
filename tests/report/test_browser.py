"""Our pages in a real browser, at three widths: whole, quiet, and alive under the pointer."""

import numpy as np
import pytest
from tests.browser import WIDTHS
from tests.report.test_multiverse import made_up
from tests.report.test_page import small
from tests.report.test_text_page import long_run, review

from heatcheck.report import write_report

MUTANTS = [
    ("report/templates/script.js", "sign * (column === 0 ||", "(column === 0 ||", "test_a_click_on_a_heading_sorts_the_table"),
    ("report/templates/script.js", "if (there) there.remove();", "if (there) return;", "test_methods_beside_a_long_text_are_chosen_by_clicks"),
    ("report/templates/script.js", 'class: "sp", dir: "ltr" }', 'class: "sp" }', "test_special_tokens_do_not_turn_a_line_that_is_read_from_the_right"),
    ("report/templates/text_lines.html.j2", ' dir="ltr"', "", "test_special_tokens_do_not_turn_a_line_that_is_read_from_the_right"),
    ("report/templates/style.css", ".wrap { max-width: 1160px;", ".wrap { min-width: 1160px;", "test_a_page_is_whole_at_every_width"),
]  # fmt: skip
FAULTY = """<body><svg role="img" aria-label="empty"><line class="grid" x2="9" y2="9"/></svg>
<div style="width: 120vw"><b>wide</b><span style="float: right">lost</span></div>
<div style="overflow-x: auto"><p style="width: 300vw">scrolls</p></div>
<svg><text y="20">one</text><text y="22" x="3">two</text></svg>
<img src="http://nowhere.invalid/x.png"><script>console.error("said"); undefined_function();</script></body>"""


def leftward():
    """A long text in Hebrew letters; its special tokens are in Latin ones."""
    display = review()
    for i, special in enumerate(display["special"]):
        if not special:
            display["tokens"][i], display["pieces"][i] = f"מלה{i}", f" מלה{i}"
    return display


@pytest.fixture(scope="module")
def written(fake, tmp_path_factory):
    """Pages of made-up runs, each written once, when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")
    heat = np.zeros(102)
    heat[15], heat[82] = 1.0, -0.6
    runs = {
        "pictures": lambda: fake(n=12, side=24, shown=2),
        "models": lambda: small(fake, models=("one", "two")),
        "texts": lambda: small(fake, text=True),
        "long texts": lambda: long_run(fake, review(), heat),
        "leftward texts": lambda: long_run(fake, leftward(), heat),
        "multiverse": lambda: made_up(fake),
    }

    def write(name):
        path = folder / f"{name}.html"
        return path if path.exists() else write_report(runs[name](), path)

    return write


def test_faults_are_found(browser, tmp_path):
    page = tmp_path / "faulty.html"
    page.write_text(FAULTY)
    with browser.open(page, 600) as tab:
        told = "\n".join(tab.faults())
        for fault in (
            "without marks: empty",
            "beyond the window",
            "lost",
            "said",
            "undefined_function",
            "scrolls side",
        ):
            assert fault in told
        assert "requested: http://nowhere.invalid/x.png" in told and "<p" not in told
        assert tab.collisions() == ["one over two"]


@pytest.mark.parametrize(
    "name",
    [
        "pictures",
        "texts",
        "long texts",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("models", "multiverse")),
    ],
)
def test_a_page_is_whole_at_every_width(browser, written, name):
    for width in WIDTHS:
        with browser.open(written(name), width) as tab:
            assert tab.faults() == [], f"{width} pixels"
            assert tab.collisions("svg.plot") == [], f"{width} pixels"


def test_the_first_screen_has_the_answer_and_its_picture(browser, written):
    with browser.open(written("pictures"), 1400, 900) as tab:
        for part in (".verdict", ".sure", ".ranks tbody tr:first-child", ".limits"):
            assert tab.run(f"document.querySelector('{part}').getBoundingClientRect().top") < 850, part
        names = tab.run(
            '[...document.querySelectorAll(".ranks tbody th")].map((th) => th.innerText.trim()).filter(Boolean)'
        )
        assert len(names) == len(set(names)) == tab.count(".ranks circle")


def column(tab, k):
    cells = tab.run(f'[...document.querySelectorAll(".heat tbody tr")].map((row) => row.cells[{k}].dataset.v)')
    return [v if k == 0 else float(v) for v in cells if v != ""], [v == "" for v in cells]


def test_a_click_on_a_heading_sorts_the_table(browser, written):
    with browser.open(written("pictures"), 1400) as tab:
        for k, first in ((0, "ascending"), (1, "ascending"), (2, "descending"), (3, "ascending")):
            for way in (first, "descending" if first == "ascending" else "ascending"):
                tab.click(".heat .sort", k)
                values, missing = column(tab, k)
                assert len(values) > 5 and values == sorted(values, reverse=way == "descending"), (k, way)
                assert missing == sorted(missing)  # those without a value stay last
                heads = 'document.querySelectorAll(".heat thead th")'
                assert tab.run(f'[...{heads}].map((th) => th.getAttribute("aria-sort")).filter(Boolean)') == [way]
        assert tab.faults() == []


def test_a_cell_opens_its_samples_with_their_maps(browser, written):
    with browser.open(written("pictures"), 1400) as tab:
        tab.click("[data-cell]:not(:disabled)")
        assert tab.run('document.querySelector("dialog").open') is True
        assert tab.count("dialog .one") == 6 and tab.count("dialog .one img") >= 6
        assert tab.count("dialog .strip circle") == 12
        tab.click("#dialog-close")
        assert tab.run('document.querySelector("dialog").open') is False
        assert tab.faults() == []


def test_folded_lines_open_at_a_click(browser, written):
    with browser.open(written("long texts"), 1400) as tab:
        shown = '[...document.querySelectorAll(".readings")[0].querySelectorAll("i")].filter((i) => i.checkVisibility()).length'
        folded = tab.run(shown)
        tab.click(".readings .fold > summary")
        assert tab.run(shown) > folded
        tab.click(".readings .fold > summary")
        assert tab.run(shown) == folded


def test_methods_beside_a_long_text_are_chosen_by_clicks(browser, written):
    with browser.open(written("long texts"), 1400) as tab:
        columns = '[...document.querySelector(".readings").children].map((r) => r.dataset.reading.split(":")[1])'
        assert tab.run(columns) == ["", "0", "1"]
        tab.click(".choose button", 3)
        assert tab.run(columns) == ["", "0", "1", "3"]
        assert tab.text('.readings [data-reading$=":3:0"] .line').split() == ["[CLS]", *(f"w{i}" for i in range(10))]
        tab.click(".choose button", 0)
        assert tab.run(columns) == ["", "1", "3"]
        pressed = tab.run('[...document.querySelectorAll(".choose button")].slice(0, 4).map((b) => b.ariaPressed)')
        assert pressed == ["false", "true", "false", "true"]
        tab.hover(".readings [data-reading$=':1:0'] i", 15)
        assert "w14" in tab.text("#tip")
        assert tab.faults() == []


def test_special_tokens_do_not_turn_a_line_that_is_read_from_the_right(browser, written):
    with browser.open(written("leftward texts"), 1400) as tab:
        tab.click(".choose button", 3)  # the script draws this one, the page has the others
        for reading in (":1:0", ":3:0"):
            line = f"document.querySelector('.readings [data-reading$=\"{reading}\"] .line')"
            assert tab.run(f"getComputedStyle({line}).direction") == "rtl", reading
            assert tab.run(f"{line}.innerText").startswith("[CLS]"), reading
        assert tab.faults() == []
