"""Relevance propagation through attention, against relevance handed back step by step, and its two variants."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.testing.models import bag_of_words, fill_weights
from heatcheck.testing.scenes import toy_batch

MUTANTS = (
    ("methods/relevance.py", "return (x + x.detach()) / 2", "return x", "test_step_by_step_gives_the_same"),
    ("methods/relevance.py", "torch.rsqrt(variance + eps).detach()",
     "torch.rsqrt(variance + eps)", "test_step_by_step_gives_the_same"),
    ("methods/relevance.py", "g * ratio(out, x),", "g * ratio(x, out),", "test_activations_hand_everything_back"),
    ("methods/attn_lrp.py", 'self.variant == "cp"', 'self.variant != "cp"', "test_step_by_step_gives_the_same"),
)  # fmt: skip


class Tiny(nn.Module):
    """A vision transformer with one block of two heads, patches of 4 × 4, and the mean of its tokens as head."""

    def __init__(self, *, bias=True, how="written", size=6, heads=2):
        super().__init__()
        self.how, self.heads = how, heads
        self.patch = nn.Conv2d(3, size, 4, stride=4, bias=bias)
        self.norm1, self.norm2 = (nn.LayerNorm(size, bias=bias) for _ in range(2))
        self.qkv, self.proj = nn.Linear(size, 3 * size, bias=bias), nn.Linear(size, size, bias=bias)
        self.fc1, self.fc2 = nn.Linear(size, 8, bias=bias), nn.Linear(8, size, bias=bias)
        self.head = nn.Linear(size, 3, bias=bias)

    def attend(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        if self.how == "fused":
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.attend(self.norm1(x))
        x = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return self.head(x.mean(1))


def tiny(seed=0, **options):
    return fill_weights(Tiny(**options), seed, torch.float64)


# -- relevance itself, step by step --------------------------------------------------------------------------------


def slow_linear(weight, bias, x, r):
    """ε → 0 at one linear layer: inputs [t, i], relevance of its outputs [t, o]."""
    c = x[:, :, None] * weight.T[None]
    z = c.sum(1) + (0 if bias is None else bias)
    return (c * (r / z)[:, None]).sum(2)


def slow_norm(norm, x, r):
    """Layer norm: a scale and a shift behind a matrix that takes the mean away, over a constant deviation."""
    size = x.shape[-1]
    centre = (torch.eye(size, dtype=x.dtype) - 1 / size) / (x.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()[
        :, None
    ]
    z = (centre * x[:, None]).sum(-1)
    shift = 0 if norm.bias is None else norm.bias
    r = r * z * norm.weight / (z * norm.weight + shift)
    return (centre * x[:, None] * (r / z)[..., None]).sum(1)


def slow_product(a, b, r):
    """Relevance of both factors of a matrix product: each entry's terms share half of it in proportion."""
    terms = a[:, :, None] * b[None]
    shares = terms * (r / (a @ b))[:, None] / 2
    return shares.sum(2), shares.sum(0)


def slow(net, x, target, variant):
    """One picture."""
    with torch.no_grad():
        tokens = net.patch(x[None])[0].flatten(1).T
        normed = F.layer_norm(tokens, tokens.shape[-1:], net.norm1.weight, net.norm1.bias)
        qkv = net.qkv(normed)
        size = qkv.shape[-1] // 3
        d = size // net.heads
        parts = [[qkv[:, s * size + h * d :][:, :d] for s in range(3)] for h in range(net.heads)]
        scores = [q @ k.T / d**0.5 for q, k, _ in parts]
        weights = [s.softmax(-1) for s in scores]
        mixed = torch.cat([a @ v for a, (_, _, v) in zip(weights, parts, strict=True)], -1)
        out = net.proj(mixed)
        middle = tokens + out
        normed2 = F.layer_norm(middle, middle.shape[-1:], net.norm2.weight, net.norm2.bias)
        hidden = net.fc1(normed2)
        more = net.fc2(F.gelu(hidden))
        end = middle + more
        mean = end.mean(0, keepdim=True)
        r = torch.zeros(1, 3, dtype=x.dtype)
        r[0, target] = net.head(mean)[0, target]

        r = slow_linear(net.head.weight, net.head.bias, mean, r)
        r = end / len(end) / mean * r
        r_middle, r_more = middle / end * r, more / end * r
        r_hidden = slow_linear(net.fc2.weight, net.fc2.bias, F.gelu(hidden), r_more)
        r_middle = r_middle + slow_norm(net.norm2, middle, slow_linear(net.fc1.weight, net.fc1.bias, normed2, r_hidden))
        r_tokens, r_out = tokens / middle * r_middle, out / middle * r_middle
        r_mixed = slow_linear(net.proj.weight, net.proj.bias, mixed, r_out)
        r_qkv = torch.zeros_like(qkv)
        for h, ((q, k, v), s, a) in enumerate(zip(parts, scores, weights, strict=True)):
            own = r_mixed[:, h * d : (h + 1) * d]
            r_a, r_v = slow_product(a, v, own)
            columns = [slice(s * size + h * d, s * size + (h + 1) * d) for s in range(3)]
            r_qkv[:, columns[2]] = 2 * r_v if variant == "cp" else r_v
            if variant == "attn":
                r_s = s * (r_a - a * r_a.sum(-1, keepdim=True))
                r_q, r_k = slow_product(q, k.T, r_s)
                r_qkv[:, columns[0]], r_qkv[:, columns[1]] = r_q, r_k.T
        r_tokens = r_tokens + slow_norm(net.norm1, tokens, slow_linear(net.qkv.weight, net.qkv.bias, normed, r_qkv))
        patches = F.unfold(x[None], 4, stride=4)[0].T
        r_patches = slow_linear(net.patch.weight.flatten(1), net.patch.bias, patches, r_tokens)
        return F.fold(r_patches.T[None], x.shape[-2:], 4, stride=4)[0]


