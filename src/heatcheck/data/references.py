"""References, what a right map would show: regions of pictures and spans of texts, as users give them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image
from torch import Tensor

from heatcheck.core.types import HeatcheckError, Sample, TextPair, digest_of, digest_of_tensor
from heatcheck.data.images import mask_size, picture_size, read_colours, read_mask
from heatcheck.data.texts import characters

KINDS = ("mask", "boxes", "parts", "without", "spans")
"""The kinds of references that data can carry; a model turns them into `mask`, `parts` and `without` on its sites."""
_OVERSHOOT = 1.0
"""Pixels by which a box may leave its picture: those who draw boxes round."""

_EDGES = 256
"""Edges of a polygon that are looked at together, so that a hostile one does not take all memory."""

Region: TypeAlias = Any
"""A mask `[h, w]` (not zero = inside) or the path of one, a box, a list of boxes, `{"polygons": [...]}`, or
`{"picture": PATH, "colours": [...]}` for the pixels of a segmentation that have one of these colours."""
Size: TypeAlias = tuple[int, int]


def region(area: Region, size: Size) -> np.ndarray:
    """A region of a picture as a mask over all of its pixels.

    A box `[left, top, right, bottom]` is in pixels of the upright picture, right and bottom excluded; a pixel belongs
    to it if its centre does. So it is with a polygon `[x, y, x, y, …]`. Several of them are their union.

    Args:
        area: a mask, the path of a mask picture, a box, a list of boxes, `{"polygons": [...]}`, or
            `{"picture": PATH, "colours": [...]}`.
        size: the picture's width and height.

    Raises:
        HeatcheckError: a mask of another size, or a box that is inverted or lies outside.

    >>> region([1, 0, 3, 1], (4, 2)).astype(int).tolist()
    [[0, 1, 1, 0], [0, 0, 0, 0]]
    """
    check_region(area, size)
    if isinstance(area, str | Path):
        return read_mask(area)
    if isinstance(area, Mapping):
        return _coloured(area) if "colours" in area else _polygons(area["polygons"], size)
    if _is_mask(area, size):
        inside: np.ndarray = np.asarray(area) != 0
        return inside
    inside = np.zeros(size[::-1], dtype=bool)
    for left, top, right, bottom in _boxes(area):
        inside[_pixels(top, bottom), _pixels(left, right)] = True
    return inside


def _coloured(area: Mapping[str, Any]) -> np.ndarray:
    pixels = read_colours(area["picture"])
    inside: np.ndarray = np.any([(pixels == np.asarray(colour)).all(-1) for colour in area["colours"]], axis=0)
    return inside


def _pixels(start: float, stop: float) -> slice:
    return slice(max(0, math.ceil(start - 0.5)), max(0, math.ceil(stop - 0.5)))


def _polygons(polygons: Iterable[Sequence[float]], size: Size) -> np.ndarray:
    """The pixels whose centres lie inside a polygon, by the nonzero winding rule.

    So a polygon that joins several pieces of an object by a line there and back holds just these pieces.
    """
    inside = np.zeros(size[::-1], dtype=bool)
    for polygon in polygons:
        crossed = np.zeros((size[1], size[0] + 1), dtype=np.int32)
        corners = np.asarray(polygon, dtype=float).reshape(-1, 2)
        edges = np.concatenate([corners, np.roll(corners, -1, axis=0)], axis=1)
        for start in range(0, len(edges), _EDGES):
            x0, y0, x1, y1 = edges[start : start + _EDGES].T[:, :, None]
            centre = np.arange(size[1]) + 0.5
            edge, row = np.nonzero((y0 <= centre) != (y1 <= centre))
            x0, y0, x1, y1 = (v[edge, 0] for v in (x0, y0, x1, y1))
            x = x0 + (centre[row] - y0) / (y1 - y0) * (x1 - x0)
            column = np.clip(np.ceil(x - 0.5), 0, size[0]).astype(int)
            np.add.at(crossed, (row, column), np.where(y1 > y0, 1, -1))
        inside |= crossed.cumsum(axis=1)[:, :-1] != 0
    return inside


def check_region(area: Region, size: Size) -> None:
    """Refuse what is no region of a picture of this size; reads no more of a mask's file than its size."""
    if isinstance(area, str | Path):
        _same_size(mask_size(area), size, f"the mask {Path(area).name!r}")
    elif isinstance(area, Mapping) and "colours" in area:
        _check_colours(area["colours"])
        _same_size(mask_size(area["picture"]), size, f"the segmentation {Path(area['picture']).name!r}")
    elif isinstance(area, Mapping):
        _check_polygons(area)
    elif _is_mask(area, size):
        height, width = np.shape(area)
        _same_size((width, height), size, "the mask")
    else:
        for box in _boxes(area):
            check_box(box, size)


