"""Pictures of every kind, good and bad, become RGB or a reason."""

import hashlib
import io
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import decode_image, load_data
from heatcheck.data.images import MAX_PIXELS, MIN_SIDE, picture_sample

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\nshowpage\n%%EOF\n"


def noise(h: int = 24, w: int = 32, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (h, w, channels), dtype=np.uint8)


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def jpeg_bytes(image: Image.Image, **kwargs: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **kwargs)
    return buffer.getvalue()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_rgb_is_unchanged(tmp_path: Path) -> None:
    Image.fromarray(noise()).save(tmp_path / "a.png")
    assert np.array_equal(np.asarray(decode_image(tmp_path / "a.png")), noise())


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "HSV"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    image = decode_image(Image.fromarray(noise()).convert(mode))
    assert image.mode == "RGB" and image.size == (32, 24)


def test_grey_is_repeated_over_channels() -> None:
    pixels = np.asarray(decode_image(noise()[:, :, 0]))
    assert np.array_equal(pixels, np.repeat(noise()[:, :, :1], 3, axis=2))


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_keep_their_upper_half(tmp_path: Path, suffix: str) -> None:
    deep = np.random.default_rng(1).integers(0, 65536, (24, 32), dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / f"a.{suffix}")
    assert np.array_equal(np.asarray(decode_image(tmp_path / f"a.{suffix}"))[:, :, 0], deep >> 8)


def test_floats_have_no_white() -> None:
    with pytest.raises(HeatcheckError, match="32 bits"):
        decode_image(Image.fromarray(noise()[:, :, 0].astype(np.float32)))


def test_transparency_is_laid_on_white() -> None:
    pixels = np.zeros((16, 16, 4), dtype=np.uint8)
    pixels[:, 8:, 3] = 255
    decoded = np.asarray(decode_image(Image.fromarray(pixels)))
    assert (decoded[:, :8] == 255).all() and (decoded[:, 8:] == 0).all()


def test_a_palette_with_a_transparent_colour_is_laid_on_white(tmp_path: Path) -> None:
    image = Image.new("P", (16, 16), 0)
    image.putpalette([200, 0, 0, 0, 0, 200])
    image.save(tmp_path / "a.png", transparency=0)
    assert decode_image(tmp_path / "a.png").getpixel((3, 3)) == (255, 255, 255)


def test_cmyk_jpeg(tmp_path: Path) -> None:
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "a.jpg")
    red, green, blue = decode_image(tmp_path / "a.jpg").getpixel((8, 8))
    assert red > 200 and green < 60 and blue < 60


def test_exif_orientation_is_applied() -> None:
    pixels = np.zeros((16, 32, 3), dtype=np.uint8)
    pixels[:, :16] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turned a quarter to the right
    decoded = decode_image(jpeg_bytes(Image.fromarray(pixels), exif=exif, quality=100))
    assert decoded.size == (16, 32)
    assert np.asarray(decoded)[:12].min() > 200 and np.asarray(decoded)[20:].max() < 50


def test_unreadable_metadata_costs_nothing() -> None:
    assert decode_image(jpeg_bytes(Image.fromarray(noise()), exif=b"Exif\x00\x00garbage")).size == (32, 24)


def test_an_animation_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert decode_image(tmp_path / "a.gif").getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif", "tif", "ppm"])
def test_every_format(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(noise()).save(tmp_path / f"a.{suffix}")
    assert decode_image(tmp_path / f"a.{suffix}").size == (32, 24)


def test_a_large_jpeg_is_decoded_smaller() -> None:
    large = jpeg_bytes(Image.new("RGB", (4800, 4400)))
    assert decode_image(large).size == (1200, 1100)


def broken_pictures(folder: Path) -> dict[str, Path]:
    jpeg, png = jpeg_bytes(Image.fromarray(noise(64, 64))), io.BytesIO()
    Image.fromarray(noise(64, 64)).save(png, "PNG")
    Image.new("RGB", (1, 1)).save(folder / "pixel.png")
    Image.new("RGB", (MIN_SIDE - 1, 100)).save(folder / "thin.png")
    (folder / "folder.jpg").mkdir()
    return {
        "file is empty": write(folder / "empty.jpg", b""),
        "not a picture": write(folder / "text.jpg", b"this is no picture at all"),
        "truncated": write(folder / "cut.jpg", jpeg[: len(jpeg) // 2]),
        "broken|truncated": write(folder / "cut.png", png.getvalue()[: len(png.getvalue()) // 2]),
        "not a picture|broken": write(folder / "head.jpg", jpeg[:10]),
        "1 × 1": folder / "pixel.png",
        "7 × 100": folder / "thin.png",
        "over 100 megapixels": write(folder / "bomb.png", png_header(60_000, 60_000)),
        "10001 × 10000, over 100": write(folder / "huge.png", png_header(MAX_PIXELS // 10_000 + 1, 10_000)),
        "zero|broken|not a picture|0 ×": write(folder / "zero.png", png_header(0, 10)),
        "^not a picture": write(folder / "eps.png", EPS),
        "does not exist": folder / "missing.jpg",
        "is a folder, not a file": folder / "folder.jpg",
    }


def test_bad_pictures_become_samples_with_a_reason(tmp_path: Path) -> None:
    for reason, path in broken_pictures(tmp_path).items():
        sample = picture_sample(path.name, path)
        assert sample.problem is not None, path
        assert re.search(reason, sample.problem), (path, sample.problem)
        with pytest.raises(HeatcheckError):
            decode_image(path)


def test_bad_pictures_stay_among_the_good(tmp_path: Path) -> None:
    broken = {path.name for path in broken_pictures(tmp_path).values() if path.is_file()}
    Image.fromarray(noise()).save(tmp_path / "good.png")
    data = load_data(f"folder:{tmp_path}")
    assert {s.name for s in data if s.problem} == broken
    assert [s.name for s in data if not s.problem] == ["good.png"]


def test_a_directory_that_cannot_be_read_as_a_picture_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(HeatcheckError):
        decode_image(tmp_path)


@pytest.mark.parametrize("content", [3, None, noise().astype(np.float32), noise(24, 32, 2), b"abc"])
def test_what_is_no_picture(content: object) -> None:
    with pytest.raises(HeatcheckError):
        decode_image(content)


def test_the_digest_is_of_the_bytes_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jpg", jpeg_bytes(Image.fromarray(noise())))
    before = picture_sample("a", path)
    renamed = picture_sample("b", path.rename(tmp_path / "b.jpeg"))
    assert before.digest == renamed.digest == hashlib.sha256(renamed.content.read_bytes()).hexdigest()
    changed = write(tmp_path / "c.jpg", renamed.content.read_bytes() + b"\x00")
    assert picture_sample("b", changed).digest != before.digest


def test_files_stay_on_disk(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jpg", jpeg_bytes(Image.fromarray(noise())))
    assert picture_sample("a", path).content == path


def test_pictures_in_memory_are_filed_by_their_pixels() -> None:
    array, image = noise(), Image.fromarray(noise())
    assert picture_sample("a", array).digest == picture_sample("b", image).digest
    assert picture_sample("a", array).digest != picture_sample("a", array[::-1].copy()).digest
