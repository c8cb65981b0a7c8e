"""Masks, boxes and parts beside a folder's pictures."""

import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import load_data, region

MUTANTS = (
    (
        "data/sidecars.py",
        "labels.read(written)[0] == label",
        "labels.read(written)[0] != label",
        "test_boxes_of_the_labelled_class",
    ),
    (
        "data/sidecars.py",
        "(sidecars if owned else ours).extend(found)",
        "ours.extend(found)",
        "test_masks_of_the_same_stem",
    ),
)


def picture(path: Path, size: tuple[int, int] = (20, 16), colour: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (colour, zlib.crc32(path.name.encode()) % 256, 0)).save(path)
    return path


def mask(path: Path, size: tuple[int, int] = (20, 16)) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    inside = np.zeros(size[::-1], dtype=np.uint8)
    inside[2:5, 3:9] = 255
    Image.fromarray(inside).save(path)
    return inside > 0


def test_masks_of_the_same_stem(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        picture(tmp_path / name)
    inside = mask(tmp_path / "masks" / "a.png")
    mask(tmp_path / "masks" / "b.png", (20, 15))
    mask(tmp_path / "masks" / "stranger.png")
    data = load_data(tmp_path)
    assert [s.name for s in data] == ["a.jpg", "b.jpg", "c.jpg"]
    assert np.array_equal(region(data[0].reference["mask"], (20, 16)), inside)
    assert data[1].problem == "the mask 'b.png' is 20 × 15, its picture 20 × 16: they must agree"
    assert data[2].reference == {}
    assert "1 files in masks/ belong to no picture here" in data.notes


def test_class_folders_keep_their_masks_apart(tmp_path: Path) -> None:
    for name in ("images/cat/1.png", "images/dog/1.png", "images/dog/2.png"):
        picture(tmp_path / name)
    for name in ("cat/1.png", "dog/2.png", "1.png"):
        mask(tmp_path / "masks" / name)
    data = load_data(tmp_path)
    assert [(s.name, s.label) for s in data] == [
        ("images/cat/1.png", 0),
        ("images/dog/1.png", 1),
        ("images/dog/2.png", 1),
    ]
    where = [s.reference.get("mask") for s in data]
    assert where == [tmp_path / "masks/cat/1.png", None, tmp_path / "masks/dog/2.png"]


def test_a_class_called_masks_stays_a_class(tmp_path: Path) -> None:
    picture(tmp_path / "masks" / "venetian.png")
    picture(tmp_path / "hats" / "bowler.png")
    assert load_data(tmp_path).classes == ("hats", "masks")


def test_boxes_of_the_labelled_class(tmp_path: Path) -> None:
    for name in ("cat/a.png", "dog/b.png"):
        picture(tmp_path / name)
    (tmp_path / "boxes.csv").write_text(
        "file,left,top,right,bottom,class\na.png,0,0,4,4,cat\na.png,5,5,9,9,dog\ncat/a.png,1,1,3,3,\nb,2,2,4.5,6,dog\n"
    )
    data = load_data(tmp_path)
    assert data[0].reference["boxes"] == [(0, 0, 4, 4), (1, 1, 3, 3)]
    assert data[1].reference["boxes"] == [(2, 2, 4.5, 6)]
    assert not data.notes


def test_boxes_without_labels_are_all_kept(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / "boxes.csv").write_text("file,left,top,right,bottom,class\na.png,0,0,4,4,cat\na.png,5,5,9,9,dog\n")
    assert len(load_data(tmp_path)[0].reference["boxes"]) == 2


def test_parts_and_pictures_without_them(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        picture(tmp_path / name)
    (tmp_path / "parts.csv").write_text(
        "file,part,left,top,right,bottom\na.png,eye,0,0,2,2\na.png,eye,4,0,6,2\na.png,ear,8,0,9,4\n"
    )
    mask(tmp_path / "parts" / "b" / "beak.png")
    mask(tmp_path / "parts" / "b" / "wing.png")
    for part in ("beak", "wing"):
        picture(tmp_path / "without" / "b" / f"{part}.png")
    data = load_data(tmp_path)
    assert len(data) == 2 and not [s.problem for s in data if s.problem]
    assert data[0].reference == {"parts": {"eye": [(0, 0, 2, 2), (4, 0, 6, 2)], "ear": [(8, 0, 9, 4)]}}
    assert list(data[1].reference["parts"]) == ["beak", "wing"] == list(data[1].reference["without"])
    (tmp_path / "without" / "b" / "wing.png").unlink()
    assert "only one of them has 'wing'" in str(load_data(tmp_path)[1].problem)


def test_sidecars_of_imagenet_lie_above_or_in_val(tmp_path: Path) -> None:
    picture(tmp_path / "val" / "n02123045" / "x.JPEG")
    (tmp_path / "boxes.csv").write_text("file,left,top,right,bottom\nx.JPEG,0,0,4,4\n")
    mask(tmp_path / "val" / "masks" / "x.png")
    data = load_data(f"imagenet:{tmp_path}")
    assert len(data) == 1 and set(data[0].reference) == {"boxes", "mask"}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "boxes.csv",
            "file,left,top,right,bottom\na.png,9,0,4,4\n",
            r"boxes.csv, row 2: box \[9, 0, 4, 4\] is inverted",
        ),
        (
            "boxes.csv",
            "file,left,top,right,bottom\na.png,0,0,4,4\nb.png,0,0,4,4\n",
            "row 3: there is no picture 'b.png'",
        ),
        (
            "boxes.csv",
            "file,left,top,right,bottom\n../../etc/passwd,0,0,4,4\n",
            "there is no picture '../../etc/passwd'",
        ),
        ("boxes.csv", "file,left,top,right,bottom\na.png,0,zero,4,4\n", "four numbers.*'zero'"),
        ("boxes.csv", "file,left,top,right,bottom\na.png,0,0,4\n", "4 cells, the table 5 columns"),
        ("boxes.csv", "file,left,top,right,bottom\na.png,0,0,inf,4\n", "inverted or empty"),
        ("boxes.csv", "file,x,y,w,h\na.png,0,0,4,4\n", "columns are file, x, y, w, h; expected file, left"),
        ("parts.csv", "file,left,top,right,bottom\na.png,0,0,4,4\n", "expected file, part, left"),
        ("parts.csv", "file,part,left,top,right,bottom\na.png,eye,5,5,4,4\n", "parts.csv, row 2: box"),
        ("boxes.csv", "\x00\x01\x02,\n\xff,", "expected file"),
    ],
)
def test_bad_tables_say_where(tmp_path: Path, file: str, text: str, message: str) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / file).write_text(text)
    with pytest.raises(HeatcheckError, match=message):
        load_data(tmp_path)


def test_an_empty_table_says_nothing(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / "boxes.csv").write_text("")
    assert load_data(tmp_path)[0].reference == {}


def test_a_box_outside_is_the_pictures_problem(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        picture(tmp_path / name)
    (tmp_path / "boxes.csv").write_text("file,left,top,right,bottom\na.png,0,0,25,4\nb.png,0,0,20,16\n")
    data = load_data(tmp_path)
    assert data[0].problem == "box [0, 0, 25, 4] leaves its picture of 20 × 16 pixels" and data[1].problem is None
