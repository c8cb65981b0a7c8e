"""What is learnt from and what is evaluated on."""

import json
from pathlib import Path

import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import load_data
from heatcheck.data.splits import training_specs

MUTANTS = (
    ("data/splits.py", '_EVALUATION = ("val", "validation", "test")', '_EVALUATION = ("test", "val")', "test_eraser"),
    ("data/splits.py", "or evaluation is None", "and evaluation is None", "test_eraser"),
)


def pictures(root: Path, *names: str) -> Path:
    for i, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (i, 0, 0)).save(root / name)
    return root


def corpus(root: Path, *splits: str) -> Path:
    (root / "docs").mkdir(parents=True)
    for i, split in enumerate(splits):
        (root / "docs" / str(i)).write_text(f"text {i}")
        row = {"annotation_id": str(i), "classification": "POS", "evidences": []}
        (root / f"{split}.jsonl").write_text(json.dumps(row))
    return root


@pytest.mark.parametrize("data", ["images", "texts", "squares:images"])
def test_embedded_data_are_parted(data: str) -> None:
    assert training_specs(data) == (f"train_part:{data}", f"test_part:{data}")


@pytest.mark.parametrize(
    ("splits", "evaluation"),
    [(("train", "val", "test"), "val"), (("train", "test"), "test"), (("test",), None), (("train",), None)],
)
def test_eraser(tmp_path: Path, splits: tuple[str, ...], evaluation: str | None) -> None:
    data = f"eraser:{corpus(tmp_path / 'c', *splits)}"
    found = training_specs(data)
    if evaluation is None:
        assert found == (f"train_part:{data}", f"test_part:{data}")
        return
    assert found == (f"{data}:train", f"{data}:{evaluation}")
    assert [s.content for spec in found for s in load_data(spec)] == ["text 0", f"text {splits.index(evaluation)}"]


@pytest.mark.parametrize(
    ("names", "evaluation"),
    [
        (("train/a/1.png", "train/b/2.png", "val/a/3.png", "test/a/4.png"), "val"),
        (("train/a/1.png", "test/b/2.png"), "test"),
        (("train/1.png", "car/2.png"), None),
        (("val/1.png", "test/2.png"), None),
        (("a/1.png", "b/2.png"), None),
        (("1.png",), None),
    ],
)
def test_folders(tmp_path: Path, names: tuple[str, ...], evaluation: str | None) -> None:
    root = pictures(tmp_path / "p", *names)
    for data in (str(root), f"folder:{root}"):
        if evaluation is None:
            assert training_specs(data) == (f"train_part:{data}", f"test_part:{data}")
        else:
            assert training_specs(data) == (f"folder:{root}:train", f"folder:{root}:{evaluation}")
    if evaluation is not None:
        assert training_specs(f"squares:{root}") == (
            f"squares:folder:{root}:train",
            f"squares:folder:{root}:{evaluation}",
        )


def test_imagenet(tmp_path: Path) -> None:
    root = pictures(tmp_path / "i", "val/n01440764/1.JPEG")
    assert training_specs(f"imagenet:{root}")[0] == f"train_part:imagenet:{root}"
    pictures(root, "train/n01440764/2.JPEG")
    assert training_specs(str(root)) == (f"imagenet:{root}:train", f"imagenet:{root}:val")


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\nfine,1\n")
    assert training_specs(f"{tmp_path}/t.csv") == (f"train_part:{tmp_path}/t.csv", f"test_part:{tmp_path}/t.csv")


def test_something_else_is_held_out(tmp_path: Path) -> None:
    where = corpus(tmp_path / "c", "train", "val", "test")
    assert training_specs(f"eraser:{where}", "texts") == (f"eraser:{where}:train", "texts")
    assert training_specs(f"eraser:{where}:val", f"eraser:{where}:test") == (
        f"eraser:{where}:val",
        f"eraser:{where}:test",
    )
    assert training_specs("images", "squares:images") == ("images", "squares:images")
    assert training_specs("train_part(seed=1):images", "x") == ("train_part(seed=1):images", "x")
    for data, held in (("images", "images"), (f"eraser:{where}", f"eraser:{where}:train")):
        with pytest.raises(HeatcheckError, match="is what is learnt from; hold out something else"):
            training_specs(data, held)


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        ("eraser:{0}:train", "eraser:{0}"),
        ("train_part:images", "images"),
        ("test_part(seed=3):folder:{0}", "folder:{0}"),
        ("squares:train_part:folder:{0}:val", "squares:folder:{0}"),
    ],
)
def test_a_part_leaves_nothing_to_evaluate_on(tmp_path: Path, data: str, whole: str) -> None:
    with pytest.raises(HeatcheckError, match="is a part already") as raised:
        training_specs(data.format(tmp_path))
    assert f"give {whole.format(tmp_path)!r}, or say what is held out" in str(raised.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("nowhere", "data='nowhere' is neither a data source nor an existing path"),
        ("cifr10:/x", "did you mean cifar10"),
        ("", "data='' is neither"),
        ("squares:nowhere", "data='nowhere' is neither"),
        ("folder:nowhere", "there is no folder 'nowhere'"),
        ("eraser:nowhere", "there is no folder or archive 'nowhere'"),
        ("tensor:x", "is neither"),
    ],
)
def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HeatcheckError, match=message):
        training_specs(data)


def test_both_specs_can_be_loaded(tmp_path: Path) -> None:
    names = [f"{split}/{kind}/{i}.png" for split in ("train", "val") for kind in "ab" for i in range(3)]
    root = pictures(tmp_path / "p", *names, "val/c/9.png")
    train, val = (load_data(spec) for spec in training_specs(str(root)))
    assert train.classes == val.classes == ("a", "b", "c")
    assert [s.label for s in train] == [0, 0, 0, 1, 1, 1] and val[-1].label == 2


def test_real_movie_reviews(shared: Path) -> None:
    where = shared / "data/movies.tar.gz"
    if not where.is_file():
        pytest.skip(f"no {where}")
    assert training_specs(f"eraser:{where}") == (f"eraser:{where}:train", f"eraser:{where}:val")
