"""FullGrad, against the decomposition and the map written out by hand, and the score that all terms must sum to."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.core.types import NotApplicable
from heatcheck.methods.full_grad import Intercepts, decompose
from heatcheck.models.vision_shim import load_timm
from heatcheck.testing.models import bias_free_relu, fill_weights, one_head_attention
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("methods/full_grad.py", "size = values.abs()", "size = values.relu()", "test_the_map_by_hand_is_the_same"),
    ("methods/full_grad.py", "self.note(out, out - slope * x, x)",
     "self.note(out, out + slope * x, x)", "test_the_map_by_hand_is_the_same"),
    ("methods/full_grad.py", "out - moved + out * moved.sum",
     "out + moved + out * moved.sum", "test_the_terms_of_attention_sum_to_the_score_too"),
    ("methods/full_grad.py", "seen.value - (seen.logits * slopes[1])",
     "seen.value + (seen.logits * slopes[1])", "test_all_terms_sum_to_whatever_is_explained"),
)  # fmt: skip


def network(seed=0, act=nn.ReLU):
    """Two convolutions, one of them with batch norm; pooling; a linear head."""
    norm = nn.BatchNorm2d(6)
    norm.running_mean.copy_(torch.linspace(-0.5, 0.5, 6))
    norm.running_var.copy_(torch.linspace(0.5, 2, 6))
    layers = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), norm, act(), nn.MaxPool2d(2), nn.Conv2d(6, 5, 3), act(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3),
    )  # fmt: skip
    return fill_weights(layers, seed, torch.float64).eval()


def slow_terms(net, x, target):
    """Every term of one picture: the input's, then one per layer that has a bias or an intercept."""
    z = [x[None].clone().requires_grad_()]
    for layer in net:
        z.append(layer(z[-1]))
    slopes = torch.autograd.grad(z[-1][0, int(target)], z)
    terms = [z[0] * slopes[0]]
    for layer, before, slope in zip(net, z, slopes[1:], strict=False):
        if isinstance(layer, nn.Conv2d):
            terms.append(layer.bias[:, None, None] * slope)
        elif isinstance(layer, nn.Linear):
            terms.append(layer.bias * slope)
        elif isinstance(layer, nn.BatchNorm2d):
            scale = layer.weight / (layer.running_var + layer.eps).sqrt()
            terms.append((layer.bias - layer.running_mean * scale)[:, None, None] * slope)
        elif isinstance(layer, nn.SiLU):
            gate = before.sigmoid()
            terms.append((before * gate - before * (gate + before * gate * (1 - gate))) * slope)
    return [term.detach() for term in terms]


def slow_map(terms, side):
    """ψ of every term that has places, channel by channel."""
    total = torch.zeros(side, side, dtype=torch.float64)
    for term in terms:
        if term.ndim != 4:
            continue
        size = term[0].abs()
        size = (size - size.min()) / (size.max() - size.min())
        for channel in size:
            up = F.interpolate(channel[None, None], (side, side), mode="bilinear", align_corners=False)
            total += up[0, 0]
    return total


@pytest.mark.parametrize("act", [nn.ReLU, nn.SiLU])
def test_the_map_by_hand_is_the_same(lab, act):
    net, samples = network(act=act), lab.batch(lab.pictures(3))
    want = [slow_map(slow_terms(net, x, t), 8) for x, t in zip(samples.x["pixels"], samples.target, strict=True)]
    got = lab.explain("full_grad", net, samples)
    torch.testing.assert_close(got.values, torch.stack(want), rtol=1e-9, atol=1e-12)
    assert not got.signed


def sums(lab, net, samples, output="logit"):
    """The sum of all unprocessed terms, and of those of the biases alone, for each sample."""

    def read(seen):
        n = len(seen.value)
        parts = [term.values.reshape(n, -1).sum(1) for term in decompose(seen)]
        return torch.stack([sum(parts), sum(parts[1:])], 1)

    model = lab.wrap(net) if isinstance(net, nn.Module) else net
    probe = probe_for(model)
    rows = torch.arange(len(samples))
    found = probe.run_with_rules(samples, rows, samples.x.take, Intercepts, read, output)
    return torch.cat([out for _, out in found]).unbind(1), probe.clean(samples).read(output)


