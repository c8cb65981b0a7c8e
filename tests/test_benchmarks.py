"""The benchmarks run to their end and say what they promise; how long anything takes is not tested."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tests.models.conftest import save_text_model
from torch import nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.models.vision_shim import load_timm

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Runtime that name a tiny network with random weights and two small pictures."""
    folder = tmp_path_factory.mktemp("bench")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = load_timm().create_model("test_resnet", pretrained=False, num_classes=7)
    save_file(network.state_dict(), folder / "weights.safetensors")
    (folder / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i in range(2):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((64, 64)).save(folder / "pictures" / f"{i}.png")
    model = f"timm:test_resnet@{folder / 'weights.safetensors'}"
    return ["--model", model, "--data", f"folder:{folder / 'pictures'}", "--samples", "2", "--repeats", "1"]


def run(script, *options):
    line = [sys.executable, BENCHMARKS / script, *options]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_methods_are_compared_with_bare_passes_and_peers(tiny):
    told = json.loads(run("methods.py", *tiny, "--json", "--methods", "occlusion, grad_cam, rise(samples=4), rollout"))
    occlusion, grad_cam, rise, rollout = told["rows"]
    assert occlusion["forwards"] == occlusion["predicted"] == 17 and occlusion["backwards"] == 0
    assert occlusion["bar"] == "P2" and set(occlusion["peers"]) == {"captum"}
    assert grad_cam["bar"] == "P4" and set(grad_cam["peers"]) == {"captum", "torchcam"}
    assert rise["forwards"] == 4 and rise["bar"] is None and set(rise["peers"]) == {"RISE"}
    for row in (occlusion, grad_cam, rise):
        assert row["overhead"] > 0 and all(r > 0 for r in row["peers"].values()) and row["reasons"] == {}
        assert row["pass"] in (True, False)
    assert rollout["overhead"] is None and "attention" in rollout["reasons"]["heatcheck"] and rollout["pass"] is None


def test_the_table_has_a_row_for_each_method(tiny):
    table = run("methods.py", *tiny, "--methods", "saliency,constant")
    assert "saliency" in table and "captum" in table and "constant" in table


def test_peers_are_those_of_methods_that_exist(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = runpy.run_path(str(BENCHMARKS / "methods.py"))
    chosen = script["chosen"]
    known = set(catalogue.entries("method"))
    assert {*script["PEERS"], *script["HEAD_ONLY"]} <= known
    assert {u.id for u in chosen(None, full=False)} == known
    assert {u.name for u in chosen("rise, lime(samples=9), sobol", full=False)} == {
        "rise(samples=64)",
        "lime(samples=9)",
        "sobol(designs=4)",
    }
    assert [u.name for u in chosen("rise", full=True)] == ["rise"]


@pytest.mark.slow
def test_texts_are_compared_with_bare_passes_and_peers_and_padding_is_counted(tmp_path):
    folder, table = save_text_model(tmp_path / "bert"), tmp_path / "texts.csv"
    rows = [
        f"{'the film was good ' * (1 + i % 3)}{word},{i % 2}" for i, word in enumerate(("bad", "a", "b", "c", "plot"))
    ]
    table.write_text("\n".join(["text,label", *rows, f"{'film ' * 60},1"]))
    where = ("--model", f"hf:{folder}", "--data", f"csv:{table}")
    methods = "saliency, integrated_gradients(steps=4), feature_ablation, kernel_shap(samples=8)"
    told = json.loads(run("text.py", *where, "--samples", "2", "--repeats", "1", "--json", "--methods", methods))
    measured = [row["method"].partition("(")[0] for row in told["rows"]]
    assert told["tokens"] % 4 == 0 and measured == [name.partition("(")[0] for name in methods.split(", ")]
    for row in told["rows"]:
        assert row["forwards"] == row["distinct"] and row["P1"] and row["overhead"] > 0
        assert row["peers"]["Captum"] > 0 and row["P5"] in (True, False), row["reasons"]
    assert [row["P2"] for row in told["rows"]].count(None) == len(told["rows"]), "too few passes each"
    found = json.loads(run("text.py", *where, "--padding", "--samples", "6"))
    assert found["texts"] == 6 and found["lengths"] > 1 and 0 < found["padding"] < 0.5 and 0 < found["fillers"] < 1
    assert "1 of 6 texts is longer" in found["cut"] and found["P12"] == (found["padding"] <= 0.1)


def test_metrics_are_compared_with_distinct_passes_and_peers(tiny):
    told = json.loads(
        run("metrics.py", *tiny, "--json", "--maps", "2", "--metrics", "sds, morf(steps=4), pscore, mprt")
    )
    sds, morf, mprt = told["rows"]
    assert sds["forwards"] == sds["distinct"] == 2 * 16, "the clean passes are known"
    assert morf["forwards"] == morf["distinct"] == 2 * (2 * 3 + 1)
    assert "IDSDS" in sds["peers"] and sds["bars"].keys() >= {"P1", "P2", "P3", "P5"}
    assert "Quantus" in {**morf["peers"], **morf["reasons"]}
    assert mprt["forwards"] > 0 and mprt["own_ms_per_pass"] is None


def test_the_cost_of_roads_system_is_compared_with_the_published_procedure():
    assert "published" in run("road.py", "--size", "32", "--repeats", "1")


def test_metric_peers_are_those_of_metrics_that_exist(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(catalogue, "_own", {})  # what other tests have declared
    script = runpy.run_path(str(BENCHMARKS / "metrics.py"))
    known = set(catalogue.entries("metric"))
    assert set(script["PEERS"]) <= known
    assert {u.id for u in script["chosen"](None, full=False)} == known - {"pscore", "m4_overall", "roar", "kar"}


def test_the_table_of_the_vision_transformer_is_the_leaderboard(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    table = runpy.run_path(str(BENCHMARKS / "vit.py"))["table"]
    x = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    methods = ["input_x_gradient", "constant", "random"]
    bench = hc.Benchmark(models=Squares(), data=x, methods=methods, metrics=["sds"])
    lines = table(bench.run(tmp_path / "run", progress="none", threads=1, batch=4)).splitlines()
    assert lines[0] == "| method | SDS | 95 % interval | against random | pictures |"
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["`input_x_gradient`", "`random`"]
    assert lines[2].endswith("| better | 6 |") and lines[3].endswith("|  | 6 |")


class Squares(nn.Module):
    """The mean square of each channel."""

    def forward(self, x):
        return (x * x).mean((2, 3))
