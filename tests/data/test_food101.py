"""Food-101's layout."""

import json
from pathlib import Path

import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import load_data
from heatcheck.data.splits import training_specs

LISTS = {"train": ["cake/1", "soup/2", "soup/3"], "test": ["soup/4", "cake/5"]}


def made(root: Path, *, written: str = "txt") -> Path:
    for i, entry in enumerate(entry for entries in LISTS.values() for entry in entries):
        path = root / "images" / f"{entry}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (40 * i, 0, 0)).save(path)
    (root / "meta").mkdir()
    for split, entries in LISTS.items():
        if written == "txt":
            (root / "meta" / f"{split}.txt").write_text("\n".join(entries) + "\n")
        else:
            by_class = {kind: [e for e in entries if e.startswith(kind)] for kind in ("soup", "cake")}
            (root / "meta" / f"{split}.json").write_text(json.dumps(by_class))
    if written == "txt":
        (root / "meta" / "classes.txt").write_text("cake\nsoup\n")
    else:
        (root / "meta" / "classes.json").write_text('["cake", "soup"]')
    return root


@pytest.mark.parametrize("written", ["txt", "json"])
def test_splits(tmp_path: Path, written: str) -> None:
    where = made(tmp_path / "food-101", written=written)
    for spec in (str(where), f"food101:{where}", f"food101:{tmp_path}:test"):
        data = load_data(spec)
        assert (data.name, data.classes) == ("food101-test", ("cake", "soup"))
        assert {s.name: s.label for s in data} == {"soup/4.jpg": 1, "cake/5.jpg": 0}
        assert all(s.problem is None for s in data)
    train = load_data(f"food101:{where}:train")
    assert {s.name: s.label for s in train} == {"cake/1.jpg": 0, "soup/2.jpg": 1, "soup/3.jpg": 1}
    assert training_specs(str(where)) == (f"food101:{where}:train", f"food101:{where}:test")


def test_without_a_list_of_classes(tmp_path: Path) -> None:
    where = made(tmp_path / "f")
    (where / "meta" / "classes.txt").unlink()
    data = load_data(f"food101:{where}")
    assert data.classes == ("cake", "soup") and data.sorted_names


def test_bad_entries_are_problems_of_their_samples(tmp_path: Path) -> None:
    where = made(tmp_path / "f")
    outside = tmp_path / "secret.jpg"
    Image.new("RGB", (16, 16)).save(outside)
    (where / "images/soup/9.jpg").write_bytes(b"broken")
    entries = ["soup/4", "../../secret", str(outside.with_suffix("")), "soup/gone", "soup/9", "stew/1", "soup/4"]
    (where / "meta/test.txt").write_text("\n".join(entries))
    data = load_data(f"food101:{where}")
    problems = [s.problem for s in data]
    assert [p is None for p in problems] == [True, False, False, False, False, False, True]
    assert problems[1] == "meta/test.txt names '../../secret.jpg', which lies outside its folder"
    assert "lies outside its folder" in str(problems[2]) and "does not exist" in str(problems[3])
    assert "not a picture" in str(problems[4]) and [s.label for s in data][5:] == [None, 1]
    assert data[6].name == "soup/4.jpg#2"


def test_missing_things(tmp_path: Path) -> None:
    where = made(tmp_path / "f")
    (where / "meta/train.txt").unlink()
    with pytest.raises(HeatcheckError, match=r"has neither meta/train\.txt nor meta/train\.json"):
        load_data(f"food101:{where}:train")
    assert training_specs(f"food101:{where}") == (f"train_part:food101:{where}", f"test_part:food101:{where}")
    (where / "meta/train.json").write_text("{")
    with pytest.raises(HeatcheckError, match=r"train\.json' cannot be read as JSON"):
        load_data(f"food101:{where}:train")
    (where / "meta/train.json").write_text('{"soup": 3}')
    with pytest.raises(HeatcheckError, match="is neither a list nor a list per class"):
        load_data(f"food101:{where}:train")