@given(st.integers(0, 10_000), st.sampled_from([nn.ReLU, nn.SiLU, nn.ReLU6, nn.LeakyReLU]))
def test_all_terms_sum_to_the_score(lab, seed, act):
    (total, biases), score = sums(lab, network(seed, act), lab.batch(lab.pictures(2, seed)))
    torch.testing.assert_close(total, score, rtol=1e-9, atol=1e-9)
    assert (biases.abs() > 1e-9).all()


@pytest.mark.parametrize("output", ["prob", "logprob", "margin"])
def test_all_terms_sum_to_whatever_is_explained(lab, output):
    (total, _), score = sums(lab, network(), lab.batch(lab.pictures(2)), output)
    torch.testing.assert_close(total, score, rtol=1e-9, atol=1e-9)


ARCHITECTURES = {
    "residual": ("test_resnet", 64, {}),
    "squeeze and excitation": ("mobilenetv3_small_050", 64, {}),
    "dense": ("densenet121", 32, {"block_config": (2, 2), "growth_rate": 8}),
    "layer norm": ("test_convnext", 64, {}),
}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_real_architectures_are_complete_and_get_a_map(lab, kind):
    name, side, how = ARCHITECTURES[kind]
    net = fill_weights(load_timm().create_model(name, num_classes=4, **how), 0, torch.float64).eval()
    samples = lab.batch(lab.pictures(2, side=side))
    (total, _), score = sums(lab, net, samples)
    torch.testing.assert_close(total, score, rtol=1e-8, atol=1e-8)
    got = lab.explain("full_grad", net, samples)
    assert got.status == ("ok", "ok") and got.values.shape == (2, side, side) and got.values.std() > 0


def test_the_terms_of_attention_sum_to_the_score_too(lab):
    how = {"img_size": 32, "embed_dim": 16, "depth": 2, "num_heads": 2, "class_token": False, "global_pool": "avg"}
    net = fill_weights(load_timm().create_model("vit_tiny_patch16_224", num_classes=4, **how), 0, torch.float64)
    samples = lab.batch(lab.pictures(2, side=32))
    (total, _), score = sums(lab, net, samples)
    torch.testing.assert_close(total, score, rtol=1e-8, atol=1e-8)
    with pytest.raises(NotApplicable, match="no place in the picture for the biases of tokens; try"):
        lab.explain("full_grad", net, samples)


def test_without_biases_only_the_input_counts(lab):
    toy = bias_free_relu()
    samples = toy_batch(toy, 2)
    size = lab.raw("input_x_gradient", toy, samples).abs()
    low, high = size.amin((1, 2, 3), keepdim=True), size.amax((1, 2, 3), keepdim=True)
    torch.testing.assert_close(lab.explain("full_grad", toy, samples).values, ((size - low) / (high - low)).sum(1))


class ChannelsLast(nn.Module):
    """A pointwise layer that is written as a linear one on the last axis, as in ConvNeXt, or as a convolution."""

    def __init__(self, last):
        super().__init__()
        self.see, self.mix, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 6), nn.Linear(6, 2)
        self.last = last

    def forward(self, x):
        x = self.see(x)
        if self.last:
            x = F.gelu(self.mix(x.permute(0, 2, 3, 1)) + 1).permute(0, 3, 1, 2)
        else:
            x = F.gelu(F.conv2d(x, self.mix.weight[..., None, None], self.mix.bias) + 1)
        return self.head(x.square().mean((2, 3)))


def test_the_order_of_axes_does_not_matter(lab):
    first, last = (fill_weights(ChannelsLast(last), 0, torch.float64) for last in (False, True))
    x = lab.pictures(2)
    torch.testing.assert_close(lab.explain("full_grad", last, x).values, lab.explain("full_grad", first, x).values)


def test_layers_without_contrast_do_not_count(lab):
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)).double()
    with torch.no_grad():
        net[0].bias[:] = -100
    got = lab.explain("full_grad", net, lab.pictures(2))
    assert (got.values == 0).all() and got.status == ("ok", "ok")


class Extra(nn.Module):
    def forward(self, x):
        return torch.cat([x, torch.ones_like(x[:, :1]).detach()], 1)


def test_constants_that_come_in_unseen_are_refused(lab):
    net = nn.Sequential(Extra(), nn.Conv2d(4, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)).double()
    with pytest.raises(NotApplicable, match="its terms do not sum to the score"):
        lab.explain("full_grad", net, lab.pictures(2))


def test_texts_have_no_places(lab):
    toy = one_head_attention()
    with pytest.raises(NotApplicable, match="spatial maps of biases; try"):
        lab.explain("full_grad", toy, toy_batch(toy, 1))
