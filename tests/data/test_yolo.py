"""Pictures with YOLO labels."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import load_data, region
from heatcheck.data.references import size_of

MUTANTS = (
    (
        "data/yolo.py",
        "main = max(sorted(areas), key=areas.__getitem__)",
        "main = min(sorted(areas))",
        "test_boxes_and_polygons",
    ),
    ("data/yolo.py", "v * (height if i % 2 else width)", "v * (width if i % 2 else height)", "test_boxes_and_polygons"),
    (
        "data/yolo.py",
        "x - w / 2, y - h / 2, x + w / 2, y - h / 2",
        "x, y, x + w / 2, y - h / 2",
        "test_boxes_and_polygons",
    ),
)


def made(root: Path, labels: dict[str, str], folder: str = "labels", images: str = "images") -> Path:
    for i, (name, text) in enumerate(labels.items()):
        (root / images).mkdir(parents=True, exist_ok=True)
        (root / folder).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 20), (i, 0, 0)).save(root / images / f"{name}.jpg")
        if text is not None:
            (root / folder / f"{name}.txt").write_text(text)
    return root


BOX = "2 0.5 0.5 0.5 0.5\n"
TRIANGLE = "0 0 0 0.2 0 0 0.2\n"


@pytest.mark.parametrize("folder", ["labels", "polygons", "images"])
def test_boxes_and_polygons(tmp_path: Path, folder: str) -> None:
    made(tmp_path, {"a": BOX + TRIANGLE, "b": "", "c": TRIANGLE + "0 0.9 0.9 1 0.9 1 1 0.9 1\n"}, folder)
    (tmp_path / "classes.txt").write_text("cat\ndog\nowl\n")
    data = load_data(f"yolo:{tmp_path}")
    assert [s.name for s in data] == ["images/a.jpg", "images/b.jpg", "images/c.jpg"]
    first = data[0].reference
    assert list(first["parts"]) == ["cat", "owl"]
    owl = np.zeros((20, 40), dtype=bool)
    owl[5:15, 10:30] = True
    assert np.array_equal(region(first["mask"], (40, 20)), owl)
    assert np.array_equal(region(first["parts"]["owl"], (40, 20)), owl)
    assert 0 < region(first["parts"]["cat"], (40, 20)).sum() < 32
    assert data[1].reference == {} and data[1].problem is None
    assert region(data[2].reference["mask"], (40, 20))[19, 39]
    assert [s.label for s in data] == [None] * 3


def test_the_main_class_is_the_label_if_it_is_known(tmp_path: Path) -> None:
    made(tmp_path, {"a": BOX, "b": TRIANGLE})
    (tmp_path / "data.yaml").write_text("path: .\nnames:\n  0: wolpertinger\n  2: 'owl'\nother: 1\n")
    data = load_data(f"yolo:{tmp_path}", classes=["dog", "owl"])
    assert [s.label for s in data] == [1, None] and all(s.problem is None for s in data)
    assert list(data[1].reference["parts"]) == ["wolpertinger"]


@pytest.mark.parametrize(
    "yaml",
    [
        "names: [cat, dog, 'owl']\n",
        "names: {0: cat, 2: owl}\n",
        "nc: 3\nnames:\n- cat\n- dog\n- owl\n",
        "names:\n  - cat\n  - dog\n\n  - owl\n",
    ],
)
def test_class_names(tmp_path: Path, yaml: str) -> None:
    made(tmp_path, {"a": BOX})
    (tmp_path / "data.yaml").write_text(yaml)
    assert list(load_data(f"yolo:{tmp_path}")[0].reference["parts"]) == ["owl"]


def test_unnamed_classes_are_numbers(tmp_path: Path) -> None:
    assert list(load_data(f"yolo:{made(tmp_path, {'a': BOX})}")[0].reference["parts"]) == ["2"]


def test_a_path_is_recognised(tmp_path: Path) -> None:
    assert "mask" in load_data(made(tmp_path, {"a": BOX}))[0].reference


def test_nested_splits(tmp_path: Path) -> None:
    made(tmp_path, {"a": BOX}, "labels/val", "images/val")
    assert "mask" in load_data(f"yolo:{tmp_path}")[0].reference


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 0.1 0.2 0.3\n", "a.txt, line 1: 3 numbers are neither"),
        (BOX + "0 0 0 1 0 1\n", "line 2: 5 numbers"),
        ("cat 0.5 0.5 0.5 0.5\n", "'cat' is no class number"),
        ("-1 0.5 0.5 0.5 0.5\n", "'-1' is no class number"),
        ("0 0.5 x 0.5 0.5\n", "not a class and numbers"),
        ("0 50 50 20 20\n", "from 0 to 1"),
        ("0 nan 0.5 0.5 0.5\n", "from 0 to 1"),
        ("0 0.9 0.5 0.9 0.5\n", "from 0 to 1"),
        ("0 " + "0.5 " * 2_000_000, "over 4 MB"),
    ],
)
def test_a_bad_label_file_is_its_pictures_problem(tmp_path: Path, text: str, message: str) -> None:
    data = load_data(f"yolo:{made(tmp_path, {'a': text, 'b': BOX})}")
    assert message in str(data[0].problem) and data[1].problem is None


def test_a_folder_without_label_files_is_refused(tmp_path: Path) -> None:
    made(tmp_path, {"a": BOX})
    (tmp_path / "labels" / "a.txt").rename(tmp_path / "labels" / "z.txt")
    with pytest.raises(HeatcheckError, match="no picture has a text file"):
        load_data(f"yolo:{tmp_path}")


def test_real_coco_pictures(shared: Path) -> None:
    if not (shared / "data/coco-48").is_dir():
        pytest.skip(f"no {shared}/data/coco-48")
    data = load_data(f"yolo:{shared}/data/coco-48")
    assert len(data) == 48 and not [s.problem for s in data if s.problem]
    bear = next(s for s in data if s.name.endswith("000000000285.jpg"))
    assert list(bear.reference["parts"]) == ["bear"]
    assert 0.7 < region(bear.reference["mask"], size_of(bear.content)).mean() < 0.76
    assert load_data(f"yolo:{shared}/data/coco-48", classes=["bear"])[1].label == 0
