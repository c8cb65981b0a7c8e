"""The real ImageNet model and the real transformer: published procedures, Captum, and the two default studies."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from scipy import stats

import heatcheck as hc
from heatcheck.probe.asks import Shape
from heatcheck.run.forecast import forecast
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import prepare
from heatcheck.run.task import run_chunk

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lite0() -> hc.Model:
    torch.set_num_threads(1)
    return hc.load_model("efficientnet_lite0")


@pytest.fixture(scope="module")
def pictures(lite0) -> tuple[torch.Tensor, torch.Tensor]:
    data = [s for s in hc.load_data("images") if s.label is not None][:4]
    return torch.cat([lite0.encode(s)["pixels"] for s in data]), torch.tensor([s.label for s in data])


@pytest.fixture(scope="module")
def heat(lite0, pictures) -> dict[str, hc.Attribution]:
    x, label = pictures
    return {m: hc.explain(lite0, x, method=m, target=label) for m in ("saliency", "input_x_gradient", "grad_cam")}


def published_single_deletion(net, x, label, values, cells=4):
    """Hesse et al. 2024: one picture, one cell at a time."""
    side = x.shape[-1] // cells
    with torch.inference_mode():
        clean = net(x[None])[0, label]
        drops, sums = [], []
        for row in range(cells):
            for column in range(cells):
                part = (..., slice(row * side, (row + 1) * side), slice(column * side, (column + 1) * side))
                damaged = x.clone()
                damaged[part] = 0
                drops.append(float(clean - net(damaged[None])[0, label]))
                sums.append(float(values[part].double().sum()))
    return stats.spearmanr(sums, drops).statistic


def published_incremental_deletion(net, x, label, values, steps=32):
    """Hesse et al. 2024: the least relevant pixels go first; the mean probability over 32 steps, end excluded."""
    order = values.flatten().argsort()
    probabilities = []
    with torch.inference_mode():
        for k in range(steps):
            damaged = x.clone().flatten(1)
            damaged[:, order[: values.numel() * k // steps]] = 0
            probabilities.append(float(net(damaged.view_as(x)[None]).softmax(1)[0, label]))
    return float(np.mean(probabilities))


def test_sds_is_the_published_procedure(lite0, pictures, heat):
    x, label = pictures
    net = lite0.module()
    for name, tolerance in (("saliency", 1e-6), ("input_x_gradient", 1e-6), ("grad_cam", 2e-3)):
        up = lite0.domain.layout(heat[name].values, lite0.domain.wrap(x), "bilinear").view(-1, 224, 224)
        ours = hc.score(lite0, x, heat[name], metric="sds")[0]
        theirs = torch.tensor([published_single_deletion(net, x[i], label[i], up[i]) for i in range(len(x))])
        assert (
            (ours - theirs).abs().max() <= tolerance
            if tolerance < 1e-3
            else (ours.mean() - theirs.mean()).abs() <= tolerance
        )


def test_ids_is_the_published_procedure(lite0, pictures, heat):
    x, label = pictures
    net = lite0.module()
    ours = hc.score(lite0, x, heat["saliency"], metric="ids")[0]
    values = heat["saliency"].values
    theirs = torch.tensor([published_incremental_deletion(net, x[i], label[i], values[i]) for i in range(len(x))])
    torch.testing.assert_close(ours, theirs.double(), atol=1e-6, rtol=0)


def test_gradient_methods_agree_with_captum(lite0, pictures):
    from captum.attr import InputXGradient, IntegratedGradients, LayerGradCam, Saliency

    x, label = pictures[0][:2].clone().requires_grad_(), pictures[1][:2]
    net = lite0.module()

    def near(ours, theirs):
        known = theirs.detach()
        torch.testing.assert_close(ours, known, rtol=1e-5, atol=1e-5 * float(known.abs().max()))

    near(
        hc.explain(lite0, x, method="saliency", target=label).values,
        Saliency(net).attribute(x, label, abs=False).sum(1),
    )
    near(
        hc.explain(lite0, x, method="input_x_gradient", target=label).values,
        InputXGradient(net).attribute(x, label).sum(1),
    )
    theirs = IntegratedGradients(net).attribute(x, target=label, n_steps=8, internal_batch_size=8)
    near(hc.explain(lite0, x, method="integrated_gradients(steps=8)", target=label).values, theirs.sum(1))
    layer = lite0.layers(lite0.domain.wrap(x))[-1].name
    cam = LayerGradCam(net, net.get_submodule(layer)).attribute(x, label, relu_attributions=True)
    near(hc.explain(lite0, x, method="grad_cam", target=label).values, cam[:, 0])


def test_the_real_model_is_bit_equal_whatever_stands_beside(lite0):
    samples = hc.load_data("images", samples=3)
    bench = hc.Benchmark(
        models=lite0, data=samples, profile="quick", methods=["saliency", "grad_cam", "random"], metrics=["sds", "morf"]
    )
    part = prepare(bench.setup(), Runtime(batch=4), None)[0]

    def scores(order, grid):
        chunk = run_chunk(grid, [samples[i] for i in order])
        group = chunk.groups[0]
        names = [s["name"] for s in group.samples]
        return {(n, c.method, c.metric): float(c.value[i]) for c in group.scores for i, n in enumerate(names)}

    everything = scores([0, 1, 2], part.grid)
    assert scores([2, 0, 1], part.grid) == everything
    alone = scores([1], replace(part.grid, methods=part.grid.methods[1:2], metrics=part.grid.metrics[1:]))
    assert alone and all(everything[k] == v for k, v in alone.items())


def test_the_plan_of_the_default_run_is_exact_but_for_equal_orderings(lite0):
    """Occlusion and the oracle order pixels alike, so one of them asks nothing under the curves."""
    samples = hc.load_data("images", samples=1)
    part = prepare(hc.Benchmark(models=lite0, data=samples, profile="quick").setup(), Runtime(batch=16), None)[0]
    grid = part.grid
    shape = Shape(grid.model.domain, grid.model.encode(samples[0]))
    told = forecast(grid, shape)
    others = replace(grid, methods=tuple(m for m in grid.methods if m.label != "oracle"))
    spent = run_chunk(grid, list(samples)).spent
    assert forecast(others, shape).forwards == spent.forwards < told.forwards
    assert told.backwards == spent.backwards
    assert spent.graphs == 0


STUDY = """
models = ["{model}"]
data = "{data}"
samples = 3
profile = "quick"
"""


@pytest.mark.parametrize(("model", "data"), [("efficientnet_lite0", "images"), ("minilm_sentiment", "texts")])
def test_one_study_file_serves_both_modalities(tmp_path, model, data):
    study = tmp_path / "study.toml"
    study.write_text(STUDY.format(model=model, data=data))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    line = [sys.executable, "-m", "heatcheck", "run", str(study), "--out", str(tmp_path / "r"), "--workers", "1"]
    done = subprocess.run(line, capture_output=True, text=True, env=env, timeout=1500)
    assert done.returncode == 0, done.stderr
    result = hc.Result.open(tmp_path / "r")
    ok = result.scores().filter(pl.col("status") == "ok")
    methods = {m["label"] for m in result.manifest["methods"] if not m["control"]}
    assert len(methods & set(ok["method"])) >= 5
    assert len(set(ok["metric"])) >= 4
    for skip in result.facts["skipped"]:
        assert len(skip["reason"]) > 20
    board = result.leaderboard().full.filter(pl.col("metric") == "sds")
    assert board.filter(pl.col("method") == "oracle")["mean"].item() == pytest.approx(1.0)
    assert abs(board.filter(pl.col("method") == "random")["mean"].item()) < 0.5
    assert Path(tmp_path / "r" / "report.html").stat().st_size > 50_000
