"""Files that would run code when they are read leave no mark; names and specs are words, not code."""

import io
import json
import os
import pickle  # noqa: TID251 - to make the kind of file that must not be opened
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from heatcheck.core.catalogue import build
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError
from heatcheck.data.load import load_data
from heatcheck.models.weights import load_weights
from heatcheck.training.defaults import load_model


class Calls:
    """A pickle that calls a function when it is opened."""

    def __init__(self, function: Callable[..., object], *args: object) -> None:
        self.function, self.args = function, args

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.function, self.args


class Builds:
    """A pickle that lets an object set its state by a function."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (), None, None, iter([(Calls(os.mkdir, self.mark), 1)])


GADGETS: dict[str, Callable[[str], object]] = {
    "mkdir": lambda mark: Calls(os.mkdir, mark),
    "system": lambda mark: Calls(os.system, f"mkdir {mark}"),
    "eval": lambda mark: Calls(eval, f"__import__('os').mkdir({mark!r})"),
    "exec": lambda mark: Calls(exec, f"import os; os.mkdir({mark!r})"),
    "open": lambda mark: Calls(open, mark, "w"),
    "among tensors": lambda mark: {"weight": torch.zeros(2), "more": Calls(os.mkdir, mark)},
    "as a key": lambda mark: Builds(mark),
    "torch.load": lambda mark: Calls(torch.load, mark),  # noqa: TID251
    "nested pickle": lambda mark: Calls(pickle.loads, pickle.dumps(Calls(os.mkdir, mark))),
}


def zipped(path: Path, value: object) -> None:
    torch.save(value, path)


def legacy(path: Path, value: object) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False)


def raw(path: Path, value: object) -> None:
    path.write_bytes(pickle.dumps(value))


@pytest.mark.parametrize("save", [zipped, legacy, raw], ids=lambda f: f.__name__)
@pytest.mark.parametrize("gadget", GADGETS)
def test_a_checkpoint_that_would_run_code_is_refused_and_leaves_no_mark(tmp_path, gadget, save):
    mark = tmp_path / "mark"
    save(tmp_path / "bad.pt", GADGETS[gadget](str(mark)))
    with pytest.raises(HeatcheckError, match=r"cannot be read|would run its code"):
        load_weights(tmp_path / "bad.pt")
    assert not mark.exists()


def test_the_gadgets_would_have_left_their_mark(tmp_path):
    for i, gadget in enumerate(("mkdir", "system", "eval", "exec", "open", "nested pickle")):
        raw(tmp_path / "bad", GADGETS[gadget](str(tmp_path / f"mark{i}")))
        found = pickle.loads((tmp_path / "bad").read_bytes())
        if hasattr(found, "close"):
            found.close()
        assert (tmp_path / f"mark{i}").exists(), gadget


def header(text: bytes, size: int | None = None) -> bytes:
    return (len(text) if size is None else size).to_bytes(8, "little") + text


def tensor(offsets: list[int], shape: list[int]) -> dict[str, object]:
    return {"dtype": "F32", "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    "content",
    [
        header(b"{}", 2**62),
        header(b"{}", 2**40) + bytes(100),
        header(json.dumps({"a": tensor([0, 2**60], [2**58])}).encode()),
        header(json.dumps({"a": tensor([0, 8], [2]), "b": tensor([4, 12], [2])}).encode()) + bytes(12),
        header(json.dumps({"a": tensor([8, 0], [2])}).encode()) + bytes(8),
        header(json.dumps({"a": tensor([-4, 4], [2])}).encode()) + bytes(8),
        header(b"[" * 10_000),
        header(b"\xff\xfe not json"),
    ],
    ids=["longest header", "long header", "huge", "overlapping", "backwards", "negative", "deep", "binary"],
)
def test_a_crafted_safetensors_file_is_refused(tmp_path, content):
    (tmp_path / "bad.safetensors").write_bytes(content)
    with pytest.raises(HeatcheckError, match="no whole safetensors file"):
        load_weights(tmp_path / "bad.safetensors")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_hub_folder_with_hostile_weights_leaves_no_mark(tmp_path, name):
    mark = tmp_path / "mark"
    config = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 8, "num_labels": 2}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "image_size": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))
    raw(tmp_path / name, Calls(os.mkdir, str(mark)))
    with pytest.raises(HeatcheckError, match="could not get hf:"):
        load_model(f"hf:{tmp_path}")
    assert not mark.exists()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pkl", ".pt", ".joblib", ".h5", ".mat", ".yaml"])
def test_a_data_file_that_may_hold_objects_is_not_opened(tmp_path, suffix):
    mark, path = tmp_path / "mark", tmp_path / f"data{suffix}"
    raw(path, Calls(os.mkdir, str(mark)))
    with pytest.raises(HeatcheckError):
        load_data(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "spec",
    [
        "rise(samples=__import__('os').mkdir('mark'))",
        "__import__('os')",
        "rise(samples=8).__class__",
        "rise(**{})",
        "rise(samples=[i for i in (1,)])",
        "../../etc/passwd",
        "os.system",
        "saliency\x00",
        "rise(samples=" + "(" * 500 + ")" * 500 + ")",
    ],
)
def test_a_component_is_named_and_not_evaluated(tmp_path, monkeypatch, spec):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError):
        build("method", spec)
    assert not (tmp_path / "mark").exists()


KINDS = {
    "above": ("x/../../escaped", tarfile.REGTYPE, ""),
    "absolute": ("/tmp/escaped", tarfile.REGTYPE, ""),
    "above the documents": ("x/docs/../../escaped", tarfile.REGTYPE, ""),
    "link to a file": ("x/docs/a", tarfile.SYMTYPE, "/etc/passwd"),
    "link to a folder": ("x/docs", tarfile.SYMTYPE, "/etc"),
    "hard link": ("x/docs/a", tarfile.LNKTYPE, "/etc/passwd"),
    "device": ("x/docs/a", tarfile.CHRTYPE, ""),
    "pipe": ("x/docs/a", tarfile.FIFOTYPE, ""),
    "odd name": ("x/docs/a\n\x1b[31m", tarfile.REGTYPE, ""),
    "long name": ("x/docs/" + "a" * 5000, tarfile.REGTYPE, ""),
}


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_writes_nothing_and_reads_nothing_else(tmp_path, kind, mode):
    where, target = tmp_path / "x.tar", tmp_path.parent / "escaped"
    name, member_type, link = KINDS[kind]
    document = json.dumps({"annotation_id": "a", "classification": "POS", "query": "?", "evidences": []})
    with tarfile.open(where, mode) as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = member_type, link
        content = b"secret" if member_type == tarfile.REGTYPE else b""
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
        split = tarfile.TarInfo("x/test.jsonl")
        split.size = len(document)
        tar.addfile(split, io.BytesIO(document.encode()))
    data = load_data(f"eraser:{where}")
    assert [sample.problem is not None for sample in data] == [True]
    assert all("root:" not in str(sample.content) for sample in data)
    assert not target.exists() and not Path("/tmp/escaped").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]


@pytest.mark.parametrize("limit", ["_MOST_MEMBERS", "_LARGEST_ARCHIVE", "_LONGEST_FILE"])
def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, limit):
    home = "archives" if limit == "_MOST_MEMBERS" else "eraser"
    monkeypatch.setattr(f"heatcheck.data.{home}.{limit}", 5)
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        for i in range(10):
            member = tarfile.TarInfo(f"x/docs/{i}")
            member.size = 0 if limit == "_MOST_MEMBERS" else 8
            tar.addfile(member, io.BytesIO(bytes(8)))
    with pytest.raises(HeatcheckError, match="more than such an archive should hold"):
        load_data(f"eraser:{tmp_path / 'x.tar.gz'}")
