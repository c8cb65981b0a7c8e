"""Contact sheets: rows of small pictures, each with a heading."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

SIDE = 96
"""Pixels of a picture's side on a sheet."""
_GAP, _LINE, _FRAME = 6, 16, 3
_PAPER, _INK, _MARK = (255, 255, 255), (40, 40, 40), (232, 84, 22)


@dataclass(frozen=True)
class SheetRow:
    """One row of a contact sheet.

    Args:
        title: its heading.
        pictures: red, green and blue as bytes, [h, w, 3].
        marked: which of them have a frame.
    """

    title: str
    pictures: Sequence[NDArray[np.uint8]]
    marked: Sequence[bool] = ()


def contact_sheet(rows: Sequence[SheetRow]) -> Image.Image:
    """All rows below one another."""
    across = max((len(row.pictures) for row in rows), default=0)
    step = SIDE + _GAP
    width = max(across * step + _GAP, 320)
    sheet = Image.new("RGB", (width, len(rows) * (step + _LINE) + _GAP), _PAPER)
    pen = ImageDraw.Draw(sheet)
    for y, row in enumerate(rows):
        top = _GAP + y * (step + _LINE)
        pen.text((_GAP, top), row.title, fill=_INK)
        for x, rgb in enumerate(row.pictures):
            left = _GAP + x * step
            sheet.paste(thumbnail(rgb), (left, top + _LINE))
            if x < len(row.marked) and row.marked[x]:
                corners = (left - 1, top + _LINE - 1, left + SIDE, top + _LINE + SIDE)
                pen.rectangle(corners, outline=_MARK, width=_FRAME)
    return sheet


def thumbnail(rgb: NDArray[np.uint8]) -> Image.Image:
    """A picture in the size of the sheet; small ones are enlarged without smoothing."""
    picture = Image.fromarray(np.ascontiguousarray(rgb))
    how = Image.Resampling.NEAREST if max(picture.size) < SIDE else Image.Resampling.BICUBIC
    return picture.resize((SIDE, SIDE), how)
