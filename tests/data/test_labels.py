"""Labels as people write them: indices, names, or numbers of a regression, and never two of these at once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch.utils.data import Subset

from heatcheck.data import Dataset, load_data
from heatcheck.data.labels import Labels, as_index, as_number
from heatcheck.data.matching import match_labels, strange_labels

MUTANTS = (
    ("data/labels.py", "if named else bool(fractions)", "", "test_numbers_with_a_fraction_are_no_classes"),
    (
        "data/labels.py",
        "if self.only_names and as_number(written) is not None:",
        "if False:",
        "test_a_number_among_names_is_no_index_of_them",
    ),
    ("data/labels.py", "if _is_list(written):", "if False:", "test_lists_of_classes_are_no_labels"),
    ("data/matching.py", "s.label >= classes", "s.label > classes", "test_an_index_beyond_the_classes_is_told"),
)


def labels(data: Dataset) -> list[int | None]:
    return [s.label for s in data]


@pytest.mark.parametrize(
    "written",
    [
        ["3.5", "0.2", "4.8", "2"],
        [2, 3.5, 0.2],
        ["2", "1", "3", "0.5"],
        [np.float32(0.5), 1],
        ["-1.5", "0"],
        ["3.5", "0.2", "2", "none"],
    ],
)
def test_numbers_with_a_fraction_are_no_classes(written: list[object]) -> None:
    found = Labels.of(written)
    assert found.fractional and found.classes is None
    assert all(found.read(label) == (None, None) for label in written if label != "none")
    assert found.read("none") == (None, "label 'none' is not a number")


def test_a_slip_among_indices_stays_one() -> None:
    data = load_data([("a", "0"), ("b", "1"), ("c", "x"), ("d", "0.5"), ("e", "1")])
    assert labels(data) == [0, 1, None, None, 1] and "1 × label '0.5' is not a class index" in data.notes[-1]


def test_a_table_of_ratings(tmp_path: Path) -> None:
    """A header is one also above fractions, and no rating is taken for a class."""
    (tmp_path / "reg.csv").write_text("story,score\nA film.,3.5\nThe plot.,0.2\nThe jokes.,4.8\nShort.,2\n")
    data = load_data(tmp_path / "reg.csv")
    assert labels(data) == [None] * 4 and data.classes is None and data.fractional == "3.5"
    assert "texts are column 'story', labels are column 'score'" in data.notes[0]
    assert not any("unlabelled" in note for note in data.notes)
    assert match_labels(data, {"m": ("x", "y", "z")}) is data
    assert data[:2].fractional and data.take(1, 0).fractional


@pytest.mark.parametrize("written", [[2.0, 0.5, 1.0], [0.5, 2.0, 1.0], list(torch.tensor([1.0, 0.25, 2.0]))])
def test_objects_with_fractions(written: list[float]) -> None:
    class Own(torch.utils.data.Dataset[tuple[str, float]]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> tuple[str, float]:
            return f"text {i}", written[i]

    for data in (load_data(Own()), load_data([(f"text {i}", label) for i, label in enumerate(written)])):
        assert labels(data) == [None] * 3 and data.fractional in ("0.5", "0.25") and not data.notes
    whole = load_data([("a", 1.0), ("b", 2.0)])
    assert labels(whole) == [1, 2] and not whole.fractional


def test_a_number_among_names_is_no_index_of_them() -> None:
    data = load_data([("a", "pos"), ("b", "neg"), ("c", "1"), ("d", "pos"), ("e", "0.5")])
    assert labels(data) == [1, 0, None, 1, None] and data.classes == ("neg", "pos")
    assert data.notes[-1].startswith("2 of 5 samples count as unlabelled: 1 × label '1' is a number, while most")
    given = load_data([("a", "pos"), ("b", "1")], classes=["neg", "pos"])
    assert labels(given) == [1, 1]


def test_an_index_beyond_the_classes_is_told() -> None:
    data = load_data([("a", 0), ("b", 2), ("c", 5), ("d", None), ("e", 5)])
    assert strange_labels(data, "m", 2) == (
        "3 of 5 samples count as unlabelled: 2 × label 5 is no class of m (0 to 1), such as '00002'; "
        "1 × label 2 is no class of m (0 to 1), such as '00001'"
    )
    assert strange_labels(data, "m", 6) == ""


def test_numbers_are_finite() -> None:
    for written in ("nan", "inf", "-inf", "", "two", None, [1, 2], float("inf"), torch.ones(2)):
        assert as_number(written) is None and as_index(written) is None
    assert (as_number("2.5"), as_index("2.5"), as_index(" 2.0 "), as_index(torch.tensor(3))) == (2.5, None, 2, 3)


def test_classes_that_were_given_have_no_fractions() -> None:
    data = load_data([("a", "0.5"), ("b", "1")], classes=["x", "y"])
    assert labels(data) == [None, 1] and not data.fractional


LISTS = [{"text": "good", "labels": [0, 2]}, {"text": "bad", "labels": []}, {"text": "fine", "labels": None}]


def lists_as(form: str, folder: Path) -> Any:
    """The same texts with lists of classes, in one of many forms."""
    if form == "jsonl":
        (folder / "a.jsonl").write_text("\n".join(map(json.dumps, LISTS)))
        return folder / "a.jsonl"
    if form == "parquet":
        pl.DataFrame(LISTS).write_parquet(folder / "a.parquet")
        return folder / "a.parquet"
    if form == "data set":
        return Subset(LISTS, range(len(LISTS)))
    if form == "tensors":
        return [{**row, "labels": row["labels"] and torch.tensor(row["labels"])} for row in LISTS]
    return pl.DataFrame(LISTS) if form == "frame" else LISTS


@pytest.mark.parametrize("form", ["jsonl", "parquet", "frame", "dicts", "tensors", "data set"])
def test_lists_of_classes_are_no_labels(form: str, tmp_path: Path) -> None:
    data = load_data(lists_as(form, tmp_path))
    assert [(s.content, s.label, s.problem) for s in data] == [(row["text"], None, None) for row in LISTS]
    column = "column " if form in ("jsonl", "parquet", "frame") else ""
    assert f", labels are {column}'labels'" in data.notes[0]
    assert data.notes[1:] == (
        "2 of 3 samples count as unlabelled: 2 × its label is a list of classes; name the one to explain with --target "
        "(in Python target=), such as '00000'",
    )


def test_a_column_of_lists_gives_way_to_plain_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"phrase": f"some words {i}", "stars": i % 2, "labels": [0, 2], "tags": ["x"]} for i in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert labels(load_data(path)) == [0, 1, 0]
    for name in ("labels", "tags"):
        data = load_data(path, text_column="phrase", label_column=name)
        assert f"labels are column '{name}'" in data.notes[0] and "3 × its label is a list" in data.notes[1]
