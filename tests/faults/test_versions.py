"""Folders of other releases: read, or refused with advice; never misread."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

import heatcheck as hc
from heatcheck.core.types import HeatcheckError
from heatcheck.run.records import sealed, unsealed
from heatcheck.run.store import StoreWarning

OLD = Path(__file__).parents[1] / "fixtures" / "old_layout"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "r"
    x = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
    for weight in network.parameters():
        torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(1))
    bench = hc.Benchmark(models={"toy": network}, data=x, methods=["saliency", "random"], metrics=["sparseness"])
    bench.run(out, batch=2, progress="none")
    return out


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "r")


def rewrite(path: Path, change) -> None:
    """A record with other values and a right checksum."""
    value, _ = unsealed(path.read_bytes())
    path.write_bytes(sealed(change(value)))


def rechunk(folder: Path, change) -> None:
    """A chunk with another header under the digest of its bytes."""
    path = next((folder / "chunks").iterdir())
    with safe_open(path, framework="pt") as f:
        tensors, header = {name: f.get_tensor(name) for name in f.keys()}, json.loads(f.metadata()["heatcheck"])  # noqa: SIM118
    data = save(tensors, {"heatcheck": json.dumps(change(header))})
    path.unlink()
    (path.parent / f"{hashlib.sha256(data).hexdigest()}.safetensors").write_bytes(data)


def scores(folder: Path):
    return hc.Result.open(folder).scores().select("sample", "method", "metric", "score", "status")


@pytest.mark.parametrize("form", [0, 3, 99, "2"])
def test_chunks_of_another_format_are_refused_with_advice(folder, form):
    rechunk(folder, lambda header: {**header, "format": form})
    with pytest.raises(HeatcheckError, match=f"store format {form}, this version reads"):
        hc.Result.open(folder)


def test_what_a_later_release_adds_to_records_and_chunks_is_let_be(folder):
    before = scores(folder)
    rewrite(folder / "run.json", lambda run: {**run, "heatcheck": "9.9", "invented": {"a": [1]}})
    rewrite(folder / "numerics.json", lambda known: {k: {**v, "tiles": 3} for k, v in known.items()})
    rechunk(folder, lambda header: {**header, "invented": 1})
    assert scores(folder).equals(before)
    assert hc.Result.open(folder).check() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda run: {**run, "metrics": [{**m, "better": "closer to 1"} for m in run["metrics"]]},
        lambda run: {**run, "models": [{**m, "modality": "sound"} for m in run["models"]]},
        lambda run: {k: v for k, v in run.items() if k != "samples"},
    ],
    ids=["direction", "modality", "no samples"],
)
def test_a_record_that_means_something_else_is_not_misread(folder, change):
    """It counts as damaged: the study beside it tells what it should say."""
    before = scores(folder)
    rewrite(folder / "run.json", change)
    with pytest.warns(StoreWarning, match=r"run\.json is damaged"):
        assert scores(folder).equals(before)


def test_a_chunk_that_lacks_what_this_release_needs_is_left_out_and_said(folder):
    rechunk(
        folder,
        lambda header: {**header, "groups": [{k: v for k, v in g.items() if k != "seed"} for g in header["groups"]]},
    )
    with pytest.warns(StoreWarning, match="no chunk of a run"):
        found = hc.Result.open(folder)
    assert set(found.scores()["status"]) == {"missing: not computed yet"}


def test_the_folder_of_an_earlier_release_is_read_and_called_unchecked(tmp_path):
    found = hc.Result.open(shutil.copytree(OLD, tmp_path / "r"))
    assert set(found.scores()["status"].str.extract(r"^(\w+)")) <= {"ok", "undefined", "skipped"}
    assert any("unchecked" in remark for remark in found.remarks())
