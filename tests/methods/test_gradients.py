"""The gradient and input × gradient, against autograd one picture at a time, Captum and closed forms."""

import pytest
import torch
from captum.attr import InputXGradient, Saliency
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.methods.gradients import Saliency as OurSaliency
from heatcheck.probe.answers import scalar
from heatcheck.testing.models import bag_of_words, bias_free_relu, linear, weights_of
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/gradients.py",
        "probe.domain.leaf(batch.x).detach() * probe.gradient",
        "probe.domain.leaf(batch.x).detach().abs() * probe.gradient",
        "test_one_picture_at_a_time_gives_the_same",
    ),
    (
        "methods/gradients.py",
        "        return probe.gradient(batch, self.output)",
        '        return probe.gradient(batch, "logit")',
        "test_other_outputs_are_differentiated_as_they_are_read",
    ),
)


def test_one_picture_at_a_time_gives_the_same(lab):
    net, x = lab.network(), lab.pictures(5)
    samples = lab.batch(x, [0, 1, 2, 1, 0])
    slow = torch.stack([lab.slope(net, row, t) for row, t in zip(x, samples.target, strict=True)])
    torch.testing.assert_close(lab.raw("saliency", net, samples), slow)
    torch.testing.assert_close(lab.raw("input_x_gradient", net, samples), x * slow)


@pytest.mark.parametrize("act", [nn.Tanh, nn.ReLU])
def test_captum_gives_the_same(lab, act):
    net, samples = lab.network(act=act), lab.batch(lab.pictures(5))
    x = samples.x["pixels"].clone().requires_grad_()
    saliency = Saliency(net).attribute(x, target=samples.target, abs=False)
    product = InputXGradient(net).attribute(x, target=samples.target)
    torch.testing.assert_close(lab.raw("saliency", net, samples), saliency, rtol=1e-5, atol=1e-10)
    torch.testing.assert_close(lab.raw("input_x_gradient", net, samples), product.detach(), rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("output", ["prob", "logprob", "margin"])
def test_other_outputs_are_differentiated_as_they_are_read(lab, output):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    x = samples.x["pixels"].clone().requires_grad_()
    (slow,) = torch.autograd.grad(scalar(net(x), samples.target, output).sum(), x)
    torch.testing.assert_close(lab.raw(f"saliency(output={output})", net, samples), slow)


def test_the_softmax_gradient_mixes_classes(lab):
    """∇p_t = p_t (∇f_t − Σ_k p_k ∇f_k)."""
    net, x = lab.network(), lab.pictures(1)
    p = net(x).softmax(1)[0].detach()
    slopes = torch.stack([lab.slope(net, x[0], k) for k in range(3)])
    want = p[0] * (slopes[0] - (p[:, None, None, None] * slopes).sum(0))
    torch.testing.assert_close(lab.raw("saliency(output=prob)", net, lab.batch(x, [0]))[0], want)


@given(st.integers(0, 10_000))
def test_a_linear_model_gives_its_weights(seed):
    toy = linear(seed=seed)
    samples = toy_batch(toy, 2, seed)
    got = OurSaliency()(probe_for(toy), samples).values
    torch.testing.assert_close(got, weights_of(toy.module(), samples.x, samples.target).sum(1))


@given(st.integers(0, 10_000))
def test_without_biases_input_times_gradient_sums_to_the_score(lab, seed):
    toy = bias_free_relu(seed=seed)
    samples = toy_batch(toy, 2, seed)
    total = lab.explain("input_x_gradient", toy, samples).values.flatten(1).sum(1)
    torch.testing.assert_close(total, probe_for(toy).clean(samples).read("logit"), rtol=1e-9, atol=1e-9)


def test_a_shifted_picture_has_a_shifted_gradient(lab):
    """On a circular network with a pooled head the whole map moves along (M14)."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 3),
    ).double()  # fmt: skip
    x = lab.pictures(2)
    moved = lab.explain("saliency", net, x.roll((3, 2), (2, 3))).values
    torch.testing.assert_close(moved, lab.explain("saliency", net, x).values.roll((3, 2), (1, 2)))


def test_words_get_the_weight_of_their_embedding(lab):
    toy = bag_of_words()
    samples = toy_batch(toy, 4)
    got = lab.explain("input_x_gradient", toy, samples).values
    free = ~samples.x["special"]
    torch.testing.assert_close(got[free], toy.contributions(samples.x, samples.target)[free])


def test_both_ask_for_the_gradient_once(lab):
    probe = probe_for(lab.wrap(lab.network()))
    samples = lab.batch(lab.pictures(3))
    first = OurSaliency()(probe, samples)
    assert probe.spent.backwards == 3
    assert torch.equal(OurSaliency()(probe, samples).values, first.values)
    assert probe.spent.backwards == 3
