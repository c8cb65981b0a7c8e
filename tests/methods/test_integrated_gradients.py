"""Integrated gradients, against the definition, Captum and the axioms."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients as Captum
from captum.attr import LayerIntegratedGradients
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Sample, digest_of
from heatcheck.methods.integrated_gradients import QUADRATURES, nodes
from heatcheck.testing.models import bias_free_relu, one_head_attention
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/integrated_gradients.py",
        "return way * slope",
        "return way.abs() * slope",
        "test_a_linear_model_needs_no_steps",
    ),
    (
        "methods/integrated_gradients.py",
        "(place + 1) / 2, weight / 2",
        "(place + 1) / 2, weight",
        "test_quadratures_by_hand",
    ),
    ("methods/integrated_gradients.py", "weight[[0, -1]] /= 2", "weight[[0]] /= 2", "test_quadratures_by_hand"),
    (
        "methods/integrated_gradients.py",
        "return total / self.baselines",
        "return total",
        "test_the_first_of_several_baselines_is_the_single_one",
    ),
)


def slow(lab, net, x, start, target, places, weights):
    """One picture, one step after the other."""
    total = torch.zeros_like(x)
    for place, weight in zip(places, weights, strict=True):
        total += weight * lab.slope(net, start + place * (x - start), target)
    return (x - start) * total


@pytest.mark.parametrize("quadrature", QUADRATURES)
@pytest.mark.parametrize("steps", [2, 7])
def test_one_step_at_a_time_gives_the_same(lab, quadrature, steps):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    x = samples.x["pixels"]
    start = x.mean((2, 3), keepdim=True).expand_as(x)
    want = [slow(lab, net, *row, *nodes(quadrature, steps)) for row in zip(x, start, samples.target, strict=True)]
    spec = f"integrated_gradients(steps={steps}, quadrature={quadrature}, baseline=channel_mean)"
    torch.testing.assert_close(lab.raw(spec, net, samples), torch.stack(want))


def test_quadratures_by_hand():
    places, weights = nodes("gauss_legendre", 2)
    np.testing.assert_allclose(places, 0.5 + np.array([-1, 1]) / np.sqrt(12))
    np.testing.assert_allclose(weights, [0.5, 0.5])
    np.testing.assert_allclose(nodes("trapezoid", 3), [[0, 0.5, 1], [0.25, 0.5, 0.25]])
    np.testing.assert_allclose(nodes("riemann_middle", 2), [[0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_allclose(nodes("linspace_n", 3), [[0, 0.5, 1], [1 / 3, 1 / 3, 1 / 3]])


@pytest.mark.parametrize("act", [nn.Tanh, nn.ReLU])
def test_captum_gives_the_same(lab, act):
    net, samples = lab.network(act=act), lab.batch(lab.pictures(3))
    want = Captum(net).attribute(samples.x["pixels"], target=samples.target, n_steps=50, method="gausslegendre")
    torch.testing.assert_close(lab.raw("integrated_gradients", net, samples), want, rtol=1e-5, atol=1e-10)


@given(st.integers(0, 10_000), st.sampled_from(["zero", "channel_mean", "uniform"]))
def test_maps_sum_to_the_change_in_output(lab, seed, baseline):
    net, samples = lab.network(seed), lab.batch(lab.pictures(2, seed))
    component = catalogue.build("method", "integrated_gradients", baseline=baseline)
    model = lab.wrap(net)
    total = component(probe_for(model), samples).values.flatten(1).sum(1)
    apart = replace(
        samples, streams=replace(samples.streams, digests=tuple(f"{d}|method" for d in samples.streams.digests))
    )
    start = catalogue.build("fill", baseline).full(model.domain, apart)["pixels"]
    with torch.no_grad():
        change = (net(samples.x["pixels"]) - net(start)).gather(1, samples.target[:, None])[:, 0]
    torch.testing.assert_close(total, change, rtol=1e-8, atol=1e-8)


def drawn(samples, k, make):
    """Baseline number `k` of each sample, by the generator that belongs to it."""
    name = "|method" if k == 0 else f"|baseline {k}|method"
    return samples.streams.derive(name[1:]).draw("fill", make)


@pytest.mark.parametrize("baseline", ["noise", "uniform"])
def test_several_baselines_are_averaged(lab, baseline):
    """M4's IG: Gaussian baselines, both ends included, each point weighing the same."""
    net, samples = lab.network(), lab.batch(lab.pictures(2))

    def make(rng):
        draw = torch.randn if baseline == "noise" else torch.rand
        values = draw(3, 8, 8, generator=rng, dtype=torch.float64)
        return values if baseline == "noise" else 2 * values - 1

    want = torch.zeros_like(samples.x["pixels"])
    for k in range(3):
        start = drawn(samples, k, make)
        for i, x in enumerate(samples.x["pixels"]):
            want[i] += slow(lab, net, x, start[i], samples.target[i], *nodes("linspace_n", 4)) / 3
    spec = f"integrated_gradients(baseline={baseline}, baselines=3, steps=4, quadrature=linspace_n)"
    torch.testing.assert_close(lab.raw(spec, net, samples), want)


