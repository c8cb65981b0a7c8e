"""Class activation maps without gradients, against their formulas in loops, TorchCAM, and known answers."""

from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.types import NotApplicable
from heatcheck.models.vision_shim import load_timm, load_torchvision
from heatcheck.probe.asks import Shape
from heatcheck.testing.models import fill_weights, gap_linear, linear
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("methods/cams_by_forward.py", "argsort(dim=1, descending=True, stable=True)", "argsort(dim=1, stable=True)",
     "test_score_cam_can_be_asked_for_the_channels_that_vary_most"),
    ("methods/cams_by_forward.py", "score.reshape(n, channels).softmax(-1)",
     "score.reshape(n, channels).softmax(0)", "test_the_formula_gives_the_same"),
    ("methods/cams_by_forward.py", "small = unit_range(maps) if self.torchcam_compat else maps",
     "small = maps", "test_torchcam_gives_the_same_score_cam"),
    ("methods/cams_by_forward.py", "loss = clean - without",
     "loss = without - clean", "test_ablation_cam_has_a_closed_form_with_a_pooled_head"),
    ("methods/cams_by_forward.py", "torch.where(clean == 0, 1, clean.abs())",
     "torch.where(clean == 0, 1, clean)", "test_ablation_cam_has_a_closed_form_with_a_pooled_head"),
    ("methods/cams_by_forward.py", "left[:, 0] * size[0]",
     "left[:, 0]", "test_eigen_cam_finds_the_pattern_that_all_channels_share"),
)  # fmt: skip

FAMILY = ("score_cam", "ablation_cam", "eigen_cam")


def named(net):
    """The same layers under names that a spec can hold."""
    return nn.Sequential(OrderedDict((f"_{k}", m) for k, m in net.named_children()))


def maps_of(net, cut, x):
    with torch.no_grad():
        return net[: cut + 1](x[None])[0]


def scaled(a):
    span = a.max() - a.min()
    return (a - a.min()) / span if span > 0 else torch.zeros_like(a)


def enlarged(a, size):
    return F.interpolate(a[None, None], size, mode="bilinear", align_corners=False)[0, 0]


def slow_score_cam(net, cut, x, target, *, scale_first=False):
    a, size = maps_of(net, cut, x), x.shape[1:]
    scores = []
    for k in range(len(a)):
        seen = enlarged(scaled(a[k]), size) if scale_first else scaled(enlarged(a[k], size))
        scores.append(net((x * seen)[None])[0, target].detach())
    weights = torch.stack(scores).exp() / torch.stack(scores).exp().sum()
    return sum(weights[k] * a[k] for k in range(len(a)))


def slow_ablation_cam(net, cut, x, target):
    a = maps_of(net, cut, x)
    score = net(x[None])[0, target].detach()
    cam = torch.zeros_like(a[0])
    for k in range(len(a)):
        without = a.clone()
        without[k] = 0
        cam += (score - net[cut + 1 :](without[None])[0, target].detach()) / score.abs() * a[k]
    return cam


def slow_eigen_cam(net, cut, x, _target):
    """The first direction by power iteration."""
    a = maps_of(net, cut, x)
    rows = [a[:, u, v] for u in range(a.shape[1]) for v in range(a.shape[2])]
    turn = sum(row[:, None] * row[None, :] for row in rows)
    for _ in range(20):
        turn = turn @ turn
        turn = turn / turn.norm()
    direction = turn[0] / turn[0].norm()
    along = torch.stack([row @ direction for row in rows]).reshape(a.shape[1:])
    return along if along.sum() >= 0 else -along


SLOW = {"score_cam": slow_score_cam, "ablation_cam": slow_ablation_cam, "eigen_cam": slow_eigen_cam}


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize("name", FAMILY)
def test_the_formula_gives_the_same(lab, name, cut):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    want = torch.stack([SLOW[name](net, cut, x, t) for x, t in zip(samples.x["pixels"], samples.target, strict=True)])
    for forward in (3, 4):
        got = lab.explain(f"{name}(layer=_{cut}, relu=false)", named(net), samples, forward=forward)
        torch.testing.assert_close(got.values, want, rtol=1e-9, atol=1e-10)
    assert got.signed
    positive = lab.explain(f"{name}(layer=_{cut})", named(net), samples)
    torch.testing.assert_close(positive.values, F.relu(want), rtol=1e-9, atol=1e-10)
    assert not positive.signed


