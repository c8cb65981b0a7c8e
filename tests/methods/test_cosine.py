"""Cosine heads, as in CLIP: the norm is a constant for relevance, whichever way it is written."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heatcheck.api.doctor import examine
from heatcheck.core.types import Inputs
from heatcheck.methods.relevance import propagate
from heatcheck.methods.transformer_attribution import _PositiveRelevance
from heatcheck.testing.models import fill_weights
from heatcheck.testing.scenes import probe_for

MUTANTS = (
    ("methods/relevance.py", 'DIVISORS = frozenset(("reciprocal", "rsqrt"))',
     'DIVISORS = frozenset(("rsqrt",))', "test_a_cosine_is_a_linear_head_over_a_constant_norm"),
    ("methods/relevance.py", 'divides = name == "rdiv" or',
     "divides = False and", "test_a_cosine_is_a_linear_head_over_a_constant_norm"),
    ("methods/transformer_attribution.py", "self.gate(apply(x)) if name in DIVISORS else passed(apply, x)",
     "passed(apply, x)", "test_a_cosine_is_a_linear_head_over_a_constant_norm"),
    ("methods/deep_lift.py", "z.sqrt().clamp_min(least)", "z.clamp_min(least)", "test_differences_are_complete"),
)  # fmt: skip


def norm(x):
    return x.norm(dim=-1, keepdim=True)


WAYS = {
    "F.normalize": lambda x, w: F.normalize(x, dim=-1) @ F.normalize(w, dim=-1).T,
    "x / norm": lambda x, w: x / norm(x) @ (w / norm(w)).T,
    "torch.norm": lambda x, w: F.linear(x / torch.norm(x, p=2, dim=1, keepdim=True), w / norm(w)),
    "vector_norm": lambda x, w: F.linear(x / torch.linalg.vector_norm(x, dim=-1, keepdim=True), w / norm(w)),
    "linalg.norm": lambda x, w: F.linear(x.div(torch.linalg.norm(x, dim=-1)[:, None]), w / norm(w)),
    "one over": lambda x, w: x * (1 / x.norm(dim=-1)).unsqueeze(-1).expand_as(x) @ (w / norm(w)).T,
    "scaled": lambda x, w: 2.0 * x * (0.5 * norm(x).reciprocal()) @ (w / norm(w)).T,
    "cosine_similarity": lambda x, w: F.cosine_similarity(x[:, None], w[None], dim=-1),
    "after the product": lambda x, w: x @ w.T / (norm(x) * w.norm(dim=-1)),
    "einsum": lambda x, w: torch.einsum("bd,kd->bk", F.normalize(x, dim=-1), w / norm(w)),
    "rsqrt": lambda x, w: x * torch.rsqrt((x * x).sum(-1, keepdim=True)) @ (w / norm(w)).T,
    "rms_norm": lambda x, w: F.rms_norm(x, x.shape[-1:], eps=0) @ (w / norm(w)).T / x.shape[-1] ** 0.5,
    "in place": lambda x, w: (x * 1).div_(norm(x)) @ (w / norm(w)).T,
    "root": lambda x, w: x / x.pow(2).sum(-1, keepdim=True).sqrt() @ (w / norm(w)).T,
    "clamped": lambda x, w: x / norm(x).clamp_min(1e-9) @ (w / norm(w)).T,
}
"""CLIP's head, in the ways people write it."""
WITH_ACTIVATIONS = {"root", "clamped"}
"""Ways that guided backpropagation cannot tell from activations that are no ReLUs."""


class Cosine(nn.Module):
    """A tower whose embedding is compared with those of the classes; its scale is learnt as a logarithm."""

    def __init__(self, tower, way, size=6, classes=3):
        super().__init__()
        self.tower, self.way = tower, way
        self.names, self.logit_scale = nn.Parameter(torch.empty(classes, size)), nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.logit_scale.exp().clamp(max=100) * WAYS[self.way](self.tower(x), self.names)


class ConstantNorm(nn.Module):
    """What `Cosine` computes for one picture, as a linear layer whose weights hold that picture's norm."""

    def __init__(self, cosine, x):
        super().__init__()
        names, length = cosine.names.detach(), cosine.tower(x).detach().norm()
        self.tower = cosine.tower
        self.register_buffer("weight", cosine.logit_scale.detach().exp() * names / norm(names) / length)

    def forward(self, x):
        return F.linear(self.tower(x), self.weight)


class Tokens(nn.Module):
    """A transformer with a class token, one block of one head, and no bias."""

    def __init__(self, size=6):
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, size, 4, stride=4, bias=False), nn.Parameter(torch.empty(1, 1, size))
        self.norm, self.qkv = nn.LayerNorm(size, bias=False), nn.Linear(size, 3 * size, bias=False)
        self.fc1, self.fc2 = nn.Linear(size, 8, bias=False), nn.Linear(8, size, bias=False)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return (x + self.fc2(F.gelu(self.fc1(x))))[:, 0]