def _same_size(found: Size, size: Size, what: str) -> None:
    if found != size:
        raise HeatcheckError(f"{what} is {found[0]} × {found[1]}, its picture {size[0]} × {size[1]}: they must agree")


def _is_mask(area: Any, size: Size) -> bool:
    """Whether an array is a mask; if it could as well hold a box per row, it is one if it has the picture's size."""
    if not isinstance(area, np.ndarray | Tensor) or area.ndim != 2:
        return False
    return area.shape[1] != 4 or str(area.dtype).endswith("bool") or tuple(area.shape[::-1]) == size


def _boxes(area: Any) -> list[list[float]]:
    try:
        array = np.asarray(area, dtype=float)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.size == 0 and isinstance(area, Sequence | np.ndarray) and len(area) == 0:
        return []
    if array.ndim not in (1, 2) or array.shape[-1] != 4:
        raise HeatcheckError(
            f"{_short(area)} is no region: give a mask [h, w], a box [left, top, right, bottom] or a list of boxes"
        )
    boxes: list[list[float]] = array.reshape(-1, 4).tolist()
    return boxes


def check_box(box: Sequence[float], size: Size | None = None) -> None:
    """Refuse a box that is inverted, empty or not finite, or that leaves its picture by a pixel or more."""
    left, top, right, bottom = box
    shown = "[" + ", ".join(f"{v:g}" for v in box) + "]"
    if not all(map(math.isfinite, box)) or not (left < right and top < bottom):
        raise HeatcheckError(f"box {shown} is inverted or empty: left < right and top < bottom are needed")
    if size is None:
        return
    width, height = size
    if min(left, top) <= -_OVERSHOOT or right >= width + _OVERSHOOT or bottom >= height + _OVERSHOOT:
        raise HeatcheckError(f"box {shown} leaves its picture of {width} × {height} pixels")


def _check_colours(colours: Any) -> None:
    if not len(colours) or any(np.shape(colour) != (3,) for colour in colours):
        raise HeatcheckError(f"colours={_short(colours)} must be a list of [red, green, blue]")


def _check_polygons(area: Mapping[str, Any]) -> None:
    for polygon in area.get("polygons", [()]):
        if len(polygon) < 6 or len(polygon) % 2 or not all(math.isfinite(v) for v in polygon):
            raise HeatcheckError(f"polygon {_short(polygon)} does not have three corners or more, as x, y, x, y, …")


def picture_with(sample: Sample, reference: Mapping[str, Any]) -> Sample:
    """A picture with references; one that does not fit the picture is the sample's problem."""
    if sample.problem is not None or not reference:
        return sample
    known = {kind: _as_paths(value) for kind, value in reference.items()}
    return _checked(sample, known, lambda: check_picture_reference(known, size_of(sample.content)))