@pytest.mark.parametrize("act", [nn.Tanh, nn.ReLU])
def test_torchcam_gives_the_same_score_cam(lab, act):
    load_torchvision()
    from torchcam.methods import ScoreCAM

    net, samples = named(lab.network(act=act)), lab.batch(lab.pictures(3))
    with ScoreCAM(net, "_3", input_shape=(3, 8, 8)) as extractor, torch.no_grad():
        net(samples.x["pixels"])
        (want,) = extractor(samples.target.tolist(), normalized=False)
    got = lab.explain("score_cam(torchcam_compat=true)", net, samples).values
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-7)
    slow = [
        slow_score_cam(net, 3, x, t, scale_first=True) for x, t in zip(samples.x["pixels"], samples.target, strict=True)
    ]
    torch.testing.assert_close(got, F.relu(torch.stack(slow)), rtol=1e-9, atol=1e-12)
    assert not torch.allclose(got, lab.explain("score_cam", net, samples).values)


def test_score_cam_can_be_asked_for_the_channels_that_vary_most(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    got = lab.explain("score_cam(layer=_3, relu=false, channels=2)", named(net), samples).values
    for x, target, map_ in zip(samples.x["pixels"], samples.target, got, strict=True):
        a = maps_of(net, 3, x)
        spread = [float(a[k].std()) for k in range(len(a))]
        best = sorted(sorted(range(len(a)), key=lambda k: -spread[k])[:2])
        seen = [x * scaled(enlarged(a[k], x.shape[1:])) for k in best]
        scores = torch.stack([net(y[None])[0, target].detach() for y in seen]).softmax(0)
        torch.testing.assert_close(
            map_, sum(s * a[k] for s, k in zip(scores, best, strict=True)), rtol=1e-9, atol=1e-10
        )
    everything = lab.explain("score_cam(channels=999)", net, samples).values
    assert torch.equal(everything, lab.explain("score_cam", net, samples).values)


def test_what_is_seen_where_a_map_is_zero_is_the_fill(lab):
    net, x = lab.network(act=nn.ReLU), lab.pictures(2)
    zero, mean = (lab.explain(f"score_cam(fill={fill})", net, x).values for fill in ("zero", "channel_mean"))
    assert not torch.allclose(zero, mean)


@pytest.mark.parametrize("seed", range(8))
def test_ablation_cam_has_a_closed_form_with_a_pooled_head(lab, seed):
    toy = gap_linear(seed=seed)
    samples = toy_batch(toy, 2, seed)
    net = toy.module()
    a = net[:2](samples.x["pixels"])
    score = net(samples.x["pixels"]).gather(1, samples.target[:, None])
    w = net[4].weight[samples.target] * a.mean((2, 3)) / score.abs()
    want = (w[..., None, None] * a).sum(1)
    got = lab.explain("ablation_cam(relu=false)", toy, samples).values
    torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-10)


def test_an_output_of_zero_gives_an_ablation_map_too(lab):
    net = lab.network()
    with torch.no_grad():
        net[5].weight.zero_()
        net[5].bias.zero_()
    got = lab.explain("ablation_cam", net, lab.pictures(1))
    assert got.status == ("ok",) and (got.values == 0).all()


def test_eigen_cam_finds_the_pattern_that_all_channels_share(lab):
    net = nn.Sequential(nn.Conv2d(1, 3, 1, bias=False), nn.Flatten(), nn.Linear(48, 2)).double()
    x = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    got = lab.explain("eigen_cam", net, x).values
    torch.testing.assert_close(got, x[:, 0] * net[0].weight.norm())


def test_eigen_cam_of_nothing_is_nothing(lab):
    toy = gap_linear().with_network(lambda net: net.apply(silence), "silent")
    got = lab.explain("eigen_cam", toy, toy_batch(toy, 2))
    assert got.status == ("ok", "ok") and (got.values == 0).all()


def silence(module):
    if isinstance(module, nn.Conv2d):
        nn.init.zeros_(module.weight)
        nn.init.zeros_(module.bias)


def test_eigen_cam_does_not_look_at_the_class_but_the_others_do(lab):
    net, samples = lab.network(act=nn.ReLU), lab.batch(lab.pictures(2))
    other = replace(samples, target=1 - samples.target)
    same = {n: torch.equal(lab.explain(n, net, samples).values, lab.explain(n, net, other).values) for n in FAMILY}
    assert same == {"score_cam": False, "ablation_cam": False, "eigen_cam": True}


@pytest.mark.parametrize("name", FAMILY)
def test_a_shifted_picture_has_a_shifted_map(lab, name):
    net = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular"), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3),
    )  # fmt: skip
    net, x = fill_weights(net, 0, torch.float64), lab.pictures(2)
    one, other = (lab.explain(f"{name}(relu=false)", net, v).values for v in (x, x.roll((2, 3), (2, 3))))
    torch.testing.assert_close(other, one.roll((2, 3), (1, 2)))


