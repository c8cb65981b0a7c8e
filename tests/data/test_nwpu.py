"""NWPU-RESISC45's layout."""

from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError
from heatcheck.data import load_data
from heatcheck.data.base import SourceOptions
from heatcheck.data.load import listing_of
from heatcheck.data.nwpu import CLASSES
from heatcheck.data.splits import training_specs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("NWPU-RESISC45")
    picture = root / "one.jpg"
    Image.new("RGB", (16, 16)).save(picture)
    raw = picture.read_bytes()
    picture.unlink()
    for kind in CLASSES:
        (root / kind).mkdir()
        for i in range(1, 6):
            (root / kind / f"{kind}_{i:03d}.jpg").write_bytes(raw)
    return root


def test_every_class_has_its_fifth(made: Path) -> None:
    assert len(set(CLASSES)) == 45 and list(CLASSES) == sorted(CLASSES)
    test = load_data(made)
    assert (test.classes, test.name) == (CLASSES, f"{made.name}-test")
    assert Counter(s.label for s in test) == dict.fromkeys(range(45), 1)
    assert all(CLASSES[s.label or 0] == Path(s.name).parent.name for s in test)
    train = listing_of(f"nwpu:{made}:train", SourceOptions())
    assert Counter(train.class_at(i) for i in range(180)) == dict.fromkeys(range(45), 4)
    assert not {s.name for s in test} & set(train.names) and len(train.names) == 180


def test_the_split_is_that_of_the_parts(made: Path) -> None:
    names = listing_of(f"test_part:folder:{made}", SourceOptions()).names
    assert names == listing_of(f"nwpu:{made}", SourceOptions()).names
    other = listing_of(f"nwpu(seed=3, share=0.4):{made}:test", SourceOptions()).names
    assert len(other) == 90 and not set(names) <= set(other)
    assert names == listing_of(f"nwpu:{made}", SourceOptions(classes=("ship",))).names


def test_training_specs(made: Path) -> None:
    assert training_specs(str(made)) == (f"nwpu:{made}:train", f"nwpu:{made}:test")
    spec = f"nwpu(seed=3):{made}"
    assert training_specs(spec) == (f"{spec}:train", f"{spec}:test")


def test_other_folders(tmp_path: Path) -> None:
    for kind in ("ship", "zoo"):
        for i in range(5):
            (tmp_path / kind).mkdir(exist_ok=True)
            Image.new("RGB", (16, 16), (i, 0, 0)).save(tmp_path / kind / f"{i}.png")
    data = load_data(f"nwpu:{tmp_path}:train")
    assert Counter(s.label for s in data) == {None: 4, CLASSES.index("ship"): 4}
    assert any("label 'zoo' is not one of the 45 class names" in note for note in data.notes)
    with pytest.raises(HeatcheckError, match="no folder"):
        load_data(f"nwpu:{tmp_path}/gone")
    with pytest.raises(HeatcheckError, match="share=0: give a number between 0 and 1"):
        load_data(f"nwpu(share=0):{tmp_path}")