def filled(tower, way, seed=0):
    return fill_weights(Cosine(tower, way), seed, torch.float64).requires_grad_(False)


def transformer(way):
    return filled(Tokens(), way)


def convolutional(way, bias=False):
    tower = (nn.Conv2d(3, 4, 3, bias=bias), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 6, bias=bias))
    return filled(nn.Sequential(*tower), way)


NO_LINEAR_LAYER = {"cosine_similarity", "einsum"}
"""Ways that leave no linear layer, so that rules which look at signs have nothing to apply to."""
BY_SIGN = ("lrp(composite=gamma)", "transformer_attribution")
RELEVANCE = ("lrp", "lrp(composite=gamma)", "attn_lrp", "attn_lrp(variant=cp)", "transformer_attribution")


def relevance(lab, spec, net, x):
    """A method's relevance of pixels; transformer attribution goes on to multiply that of attention by its gradient."""
    if spec == "transformer_attribution":
        return propagate(probe_for(lab.wrap(net)), lab.batch(x), _PositiveRelevance, "logit")
    return lab.raw(spec, net, x)


@pytest.mark.parametrize("spec", RELEVANCE)
@pytest.mark.parametrize("way", WAYS)
def test_a_cosine_is_a_linear_head_over_a_constant_norm(lab, way, spec):
    if way in NO_LINEAR_LAYER and spec in BY_SIGN:
        pytest.skip("no linear layer")
    net, x = transformer(way), lab.pictures(1)
    linear = ConstantNorm(net, x)
    torch.testing.assert_close(linear(x), net(x))
    got, want = relevance(lab, spec, net, x), relevance(lab, spec, linear, x)
    assert want.abs().max() > 0
    torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("spec", ["lrp(composite=epsilon, epsilon=0)", "lrp(composite=gamma)", "attn_lrp(epsilon=0)"])
@pytest.mark.parametrize("way", WAYS)
def test_relevance_of_a_cosine_is_conserved(lab, way, spec):
    net, samples = convolutional(way), lab.batch(lab.pictures(3))
    score = net(samples.x["pixels"]).gather(1, samples.target[:, None])[:, 0]
    torch.testing.assert_close(lab.raw(spec, net, samples).flatten(1).sum(1), score, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_differences_are_complete(lab, way):
    net, samples = convolutional(way, bias=True), lab.batch(lab.pictures(3))
    x, target = samples.x["pixels"], samples.target[:, None]
    change = (net(x) - net(torch.zeros_like(x))).gather(1, target)[:, 0]
    torch.testing.assert_close(lab.raw("deep_lift", net, samples).flatten(1).sum(1), change, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("spec", ["full_grad", "guided_backprop", "deconvolution", "saliency"])
@pytest.mark.parametrize("way", WAYS)
def test_the_way_it_is_written_does_not_matter(lab, way, spec):
    if way in WITH_ACTIVATIONS and spec in ("guided_backprop", "deconvolution"):
        pytest.skip("an activation that is no ReLU")
    first, net = (convolutional(w, bias=True) for w in ("F.normalize", way))
    got, want = (lab.raw(spec, n, lab.pictures(3)) for n in (net, first))
    torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("way", sorted(WAYS.keys() - NO_LINEAR_LAYER))
def test_attention_methods_do_not_care_how_it_is_written(lab, way):
    first, net = transformer("F.normalize"), transformer(way)
    for spec in ("transformer_attribution", "generic_attribution", "attention_grad_cam"):
        got, want = (lab.raw(spec, n, lab.pictures(2)) for n in (net, first))
        assert want.max() > 0
        torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_the_doctor_knows_every_operation(lab, way):
    found = examine(lab.wrap(transformer(way)), Inputs({"pixels": lab.pictures(1)}))
    assert "operations without a rule of their own" not in [f.what for f in found]


def test_a_norm_that_is_the_score_keeps_its_relevance(lab):
    """Capsules: the length of a vector is the class score; it divides nothing, so it is no constant."""
    tower = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 6, bias=False), nn.Unflatten(1, (3, 2)))
    net = fill_weights(tower, 0, torch.float64).requires_grad_(False)

    class Capsules(nn.Module):
        def forward(self, x):
            return net(x).norm(dim=-1)

    samples = lab.batch(lab.pictures(3))
    score = Capsules()(samples.x["pixels"]).gather(1, samples.target[:, None])[:, 0].detach()
    total = lab.raw("lrp(composite=epsilon, epsilon=0)", Capsules(), samples).flatten(1).sum(1)
    torch.testing.assert_close(total, score)
