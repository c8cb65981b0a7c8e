"""DeepLIFT, against the Rescale rule written out by hand, Captum, and sums that must come out exactly."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from captum.attr import DeepLift as Captum
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.types import NotApplicable
from heatcheck.methods.deep_lift import Rescale
from heatcheck.models.vision_shim import load_timm
from heatcheck.testing.models import bias_free_relu, fill_weights, linear, one_head_attention, weights_of
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("methods/deep_lift.py", "a * mean(b) + mean(a) * b",
     "a * b.detach() + a.detach() * b", "test_a_product_counts_each_factor_at_the_mean_of_the_other"),
    ("methods/deep_lift.py", " * multiplier(total, level, 1 / total)", " / total", "test_softmax_step_by_step"),
    ("methods/deep_lift.py", "torch.where(change >= 0, signal",
     "torch.where(change <= 0, signal", "test_the_rule_by_hand_gives_the_same"),
    ("methods/deep_lift.py", "seen.leaf[:n] - seen.leaf[n:]",
     "seen.leaf[:n] + seen.leaf[n:]", "test_the_rule_by_hand_gives_the_same"),
)  # fmt: skip


def slow(net, x, start, target):
    """One picture through a chain of layers: forwards twice, then multipliers from the score to the picture."""
    inputs, baselines = [x[None]], [start[None]]
    for layer in net:
        inputs.append(layer(inputs[-1]).detach())
        baselines.append(layer(baselines[-1]).detach())
    m = F.one_hot(torch.tensor([int(target)]), inputs[-1].shape[1]).to(x.dtype)
    for i in reversed(range(len(net))):
        z, z0, y, y0 = inputs[i], baselines[i], inputs[i + 1], baselines[i + 1]
        if isinstance(net[i], nn.MaxPool2d):
            m = slow_max_pool(net[i], m[0], z[0], z0[0])[None]
        elif isinstance(net[i], nn.Conv2d | nn.Linear | nn.Flatten):
            leaf = z.clone().requires_grad_()
            (m,) = torch.autograd.grad(net[i](leaf), leaf, m)
        else:
            m = m * (y - y0) / (z - z0)
    return (x - start) * m[0]


def slow_max_pool(pool, m, z, z0):
    """Window by window: the change goes to the place of the larger maximum."""
    out = torch.zeros_like(z)
    _, rows, columns = m.shape
    for c in range(len(z)):
        for row in range(rows):
            for column in range(columns):
                top, left = row * pool.stride - pool.padding, column * pool.stride - pool.padding
                window = [
                    (i, j)
                    for i in range(top, top + pool.kernel_size)
                    for j in range(left, left + pool.kernel_size)
                    if 0 <= i < z.shape[1] and 0 <= j < z.shape[2]
                ]
                now, before = (max(window, key=lambda p, of=of: of[c, p[0], p[1]]) for of in (z, z0))
                change = z[c][now] - z0[c][before]
                place = now if change >= 0 else before
                out[c][place] += m[c, row, column] * change / (z[c][place] - z0[c][place])
    return out


def pooled(seed=0, act=nn.ReLU):
    """Max-pooling with overlap, between activations."""
    layers = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), act(), nn.MaxPool2d(3, 2, padding=1), nn.Conv2d(6, 5, 3), act(),
        nn.Flatten(), nn.Linear(20, 8), act(), nn.Linear(8, 3),
    )  # fmt: skip
    return fill_weights(layers, seed, torch.float64)


def change(net, samples, start, output=lambda logits, t: logits.gather(1, t[:, None])[:, 0]):
    with torch.no_grad():
        return output(net(samples.x["pixels"]), samples.target) - output(net(start), samples.target)


@pytest.mark.parametrize("act", [nn.ReLU, nn.Tanh, nn.GELU])
def test_the_rule_by_hand_gives_the_same(lab, act):
    """A baseline of colours, because with a black one everything is tied."""
    net, samples = pooled(act=act), lab.batch(lab.pictures(3))
    apart = replace(samples, streams=samples.streams.derive("method"))
    start = catalogue.build("fill", "uniform").full(lab.wrap(net).domain, apart)["pixels"]
    want = [slow(net, *row) for row in zip(samples.x["pixels"], start, samples.target, strict=True)]
    got = lab.raw("deep_lift(baseline=uniform)", net, samples)
    torch.testing.assert_close(got, torch.stack(want), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("act", [nn.ReLU, nn.Tanh, nn.Softplus])
def test_captum_gives_the_same(lab, act):
    """Pools stand apart from activations and their windows do not overlap: else Captum 0.9 itself does not sum up.

    Next to an activation one of the two rules is lost, and of windows that share a maximum it keeps one.
    """
    layers = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), act(), nn.Conv2d(6, 6, 1), nn.MaxPool2d(2), nn.Conv2d(6, 5, 3), act(),
        nn.Flatten(), nn.Linear(20, 8), act(), nn.Linear(8, 3),
    )  # fmt: skip
    net, samples = fill_weights(layers, 0, torch.float64), lab.batch(lab.pictures(3))
    x = samples.x["pixels"]
    with pytest.warns(UserWarning, match="Setting forward, backward hooks"):
        want = Captum(net).attribute(x.clone().requires_grad_(), torch.zeros_like(x), target=samples.target)
    torch.testing.assert_close(lab.raw("deep_lift", net, samples), want.detach(), rtol=1e-8, atol=1e-10)


@given(st.integers(0, 10_000), st.sampled_from(["zero", "channel_mean"]), st.sampled_from([nn.ReLU, nn.SiLU]))
def test_maps_sum_to_the_change_in_output(lab, seed, baseline, act):
    net, samples = pooled(seed, act), lab.batch(lab.pictures(2, seed))
    start = catalogue.build("fill", baseline).full(lab.wrap(net).domain, samples)["pixels"]
    total = lab.raw(f"deep_lift(baseline={baseline})", net, samples).flatten(1).sum(1)
    torch.testing.assert_close(total, change(net, samples, start), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("output", ["logit", "prob", "logprob", "margin"])
def test_maps_sum_to_the_change_of_whatever_is_explained(lab, output):
    model, samples = lab.wrap(pooled()), lab.batch(lab.pictures(3))
    probe = probe_for(model)
    total = catalogue.build("method", f"deep_lift(output={output})")(probe, samples).values.flatten(1).sum(1)
    want = probe.clean(samples).read(output) - probe.deleted(samples, "zero").read(output)
    torch.testing.assert_close(total, want, rtol=1e-8, atol=1e-10)


ARCHITECTURES = {
    "residual": ("test_resnet", 64, {}),
    "squeeze and excitation": ("mobilenetv3_small_050", 64, {}),
    "dense": ("densenet121", 32, {"block_config": (2, 2), "growth_rate": 8}),
    "layer norm": ("test_convnext", 64, {}),
    "attention": ("vit_tiny_patch16_224", 32, {"img_size": 32, "embed_dim": 16, "depth": 2, "num_heads": 2}),
    "windows": ("swin_tiny_patch4_window7_224", 56,
                {"img_size": 56, "depths": (1, 2), "embed_dim": 16, "num_heads": (2, 2)}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_maps_sum_to_the_change_on_every_architecture(lab, kind):
    name, side, how = ARCHITECTURES[kind]
    net = fill_weights(load_timm().create_model(name, num_classes=4, **how), 0, torch.float64).eval()
    samples = lab.batch(lab.pictures(2, side=side))
    x = samples.x["pixels"]
    total = lab.raw("deep_lift", net, samples).flatten(1).sum(1)
    want = change(net, samples, torch.zeros_like(x))
    assert want.abs().min() > 1e-6
    torch.testing.assert_close(total, want, rtol=1e-8, atol=1e-10)


def test_scores_that_hardly_change_are_no_reason_to_refuse(lab):
    """In single precision a change far below the score is all rounding."""
    net = lab.network(dtype=torch.float32)
    with torch.no_grad():
        net[5].bias += 1000
        net[5].weight *= 1e-3
    assert lab.explain("deep_lift", net, lab.pictures(2, dtype=torch.float32)).status == ("ok", "ok")


def test_texts_keep_their_special_tokens(lab):
    toy = one_head_attention()
    samples = toy_batch(toy, 4)
    probe = probe_for(toy)
    got = catalogue.build("method", "deep_lift")(probe, samples).values
    assert (got[samples.x["special"]] == 0).all()
    want = probe.clean(samples).read("logit") - probe.deleted(samples, "zero").read("logit")
    torch.testing.assert_close(got.sum(1), want, rtol=1e-9, atol=1e-9)


def test_a_linear_model_gives_weight_times_way(lab):
    toy = linear()
    samples = toy_batch(toy, 3)
    want = weights_of(toy.module(), samples.x, samples.target) * samples.x["pixels"]
    torch.testing.assert_close(lab.raw("deep_lift", toy, samples), want)


def test_without_biases_it_is_input_times_gradient(lab):
    toy = bias_free_relu()
    samples = toy_batch(toy, 3)
    want = lab.raw("input_x_gradient", toy, samples)
    torch.testing.assert_close(lab.raw("deep_lift", toy, samples), want)


def test_where_the_input_is_the_baseline_there_is_nothing(lab):
    x = lab.pictures(2)
    x[:, :, 2:4] = 0
    got = lab.raw("deep_lift", lab.network(), x)
    assert (got[:, :, 2:4] == 0).all() and (got[:, :, :2] != 0).all()
    same = lab.explain("deep_lift", lab.network(), torch.zeros_like(x))
    assert (same.values == 0).all() and same.status == ("ok", "ok")


# -- the rules, one by one ------------------------------------------------------------------------------------------


def multipliers(operation, x, start):
    """Multipliers of each result (rows) for each input (columns), for one vector and its baseline."""
    both = torch.stack([x, start]).requires_grad_()
    with Rescale():
        out = operation(both)[0]
    return torch.stack([torch.autograd.grad(o, both, retain_graph=True)[0][0] for o in out.flatten()])


def vectors(n=5):
    rng = torch.Generator().manual_seed(3)
    return torch.randn(2, n, generator=rng, dtype=torch.float64)


def test_a_product_counts_each_factor_at_the_mean_of_the_other():
    x, start = torch.tensor([3.0, 5.0]), torch.tensor([1.0, -1.0])
    got = multipliers(lambda t: t[:, :1] * t[:, 1:], x, start)
    assert got.tolist() == [[(5 - 1) / 2, (3 + 1) / 2]]


def test_a_matrix_product_does_so_too():
    x, start = vectors(6)

    def operation(t):
        return t[:, :4].reshape(-1, 2, 2) @ t[:, 4:].reshape(-1, 2, 1)

    middle = (x + start) / 2
    want = torch.zeros(2, 6, dtype=torch.float64)
    for row in range(2):
        for k in range(2):
            want[row, 2 * row + k] = middle[4 + k]
            want[row, 4 + k] = middle[2 * row + k]
    torch.testing.assert_close(multipliers(operation, x, start), want)


def test_layer_norm_step_by_step():
    x, start = vectors()
    n, eps = len(x), 1e-3
    c, c0 = x - x.mean(), start - start.mean()
    v, v0 = c.square().mean() + eps, c0.square().mean() + eps
    root = (v**-0.5 - v0**-0.5) / (v - v0)
    want = torch.zeros(n, n, dtype=torch.float64)
    for out in range(n):
        for i in range(n):
            centred = [(k == i) - 1 / n for k in range(n)]
            variance = sum((c[k] + c0[k]) * centred[k] for k in range(n)) / n
            want[out, i] = (v**-0.5 + v0**-0.5) / 2 * centred[out] + (c[out] + c0[out]) / 2 * root * variance
    torch.testing.assert_close(multipliers(lambda t: F.layer_norm(t, (n,), eps=eps), x, start), want)


def test_softmax_step_by_step():
    x, start = vectors()
    n = len(x)
    e, e0 = x.exp(), start.exp()
    p, p0 = e / e.sum(), e0 / e0.sum()
    log = (e.sum().log() - e0.sum().log()) / (e.sum() - e0.sum())
    want = torch.zeros(n, n, dtype=torch.float64)
    for out in range(n):
        outer = (p[out] - p0[out]) / (p[out].log() - p0[out].log())
        for i in range(n):
            want[out, i] = outer * (int(out == i) - log * (e[i] - e0[i]) / (x[i] - start[i]))
    torch.testing.assert_close(multipliers(lambda t: t.softmax(-1), x, start), want)


def test_softmax_survives_masks_and_large_numbers():
    x, start = torch.tensor([900.0, -torch.inf, 3.0, 0.0]), torch.tensor([-900.0, -torch.inf, 5.0, 0.0])
    got = multipliers(lambda t: t.softmax(-1), x.double(), start.double())
    assert torch.isfinite(got).all() and (got[:, 1] == 0).all() and (got[1] == 0).all()
    way = torch.tensor([1800.0, 0.0, -2.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(got @ way, x.double().softmax(0) - start.double().softmax(0))


def test_where_nothing_changes_multipliers_are_derivatives():
    x = vectors()[0]
    want = torch.func.jacrev(lambda t: F.gelu(F.layer_norm(t, (5,))).softmax(0))(x)
    torch.testing.assert_close(multipliers(lambda t: F.gelu(F.layer_norm(t, (5,))).softmax(-1), x, x.clone()), want)


# -- networks it cannot follow ---------------------------------------------------------------------------------------


class SamplesLast(nn.Module):
    def forward(self, x):
        return x.movedim(0, -1).tanh().movedim(-1, 0)


class Detached(nn.Module):
    def forward(self, x):
        return x + x.detach().square()


@pytest.mark.parametrize("layer", [SamplesLast(), Detached()])
def test_sums_that_do_not_come_out_are_refused(lab, layer):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), layer, nn.Flatten(), nn.Linear(144, 2)).double()
    with pytest.raises(NotApplicable, match="contributions do not sum to the change in output"):
        lab.explain("deep_lift", net, lab.pictures(2))