@pytest.mark.parametrize("variant", ["attn", "cp"])
@pytest.mark.parametrize("bias", [True, False])
def test_step_by_step_gives_the_same(lab, variant, bias):
    net, samples = tiny(bias=bias), lab.batch(lab.pictures(3), [0, 1, 2])
    want = torch.stack([slow(net, x, t, variant) for x, t in zip(samples.x["pixels"], samples.target, strict=True)])
    got = lab.raw(f"attn_lrp(variant={variant}, epsilon=0)", net, samples)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("spec", ["attn_lrp", "attn_lrp(variant=cp, gamma=0.1)", "lrp", "lrp(composite=gamma)"])
def test_fused_attention_gives_the_same(lab, spec):
    x = lab.pictures(3)
    written, fused = (lab.raw(spec, tiny(how=how), x) for how in ("written", "fused"))
    torch.testing.assert_close(fused, written, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("gamma", [0, 0.25])
@given(seed=st.integers(0, 1000))
def test_without_biases_the_constant_variant_is_conserved(lab, gamma, seed):
    net, samples = tiny(seed, bias=False), lab.batch(lab.pictures(2, seed))
    total = lab.raw(f"attn_lrp(variant=cp, epsilon=0, gamma={gamma})", net, samples).flatten(1).sum(1)
    score = net(samples.x["pixels"]).gather(1, samples.target[:, None])[:, 0].detach()
    torch.testing.assert_close(total, score, rtol=1e-6, atol=1e-8)


def test_where_nothing_attends_it_is_lrp(lab):
    net, x = lab.network(act=nn.GELU), lab.pictures(3)
    assert torch.equal(lab.raw("attn_lrp", net, x), lab.raw("lrp(composite=epsilon)", net, x))
    assert torch.equal(lab.raw("attn_lrp(gamma=0.25)", net, x), lab.raw("lrp(composite=gamma)", net, x))
    assert not torch.allclose(lab.raw("attn_lrp", net, x), lab.raw("input_x_gradient", net, x))


@pytest.mark.parametrize("act", [nn.GELU, nn.SiLU, nn.Hardswish, nn.Tanh, nn.ReLU6])
def test_activations_hand_everything_back(lab, act):
    """So that without biases a chain is complete whatever its activation, which its gradient is not."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), act(), nn.Flatten(), nn.Linear(144, 3, bias=False))
    net, samples = fill_weights(net, 0, torch.float64), lab.batch(lab.pictures(3))
    score = net(samples.x["pixels"]).gather(1, samples.target[:, None])[:, 0].detach()
    total = lab.raw("attn_lrp(epsilon=0)", net, samples).flatten(1).sum(1)
    torch.testing.assert_close(total, score, rtol=1e-9, atol=1e-10)


def test_words_get_the_weight_of_their_embedding(lab):
    toy = bag_of_words()
    samples = toy_batch(toy, 4)
    free = ~samples.x["special"]
    got = lab.explain("attn_lrp(epsilon=0)", toy, samples).values
    torch.testing.assert_close(got[free], toy.contributions(samples.x, samples.target)[free])


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("attn_lrp(variant=lxt)", "variant='lxt' is not one of attn, cp"),
        ("attn_lrp(epsilon=-1)", "epsilon=-1.0"),
        ("attn_lrp(gamma=-1)", "gamma=-1.0 must not be negative"),
    ],
)
def test_mistakes_are_named(spec, match):
    with pytest.raises(SpecError, match=match):
        catalogue.build("method", spec)
