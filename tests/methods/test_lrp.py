"""Relevance propagation, against the rules written out as matrices, Captum, and what must be conserved."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from captum.attr import LRP as Captum
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.methods.relevance import Epsilon, Relevance, alpha_beta, flat, ratio
from heatcheck.models.torch_model import TorchModel
from heatcheck.testing.models import bag_of_words, bias_free_relu, fill_weights
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("methods/relevance.py", "out.abs() / (out.abs() + epsilon)",
     "out.abs() / (out.abs() - epsilon)", "test_epsilon_and_gamma_are_what_the_rules_use"),
    ("methods/relevance.py", "ratio(r, out + gamma *",
     "ratio(r, out - gamma *", "test_epsilon_and_gamma_are_what_the_rules_use"),
    ("methods/relevance.py", "-beta * ratio(r, minus)", "beta * ratio(r, minus)", "test_layer_by_layer_gives_the_same"),
    ("methods/relevance.py", "(-low.expand_as(x), up), (-high.expand_as(x), down)",
     "(-high.expand_as(x), up), (-low.expand_as(x), down)", "test_layer_by_layer_gives_the_same"),
    ("methods/relevance.py", "torch.ones_like(layer.weight)",
     "layer.weight.abs()", "test_layer_by_layer_gives_the_same"),
    ("methods/relevance.py", "ratio(out, scale * x).clamp(0, 1)",
     "ratio(out, scale * x).clamp(min=0)", "test_a_batch_norm_by_itself_keeps_what_its_shift_leaves"),
    ("methods/relevance.py", "b + s * self.bias",
     "b + self.bias", "test_batch_norms_are_part_of_the_layer_before_them"),
    ("methods/relevance.py", "return a.detach() * b",
     "return a * b.detach()", "test_a_gate_leaves_all_relevance_to_its_signal"),
    ("methods/relevance.py", "r.sum(1, keepdim=True) / leaf.shape[1]",
     "r.sum(1, keepdim=True)", "test_a_pixel_gets_the_relevance_of_channels_made_from_it"),
    ("methods/lrp.py", '("gamma", "epsilon", "box")',
     '("gamma", "gamma", "box")', "test_layer_by_layer_gives_the_same"),
)  # fmt: skip

COMPOSITES = ("epsilon_plus_flat", "epsilon_gamma_box", "epsilon", "gamma", "alpha1_beta0", "alpha2_beta1")


def chain(seed=0, *, bias=True, dtype=torch.float64):
    """Everything that a plain convolutional network is made of, in a row."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=bias), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3, stride=1, bias=bias), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(5, 6, bias=bias), nn.ReLU(), nn.Linear(6, 3, bias=bias),
    )  # fmt: skip
    return fill_weights(net, seed, dtype)


def wrap(net):
    """A model whose pixels have a known range, about [-2.6, 2.6]."""
    return TorchModel(net, "net", ImageDomain(mean=(0.5, 0.45, 0.4), std=(0.19, 0.2, 0.18)))


def pixels(lab, n=3, seed=0):
    return lab.pictures(n, seed).clamp(-2, 2)


# -- the rules in matrices ----------------------------------------------------------------------------------------


def dense(layer, shape):
    """Weights [inputs, outputs] and bias of any affine layer, one unit vector after the other."""
    n = torch.Size(shape).numel()
    rest = layer(torch.zeros(1, *shape, dtype=torch.float64)).flatten()
    rows = [layer(e.reshape(1, *shape)).flatten() - rest for e in torch.eye(n, dtype=torch.float64)]
    return torch.stack(rows), rest


def slow_rule(rule, layer, x, r, epsilon=1e-9, gamma=0.25):
    """Relevance of the input `x` of one layer from relevance `r` of its output."""
    w, b = dense(layer, x.shape[1:])
    v = x.flatten()[:, None]
    c = v * w
    z = c.sum(0) + b
    plus, minus = c.clamp(min=0), c.clamp(max=0)
    if rule == "epsilon":
        share = ratio(c, (z + epsilon * torch.where(z >= 0, 1, -1)).expand_as(c))
    elif rule in ("alpha1_beta0", "alpha2_beta1"):
        alpha, beta = int(rule[5]), int(rule[-1])
        share = alpha * ratio(plus, (plus.sum(0) + b.clamp(min=0)).expand_as(c))
        share = share - beta * ratio(minus, (minus.sum(0) + b.clamp(max=0)).expand_as(c))
    elif rule == "gamma":
        favoured = torch.where(z > 0, plus, minus)
        extra = torch.where(z > 0, b.clamp(min=0), b.clamp(max=0))
        share = (c + gamma * favoured) / (z + gamma * (favoured.sum(0) + extra))
    elif rule == "flat":
        touched = (w != 0).double()
        share = touched / touched.sum(0)
    elif rule == "box":
        ends = [((e - m) / s).expand(x.shape[1:]) for e in (0.0, 1.0) for m, s in [colours()]]
        low, high = (e.flatten()[:, None] for e in ends)
        c = c - low * w.clamp(min=0) - high * w.clamp(max=0)
        share = c / c.sum(0)
    return (share @ r.flatten()).reshape(x.shape)


