"""Data sets of Hugging Face, by name and by folder; the package itself where it is installed, else a stand-in."""

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from heatcheck.api.study import Study, StudyError
from heatcheck.core import extras
from heatcheck.core.types import HeatcheckError, Modality, TextPair
from heatcheck.data import load_data
from heatcheck.data.catalogue import modality_of_data, split_spec
from heatcheck.data.splits import training_specs

MUTANTS = (
    (
        "data/hub.py",
        '("validation", "test", "train")',
        '("train", "test", "validation")',
        "test_the_split_to_evaluate_on",
    ),
    ("data/hub.py", "split=split or None", "split=None", "test_names_configurations_and_splits"),
    ("data/objects.py", "return tuple(map(str, named or ()))", "return ()", "test_the_split_to_evaluate_on"),
)


class Names:
    names = ("negative", "positive")


class Table:
    """Stands for a `Dataset`: rows by position, and what its columns are."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows, self.features = rows, {**dict.fromkeys(rows[0]), "label": Names()}

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return self.rows[i]


class Stream:
    """Stands for an `IterableDataset`."""

    def __init__(self, table: Table) -> None:
        self.rows, self.features = table.rows, table.features

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


TABLES = {
    name: Table(*({"sentence": f"{name} {i}", "label": i % 2, "idx": i} for i in range(3)))
    for name in ("train", "validation")
}
NLI = Table({"premise": "It rains.", "hypothesis": "It is wet.", "label": 1})


class StandIn(ModuleType):
    """Stands for the package, with two data sets."""

    def __init__(self) -> None:
        super().__init__("datasets")
        self.__spec__ = ModuleSpec("datasets", None)
        self.asked: list[tuple[Any, ...]] = []
        self.bars = True

    def load_dataset(self, name: str, config: str | None, split: str | None) -> Any:
        assert not self.bars
        self.asked.append((name, config, split))
        if name == "glue" and config is None:
            raise ValueError("Config name is missing.\nPlease pick one among the available configs: ['sst2']")
        if name == "far":
            raise ConnectionError("Couldn't reach 'far' on the Hub (OfflineModeIsEnabled)")
        if name == "scripted":
            raise RuntimeError("Dataset scripts are no longer supported, but found scripted.py")
        found = {"train": NLI} if name == "org/nli" else TABLES
        if split is not None and split.partition("[")[0] not in found:
            raise ValueError(f'Unknown split "{split}". Should be one of {list(found)}.')
        return found if split is None else found[split.partition("[")[0]]

    def load_from_disk(self, place: str) -> Any:
        return TABLES

    def get_dataset_split_names(self, name: str, config: str | None) -> list[str]:
        return ["train"] if name == "org/nli" else list(TABLES)

    def are_progress_bars_disabled(self) -> bool:
        return not self.bars

    def disable_progress_bars(self) -> None:
        self.bars = False

    def enable_progress_bars(self) -> None:
        self.bars = True


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    standin = StandIn()
    monkeypatch.setitem(sys.modules, "datasets", standin)
    return standin


def test_names_configurations_and_splits(package: StandIn) -> None:
    for spec, asked in {
        "hf-data:imdb": ("imdb", None, None),
        "hf-data:imdb[train]": ("imdb", None, "train"),
        "hf-data:glue:sst2[validation]": ("glue", "sst2", "validation"),
        "hf-data:org/sst:x[train[:2]]": ("org/sst", "x", "train[:2]"),
    }.items():
        load_data(spec)
        assert package.asked[-1] == asked
    assert load_data("hf-data:glue:sst2[train]").name == "glue-sst2-train" and package.bars
    assert split_spec("test_part:hf-data:a/b:c[train[:5]]") == ("test_part:hf-data:", "a/b:c", "[train[:5]]")
    assert split_spec("hf-data:./mine[train]") == ("hf-data:", "./mine", "[train]")


def test_the_split_to_evaluate_on(package: StandIn) -> None:
    data = load_data("hf-data:glue:sst2")
    assert (data.name, data.modality, data.classes) == ("glue-sst2-validation", Modality.TEXT, Names.names)
    assert [(s.content, s.label) for s in data][:2] == [("validation 0", 0), ("validation 1", 1)]
    assert data.notes == (
        "the split is 'validation'; others are train, to be named in brackets",
        "contents are 'sentence', labels are 'label'; not used: idx",
    )
    assert training_specs("hf-data:glue:sst2") == ("hf-data:glue:sst2[train]", "hf-data:glue:sst2[validation]")
    assert training_specs("hf-data:org/nli") == ("train_part:hf-data:org/nli", "test_part:hf-data:org/nli")
    with pytest.raises(HeatcheckError, match=r"is a part already, .*: give 'hf-data:imdb'"):
        training_specs("hf-data:imdb[train]")
    assert Study.of(models=["minilm_sentiment"], data="hf-data:imdb[train]").data == "hf-data:imdb[train]"
    with pytest.raises(StudyError, match=r"there is no './absent'"):
        Study.of(models=["minilm_sentiment"], data="hf-data:./absent[train]")
    assert modality_of_data("hf-data:imdb") == "text"


def test_a_tokenized_data_set_keeps_its_texts_and_class_names() -> None:
    ids = {"input_ids": [1, 2, 3], "token_type_ids": [0, 1, 1]}
    for table in (Table({**NLI[0], **ids}), Stream(Table({**NLI[0], **ids}))):
        data = load_data(table)
        assert (data[0].content, data[0].label) == (TextPair("It rains.", "It is wet."), 1)
        assert data.classes == Names.names and "token ids beside them are not used" in data.notes[0]


def test_planted_words_leave_the_labels_out(package: StandIn) -> None:
    assert "contents are 'sentence'; not used: label, idx" in load_data("planted:hf-data:glue:sst2").notes


def test_pairs_and_streams(package: StandIn) -> None:
    assert load_data("hf-data:org/nli")[0].content == TextPair("It rains.", "It is wet.")
    stream = load_data(Stream(TABLES["train"]))
    assert stream.classes == Names.names and [s.label for s in stream] == [0, 1, 0]
    with pytest.raises(HeatcheckError, match=r"a dict of data sets, train: pass one, such as data\['train'\]"):
        load_data({"train": Stream(NLI)})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("hf-data:glue", "Config name is missing.*name a configuration after a colon: hf-data:NAME:CONFIG"),
        ("hf-data:imdb[tran]", "Unknown split \"tran\".*name a split that there is in brackets"),
        ("hf-data:far", "without a network only what was loaded before can be.*hf-data:./FOLDER"),
        ("hf-data:scripted", "its code is never run; give a folder of its parquet"),
        ("hf-data:./absent", "there is no folder './absent'"),
        ("hf-data:", "hf-data: lacks a name"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_answered_with_what_to_try(package: StandIn, spec: str, said: str) -> None:
    with pytest.raises(HeatcheckError, match=said):
        load_data(spec)


def test_folders_are_recognised_by_their_files(package: StandIn, tmp_path: Path) -> None:
    for name, file in {"tables": "data/train.parquet", "lines": "test.jsonl", "saved": "dataset_dict.json"}.items():
        path = tmp_path / name / file
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        assert load_data(str(tmp_path / name)).name == f"{name}-validation"
    assert len(package.asked) == 2  # what `save_to_disk` wrote is read by its own function
    with pytest.raises(HeatcheckError, match="there is no split 'x'; there are train, validation"):
        load_data(f"hf-data:{tmp_path}/saved[x]")
    (tmp_path / "lines" / "docs").mkdir()
    assert load_data(str(tmp_path / "lines")).name == "lines-test", "a folder with docs/ is ERASER's"


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(
        HeatcheckError, match=r'needs datasets, which is not installed: pip install "heatcheck\[datasets\]"'
    ):
        load_data("hf-data:imdb[train]")


def test_the_package_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["negative", "positive"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    rows = {"text": ["good", "bad", "fine"], "label": [1, 0, -1]}
    table = datasets.Dataset.from_dict(rows, features=features)
    (tmp_path / "mine").mkdir()
    for split in ("train", "test"):
        table.to_parquet(tmp_path / "mine" / f"{split}.parquet")
    table.save_to_disk(tmp_path / "saved")
    for spec in (table, table.to_iterable_dataset(), f"hf-data:{tmp_path}/mine", tmp_path / "saved"):
        data = load_data(spec)
        assert data.classes == ("negative", "positive") and [s.label for s in data] == [1, 0, None]
    assert load_data(f"hf-data:{tmp_path}/mine").name == "mine-test"
    assert len(load_data(f"hf-data:{tmp_path}/mine[train[:2]]")) == 2
    with pytest.raises(HeatcheckError, match="a dict of data sets, train: pass one"):
        load_data(datasets.DatasetDict(train=table))
    with pytest.raises(HeatcheckError, match="name a split that there is in brackets"):
        load_data(f"hf-data:{tmp_path}/mine[dev]")