def _as_paths(value: Any) -> Any:
    """Strings as paths, so that the content of a file counts and not its name."""
    if isinstance(value, str):
        return Path(value)
    return {k: _as_paths(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def text_with(sample: Sample, reference: Mapping[str, Any]) -> Sample:
    """A text with references; one that does not fit the text is the sample's problem."""
    if sample.problem is not None or not reference:
        return sample
    without = reference.get("without")
    if isinstance(sample.content, TextPair) and isinstance(without, Mapping):
        reference = {**reference, "without": {name: _as_pair(rest) for name, rest in without.items()}}
    return _checked(sample, reference, lambda: check_text_reference(reference, len(characters(sample.content))))


def _as_pair(rest: Any) -> Any:
    two = isinstance(rest, list | tuple) and len(rest) == 2 and all(isinstance(text, str) for text in rest)
    return TextPair(*rest) if two else rest


def _checked(sample: Sample, reference: Mapping[str, Any], check: Callable[[], None]) -> Sample:
    try:
        check()
    except HeatcheckError as error:
        return replace(sample, problem=str(error))
    return replace(sample, reference=reference)


def size_of(content: Any) -> Size:
    """Width and height of a picture, or of a tensor `[c, h, w]` that is ready for the model."""
    if isinstance(content, Tensor):
        return content.shape[-1], content.shape[-2]
    return picture_size(content)


def check_picture_reference(reference: Mapping[str, Any], size: Size) -> None:
    """Refuse references that do not fit a picture of this size."""
    for kind in ("mask", "boxes"):
        if kind in reference:
            check_region(reference[kind], size)
    for name, area in _parts(reference).items():
        _about(f"part {name!r}", check_region, area, size)
    _check_without(reference)


def check_text_reference(reference: Mapping[str, Any], length: int) -> None:
    """Refuse references that do not fit a text of this length."""
    spans_of(reference.get("spans", []), length)
    for name, spans in _parts(reference).items():
        _about(f"part {name!r}", spans_of, spans, length)
    _check_without(reference)


def _about(what: str, check: Callable[..., Any], *args: Any) -> None:
    try:
        check(*args)
    except HeatcheckError as error:
        raise HeatcheckError(f"{what}: {error}") from error


def _parts(reference: Mapping[str, Any]) -> Mapping[str, Any]:
    for kind in ("parts", "without"):
        if not isinstance(reference.get(kind, {}), Mapping):
            raise HeatcheckError(f"{kind}={_short(reference[kind])} must be a mapping from names")
    parts: Mapping[str, Any] = reference.get("parts", {})
    return parts


def _check_without(reference: Mapping[str, Any]) -> None:
    parts, without = set(reference.get("parts", {})), set(reference.get("without", {}))
    if without and parts != without:
        odd = ", ".join(map(repr, sorted(parts ^ without)))
        raise HeatcheckError(f"parts and without must name the same parts; only one of them has {odd}")


def spans_of(given: Any, length: int | None = None) -> list[tuple[int, int]]:
    """A span of characters `[start, end)`, or a list of them, as a list.

    >>> spans_of([3, 7]), spans_of([(0, 2), (3, 7)])
    ([(3, 7)], [(0, 2), (3, 7)])
    """
    spans = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    if len(spans) == 2 and not any(isinstance(v, Sequence) for v in spans):
        spans = [spans]
    for span in spans:
        if not isinstance(span, Sequence) or len(span) != 2 or not all(type(v) is int for v in span):
            raise HeatcheckError(f"{_short(span)} is no span: give [start, end], two positions of characters")
        if not 0 <= span[0] < span[1] or (length is not None and span[1] > length):
            room = "" if length is None else f" in a text of {length} characters"
            raise HeatcheckError(f"span {_short(list(span))} does not fit{room}: 0 ≤ start < end is needed")
    return [(span[0], span[1]) for span in spans]


def plain(value: Any) -> Any:
    """A reference as something JSON can write in one way only; of a file, its contents count."""
    if isinstance(value, Path):
        return _file_digest(value)
    if isinstance(value, Image.Image):
        return digest_of(value.mode, str(value.size), value.tobytes())
    if isinstance(value, np.ndarray):
        return digest_of(str(value.dtype), str(value.shape), value.tobytes())
    if isinstance(value, Tensor):
        return digest_of_tensor(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return digest_of(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def _file_digest(path: Path) -> str:
    try:
        facts = path.stat()
        return _digest_once(str(path), facts.st_mtime_ns, facts.st_size)
    except OSError:
        return digest_of("missing", str(path))


@lru_cache(maxsize=65536)
def _digest_once(path: str, modified: int, size: int) -> str:
    return digest_of(Path(path).read_bytes())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