def colours():
    return tuple(torch.tensor(v, dtype=torch.float64)[:, None, None] for v in ((0.5, 0.45, 0.4), (0.19, 0.2, 0.18)))


def slow(net, x, target, conv, linear, first):
    """One picture, layer by layer, relevance itself."""
    inputs = [x[None]]
    for layer in net:
        inputs.append(layer(inputs[-1].clone()))
    r = torch.zeros_like(inputs[-1])
    r[0, target] = inputs[-1][0, target]
    for i in reversed(range(len(net))):
        layer, value, out = net[i], inputs[i], inputs[i + 1]
        if isinstance(layer, nn.Conv2d | nn.Linear):
            rule = first if i == 0 else conv if isinstance(layer, nn.Conv2d) else linear
            r = slow_rule(rule, layer, value, r)
        elif isinstance(layer, nn.AvgPool2d):
            r = slow_rule("epsilon", layer, value, r, 0.0)
        elif isinstance(layer, nn.MaxPool2d):
            _, where = F.max_pool2d(value, layer.kernel_size, return_indices=True)
            r = torch.zeros_like(value).flatten(2).scatter_(2, where.flatten(2), r.flatten(2)).reshape(value.shape)
        elif isinstance(layer, nn.Flatten):
            r = r.reshape(value.shape)
        else:
            r = torch.where(out > 0, r, 0)
    return r[0].detach()


@pytest.mark.parametrize(
    ("composite", "rules"),
    [
        ("epsilon_plus_flat", ("alpha1_beta0", "epsilon", "flat")),
        ("epsilon_gamma_box", ("gamma", "epsilon", "box")),
        *((rule, (rule,) * 3) for rule in COMPOSITES[2:]),
    ],
)
def test_layer_by_layer_gives_the_same(lab, composite, rules):
    net, samples = chain(), lab.batch(pixels(lab), [0, 1, 2])
    want = torch.stack([slow(net, x, t, *rules) for x, t in zip(samples.x["pixels"], samples.target, strict=True)])
    got = lab.raw(f"lrp(composite={composite})", wrap(net), samples)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)
    assert got.abs().amax((1, 2, 3)).min() > 1e-6


def test_epsilon_and_gamma_are_what_the_rules_use(lab):
    net, x = fill_weights(nn.Sequential(nn.Conv2d(3, 2, 8), nn.Flatten()), 0, torch.float64), pixels(lab, 1)
    r = net(x).detach() * torch.tensor([[1.0, 0.0]])
    for spec, rule, how in (
        ("lrp(composite=epsilon, epsilon=0.5)", "epsilon", {"epsilon": 0.5}),
        ("lrp(composite=gamma, gamma=2)", "gamma", {"gamma": 2}),
    ):
        got = lab.raw(spec, wrap(net), lab.batch(x, [0]))
        torch.testing.assert_close(got, slow_rule(rule, net[0], x, r, **how).detach())


# -- what follows from the rules ----------------------------------------------------------------------------------


class Residual(nn.Module):
    """Blocks that add their input, one ReLU used everywhere, sums in place, written as functions and operators."""

    def __init__(self, bias=False):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=bias)
        self.blocks = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1, bias=bias) for _ in range(3))
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(16, 3, bias=bias)

    def forward(self, x):
        x = self.relu(self.first(x))
        for block in self.blocks:
            y = block(x)
            y += x
            x = self.relu(y)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


