"""FunnyBirds in its published layout, made here in miniature."""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import load_data
from heatcheck.data.catalogue import sources, split_spec
from heatcheck.data.references import region
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.request import Request
from heatcheck.models.vision import FunctionModel

MUTANTS = (
    ("data/funnybirds.py", "for p in drawn if p != part", "for p in drawn if p == part", "test_the_test_split"),
    ("data/funnybirds.py", "(255, 0, 1), (255, 0, 2)", "(255, 0, 1), (255, 0, 3)", "test_left_and_right_are_one_part"),
    (
        "data/funnybirds.py",
        "agreeing(classes, bird.shown)",
        "agreeing(classes, {})",
        "test_training_pictures_lack_parts",
    ),
)
SIDE = 32
PARTS = {
    "beak": [{"model": f"beak0{i}.glb", "color": "yellow"} for i in (1, 2)],
    "eye": [{"model": f"eye0{i}.glb"} for i in (1, 2)],
    "foot": [{"model": f"foot0{i}.glb"} for i in (1, 2)],
    "tail": [{"model": "tail01.glb", "color": c} for c in ("red", "green")],
    "wing": [{"model": "wing01.glb", "color": c} for c in ("red", "green")],
}
CLASSES = [(0, 0, 0, 0, 0), (1, 0, 0, 0, 1), (1, 1, 1, 1, 1)]
MAP = {
    "beak": [(255, 255, 0)],
    "eye": [(255, 255, 253), (255, 255, 254)],
    "foot": [(255, 0, 1), (255, 0, 2)],
    "tail": [(0, 0, 255)],
    "wing": [(0, 255, 1), (0, 255, 2)],
}
"""The published colours of part maps."""
PLACES = {part: (4 * i, 4 * i) for i, part in enumerate(PARTS)}


def parameters(label, missing=(), word="placeholder"):
    """A picture's row, in which missing parts have a word in place of every attribute."""
    found = {"class_idx": label, "camera_distance": 300, "bg_color": "red,green,"}
    for part, v in zip(PARTS, CLASSES[label], strict=True):
        found |= {f"{part}_{k}": word if part in missing else value for k, value in PARTS[part][v].items()}
    return found


def picture(path: Path, parts, colour):
    """A grey picture with alpha, a square per part; a part with two colours has a square of each."""
    pixels = np.full((SIDE, SIDE, 4), 255, np.uint8)
    pixels[..., :3] = 0 if path.parent.parent.name.endswith("part_map") else 90
    for part in parts:
        y, x = PLACES[part]
        for k, c in enumerate(colour(part)):
            pixels[y : y + 4, x + 8 * k : x + 8 * k + 4, :3] = c
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


TRAIN = [(0, ()), (0, ("beak", "wing")), (2, tuple(PARTS)), (1, ("wing",))]


@pytest.fixture
def root(tmp_path):
    where = tmp_path / "FunnyBirds"
    where.mkdir()
    rows = {"test": [(label, ()) for label in (0, 1, 2)], "train": TRAIN}
    (where / "parts.json").write_text(json.dumps(PARTS))
    table = [{"class_idx": i, "parts": dict(zip(PARTS, c, strict=True))} for i, c in enumerate(CLASSES)]
    (where / "classes.json").write_text(json.dumps(table))
    for split, pictures in rows.items():
        (where / f"dataset_{split}.json").write_text(json.dumps([parameters(*row) for row in pictures]))
        for i, (label, missing) in enumerate(pictures):
            drawn = [p for p in PARTS if p not in missing]
            picture(where / split / str(label) / f"{i:06d}.png", drawn, lambda p, i=i: [(20 * len(p), 10 + i, 200)])
            picture(where / f"{split}_part_map" / str(label) / f"{i:06d}.png", drawn, MAP.__getitem__)
    for i, (label, _) in enumerate(rows["test"]):
        for kept in itertools.chain(*(itertools.combinations(PARTS, n) for n in range(6))):
            folder = where / "test_interventions" / str(label) / f"{i:06d}"
            picture(folder / f"body_{'_'.join(sorted(kept))}.png", kept, lambda p, i=i: [(20 * len(p), 10 + i, 200)])
    return where


