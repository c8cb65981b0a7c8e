"""Regions of pictures and spans of texts, and what is refused."""

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from heatcheck.core.types import HeatcheckError, Sample
from heatcheck.data import load_data
from heatcheck.data.images import picture_sample
from heatcheck.data.references import picture_with, plain, region, spans_of, text_with
from heatcheck.data.texts import text_sample
from heatcheck.run.lacking import context_of

SIZE = (12, 9)
MUTANTS = (
    (
        "data/references.py",
        "np.where(y1 > y0, 1, -1)",
        "np.where(y1 > y0, 1, 1)",
        "test_a_polygon_of_joined_pieces_holds_the_pieces",
    ),
    ("data/references.py", "math.ceil(stop - 0.5)", "math.ceil(stop + 0.5)", "test_boxes_are_their_union"),
    ("data/references.py", "if found != size:", "if False:", "test_what_is_no_region_is_refused"),
)


def slow_box(left: float, top: float, right: float, bottom: float) -> np.ndarray:
    """Pixel by pixel: inside if its centre is."""
    return np.array(
        [[left <= x + 0.5 < right and top <= y + 0.5 < bottom for x in range(SIZE[0])] for y in range(SIZE[1])]
    )


@given(st.lists(st.floats(0, 9), min_size=4, max_size=4))
def test_a_box_holds_the_pixels_whose_centres_it_holds(edges: list[float]) -> None:
    left, right = sorted(edges[:2])
    top, bottom = sorted(edges[2:])
    if left == right or top == bottom:
        return
    inside = slow_box(left, top, right, bottom)
    assert np.array_equal(region([left, top, right, bottom], SIZE), inside)
    corners = [left, top, right, top, right, bottom, left, bottom]
    assert np.array_equal(region({"polygons": [corners]}, SIZE), inside)
    backwards = np.array(corners).reshape(4, 2)[::-1].ravel().tolist()
    assert np.array_equal(region({"polygons": [backwards]}, SIZE), inside)


def test_boxes_are_their_union() -> None:
    boxes = [[0, 0, 3, 2], [2, 1, 5, 9]]
    union = slow_box(*boxes[0]) | slow_box(*boxes[1])
    assert np.array_equal(region(boxes, SIZE), union)
    assert np.array_equal(region(np.array(boxes), SIZE), union)
    assert not region([], SIZE).any()


def test_a_polygon_of_joined_pieces_holds_the_pieces() -> None:
    two = [1, 1, 4, 1, 4, 4, 1, 4, 1, 1, 7, 5, 11, 5, 11, 8, 7, 8, 7, 5, 1, 1]
    assert np.array_equal(region({"polygons": [two]}, SIZE), slow_box(1, 1, 4, 4) | slow_box(7, 5, 11, 8))


@given(st.lists(st.tuples(st.floats(0, 12), st.floats(0, 9)), min_size=3, max_size=3))
def test_a_triangle_against_its_sides(corners: list[tuple[float, float]]) -> None:
    (ax, ay), (bx, by), (cx, cy) = corners
    got = region({"polygons": [[v for corner in corners for v in corner]]}, SIZE)
    for y in range(SIZE[1]):
        for x in range(SIZE[0]):
            px, py = x + 0.5, y + 0.5
            sides = [
                (qx - px) * (ry - py) - (rx - px) * (qy - py)
                for qx, qy, rx, ry in ((ax, ay, bx, by), (bx, by, cx, cy), (cx, cy, ax, ay))
            ]
            if min(abs(s) for s in sides) > 1e-6:
                assert got[y, x] == (min(sides) > 0 or max(sides) < 0)


