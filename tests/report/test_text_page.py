"""Texts on the page: columns, folds, underlines, curves, and strings of others."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from heatcheck.report import TextReading, render, text_sheet, text_sheet_page
from heatcheck.report.texts import Text, Values

MUTANTS = [
    ("report/views.py", 'self.input.get("short", True)', "True", "test_a_long_text_opens_with_as_many_columns_as_fit"),
    (
        "report/texts.py",
        'f"t{levels[i]}" if levels[i]',
        'f"t{-levels[i]}" if levels[i]',
        "test_colours_are_signed_and_only_weak_lines_are_folded",
    ),
    (
        "report/samples.py",
        ' if e["kind"] in SCRIPTED}',
        "}",
        "test_the_script_has_every_map_of_a_gallery_of_texts",
    ),
    (
        "report/samples.py",
        "for m, e in item.maps if e",
        "for m, e in item.maps[:1] if e",
        "test_the_script_has_every_map_of_a_gallery_of_texts",
    ),
]
FEW = {"lime": (0.9, 4, 9, 0), "saliency": (0.5, 4, 1, 1), "rise": (0.3, 4, 1, 1), "deep_lift": (0.1, 4, 1, 1)}


def review(words=100, per_sentence=10):
    """A long text, of which people marked the words 43 to 46."""
    rows = [("[CLS]", "", True, -1, -1, False)]
    rows += [(f"w{i}", f" w{i}", False, i, i // per_sentence, 43 <= i < 47) for i in range(words)]
    rows += [("[SEP]", "", True, -1, -1, False)]
    keys = ("tokens", "pieces", "special", "word", "sentence", "rationale")
    return {"kind": "text", "first": 0, **dict(zip(keys, map(list, zip(*rows, strict=True)), strict=True))}


def long_run(fake, display, heat, **options):
    run = fake(methods=FEW, metrics=("morf", "abpc"), n=3, text=True, shown=2, spoil=False, **options)
    for key in run._displays:
        run._displays[key] = display
    for key in run._maps:
        run._maps[key] = heat
    return run


class Outline(HTMLParser):
    """Readings, each with its tokens as (piece, class, underlined, folded), and its lines."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.readings, self.under, self.folded, self.css, self.sparks, self.dirs = [], 0, 0, None, 0, set()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        if "data-reading" in known:
            self.readings.append((known["data-reading"], []))
        self.under += tag == "u"
        self.folded += tag == "details" and known.get("class") == "fold"
        self.sparks += tag == "svg" and known.get("class") == "spark"
        if tag == "div" and known.get("class") == "line":
            self.dirs.add(known["dir"])
        if tag == "i" and self.readings:
            self.css = known.get("class", "")

    def handle_endtag(self, tag):
        self.under -= tag == "u"
        self.folded -= tag == "details" and self.folded > 0
        self.css = None if tag == "i" else self.css

    def handle_data(self, data):
        if self.css is not None:
            self.readings[-1][1].append((data, self.css, bool(self.under), bool(self.folded)))


@pytest.fixture(scope="module")
def page(fake):
    heat = np.zeros(102)
    heat[15], heat[82] = 1.0, -0.6
    html = render(long_run(fake, review(), heat))
    return html, Outline(html)


def test_a_long_text_opens_with_as_many_columns_as_fit(page):
    html, found = page
    assert [key.split(":")[1] for key, _ in found.readings[:3]] == ["", "0", "1"]  # people, and the two best methods
    assert len(found.readings) == 2 * 3 and html.count("data-choose=") == 2 * 8
    for _, tokens in found.readings:
        assert [piece for piece, *_ in tokens] == ["[CLS]", *(f"w{i}" for i in range(100)), "[SEP]"]
    assert found.dirs == {"auto"}


