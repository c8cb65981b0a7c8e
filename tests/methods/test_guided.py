"""Guided backpropagation and its relatives, against the rule written out by hand, Captum and closed forms."""

import pytest
import torch
import torch.nn.functional as F
from captum.attr import Deconvolution, GuidedBackprop, GuidedGradCam
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.models.vision_shim import load_timm
from heatcheck.testing.models import fill_weights, one_head_attention
from heatcheck.testing.scenes import batch_of, probe_for, toy_batch
from heatcheck.testing.text_zoo import FAMILIES, SmallText, network_of, tokenizer_of

MUTANTS = (
    ("methods/guided.py", "return None, grads[0].relu()",
     "return None, grads[0].abs()", "test_one_relu_in_closed_form"),
    ("methods/guided.py", "_Rectified.apply(plain.detach(), plain)",
     "_Rectified.apply(plain.detach(), x)", "test_one_relu_in_closed_form"),
    ("methods/guided.py", "return guided * probe.domain",
     "return guided + probe.domain", "test_guided_grad_cam_is_the_product"),
    ("methods/guided.py", "return not self.final_relu_only",
     "return False", "test_a_word_gets_the_length_of_its_signal"),
)  # fmt: skip

RULES = {
    "guided_backprop": lambda signal, z: signal * (signal > 0) * (z > 0),
    "deconvolution": lambda signal, z: signal * (signal > 0),
}
CAPTUM = {"guided_backprop": GuidedBackprop, "deconvolution": Deconvolution}


def backwards(net, x, target, rule):
    """The paper's rule on a chain of layers, one layer after the other from the score to the picture."""
    inputs = [x[None]]
    for layer in net:
        inputs.append(layer(inputs[-1]).detach())
    signal = F.one_hot(torch.tensor([int(target)]), inputs[-1].shape[1]).to(x.dtype)
    for layer, z in zip(reversed(net), reversed(inputs[:-1]), strict=True):
        if isinstance(layer, nn.ReLU):
            signal = rule(signal, z)
        else:
            z = z.requires_grad_()
            (signal,) = torch.autograd.grad(layer(z), z, signal)
    return signal[0]


def pooled(seed=0):
    """Convolutions, ReLUs and max-pooling with overlap."""
    layers = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1), nn.Conv2d(6, 5, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 3),
    )  # fmt: skip
    return fill_weights(layers, seed, torch.float64)


