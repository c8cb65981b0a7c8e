"""What happens to be in a picture besides its class: pose, background, colours and light, drawn by split and index."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from heatcheck.core.types import HeatcheckError
from heatcheck.data.birds.classes import CLASSES, label_of
from heatcheck.data.birds.shapes import BODY, SHAPES, Colour, Patch, ellipse

SIDE = 64
"""Width and height of a picture."""
SPLITS: Mapping[str, int] = {"test": 500, "train": 5000}
"""Splits and their numbers of pictures, the default first."""
_BODIES: tuple[Colour, ...] = ((176, 148, 120), (150, 150, 158), (206, 180, 140), (128, 110, 104))
_MARGIN = 1.5
_LARGEST, _SMALLEST = 18.5, 15.0
"""Pixels per unit of the bird's own measure."""
_TILT = 0.3
"""Radians by which a bird may lean either way."""
_CLUTTER = 9
_NOISE = 5.0


@dataclass(frozen=True, eq=False)
class BirdScene:
    """A picture before it is painted; the parts that are left away change nothing else in it.

    Args:
        label: the class.
        matrix: turns, flips and scales the bird's own measure to pixels, `[2, 2]`.
        shift: where its origin lies in pixels.
        body: the colour of its body.
        corners: the background's colours in the four corners, `[2, 2, 3]`.
        clutter: shapes behind the bird, in pixels.
        gain: of the light, by colour channel.
        noise: added to every channel of a pixel.
    """

    label: int
    matrix: np.ndarray
    shift: np.ndarray
    body: Colour
    corners: np.ndarray
    clutter: tuple[Patch, ...]
    gain: np.ndarray
    noise: np.ndarray


def scene_of(split: str, index: int) -> BirdScene:
    """The scene of a split's picture, the same whenever and wherever it is asked for."""
    if split not in SPLITS:
        raise HeatcheckError(f"birds have no split {split!r}: write {' or '.join(SPLITS)}")
    if not 0 <= index < SPLITS[split]:
        raise HeatcheckError(f"birds:{split} has {SPLITS[split]} pictures; there is no picture {index}")
    rng = np.random.Generator(np.random.PCG64([list(SPLITS).index(split), index]))
    label = label_of(index)
    matrix, shift = _pose(label, rng)
    dull = np.array(_BODIES[int(rng.random() * len(_BODIES))]) + 24 * (rng.random(3) - 0.5)
    red, green, blue = (int(c) for c in dull)
    corners = 255 - 120 * rng.random((2, 2, 3)) * rng.random()
    clutter = tuple(_thing(rng) for _ in range(int(rng.random() * (_CLUTTER + 1))))
    gain = (0.8 + 0.35 * rng.random()) * (0.95 + 0.1 * rng.random(3))
    noise = _NOISE * (2 * rng.random((SIDE, SIDE, 1)) - 1)
    return BirdScene(label, matrix, shift, (red, green, blue), corners, clutter, gain, noise)


def _pose(label: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A pose in which the whole bird lies inside the picture."""
    size, tilt, flip, *place = rng.random(5)
    angle = _TILT * (2 * tilt - 1)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turn = turn @ np.diag([-1.0 if flip < 0.5 else 1.0, 1.0])
    outline = _outline(label) @ turn.T
    low, high = outline.min(0), outline.max(0)
    fits = (SIDE - 2 * _MARGIN) / float((high - low).max())
    scale = min(_SMALLEST + size * (_LARGEST - _SMALLEST), fits)
    room = SIDE - 2 * _MARGIN - scale * (high - low)
    return scale * turn, _MARGIN - scale * low + np.array(place) * room


@cache
def _outline(label: int) -> np.ndarray:
    """Every corner of a class's whole bird."""
    patches = [patch for part, variant in CLASSES[label].items() for patch in SHAPES[part][variant]]
    return np.concatenate([BODY, *(patch.corners for patch in patches)])


def _thing(rng: np.random.Generator) -> Patch:
    """A round or angular thing of any colour, anywhere."""
    x, y, across, ratio, turn, kind, *colour = rng.random(9)
    size = 3 + 8 * across
    if kind < 0.4:
        corners = ellipse(x * SIDE, y * SIDE, size, size * (0.5 + 0.5 * ratio))
    else:
        count = 3 + int((kind - 0.4) / 0.6 * 3)
        angle = 2 * np.pi * (np.arange(count) / count + turn)
        stretched = np.stack([np.cos(angle), (0.5 + 0.5 * ratio) * np.sin(angle)], axis=1)
        corners = np.array([x, y]) * SIDE + size * stretched
    red, green, blue = (int(60 + 180 * c) for c in colour)
    return Patch(corners, (red, green, blue))
