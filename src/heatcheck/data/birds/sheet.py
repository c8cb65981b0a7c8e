"""A contact sheet: a bird of every class, and one bird with its parts marked and left away."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from heatcheck.data.birds.classes import CLASS_COUNT, PARTS
from heatcheck.data.birds.render import masks_of, picture_of
from heatcheck.data.birds.scene import SIDE

_ACROSS = 10
_SCALE, _GAP = 2, 4
_MARKS = {
    "beak": (250, 200, 0),
    "eye": (255, 255, 255),
    "foot": (240, 110, 0),
    "tail": (230, 30, 60),
    "wing": (30, 90, 230),
}


def contact_sheet(split: str = "test", shown: int = 13) -> Image.Image:
    """Every class in rows of ten; below, one picture whole, its parts marked, and without each of them.

    Args:
        split: whose first pictures are shown.
        shown: the picture of the last row.
    """
    whole = picture_of(split, shown)
    marked = (whole * 0.25).astype(np.uint8)
    for part, mask in masks_of(split, shown).items():
        marked[mask] = _MARKS[part]
    last = [whole, marked, *(picture_of(split, shown, [part]) for part in PARTS)]
    last.append(picture_of(split, shown, PARTS))
    tiles = [picture_of(split, i) for i in range(CLASS_COUNT)]
    rows = [tiles[i : i + _ACROSS] for i in range(0, CLASS_COUNT, _ACROSS)]
    return _laid_out([*rows, last])


def _laid_out(rows: Sequence[Sequence[np.ndarray]]) -> Image.Image:
    side = SIDE * _SCALE
    step = side + _GAP
    sheet = Image.new("RGB", (_ACROSS * step + _GAP, len(rows) * step + _GAP), "white")
    for y, row in enumerate(rows):
        for x, tile in enumerate(row):
            large = Image.fromarray(tile).resize((side, side), Image.Resampling.BICUBIC)
            sheet.paste(large, (_GAP + x * step, _GAP + y * step))
    return sheet
