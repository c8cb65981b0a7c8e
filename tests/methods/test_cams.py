"""Gradient-weighted class activation maps, against their formulas in loops, TorchCAM, Captum, and known answers."""

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from captum.attr import LayerGradCam
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.models.vision_shim import load_timm, load_torchvision
from heatcheck.testing.models import fill_weights, gap_linear, linear
from heatcheck.testing.scenes import probe_for, toy_batch
from heatcheck.testing.watch import state_of

MUTANTS = (
    ("methods/cams.py", "return slopes.flatten(2).mean(-1)",
     "return slopes.flatten(2).sum(-1)", "test_captum_gives_the_same"),
    ("methods/cams.py", "place_sum(slopes * maps), place_sum(maps)",
     "place_sum(slopes * maps), place_sum(maps.abs())", "test_the_formula_gives_the_same"),
    ("methods/cams.py", "2 + slopes * place_sum(maps)",
     "2 - slopes * place_sum(maps)", "test_the_formula_gives_the_same"),
    ("methods/cams.py", "2 * second + place_sum(maps) * third",
     "2 * second + place_sum(maps * third)", "test_smooth_grad_cam_pp_is_its_formula"),
)  # fmt: skip

AT_THE_SAMPLE = ("grad_cam", "hires_cam", "layer_cam", "xgrad_cam", "grad_cam_pp")
FAMILY = (*AT_THE_SAMPLE, "smooth_grad_cam_pp")


def there(net, cut, x, target):
    """A layer's feature maps and their gradient; `cut` is the layer's place in the sequence."""
    maps = net[: cut + 1](x[None]).detach().requires_grad_()
    net[cut + 1 :](maps)[0, target].backward()
    return maps.detach()[0], maps.grad[0]


def slow_grad_cam(a, g):
    return sum(g[k].mean() * a[k] for k in range(len(a)))


def slow_hires_cam(a, g):
    return sum(g[k] * a[k] for k in range(len(a)))


def slow_layer_cam(a, g):
    return sum(F.relu(g[k]) * a[k] for k in range(len(a)))


def slow_xgrad_cam(a, g):
    cam = torch.zeros_like(a[0])
    for k in range(len(a)):
        w = sum(g[k, u, v] * a[k, u, v] / a[k].sum() for u in range(a.shape[1]) for v in range(a.shape[2]))
        cam += w * a[k]
    return cam


def slow_grad_cam_pp(a, g):
    cam = torch.zeros_like(a[0])
    for k in range(len(a)):
        w = torch.zeros((), dtype=a.dtype)
        for slope in g[k].flatten():
            if slope != 0:
                w += slope**2 / (2 * slope**2 + a[k].sum() * slope**3) * F.relu(slope)
        cam += w * a[k]
    return cam


SLOW = {
    "grad_cam": slow_grad_cam,
    "hires_cam": slow_hires_cam,
    "layer_cam": slow_layer_cam,
    "xgrad_cam": slow_xgrad_cam,
    "grad_cam_pp": slow_grad_cam_pp,
}


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
@pytest.mark.parametrize("name", AT_THE_SAMPLE)
def test_the_formula_gives_the_same(lab, name, cut):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    slow = SLOW[name]
    want = torch.stack([slow(*there(net, cut, x, t)) for x, t in zip(samples.x["pixels"], samples.target, strict=True)])
    got = lab.explain(f"{name}(layer=_{cut}, relu=false)", named(net), samples)
    torch.testing.assert_close(got.values, want, rtol=1e-9, atol=1e-12)
    assert got.signed and want.min() < 0
    positive = lab.explain(f"{name}(layer=_{cut})", named(net), samples)
    torch.testing.assert_close(positive.values, F.relu(want), rtol=1e-9, atol=1e-12)
    assert not positive.signed


def noise_of(samples, row, n):
    rng = samples.streams.generator(row, "noise")
    shape = samples.x["pixels"].shape[1:]
    return [torch.randn(shape, generator=rng, dtype=torch.float32).double() for _ in range(n)]


