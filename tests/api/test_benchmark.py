"""The public verbs on plain tensors and plain modules; units of one's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import heatcheck as hc


@pytest.fixture
def net() -> nn.Module:
    rng = torch.Generator().manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, 5)
    )
    for weight in net.parameters():
        nn.init.normal_(weight, 0, 0.3, generator=rng)
    return net.double()


@pytest.fixture
def x() -> Float[Tensor, "b c h w"]:
    return torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_explain_gives_a_record_per_input(net, x):
    heat = hc.explain(net, x, method="saliency")
    leaf = x.clone().requires_grad_()
    logits = net(leaf)
    (grad,) = torch.autograd.grad(logits.gather(1, logits.argmax(1)[:, None]).sum(), leaf)
    torch.testing.assert_close(heat.values, grad.sum(1))
    assert torch.equal(heat.target, logits.argmax(1))
    assert heat.signed and heat.output == "logit" and heat.status == ("ok",) * 3


def test_explain_takes_one_picture_without_a_batch_axis(net, x):
    torch.testing.assert_close(
        hc.explain(net, x[0], method="saliency").values, hc.explain(net, x, method="saliency").values[:1]
    )


@pytest.mark.parametrize("target", [2, [2, 2, 2], torch.tensor([2, 2, 2])])
def test_the_target_can_be_said_for_all_or_for_each(net, x, target):
    assert hc.explain(net, x, method="saliency", target=target).target.tolist() == [2, 2, 2]


def test_a_target_that_is_no_class_is_an_error(net, x):
    with pytest.raises(hc.HeatcheckError, match=r"target \[7, 7, 7\].*5 classes"):
        hc.explain(net, x, method="saliency", target=7)


def test_score_takes_maps_in_every_form(net, x):
    one, two = (hc.explain(net, x, method=m) for m in ("saliency", "input_x_gradient"))
    stacked = torch.stack([one.values, two.values])
    expected = hc.score(net, x, stacked, metric="sds")
    assert expected.shape == (2, 3) and expected.dtype == torch.float64
    assert torch.equal(hc.score(net, x, [one, two], metric="sds"), expected)
    assert torch.equal(hc.score(net, x, {"a": one, "b": two.values}, metric="sds"), expected)
    assert torch.equal(hc.score(net, x, ["saliency", "input_x_gradient"], metric="sds"), expected)
    assert torch.equal(hc.score(net, x, one, metric="sds"), expected[:1])


def test_an_undefined_score_is_nan(net, x):
    flat = torch.ones(1, 3, 16, 16, dtype=torch.float64)
    assert hc.score(net, x, flat, metric="sds").isnan().all()


def test_nothing_is_written(net, x, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hc.score(net, x, hc.explain(net, x, method="rise(samples=8)"), metric="morf(steps=3)")
    assert list(tmp_path.iterdir()) == []


def test_the_users_model_is_untouched(net, x):
    net.train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    hc.score(net, x, ["grad_cam", "integrated_gradients(steps=2)"], metric="sds")
    assert net.training
    assert all(p.requires_grad and p.grad is None for p in net.parameters())
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert not any(m._forward_hooks for m in net.modules())


def test_a_fill_in_pixel_space_names_what_it_needs(net, x):
    heat = hc.explain(net, x, method="saliency")
    with pytest.raises(hc.HeatcheckError, match="preprocess="):
        hc.score(net, x, heat, metric="sds(fill=black)")
    known = hc.Preprocess(mean=(0.5,) * 3, std=(0.25,) * 3)
    assert hc.score(net, x, heat, metric="sds(fill=black)", preprocess=known).isfinite().all()


def test_a_reference_that_is_missing_is_named(net, x):
    heat = hc.explain(net, x, method="saliency")
    with pytest.raises(hc.NotApplicable, match="reference 'mask'"):
        hc.score(net, x, heat, metric="synscore")
    mask = torch.zeros(3, 16, 16, dtype=torch.bool)
    mask[:, 4:8, 4:8] = True
    assert torch.equal(
        hc.score(net, x, mask.double()[None], metric="synscore", reference=mask), torch.ones(1, 3).double()
    )


def test_explaining_again_needs_a_method_not_a_map(net, x):
    heat = hc.explain(net, x, method="saliency")
    with pytest.raises(hc.NotApplicable, match="passed without a method"):
        hc.score(net, x, heat, metric="ids(update=true, steps=4)")
    assert hc.score(net, x, ["saliency"], metric="ids(update=true, steps=4)").isfinite().all()


def test_a_metric_across_models_says_what_to_use(net, x):
    with pytest.raises(hc.NotApplicable, match="Benchmark"):
        hc.score(net, x, ["saliency"], metric="pscore")


def test_maps_that_do_not_fit_are_refused_with_both_shapes(net, x):
    with pytest.raises(hc.HeatcheckError, match=r"\(3, 3, 16, 16\)"):
        hc.score(net, x, torch.zeros(1, 3, 3, 16, 16), metric="sds")
    with pytest.raises(hc.HeatcheckError, match="2 maps were given for 3 inputs"):
        hc.score(net, x, torch.zeros(1, 2, 16, 16), metric="sds")


def test_maps_of_different_classes_are_refused(net, x):
    maps = [hc.explain(net, x, method="saliency", target=t) for t in (0, 1)]
    with pytest.raises(hc.HeatcheckError, match="different classes"):
        hc.score(net, x, maps, metric="sds")
    with pytest.raises(hc.HeatcheckError, match="explain the classes"):
        hc.score(net, x, maps[:1], metric="sds", target=1)
    assert hc.score(net, x, [m.values for m in maps], metric="sds", target=0).shape == (2, 3)


def test_an_unknown_name_suggests_a_near_one(net, x):
    with pytest.raises(ValueError, match="did you mean saliency"):
        hc.explain(net, x, method="salency")


def test_a_black_box_takes_the_methods_that_ask_only_outputs(x):
    weight = torch.randn(3 * 256, 4, generator=torch.Generator().manual_seed(0))

    def black_box(pixels):
        return pixels.float().flatten(1) @ weight

    heat = hc.explain(black_box, x.float(), method="occlusion")
    torch.testing.assert_close(hc.score(black_box, x.float(), heat, metric="sds"), torch.ones(1, 3).double())
    with pytest.raises(hc.NotApplicable, match="black box"):
        hc.explain(black_box, x.float(), method="saliency")


def test_a_decorated_function_is_a_method_everywhere(net, x, tmp_path):
    @hc.method("gradient_squared")
    def gradient_squared(model, leaf, target, *, power: float = 2.0):
        """The gradient to some power."""
        leaf = leaf.detach().requires_grad_()
        return torch.autograd.grad(model(leaf).gather(1, target[:, None]).sum(), leaf)[0] ** power

    plain = hc.explain(net, x, method="saliency(reduction=mean_square)").values * 3
    torch.testing.assert_close(hc.explain(net, x, method=gradient_squared).values, plain)
    torch.testing.assert_close(hc.explain(net, x, method="gradient_squared(power=2.0)").values, plain)
    bench = hc.Benchmark(models=net, data=x, methods=[gradient_squared, "random"], metrics=["sds"])
    result = bench.run(tmp_path / "r", progress="none")
    assert result.leaderboard().full.filter(method="gradient_squared")["n_ok"].item() == 3
    assert "gradient_squared" in result.report().read_text(encoding="utf-8")


PLUGIN = '''
"""A method and a metric of one's own, in one file."""
from dataclasses import dataclass

