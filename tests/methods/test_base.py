"""What the base class does for every method, and what every method does at realistic sizes."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.methods.base import eraser, method
from heatcheck.models.base import CallableModel
from heatcheck.probe.asks import Shape, passes_of
from heatcheck.testing.models import bag_of_words, fill_weights, gap_linear, linear, one_head_attention
from heatcheck.testing.scenes import probe_for, toy_batch

WRAPPED = [
    "smoothgrad(of=occlusion, samples=3)",
    "smoothgrad(of=lime(samples=9), samples=3)",
    "smoothgrad(of=integrated_gradients(steps=4), samples=3)",
    "vargrad(of=smoothgrad(samples=2), samples=3)",
    "occlusion(units=grid(3))",
    "lime(units=grid(3), samples=32)",
    "random(grid=3)",
    "integrated_gradients(steps=7, baseline=channel_mean)",
]


def every_method():
    few = [f"{id}(samples=24)" if "samples" in e.params else id for id, e in catalogue.entries("method").items()]
    return [*few, *WRAPPED]


def explained(lab, spec, model, samples):
    """What a method gives; the contract checks try those that need other networks on toys of their own."""
    try:
        return lab.explain(spec, model, samples)
    except NotApplicable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("spec", every_method())
@pytest.mark.parametrize("make", [gap_linear, one_head_attention])
def test_the_plan_knows_every_pass(spec, make):
    toy = make()
    samples = toy_batch(toy, 5)
    probe = probe_for(toy, forward=3, backward=2)
    try:
        unit = catalogue.build("method", spec).resolve(toy.domain)
        unit(probe, samples)
    except NotApplicable:
        pytest.skip("the method does not exist for this modality")
    foretold = torch.zeros(2, dtype=torch.long)
    for i in range(len(samples)):
        shape = Shape(toy.domain, samples.x.take(slice(i, i + 1)), toy)
        foretold += torch.tensor(passes_of(unit.asks(shape), unit.passes(shape)))
    assert [probe.spent.forwards, probe.spent.backwards] == foretold.tolist()


@pytest.mark.parametrize("spec", every_method())
def test_neighbours_and_order_change_no_bit_at_real_sizes(spec, lab):
    """Float32, odd sizes, many channels: where vectorised sums could group otherwise."""
    net = nn.Sequential(
        nn.Conv2d(3, 36, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(36, 5),
    )  # fmt: skip
    model = lab.wrap(fill_weights(net, 0, torch.float32))
    samples = lab.batch(lab.pictures(5, side=30, dtype=torch.float32), [0, 1, 2, 3, 4])
    together = explained(lab, spec, model, samples)
    assert together.values.dtype == torch.float32
    for rows in ([2], [4, 3, 2, 1, 0], [1, 3]):
        some = lab.explain(spec, model, samples.take(rows))
        assert torch.equal(some.values, together.values[rows])


@pytest.mark.parametrize("spec", every_method())
def test_other_call_sizes_change_rounding_only(spec, lab):
    samples = lab.batch(lab.pictures(3))
    want = explained(lab, spec, lab.network(act=nn.ReLU), samples).values
    for size in (1, 5):
        got = lab.explain(spec, lab.network(act=nn.ReLU), samples, forward=size, backward=size + 1).values
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("spec", every_method())
def test_only_target_free_methods_ignore_the_target(spec, lab):
    samples = lab.batch(lab.pictures(2), [0, 1])
    unit = catalogue.build("method", spec)
    one, other = (explained(lab, unit, lab.network(act=nn.ReLU), replace(samples, target=t)).values for t in (
        torch.tensor([0, 1]), torch.tensor([1, 2])
    ))  # fmt: skip
    assert torch.equal(one, other) == ("target_free" in unit.facts["properties"])


@pytest.mark.parametrize("spec", ["integrated_gradients(baseline=uniform)", "lime(fill=uniform, samples=20)",
                                  "rise(fill=uniform, samples=20)", "smoothgrad", "random"])  # fmt: skip
def test_another_seed_draws_anew(spec, lab):
    x = lab.pictures(2)
    a, b = (lab.explain(spec, lab.network(), lab.batch(x, seed=seed)).values for seed in (0, 1))
    assert not torch.isclose(a, b).all(-1).any()


def test_a_methods_random_fill_is_not_the_one_that_metrics_delete_with(lab):
    samples = lab.batch(lab.pictures(2))
    probe = probe_for(lab.wrap(lab.network()))
    nothing = torch.zeros(2, 64, dtype=torch.bool)
    own = eraser(probe, samples, "uniform")(torch.arange(2), nothing)["pixels"]
    theirs = catalogue.build("fill", "uniform").full(probe.domain, samples)["pixels"]
    assert not torch.isclose(own, theirs).any()


@pytest.mark.parametrize(("post", "change"), [("abs", torch.abs), ("relu", torch.relu)])
def test_post_comes_after_the_reduction(post, change, lab):
    x = lab.pictures()
    plain = lab.raw("saliency", lab.network(), x)
    got = lab.explain(f"saliency(post={post})", lab.network(), x)
    torch.testing.assert_close(got.values, change(plain.sum(1)))
    assert not got.signed


def test_maps_are_never_coarser_than_float32(lab):
    model = lab.wrap(lab.network(dtype=torch.float32))
    for spec in ("occlusion", "saliency", "rise(samples=4)"):
        assert lab.explain(spec, model, lab.batch(lab.pictures(dtype=torch.float32))).values.dtype == torch.float32
    assert lab.explain("constant", lab.network(), lab.pictures()).values.dtype == torch.float64


@pytest.mark.parametrize("id", ["grad_cam", "rise"])
def test_where_a_method_does_not_exist_it_says_why_and_what_to_try(id):
    toy = bag_of_words()
    with pytest.raises(NotApplicable, match=r"not for text: .*; try \w+"):
        catalogue.build("method", id)(probe_for(toy), toy_batch(toy, 1))


@pytest.mark.parametrize("id", ["saliency", "integrated_gradients", "grad_cam", "smoothgrad"])
def test_black_boxes_have_no_gradients(id, lab):
    box = CallableModel(lambda x: x.flatten(1)[:, :3], "box", lab.wrap(nn.Identity()).domain)
    with pytest.raises(NotApplicable, match="black box"):
        lab.explain(id, box, lab.batch(lab.pictures(1, dtype=torch.float32)))


@pytest.mark.parametrize("spec", ["occlusion", "rise(samples=9)", "lime(samples=9)", "smoothgrad(of=occlusion)"])
def test_black_boxes_can_be_asked(spec, lab):
    box = CallableModel(lambda x: x.flatten(1)[:, :3], "box", lab.wrap(nn.Identity()).domain)
    unit = catalogue.build("method", spec)
    assert unit.uses == ()
    assert lab.explain(unit, box, lab.batch(lab.pictures(1, dtype=torch.float32))).status == ("ok",)


def test_accuracy_cannot_be_explained(lab):
    with pytest.raises(NotApplicable, match="step function"):
        lab.explain("occlusion(output=accuracy)", lab.network(), lab.pictures())


def test_a_function_is_a_method(lab, monkeypatch):
    monkeypatch.setattr(catalogue, "_own", {})

    @method("test_twice_the_gradient")
    def twice(model, x, target, *, times=2.0):
        x = x.detach().requires_grad_()
        return times * torch.autograd.grad(model(x).gather(1, target[:, None]).sum(), x)[0]

    x = lab.pictures(5)
    got = lab.explain("test_twice_the_gradient(times=4.0)", lab.network(), x)
    torch.testing.assert_close(got.values, 4 * lab.explain("saliency", lab.network(), x).values)
    with pytest.raises(SpecError, match="no parameter 'tims'; did you mean times"):
        catalogue.build("method", "test_twice_the_gradient(tims=1)")


def test_a_map_over_units_sums_to_what_each_unit_is_worth():
    toy = linear((3, 10, 10))
    samples = toy_batch(toy, 3)
    probe = probe_for(toy)
    units = probe.units("grid(4)", samples)
    got = catalogue.build("method", "occlusion")(probe, samples)
    worth = units.sum(toy.contributions(samples.x, samples.target).flatten(1))
    torch.testing.assert_close(units.sum(got.values.flatten(1)), worth)
    assert (got.values[:, 8:] == 0).all() and (got.values[:, :, 8:] == 0).all()
