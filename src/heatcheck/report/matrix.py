"""A figure of cells: names of rows at the left, of columns above, and a shade for every number."""

from collections.abc import Mapping, Sequence

from heatcheck.report.drawing import INK, LETTER, LINE, PAPER, SOFT, VectorFigure, cut
from heatcheck.report.heat_map import SHADES

ROW, CELL, SIZE = 26, 58, 11.5


def room(names: Sequence[str], size: float = SIZE) -> float:
    """How much room the longest of some names needs."""
    return max((len(cut(name)) for name in names), default=0) * size * LETTER + 14


def matrix_figure(
    name: str,
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[tuple[int, int], tuple[str, int, str]],
    *,
    bold: frozenset[tuple[int, int]] = frozenset(),
    shades: Mapping[int, str] | None = None,
) -> VectorFigure:
    """Cells of text, shade and explanation; names of rows at the left, of columns above, slanted."""
    left, head = room(rows), 20 + max((len(cut(c)) for c in columns), default=0) * SIZE * LETTER * 0.76
    slant = max((len(cut(c)) for c in columns), default=0) * SIZE * LETTER * 0.68
    drawn = VectorFigure(name, title, left + len(columns) * CELL + slant, head + len(rows) * ROW + 8)
    for k, column in enumerate(columns):
        drawn.text(left + (k + 0.5) * CELL - 2, head - 8, cut(column), SOFT, "soft", turn=-48)
    for i, row in enumerate(rows):
        y = head + i * ROW
        drawn.text(left - 10, y + 17, cut(row), INK, "name", anchor="end")
        for k in range(len(columns)):
            text, shade, about = cells.get((i, k), ("", -2, ""))
            if shade == -2 and not text:
                continue
            x = left + k * CELL
            fill = (shades or {}).get(shade) or (SHADES[shade] if shade >= 0 else PAPER)
            drawn.rect(
                x + 1, y + 1, CELL - 2, ROW - 2, fill, f"q{shade}", stroke=LINE if shade == -1 else "", about=about
            )
            ink = PAPER if shade > 5 else SOFT if shade == -1 else INK
            css = "soft" if shade == -1 else f"v{shade}"
            drawn.text(x + CELL / 2, y + 17, text, ink, css, anchor="middle", bold=(i, k) in bold)
    return drawn
