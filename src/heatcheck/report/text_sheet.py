"""Explained texts as a picture: lines of coloured words, one map below the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from heatcheck.report.texts import LEVELS, Text, TextBlock, Values, blocks
from heatcheck.report.wording import decimals, number, number_of_size, plain

_WIDTH, _MARGIN, _SIZE, _SMALL = 960, 28, 17, 13
_LEADING, _SENTENCE, _GAP = 27, 7, 26
_PAPER, _INK, _SOFT = (255, 255, 255), (29, 27, 24), (102, 97, 90)
FOR, AGAINST = (226, 87, 28), (47, 120, 196)
_FONTS = ("DejaVuSans.ttf", "Arial Unicode.ttf", "arial.ttf")


@dataclass(frozen=True)
class TextReading:
    """One text under one method.

    Args:
        method: its name.
        target: the class that is explained.
        text: the text.
        values: the map over its tokens.
    """

    method: str
    target: str
    text: Text
    values: Values

    @property
    def full(self) -> str:
        """The value that has full colour."""
        return number_of_size(self.values.unit * 1000)

    @cached_property
    def blocks(self) -> list[TextBlock]:
        """Its lines."""
        return blocks(self.text, self.values)

    @cached_property
    def told(self) -> list[str]:
        """What is said of each token: how the model's tokenizer spells it, and its value."""
        places = decimals(1000 * self.values.unit)
        worth = (number(step * self.values.unit, places) for step in self.values.steps)
        return [f"{token}: {value}" for token, value in zip(self.text.tokens, worth, strict=True)]


def shade(level: int) -> tuple[int, int, int]:
    """The colour of a level, from white to full colour."""
    full, share = (FOR if level > 0 else AGAINST), 0.82 * abs(level) / LEVELS
    r, g, b = (round(255 + share * (channel - 255)) for channel in full)
    return r, g, b


def text_sheet(rows: Sequence[Sequence[TextReading]]) -> Image.Image:
    """All readings below one another, with a scale; nothing is folded."""
    page = _Page()
    for readings in rows:
        for reading in readings:
            page.heading(f"{plain(reading.method)} → {plain(reading.target)}", f"full colour {reading.full}")
            page.text(reading)
    page.scale()
    return page.image()


class _Page:
    """A page that grows as it is written on."""

    def __init__(self) -> None:
        self._pen = ImageDraw.Draw(Image.new("RGB", (1, 1)))
        self._font, self._small = _font(_SIZE), _font(_SMALL)
        self._marks: list[tuple[str, tuple[Any, ...]]] = []
        self._y = _MARGIN

    def heading(self, title: str, remark: str) -> None:
        self._write(_MARGIN, self._y, title, self._font, _INK)
        self._write(_MARGIN + self._pen.textlength(title, self._font) + 14, self._y + 4, remark, self._small, _SOFT)
        self._y += _LEADING
        self._marks.append(("line", ((_MARGIN, self._y - 2, _WIDTH - _MARGIN, self._y - 2), _INK)))
        self._y += 8

    def text(self, reading: TextReading) -> None:
        for line in (line for block in reading.blocks for line in block.lines):
            x = float(_MARGIN)
            for gap, piece, css in (token for _, run in line for token in run):
                font, shown = (self._small, _SOFT) if css == "sp" else (self._font, _INK)
                word = plain(piece).replace("\n", " ").replace("\t", " ")
                space = self._pen.textlength(" ", self._font) if gap else 0.0
                width = self._pen.textlength(word, font)
                if x + space + width > _WIDTH - _MARGIN and x > _MARGIN:
                    x, space = float(_MARGIN), 0.0
                    self._y += _LEADING
                x += space
                level = int(css[1:]) if css not in ("", "sp") else 0
                if level:
                    box = (x - 0.5, self._y - 2, x + width + 0.5, self._y + _SIZE + 4)
                    self._marks.append(("box", (box, shade(level), AGAINST if level < -2 else None)))
                self._write(x, self._y + (3 if css == "sp" else 0), word, font, shown)
                x += width
            self._y += _LEADING + _SENTENCE
        self._y += _GAP

    def scale(self) -> None:
        x = float(_MARGIN)
        self._write(x, self._y, "against", self._small, _SOFT)
        x += self._pen.textlength("against", self._small) + 8
        for level in range(-LEVELS, LEVELS + 1, 2):
            box = (x, self._y, x + 18, self._y + 16)
            self._marks.append(("box", (box, shade(level), AGAINST if level < -2 else None)))
            x += 18
        self._write(x + 8, self._y, "for the class", self._small, _SOFT)
        self._y += 16

    def image(self) -> Image.Image:
        page = Image.new("RGB", (_WIDTH, round(self._y) + _MARGIN), _PAPER)
        pen = ImageDraw.Draw(page)
        for kind, what in self._marks:
            if kind == "box":
                pen.rounded_rectangle(what[0], 3, fill=what[1], outline=what[2])
            elif kind == "line":
                pen.line(what[0], fill=what[1], width=2)
            else:
                pen.text(what[0], what[1], font=what[2], fill=what[3])
        return page

    def _write(self, x: float, y: float, text: str, font: Any, colour: tuple[int, int, int]) -> None:
        self._marks.append(("text", ((x, y), text, font, colour)))


def _font(size: int) -> Any:
    """A font with many scripts where the machine has one; else Pillow's own, for European languages."""
    for name in _FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)
