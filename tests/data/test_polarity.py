"""Texts in `pos/` and `neg/`."""

from pathlib import Path

import pytest

from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data import load_data
from heatcheck.data.catalogue import modality_of_data
from heatcheck.data.splits import training_specs

MUTANTS = (
    (
        "data/polarity.py",
        '{"neg": CLASSES[0], "pos": CLASSES[1]}',
        '{"neg": CLASSES[1], "pos": CLASSES[0]}',
        "test_both",
    ),
    ("data/polarity.py", "for inner in _FOLDERS)", "for inner in ())", "test_pictures_in_such_folders_stay_pictures"),
    ("data/polarity.py", "legacy[names[index]] = None", "pass", "test_files_of_another_encoding_are_told"),
    ("data/polarity.py", 'c < " " and not c.isspace()', "False", "test_files_of_another_encoding_are_told"),
)


def corpus(root: Path, **files: bytes | str) -> Path:
    for inner in ("pos", "neg"):
        (root / inner).mkdir(parents=True)
        for i in range(2):
            (root / inner / f"{i}_{inner}.txt").write_text(f"a {inner} film , number {i}\n")
    for name, content in files.items():
        path = root / f"{name.replace('__', '/')}.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


@pytest.mark.parametrize("spec", ["polarity:{}", "{}"])
@pytest.mark.parametrize("inside", ["", "txt_sentoken"])
def test_both(tmp_path: Path, spec: str, inside: str) -> None:
    root = corpus(tmp_path / "films" / inside)
    data = load_data(spec.format(tmp_path / "films"))
    assert (data.name, data.modality, data.classes) == (root.name, Modality.TEXT, ("negative", "positive"))
    assert [(s.name, s.label) for s in data] == [
        ("neg/0_neg.txt", 0),
        ("neg/1_neg.txt", 0),
        ("pos/0_pos.txt", 1),
        ("pos/1_pos.txt", 1),
    ]
    assert data[0].content == "a neg film , number 0\n" and data.notes == ()
    assert modality_of_data(str(tmp_path / "films")) == "text"


def test_splits(tmp_path: Path) -> None:
    root = tmp_path / "aclImdb"
    for split in ("train", "test"):
        corpus(root / split, **{"pos__x": f"only in {split}"})
    (root / "train" / "unsup").mkdir()
    assert load_data(str(tmp_path)).name == "aclImdb-test"
    test, train = load_data(f"polarity:{root}"), load_data(f"polarity:{root}:train")
    assert test[-1].content == "only in test" and train[-1].content == "only in train"
    assert train.notes == ("subfolders beside pos and neg are not read: unsup",) and len(train) == 5
    assert training_specs(str(root)) == (f"polarity:{root}:train", f"polarity:{root}:test")
    flat = corpus(tmp_path / "flat")
    assert training_specs(f"polarity:{flat}")[1] == f"test_part:polarity:{flat}"
    with pytest.raises(HeatcheckError, match="has no splits: write it without one"):
        load_data(f"polarity:{flat}:train")


def test_files_of_another_encoding_are_told(tmp_path: Path) -> None:
    odd = {"pos__café": "tr\xe8s bon".encode("latin-1"), "pos__bin": b"\xff\x00\x01\xfe", "pos__bom": "\ufeffgood"}
    root = corpus(tmp_path / "films", neg__empty=" \n", **odd)
    (root / "neg" / "README").write_text("about")
    data = load_data(str(root))
    by_name = {s.name: s for s in data}
    assert by_name["pos/café.txt"].content == "très bon" and by_name["pos/bom.txt"].content == "good"
    assert by_name["pos/bin.txt"].problem.startswith("the file is no text")
    assert by_name["neg/empty.txt"].problem == "the text is empty"
    assert by_name["pos/bin.txt"].label == 1 and len(data) == 8
    said = "\n".join(data.notes)
    assert "1 × it is not UTF-8 and was read as Latin-1, such as 'pos/café.txt'" in said
    assert "1 files that do not end in .txt are not read, such as 'README'" in said


def test_names_for_the_classes(tmp_path: Path) -> None:
    root = corpus(tmp_path / "films")
    assert [s.label for s in load_data(str(root), classes=["bad", "good"])] == [0, 0, 1, 1]
    assert [s.label for s in load_data(str(root), classes=["positive", "negative"])] == [1, 1, 0, 0]


def test_pictures_in_such_folders_stay_pictures(tmp_path: Path) -> None:
    for inner in ("pos", "neg"):
        (tmp_path / inner).mkdir()
        (tmp_path / inner / "a.png").write_bytes(b"x")
    assert load_data(str(tmp_path)).modality == Modality.IMAGE
    with pytest.raises(HeatcheckError, match="has no subfolders pos and neg with texts"):
        load_data(f"polarity:{tmp_path}")
    with pytest.raises(HeatcheckError, match="there is no folder"):
        load_data("polarity:absent")
