"""Samples and their maps as small things a page can show: overlays and coloured tokens."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from heatcheck.report.source import RunSource

LEVELS = 8
_TOKENS = 160
_ROBUST = 99
# Pale to deep, falling steadily in lightness, so that strength reads in grey as well.
_POSITIVE = np.array([(255, 222, 170), (253, 165, 74), (232, 84, 22), (172, 22, 14)], dtype=np.float64)
_NEGATIVE = np.array([(190, 222, 245), (105, 172, 222), (36, 110, 190), (14, 56, 140)], dtype=np.float64)

Exhibit = dict[str, Any]


def robust(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """A map over its own scale, the 99th percentile of its magnitude: [-1, 1]; non-finite values are 0.

    A map without negative values starts at its own minimum, so that what all sites share does not hide what
    tells them apart.
    """
    v = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    if v.size and v.min() > 0:
        v = v - v.min()
    magnitude = np.abs(v)
    top = float(np.percentile(magnitude, _ROBUST)) if v.size else 0.0
    top = top or (float(magnitude.max()) if v.size else 0.0)
    return np.clip(v / top, -1.0, 1.0) if top > 0 else np.zeros_like(v)


def picture(rgb: NDArray[np.uint8], edge: int) -> Exhibit:
    """The input itself."""
    return _encoded(_fitted(rgb, edge))


def overlay(rgb: NDArray[np.uint8], heat: NDArray[np.floating], edge: int) -> Exhibit:
    """A map over the greyed input: warm for what speaks for the class, cold for what speaks against it."""
    base = _fitted(rgb, edge)
    grey = np.asarray(base.convert("L"), dtype=np.float64)[..., None]
    canvas = np.repeat(96 + 0.6 * grey, 3, axis=-1)
    finite = np.nan_to_num(np.asarray(heat, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    # Values of any magnitude: to [-1, 1] before Pillow's single precision, and again at the size shown.
    layer = Image.fromarray(robust(finite).astype(np.float32))
    shown = robust(np.asarray(_enlarged(layer, base.size)))
    strength = np.abs(shown)[..., None]
    colour = np.where(shown[..., None] >= 0, _ramp(_POSITIVE, np.abs(shown)), _ramp(_NEGATIVE, np.abs(shown)))
    alpha = 0.92 * strength**0.75
    return _encoded(Image.fromarray(np.rint(canvas * (1 - alpha) + colour * alpha).clip(0, 255).astype(np.uint8)))


def text(tokens: Sequence[str], special: Sequence[bool], heat: NDArray[np.floating] | None) -> Exhibit:
    """Tokens with a level each, from −8 (against) to 8 (for); without a map all levels are 0."""
    levels = np.zeros(len(tokens), dtype=np.int64)
    if heat is not None:
        scaled = robust(np.asarray(heat).reshape(-1)[: len(tokens)])
        levels[: len(scaled)] = np.rint(scaled * LEVELS)
    shown = [
        [*_spelled(token, tokens), level, bool(odd)]
        for token, level, odd in zip(tokens, levels.tolist(), special, strict=False)
    ]
    return {"kind": "text", "tokens": shown[:_TOKENS], "cut": max(len(shown) - _TOKENS, 0)}


def _spelled(token: str, among: Sequence[str]) -> tuple[str, bool]:
    """A token without its tokenizer's marks, and whether it continues a word."""
    if token.startswith("##") and len(token) > 2:
        return token[2:], True
    for mark in ("Ġ", "▁"):
        if token.startswith(mark):
            return token.removeprefix(mark) or " ", False
        if any(other.startswith(mark) for other in among):
            return token, True
    return token, False


class Exhibits:
    """Makes exhibits of one run, each once.

    Args:
        source: the run.
    """

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self._displays: dict[tuple[str, str], Mapping[str, Any] | None] = {}
        self._made: dict[tuple[object, ...], Exhibit | None] = {}

    def sample(self, model: str, sample: str, edge: int) -> Exhibit | None:
        """The input alone."""
        key = (model, sample, edge)
        if key not in self._made:
            shown = self._display(model, sample)
            self._made[key] = None if shown is None else _drawn(shown, None, edge)
        return self._made[key]

    def map(self, model: str, sample: str, method: str, edge: int) -> Exhibit | None:
        """The input under a method's map; None where either is not kept."""
        key = (model, sample, method, edge)
        if key not in self._made:
            shown, heat = self._display(model, sample), self._source.map(model, sample, method)
            self._made[key] = None if shown is None or heat is None else _drawn(shown, np.asarray(heat), edge)
        return self._made[key]

    def _display(self, model: str, sample: str) -> Mapping[str, Any] | None:
        key = (model, sample)
        if key not in self._displays:
            self._displays[key] = self._source.display(model, sample)
        return self._displays[key]


def _drawn(shown: Mapping[str, Any], heat: NDArray[np.floating] | None, edge: int) -> Exhibit | None:
    if shown["kind"] == "text":
        return text(shown["tokens"], shown["special"], heat)
    rgb = np.asarray(shown["rgb"], dtype=np.uint8)
    if heat is None:
        return picture(rgb, edge)
    return overlay(rgb, heat, edge) if heat.ndim == 2 and heat.size else None


def _fitted(rgb: NDArray[np.uint8], edge: int) -> Image.Image:
    whole = Image.fromarray(rgb).convert("RGB")
    ratio = edge / max(whole.size)
    size = (max(1, round(whole.width * ratio)), max(1, round(whole.height * ratio)))
    return whole.resize(size, Image.Resampling.LANCZOS)


def _enlarged(layer: Image.Image, size: tuple[int, int]) -> Image.Image:
    """A map at a picture's size: coarse ones smoothly, fine ones in blocks of two.

    The file keeps one colour per 2 × 2 pixels, so red beside blue would otherwise become purple.
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
    # Base64 needs no escape; `Markup` says so, and that it must not be shortened.
    src = Markup("data:image/webp;base64,") + base64.b64encode(file.getvalue()).decode()
    return {"kind": "image", "src": src, "width": image.width, "height": image.height}