import torch

import heatcheck as hc


@hc.method("negative_input", uses=())
@dataclass(frozen=True, kw_only=True, repr=False)
class NegativeInput(hc.Method):
    """Minus the input.

    Cost per sample: nothing.
    """

    def attribute(self, probe, batch):
        return -probe.domain.leaf(batch.x)


@hc.metric("map_mean", better="higher", invariant=())
@dataclass(frozen=True, kw_only=True, repr=False)
class MapMean(hc.Metric):
    """The mean of the map."""

    def score(self, probe, batch, maps):
        return hc.Scores(maps.sites().double().mean(-1))
'''


def test_a_plugin_file_is_listed_run_reported_and_checked(tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    (tmp_path / "texts.csv").write_text("text,label\n")
    line = [sys.executable, "-m", "heatcheck"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    listed = subprocess.run(
        [*line, "list", "methods", "--json", "--plugin", str(plugin)], capture_output=True, text=True, env=env
    )
    assert "negative_input" in {m["id"] for m in json.loads(listed.stdout)}, listed.stderr
    script = f"""
import torch
import heatcheck as hc
from heatcheck.core.plugins import load_plugin
from heatcheck.testing import check_method
from torch import nn
load_plugin({str(plugin)!r})
check_method("negative_input")
torch.manual_seed(0)
net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
bench = hc.Benchmark(models=net, data=torch.randn(5, 3, 8, 8), methods=["negative_input", "random"],
                     metrics=["sds", "map_mean"], plugins=({str(plugin)!r},))
result = bench.run({str(tmp_path / "r")!r}, progress="none")
print(result.failed, result.report())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    failed, page = done.stdout.split()
    assert failed == "0"
    text = Path(page).read_text(encoding="utf-8")
    assert "negative_input" in text and "map_mean" in text


def test_every_public_name_exists():
    for name in hc.__all__:
        assert getattr(hc, name) is not None


def test_importing_heatcheck_imports_no_torch():
    code = "import sys, heatcheck; assert 'torch' not in sys.modules; assert len(sys.modules) < 250"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_random_under_another_label_is_what_methods_are_held_against(net, x, tmp_path):
    """A profile such as m4 calls random `random_7`; the leaderboard's verdicts are the report's."""
    methods = {"S": "saliency", "occ": "occlusion(units=grid(2))", "random_7": "random(grid=7)"}
    bench = hc.Benchmark(models={"net": net}, data=x, methods=methods, metrics=["morf(steps=4)"])
    result = bench.run(tmp_path / "r", batch=4, progress="none")
    verdicts = {row["method"]: row["beats_random"] for row in result.leaderboard().full.to_dicts()}
    assert verdicts["S"] is not None and verdicts["occ"] is not None
    assert result.stats_facts.random == "random_7"


@pytest.mark.parametrize("methods", [["integrated_gradients(steps=2)"], {"IG": "integrated_gradients(steps=2)"}])
def test_nothing_is_ranked_without_random(net, x, tmp_path, methods):
    bench = hc.Benchmark(models={"net": net}, data=x, methods=methods, metrics=["sds(units=grid(2))"])
    assert bench.lacks_random() and not bench.with_random().lacks_random()
    result = bench.run(tmp_path / "r", batch=4, progress="none")
    rows = {row["method"]: row for row in result.leaderboard().full.to_dicts()}
    (own,) = methods
    assert set(rows) == {own, "random"}
    assert rows["random"]["control"] and rows["random"]["rank"] is None
    assert rows[own]["rank"] == 1 and rows[own]["beats_random"] is not None


def test_runtime_options_come_as_one_object_or_by_name(net, x, tmp_path):
    bench = hc.Benchmark(models={"net": net}, data=x, methods=["saliency"], metrics=["sparseness"])
    a = bench.run(tmp_path / "a", runtime=hc.Runtime(batch=2, maps="none", progress="none"))
    b = bench.run(tmp_path / "b", batch=2, maps="none", progress="none")
    assert a.scores()["score"].equals(b.scores()["score"])
    with pytest.raises(ValueError, match=r"no runtime option is called 'worker'; did you mean workers\?"):
        bench.run(tmp_path / "c", worker=2)
    with pytest.raises(ValueError, match="maps = 'all'"):
        bench.run(tmp_path / "c", maps="all")


def test_the_earlier_name_of_the_adapter_stays():
    assert hc.Explained is hc.Model
