"""Transformer attribution, against relevance handed back module by module."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.types import NotApplicable
from heatcheck.methods.relevance import ratio
from heatcheck.testing.models import fill_weights, linear, one_head_attention
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("methods/transformer_attribution.py", "(s * r).relu().mean(1)",
     "(s * r).abs().mean(1)", "test_module_by_module_gives_the_same"),
    ("methods/transformer_attribution.py", "alpha_beta(1.0, 0.0, bias=False)",
     "alpha_beta(1.0, 0.0)", "test_module_by_module_gives_the_same"),
    ("methods/transformer_attribution.py", "ratio(torch.ones_like(logit), logit.detach())",
     "torch.ones_like(logit)", "test_the_sign_of_the_score_does_not_turn_relevance"),
)  # fmt: skip

HEADS = 2


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.fc1, self.fc2 = nn.Linear(size, 8), nn.Linear(8, size)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Vision(nn.Module):
    """A vision transformer: patches of 4 × 4, a class token, blocks, a norm, a linear head."""

    def __init__(self, size=6, depth=2):
        super().__init__()
        self.patch = nn.Conv2d(3, size, 4, stride=4)
        self.token, self.place = nn.Parameter(torch.empty(1, 1, size)), nn.Parameter(torch.empty(1, 5, size))
        self.blocks = nn.ModuleList(Block(size) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, 3)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def vision(seed=0):
    return fill_weights(Vision(), seed, torch.float64)


# -- relevance itself ----------------------------------------------------------------------------------------------


def slow_linear(layer, x, r):
    """z⁺ without the bias, over all pairs of input and output."""
    c = (x[:, :, None] * layer.weight.T[None]).clamp(min=0)
    return (ratio(c, c.sum(1, keepdim=True)) * r[:, None]).sum(2)


def slow_sum(a, b, r):
    """In proportion; then both parts scaled to the share that their sums' sizes have."""
    parts = a / (a + b) * r, b / (a + b) * r
    sums = [p.sum() for p in parts]
    size = sum(s.abs() for s in sums)
    return [ratio(p, s) * ratio(s.abs(), size) * r.sum() for p, s in zip(parts, sums, strict=True)]


def slow_product(a, b, r):
    """Half to each side, entry by entry."""
    shares = a[:, :, None] * b[None] * (r / (a @ b))[:, None] / 2
    return shares.sum(2), shares.sum(0)


def slow(net, x, target, start):
    """One picture: relevance and gradient of every attention, then the product of layers."""
    x = net.patch(x[None]).flatten(2).transpose(1, 2)
    x = (torch.cat([net.token, x], 1) + net.place)[0]
    saved = []
    for block in net.blocks:
        s = {"x": x, "normed": block.norm1(x)}
        qkv = block.qkv(s["normed"])
        size = qkv.shape[-1] // 3
        d = size // HEADS
        s["parts"] = [[qkv[:, i * size + h * d :][:, :d] for i in range(3)] for h in range(HEADS)]
        s["scores"] = [q @ k.T / d**0.5 for q, k, _ in s["parts"]]
        s["weights"] = [t.softmax(-1) for t in s["scores"]]
        s["mixed"] = torch.cat([a @ v for a, (_, _, v) in zip(s["weights"], s["parts"], strict=True)], -1)
        s["out"] = block.proj(s["mixed"])
        s["middle"] = x + s["out"]
        s["normed2"] = block.norm2(s["middle"])
        s["hidden"] = F.gelu(block.fc1(s["normed2"]))
        s["more"] = block.fc2(s["hidden"])
        x = s["middle"] + s["more"]
        saved.append(s)
    last = net.norm(x)[:1]
    slopes = torch.autograd.grad(net.head(last)[0, target], [a for s in saved for a in s["weights"]])

    r = torch.zeros(1, 3, dtype=x.dtype)
    r[0, target] = 1
    r = torch.cat([slow_linear(net.head, last, r), torch.zeros_like(x[1:])])
    layers = []
    for i, (block, s) in reversed(list(enumerate(zip(net.blocks, saved, strict=True)))):
        r_middle, r_more = slow_sum(s["middle"], s["more"], r)
        r_middle = r_middle + slow_linear(block.fc1, s["normed2"], slow_linear(block.fc2, s["hidden"], r_more))
        r_x, r_out = slow_sum(s["x"], s["out"], r_middle)
        r_mixed = slow_linear(block.proj, s["mixed"], r_out)
        r_qkv, bars = torch.zeros(len(x), 3 * size, dtype=x.dtype), []
        for h, ((q, k, v), a) in enumerate(zip(s["parts"], s["weights"], strict=True)):
            r_a, r_v = slow_product(a, v, r_mixed[:, h * d : (h + 1) * d])
            bars.append((slopes[i * HEADS + h] * r_a).clamp(min=0))
            r_q, r_k = slow_product(q, k.T, r_a)
            for j, part in enumerate((r_q, r_k.T, r_v)):
                r_qkv[:, j * size + h * d : j * size + (h + 1) * d] = part
        layers.insert(0, torch.eye(len(x), dtype=x.dtype) + sum(bars) / HEADS)
        r = r_x + slow_linear(block.qkv, s["normed"], r_qkv)
    product = torch.eye(len(x), dtype=x.dtype)
    for layer in layers[start:]:
        product = layer @ product
    return product[0, 1:].reshape(2, 2).detach()


