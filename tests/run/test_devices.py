"""A run says where and in what precision it was computed; the first is numerics, the second identity."""

import json

import pytest
import torch
from tests.models.conftest import Net

import heatcheck as hc
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError
from heatcheck.models import devices
from heatcheck.run.history import study_digest
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import place

MUTANTS = (
    (
        "run/setup.py",
        "if label not in setup.sources.models:",
        "if False:",
        "test_with_auto_names_go_to_the_best_device_and_modules_stay",
    ),
    (
        "api/benchmark.py",
        'return label if precision == FP32 else f"{label} ({precision})"',
        "return label",
        "test_rows_of_different_precision_never_mix_and_say_which_they_are",
    ),
)


@pytest.fixture
def bench():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return hc.Benchmark(models={"net": Net()}, data=torch.rand(3, 3, 8, 8), methods=["saliency"], metrics=["sds"])


@pytest.fixture(autouse=True)
def trusted(monkeypatch):
    """Takes it that this CPU computes in half precision."""
    monkeypatch.setattr(devices, "_cpu_computes", lambda precision: True)


def manifest(folder):
    return json.loads((folder / "run.json").read_text())


def test_rows_of_different_precision_never_mix_and_say_which_they_are(bench, tmp_path):
    out = tmp_path / "r"
    bench.run(out, batch=4, progress="none")
    half = hc.Benchmark(**{**bench.__dict__, "precision": "bf16", "_loaded": {}})
    result = half.run(out, batch=4, progress="none")
    scores = result.scores()
    assert set(scores["model"]) == {"net", "net (bf16)"} and len(scores) == 2 * 3 * 2
    each = {name: part["score"].to_list() for (name,), part in scores.group_by("model", maintain_order=True)}
    assert each["net"] != each["net (bf16)"]
    assert "net (bf16)" in set(result.leaderboard().full["model"])
    assert manifest(out)["study"]["precision"] == "bf16"
    page = result.report(tmp_path / "page.html").read_text()
    assert "net (bf16)" in page
    again = bench.run(out, batch=4, progress="none").scores()
    assert again.filter(again["model"] == "net")["score"].to_list() == each["net"], "nothing was computed anew"


def test_the_device_is_recorded_and_decides_no_study(bench, tmp_path):
    bench.run(tmp_path / "r", batch=4, device="cpu", progress="none")
    found = manifest(tmp_path / "r")
    assert found["models"][0]["numerics"]["device"] == "cpu"
    moved = json.loads(json.dumps(found))
    moved["models"][0]["numerics"]["device"] = "cuda"
    assert study_digest(moved) == study_digest(found)
    assert "precision" not in found["study"], "studies of the usual precision are filed as ever"


def test_auto_says_which_device_it_took(bench, tmp_path):
    told = []
    shown = hc_progress(told)
    bench.run(tmp_path / "r", batch=4, device="auto", progress=shown)
    assert "models compute on cpu" in told


def hc_progress(told):
    """A progress that keeps notes."""
    from heatcheck.core.progress import Silent

    class Kept(Silent):
        def note(self, text):
            told.append(text)

    return Kept()


def test_with_auto_names_go_to_the_best_device_and_modules_stay(bench, monkeypatch):
    setup = bench.setup()
    monkeypatch.setattr("heatcheck.run.setup.choose_device", lambda name: "meta" if name == "auto" else name)
    stays, _ = place(setup, Runtime(), None)
    assert str(stays.models["net"].device) == "cpu" and stays.devices == {"net": "cpu"}
    named = place(hc_named(setup), Runtime(), None)
    assert str(named[0].models["net"].device) == "meta" and named[1] == ["models compute on meta"]
    moved, _ = place(setup, Runtime(device="cpu"), None)
    assert moved.models["net"] is setup.models["net"]


def hc_named(setup):
    """The same setup, as if its model had been loaded by name."""
    from dataclasses import replace

    return replace(setup, sources=replace(setup.sources, models={"net": "timm:net"}))


def test_a_device_that_is_not_there_ends_a_run_before_it_begins(bench, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(HeatcheckError, match="this machine has cpu"):
        bench.run(tmp_path / "r", device="cuda", progress="none")
    assert not (tmp_path / "r" / "run.json").exists()
    with pytest.raises(SpecError, match="device = 'gpu' should be auto, cpu, cuda, cuda:0, cuda:1 … or mps"):
        bench.run(tmp_path / "r", device="gpu")