@pytest.mark.parametrize("method", RULES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_rule_by_hand_gives_the_same(lab, method, seed):
    net, samples = pooled(seed), lab.batch(lab.pictures(3, seed))
    want = [backwards(net, x, t, RULES[method]) for x, t in zip(samples.x["pixels"], samples.target, strict=True)]
    got = lab.raw(method, net, samples)
    torch.testing.assert_close(got, torch.stack(want), rtol=1e-9, atol=1e-12)
    assert not torch.allclose(got, lab.raw("saliency", net, samples))


@pytest.mark.parametrize("method", RULES)
def test_captum_gives_the_same(lab, method):
    net, samples = pooled(), lab.batch(lab.pictures(3))
    with pytest.warns(UserWarning, match="Setting backward hooks on ReLU"):
        want = CAPTUM[method](net).attribute(samples.x["pixels"].clone().requires_grad_(), target=samples.target)
    torch.testing.assert_close(lab.raw(method, net, samples), want.detach(), rtol=1e-9, atol=1e-12)


def test_one_relu_in_closed_form(lab):
    """f = Σ vⱼ ReLU(wⱼ·x): open and positive, open and negative, shut and positive."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False)).double()
    x = torch.ones(1, 3, 2, 2, dtype=torch.float64)
    with torch.no_grad():
        net[1].weight[:] = torch.tensor([1.0, 2.0, -3.0])[:, None]
        net[3].weight[0] = torch.tensor([5.0, -7.0, 11.0])
    samples = lab.batch(x, [0])
    assert (lab.raw("saliency", net, samples) == 5 - 14).all()
    assert (lab.raw("guided_backprop", net, samples) == 5).all()
    assert (lab.raw("deconvolution", net, samples) == 5 - 33).all()


def test_where_everything_is_positive_all_are_the_gradient(lab):
    net, x = pooled(), lab.pictures(2).abs()
    with torch.no_grad():
        for weight in net.parameters():
            weight.abs_()
    want = lab.raw("saliency", net, x)
    for method in RULES:
        torch.testing.assert_close(lab.raw(method, net, x), want)


class Written(nn.Module):
    """The same ReLU in every way of writing it, one of them used twice."""

    def __init__(self, relu):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(4, 2)
        self.relu = relu

    def forward(self, x):
        x = self.relu(self.a(x))
        return self.c(self.relu(x - self.b(F.pad(x, (1, 1, 1, 1)))).mean((2, 3)))


WAYS = {
    "module": nn.ReLU(),
    "in place": nn.ReLU(inplace=True),
    "function": F.relu,
    "method": lambda x: x.relu(),
    "method in place": lambda x: x.relu_(),
    "clamp": lambda x: x.clamp(min=0),
    "threshold": nn.Threshold(0, 0),
}


@pytest.mark.parametrize("method", RULES)
def test_however_a_relu_is_written(lab, method):
    nets = {name: fill_weights(Written(relu), 0, torch.float64) for name, relu in WAYS.items()}
    maps = {name: lab.raw(method, net, lab.pictures(2)) for name, net in nets.items()}
    assert all(torch.equal(m, maps["module"]) for m in maps.values())
    assert not torch.allclose(maps["module"], lab.raw("saliency", nets["module"], lab.pictures(2)))


@pytest.mark.parametrize("relu6", [nn.ReLU6(), nn.ReLU6(inplace=True), nn.Hardtanh(0, 6)])
def test_a_clipped_relu_is_shut_at_both_ends(lab, relu6):
    net = nn.Sequential(nn.Flatten(), nn.Linear(3, 3, bias=False), relu6, nn.Linear(3, 1, bias=False)).double()
    with torch.no_grad():
        net[1].weight[:] = torch.tensor([-1.0, 1.0, 8.0])[:, None] / 3
        net[3].weight[:] = torch.tensor([2.0, 3.0, 5.0])
    samples = lab.batch(torch.ones(1, 3, 1, 1, dtype=torch.float64), [0])
    torch.testing.assert_close(3 * lab.raw("guided_backprop", net, samples).flatten()[0].item(), 3.0)
    torch.testing.assert_close(3 * lab.raw("deconvolution", net, samples).flatten()[0].item(), -2 + 3 + 40.0)


class Gated(nn.Module):
    """Channels weighed by a sigmoid of their means, as in squeeze and excitation."""

    def __init__(self, gate):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1), nn.Linear(4, 2)
        self.gate = gate

    def forward(self, x):
        x = F.relu(self.a(x))
        return self.c((x * self.gate(self.b(x.mean((2, 3), keepdim=True)))).mean((2, 3)))


@pytest.mark.parametrize("gate", [nn.Sigmoid(), nn.Hardsigmoid()])
def test_gates_keep_their_derivative(lab, gate):
    net, samples = fill_weights(Gated(gate), 0, torch.float64), lab.batch(lab.pictures(2))
    x = samples.x["pixels"].clone().requires_grad_()
    z = net.a(x)
    rest = F.relu(z).detach().requires_grad_()
    weighed = rest * gate(net.b(rest.mean((2, 3), keepdim=True)))
    score = net.c(weighed.mean((2, 3))).gather(1, samples.target[:, None])
    (signal,) = torch.autograd.grad(score.sum(), rest)
    (want,) = torch.autograd.grad(z, x, signal.relu() * (z > 0))
    torch.testing.assert_close(lab.raw("guided_backprop", net, samples), want)


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (nn.Tanh(), "tanh"),
        (nn.GELU(), "gelu"),
        (nn.SiLU(), "silu"),
        (nn.Hardswish(inplace=True), "hardswish"),
        (nn.LeakyReLU(), "leaky_relu"),
        (nn.Sigmoid(), "sigmoid"),
        (nn.Hardtanh(), "hardtanh"),
        (nn.Threshold(0.5, 0), "threshold"),
    ],
)
@pytest.mark.parametrize("method", ["guided_backprop", "deconvolution", "guided_grad_cam"])
def test_other_activations_are_refused_by_name(lab, method, act, named):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), act, nn.Flatten(), nn.Linear(64, 2)).double()
    with pytest.raises(NotApplicable, match=f"activations are ReLUs, and this one has {named}; try saliency"):
        lab.explain(method, net, lab.pictures(1))


class ByHand(nn.Module):
    def forward(self, x):
        return x * x.sigmoid()


def test_a_silu_written_by_hand_is_no_gate(lab):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), ByHand(), nn.Flatten(), nn.Linear(144, 2)).double()
    with pytest.raises(NotApplicable, match="this one has x · sigmoid"):
        lab.explain("guided_backprop", net, lab.pictures(1))


def test_attention_without_a_relu_is_refused(lab):
    toy = one_head_attention()
    with pytest.raises(NotApplicable, match="this one has softmax"):
        lab.explain("guided_backprop", toy, toy_batch(toy, 1))


def rectified(name, **config):
    """A small text classifier of a family, with ReLUs in the place of GELUs."""
    tokenizer = tokenizer_of(FAMILIES[name])
    return SmallText(network_of(FAMILIES[name], len(tokenizer), tokenizer.pad_token_id, **config), tokenizer, name)


@pytest.mark.parametrize("method", RULES)
@pytest.mark.parametrize(("name", "config"), [("DistilBERT", "activation"), ("GPT-2", "activation_function")])
def test_a_word_gets_the_length_of_its_signal(name, config, method):
    """Behind a LayerNorm the coordinates of an embedding's signal sum to zero, whatever the rectifiers do."""
    model = rectified(name, **{config: "relu"})
    batch = batch_of(model, model.inputs(2))
    built = catalogue.build("method", method).resolved_on(model.domain)
    signal = built.attribute(probe_for(model), batch)
    assert signal.sum(-1).abs().max() < 1e-4 * signal.abs().sum(-1).max()
    heat = built(probe_for(model), batch)
    assert heat.status == ("ok", "ok") and not heat.signed
    torch.testing.assert_close(heat.values, signal.norm(dim=-1))
    assert heat.values.std() > 0


def test_the_tanh_of_a_pooler_is_refused():
    model = rectified("BERT", hidden_act="relu")
    with pytest.raises(NotApplicable, match="this one has tanh; try saliency"):
        catalogue.build("method", "guided_backprop")(probe_for(model), batch_of(model, model.inputs(1)))


@pytest.mark.parametrize(
    ("name", "reason"), [("test_resnet", None), ("test_efficientnet", "silu"), ("test_vit", "gelu")]
)
def test_real_architectures(lab, name, reason):
    torch.manual_seed(0)
    net = load_timm().create_model(name, num_classes=4).double()
    x = lab.pictures(1, side=160 if name == "test_vit" else 64)
    for method in ("guided_backprop", "deconvolution", "guided_grad_cam"):
        if reason is None:
            assert lab.explain(method, net, x).status == ("ok",)
        else:
            with pytest.raises(NotApplicable, match=f"this one has {reason}"):
                lab.explain(method, net, x)


def test_meta_ranks_formula_is_the_positive_gradient(lab):
    net, x = lab.network(), lab.pictures(2)
    got = lab.raw("guided_backprop(final_relu_only=true)", net, x)
    assert torch.equal(got, lab.raw("saliency", net, x).relu())
    probe = probe_for(lab.wrap(net))
    samples = lab.batch(x)
    for spec in ("saliency", "guided_backprop(final_relu_only=true)"):
        catalogue.build("method", spec)(probe, samples)
    assert probe.spent.backwards == 2  # the gradient is shared


# -- guided Grad-CAM ---------------------------------------------------------------------------------------------


def test_guided_grad_cam_is_the_product(lab):
    net, x = pooled(), lab.pictures(3)
    cam = lab.explain("grad_cam", net, x).values
    up = F.interpolate(cam[:, None], (8, 8), mode="bilinear", align_corners=False)
    want = lab.raw("guided_backprop", net, x) * up
    torch.testing.assert_close(lab.raw("guided_grad_cam", net, x), want)
    assert (want != 0).any()


def test_guided_grad_cam_as_captum_has_it(lab):
    net, samples = pooled(), lab.batch(lab.pictures(3))
    with pytest.warns(UserWarning, match="Setting backward hooks on ReLU"):
        want = GuidedGradCam(net, net[4]).attribute(samples.x["pixels"].clone().requires_grad_(), target=samples.target)
    got = lab.raw("guided_grad_cam(upsample=nearest)", net, samples)
    torch.testing.assert_close(got, want.detach(), rtol=1e-9, atol=1e-12)
    assert not torch.allclose(got, lab.raw("guided_grad_cam", net, samples))


def test_mistakes_are_named():
    with pytest.raises(SpecError, match="upsample='cubic' is not one of bilinear, nearest"):
        catalogue.build("method", "guided_grad_cam(upsample=cubic)")
