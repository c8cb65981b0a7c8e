"""Figures made of rectangles, lines, dots and words, which become SVG or PNG."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from markupsafe import escape
from PIL import Image, ImageDraw, ImageFont

from heatcheck.report.wording import plain

INK, SOFT, LINE, PAPER = "#1d1b18", "#66615a", "#d8d4cc", "#ffffff"
ACCENT, PALE = "#0b6b6b", "#9cc9c5"
COLOURS = ("#0b7a75", "#c8501b", "#5a4fb0", "#b3346c", "#2c6fb5", "#8a6a00", "#4d7a1f", "#7d4a2b")
FALLING = ("#f6f4ef", "#fbe3d6", "#f6c6ad", "#eda27c", "#e07a4c")
"""From no agreement to reversed rankings."""
LETTER = 0.66
"""Width of a letter, in parts of its size; names are given this much room."""
LONGEST = 44
"""Letters of a name."""
_FONTS = ("DejaVuSans.ttf", "LiberationSans-Regular.ttf", "Arial.ttf", "arial.ttf", "Helvetica.ttc")
_SPELLED = {
    "κ": "kappa",
    "τ": "tau",
    "ρ": "rho",
    "−": "-",
    "⊙": "*",
    "×": "x",
    "…": "...",
    "–": "-",
    "·": "-",
    "≥": ">=",
}
_BOLD = 0.45  # stroke of bold letters, in pixels of the figure

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class FigurePiece:
    """A piece of a figure; `css` are the classes with which a page gives it the colours of its theme."""

    kind: Literal["rect", "line", "path", "dot", "text"]
    at: tuple[float, ...]
    fill: str = ""
    stroke: str = ""
    width: float = 1.0
    css: str = ""
    words: str = ""
    size: float = 11.5
    anchor: Anchor = "start"
    bold: bool = False
    turn: float = 0.0
    about: str = ""


@dataclass
class VectorFigure:
    """A figure.

    Args:
        name: of its files.
        title: what it shows, for those who do not see it.
        width: in pixels.
        height: in pixels.
        shapes: from the lowest to the uppermost.
    """

    name: str
    title: str
    width: float
    height: float
    shapes: list[FigurePiece] = field(default_factory=list)

    def rect(self, x: float, y: float, wide: float, high: float, fill: str, css: str = "", **more: Any) -> None:
        """A rectangle with slightly round corners."""
        self.shapes.append(FigurePiece("rect", (x, y, wide, high), fill=fill, css=css, **more))

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str, css: str = "", width: float = 1.0) -> None:
        """A straight line."""
        self.shapes.append(FigurePiece("line", (x1, y1, x2, y2), stroke=stroke, css=css, width=width))

    def path(self, points: Sequence[tuple[float, float]], stroke: str, css: str = "", width: float = 2.0) -> None:
        """A line through points."""
        self.shapes.append(
            FigurePiece("path", tuple(v for p in points for v in p), stroke=stroke, css=css, width=width)
        )

    def dot(self, x: float, y: float, radius: float, fill: str, css: str = "", about: str = "") -> None:
        """A filled circle."""
        self.shapes.append(FigurePiece("dot", (x, y, radius), fill=fill, css=css, about=about))

    def text(self, x: float, y: float, words: str, fill: str = INK, css: str = "name", **more: Any) -> None:
        """Words on a base line; `turn` turns them around their beginning, in degrees."""
        self.shapes.append(FigurePiece("text", (x, y), fill=fill, css=css, words=plain(words), **more))

    def svg(self) -> str:
        """As an SVG file, which is also part of a page."""
        head = (
            f'<svg class="modelfig" xmlns="http://www.w3.org/2000/svg" width="{_n(self.width)}" height="{_n(self.height)}" '
            f'viewBox="0 0 {_n(self.width)} {_n(self.height)}" font-family="system-ui, Helvetica, Arial, sans-serif" '
            f'role="img" aria-label="{escape(plain(self.title))}">'
        )
        return "\n".join([head, *(_svg(shape) for shape in self.shapes), "</svg>"])

    def png(self, scale: float = 2.0) -> bytes:
        """As a PNG file with `scale` pixels for each of the figure's."""
        image = Image.new("RGB", (round(self.width * scale), round(self.height * scale)), PAPER)
        pen = ImageDraw.Draw(image)
        for shape in self.shapes:
            _draw(shape, image, pen, scale)
        out = io.BytesIO()
        image.save(out, "PNG", optimize=True)
        return out.getvalue()


