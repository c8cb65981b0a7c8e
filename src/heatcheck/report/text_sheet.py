"""Explained texts as a picture: lines of coloured words, one map below the other."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from PIL import Image, ImageDraw, features

from heatcheck.report.fonts import Fonts
from heatcheck.report.reading_order import reads_leftward, visual_order
from heatcheck.report.texts import LEVELS, Text, TextBlock, Values, blocks
from heatcheck.report.wording import decimals, number, number_of_size, plain

_WIDTH, _MARGIN, _SIZE, _SMALL = 960, 28, 17, 13
_LEADING, _SENTENCE, _GAP = 27, 7, 26
_PAPER, _INK, _SOFT = (255, 255, 255), (29, 27, 24), (102, 97, 90)
FOR, AGAINST = (226, 87, 28), (47, 120, 196)
_TOLD = 8  # characters that are named where they cannot be drawn


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


def text_sheet(rows: Sequence[Sequence[TextReading]], note: Callable[[str], object] = lambda text: None) -> Image.Image:
    """All readings below one another, with a scale; nothing is folded.

    Args:
        rows: for every text, its readings.
        note: told which characters no font of this machine has.
    """
    page = _Page()
    for readings in rows:
        for reading in readings:
            page.heading(f"{plain(reading.method)}: {plain(reading.target)}", f"full colour {reading.full}")
            page.text(reading)
    page.scale()
    if lacking := list(page.fonts.lacking):
        named = " ".join(lacking[:_TOLD]) + (" …" if len(lacking) > _TOLD else "")
        what = "1 character" if len(lacking) == 1 else f"{len(lacking)} characters"
        note(f"{what} ({named}) cannot be drawn with the installed fonts; write .html instead")
    return page.image()


@dataclass(frozen=True)
class _Word:
    """What stands together in a line: a token; the tokens of a word that is read from the right, whose letters join.

    Args:
        gap: whether a space is before it.
        pieces: the text of each token.
        levels: the shade of each.
        special: whether it is a special token.
    """

    gap: bool
    pieces: tuple[str, ...]
    levels: tuple[int, ...]
    special: bool

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def known(self) -> str:
        """What decides its place in the line; special tokens stand where their neighbours want them."""
        return "\ufffc" if self.special else self.text

    @property
    def size(self) -> int:
        return _SMALL if self.special else _SIZE


def _words(tokens: Iterable[tuple[bool, str, str]]) -> list[_Word]:
    found: list[_Word] = []
    for gap, piece, css in tokens:
        text = plain(piece).replace("\n", " ").replace("\t", " ")
        level = int(css[1:]) if css not in ("", "sp") else 0
        own = _Word(gap, (text,), (level,), css == "sp")
        joins = found and not gap and reads_leftward([own.known]) and reads_leftward([found[-1].known])
        if joins:
            last = found.pop()
            own = _Word(last.gap, (*last.pieces, text), (*last.levels, level), False)
        found.append(own)
    return found


class _Page:
    """A page that grows as it is written on."""

    def __init__(self) -> None:
        self._pen = ImageDraw.Draw(Image.new("RGB", (1, 1)))
        self.fonts = Fonts()
        self._shapes = features.check("raqm")
        self._space = self._length(" ", _SIZE)
        self._marks: list[tuple[str, tuple[Any, ...]]] = []
        self._y = _MARGIN

    def heading(self, title: str, remark: str) -> None:
        self._write(_MARGIN, self._y, title, _SIZE, _INK)
        self._write(_MARGIN + self._length(title, _SIZE) + 14, self._y + 4, remark, _SMALL, _SOFT)
        self._y += _LEADING
        self._marks.append(("line", ((_MARGIN, self._y - 2, _WIDTH - _MARGIN, self._y - 2), _INK)))
        self._y += 8

    def text(self, reading: TextReading) -> None:
        for line in (line for block in reading.blocks for line in block.lines):
            words = _words(token for _, run in line for token in run)
            leftward = reads_leftward(word.known for word in words)
            for row in self._rows(words):
                self._row(row, leftward)
                self._y += _LEADING
            self._y += _SENTENCE
        self._y += _GAP

    def scale(self) -> None:
        x = float(_MARGIN)
        self._write(x, self._y, "against", _SMALL, _SOFT)
        x += self._length("against", _SMALL) + 8
        for level in range(-LEVELS, LEVELS + 1, 2):
            self._box(x, x + 18, self._y, self._y + 16, level)
            x += 18
        self._write(x + 8, self._y, "for the class", _SMALL, _SOFT)
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
                pen.text(what[0], what[1], font=what[2], fill=what[3], direction=what[4])
        return page

    def _rows(self, words: Sequence[_Word]) -> Iterator[list[_Word | None]]:
        """Words that fit beside each other, in the order in which they are read, with None for a space."""
        row: list[_Word | None] = []
        used = 0.0
        for word in words:
            space = self._space if word.gap and row else 0.0
            width = self._width(word)
            if row and used + space + width > _WIDTH - 2 * _MARGIN:
                yield row
                row, used, space = [], 0.0, 0.0
            row += [None, word] if space else [word]
            used += space + width
        yield row

    def _row(self, row: Sequence[_Word | None], leftward: bool) -> None:
        widths = [self._width(word) if word else self._space for word in row]
        x = _WIDTH - _MARGIN - sum(widths) if leftward else float(_MARGIN)
        for i, from_right in visual_order([word.known if word else " " for word in row], leftward):
            if (word := row[i]) is not None:
                self._word(word, x, widths[i], from_right and not word.special)
            x += widths[i]

    def _word(self, word: _Word, x: float, width: float, from_right: bool) -> None:
        """A word over the boxes of its tokens, whose first is at its right end where it is read from there."""
        lengths = [self._length(piece, word.size) for piece in word.pieces]
        ends = [width * end / (sum(lengths) or 1.0) for end in accumulate(lengths, initial=0.0)]
        for (start, end), level in zip(pairwise(ends), word.levels, strict=True):
            if level:
                left, right = (x + width - end, x + width - start) if from_right else (x + start, x + end)
                self._box(left - 0.5, right + 0.5, self._y - 2, self._y + _SIZE + 4, level)
        down, ink = (3, _SOFT) if word.special else (0, _INK)
        self._write(x, self._y + down, word.text, word.size, ink, from_right=from_right)

    def _box(self, left: float, right: float, top: float, bottom: float, level: int) -> None:
        outline = AGAINST if level < -2 else None
        self._marks.append(("box", ((left, top, right, bottom), shade(level), outline)))

    def _write(
        self, x: float, y: float, text: str, size: int, colour: tuple[int, int, int], *, from_right: bool = False
    ) -> None:
        direction = "rtl" if from_right and self._shapes else None
        text = text[::-1] if from_right and not self._shapes else text
        self._marks.append(("text", ((x, y), text, self.fonts.of(text, size), colour, direction)))

    def _width(self, word: _Word) -> float:
        return self._length(word.text, word.size)

    def _length(self, text: str, size: int) -> float:
        return self._pen.textlength(text, self.fonts.of(text, size))
