"""Objects as data, and specs that mean nothing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

from heatcheck.core.types import HeatcheckError, Modality, digest_of_tensor
from heatcheck.data import load_data


def picture(colour: str = "red") -> Image.Image:
    return Image.new("RGB", (16, 16), colour)


def test_texts_and_pairs() -> None:
    assert [(s.content, s.label) for s in load_data(["good", "bad"])] == [("good", None), ("bad", None)]
    assert [(s.content, s.label) for s in load_data([("good", 1), ["bad", 0]])] == [("good", 1), ("bad", 0)]
    data = load_data([("good", "pos"), ("bad", "neg")])
    assert data.classes == ("neg", "pos") and data.name == "texts" and data.modality == Modality.TEXT
    assert [s.problem for s in load_data(["a", None, 3])] == [None, "there is no text", "a int is not a text"]


def test_paths_and_pictures(tmp_path: Path) -> None:
    picture().save(tmp_path / "b.png")
    picture("blue").save(tmp_path / "a.png")
    paths = [tmp_path / "b.png", tmp_path / "a.png"]
    for spec in (paths, [str(p) for p in paths]):
        data = load_data(spec)
        assert data.modality == Modality.IMAGE and [s.name for s in data] == [str(p) for p in paths]
    assert len(load_data([paths[0], paths[0]])) == 2
    data = load_data([(picture(), 3), (np.zeros((16, 16), np.uint8), 4), (picture().resize((2, 2)), 5)])
    assert [s.label for s in data] == [3, 4, 5] and data.modality == Modality.IMAGE
    assert "2 × 2" in str(data[2].problem)


def test_tensors() -> None:
    batch = torch.rand(3, 3, 8, 8)
    data = load_data((batch, torch.tensor([1, 2, 0])))
    assert [s.label for s in data] == [1, 2, 0] and data.modality == Modality.IMAGE
    assert torch.equal(data[1].content, batch[1]) and data[1].digest == digest_of_tensor(batch[1])
    assert [s.label for s in load_data(batch)] == [None] * 3
    assert [s.label for s in load_data((batch, ["b", "a", "b"]))] == [1, 0, 1]
    assert load_data(torch.ones(2, 5, dtype=torch.long)).modality == Modality.TEXT
    batch[2, 0, 0, 0] = float("nan")
    assert load_data(batch)[2].problem == "the tensor has values that are not finite"


@pytest.mark.parametrize("shape", [(3, 8, 8), (4,), (), (2, 3)])
def test_tensors_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(HeatcheckError, match="is not a batch of inputs"):
        load_data(torch.rand(shape))


def test_too_few_labels() -> None:
    with pytest.raises(HeatcheckError, match="2 labels were given for 3 inputs"):
        load_data((torch.rand(3, 3, 8, 8), [0, 1]))


def test_tensor_dataset() -> None:
    data = load_data(TensorDataset(torch.rand(5, 3, 8, 8), torch.arange(5)), samples=3, seed=None)
    assert data.name == "TensorDataset" and [s.label for s in data] == [0, 1, 2]


class Pictures(TorchDataset):
    """Items as torchvision gives them, the third one broken."""

    classes = ("red", "green", "blue")

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        self.read.append(index)
        if index == 2:
            raise OSError("disk on fire")
        return picture(self.classes[index % 3]), index


def test_torch_dataset_with_a_broken_item_and_bad_labels() -> None:
    data = load_data(Pictures())
    assert data.classes == Pictures.classes and data.modality == Modality.IMAGE
    assert [s.label for s in data] == [0, 1, None, None, None]
    assert data[2].problem == "the item cannot be read: OSError: disk on fire"
    assert data[3].problem is None
    assert any("1 × label 3 is not a class index (0 to 2), such as '00003'" in note for note in data.notes)


def test_a_subset_of_a_torch_dataset_reads_little() -> None:
    source = Pictures()
    data = load_data(source, samples=2, seed=None)
    assert len(data) == 2 and set(source.read) == {0, 1}


class Rows(TorchDataset):
    """Items as Hugging Face gives them."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> dict[str, object]:
        return {"idx": index, "sentence": f"text {index}", "label": index}


def test_dict_items() -> None:
    assert [(s.content, s.label) for s in load_data(Rows())] == [("text 0", 0), ("text 1", 1)]


class Endless(IterableDataset):
    """A stream."""

    def __iter__(self):
        i = 0
        while True:
            yield f"text {i}", i % 2
            i += 1


def test_a_stream_gives_its_first_items() -> None:
    assert [s.content for s in load_data(Endless(), samples=3)] == ["text 0", "text 1", "text 2"]


class Odd(TorchDataset):
    """Items that are nothing."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> object:
        return {"x": index}


def test_items_that_are_nothing() -> None:
    with pytest.raises(HeatcheckError, match="items are dicts with x: which holds the text or picture"):
        load_data(Odd())


def test_mixed_kinds_are_a_problem_of_the_odd_one() -> None:
    data = load_data(["text", torch.rand(3, 8, 8)])
    assert data[0].problem is None and "is not one text" in str(data[1].problem)


@pytest.mark.parametrize("spec", [3, 2.5, None])
def test_objects_that_are_no_data(spec: object) -> None:
    with pytest.raises(HeatcheckError, match="no data source; accepted are images; texts; "):
        load_data(spec)


@pytest.mark.parametrize("spec", [[], (), torch.zeros(0, 3, 8, 8)])
def test_nothing(spec: object) -> None:
    with pytest.raises(HeatcheckError, match="holds no samples"):
        load_data(spec)


@pytest.mark.parametrize("spec", [[3, 4], [None]])
def test_lists_of_nothing(spec: object) -> None:
    with pytest.raises(HeatcheckError, match="holds no texts"):
        load_data(spec)


@pytest.mark.parametrize(
    ("spec", "near"),
    [
        ("image", "images"),
        ("txets", "texts"),
        ("foldr:val", "folder"),
        ("imagnet:/data", "imagenet"),
        ("jsnl:a", "jsonl"),
    ],
)
def test_a_near_name_is_suggested(spec: str, near: str) -> None:
    with pytest.raises(HeatcheckError) as caught:
        load_data(spec)
    message = str(caught.value)
    assert repr(spec) in message and f"did you mean {near}" in message
    assert "files:LIST.txt" in message and "a torch Dataset" in message


def test_a_near_path_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text("text\na\n")
    with pytest.raises(HeatcheckError, match=r"did you mean reviews\.csv"):
        load_data(f"{tmp_path}/revews.csv")


@pytest.mark.parametrize("spec", ["", "zzz", "folder:", "images:x", "tensor:x", "csv:", "nul\0l", "  ", "x" * 5000])
def test_specs_that_mean_nothing(spec: str) -> None:
    with pytest.raises(HeatcheckError):
        load_data(spec)


def test_columns_are_for_tables() -> None:
    with pytest.raises(HeatcheckError, match="text_column and label_column are for tables"):
        load_data("texts", text_column="text")


def test_an_empty_spec_is_not_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture().save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    for spec in ("", "folder:"):
        with pytest.raises(HeatcheckError):
            load_data(spec)
    assert len(load_data(".")) == 1