def test_colours_are_signed_and_only_weak_lines_are_folded(page):
    _, found = page
    _, tokens = found.readings[1]
    assert (tokens[15][1], tokens[82][1], tokens[20][1]) == ("t8", "t-5", "") and tokens[0][1] == "sp"
    folded = {int(piece[1:]) // 10 for piece, _, _, closed in tokens if closed and piece[0] == "w"}
    assert folded == set(range(2, 8))
    assert "60 words" in page[0]


def test_what_people_marked_is_underlined_everywhere(page):
    html, found = page
    for _, tokens in found.readings:
        assert [piece for piece, _, under, _ in tokens if under] == ["w43", "w44", "w45", "w46"]
    people = found.readings[0][1]
    assert [piece for piece, _, _, closed in people if not closed][-10:] == [f"w{i}" for i in range(40, 50)]
    assert "<u>4 underlined</u>" in html
    assert html.count("<u>") == html.count("</u>")


def script_of(html):
    """What the script of a page with one case knows."""
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1])["cases"][0]


def test_the_script_has_a_text_once_and_its_maps_without_it(page):
    data = script_of(page[0])
    texts = [s for s in data["samples"].values() if s["input"]]
    assert len(texts) >= 2 and all(len(s["input"]["pieces"]) == 102 for s in texts)
    assert all("blocks" not in made and "pieces" not in made for made in data["maps"].values())
    assert data["sparks"]["names"] == ["morf", "abpc"] and page[1].sparks >= 4


@pytest.mark.parametrize("text", [True, False], ids=["texts", "pictures"])
def test_the_script_has_every_map_of_a_gallery_of_texts(fake, text):
    """It draws columns of texts itself; pictures of the gallery are on the page, and would be there twice."""
    run = fake(methods=FEW, metrics=("morf",), n=24, text=text, shown=4, spoil=False)
    data = script_of(render(run))
    place = {known["name"]: int(i) for i, known in data["samples"].items()}
    stored = {place[sample] for _, sample, _ in run._maps}
    extremes = {
        f"{cell.split(':')[0]}:{sample}"
        for cell, known in data["cells"].items()
        for sample, _ in known["best"] + known["worst"]
        if sample in stored
    }
    every = {f"{m}:{place[s]}" for m in range(len(data["methods"])) for _, s in run.gallery()}
    assert len(every) == 4 * 8 and len(every - extremes) > 8
    assert set(data["maps"]) == (extremes | every if text else extremes)


def test_a_short_text_is_shown_under_all_methods(fake):
    found = Outline(render(long_run(fake, review(12), np.arange(14.0))))
    assert len(found.readings) == 2 * 8  # nothing is marked: no column for people
    assert not any(closed for _, tokens in found.readings for *_, closed in tokens)


def test_five_hundred_words_and_fifteen_methods_stay_small(fake):
    many = {f"method_{i}": (0.5, 4, 1, 1) for i in range(11)}
    heat = np.random.default_rng(0).normal(size=502)
    run = fake(methods=many, metrics=("morf",), n=9, text=True, shown=9, spoil=False)
    for key in run._displays:
        run._displays[key] = review(500)
    for key in run._maps:
        run._maps[key] = heat
    assert len(render(run)) < 2_500_000


HOSTILE = [
    "<script>x</script>",
    '"><img onerror=x>',
    "\x00",
    "\u202egnp",
    "é\u0301\u0301",
    "👩‍🚀",
    "שלום",
    "{{7*7}}",
    "</i>",
]


def test_hostile_tokens_stay_text(fake):
    display = review(80)
    for i, evil in enumerate(HOSTILE):
        display["tokens"][i + 3] = evil
        display["pieces"][i + 3] = f" {evil}"
    html = render(long_run(fake, display, np.arange(82.0)))
    found = Outline(html)
    assert "<script>x" not in html and "<img onerror" not in html and html.count("<script") == 2
    assert not re.search("[\x00-\x08\u202a-\u202e]", html)
    pieces = [piece for piece, *_ in found.readings[0][1]]
    assert len(pieces) == 82 and "שלום" in pieces and "👩‍🚀" in pieces and "<script>x</script>" in pieces
    text = Text.of(display)
    sheet = text_sheet_page([[TextReading(HOSTILE[0], HOSTILE[1], text, Values.of(np.arange(82.0), text))]])
    assert "<script" not in sheet and "<img" not in sheet and "script-src &#39;none&#39;" in sheet
    assert text_sheet([[TextReading("m", "\x00", text, Values.of(np.arange(82.0), text))]]).height > 200