def test_smooth_grad_cam_pp_is_its_formula(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    want = []
    for row, (x, t) in enumerate(zip(samples.x["pixels"], samples.target, strict=True)):
        a, _ = there(net, 1, x, t)
        slopes = torch.stack([there(net, 1, x + 0.2 * e, t)[1] for e in noise_of(samples, row, 5)])
        d1, d2, d3 = ((slopes**p).mean(0) for p in (1, 2, 3))
        cam = torch.zeros_like(a[0])
        for k in range(len(a)):
            alpha = d2[k] / (2 * d2[k] + a[k].sum() * d3[k])
            cam += (alpha * F.relu(d1[k])).sum() * a[k]
        want.append(cam)
    for backward in (2, 4):
        got = lab.explain(
            "smooth_grad_cam_pp(samples=5, sigma=0.2, relu=false, layer=_1)", named(net), samples, backward=backward
        ).values
        torch.testing.assert_close(got, torch.stack(want), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", ["", "torchcam_compat=true"])
def test_without_noise_smooth_grad_cam_pp_is_the_formula_at_the_sample(lab, options):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    plain = lab.explain("grad_cam_pp", net, samples).values
    smooth = lab.explain(
        f"smooth_grad_cam_pp(sigma=0, {options})" if options else "smooth_grad_cam_pp(sigma=0)", net, samples
    ).values
    if options:
        assert not torch.allclose(smooth, plain)
    else:
        torch.testing.assert_close(smooth, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("spec", "theirs"),
    [
        ("grad_cam(layer=_1)", "GradCAM"),
        ("xgrad_cam(layer=_1)", "XGradCAM"),
        ("layer_cam(layer=_1)", "LayerCAM"),
        ("grad_cam_pp(torchcam_compat=true, layer=_1)", "GradCAMpp"),
        ("smooth_grad_cam_pp(torchcam_compat=true, layer=_1)", "SmoothGradCAMpp"),
    ],
)
@pytest.mark.parametrize("act", [nn.Tanh, nn.ReLU])
def test_torchcam_gives_the_same(lab, spec, theirs, act):
    load_torchvision()
    from torchcam import methods

    net, samples = named(lab.network(act=act)), lab.batch(lab.pictures(3))
    x, target = samples.x["pixels"], samples.target.tolist()
    with getattr(methods, theirs)(net, "_1", input_shape=(3, 8, 8)) as extractor:
        if theirs == "SmoothGradCAMpp":
            extractor._distrib = Draws(samples)
            net(x)
            (want,) = extractor(target, normalized=False)
        else:
            (want,) = extractor(target, net(x.clone().requires_grad_()), normalized=False)
    assert want.max() > 0
    torch.testing.assert_close(lab.explain(spec, net, samples).values, want, rtol=1e-5, atol=1e-7)


class Draws:
    """TorchCAM's noise, drawn from our streams: four copies, one call each for the whole batch."""

    def __init__(self, samples):
        each = [noise_of(samples, row, 4) for row in range(len(samples))]
        self.left = [0.3 * torch.stack(copies) for copies in zip(*each, strict=True)]

    def sample(self, _size):
        return self.left.pop(0)


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
def test_with_a_pooled_head_maps_agree_and_sum_to_the_score_without_its_bias(lab, seed):
    toy = gap_linear(seed=seed)
    samples = toy_batch(toy, 2, seed)
    maps = [lab.explain(f"{name}(relu=false)", toy, samples).values for name in ("grad_cam", "xgrad_cam", "hires_cam")]
    bias = toy.module().get_parameter("4.bias")[samples.target]
    for values in maps:
        torch.testing.assert_close(values, maps[0])
        torch.testing.assert_close(values.flatten(1).sum(1), probe_for(toy).clean(samples).read("logit") - bias)


@given(st.integers(0, 10_000))
def test_grad_cam_pp_has_a_closed_form_with_a_pooled_head(lab, seed):
    toy = gap_linear(seed=seed)
    samples = toy_batch(toy, 2, seed)
    net = toy.module()
    a = net[:2](samples.x["pixels"])
    g = net[4].weight[samples.target] / 16
    w = 16 * F.relu(g) / (2 + g * a.sum((2, 3)))
    want = F.relu((w[..., None, None] * a).sum(1))
    torch.testing.assert_close(lab.explain("grad_cam_pp", toy, samples).values, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", FAMILY)
def test_scaling_a_layer_against_its_head_changes_nothing(lab, name):
    toy = gap_linear()

    def rescale(net):
        with torch.no_grad():
            net[0].weight *= 4
            net[0].bias *= 4
            net[4].weight /= 4
        return net

    samples = toy_batch(toy, 2)
    other = toy.with_network(rescale, "rescaled")
    torch.testing.assert_close(lab.explain(name, other, samples).values, lab.explain(name, toy, samples).values)


@pytest.mark.parametrize("name", FAMILY)
def test_a_class_that_everything_speaks_against_gets_an_empty_map(lab, name):
    def against(net):
        with torch.no_grad():
            net[4].weight[:] = -net[4].weight.abs()
        return net

    toy = gap_linear().with_network(against, "against")
    got = lab.explain(name, toy, toy_batch(toy, 2))
    assert (got.values == 0).all() and got.status == ("ok", "ok")


@pytest.mark.parametrize("name", AT_THE_SAMPLE)
def test_a_shifted_picture_has_a_shifted_map(lab, name):
    net, x = round_trip(), lab.pictures(2)
    one, other = (lab.explain(f"{name}(relu=false)", net, v).values for v in (x, x.roll((2, 3), (2, 3))))
    torch.testing.assert_close(other, one.roll((2, 3), (1, 2)))


def round_trip():
    """A network without borders: whatever is shifted out on one side comes in on the other."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.Tanh(),
        nn.Conv2d(4, 5, 3, padding=1, padding_mode="circular"), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3),
    )  # fmt: skip
    return fill_weights(net, 0, torch.float64)


def test_layers_before_in_place_activations_can_be_looked_at(lab):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    other = nn.Sequential(*(nn.ReLU() if isinstance(m, nn.ReLU) else m for m in net))
    x = lab.pictures(2)
    a, b = (lab.explain("grad_cam(layer=_0, relu=false)", named(n.double()), x).values for n in (net, other))
    assert torch.equal(a, b) and a.min() < 0


def test_layers_that_are_not_there_are_answered_with_those_that_are(lab):
    with pytest.raises(
        HeatcheckError, match=r"no feature map that its output depends on at layer='_33'; did you mean _3"
    ):
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


def test_all_methods_of_the_family_share_one_gradient(lab):
    toy = gap_linear()
    samples, probe = toy_batch(toy, 3), probe_for(toy)
    for name in AT_THE_SAMPLE:
        catalogue.build("method", name)(probe, samples)
    assert (probe.spent.forwards, probe.spent.backwards) == (3, 3)
    catalogue.build("method", "grad_cam(output=prob)")(probe, samples)
    assert probe.spent.backwards == 6


def test_channels_that_sum_to_nothing_have_no_weight_in_xgrad_cam(lab):
    dead = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        dead[0].bias[0] = -1e9
    x = lab.pictures(2)
    got = lab.explain("xgrad_cam(relu=false)", dead, x)
    assert got.status == ("ok", "ok")
    torch.testing.assert_close(got.values, lab.explain("grad_cam(relu=false)", dead, x).values)


def test_a_deviation_cannot_be_negative():
    with pytest.raises(SpecError, match=r"sigma=-1.0"):
        catalogue.build("method", "smooth_grad_cam_pp(sigma=-1.0)")


# -- tokens and other layouts --------------------------------------------------------------------------------------


def by_hand(net, layer, x, target, to_maps):
    """Feature maps and gradient by a plain hook and a whole backward pass."""
    seen = []
    handle = net.get_submodule(layer).register_forward_hook(lambda _m, _a, out: seen.append(out))
    try:
        score = net(x.clone().requires_grad_()).gather(1, target[:, None]).sum()
    finally:
        handle.remove()
    (slope,) = torch.autograd.grad(score, seen[0])
    return to_maps(seen[0].detach()), to_maps(slope)


def swin():
    from timm.models.swin_transformer import SwinTransformer

    return SwinTransformer(
        img_size=(32, 64), patch_size=4, embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=4, num_classes=3
    )


def vit(**options):
    return load_timm().create_model("test_vit", img_size=(32, 64), num_classes=3, **options)


def tokens(prefix):
    return lambda out: out[:, prefix:].reshape(len(out), 2, 4, -1).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("make", "layer", "to_maps"),
    [
        (vit, "blocks.5.norm1", tokens(1)),
        (lambda: vit(reg_tokens=4), "blocks.5.norm1", tokens(5)),
        (lambda: vit(class_token=False, global_pool="avg"), "blocks", tokens(0)),
        (swin, "norm", lambda out: out.permute(0, 3, 1, 2)),
    ],
    ids=["class token", "registers", "pooled tokens", "channels last"],
)
def test_layouts_other_than_channels_first_are_laid_out(lab, make, layer, to_maps):
    load_timm()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = make().double().eval()
    x = torch.randn(3, 3, 32, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    samples = lab.batch(x)
    a, g = by_hand(net, layer, x, samples.target, to_maps)
    want = (g.mean((2, 3), keepdim=True) * a).sum(1)
    got = lab.explain("grad_cam(relu=false)", net, samples).values
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
    assert (want.flatten(1).std(1) > 0).all()
    torch.testing.assert_close(lab.explain("hires_cam(relu=false)", net, samples).values, (g * a).sum(1))


def test_only_the_last_block_of_a_transformer_is_differentiated(lab):
    model = lab.wrap(vit().double())
    graph = {}
    probe = probe_for(model)
    x = lab.batch(torch.ones(2, 3, 32, 64, dtype=torch.float64))
    probe.layers(x.x)
    for name in ("blocks.4", "blocks.5.attn", "blocks.5"):
        model.module().get_submodule(name).register_forward_hook(
            lambda _m, _a, out, name=name: graph.__setitem__(name, out.requires_grad)
        )
    catalogue.build("method", "grad_cam")(probe, x)
    assert graph == {"blocks.4": False, "blocks.5.attn": True, "blocks.5": True}


def test_tokens_that_nothing_depends_on_are_no_layer(lab):
    with pytest.raises(HeatcheckError, match=r"depends on at layer='blocks.5'"):
        lab.explain("grad_cam(layer=blocks.5)", vit().double(), torch.ones(1, 3, 32, 64, dtype=torch.float64))
