"""Grad-CAM, against its formula in loops, Captum, and the network on which it is exact."""

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from captum.attr import LayerGradCam
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.testing.models import gap_linear, linear
from heatcheck.testing.scenes import probe_for, toy_batch
from heatcheck.testing.watch import state_of
from heatcheck.types import HeatcheckError, NotApplicable


def slow_cam(net, cut, x, target):
    """The paper's two equations, channel by channel; `cut` is the layer's place in the sequence."""
    maps = net[: cut + 1](x[None]).detach().requires_grad_()
    net[cut + 1 :](maps)[0, target].backward()
    cam = torch.zeros(maps.shape[2:], dtype=x.dtype)
    for k in range(maps.shape[1]):
        cam += maps.grad[0, k].mean() * maps[0, k].detach()
    return cam


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_the_formula_gives_the_same(lab, cut):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    want = torch.stack([slow_cam(net, cut, x, t) for x, t in zip(samples.x["pixels"], samples.target, strict=True)])
    got = lab.explain(f"grad_cam(layer=_{cut}, relu=false)", named(net), samples)
    torch.testing.assert_close(got.values, want)
    assert got.signed
    positive = lab.explain(f"grad_cam(layer=_{cut})", named(net), samples)
    torch.testing.assert_close(positive.values, F.relu(want))
    assert not positive.signed


def named(net):
    """The same layers under names that a spec can hold."""
    return nn.Sequential(OrderedDict((f"_{k}", m) for k, m in net.named_children()))


def test_auto_is_the_last_feature_map(lab):
    net, x = lab.network(), lab.pictures()
    got = lab.explain("grad_cam", named(net), x).values
    assert torch.equal(got, lab.explain("grad_cam(layer=_3)", named(net), x).values)
    assert got.shape == (3, 4, 4)


@pytest.mark.parametrize("act", [nn.Tanh, nn.ReLU])
def test_captum_gives_the_same(lab, act):
    net, samples = lab.network(act=act), lab.batch(lab.pictures(3))
    want = LayerGradCam(net, net[3]).attribute(samples.x["pixels"], target=samples.target, relu_attributions=False)
    got = lab.explain("grad_cam(relu=false)", net, samples).values
    torch.testing.assert_close(got, want[:, 0].detach(), rtol=1e-5, atol=1e-10)


@given(st.integers(0, 10_000))
def test_with_a_pooled_head_it_sums_to_the_score_without_its_bias(lab, seed):
    toy = gap_linear(seed=seed)
    samples = toy_batch(toy, 2, seed)
    total = lab.explain("grad_cam(relu=false)", toy, samples).values.flatten(1).sum(1)
    bias = toy.module().get_parameter("4.bias")[samples.target]
    torch.testing.assert_close(total, probe_for(toy).clean(samples).read("logit") - bias)


def test_scaling_a_layer_against_its_head_changes_nothing(lab):
    toy = gap_linear()

    def rescale(net):
        with torch.no_grad():
            net[0].weight *= 4
            net[0].bias *= 4
            net[4].weight /= 4
        return net

    samples = toy_batch(toy, 2)
    other = toy.with_network(rescale, "rescaled")
    torch.testing.assert_close(
        lab.explain("grad_cam", other, samples).values, lab.explain("grad_cam", toy, samples).values
    )


def test_a_class_that_everything_speaks_against_gets_an_empty_map(lab):
    def against(net):
        with torch.no_grad():
            net[4].weight[:] = -net[4].weight.abs()
        return net

    toy = gap_linear().with_network(against, "against")
    got = lab.explain("grad_cam", toy, toy_batch(toy, 2))
    assert (got.values == 0).all() and got.status == ("ok", "ok")


def test_layers_before_in_place_activations_can_be_looked_at(lab):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    other = nn.Sequential(*(nn.ReLU() if isinstance(m, nn.ReLU) else m for m in net))
    x = lab.pictures(2)
    a, b = (lab.explain("grad_cam(layer=_0, relu=false)", named(n.double()), x).values for n in (net, other))
    assert torch.equal(a, b) and a.min() < 0


def test_layers_that_are_not_there_are_answered_with_those_that_are(lab):
    with pytest.raises(HeatcheckError, match=r"no feature map at layer='_33'; did you mean _3"):
        lab.explain("grad_cam(layer=_33)", named(lab.network()), lab.pictures())


def test_models_without_feature_maps_are_told_what_to_try(lab):
    toy = linear()
    with pytest.raises(NotApplicable, match=r"spatial feature map, and linear has none; try"):
        lab.explain("grad_cam", toy, toy_batch(toy, 1))


def test_a_head_that_fails_leaves_no_hook(lab):
    class Fails(nn.Module):
        broken = False

        def forward(self, x):
            if self.broken and x.requires_grad:
                raise RuntimeError("on purpose")
            return x

    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), Fails(), nn.Flatten(), nn.Linear(4, 2)).double()
    model = lab.wrap(net)
    before = state_of(model.module())
    Fails.broken = True
    with pytest.raises(RuntimeError, match="on purpose"):
        lab.explain("smoothgrad(of=grad_cam, samples=2)", model, lab.pictures(1))
    assert state_of(model.module()) == before


def test_layers_are_looked_for_once(lab):
    seen = []
    model = lab.wrap(lab.network())
    model.module().register_forward_hook(lambda _m, args, _o: seen.append(len(args[0])))
    lab.explain("smoothgrad(of=grad_cam, samples=8)", model, lab.pictures(2), backward=4)
    assert seen == [1, 4, 4, 4, 4]
