"""Places365's layouts."""

from pathlib import Path

import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import load_data
from heatcheck.data.splits import training_specs

CATEGORIES = "/a/airfield 0\n/a/apartment_building/outdoor 1\n/z/zen_garden 2\n"
NAMES = ("airfield", "apartment_building/outdoor", "zen_garden")


def picture(path: Path, colour: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), (colour, 0, 0)).save(path)


def devkit(root: Path, *, lists: str = ".", train: str = "data_256", val: str = "val_256") -> Path:
    (root / lists).mkdir(parents=True, exist_ok=True)
    (root / lists / "categories_places365.txt").write_text(CATEGORIES)
    (root / lists / "places365_val.txt").write_text("Places365_val_1.jpg 2\nPlaces365_val_2.jpg 1\n")
    (root / lists / "places365_train_standard.txt").write_text(
        "/a/airfield/1.jpg 0\n/a/apartment_building/outdoor/1.jpg 1\n/z/zen_garden/1.jpg 2\n"
    )
    for i in (1, 2):
        picture(root / val / f"Places365_val_{i}.jpg", i)
    for i, name in enumerate(("a/airfield", "a/apartment_building/outdoor", "z/zen_garden")):
        picture(root / train / name / "1.jpg", 9 + i)
    return root


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"lists": "filelist_places365-standard", "train": "data_large_standard", "val": "val_large"},
        {"train": "data_256_standard"},
    ],
)
def test_the_devkit(tmp_path: Path, parts: dict[str, str]) -> None:
    where = devkit(tmp_path / "p", **parts)
    for spec in (str(where), f"places365:{where}", f"places365:{where}:val"):
        data = load_data(spec)
        assert (data.name, data.classes) == ("places365-val", NAMES)
        assert [(s.name, s.label, s.problem) for s in data] == [
            ("Places365_val_1.jpg", 2, None),
            ("Places365_val_2.jpg", 1, None),
        ]
    train = load_data(f"places365:{where}:train")
    assert [(s.label, s.problem) for s in train] == [(0, None), (1, None), (2, None)]
    assert train[1].name == "a/apartment_building/outdoor/1.jpg"
    assert training_specs(str(where)) == (f"places365:{where}:train", f"places365:{where}:val")


@pytest.mark.parametrize("listed", [True, False])
def test_folders(tmp_path: Path, listed: bool) -> None:
    for i, name in enumerate(
        ("train/airfield", "train/apartment_building-outdoor", "val/zen_garden", "train/zen_garden")
    ):
        picture(tmp_path / name / "1.jpg", i)
    if listed:
        (tmp_path / "categories_places365.txt").write_text(CATEGORIES)
    val, train = load_data(f"places365:{tmp_path}"), load_data(f"places365:{tmp_path}:train")
    assert [s.label for s in val] == [2] and [s.label for s in train] == [0, 1, 2]
    assert val.classes == (NAMES if listed else ("airfield", "apartment_building-outdoor", "zen_garden"))
    assert val.sorted_names is not listed
    if listed:
        assert load_data(tmp_path).name == "places365-val"
    else:
        assert training_specs(f"places365:{tmp_path}") == (f"places365:{tmp_path}:train", f"places365:{tmp_path}:val")


def test_365_folders_are_recognised(tmp_path: Path) -> None:
    for name in ("airfield", "zen_garden", *(f"place{i}" for i in range(363))):
        (tmp_path / "val" / name).mkdir(parents=True)
    picture(tmp_path / "val/zen_garden/1.jpg")
    data = load_data(tmp_path)
    assert data.name == "places365-val" and data[0].label == 364
    assert training_specs(str(tmp_path)) == (f"train_part:{tmp_path}", f"test_part:{tmp_path}")


def test_bad_lines_are_problems_of_their_samples(tmp_path: Path) -> None:
    where = devkit(tmp_path / "p")
    picture(tmp_path / "secret.jpg")
    (where / "val_256/broken.jpg").write_bytes(b"broken")
    (where / "places365_val.txt").write_text("../../secret.jpg 1\ngone.jpg 0\nbroken.jpg 0\nPlaces365_val_1.jpg\n")
    data = load_data(f"places365:{where}")
    assert data[0].problem == "places365_val.txt names '../../secret.jpg', which lies outside its folder"
    assert "does not exist" in str(data[1].problem) and "not a picture" in str(data[2].problem)
    assert data[3].problem is None and data[3].label is None


def test_missing_things(tmp_path: Path) -> None:
    where = devkit(tmp_path / "p")
    (where / "categories_places365.txt").write_text("/a/airfield 0\nalcove 1\n")
    with pytest.raises(HeatcheckError, match=r"categories_places365\.txt', line 2: 'alcove 1' is not /letter/name 1"):
        load_data(f"places365:{where}")
    (where / "places365_val.txt").unlink()
    (where / "categories_places365.txt").unlink()
    with pytest.raises(
        HeatcheckError, match=r"has neither places365_val\.txt with val_256 or val_large, nor a subfolder val"
    ):
        load_data(f"places365:{where}")