def cut(name: str, letters: int = LONGEST) -> str:
    """A name of at most so many letters, cut in the middle.

    >>> cut("trained:runs/resnet20@01 · cifar10 · morf", 24)
    'trained:ru…ifar10 · morf'
    """
    head = (letters - 1) * 2 // 5 + 1
    return name if len(name) <= letters else f"{name[:head]}…{name[len(name) - letters + head + 1 :]}"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _svg(s: FigurePiece) -> str:
    css = f' class="{s.css}"' if s.css else ""
    paint = f' fill="{s.fill or "none"}"' + (f' stroke="{s.stroke}" stroke-width="{s.width:g}"' if s.stroke else "")
    if s.kind == "rect":
        x, y, wide, high = map(_n, s.at)
        drawn = f'<rect{css} x="{x}" y="{y}" width="{wide}" height="{high}" rx="3"{paint}/>'
    elif s.kind == "line":
        x1, y1, x2, y2 = map(_n, s.at)
        drawn = f'<line{css} x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"{paint}/>'
    elif s.kind == "path":
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in zip(s.at[::2], s.at[1::2], strict=True))
        drawn = f'<polyline{css} points="{points}"{paint} stroke-linejoin="round"/>'
    elif s.kind == "dot":
        x, y, r = map(_n, s.at)
        drawn = f'<circle{css} cx="{x}" cy="{y}" r="{r}"{paint}/>'
    else:
        x, y = map(_n, s.at)
        place = f' transform="translate({x} {y}) rotate({_n(s.turn)})"' if s.turn else f' x="{x}" y="{y}"'
        weight = ' font-weight="700"' if s.bold else ""
        drawn = (
            f'<text{css}{place} font-size="{s.size:g}" text-anchor="{s.anchor}"{weight}{paint} '
            f'pointer-events="none">{escape(s.words)}</text>'
        )
    return f"<g><title>{escape(plain(s.about))}</title>{drawn}</g>" if s.about else drawn


def _draw(s: FigurePiece, image: Image.Image, pen: ImageDraw.ImageDraw, scale: float) -> None:
    at = [v * scale for v in s.at]
    width = max(1, round(s.width * scale))
    if s.kind == "rect":
        x, y, wide, high = at
        pen.rounded_rectangle((x, y, x + wide, y + high), 3 * scale, fill=s.fill or None, outline=s.stroke or None)
    elif s.kind in ("line", "path"):
        pen.line(at, fill=s.stroke, width=width, joint="curve")
    elif s.kind == "dot":
        x, y, r = at
        pen.ellipse((x - r, y - r, x + r, y + r), fill=s.fill)
    else:
        _write(s, at[0], at[1], image, pen, scale)


def _write(s: FigurePiece, x: float, y: float, image: Image.Image, pen: ImageDraw.ImageDraw, scale: float) -> None:
    font, complete = _font(round(s.size * scale, 1))
    words = s.words if complete else spelled(s.words)
    stroke = _BOLD * scale if s.bold else 0
    if not s.turn:
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[s.anchor]
        pen.text((x, y), words, fill=s.fill, font=font, anchor=anchor, stroke_width=stroke)
        return
    side = 2 * round(font.getlength(words) + s.size * scale)
    mask = Image.new("L", (side, side), 0)
    ImageDraw.Draw(mask).text((side / 2, side / 2), words, fill=255, font=font, anchor="ls", stroke_width=stroke)
    mask = mask.rotate(-s.turn, resample=Image.Resampling.BICUBIC)
    image.paste(Image.new("RGB", mask.size, s.fill), (round(x - side / 2), round(y - side / 2)), mask)


@cache
def _font(size: float) -> tuple[Any, bool]:
    """A font of this size, and whether it has all letters that figures use; Pillow's own has Latin ones only."""
    for name in _FONTS:
        try:
            return ImageFont.truetype(name, size), True
        except OSError:
            continue
    return ImageFont.load_default(size), False


def spelled(words: str) -> str:
    """Words in Latin letters.

    >>> spelled("κ −0.5, 例")
    'kappa -0.5, ?'
    """
    known = "".join(_SPELLED.get(letter, letter) for letter in words)
    return known.encode("latin-1", "replace").decode("latin-1")
