"""What is found out about methods before a run."""

import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.types import Inputs, Sample
from heatcheck.models.vision import VisionModel
from heatcheck.run.rehearsal import CALLS, applicable, readable, reason_against
from heatcheck.testing.models import fill_weights, gap_linear, tiny_vit
from heatcheck.testing.scenes import toy_batch

X = Inputs({"pixels": torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))})


class Counting(VisionModel):
    """Counts the inputs it is asked about."""

    asked = 0

    def logits(self, x):
        self.asked += len(x)
        return super().logits(x)


def network(act=nn.ReLU):
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), act(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    return fill_weights(layers, 0, torch.float32)


def test_a_method_that_can_work_costs_a_few_calls():
    model = Counting(network(), "net")
    assert reason_against(catalogue.build("method", "integrated_gradients(steps=500)"), model, [X]) is None
    assert model.asked == CALLS


def test_a_method_that_needs_outputs_only_is_not_tried():
    model = Counting(network(), "net")
    assert reason_against(catalogue.build("method", "rise"), model, [X]) is None
    assert model.asked == 0


@pytest.mark.parametrize(("spec", "told"), [("guided_backprop", "gelu"), ("rollout", "attention"), ("bcos", "B-cos")])
def test_a_method_that_cannot_is_told_with_its_reason(spec, told):
    model = VisionModel(network(nn.GELU), "net")
    assert told in (reason_against(catalogue.build("method", spec), model, [X]) or "")


def test_one_sample_that_it_can_explain_is_enough():
    """Feature maps of one pixel are none; a larger picture has some."""
    model = VisionModel(network(), "net")
    small = Inputs({"pixels": X["pixels"][..., :3, :3]})
    method = catalogue.build("method", "grad_cam")
    assert reason_against(method, model, [small]) is not None
    assert reason_against(method, model, [small, X]) is None


def test_whatever_else_goes_wrong_is_left_to_the_run():
    class Failing(VisionModel):
        def logits(self, x):
            raise RuntimeError("no")

    assert reason_against(catalogue.build("method", "saliency"), Failing(network(), "net"), [X]) is None


def test_every_method_is_told_of():
    toy = tiny_vit()
    found = applicable(toy, toy_batch(toy, 1).x)
    assert list(found) == list(catalogue.entries("method"))
    assert found["rollout"] is None and found["saliency"] is None
    assert "B-cos" in found["bcos"]


def test_samples_that_cannot_be_read_are_passed_over():
    toy = gap_linear()
    bad = [Sample(name="a", content=torch.zeros(1), digest="a", problem="broken")]
    assert list(readable(toy, bad)) == []


def test_a_run_skips_the_method_for_the_model_and_asks_nothing_more(tmp_path):
    model = hc.load_model(
        network(nn.GELU).eval(), name="net", preprocess=hc.Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=8)
    )
    bench = hc.Benchmark(
        models=model, data=[X["pixels"][0]], methods=["saliency", "guided_backprop"], metrics=["sds(units=grid(2))"]
    )
    result = bench.run(tmp_path / "r", progress="none")
    status = {r["method"]: r["status"] for r in result.scores().to_dicts()}
    assert status["saliency"] == "ok" and status["guided_backprop"].startswith("skipped")
    assert result.manifest["passes"]["backwards"] == 1
    assert "gelu" in result.manifest["models"][0]["skipped"]["guided_backprop"]
    assert bench.plan().skipped[0]["unit"] == "guided_backprop"


def test_methods_that_differ_in_post_share_their_passes(tmp_path):
    model = hc.load_model(
        network().eval(), name="net", preprocess=hc.Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=8)
    )
    methods = ["integrated_gradients(steps=7)", "integrated_gradients(steps=7, post=abs)", "saliency", "random"]
    bench = hc.Benchmark(models=model, data=[X["pixels"][0]], methods=methods, metrics=["sds(units=grid(2))"])
    foretold = bench.plan()
    result = bench.run(tmp_path / "r", progress="none")
    assert (foretold.forwards, foretold.backwards) == (1 + 7 + 1 + 4, 7 + 1)
    spent = result.manifest["passes"]
    assert (spent["forwards"], spent["backwards"]) == (foretold.forwards, foretold.backwards)
    costs = {r["method"]: r["backwards"] for r in result.scores().to_dicts()}
    assert costs == {methods[0]: 7, methods[1]: 7, "saliency": 1, "random": 0}