def test_they_ask_once_per_channel_and_share_the_rest(lab):
    toy = gap_linear()
    samples, probe = toy_batch(toy, 2), probe_for(toy)
    for name in FAMILY:
        catalogue.build("method", name)(probe, samples)
    maps, clean, channels = 1, 1, 6
    assert probe.spent.forwards == 2 * (maps + clean + 2 * channels)
    assert probe.spent.backwards == 0
    shape = Shape(toy.domain, samples.x.take(slice(0, 1)), toy)
    assert (shape.channels("auto"), shape.channels("0"), shape.channels("nowhere")) == (6, 6, 0)
    flat = linear()
    assert Shape(flat.domain, flat.inputs(1), flat).channels("auto") == 0


class Twice(nn.Module):
    """One activation, called for the first layer and for the last."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.act = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.ReLU()
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.act(self.last(self.act(self.first(x)))).mean((2, 3)))


@pytest.mark.parametrize("name", [*FAMILY, "grad_cam", "hires_cam"])
def test_of_a_module_that_is_called_twice_the_last_call_counts(lab, name):
    once = Twice()
    once = fill_weights(once, 0, torch.float64)
    plain = nn.Sequential(once.first, nn.ReLU(), once.last, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), once.head)
    x = lab.pictures(2)
    got = lab.explain(f"{name}(layer=act)", once, x).values
    torch.testing.assert_close(got, lab.explain(f"{name}(layer=_3)", named(plain), x).values)


@pytest.mark.parametrize("name", FAMILY)
def test_models_without_feature_maps_are_told_what_to_try(lab, name):
    toy = linear()
    with pytest.raises(NotApplicable, match=r"spatial feature map, and linear has none; try"):
        lab.explain(name, toy, toy_batch(toy, 1))


def test_a_token_layers_class_token_survives_ablation(lab):
    net = load_timm().create_model("test_vit", img_size=32, num_classes=2)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net.init_weights()
        nn.init.normal_(net.head.weight)
    net = net.double().eval()
    samples = lab.batch(torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    x, target = samples.x["pixels"], int(samples.target[0])
    seen = []
    norm = net.blocks[-1].norm1
    handle = norm.register_forward_hook(lambda _m, _a, out: seen.append(out.detach().clone()))
    score = net(x)[0, target].detach()
    handle.remove()
    a = seen[0][0, 1:].reshape(2, 2, -1).movedim(-1, 0)
    cam = torch.zeros(2, 2, dtype=x.dtype)
    for k in range(len(a)):

        def ablate(_m, _a, out, k=k):
            out = out.clone()
            out[:, 1:, k] = 0
            return out

        handle = norm.register_forward_hook(ablate)
        cam += (score - net(x)[0, target].detach()) / score.abs() * a[k]
        handle.remove()
    assert cam.std() > 0
    torch.testing.assert_close(
        lab.explain("ablation_cam(relu=false)", net, samples).values[0], cam, rtol=1e-8, atol=1e-10
    )


class Around(nn.Module):
    """Joins a layer's output to its input, which rows that are multiplied at the layer cannot follow."""

    def __init__(self):
        super().__init__()
        self.body, self.layer, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 1), nn.Linear(9, 2)

    def forward(self, x):
        body = self.body(x)
        return self.head(torch.cat([body, self.layer(body)], 1).mean((2, 3)))


class Counts(Around):
    """Takes its number of rows from its input, and would drop those that are more."""

    def forward(self, x):
        layer = self.layer(self.body(x)).mean((2, 3)).reshape(len(x), -1)[:, :5]
        return nn.functional.linear(layer, self.head.weight[:, 4:], self.head.bias)


@pytest.mark.parametrize("make", [Around, Counts])
def test_ablation_cam_runs_whole_inputs_where_rows_cannot_be_multiplied(lab, make):
    net, samples = fill_weights(make(), 0, torch.float64), lab.batch(lab.pictures(2))
    x, target = samples.x["pixels"], samples.target
    a = net.layer(net.body(x)).detach()
    clean = net(x).gather(1, target[:, None]).detach()
    w = net.head.weight[target][:, 4:] * a.mean((2, 3)) / clean.abs()
    got = lab.explain("ablation_cam(layer=layer, relu=false)", net, samples).values
    torch.testing.assert_close(got, (w[..., None, None] * a).sum(1).detach())


def test_ablation_cam_runs_what_comes_before_the_layer_once_per_call(lab):
    net = named(lab.network())
    model, seen = lab.wrap(net), []
    probe, samples = probe_for(model, forward=4), lab.batch(lab.pictures(2))
    catalogue.build("method", "eigen_cam")(probe, samples)
    model.module()._0.register_forward_hook(lambda _m, _a, out: seen.append(len(out)))
    catalogue.build("method", "ablation_cam")(probe, samples)
    tried, asked, clean = [2, 1], [1, 1] * 2, [4]
    assert seen == [*tried, *asked, *clean]