@pytest.mark.parametrize("composite", COMPOSITES[:4])
@pytest.mark.parametrize("kind", ["chain", "residual"])
@given(seed=st.integers(0, 1000))
def test_without_biases_relevance_is_conserved(lab, composite, kind, seed):
    """The z⁺ rule can give nothing where no contribution is positive; with many inputs that does not happen."""
    net = chain(seed, bias=False) if kind == "chain" else fill_weights(Residual(), seed, torch.float64)
    samples = lab.batch(pixels(lab, 2, seed), [0, 1])
    total = lab.explain(f"lrp(composite={composite}, epsilon=0)", wrap(net), samples).values.flatten(1).sum(1)
    score = net(samples.x["pixels"].clone()).gather(1, samples.target[:, None])[:, 0].detach()
    torch.testing.assert_close(total, score, rtol=1e-7, atol=1e-9)


def test_captum_gives_relevance_to_both_sides_of_a_sum_and_we_do_not(lab):
    class Join(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv2d(3, 4, 3, padding=1, bias=False)
            self.b = nn.Conv2d(4, 4, 3, padding=1, bias=False)
            self.head = nn.Linear(4 * 64, 3, bias=False)
            self.relu = nn.ReLU()

        def forward(self, x):
            x = self.a(x)
            return self.head(self.relu(x + self.b(x)).flatten(1))

    net, samples = fill_weights(Join(), 0, torch.float64), lab.batch(pixels(lab))
    score = net(samples.x["pixels"]).gather(1, samples.target[:, None])[:, 0].detach()
    ours = lab.explain("lrp(composite=epsilon)", net, samples).values.flatten(1).sum(1)
    theirs = (
        Captum(net)
        .attribute(samples.x["pixels"].clone().requires_grad_(), target=samples.target)
        .flatten(1)
        .sum(1)
        .detach()
    )
    torch.testing.assert_close(ours, score, rtol=1e-6, atol=1e-8)
    assert ((theirs - score).abs() > 0.2 * score.abs()).all()


@pytest.mark.parametrize("seed", range(3))
def test_captum_gives_the_same_on_a_chain(lab, seed):
    net, samples = chain(seed), lab.batch(pixels(lab, 3, seed), [0, 1, 2])

    class Plain(nn.Module):
        """Captum has no rule for a Flatten module and none for ReLU in place."""

        def __init__(self):
            super().__init__()
            layers = [nn.ReLU() if isinstance(m, nn.ReLU) else m for m in net]
            self.see, self.weigh = nn.Sequential(*layers[:6]), nn.Sequential(*layers[7:])

        def forward(self, x):
            return self.weigh(self.see(x).flatten(1))

    want = Captum(Plain()).attribute(samples.x["pixels"].clone().requires_grad_(), target=samples.target).detach()
    torch.testing.assert_close(lab.raw("lrp(composite=epsilon)", net, samples), want, rtol=1e-5, atol=1e-8)


@given(st.integers(0, 1000))
def test_without_epsilon_it_is_input_times_gradient_on_relu_chains(lab, seed):
    """With biases and batch norms, too (M3)."""
    net = nn.Sequential(nn.BatchNorm2d(3), chain(seed)[0], nn.BatchNorm2d(4), *chain(seed)[1:]).double().eval()
    shake(net, seed)
    samples = lab.batch(pixels(lab, 2, seed))
    want = lab.raw("input_x_gradient", net, samples)
    torch.testing.assert_close(lab.raw("lrp(composite=epsilon, epsilon=0)", net, samples), want, rtol=1e-9, atol=1e-11)


def shake(net, seed=0):
    """Batch norms with statistics, scales and shifts of their own."""
    rng = torch.Generator().manual_seed(seed)
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d | nn.BatchNorm1d):
            for t, low in ((m.running_mean, -0.5), (m.running_var, 0.5), (m.weight.data, -0.5), (m.bias.data, -0.5)):
                t.copy_(torch.rand(t.shape, generator=rng) + low)
    return net


@given(st.integers(0, 1000))
def test_alpha1_beta0_is_not_negative_for_a_positive_score(lab, seed):
    net, x = chain(seed), pixels(lab, 2, seed)
    target = net(x.clone()).argmax(1)
    score = net(x.clone()).amax(1)
    got = lab.raw("lrp(composite=alpha1_beta0)", net, lab.batch(x, target))
    assert (got[score > 0] >= 0).all() and (got[score < 0] <= 0).all()


