"""Metrics that compare models: any number of them, with different methods, read or not, now or later."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from heatcheck.api.result import Result
from heatcheck.core.types import Inputs
from heatcheck.domain.image import ImageDomain
from heatcheck.models.torch_model import TorchModel
from heatcheck.run.execution import execute
from heatcheck.run.runtime import Runtime

FIXED = Runtime(progress="none", batch=4)
METHODS = ["saliency(post=abs)", "occlusion"]


def run(setup, out: Path, runtime: Runtime = FIXED) -> Result:
    return Result(execute(setup, out, runtime), only=True)


def cells(result: Result) -> dict[tuple[str, str, str], tuple[float | None, str]]:
    """PScores with their statuses, by model, method and sample."""
    rows = result.scores().filter(pl.col("metric") == "pscore")
    return {(m, k, s): (v, why) for m, k, s, v, why in rows["model", "method", "sample", "score", "status"].rows()}


def slow_pscore(result: Result, models: list[str], own: str, method: str, sample: str) -> float:
    maps = {m: result.map(m, sample, method).astype(np.float64).ravel() for m in models}
    mean = np.mean(list(maps.values()), axis=0)
    return mean @ maps[own] / np.linalg.norm(mean) / np.linalg.norm(maps[own])


def files(out: Path) -> list[str]:
    return sorted(p.name for p in (out / "chunks").iterdir())


def passes(out: Path) -> tuple[int, int]:
    spent = json.loads((out / "run.json").read_text())["passes"]
    return spent["forwards"], spent["backwards"]


def flat_model(name: str = "flat", refuses: torch.Tensor | None = None) -> TorchModel:
    """A model without feature maps, which may be unable to read one of the pictures."""

    def encode(sample):
        if refuses is not None and torch.equal(sample.content, refuses):
            raise ValueError("not for me")
        return Inputs({"pixels": sample.content[None]})

    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 5))
    with torch.no_grad():
        net[1].weight.normal_(generator=torch.Generator().manual_seed(4))
    domain = ImageDomain(mean=(0.5,) * 3, std=(0.5,) * 3)
    return TorchModel(net, name, domain, encoder=encode, preprocessing="picky")


@pytest.fixture
def trio(make_model):
    return {name: make_model(seed, name) for seed, name in enumerate("abc")}


@pytest.mark.parametrize("n", [2, 3])
def test_any_number_of_models_agree_with_the_formula(make_setup, trio, tmp_path, n):
    models = dict(list(trio.items())[:n])
    result = run(make_setup(METHODS, ["pscore"], n=9, models=models), tmp_path / "r")
    found = cells(result)
    assert len(found) == n * len(METHODS) * 9
    for (model, method, sample), (value, status) in found.items():
        assert status == "ok"
        assert value == pytest.approx(slow_pscore(result, list(models), model, method, sample), abs=1e-12)
    assert result.failed == 0
    told = f"pscore: the cosine with the mean map of {', '.join(models)}, among maps of one resolution"
    facts = result.facts["remarks"]
    assert {(r["model"], r["metric"], r["remark"]) for r in facts} == {(m, "pscore", told) for m in models}


def test_a_method_is_compared_between_the_models_that_have_it(make_setup, trio, tmp_path):
    models = {"a": trio["a"], "b": trio["b"], "flat": flat_model()}
    result = run(make_setup(["grad_cam", "occlusion"], ["pscore"], n=3, models=models), tmp_path / "r")
    for (model, method, sample), (value, status) in cells(result).items():
        if (model, method) == ("flat", "grad_cam"):
            assert status.startswith("skipped: ")
        else:
            having = ["a", "b"] if method == "grad_cam" else ["a", "b", "flat"]
            assert value == pytest.approx(slow_pscore(result, having, model, method, sample), abs=1e-12)
    assert result.failed == 0


def test_a_map_that_no_other_model_has_is_undefined(make_setup, trio, tmp_path):
    models = {"a": trio["a"], "flat": flat_model()}
    result = run(make_setup(["grad_cam", "occlusion"], ["pscore"], n=2, models=models), tmp_path / "r")
    status = {(model, method): why for (model, method, _), (_, why) in cells(result).items()}
    assert status["a", "grad_cam"] == "undefined: no other model has this map"
    assert status["a", "occlusion"] == status["flat", "occlusion"] == "ok"


def test_a_sample_that_one_model_cannot_read_is_compared_between_the_others(make_setup, trio, tmp_path):
    setup = make_setup(["occlusion"], ["pscore"], n=4, models={"a": trio["a"], "b": trio["b"], "flat": flat_model()})
    victim = setup.data[2]
    setup.models["flat"] = flat_model(refuses=victim.content)
    result = run(setup, tmp_path / "r")
    found = cells(result)
    assert found["flat", "occlusion", victim.name] == (None, "failed: ValueError: not for me")
    for sample in (s.name for s in setup.data):
        readers = ["a", "b"] if sample == victim.name else ["a", "b", "flat"]
        for model in readers:
            value, status = found[model, "occlusion", sample]
            assert status == "ok"
            assert value == pytest.approx(slow_pscore(result, readers, model, "occlusion", sample), abs=1e-12)
    before = files(tmp_path / "r")
    assert cells(run(setup, tmp_path / "r")) == found
    assert files(tmp_path / "r") == before


def test_one_model_is_a_reasoned_skip(make_setup, trio, tmp_path):
    result = run(make_setup(METHODS, ["sds", "pscore"], n=2, models={"a": trio["a"]}), tmp_path / "r")
    assert {status for _, status in cells(result).values()} == {"skipped: pscore compares models, and there is only a"}
    assert result.failed == 0
    assert [(s["metric"], s["method"]) for s in result.facts["skipped"]] == [("pscore", None)]


def test_a_model_added_later_costs_its_own_passes_and_asks_the_question_anew(make_setup, trio, tmp_path):
    two = make_setup(METHODS, ["pscore"], n=9, models={k: trio[k] for k in "ab"})
    first, start = cells(run(two, tmp_path / "r")), passes(tmp_path / "r")
    later = cells(run(make_setup(METHODS, ["pscore"], n=9, models=trio), tmp_path / "r"))
    grown = passes(tmp_path / "r")
    run(make_setup(METHODS, [], n=9, models={"c": trio["c"]}), tmp_path / "c")
    assert tuple(np.subtract(grown, start)) == passes(tmp_path / "c")
    assert later == cells(run(make_setup(METHODS, ["pscore"], n=9, models=trio), tmp_path / "fresh"))
    assert all(later[key] != value for key, value in first.items())
    before = files(tmp_path / "r")
    assert cells(run(two, tmp_path / "r")) == first, "what was scored without the third model stays"
    assert (files(tmp_path / "r"), passes(tmp_path / "r")) == (before, grown)


def test_a_method_added_later_leaves_the_others_as_they_are(make_setup, trio, tmp_path):
    first = cells(run(make_setup(METHODS[:1], ["pscore"], n=5, models=trio), tmp_path / "r"))
    both = run(make_setup(METHODS, ["pscore"], n=5, models=trio), tmp_path / "r")
    assert {k: v for k, v in cells(both).items() if k[1] == METHODS[0]} == first
    assert cells(both) == cells(run(make_setup(METHODS, ["pscore"], n=5, models=trio), tmp_path / "fresh"))
    written = [
        (g["model"], s["digest"], c["method"])
        for header in both.store.headers.values()
        for g in header["groups"]
        for c in g["scores"]
        for s in g["samples"]
    ]
    assert len(written) == len(set(written)) == 3 * 2 * 5, "no cell is scored twice"


@pytest.mark.parametrize("maps", ["none", "gallery"])
def test_maps_that_are_not_kept_are_made_again_from_stored_answers(make_setup, trio, tmp_path, maps):
    setup = make_setup(METHODS, ["pscore"], n=10, models=trio)
    kept = cells(run(setup, tmp_path / "keep"))
    assert cells(run(setup, tmp_path / "r", Runtime(progress="none", batch=4, maps=maps))) == kept
    again = [now - then for now, then in zip(passes(tmp_path / "r"), passes(tmp_path / "keep"), strict=True)]
    assert again == [3 * n for n in ({"none": [10, 10], "gallery": [2, 2]}[maps])], "a gradient each, no occlusion"
    more = make_setup([*METHODS, "random"], ["pscore"], n=10, models=trio)
    assert cells(run(more, tmp_path / "r", Runtime(progress="none", batch=4, maps=maps))) == cells(
        run(more, tmp_path / "keep")
    )


def test_what_the_budget_left_out_is_missing_until_the_next_run(make_setup, trio, tmp_path):
    setup = make_setup(METHODS, ["pscore"], n=10, models=trio)
    short = run(setup, tmp_path / "r", Runtime(progress="none", batch=4, budget=1e-9))
    assert {status for _, status in cells(short).values()} == {"missing: not computed yet"}
    assert cells(run(setup, tmp_path / "r")) == cells(run(setup, tmp_path / "fresh"))


def test_a_method_that_fails_on_one_model_is_left_out_there_and_tried_again(make_setup, trio, tmp_path):
    import heatcheck as hc

    broken = [trio["b"].module()]

    @hc.method("stumbles_on_b")
    def stumbles_on_b(model, x, target):
        slope = torch.autograd.grad(model(x.requires_grad_()).gather(1, target[:, None]).sum(), x)[0]
        if broken and len(broken[0](x)) and torch.allclose(broken[0](x), model(x)):
            raise ZeroDivisionError("on purpose")
        return slope

    setup = make_setup(["stumbles_on_b"], ["pscore"], n=3, models=trio)
    result = run(setup, tmp_path / "r")
    for (model, method, sample), (value, status) in cells(result).items():
        if model == "b":
            assert status.startswith("failed: ZeroDivisionError: on purpose")
        else:
            assert value == pytest.approx(slow_pscore(result, ["a", "c"], model, method, sample), abs=1e-12)
    broken.clear()
    mended = run(setup, tmp_path / "r")
    for (model, method, sample), (value, status) in cells(mended).items():
        if model == "b":
            assert status == "ok"
            assert value == pytest.approx(slow_pscore(mended, ["a", "b", "c"], model, method, sample), abs=1e-12)


def test_a_metric_that_raises_fails_its_own_cells_only(make_setup, trio, tmp_path, monkeypatch):
    from heatcheck.metrics.pscore import PseudoTruth

    honest = PseudoTruth.score_models

    def stumbles(self, batches, maps):
        if next(iter(maps.values())).methods == ("occlusion",):
            raise ZeroDivisionError("on purpose")
        return honest(self, batches, maps)

    monkeypatch.setattr(PseudoTruth, "score_models", stumbles)
    found = cells(run(make_setup(METHODS, ["pscore"], n=2, models=trio), tmp_path / "r"))
    assert {(k[1], why.partition(" (test_across")[0]) for k, (_, why) in found.items()} == {
        (METHODS[0], "ok"),
        ("occlusion", "failed: ZeroDivisionError: on purpose"),
    }


@pytest.mark.slow
def test_worker_processes_change_no_bit(tmp_path):
    from PIL import Image
    from safetensors.torch import save_file

    from heatcheck.models.vision_shim import load_timm

    command = [sys.executable, "-m", "heatcheck", "run", "--quiet", "--batch", "4", "--metrics", "pscore"]
    for seed in range(2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = load_timm().create_model("test_resnet", pretrained=False, num_classes=7)
        save_file(network.state_dict(), tmp_path / f"{seed}.safetensors")
        command += ["--models", f"timm:test_resnet@{tmp_path}/{seed}.safetensors"]
    (tmp_path / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i in range(10):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((64, 64)).save(tmp_path / "pictures" / f"{i:02d}.png")
    command += ["--data", f"folder:{tmp_path}/pictures", "--methods", "saliency,input_x_gradient"]
    found = []
    for workers in ("1", "2"):
        out = tmp_path / f"r{workers}"
        subprocess.run([*command, "--workers", workers, "--out", str(out)], check=True, capture_output=True)
        found.append(cells(Result.open(out)))
    assert found[0] == found[1]
    assert len(found[0]) == 2 * 3 * 10  # random is added
    assert {status for _, status in found[0].values()} == {"ok"}