def test_masks_of_any_making(tmp_path: Path) -> None:
    inside = slow_box(2, 1, 7, 5)
    rgb = np.zeros((*inside.shape, 3), dtype=np.uint8)
    rgb[inside] = (0, 0, 200)
    clear = np.dstack([np.full_like(rgb, 9), inside.astype(np.uint8) * 255])
    palette = Image.fromarray(inside.astype(np.uint8)).convert("P")
    palette.putpalette([255, 255, 255, 0, 0, 0])
    pictures = {
        "grey": Image.fromarray(inside.astype(np.uint8)),
        "one": Image.fromarray(inside),
        "rgb": Image.fromarray(rgb),
        "clear": Image.fromarray(clear),
        "palette": palette,
        "deep": Image.fromarray(inside.astype(np.uint16) * 300),
    }
    for name, picture in pictures.items():
        picture.save(tmp_path / f"{name}.png")
        assert np.array_equal(region(tmp_path / f"{name}.png", SIZE), inside), name
    for array in (inside, inside.astype(float), torch.from_numpy(inside)):
        assert np.array_equal(region(array, SIZE), inside)
    assert region(np.ones((3, 4), dtype=bool), (4, 3)).shape == (3, 4)
    assert region(np.ones((3, 4)), (4, 3)).all()


@pytest.mark.parametrize(
    ("area", "message"),
    [
        ([5, 1, 2, 4], r"box \[5, 1, 2, 4\] is inverted"),
        ([1, 4, 5, 4], "inverted or empty"),
        ([1, 1, float("nan"), 4], "inverted or empty"),
        ([1, 1, 13, 4], r"box \[1, 1, 13, 4\] leaves its picture of 12 × 9 pixels"),
        ([-1, 1, 3, 4], "leaves its picture"),
        ([1, 2, 3], "no region"),
        ("cat", "no such|cannot|not a picture|No such"),
        ([["a", 1, 2, 3]], "no region"),
        (np.ones((9, 11)), "the mask is 11 × 9, its picture 12 × 9"),
        ({"polygons": [[1, 2, 3, 4]]}, "three corners"),
        ({"polygons": [[1, 2, 3, 4, 5, float("inf")]]}, "three corners"),
        ({}, "three corners"),
        (None, "no region"),
    ],
)
def test_what_is_no_region_is_refused(area: object, message: str) -> None:
    with pytest.raises(HeatcheckError, match=message):
        region(area, SIZE)


def test_a_box_may_leave_by_less_than_a_pixel() -> None:
    assert np.array_equal(region([-0.9, 0, 12.9, 9.5], SIZE), np.ones((9, 12), dtype=bool))


def sample(width: int = 12, height: int = 9) -> Sample:
    return picture_sample("p", np.zeros((height, width, 3), dtype=np.uint8))


def test_references_that_do_not_fit_are_the_samples_problem(tmp_path: Path) -> None:
    Image.new("L", (5, 8)).save(tmp_path / "small.png")
    (tmp_path / "broken.png").write_bytes(b"nothing")
    for reference, message in [
        ({"boxes": [[0, 0, 30, 5]]}, "leaves its picture"),
        ({"mask": tmp_path / "small.png"}, "5 × 8"),
        ({"mask": str(tmp_path / "broken.png")}, "'broken.png'"),
        ({"parts": {"eye": [3, 3, 2, 4]}}, "part 'eye': box"),
        ({"parts": ["eye"]}, "must be a mapping"),
        ({"parts": {"eye": [1, 1, 2, 2]}, "without": {"ear": "x.png"}}, "only one of them has 'ear', 'eye'"),
    ]:
        assert message in str(picture_with(sample(), reference).problem)
    assert picture_with(replace(sample(), problem="gone"), {"boxes": [[0, 0, 99, 9]]}).problem == "gone"
    assert picture_with(sample(), {"parts": {"eye": [1, 1, 2, 2]}}).problem is None


