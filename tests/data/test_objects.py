"""Objects of the user's program as data: each works, or is answered with the fix."""

import itertools
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data import Dataset as TorchDataset

from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data import Dataset, load_data

N = 6
X = torch.rand(N, 3, 10, 10, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([2, 0, 1, 1, 0, 2])
IDS = torch.tensor([[5, 6, 7, 0], [5, 8, 0, 0], [9, 8, 7, 6]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
UINT8 = np.random.default_rng(0).integers(0, 256, (N, 12, 10, 3), dtype=np.uint8)
TEXTS = [f"text number {i}" for i in range(N)]
READY = load_data((X, Y))

MUTANTS = (
    ("data/objects.py", "indices = sorted(int(i)", "indices = list(int(i)", "test_a_loader_that_shuffles_has_the_order_of_its_data_set"),
    ("data/items.py", "ids[mask.bool()] if whole", "ids if whole", "test_token_batches_lose_their_padding"),
    ("data/objects.py", "next(rows, None) is not None", "next(rows, None) is None", "test_an_iterable_without_end_asks_for_a_number"),
)  # fmt: skip


def pictures() -> list[Image.Image]:
    return [Image.fromarray(array) for array in UINT8]


class Stream(IterableDataset):
    """Items, or batches, that can only be read in order."""

    def __init__(self, items: Callable[[], Iterator[Any]]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return self.items()


class Items(TorchDataset):
    """A torch data set of given items."""

    def __init__(self, items: list[Any], **facts: Any) -> None:
        self.items = items
        self.__dict__.update(facts)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


class Hub:
    """What a data set of Hugging Face looks like from outside: columns, features, rows as dicts."""

    column_names = ("idx", "img", "fine_label")
    features = types.MappingProxyType({"fine_label": types.SimpleNamespace(names=["cat", "dog", "eel"])})

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"idx": index, "img": pictures()[index], "fine_label": int(Y[index])}


def same(found: Dataset, labels: list[int | None] = Y.tolist()) -> None:
    """The samples of `(X, Y)`, in order."""
    assert [s.digest for s in found] == [s.digest for s in READY]
    assert [s.label for s in found] == labels and not any(s.problem for s in found)


WHOLE: dict[str, Any] = {
    "a batch and labels": (X, Y),
    "an array and labels": (X.numpy(), Y.numpy()),
    "a list of pairs": [(x, int(y)) for x, y in zip(X, Y, strict=True)],
    "a list of arrays": [(x.numpy(), y) for x, y in zip(X, Y, strict=True)],
    "batches of one": [(x[None], y[None]) for x, y in zip(X, Y, strict=True)],
    "batches": [(X[:4], Y[:4]), (X[4:], Y[4:])],
    "two columns": (list(X), Y.tolist()),
    "a dict batch": {"pixel_values": X, "labels": Y},
    "dicts": [{"pixel_values": x, "label": y} for x, y in zip(X, Y, strict=True)],
    "dict batches": [{"image": X[:4], "label": Y[:4]}, {"image": X[4:], "label": Y[4:]}],
    "a data set": TensorDataset(X, Y),
    "a loader": DataLoader(TensorDataset(X, Y), batch_size=4),
    "a loader without batches": DataLoader(TensorDataset(X, Y), batch_size=None),
    "a loader with its own collation": DataLoader(
        TensorDataset(X, Y),
        batch_size=4,
        collate_fn=lambda rows: {"inputs": torch.stack([x for x, _ in rows]), "label": torch.stack([y for _, y in rows])},
    ),
    "a loader of a stream": DataLoader(Stream(lambda: iter(zip(X, Y, strict=True))), batch_size=4),
    "a stream": Stream(lambda: iter(zip(X, Y, strict=True))),
    "a stream of batches": Stream(lambda: iter([(X[:4], Y[:4]), (X[4:], Y[4:])])),
    "a zip": zip(X, Y, strict=True),
    "extra parts": [(x, int(y), i, "name") for i, (x, y) in enumerate(zip(X, Y, strict=True))],
}  # fmt: skip


@pytest.mark.parametrize("kind", WHOLE)
def test_the_same_inputs_in_every_form(kind: str) -> None:
    found = load_data(WHOLE[kind])
    same(found)
    unused = "contents are the first part of items, labels the second; not used: int, 'name'"
    assert (unused in found.notes) == (kind == "extra parts")


@pytest.mark.parametrize("spec", [X, X.numpy(), list(X), list(X[:, None]), iter(X), DataLoader(X, batch_size=4)])
def test_inputs_without_labels(spec: Any) -> None:
    same(load_data(spec), [None] * N)


@pytest.mark.parametrize(
    "spec",
    [
        UINT8,
        list(UINT8),
        torch.from_numpy(UINT8).movedim(-1, 1),
        [torch.from_numpy(a).movedim(-1, 0) for a in UINT8],
        DataLoader(Items(pictures()), batch_size=2),
        {"image": pictures()},
        (pictures(), [0] * N),
    ],
)
def test_pictures_of_bytes_are_read_as_pictures(spec: Any) -> None:
    found = load_data(spec)
    assert [s.digest for s in found] == [s.digest for s in load_data(pictures())]
    assert found.modality == Modality.IMAGE and not any(s.problem for s in found)


def test_one_picture_by_itself() -> None:
    assert load_data(pictures()[0])[0].digest == load_data(pictures())[0].digest


@pytest.mark.parametrize(
    "spec",
    [
        (TEXTS, Y),
        (TEXTS, Y.tolist()),
        {"text": TEXTS, "label": Y},
        DataLoader(list(zip(TEXTS, Y.tolist(), strict=True)), batch_size=4),
        pl.DataFrame({"id": range(N), "text": TEXTS, "label": Y.tolist()}),
        (row for row in zip(TEXTS, Y.tolist(), strict=True)),
    ],
)
def test_texts_in_every_form(spec: Any) -> None:
    assert [(s.content, s.label) for s in load_data(spec)] == list(zip(TEXTS, Y.tolist(), strict=True))


def test_a_data_frame_of_pandas() -> None:
    frame = types.SimpleNamespace(
        iloc=None, to_dict=lambda orient: [{"body": t, 0: 1} for t in TEXTS] if orient else None
    )
    found = load_data(Frame(frame))
    assert [s.content for s in found] == TEXTS and "not used: 0" in found.notes[0]


class Frame:
    """What a data frame of pandas looks like from outside."""

    def __init__(self, inner: Any) -> None:
        self.iloc, self.to_dict = inner.iloc, inner.to_dict

    def __len__(self) -> int:
        return N

    def __getitem__(self, key: Any) -> Any:
        raise KeyError(key)


def test_token_batches_lose_their_padding() -> None:
    for spec in (
        {"input_ids": IDS, "attention_mask": MASK, "labels": torch.tensor([1, 0, 1])},
        [{"input_ids": i.tolist(), "attention_mask": m.tolist(), "label": y} for i, m, y in zip(IDS, MASK, [1, 0, 1], strict=True)],
    ):  # fmt: skip
        found = load_data(spec)
        assert [s.content.tolist() for s in found] == [[5, 6, 7], [5, 8], [9, 8, 7, 6]]
        assert [s.label for s in found] == [1, 0, 1] and found.modality == Modality.TEXT


def test_a_data_set_of_the_hub_is_read_with_its_class_names() -> None:
    found = load_data(Hub(), samples=3, seed=None)
    assert found.classes == ("cat", "dog", "eel") and [s.label for s in found] == [2, 0, 1]
    assert found.notes == ("contents are 'img', labels are 'fine_label'; not used: idx",)
    assert [s.label for s in load_data(Hub(), label_column="idx", classes=list("abcdef"))] == list(range(N))


def test_labels_that_are_words_are_collected() -> None:
    found = load_data(Items([(x, w) for x, w in zip(X, "bacbac", strict=True)]))
    assert found.classes == ("a", "b", "c") and [s.label for s in found] == [1, 0, 2, 1, 0, 2] and found.sorted_names


def test_classes_of_folders_are_only_sorted_and_a_subset_has_those_of_the_whole() -> None:
    whole = Items([(x, int(y)) for x, y in zip(X, Y, strict=True)], classes=["a", "b", "c"], class_to_idx={})
    for spec in (whole, Subset(whole, range(N)), DataLoader(whole)):
        found = load_data(spec)
        assert found.classes == ("a", "b", "c") and found.sorted_names
    assert not load_data(Items(whole.items, classes=["a", "b", "c"])).sorted_names


# -- order ------------------------------------------------------------------------------------------------------


def test_a_loader_that_shuffles_has_the_order_of_its_data_set() -> None:
    source = TensorDataset(X, Y)
    found = load_data(DataLoader(source, batch_size=2, shuffle=True))
    same(found)
    assert "the DataLoader shuffles; its data set is read in its own order, so that runs can be repeated" in found.notes
    some = load_data(DataLoader(source, sampler=SubsetRandomSampler([4, 1, 3])))
    assert [s.name for s in some] == ["00001", "00003", "00004"] and [s.label for s in some] == [0, 1, 0]


def test_a_sampler_that_cannot_be_repeated_is_refused() -> None:
    source = TensorDataset(X, Y)
    for loader in (
        DataLoader(source, sampler=WeightedRandomSampler([1.0] * N, N)),
        DataLoader(source, batch_sampler=[[0, 1], [2]]),
    ):
        with pytest.raises(HeatcheckError, match=r"gives no order that another run could repeat: .* loader.dataset"):
            load_data(loader)


def test_an_iterable_without_end_asks_for_a_number() -> None:
    def endless() -> Iterator[Tensor]:
        return (X[i % N] for i in itertools.count())

    for spec in (endless(), Stream(endless), DataLoader(Stream(endless), batch_size=7)):
        with pytest.raises(
            HeatcheckError, match="has no length and gives over 1,000 items, perhaps without end: say how"
        ):
            load_data(spec)
    assert len(load_data(Stream(endless), samples=9)) == 9


def test_a_generator_that_was_read_says_so() -> None:
    rows = (x for x in X)
    assert len(load_data(rows)) == N
    with pytest.raises(HeatcheckError, match="gives no items; a generator can be read only once: make a list of it"):
        load_data(rows)


def test_items_that_change_are_noted() -> None:
    class Noisy(Items):
        def __getitem__(self, index: int) -> Any:
            return torch.rand(3, 8, 8), 0

    assert any("items change from one reading to the next" in note for note in load_data(Noisy([0, 0])).notes)
    assert not any("items change" in note for note in load_data(TensorDataset(X, Y)).notes)


# -- answered with the fix --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ([(X[0], X[1], 0)], r"items have 3 parts, Tensor \[3, 10, 10\], Tensor \[3, 10, 10\], int: one input and its label"),
        (TensorDataset(X, X), r"items have 2 parts, .* for a model of several inputs, give one and fix the others"),
        (DataLoader(TensorDataset(X, X, Y)), "items have 3 parts"),
        ((X, X), r"the labels have the shape \[6, 3, 10, 10\]: give a class index per input"),
        ([(X[0], {"boxes": [], "labels": []})], r"items have 2 parts, Tensor .*, dict with boxes, labels: .* give dicts"),
        ([{"pixel_values": X[0], "input_ids": IDS[0]}], "items hold several inputs, pixel_values and input_ids"),
        ([{"input_ids": IDS[0], "token_type_ids": MASK[0]}], "items are pairs of texts"),
        ([{"claim": "a", "verdict": "b"}], "items are dicts with claim, verdict: which holds the text or picture"),
        ({"train": Items([]), "test": Items([])}, r"a dict of data sets, train, test: pass one, such as data\['test'\]"),
        (torch.rand(3, 8, 8), r"is not a batch of inputs: .* for a single input write x\[None\]: \[1, 3, 8, 8\]"),
        (np.zeros((2, 3)), r"an array of float64 \[2, 3\] is not a batch of inputs"),
        (pl.DataFrame({"a": TEXTS * 3, "b": TEXTS * 3, "c": TEXTS * 3}), "the DataFrame: which column holds the texts"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_answered_with_the_fix(spec: Any, message: str) -> None:
    with pytest.raises(HeatcheckError, match=message):
        load_data(spec)


def test_a_key_can_be_named_and_a_wrong_one_is_answered() -> None:
    items = [{"premise": t, "gold": 1, "spans": []} for t in TEXTS]
    found = load_data(items, text_column="premise", label_column="gold")
    assert [(s.content, s.label) for s in found] == [(t, 1) for t in TEXTS]
    with pytest.raises(HeatcheckError, match=r"text_column='premis': items have no such key; .*did you mean premise"):
        load_data(items, text_column="premis")


def test_an_array_with_channels_last_says_what_to_give() -> None:
    found = load_data([np.zeros((8, 8, 3), dtype=np.float32), UINT8[0]])
    assert "an array of float32 [8, 8, 3] is not a picture: give uint8" in str(found[0].problem)


def test_paths_stay_paths(tmp_path: Path) -> None:
    pictures()[0].save(tmp_path / "a.png")
    assert not load_data([(tmp_path / "a.png", 1)])[0].problem
    assert not load_data(iter([str(tmp_path / "a.png")]))[0].problem


def test_a_mapping_that_is_no_dict_is_one_batch() -> None:
    class Encoding(Mapping[str, Any]):
        def __init__(self) -> None:
            self.data = {"input_ids": IDS, "attention_mask": MASK}

        def __getitem__(self, key: str) -> Any:
            return self.data[key]

        def __iter__(self) -> Iterator[str]:
            return iter(self.data)

        def __len__(self) -> int:
            return 2

    assert len(load_data(Encoding())) == 3