def normed():
    """A batch norm behind each layer but the last."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=2), nn.BatchNorm2d(4),
        nn.ReLU(), nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3),
    ).eval()  # fmt: skip
    return shake(fill_weights(net, 3, torch.float64))


def folded(net):
    """The same network with every batch norm inside the layer before it."""
    layers = []
    for m in net:
        if not isinstance(m, nn.BatchNorm2d | nn.BatchNorm1d):
            layers.append(m)
            continue
        fuse = (
            torch.nn.utils.fuse_conv_bn_eval
            if isinstance(layers[-1], nn.Conv2d)
            else torch.nn.utils.fuse_linear_bn_eval
        )
        layers[-1] = fuse(layers[-1].eval(), m)
    return nn.Sequential(*layers)


@pytest.mark.parametrize("composite", COMPOSITES)
@pytest.mark.parametrize("epsilon", [1e-9, 0.3])
def test_batch_norms_are_part_of_the_layer_before_them(lab, composite, epsilon):
    net, samples = normed(), lab.batch(pixels(lab))
    spec = f"lrp(composite={composite}, epsilon={epsilon})"
    want = lab.raw(spec, wrap(folded(net)), samples)
    torch.testing.assert_close(lab.raw(spec, wrap(net), samples), want, rtol=1e-8, atol=1e-12)


def test_a_batch_norm_by_itself_keeps_what_its_shift_leaves():
    """Input part and shift: same sign, shift weaker, shift stronger, no shift, nothing from the input."""
    x = torch.tensor([[2.0], [2.0], [2.0], [2.0], [0.0]], dtype=torch.float64).T.reshape(1, 5, 1, 1).requires_grad_()
    scale, shift = torch.ones(5).double(), torch.tensor([1.0, -1.0, -3.0, 0.0, 1.0]).double()
    with Relevance(alpha_beta(1.0, 0.0), Epsilon(0.0), flat):
        out = F.batch_norm(x, torch.zeros(5).double(), torch.ones(5).double(), scale, shift, eps=0.0)
    share = (torch.autograd.grad(out.sum(), x)[0] * x / out).flatten().detach()
    torch.testing.assert_close(share, torch.tensor([2 / 3, 1.0, 0.0, 1.0, 0.0], dtype=torch.float64))


# -- operations that composites do not name ----------------------------------------------------------------------


class Gated(nn.Module):
    """SiLU as a product with its gate, or squeeze and excitation."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.a = nn.Conv2d(3, 4, 3, bias=False)
        self.gate = nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(4, 3, bias=False)

    def forward(self, x):
        y = self.a(x)
        if self.kind == "fused":
            y = F.silu(y)
        elif self.kind == "product":
            y = y * torch.sigmoid(y)
        else:
            y = F.hardsigmoid(self.gate(F.adaptive_avg_pool2d(F.relu(y), 1))) * y
        return self.head(y.mean((2, 3)))


def test_a_gate_leaves_all_relevance_to_its_signal(lab):
    nets = {kind: fill_weights(Gated(kind), 0, torch.float64) for kind in ("fused", "product", "squeeze")}
    samples = lab.batch(pixels(lab))
    fused, product = (lab.raw("lrp", nets[k], samples) for k in ("fused", "product"))
    torch.testing.assert_close(product, fused)
    score = nets["squeeze"](samples.x["pixels"]).gather(1, samples.target[:, None])[:, 0].detach()
    total = lab.raw("lrp", nets["squeeze"], samples).flatten(1).sum(1)
    torch.testing.assert_close(total, score, rtol=1e-7, atol=1e-9)


class Before(nn.Module):
    """Something that happens to pixels before the first convolution sees them."""

    def __init__(self, change, channels=3):
        super().__init__()
        self.change = change
        self.rest = nn.Sequential(nn.Conv2d(channels, 4, 3, bias=False), nn.ReLU(), nn.Conv2d(4, 3, 2, bias=False))

    def forward(self, x):
        return self.rest(self.change(x)).mean((2, 3))


def test_pixels_may_be_rearranged_before_the_first_convolution(lab):
    net = fill_weights(Before(lambda x: F.pixel_unshuffle(x, 2), 12), 0, torch.float64)
    x = pixels(lab)
    moved = lab.raw("lrp", net, x)
    inside = lab.raw("lrp", wrap(nn.Sequential(net.rest, Mean())), lab.batch(F.pixel_unshuffle(x, 2)))
    torch.testing.assert_close(moved, F.pixel_shuffle(inside, 2))