def test_upright_pictures_have_upright_boxes(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (30, 20)).save(tmp_path / "lying.jpg", exif=exif)
    lying = picture_sample("lying", tmp_path / "lying.jpg")
    assert picture_with(lying, {"boxes": [[0, 0, 20, 30]]}).problem is None
    assert "20 × 30" in str(picture_with(lying, {"boxes": [[0, 0, 30, 20]]}).problem)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([[0, 9]], "text of 4 characters"),
        ([[2, 2]], "does not fit"),
        ([[-1, 2]], "does not fit"),
        ([[0.0, 2]], "no span"),
        ([[0, 1, 2]], "no span"),
        ("all", "no span"),
        (7, "no span"),
        ({"a": 1}, "no span"),
    ],
)
def test_spans_that_do_not_fit(spans: object, message: str) -> None:
    assert message in str(text_with(text_sample("t", "good"), {"spans": spans}).problem)


def test_spans() -> None:
    assert spans_of([]) == [] and spans_of((1, 2)) == [(1, 2)] and spans_of([[1, 2], [3, 4]]) == [(1, 2), (3, 4)]
    assert text_with(text_sample("t", "good"), {"spans": [(0, 4)], "parts": {"g": [0, 1]}}).problem is None
    assert "part 'g'" in str(text_with(text_sample("t", "good"), {"parts": {"g": [0, 9]}}).problem)


def test_what_a_reference_holds_decides_its_context(tmp_path: Path) -> None:
    Image.new("L", (12, 9)).save(tmp_path / "m.png")
    mask = np.zeros((9, 12), dtype=bool)
    references = [
        {},
        {"mask": mask},
        {"mask": ~mask},
        {"mask": torch.from_numpy(mask)},
        {"mask": tmp_path / "m.png"},
        {"boxes": [[0, 0, 1, 1]]},
        {"parts": {"eye": mask}},
        {"parts": {"ear": mask}},
        {"parts": {"eye": ~mask}},
        {"parts": {"eye": mask}, "without": {"eye": Image.new("RGB", (12, 9))}},
        {"parts": {"eye": mask}, "without": {"eye": Image.new("RGB", (12, 9), "red")}},
        {"parts": {"eye": mask}, "without": {"eye": b"bytes"}},
    ]
    contexts = [context_of(replace(sample(), reference=reference)) for reference in references]
    assert len(set(contexts)) == len(contexts)
    before = plain({"mask": tmp_path / "m.png"})
    Image.new("L", (12, 9), 255).save(tmp_path / "m.png")
    assert plain({"mask": tmp_path / "m.png"}) != before
    assert plain({"boxes": [(np.float64(1), 2)]}) == {"boxes": [[1.0, 2]]}
    assert plain(tmp_path / "gone.png") == plain(tmp_path / "gone.png")


def test_dicts_in_memory_carry_references() -> None:
    picture = np.zeros((9, 12, 3), dtype=np.uint8)
    data = load_data(
        [{"image": picture, "label": 1, "boxes": [[0, 0, 2, 2]]}, {"image": picture + 1, "boxes": [[0, 0, 99, 2]]}]
    )
    assert data[0].reference == {"boxes": [[0, 0, 2, 2]]} and data[0].label == 1
    assert "leaves its picture" in str(data[1].problem)
    texts = load_data([{"text": "so good", "spans": [[3, 7]]}, {"text": "bad", "spans": [[3, 7]]}])
    assert texts[0].reference == {"spans": [[3, 7]]} and "text of 3" in str(texts[1].problem)
    ready = load_data([{"image": torch.zeros(3, 9, 12), "mask": torch.ones(9, 12)}, {"image": torch.zeros(3, 9, 12)}])
    assert ready[0].reference["mask"].shape == (9, 12) and ready[1].reference == {}


def test_a_mask_that_claims_to_be_huge_is_not_read(tmp_path: Path) -> None:
    Image.new("L", (12, 9)).save(tmp_path / "bomb.png")
    raw = bytearray((tmp_path / "bomb.png").read_bytes())
    for side in (20_000, 60_000):
        raw[16:24] = side.to_bytes(4, "big") * 2
        raw[29:33] = zlib.crc32(raw[12:29]).to_bytes(4, "big")
        (tmp_path / "bomb.png").write_bytes(raw)
        assert "'bomb.png'" in str(picture_with(sample(), {"mask": tmp_path / "bomb.png"}).problem)