@pytest.mark.parametrize("start", [0, 1, 2])
@pytest.mark.parametrize("seed", [0, 1])
def test_module_by_module_gives_the_same(lab, start, seed):
    net, samples = vision(seed), lab.batch(lab.pictures(3), [0, 1, 2])
    want = torch.stack([slow(net, x, t, start) for x, t in zip(samples.x["pixels"], samples.target, strict=True)])
    got = lab.explain(f"transformer_attribution(start={start})", net, samples)
    torch.testing.assert_close(got.values, want, rtol=1e-8, atol=1e-12)
    assert bool((got.values > 0).any()) == (start < 2)
    assert not got.signed and got.interpolation == "nearest"


def test_gradient_and_relevance_are_of_the_same_sample_in_every_call(lab):
    """Calls of two, of which the last is padded."""
    net, samples = vision(), lab.batch(lab.pictures(5), [0, 1, 2, 0, 1])
    got = lab.explain("transformer_attribution", net, samples, backward=2).values
    torch.testing.assert_close(got, lab.explain("transformer_attribution", net, samples, backward=1).values)


def test_the_sign_of_the_score_does_not_turn_relevance(lab):
    """Relevance starts as 1: a constant added to all scores changes nothing, though it turns their sign."""
    net, samples = vision(), lab.batch(lab.pictures(3))
    want = lab.explain("transformer_attribution", net, samples).values
    with torch.no_grad():
        net.head.bias -= 100
    torch.testing.assert_close(lab.explain("transformer_attribution", net, samples).values, want, rtol=1e-6, atol=1e-12)


def test_a_score_of_exactly_zero_gives_a_map(lab):
    net, x = vision(), lab.pictures(1)
    with torch.no_grad():
        net.head.weight[0], net.head.bias[0] = 0, 0
    got = lab.explain("transformer_attribution", net, lab.batch(x, [0]))
    assert got.status == ("ok",) and (got.values == 0).all()


def test_words_are_explained_and_special_ones_are_not():
    toy = one_head_attention()
    samples = toy_batch(toy, 4)
    got = catalogue.build("method", "transformer_attribution")(probe_for(toy), samples).values
    assert (got[samples.x["special"]] == 0).all() and (got.amax(1) > 0).any()


def test_two_passes_each_way(lab):
    probe = probe_for(lab.wrap(vision()))
    catalogue.build("method", "transformer_attribution")(probe, lab.batch(lab.pictures(3)))
    assert (probe.spent.forwards, probe.spent.backwards) == (6, 6)


def test_networks_without_attention_are_refused(lab):
    toy = linear()
    with pytest.raises(NotApplicable, match="needs attention"):
        lab.explain("transformer_attribution", toy, toy_batch(toy, 1))


def test_mistakes_are_named(lab):
    with pytest.raises(NotApplicable, match="start=3 is beyond the last of 2"):
        lab.explain("transformer_attribution(start=3)", vision(), lab.pictures(1))