def test_the_first_of_several_baselines_is_the_single_one(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    one, two = (lab.raw(f"integrated_gradients(steps=3, baseline=noise, baselines={n})", net, samples) for n in (1, 2))
    apart = replace(samples, streams=samples.streams.derive("baseline 1"))
    second = lab.raw("integrated_gradients(steps=3, baseline=noise)", net, apart)
    torch.testing.assert_close(two, (one + second) / 2)
    assert not torch.allclose(one, second)


def test_a_shared_baseline_is_one_picture_for_all(lab):
    """IDSDS's IG-U: on a linear model x - map/w is the baseline itself."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).double()
    samples = lab.batch(lab.pictures(3))

    def baselines(spec, part):
        weights = net[1].weight[part.target].detach().reshape(part.x["pixels"].shape)
        return part.x["pixels"] - lab.raw(f"integrated_gradients(steps=2, {spec})", net, part) / weights

    found = baselines("baseline=uniform(shared=true)", samples)
    torch.testing.assert_close(found, found[:1].expand_as(found))
    torch.testing.assert_close(baselines("baseline=uniform(shared=true)", samples.take([2])), found[2:])
    metric = catalogue.build("fill", "uniform(shared=true)").full(lab.wrap(net).domain, samples)["pixels"]
    assert found.abs().max() <= 1 + 1e-9 and not torch.allclose(found, metric)
    again = baselines("baseline=uniform(shared=true)", replace(samples, streams=replace(samples.streams, seed=1)))
    assert not torch.allclose(found, again)
    mean = baselines("baseline=uniform(shared=true), baselines=4", samples)
    torch.testing.assert_close(mean, mean[:1].expand_as(mean))
    assert not torch.allclose(mean, found)


def test_each_quadrature_is_as_complete_as_it_can_be(lab):
    """The error on a smooth network at 50 steps: nothing, O(1/n²) twice, O(1/n)."""
    net, samples = lab.network(), lab.batch(lab.pictures(4))
    with torch.no_grad():
        x = samples.x["pixels"]
        change = (net(x) - net(0 * x)).gather(1, samples.target[:, None])[:, 0]
    worst = {}
    for quadrature in QUADRATURES:
        total = lab.explain(f"integrated_gradients(quadrature={quadrature})", net, samples).values.flatten(1).sum(1)
        worst[quadrature] = float((total - change).abs().max())
    assert worst["gauss_legendre"] < 1e-10 < worst["riemann_middle"] < worst["trapezoid"] < 2e-3
    assert worst["linspace_n"] > 5 * worst["trapezoid"]


def test_where_the_input_is_the_baseline_there_is_nothing(lab):
    x = lab.pictures(2)
    x[:, :, 2:4] = 0
    got = lab.raw("integrated_gradients(steps=5)", lab.network(), x)
    assert (got[:, :, 2:4] == 0).all() and (got[:, :, :2] != 0).all()


def test_without_biases_it_is_input_times_gradient(lab):
    toy = bias_free_relu()
    samples = toy_batch(toy, 3)
    want = lab.explain("input_x_gradient", toy, samples).values
    torch.testing.assert_close(lab.explain("integrated_gradients(steps=3)", toy, samples).values, want)


@pytest.mark.parametrize("quadrature", QUADRATURES)
def test_a_linear_model_needs_no_steps(lab, quadrature):
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).double()
    samples = lab.batch(lab.pictures(3))
    x = samples.x["pixels"]
    want = net[1].weight[samples.target].detach().reshape(x.shape) * (x - x.mean((2, 3), keepdim=True))
    got = lab.raw(f"integrated_gradients(steps=2, quadrature={quadrature}, baseline=channel_mean)", net, samples)
    torch.testing.assert_close(got, want)


def test_special_tokens_of_a_text_stay(lab):
    toy = one_head_attention()
    samples = toy_batch(toy, 4)
    probe = probe_for(toy)
    got = catalogue.build("method", "integrated_gradients")(probe, samples).values
    assert (got[samples.x["special"]] == 0).all()
    change = probe.clean(samples).read("logit") - probe.deleted(samples, "zero").read("logit")
    torch.testing.assert_close(got.sum(1), change, rtol=1e-9, atol=1e-9)


def test_memory_does_not_grow_with_the_steps(lab):
    """No call to the model is larger than the micro-batch, whatever the number of steps."""
    seen = []
    net = lab.network()
    model = lab.wrap(net)
    model.module().register_forward_hook(lambda _m, args, _o: seen.append(len(args[0])))
    lab.explain("integrated_gradients(steps=33)", model, lab.pictures(2), backward=4)
    assert set(seen) == {4} and len(seen) == 17


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("integrated_gradients(quadrature=simpson)", "not one of gauss_legendre"),
        ("integrated_gradients(quadrature=trapezoid, steps=1)", "steps=2 or more"),
        ("integrated_gradients(steps=0)", "at least 1"),
        ("integrated_gradients(baselines=0, baseline=noise)", "baselines=0 must be at least 1"),
        ("integrated_gradients(baselines=10)", "baseline=zero would repeat one baseline"),
    ],
)
def test_mistakes_are_named(spec, match):
    with pytest.raises(SpecError, match=match):
        catalogue.build("method", spec)


@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "Roberta"])
def test_captum_at_the_word_embeddings_gives_the_same(text_model, kind):
    """Their baseline is made of token ids, so the embedding of padding is set to zero here."""
    model = text_model(kind)
    network = model.module()
    words = network.get_input_embeddings()
    with torch.no_grad():
        words.weight[model.domain.pad] = 0
    samples = [Sample(t, digest_of(t), t) for t in ("The film was good, good films!", "It is bad.")]
    got = [hc.explain(model, s.content, method="integrated_gradients(steps=20)", target=1).values for s in samples]

    def logit(ids, attention):
        return network(input_ids=ids, attention_mask=attention).logits

    for sample, mine in zip(samples, got, strict=True):
        x = model.encode(sample)
        baseline = torch.where(x["special"], x["ids"], model.domain.pad)
        theirs = LayerIntegratedGradients(logit, words).attribute(
            x["ids"], baseline, target=1, additional_forward_args=(x["attention"],), n_steps=20
        )
        want = theirs.sum(-1).detach().double()
        assert want.abs().max() > 1e-3
        torch.testing.assert_close(mine.double(), want, rtol=1e-5, atol=1e-5 * float(want.abs().max()))
