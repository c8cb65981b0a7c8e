"""What a bird looks like from the side: outlines and colours of its body and of every variant of its parts.

The bird faces right; x goes to the right, y goes down, and its body is about two units long. A part is painted patch by
patch, later ones over earlier ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Colour = tuple[int, int, int]
Point = tuple[float, float]

RED, GREEN, BLUE = (214, 52, 56), (44, 158, 76), (46, 98, 206)
YELLOW, ORANGE, PINK, WHITE = (250, 204, 40), (242, 134, 30), (232, 122, 160), (252, 252, 250)
DARK, GREY = (40, 36, 46), (92, 96, 112)
_STEPS = 6
"""Corners per control point of a curve."""


@dataclass(frozen=True, eq=False)
class Patch:
    """A filled outline: its corners `[n, 2]` and its colour."""

    corners: np.ndarray
    colour: Colour


def smooth(*points: Point) -> np.ndarray:
    """A closed curve through the points (Catmull and Rom's)."""
    p = np.asarray(points, dtype=float)
    before, after, later = (np.roll(p, k, axis=0)[:, None] for k in (1, -1, -2))
    here, t = p[:, None], (np.arange(_STEPS) / _STEPS)[None, :, None]
    line = 2 * here + (after - before) * t
    bend = (2 * before - 5 * here + 4 * after - later) * t**2 + (3 * here - before - 3 * after + later) * t**3
    return np.asarray((line + bend) / 2).reshape(-1, 2)


def ellipse(x: float, y: float, width: float, height: float) -> np.ndarray:
    """An ellipse around a point, with half axes `width` and `height`."""
    angle = np.linspace(0, 2 * np.pi, 28, endpoint=False)
    return np.stack([x + width * np.cos(angle), y + height * np.sin(angle)], axis=1)


def stroke(start: Point, end: Point, width: float) -> np.ndarray:
    """A bar with round ends from one point to another."""
    a, b = np.asarray(start, dtype=float), np.asarray(end, dtype=float)
    along = float(np.arctan2(*(b - a)[::-1]))
    turn = np.linspace(-np.pi / 2, np.pi / 2, 7) + along
    cap = np.stack([np.cos(turn), np.sin(turn)], axis=1) * width / 2
    return np.concatenate([b + cap, a - cap])


def shaded(colour: Colour, factor: float) -> Colour:
    """A colour made darker (below 1) or mixed with white (above 1)."""
    if factor <= 1:
        red, green, blue = (round(c * factor) for c in colour)
    else:
        red, green, blue = (round(255 - (255 - c) * (2 - factor)) for c in colour)
    return red, green, blue


def shifted(corners: np.ndarray, x: float, y: float = 0.0) -> np.ndarray:
    """An outline, moved."""
    return np.asarray(corners + np.array([x, y]))


BODY = smooth(
    (-0.98, -0.04), (-0.62, -0.34), (-0.12, -0.44), (0.16, -0.66), (0.46, -0.98), (0.84, -0.90), (0.98, -0.56),
    (0.88, -0.16), (0.74, 0.22), (0.36, 0.56), (-0.2, 0.58), (-0.66, 0.34),
)  # fmt: skip
BELLY = smooth((0.90, -0.2), (0.735, 0.21), (0.36, 0.545), (-0.18, 0.565), (0.0, 0.32), (0.36, 0.18), (0.62, -0.06))


def body(colour: Colour) -> tuple[Patch, ...]:
    """The body with its head and a lighter belly."""
    return Patch(BODY, colour), Patch(BELLY, shaded(colour, 1.45))


def _beaks() -> tuple[tuple[Patch, ...], ...]:
    cone = np.array([(0.88, -0.80), (1.30, -0.58), (0.90, -0.42)])
    needle = np.array([(0.88, -0.68), (1.66, -0.50), (0.90, -0.46)])
    hook = smooth((0.80, -0.84), (1.16, -0.80), (1.34, -0.50), (1.24, -0.22), (1.12, -0.42), (0.86, -0.40))
    bill = smooth((0.86, -0.68), (1.16, -0.58), (1.50, -0.60), (1.56, -0.44), (1.24, -0.34), (0.88, -0.42))
    return (
        (Patch(cone, YELLOW), Patch(np.array([(0.89, -0.61), (1.30, -0.58), (0.90, -0.42)]), shaded(YELLOW, 0.82))),
        (Patch(needle, GREY), Patch(np.array([(0.89, -0.57), (1.66, -0.50), (0.90, -0.46)]), shaded(GREY, 0.75))),
        (Patch(hook, RED), Patch(smooth((0.84, -0.53), (1.14, -0.50), (1.10, -0.36), (0.86, -0.38)), shaded(RED, 0.7))),
        (Patch(bill, ORANGE), Patch(stroke((0.94, -0.51), (1.46, -0.49), 0.07), shaded(ORANGE, 0.72))),
    )


def _eyes() -> tuple[tuple[Patch, ...], ...]:
    x, y = 0.60, -0.66
    return (
        (Patch(ellipse(x, y, 0.21, 0.21), WHITE), Patch(ellipse(x + 0.06, y, 0.10, 0.11), DARK)),
        (Patch(ellipse(x, y, 0.21, 0.21), DARK), Patch(ellipse(x, y, 0.15, 0.15), YELLOW),
         Patch(ellipse(x, y, 0.07, 0.08), DARK)),
        (Patch(ellipse(x, y, 0.20, 0.22), DARK), Patch(ellipse(x + 0.05, y - 0.08, 0.08, 0.08), WHITE)),
    )  # fmt: skip


def _feet() -> tuple[tuple[Patch, ...], ...]:
    def both(colour: Colour, *outlines: np.ndarray) -> tuple[Patch, ...]:
        far = tuple(Patch(shifted(o, -0.22, -0.02), shaded(colour, 0.78)) for o in outlines)
        return far + tuple(Patch(shifted(o, 0.24), colour) for o in outlines)

    leg = stroke((0, 0.5), (0, 0.84), 0.1)
    toes = [stroke((0, 0.86), (x, y), 0.09) for x, y in ((0.24, 0.92), (0.12, 1.0), (-0.14, 0.96))]
    web = smooth((0, 0.72), (0.26, 0.88), (0.27, 0.98), (0.06, 0.96), (-0.14, 0.98), (-0.10, 0.86))
    stilt = [stroke((-0.04, 0.5), (0.05, 0.82), 0.08), stroke((0.05, 0.82), (-0.03, 1.14), 0.08)]
    boot = [stroke((0, 0.5), (0, 0.72), 0.24), ellipse(0.07, 0.8, 0.2, 0.11)]
    return (
        both(ORANGE, leg, *toes),
        both(YELLOW, stroke((0, 0.5), (0, 0.8), 0.11), web),
        both(PINK, *stilt, stroke((-0.03, 1.15), (0.17, 1.17), 0.08), stroke((-0.03, 1.15), (-0.15, 1.17), 0.08)),
        both(GREY, *boot),
    )


def _tails() -> tuple[tuple[Patch, ...], ...]:
    def fan(colour: Colour) -> tuple[Patch, ...]:
        feathers = [(-1.46, -0.5), (-1.6, -0.24), (-1.62, 0.04), (-1.5, 0.3)]
        shades = (0.8, 1.0, 0.88, 1.0)
        return tuple(
            Patch(_feather((-0.8, 0.02), tip, 0.17), shaded(colour, s)) for tip, s in zip(feathers, shades, strict=True)
        )

    def fork(colour: Colour) -> tuple[Patch, ...]:
        lower = np.array([(-0.66, 0.02), (-1.16, 0.16), (-1.72, 0.44), (-1.28, 0.02), (-0.98, -0.1), (-0.7, -0.2)])
        upper = np.array([(-0.66, 0.06), (-1.12, -0.02), (-1.76, -0.28), (-1.2, -0.26), (-0.7, -0.22)])
        return Patch(lower, shaded(colour, 0.78)), Patch(upper, colour)

    def plume(colour: Colour) -> tuple[Patch, ...]:
        curl = smooth(
            (-0.7, 0.14), (-1.12, 0.02), (-1.38, -0.34), (-1.30, -0.74), (-1.0, -0.84), (-0.88, -0.64), (-1.02, -0.52),
            (-1.02, -0.26), (-0.7, -0.2),
        )  # fmt: skip
        return Patch(curl, colour), Patch(ellipse(-1.09, -0.64, 0.1, 0.1), shaded(colour, 1.55))

    return tuple(make(colour) for colour in (RED, GREEN, BLUE) for make in (fan, fork, plume))


def _feather(root: Point, tip: Point, width: float) -> np.ndarray:
    """A leaf that is broadest near its tip."""
    a, b = np.asarray(root), np.asarray(tip)
    side = np.array([a[1] - b[1], b[0] - a[0]]) / np.hypot(*(b - a)) * width
    bent = a + (b - a) * 0.78
    return smooth(tuple(a + side * 0.4), tuple(bent + side), tuple(b), tuple(bent - side), tuple(a - side * 0.4))


def _wings() -> tuple[tuple[Patch, ...], ...]:
    def folded(colour: Colour) -> tuple[Patch, ...]:
        whole = smooth(
            (0.34, -0.16), (0.26, 0.20), (-0.1, 0.34), (-0.54, 0.24), (-0.98, 0.12), (-0.6, -0.12), (-0.1, -0.3)
        )
        rows = [stroke((-0.62, 0.1), (-0.02, 0.2), 0.07), stroke((-0.44, -0.04), (0.12, 0.06), 0.07)]
        return Patch(whole, colour), *(Patch(row, shaded(colour, 1.5)) for row in rows)

    def raised(colour: Colour) -> tuple[Patch, ...]:
        tips = [(-0.26, -1.16), (-0.54, -1.0), (-0.72, -0.76)]
        shades = (1.0, 0.84, 1.0)
        feathers = [
            Patch(_feather((0.02, 0.0), tip, 0.19), shaded(colour, s))
            for tip, s in zip(tips[::-1], shades, strict=True)
        ]
        return *feathers, Patch(
            smooth((0.26, -0.02), (0.06, 0.24), (-0.3, 0.12), (-0.36, -0.22), (0.0, -0.3)), shaded(colour, 1.2)
        )

    return tuple(make(colour) for colour in (RED, GREEN, BLUE) for make in (folded, raised))


SHAPES: Mapping[str, Sequence[tuple[Patch, ...]]] = {
    "beak": _beaks(),
    "eye": _eyes(),
    "foot": _feet(),
    "tail": _tails(),
    "wing": _wings(),
}
"""The patches of every variant, by part."""
BEHIND, BEFORE = ("tail", "foot"), ("beak", "eye", "wing")
"""The parts that are painted before the body, and after it."""
