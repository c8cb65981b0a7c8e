"""Texts as pictures: words stand where readers of their script expect them, and what fonts lack is said."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont, features

from heatcheck.report import TextReading, fonts, text_sheet
from heatcheck.report.fonts import Fonts
from heatcheck.report.reading_order import reads_leftward, visual_order
from heatcheck.report.text_sheet import AGAINST, FOR
from heatcheck.report.texts import Text, Values

MUTANTS = (
    ("report/reading_order.py", "order[at:end] = reversed(order[at:end])", "pass", "test_words_stand_as_unicode_says"),
    ("report/reading_order.py", "kind == _NUMBER and strong == _LEFT", "kind == _NUMBER", "test_words_stand_as_unicode_says"),
    ("report/reading_order.py", "kind = before if before == behind else base", "kind = base", "test_words_stand_as_unicode_says"),
    ("report/text_sheet.py", "(x + width - end, x + width - start) if from_right", "(x + start, x + end) if from_right", "test_the_tokens_of_a_word_are_coloured_where_they_are_read"),
    ("report/fonts.py", 'letter for letter in text if letter in letters and not', "letter for letter in text if letter in letters and", "test_what_no_font_has_is_said"),
)  # fmt: skip
DEJAVU = Path(find_spec("matplotlib").origin).parent / "mpl-data/fonts/ttf/DejaVuSans.ttf"
FILM = "الفيلم"


@pytest.fixture
def dejavu(monkeypatch):
    """One font, with Arabic and Hebrew letters and no Chinese ones."""
    monkeypatch.setattr(fonts, "_NAMES", (str(DEJAVU),))
    monkeypatch.setattr(fonts, "font_folders", list)


def drawn(pieces, values, note=lambda text: None):
    special = [piece.strip() in ("[CLS]", "[SEP]") for piece in pieces]
    text = Text.of({"tokens": [piece.strip() for piece in pieces], "pieces": pieces, "special": special})
    return text_sheet([[TextReading("m", "c", text, Values.of(np.array(values, float), text))]], note)


def places(page, colour):
    """Columns that have nearly the full colour in the lines of the text, without heading and scale."""
    near = np.abs(np.asarray(page)[60:-60].astype(int) - (0.18 * 255 + 0.82 * np.array(colour))).max(2) < 4
    return np.flatnonzero(near.any(0))


@pytest.mark.parametrize(
    ("words", "leftward", "shown"),
    [
        ("a b c", False, "a b c"),
        ("א ב ג", True, "ג ב א"),
        ("a א ב b", False, "a ב א b"),
        ("א a b ב", True, "ב a b א"),
        ("א a", False, "א a"),
        ("א ב !", False, "ב א !"),  # in a line from the left, a mark at its end stays there
        ("א ב !", True, "! ב א"),
        ("א , ב a", False, "ב , א a"),
        ("a 12 א", False, "a 12 א"),
        ("א 12 ב a", False, "ב 12 א a"),
        ("א 12 a", True, "a 12 א"),
        ("א a 12", True, "a 12 א"),
        ("12 א", True, "א 12"),
        ("א 1 2", True, "2 1 א"),  # a space between numbers is no part of them
        ("א ١٢ ب", True, "ب ١٢ א"),
    ],
)  # fmt: skip
def test_words_stand_as_unicode_says(words, leftward, shown):
    """Known answers, found with the rules of UAX 9 by hand; spaces are words of their own."""
    each = [part for word in words.split() for part in (word, " ")][:-1]
    order = visual_order(each, leftward)
    assert "".join(each[i] for i, _ in order) == shown
    assert all(right for i, right in order if "א" <= each[i] <= "ת") and not any(
        right for i, right in order if each[i].isascii() and each[i].isalnum()
    )


def test_points_and_signs_stay_with_their_number():
    words = ["א", " ", "3", ".", "5", "%", " ", "ב"]
    assert "".join(words[i] for i, _ in visual_order(words, True)) == "ב 3.5% א"


def test_the_first_letter_decides_how_a_line_is_read():
    assert reads_leftward(["…", "12", "שלום", "hello"])
    assert not reads_leftward(["hello", "שלום"]) and not reads_leftward(["12"]) and not reads_leftward([])


@pytest.mark.usefixtures("dejavu")
def test_words_from_the_right_begin_at_the_right():
    page = drawn(["[CLS]", " שלום", " רב", " עולם", " [SEP]"], [0, 1, 0, -1, 0])
    assert places(page, FOR).min() > places(page, AGAINST).max() + 10
    assert places(page, AGAINST).min() > page.width / 2, "the line stands at the right margin"
    page = drawn(["[CLS]", " hello", " dear", " world", " [SEP]"], [0, 1, 0, -1, 0])
    assert places(page, FOR).max() < places(page, AGAINST).min() and places(page, AGAINST).max() < page.width / 2


@pytest.mark.usefixtures("dejavu")
def test_the_tokens_of_a_word_are_coloured_where_they_are_read():
    page = drawn([" של", "ום", " עולם"], [1, -1, 0])
    assert places(page, FOR).min() > places(page, AGAINST).max() - 2


@pytest.mark.usefixtures("dejavu")
@pytest.mark.skipif(not features.check("raqm"), reason="this Pillow joins no letters")
def test_letters_join_across_tokens():
    """The word that two tokens make is drawn as one."""

    def ink(page):
        dark = np.asarray(page.convert("L"))[60:-60] < 60
        rows, columns = (np.flatnonzero(dark.any(axis)) for axis in (1, 0))
        return dark[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]

    whole, font = Image.new("RGB", (300, 200), "white"), ImageFont.truetype(DEJAVU, 17)
    ImageDraw.Draw(whole).text((200 - font.getlength(FILM), 80), FILM, font=font, fill=(29, 27, 24))
    split = ink(drawn([f" {FILM[:3]}", FILM[3:]], [0, 0]))
    assert split.shape == ink(whole).shape and not (split != ink(whole)).any()
    apart = ink(drawn([f" {FILM[:3]}", f" {FILM[3:]}"], [0, 0]))
    assert apart.shape != split.shape


@pytest.mark.usefixtures("dejavu")
def test_without_joining_letters_stand_in_their_order(monkeypatch):
    real = features.check
    monkeypatch.setattr(features, "check", lambda name: name != "raqm" and real(name))
    page = drawn(["[CLS]", " שלום", " עולם", " [SEP]"], [0, 1, -1, 0])
    assert places(page, FOR).min() > places(page, AGAINST).max()


@pytest.mark.usefixtures("dejavu")
def test_what_no_font_has_is_said():
    told = []
    drawn([" a", " 电", "影", " 电"], [1, 0, 0, 0], told.append)
    assert told == ["2 characters (电 影) cannot be drawn with the installed fonts; write .html instead"]
    told.clear()
    drawn([f" {FILM}", " שלום", " café", "\u0301", "\u200d"], [1, 0, 0, 0, 0], told.append)
    assert told == []
    drawn([" " + "".join(chr(0x4E00 + i) for i in range(20))], [1], told.append)
    assert told[0].startswith("20 characters (一 丁 ") and " …)" in told[0]


def test_a_font_that_has_the_letters_is_found(tmp_path, monkeypatch):
    builder = pytest.importorskip("fontTools.fontBuilder")
    glyphs = pytest.importorskip("fontTools.pens.ttGlyphPen")

    def box(side):
        pen = glyphs.TTGlyphPen(None)
        pen.moveTo((0, 0))
        for corner in ((0, side), (side, side), (side, 0)):
            pen.lineTo(corner)
        pen.closePath()
        return pen.glyph()

    made = builder.FontBuilder(1000, isTTF=True)
    made.setupGlyphOrder([".notdef", "film"])
    made.setupCharacterMap({ord("影"): "film"})
    made.setupGlyf({".notdef": box(100), "film": box(800)})
    made.setupHorizontalMetrics({".notdef": (1000, 0), "film": (1000, 0)})
    made.setupHorizontalHeader(ascent=800, descent=-200)
    made.setupNameTable({"familyName": "Own", "styleName": "Regular"})
    made.setupOS2()
    made.setupPost()
    (tmp_path / "deep").mkdir()
    made.save(tmp_path / "deep" / "own.ttf")
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    monkeypatch.setattr(fonts, "_NAMES", (str(DEJAVU),))
    monkeypatch.setattr(fonts, "font_folders", lambda: [tmp_path, tmp_path / "absent"])
    found = Fonts()
    assert found.of("影", 17).getname() == ("Own", "Regular")
    assert found.of("שלום", 17).getname()[0] == "DejaVu Sans" and not found.lacking
    assert found.of("影 abc", 17).getname()[0] == "DejaVu Sans" and list(found.lacking) == ["影"]