def test_pixels_may_be_rescaled_before_the_first_convolution(lab):
    net = fill_weights(Before(lambda x: torch.cat([x[:, :1] * 0.4 - 0.1, x[:, 1:] * 0.5 + 0.2], 1)), 0, torch.float64)
    x = pixels(lab)
    inside = lab.raw("lrp", nn.Sequential(net.rest, Mean()), net.change(x))
    torch.testing.assert_close(lab.raw("lrp", net, x), inside)
    with pytest.raises(NotApplicable, match="changes its input before"):
        lab.raw("lrp(composite=epsilon_gamma_box)", wrap(net), lab.batch(x))


def test_a_pixel_gets_the_relevance_of_channels_made_from_it(lab):
    """B-cos networks read each colour and its inverse."""
    net = fill_weights(Before(lambda x: torch.cat([x, 1 - x], 1), 6), 0, torch.float64)
    x = pixels(lab)
    inside = lab.raw("lrp", nn.Sequential(net.rest, Mean()), net.change(x))
    want = inside.sum(1, keepdim=True).expand(-1, 3, -1, -1) / 3
    torch.testing.assert_close(lab.raw("lrp", net, x), want)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean((2, 3))


def test_two_first_convolutions_are_both_first(lab):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (nn.Conv2d(3, 3, k, bias=False) for k in (3, 5))

        def forward(self, x):
            return self.a(x).mean((2, 3)) + self.b(x).mean((2, 3))

    net, x = fill_weights(Two(), 0, torch.float64), pixels(lab)
    x[:, :, 3] = 0
    parts = [lab.raw("lrp", nn.Sequential(layer, Mean()), x) for layer in (net.a, net.b)]
    got = lab.raw("lrp", net, x)
    torch.testing.assert_close(got, parts[0] + parts[1])
    assert (got[:, :, 3] != 0).any()


def test_a_first_layer_that_sees_everything_keeps_epsilon(lab):
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).double()
    x = pixels(lab)
    torch.testing.assert_close(lab.raw("lrp(epsilon=0)", net, x), lab.raw("input_x_gradient", net, x))


def test_words_get_the_weight_of_their_embedding(lab):
    toy = bag_of_words()
    samples = toy_batch(toy, 4)
    free = ~samples.x["special"]
    for spec in ("lrp(epsilon=0)", "lrp(composite=gamma, gamma=0)"):
        got = lab.explain(spec, toy, samples).values
        torch.testing.assert_close(got[free], toy.contributions(samples.x, samples.target)[free])


# -- what it costs, and what it refuses --------------------------------------------------------------------------


def test_nothing_of_a_pass_stays_behind(lab):
    """Rules and graph are freed at once, without the garbage collector."""
    model, samples = wrap(chain()), lab.batch(pixels(lab))
    unit = catalogue.build("method", "lrp")
    made = []
    factory = unit.rules(probe_for(model), samples)

    def rules():
        made.append(weakref.ref(held := factory()))
        return held

    gc.disable()
    try:
        read = lambda seen: seen.slope()  # noqa: E731
        x = samples.x
        for _ in probe_for(model).run_with_rules(samples, torch.arange(3), x.take, rules, read, "logit"):
            pass
        assert made and all(ref() is None for ref in made)
    finally:
        gc.enable()


def test_operations_without_a_rule_are_refused(lab):
    class Sorted(nn.Module):
        def forward(self, x):
            return x.flatten(1).sort(1).values[:, :3]

    with pytest.raises(NotApplicable, match="no rule for the operation 'sort'"):
        lab.explain("lrp", Sorted(), pixels(lab))


def test_the_box_needs_the_range_of_pixels(lab):
    with pytest.raises(NotApplicable, match="normalisation is not known"):
        lab.explain("lrp(composite=epsilon_gamma_box)", chain(), pixels(lab))
    toy = bag_of_words()
    with pytest.raises(NotApplicable, match="a text has none"):
        lab.explain("lrp(composite=epsilon_gamma_box)", toy, toy_batch(toy, 1))


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("lrp(composite=zennit)", "composite='zennit' is not one of epsilon_plus_flat"),
        ("lrp(epsilon=-1)", "epsilon=-1.0"),
        ("lrp(gamma=-0.5)", "gamma=-0.5 must not be negative"),
    ],
)
def test_mistakes_are_named(spec, match):
    with pytest.raises(SpecError, match=match):
        catalogue.build("method", spec)


def test_bias_free_toys_are_explained_completely(lab):
    toy = bias_free_relu()
    samples = toy_batch(toy, 3)
    total = lab.explain("lrp", toy, samples).values.flatten(1).sum(1)
    torch.testing.assert_close(total, probe_for(toy).clean(samples).read("logit"), rtol=1e-7, atol=1e-9)
