"""Decodes pictures of the common formats to RGB."""

import io
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import PIL
from PIL import Image, ImageOps, UnidentifiedImageError

from heatcheck.core.files import sha256_of
from heatcheck.core.types import HeatcheckError, Sample, digest_of
from heatcheck.data.digests import digests
from heatcheck.data.places import kind_of

T = TypeVar("T")

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".avif"}
)
MIN_SIDE = 8
MAX_PIXELS = 100_000_000
_LARGE_PIXELS = 16_000_000
_LARGE_SIDE = 1024
_LYING = (5, 6, 7, 8)
"""EXIF orientations of pictures that are stored on their side."""
# Named, so that no file can reach a reader that runs other programs (EPS calls Ghostscript).
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "AVIF")


def decode_image(content: Any) -> Image.Image:
    """A picture in RGB, upright.

    Grey and palette pictures are expanded, of 16 bits the upper 8 are kept, transparency is laid on white,
    CMYK is converted without its colour profile, EXIF orientation is applied, of an animation the first
    frame is taken. A JPEG over 16 megapixels is decoded at half, a quarter or an eighth of its size,
    its shorter side never below 1024.

    Args:
        content: a path, a file's bytes, a PIL image, or a uint8 array `[h, w]` or `[h, w, 1 | 3 | 4]`.

    Raises:
        HeatcheckError: it cannot be decoded, has a side under 8 pixels, or over 100 megapixels.
    """
    return _decode(content, _LARGE_PIXELS, _LARGE_SIDE)


def picture_problem(content: Any) -> str | None:
    """Why a picture cannot be decoded, or None; JPEGs are only decoded at an eighth of their size."""
    try:
        _decode(content, 0, MIN_SIDE)
    except HeatcheckError as error:
        return str(error)
    return None


def picture_sample(name: str, content: Any) -> Sample:
    """A sample of a picture; a path is kept as it is and filed under the SHA-256 of the file's bytes."""
    if isinstance(content, str | Path):
        return _file_sample(name, Path(content))
    try:
        decoded = decode_image(content)
    except HeatcheckError as error:
        return Sample(name, digest_of("undecodable", name), content, problem=str(error))
    return Sample(name, digest_of(str(decoded.size), decoded.tobytes()), content)


def _file_sample(name: str, path: Path) -> Sample:
    kind = kind_of(path)
    if kind != "file":
        state = "does not exist" if kind is None else f"is a {kind}, not a file"
        return Sample(name, digest_of("missing", name), path, problem=f"the file {state}: {path}")
    try:
        known = digests()
        digest, problem = known.of(path, _reader(), lambda: _looked_at(path)) if known else _looked_at(path)
    except OSError as error:
        return Sample(name, digest_of("unreadable", name), path, problem=f"the file cannot be read: {error.strerror}")
    return Sample(name, digest, path, problem=problem)


def _looked_at(path: Path) -> tuple[str, str | None]:
    """The SHA-256 of a file, and why it is no picture."""
    return sha256_of(path), picture_problem(path)


@cache
def _reader() -> str:
    """What decides whether a picture can be read: another decoder may read others."""
    return f"pillow {PIL.__version__} {' '.join(_readable())} {MIN_SIDE} {MAX_PIXELS}"


def _decode(content: Any, reduce_above: int, side: int) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of odd metadata and of sizes that are checked here
        try:
            with _opened(content) as image:
                _check_size(*image.size)
                if image.width * image.height > reduce_above:
                    image.draft(None, (side, side))
                return _rgb(_upright(image))
        except HeatcheckError:
            raise
        except Image.DecompressionBombError as error:
            raise HeatcheckError(f"the picture has over {MAX_PIXELS // 10**6} megapixels: make it smaller") from error
        except UnidentifiedImageError as error:
            raise HeatcheckError(f"not a picture that can be read (known: {', '.join(_FORMATS)})") from error
        except Exception as error:  # decoders raise whatever a broken file makes them stumble over
            raise HeatcheckError(f"the picture is broken: {error}") from error


def _opened(content: Any) -> AbstractContextManager[Image.Image]:
    if isinstance(content, Image.Image):
        return nullcontext(content)
    if isinstance(content, np.ndarray):
        return nullcontext(_from_array(content))
    if isinstance(content, str | Path):
        if Path(content).stat().st_size == 0:
            raise HeatcheckError("the file is empty")
        return Image.open(content, formats=_readable())
    if isinstance(content, bytes):
        return Image.open(io.BytesIO(content), formats=_readable())
    raise HeatcheckError(
        f"a {type(content).__name__} is not a picture: give a path, bytes, a PIL image or a uint8 array"
    )


def _readable() -> list[str]:
    Image.init()
    return [name for name in _FORMATS if name in Image.OPEN]


def _from_array(array: np.ndarray) -> Image.Image:
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))):
        raise HeatcheckError(
            f"an array of {array.dtype} {list(array.shape)} is not a picture: give uint8 [h, w] or [h, w, 1 | 3 | 4]"
        )
    _check_size(array.shape[1], array.shape[0])
    return Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise HeatcheckError(
            f"the picture is {width} × {height}, over {MAX_PIXELS // 10**6} megapixels: make it smaller"
        )
    if min(width, height) < MIN_SIDE:
        raise HeatcheckError(f"the picture is {width} × {height}: a side under {MIN_SIDE} pixels shows nothing")


def _upright(image: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(image) if _orientation(image) != 1 else image


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # unreadable metadata does not make a picture unusable
        return 1


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() > 0xFFFF:
            raise HeatcheckError("the picture has 32 bits per pixel and no known white: store it with 8 or 16 bits")
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def picture_size(content: Any) -> tuple[int, int]:
    """Width and height of a picture, upright, as it is stored: a large JPEG may be decoded smaller."""
    width, height, orientation = _header(content)
    return (height, width) if orientation in _LYING else (width, height)


def mask_size(path: str | Path) -> tuple[int, int]:
    """Width and height of a mask."""
    return _header(path)[:2]


def read_mask(path: str | Path) -> np.ndarray:
    """A mask from a picture: a pixel is inside if its value, its palette index or any of its colours is not zero."""
    values, mode = _stored(path, lambda image: (np.asarray(image), image.mode))
    alpha = mode in ("LA", "RGBA", "PA")
    colours = values[..., None] if values.ndim == 2 else values
    inside = np.any(colours[..., :-1] if alpha else colours, axis=-1)
    return np.asarray(inside & (values[..., -1] != 0) if alpha else inside)


def read_colours(path: str | Path) -> np.ndarray:
    """The colours `[h, w, 3]` of a segmentation as they are stored; transparency does not count."""
    return _stored(path, lambda image: np.asarray(image.convert("RGB")))


def _stored(path: str | Path, read: Callable[[Image.Image], T]) -> T:
    """What a mask's file holds, neither turned nor scaled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _opened(path) as image:
                _check_size(*image.size)
                return read(image)
        except HeatcheckError:
            raise
        except Exception as error:  # decoders raise whatever a broken file makes them stumble over
            raise HeatcheckError(f"the mask {Path(path).name!r} is broken: {error}") from error


def _header(content: Any) -> tuple[int, int, int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _opened(content) as image:
                _check_size(*image.size)
                return (*image.size, _orientation(image))
        except HeatcheckError as error:
            raise HeatcheckError(f"{_called(content)}{error}") from error
        except Exception as error:
            raise HeatcheckError(f"{_called(content)}not a picture that can be read: {error}") from error


def _called(content: Any) -> str:
    return f"{Path(content).name!r}: " if isinstance(content, str | Path) else ""
