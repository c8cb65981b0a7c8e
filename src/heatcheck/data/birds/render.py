"""Paints a scene, whole or without parts, and tells where each part shows."""

from collections.abc import Iterable, Iterator

import numpy as np
from PIL import Image, ImageDraw

from heatcheck.data.birds.classes import CLASSES, PARTS, checked_parts
from heatcheck.data.birds.scene import SIDE, BirdScene, scene_of
from heatcheck.data.birds.shapes import BEFORE, BEHIND, SHAPES, Patch, body

_FINE = 4
"""Points per pixel and direction; a pixel is their mean."""
_PIXEL = np.arange(SIDE**2).reshape(SIDE, SIDE).repeat(_FINE, 0).repeat(_FINE, 1)
"""The number of the pixel that each point lies in."""


def picture_of(split: str, index: int, removed: Iterable[str] = ()) -> np.ndarray:
    """A picture `[h, w, 3]` in bytes, painted without the parts that are removed: what is behind them shows."""
    return paint(scene_of(split, index), removed)


def masks_of(split: str, index: int) -> dict[str, np.ndarray]:
    """The mask `[h, w]` of each part of a picture that shows in it.

    A pixel belongs to the part that covers most of it among the parts that show in it, so masks are disjoint and every
    pixel that shows a part belongs to one.
    """
    scene = scene_of(split, index)
    labels = Image.new("L", (SIDE * _FINE,) * 2)
    draw = ImageDraw.Draw(labels)
    for name, patch in _patches(scene):
        number = PARTS.index(name) + 1 if name else 0
        _fill(draw, patch.corners @ scene.matrix.T + scene.shift, number)
    numbers = len(PARTS) + 1
    each = np.bincount((_PIXEL * numbers + np.asarray(labels)).ravel(), minlength=SIDE**2 * numbers)
    covered = each.reshape(SIDE, SIDE, numbers)[..., 1:]
    owner = np.where(covered.any(-1), covered.argmax(-1), -1)
    return {part: owner == i for i, part in enumerate(PARTS) if (owner == i).any()}


def paint(scene: BirdScene, removed: Iterable[str] = ()) -> np.ndarray:
    """The scene without some parts."""
    gone = checked_parts(removed)
    ground = Image.fromarray(scene.corners.astype(np.uint8))
    canvas = ground.resize((SIDE * _FINE,) * 2, Image.Resampling.BILINEAR)
    draw = ImageDraw.Draw(canvas)
    for patch in scene.clutter:
        _fill(draw, patch.corners, patch.colour)
    for name, patch in _patches(scene):
        if name not in gone:
            _fill(draw, patch.corners @ scene.matrix.T + scene.shift, patch.colour)
    light = np.asarray(canvas.reduce(_FINE)) * scene.gain + scene.noise
    picture: np.ndarray = np.clip(light + 0.5, 0, 255).astype(np.uint8)
    return picture


def _patches(scene: BirdScene) -> Iterator[tuple[str, Patch]]:
    """What is painted, in order, with the part that it belongs to; the body belongs to none."""
    own = CLASSES[scene.label]
    for parts in (BEHIND, None, BEFORE):
        if parts is None:
            yield from (("", patch) for patch in body(scene.body))
        else:
            yield from ((part, patch) for part in parts for patch in SHAPES[part][own[part]])


def _fill(draw: ImageDraw.ImageDraw, corners: np.ndarray, colour: int | tuple[int, int, int]) -> None:
    draw.polygon((corners * _FINE).ravel().tolist(), fill=colour)
