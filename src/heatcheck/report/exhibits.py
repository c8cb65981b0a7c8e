"""Samples and their maps as a page shows them: pictures with overlays, and coloured texts."""

import base64
import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from heatcheck.report.source import CaseSource
from heatcheck.report.texts import Text, Values, blocks
from heatcheck.report.wording import number_of_size

SCRIPTED = frozenset({"text"})
"""Kinds whose maps the page's script draws, too: it has their numbers."""
_TEMPLATE_ONLY = frozenset({"blocks"})
_PERCENTILE = 99
_BLANK = 235  # grey of a picture that is not kept
# Pale to deep, ever darker, so that strength can be read without colour, too.
_POSITIVE = np.array([(255, 222, 170), (253, 165, 74), (232, 84, 22), (172, 22, 14)], dtype=np.float64)
_NEGATIVE = np.array([(190, 222, 245), (105, 172, 222), (36, 110, 190), (14, 56, 140)], dtype=np.float64)

Exhibit = dict[str, Any]
"""`kind` and what the page's template and script need to show it."""
Display = Mapping[str, Any]
"""A sample as the run shows it, see `CaseSource.display`."""
Heat = NDArray[np.floating]


def robust(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """A map divided by the 99th percentile of its magnitude, clipped to [-1, 1]; non-finite values are 0.

    From a map of positive values its minimum is subtracted first, so that a common offset does not hide differences.
    """
    v = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    if v.size and v.min() > 0:
        v = v - v.min()
    magnitude = np.abs(v)
    top = float(np.percentile(magnitude, _PERCENTILE)) if v.size else 0.0
    top = top or (float(magnitude.max()) if v.size else 0.0)
    return np.clip(v / top, -1.0, 1.0) if top > 0 else np.zeros_like(v)


def picture(rgb: NDArray[np.uint8], edge: int) -> Exhibit:
    """A picture without a map."""
    return _encoded(_fitted(rgb, edge))


def overlay(rgb: NDArray[np.uint8], heat: Heat, edge: int) -> Exhibit:
    """A map over the greyed picture: warm colours for the class, cold colours against it."""
    base = _fitted(rgb, edge)
    grey = np.asarray(base.convert("L"), dtype=np.float64)[..., None]
    canvas = np.repeat(96 + 0.6 * grey, 3, axis=-1)
    finite = np.nan_to_num(np.asarray(heat, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    # Pillow resizes in single precision, so scale to [-1, 1] before, and again at the final size.
    layer = Image.fromarray(robust(finite).astype(np.float32))
    shown = robust(np.asarray(_enlarged(layer, base.size)))
    strength = np.abs(shown)[..., None]
    colour = np.where(shown[..., None] >= 0, _ramp(_POSITIVE, np.abs(shown)), _ramp(_NEGATIVE, np.abs(shown)))
    alpha = 0.92 * strength**0.75
    return _encoded(Image.fromarray(np.rint(canvas * (1 - alpha) + colour * alpha).clip(0, 255).astype(np.uint8)))


def text(display: Display, heat: Heat | None) -> Exhibit:
    """A text, or a map over its tokens: whole numbers for the script, and lines for the template."""
    shown = Text.of(display)
    if heat is None:
        return {
            "kind": "text",
            "pieces": shown.pieces,
            "tokens": [None if t == p.strip() else t for p, t in zip(shown.pieces, shown.tokens, strict=True)],
            "special": [i for i, odd in enumerate(shown.special) if odd],
            "marked": [i for i, on in enumerate(shown.marked) if on],
            "ends": shown.ends,
            "words": shown.words,
            "short": shown.is_short,
            "folds": shown.folds(),
            "blocks": blocks(shown),
        }
    values = Values.of(heat, shown)
    return {
        "kind": "text",
        "steps": values.steps,
        "unit": values.unit,
        "low": values.low,
        "folds": values.folds(shown),
        "full": number_of_size(values.unit * 1000),
        "blocks": blocks(shown, values),
    }


def for_script(exhibit: Exhibit | None) -> Exhibit | None:
    """An exhibit without what the template alone needs."""
    return exhibit and {key: value for key, value in exhibit.items() if key not in _TEMPLATE_ONLY}


class Exhibits:
    """Renders the samples and maps of one run, each once.

    Args:
        source: the run.
    """

    def __init__(self, source: CaseSource) -> None:
        self._source = source
        self._displays: dict[tuple[str, str], Display | None] = {}
        self._made: dict[tuple[object, ...], Exhibit | None] = {}

    def sample(self, model: str, sample: str, edge: int) -> Exhibit | None:
        """A sample without a map; None where it cannot be shown."""
        key = (model, sample, edge)
        if key not in self._made:
            shown = self._display(model, sample)
            self._made[key] = None if shown is None else render_exhibit(shown, None, edge)
        return self._made[key]

    def map(self, model: str, sample: str, method: str, edge: int) -> Exhibit | None:
        """A sample with a method's map, or the map alone where the picture is not kept; None where there is no map."""
        key = (model, sample, method, edge)
        if key not in self._made:
            shown, heat = self._display(model, sample), self._source.map(model, sample, method)
            if heat is not None and shown is None and np.ndim(heat) == 2:
                shown = {"kind": "image", "rgb": np.full((*np.shape(heat), 3), _BLANK, dtype=np.uint8)}
            self._made[key] = None if shown is None or heat is None else render_exhibit(shown, np.asarray(heat), edge)
        return self._made[key]

    def _display(self, model: str, sample: str) -> Display | None:
        key = (model, sample)
        if key not in self._displays:
            self._displays[key] = self._source.display(model, sample)
        return self._displays[key]


def _image(display: Display, heat: Heat | None, edge: int) -> Exhibit | None:
    rgb = np.asarray(display["rgb"], dtype=np.uint8)
    if heat is None:
        return picture(rgb, edge)
    return overlay(rgb, heat, edge) if heat.ndim == 2 and heat.size else None


def _text(display: Display, heat: Heat | None, _edge: int) -> Exhibit:
    return text(display, heat)


RENDERERS: Mapping[str, Callable[[Display, Heat | None, int], Exhibit | None]] = {"image": _image, "text": _text}
"""How each kind of display becomes an exhibit: (display, map or None, longest edge in pixels)."""


def render_exhibit(display: Display, heat: Heat | None, edge: int) -> Exhibit | None:
    """A sample with a map, or without one; None where the map does not fit the sample.

    Raises:
        ValueError: a kind of display that has no renderer.
    """
    kind = display["kind"]
    if kind not in RENDERERS:
        raise ValueError(f"no renderer for samples of kind {kind!r} (known: {', '.join(RENDERERS)})")
    return RENDERERS[kind](display, heat, edge)


def _fitted(rgb: NDArray[np.uint8], edge: int) -> Image.Image:
    whole = Image.fromarray(rgb).convert("RGB")
    ratio = edge / max(whole.size)
    size = (max(1, round(whole.width * ratio)), max(1, round(whole.height * ratio)))
    return whole.resize(size, Image.Resampling.LANCZOS)


def _enlarged(layer: Image.Image, size: tuple[int, int]) -> Image.Image:
    """A map resized to the picture: coarse maps smoothly, fine ones in blocks of 2 × 2 pixels.

    WebP stores one colour per 2 × 2 pixels, so adjacent red and blue pixels would become purple.
    """
    half = (max(1, size[0] // 2), max(1, size[1] // 2))
    if layer.width < half[0] or layer.height < half[1]:
        return layer.resize(size, Image.Resampling.BILINEAR)
    return layer.resize(half, Image.Resampling.BOX).resize(size, Image.Resampling.NEAREST)


def _ramp(stops: NDArray[np.float64], t: NDArray[np.float64]) -> NDArray[np.float64]:
    at = np.linspace(0.0, 1.0, len(stops))
    return np.stack([np.interp(t, at, stops[:, c]) for c in range(3)], axis=-1)


def _encoded(image: Image.Image) -> Exhibit:
    file = io.BytesIO()
    image.save(file, "WEBP", quality=76, method=4)
    # Base64 needs no escaping; `Markup` also exempts it from being shortened.
    src = Markup("data:image/webp;base64,") + base64.b64encode(file.getvalue()).decode()
    return {"kind": "image", "src": src, "width": image.width, "height": image.height}
