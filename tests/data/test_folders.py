"""Pictures in folders, ImageNet's layouts, and lists of files."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data import imagenet_classes, imagenet_wnids, load_data

MUTANTS = (
    ("data/folders.py", "else _common_labels(root)", "else None", "test_splits_of_a_folder_number_classes_alike"),
)
SHARED = Path(os.environ.get("HEATCHECK_SHARED", Path(__file__).parents[2].parent / "shared"))


def picture(path: Path, colour: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (16, 16), (colour % 256, colour // 256, 0)).save(path)
    return path


def test_flat(tmp_path: Path) -> None:
    for i, name in enumerate(["b.png", "a.jpg", "C.PNG"]):
        picture(tmp_path / name, i)
    data = load_data(f"folder:{tmp_path}")
    assert (data.name, data.modality, data.classes) == (tmp_path.name, Modality.IMAGE, None)
    assert [s.name for s in data] == ["C.PNG", "a.jpg", "b.png"]
    assert all(s.label is None and s.problem is None for s in data)
    assert any("no labels" in note for note in data.notes)


def test_class_folders(tmp_path: Path) -> None:
    for i, name in enumerate(["dog/2.png", "cat/1.png", "dog/deep/3.png", "ant/4.png"]):
        picture(tmp_path / name, i)
    data = load_data(tmp_path)
    assert data.classes == ("ant", "cat", "dog")
    assert {s.name: s.label for s in data} == {"ant/4.png": 0, "cat/1.png": 1, "dog/2.png": 2, "dog/deep/3.png": 2}
    assert data.notes == ()


def test_order_does_not_come_from_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i, name in enumerate(["x/b.png", "x/a.png", "y/d.png", "y/c.png", "z/e.png"]):
        picture(tmp_path / name, i)
    expected = [(s.name, s.label) for s in load_data(tmp_path)]
    listed = Path.iterdir

    def backwards(self: Path) -> Iterator[Path]:
        return iter(sorted(listed(self), reverse=True))

    def forwards(self: Path) -> Iterator[Path]:
        return iter(sorted(listed(self)))

    for order in (backwards, forwards):
        monkeypatch.setattr(Path, "iterdir", order)
        assert [(s.name, s.label) for s in load_data(tmp_path)] == expected
        assert [s.name for s in load_data(tmp_path, samples=2, seed=4)] == [
            s.name for s in load_data(tmp_path).take(2, 4)
        ]


def test_a_subset_reads_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(6):
        picture(tmp_path / f"{i}.png", i)
    opened: list[str] = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: opened.append(self.name) or real(self, *a, **k))
    data = load_data(tmp_path, samples=2)
    assert sorted(opened) == [s.name for s in data]


def test_other_files_are_left_aside_with_a_note_and_hidden_ones_without(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    for name in ("readme.txt", "data.xml", "noext", ".DS_Store", ".hidden.png"):
        (tmp_path / name).write_bytes(b"x")
    picture(tmp_path / ".cache" / "b.png")
    data = load_data(tmp_path)
    assert [s.name for s in data] == ["a.png"]
    assert data.notes[0] == "3 files are left aside, not being pictures: .txt 1, .xml 1, no suffix 1"


def test_archives_and_pickles_are_not_opened(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    for name in ("b.zip", "c.tar.gz", "d.pkl", "e.npy", "f.pt"):
        (tmp_path / name).write_bytes(b"PK\x03\x04hostile")
    assert len(load_data(tmp_path)) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "b.zip", "c.tar.gz", "d.pkl", "e.npy", "f.pt"]
    with pytest.raises(HeatcheckError, match=r"cannot tell what a \.pkl file holds"):
        load_data(tmp_path / "d.pkl")


def test_pictures_beside_class_folders_have_no_label(tmp_path: Path) -> None:
    for i, name in enumerate(["a/1.png", "b/2.png", "stray.png"]):
        picture(tmp_path / name, i)
    data = load_data(tmp_path)
    assert [s.label for s in data] == [0, 1, None]
    assert "1 pictures lie beside" in data.notes[0]


def test_duplicates_are_kept_and_noted(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/2.png"):
        picture(tmp_path / name, 5)
    data = load_data(tmp_path)
    assert len(data) == 2 and data[0].digest == data[1].digest
    assert data.notes == ("2 samples share their content with another, all are kept: a/1.png = b/2.png",)


def test_a_link_to_a_folder_above_ends(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    data = load_data(tmp_path)
    assert [s.name for s in data] == ["a/1.png"]
    assert "1 link leads back to a folder that is read already and is not followed: a/up" in data.notes


def test_links_to_folders_add_what_is_new_and_multiply_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for i, name in enumerate(["root/cat/1.png", "elsewhere/2.png", "beside.png"]):
        picture(tmp_path / name, i)
    links = {"ant": root / "cat", "dog": tmp_path / "elsewhere", "up": tmp_path, "self": root, "cat/cat": root / "cat"}
    for name, target in links.items():
        (root / name).symlink_to(target, target_is_directory=True)
    (root / "loop").symlink_to("loop")
    data = load_data(root)
    assert [s.name for s in data] == ["cat/1.png", "dog/2.png"]
    assert "4 links lead back to a folder that is read already and is not followed: ant" in data.notes


def test_a_name_that_is_no_utf8_is_written_with_escapes(tmp_path: Path) -> None:
    odd, control = b"caf\xe9".decode(errors="surrogateescape"), "bell\a"
    for i, name in enumerate([f"{odd}/{odd}.png", f"{control}/x.png", f"{odd}/caf\\xe9.png"]):
        picture(tmp_path / name, i)
    data = load_data(tmp_path)
    assert data.classes == ("bell\\x07", "caf\\xe9")
    assert [s.name for s in data] == ["bell\\x07/x.png", "caf\\xe9/caf\\xe9.png", "caf\\xe9/caf\\xe9.png#2"]
    assert [s.problem for s in data] == [None] * 3 and len({s.digest for s in data}) == 3
    (tmp_path / f"{odd}.png").write_bytes(b"")
    (tmp_path / f"gone {odd}.png").symlink_to("nowhere")
    broken = [s for s in load_data(tmp_path) if s.problem]
    assert [s.name for s in broken] == ["caf\\xe9.png", "gone caf\\xe9.png"]
    assert "gone caf\\xe9.png" in str(broken[1].problem)


def test_a_dangling_link_is_a_problem(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "gone.png")
    assert "does not exist" in str(load_data(tmp_path)[1].problem)


def test_classes_txt_gives_the_order(tmp_path: Path) -> None:
    for i, name in enumerate(["cat/1.png", "dog/2.png", "eel/3.png"]):
        picture(tmp_path / name, i)
    (tmp_path / "classes.txt").write_text("dog\ncat\n")
    data = load_data(tmp_path)
    assert data.classes == ("dog", "cat") and [s.label for s in data] == [1, 0, None]
    assert data[2].problem is None
    assert data.notes == (
        "1 of 3 samples count as unlabelled: 1 × label 'eel' is not one of the 2 class names or an index, such as "
        "'eel/3.png'",
    )
    assert load_data(tmp_path, classes=["eel", "dog", "cat"])[2].label == 0


def test_numbered_class_folders_are_noted(tmp_path: Path) -> None:
    for i in (1, 2, 10):
        picture(tmp_path / str(i) / "x.png", i)
    data = load_data(tmp_path)
    assert data.classes == ("1", "10", "2") and "sorted as text" in data.notes[0]
    assert [s.label for s in load_data(tmp_path, classes=["1", "2", "10"])] == [0, 2, 1]


def test_a_lone_subfolder_only_wraps(tmp_path: Path) -> None:
    for i, name in enumerate(["images/cat/1.png", "images/dog/2.png"]):
        picture(tmp_path / name, i)
    data = load_data(tmp_path)
    assert data.classes == ("cat", "dog") and data[0].name == "images/cat/1.png"
    assert load_data(tmp_path / "images" / "cat")[0].label is None


@pytest.mark.parametrize("spec", ["{}", "folder:{}", "imagenet:{}"])
@pytest.mark.parametrize("inner", ["", "val/"])
def test_wnid_folders_are_imagenet(tmp_path: Path, inner: str, spec: str) -> None:
    for i in (281, 5):
        picture(tmp_path / f"{inner}{imagenet_wnids()[i]}" / f"ILSVRC2012_val_{i}.JPEG", i)
    data = load_data(spec.format(tmp_path))
    assert [s.label for s in data] == [5, 281]
    assert data.classes == imagenet_classes()


def test_imagenets_training_pictures(tmp_path: Path) -> None:
    for i, split in ((281, "train"), (5, "train"), (7, "val")):
        picture(tmp_path / split / imagenet_wnids()[i] / f"{i}.JPEG", i)
    assert [s.label for s in load_data(f"imagenet:{tmp_path}")] == [7]
    assert [s.label for s in load_data(f"imagenet:{tmp_path}:val")] == [7]
    train = load_data(f"imagenet:{tmp_path}:train")
    assert [s.label for s in train] == [5, 281] and train.name == f"{tmp_path.name}-train"
    assert [s.label for s in load_data(f"folder:{tmp_path}:train")] == [5, 281]
    (tmp_path / "train").rename(tmp_path / "gone")
    with pytest.raises(HeatcheckError, match="has no subfolder train; of val, train it has val"):
        load_data(f"imagenet:{tmp_path}:train")


def test_splits_of_a_folder_number_classes_alike(tmp_path: Path) -> None:
    for i, name in enumerate(["train/cat/1.png", "train/eel/2.png", "val/dog/3.png", "val/eel/4.png", "test/5.png"]):
        picture(tmp_path / name, i)
    train, val, test = (load_data(f"folder:{tmp_path}:{split}") for split in ("train", "val", "test"))
    assert train.classes == val.classes == test.classes == ("cat", "dog", "eel") and train.sorted_names
    assert [s.label for s in train] == [0, 2] and [s.label for s in val] == [1, 2] and [s.label for s in test] == [None]
    assert (train.name, train[0].name) == (f"{tmp_path.name}-train", "cat/1.png")
    (tmp_path / "classes.txt").write_text("eel\ncat\ndog\n")
    assert [s.label for s in load_data(f"folder:{tmp_path}:val")] == [2, 0]
    assert [s.label for s in load_data(f"folder:{tmp_path}:val", classes=["dog", "eel"])] == [0, 1]


def test_splits_with_tables(tmp_path: Path) -> None:
    for split, rows in (("train", "a.png,cat\nb.png,eel\n"), ("val", "a.png,dog\nb.png,eel\n")):
        for i, name in enumerate("ab"):
            picture(tmp_path / split / f"{name}.png", i)
        (tmp_path / split / "labels.csv").write_text(f"file,label\n{rows}")
    assert [s.label for s in load_data(f"folder:{tmp_path}:train")] == [0, 2]
    assert [s.label for s in load_data(f"folder:{tmp_path}:val")] == [1, 2]
    for split in ("train", "val"):
        (tmp_path / split / "labels.csv").write_text("file,label\na.png,10\nb.png,9\n")
    assert [s.label for s in load_data(f"folder:{tmp_path}:train")] == [10, 9]


def test_a_folder_with_splits_is_still_read_as_a_whole(tmp_path: Path) -> None:
    for i, name in enumerate(["train/cat/1.png", "val/cat/2.png"]):
        picture(tmp_path / name, i)
    data = load_data(f"folder:{tmp_path}")
    assert [s.name for s in data] == ["train/cat/1.png", "val/cat/2.png"] and data.classes == ("train", "val")
    assert data.notes[0] == f"subfolders are splits, not classes: write folder:{tmp_path}:train for one of them"
    with pytest.raises(HeatcheckError, match="has no subfolder test; of val, test, train it has val, train"):
        load_data(f"folder:{tmp_path}:test")


def test_a_folder_whose_name_ends_like_a_split(tmp_path: Path) -> None:
    picture(tmp_path / "old:val" / "1.png")
    picture(tmp_path / "old" / "val" / "2.png")
    assert [s.name for s in load_data(f"folder:{tmp_path}/old:val")] == ["1.png"]
    assert [s.name for s in load_data(f"folder:{tmp_path}/old")] == ["val/2.png"]


def test_a_lone_wnid_folder_is_a_class(tmp_path: Path) -> None:
    picture(tmp_path / imagenet_wnids()[7] / "a.JPEG")
    assert load_data(tmp_path)[0].label == 7


def test_an_unknown_wnid_is_no_label_in_imagenet(tmp_path: Path) -> None:
    picture(tmp_path / "n99999999" / "a.JPEG")
    data = load_data(f"imagenet:{tmp_path}")
    assert data[0].label is None and data[0].problem is None
    assert any("'n99999999' is not one of the 1000" in note for note in data.notes)


def test_labels_csv(tmp_path: Path) -> None:
    for i in range(6):
        picture(tmp_path / "images" / f"{i}.JPEG", 40 * i)
    wnid = imagenet_wnids()
    (tmp_path / "labels.csv").write_text(
        "file,label,wnid,name\n"
        f'0.JPEG,260,{wnid[260]},"chow, chow chow"\n'
        f"images/1.JPEG,,{wnid[3]},x\n"
        f"2.JPEG,1000,,x\n"
        f"3.JPEG,cheese,,x\n"
        f"4.JPEG,7,{wnid[8]},x\n"
        f"gone.JPEG,1,{wnid[1]},x\n"
        f"../../etc/passwd,1,{wnid[1]},x\n"
    )
    for spec in (str(tmp_path), f"imagenet:{tmp_path}"):
        data = load_data(spec)
        by_name = {s.name: s for s in data}
        assert len(data) == 8
        assert by_name["images/0.JPEG"].label == 260 and by_name["images/1.JPEG"].label == 3
        unlabelled = [by_name[f"images/{i}.JPEG"] for i in (2, 3, 4)]
        assert all(s.label is None and s.problem is None for s in unlabelled)
        for reason in ("label 1000 is not a class index (0 to 999)", "label 'cheese' is", f"wnid {wnid[8]} is class 8"):
            assert reason in data.notes[2]
        assert by_name["images/5.JPEG"].label is None and by_name["images/5.JPEG"].problem is None
        assert "does not exist" in str(by_name["gone.JPEG"].problem)
        assert "outside its folder" in str(by_name["../../etc/passwd"].problem)
        assert data.notes[0] == "1 pictures are not in labels.csv and have no label"
        assert data.notes[1].startswith("2 of 8 samples cannot be read: 1 × labels.csv names '../../etc/passwd'")
        assert data.notes[1].endswith("; 1 × the file does not exist, such as 'gone.JPEG'")
        assert len(data.notes) == 3


def test_labels_csv_with_names_and_with_wrong_columns(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", 1)
    picture(tmp_path / "b.png", 2)
    (tmp_path / "labels.csv").write_text("file,label\nb.png,cat\na.png,dog\n")
    data = load_data(tmp_path)
    assert data.classes == ("cat", "dog") and [s.label for s in data] == [1, 0]
    (tmp_path / "labels.csv").write_text("path,class\nb.png,cat\n")
    with pytest.raises(HeatcheckError, match="columns are path, class; expected file and label"):
        load_data(tmp_path)


def test_labels_given(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.png"):
        picture(tmp_path / name, ord(name[0]))
    assert [s.label for s in load_data(tmp_path, labels=[2, None, 0])] == [2, None, 0]
    assert [s.label for s in load_data(tmp_path, labels={"c.png": 4, "a.png": 1})] == [1, None, 4]
    (tmp_path / "my.csv").write_text("file,label\na.png,x\nb.png,y\nc.png,x\n")
    named = load_data(tmp_path, labels=tmp_path / "my.csv")
    assert named.classes == ("x", "y") and [s.label for s in named] == [0, 1, 0]
    (tmp_path / "my.txt").write_text("1\n0\n1\n")
    assert [s.label for s in load_data(tmp_path, labels=str(tmp_path / "my.txt"), samples=2, seed=None)] == [1, 0]
    with pytest.raises(HeatcheckError, match="holds 2 labels for 3 samples"):
        load_data(tmp_path, labels=[0, 1])
    with pytest.raises(HeatcheckError, match="names none of the 3 samples"):
        load_data(tmp_path, labels={"z.png": 1})


def test_a_list_of_files(tmp_path: Path) -> None:
    picture(tmp_path / "in" / "b.png", 1)
    picture(tmp_path / "a, c.png", 2)
    picture(tmp_path / "d.png", 3)
    (tmp_path / "list.txt").write_text("in/b.png\t1\na, c.png\n\nd.png,0\ngone.png,1\nd.png,x\n")
    for spec in (f"files:{tmp_path}/list.txt", tmp_path / "list.txt"):
        data = load_data(spec)
        assert [s.name for s in data] == ["in/b.png", "a, c.png", "d.png", "gone.png", "d.png#2"]
        assert [s.label for s in data] == [1, None, 0, 1, None]
        assert "does not exist" in str(data[3].problem) and data[4].problem is None
        assert any("label 'x' is not a class index, such as 'd.png#2'" in note for note in data.notes)


def test_one_picture(tmp_path: Path) -> None:
    data = load_data(str(picture(tmp_path / "cat.png")))
    assert len(data) == 1 and data.modality == Modality.IMAGE


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HeatcheckError, match="holds no samples"):
        load_data(tmp_path)


def test_a_missing_folder_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "validation").mkdir()
    with pytest.raises(HeatcheckError, match=r"no folder .*validatoin.*did you mean validation"):
        load_data(f"folder:{tmp_path}/validatoin")
    (tmp_path / "file").write_text("")
    with pytest.raises(HeatcheckError, match="is a file, not a folder"):
        load_data(f"folder:{tmp_path}/file")


@pytest.mark.skipif(not (SHARED / "data/imagenet-val-300").is_dir(), reason=f"no {SHARED}/data/imagenet-val-300")
def test_real_imagenet_pictures() -> None:
    data = load_data(f"imagenet:{SHARED}/data/imagenet-val-300", samples=40)
    assert len(data) == 40
    assert all(s.problem is None and s.label is not None for s in data)