@pytest.mark.parametrize("spec", ["funnybirds:{}", "funnybirds:{}:test", "{}"])
def test_the_test_split(root, spec):
    data = load_data(spec.format(root))
    assert (data.name, len(data), data.classes, data.notes) == ("FunnyBirds-test", 3, ("0", "1", "2"), ())
    assert [s.label for s in data] == [0, 1, 2] and all(s.problem is None for s in data)
    assert [s.name for s in data] == ["test/0/000000.png", "test/1/000001.png", "test/2/000002.png"]
    own = data[1].reference
    assert list(own["parts"]) == list(own["without"]) == list(PARTS) and "possible" not in own
    whole = np.asarray(Image.open(root / "test/1/000001.png"))
    for part, path in own["without"].items():
        changed = (np.asarray(Image.open(path)) != whole).any(-1)
        y, x = PLACES[part]
        assert changed[y : y + 4, x : x + 4].all() and changed.sum() == 16


def test_left_and_right_are_one_part(root):
    own = load_data(f"funnybirds:{root}")[0].reference["parts"]
    for part, (y, x) in PLACES.items():
        want = np.zeros((SIDE, SIDE), dtype=bool)
        for k in range(len(MAP[part])):
            want[y : y + 4, x + 8 * k : x + 8 * k + 4] = True
        assert np.array_equal(region(own[part], (SIDE, SIDE)), want)


def test_a_model_sees_masks_and_removals(root):
    request = Request(name="sum", preprocess=Preprocess(mean=(0.0,) * 3, std=(1.0,) * 3, size=SIDE, resize=SIDE))
    model = FunctionModel(lambda x: x.mean((2, 3)), request)
    sample = load_data(f"funnybirds:{root}")[2]
    known = model.references(sample, model.encode(sample))
    assert known["part_names"] == tuple(PARTS)
    assert known["parts"].flatten(1).sum(1).tolist() == [16, 32, 32, 16, 32]
    assert len(known["without"]) == 5


def test_training_pictures_lack_parts(root):
    data = load_data(f"funnybirds:{root}:train")
    assert data.name == "FunnyBirds-train" and [s.label for s in data] == [0, 0, 2, 1]
    possible = [s.reference.get("possible") for s in data]
    assert possible == [None, (0, 1), (0, 1, 2), (1,)]
    assert list(data[1].reference["parts"]) == ["eye", "foot", "tail"] and "without" not in data[1].reference
    assert data.notes == ("there is no train_interventions/: parts are filled, not re-rendered",)


def test_what_is_missing_is_said(root):
    shutil.rmtree(root / "test_part_map")
    data = load_data(f"funnybirds:{root}")
    assert data.notes == ("there is no test_part_map/: no parts are known",) and not data[0].reference
    (root / "test/0/000000.png").unlink()
    assert "does not exist" in load_data(f"funnybirds:{root}")[0].problem
    (root / "train_part_map/0/000000.png").unlink()
    assert "000000.png" in load_data(f"funnybirds:{root}:train")[0].problem


def test_how_it_is_written(root):
    source = sources()["funnybirds"]
    assert source.splits_at(str(root)) == ("test", "train") and source.fits(root) and not source.fits(root / "test")
    assert split_spec(f"funnybirds:{root}:train") == ("funnybirds:", str(root), ":train")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("classes.json", "[", "classes.json' cannot be read"),
        ("classes.json", "{}", "holds a dict where a list belongs"),
        ("classes.json", '[{"class_idx": 0, "parts": {"beak": 1}}]', "parts beak, eye, foot, tail, wing of each class"),
        ("classes.json", '[{"class_idx": 7, "parts": {}}]', "should list a class_idx from 0"),
        ("parts.json", '{"beak": []}', "should list the variants of beak, eye"),
        ("dataset_test.json", '[{"class_idx": 3}]', "picture 0 has no class_idx from 0 to 2"),
        ("dataset_test.json", '[{"class_idx": "../.."}]', "picture 0 has no class_idx"),
        ("dataset_test.json", "[1]", "picture 0 has no class_idx"),
    ],
)
def test_tables_that_are_wrong(root, file, text, message):
    (root / file).write_text(text)
    with pytest.raises(HeatcheckError, match=message):
        load_data(f"funnybirds:{root}")


def test_a_split_that_is_not_there(root):
    (root / "dataset_test.json").unlink()
    with pytest.raises(HeatcheckError, match=r"no dataset_test\.json; of test, train it has train"):
        load_data(f"funnybirds:{root}")


@pytest.mark.parametrize("colours", [[], [[1, 2]], [3]])
def test_colours_that_are_none(root, colours):
    area = {"picture": root / "test_part_map/0/000000.png", "colours": colours}
    with pytest.raises(HeatcheckError, match="must be a list of"):
        region(area, (SIDE, SIDE))
    with pytest.raises(HeatcheckError, match=r"the segmentation '000000\.png' is 32 × 32, its picture 30 × 32"):
        region({**area, "colours": [[0, 0, 0]]}, (30, SIDE))
