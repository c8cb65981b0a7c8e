"""Rules: they see every operation however it is written, change nothing by themselves, and refuse what they miss."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _len_torch_function_stack

from heatcheck.core.types import Batch, Inputs, NotApplicable, Streams, digest_of_tensor
from heatcheck.domain.image import ImageDomain
from heatcheck.models.torch_model import TorchModel
from heatcheck.models.vision_shim import load_timm, load_torchvision, load_transformers
from heatcheck.probe.rules import Rules
from heatcheck.testing.models import fill_weights
from heatcheck.testing.scenes import probe_for
from heatcheck.testing.watch import state_of


def pictures(n, side, seed=0):
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def frozen(net):
    return fill_weights(net, 0, torch.float64).eval().requires_grad_(False)


def answer(net, x, rules=None):
    """What a network says, and the gradient of a mix of it."""
    x = x.detach().clone().requires_grad_()
    if rules is None:
        out = net(x)
    else:
        with rules:
            out = net(x)
    out = getattr(out, "logits", out)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return out.detach(), torch.autograd.grad((out * weights).sum(), x)[0]


# -- whole networks ----------------------------------------------------------------------------------------------


def timm(name, **how):
    return load_timm().create_model(name, num_classes=4, **how)


def torchvision_swin():
    swin = load_torchvision().models.swin_transformer.SwinTransformer
    return swin([4, 4], embed_dim=16, depths=[1, 2], num_heads=[2, 2], window_size=[4, 4], num_classes=4)


def torchvision_vit():
    vit = load_torchvision().models.VisionTransformer
    return vit(image_size=32, patch_size=16, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=4)


def hf_vit(attention):
    hub = load_transformers()
    config = hub.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32,
        num_labels=4, attn_implementation=attention,
    )  # fmt: skip
    return hub.ViTForImageClassification(config)


class Cosines(nn.Module):
    """CLIP as a classifier: cosines between a picture's embedding and those of the class names."""

    def __init__(self, tower, names):
        super().__init__()
        self.tower, self.names, self.logit_scale = tower, nn.Parameter(names), nn.Parameter(torch.zeros(()))

    def forward(self, x):
        image, names = self.tower(pixel_values=x).image_embeds, self.names
        image, names = (t / t.norm(p=2, dim=-1, keepdim=True) for t in (image, names))
        return self.logit_scale.exp() * image @ names.t()


def hf_clip():
    hub = load_transformers()
    config = hub.CLIPVisionConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=32,
        patch_size=16, projection_dim=8,
    )  # fmt: skip
    return Cosines(hub.CLIPVisionModelWithProjection(config), torch.empty(4, 8))


_TOKENS = {"img_size": 32, "embed_dim": 16, "num_heads": 2, "depth": 2}
NETWORKS = {
    "timm resnet": lambda: timm("test_resnet"),
    "timm mobilenetv3": lambda: timm("mobilenetv3_small_050"),
    "timm densenet": lambda: timm("densenet121", block_config=(2, 2), growth_rate=8),
    "timm convnext": lambda: timm("test_convnext"),
    "timm efficientnet": lambda: timm("test_efficientnet"),
    "timm regnet": lambda: timm("regnety_002"),
    "timm vit": lambda: timm("vit_tiny_patch16_224", **_TOKENS),
    "timm distilled": lambda: timm("deit_tiny_distilled_patch16_224", **_TOKENS),
    "timm swin": lambda: timm(
        "swin_tiny_patch4_window7_224", img_size=32, window_size=4, depths=(1, 2), embed_dim=16, num_heads=(2, 2)
    ),
    "torchvision mobilenetv2": lambda: load_torchvision().models.MobileNetV2(num_classes=4, width_mult=0.25),
    "torchvision shufflenet": lambda: load_torchvision().models.shufflenet_v2_x0_5(num_classes=4),
    "torchvision squeezenet": lambda: load_torchvision().models.squeezenet1_1(num_classes=4),
    "torchvision swin": torchvision_swin,
    "torchvision vit": torchvision_vit,
    "hugging face clip": hf_clip,
    "hugging face vit, fused": lambda: hf_vit("sdpa"),
    "hugging face vit, step by step": lambda: hf_vit("eager"),
}
SIDE = dict.fromkeys(NETWORKS, 32) | {"torchvision squeezenet": 64}


@pytest.mark.parametrize("kind", NETWORKS)
def test_plain_rules_change_nothing(kind):
    net, x = frozen(NETWORKS[kind]()), pictures(2, SIDE[kind])
    before = state_of(net)
    plain, slope = answer(net, x)
    ruled, ruled_slope = answer(net, x, Rules())
    scale = slope.abs().max()
    assert plain.abs().max() > 0 and scale > 0
    torch.testing.assert_close(ruled, plain, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(ruled_slope / scale, slope / scale, rtol=1e-10, atol=1e-12)
    assert state_of(net) == before
    assert torch.equal(answer(net, x)[0], plain) and torch.equal(answer(net, x)[1], slope)


# -- every way to write an operation -------------------------------------------------------------------------------


class Watch(Rules):
    """Notes which rules are asked for."""

    def __init__(self):
        super().__init__()
        self.seen = []


def _watched(rule):
    def seen(self, *args, **how):
        self.seen.append(args[0] if rule == "activation" else rule)
        return getattr(Rules, rule)(self, *args, **how)

    return seen


for _rule in (
    "affine",
    "scaled",
    "activation",
    "max_pool",
    "add",
    "product",
    "matmul",
    "softmax",
    "normalise",
    "length",
):
    setattr(Watch, _rule, _watched(_rule))


def seen_in(operation, x):
    """The rules that an operation asks for; what it computes must be what torch computes."""
    plain, slope = answer(operation, x)
    watch = Watch()
    ruled, ruled_slope = answer(operation, x, watch)
    torch.testing.assert_close(ruled, plain, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(ruled_slope, slope, rtol=1e-12, atol=1e-13)
    return watch.seen


def in_place(change):
    """A statement that works in place and hands back what it changed."""

    def operation(x):
        y = x * 1
        return change(y)

    return operation


def iadd(y, other):
    y += other
    return y


def imul(y, other):
    y *= other
    return y


WAYS = {
    "relu": [F.relu, torch.relu, nn.ReLU(), in_place(nn.ReLU(inplace=True)), lambda x: x.relu(),
             lambda x: F.relu(input=x), in_place(lambda y: y.relu_()), in_place(F.relu_),
             in_place(lambda y: F.relu(y, True))],
    "relu6": [F.relu6],
    "gelu": [F.gelu, nn.GELU(approximate="tanh")],
    "silu": [F.silu, in_place(nn.SiLU(inplace=True))],
    "leaky_relu": [nn.LeakyReLU(0.3), in_place(nn.LeakyReLU(0.3, inplace=True)), lambda x: F.leaky_relu(x, 0.3, False)],
    "hardtanh": [nn.ReLU6(), in_place(nn.ReLU6(inplace=True)), nn.Hardtanh(-0.5, 0.25),
                 lambda x: F.hardtanh(x, -0.5, 0.25, False)],
    "threshold": [nn.Threshold(0.3, -1.0), in_place(nn.Threshold(0.3, -1.0, inplace=True))],
    "clamp": [lambda x: x.clamp(-0.5, 0.5), in_place(lambda y: y.clamp_(min=0)), lambda x: torch.clamp(x, max=0.25)],
    "sigmoid": [torch.sigmoid, nn.Sigmoid(), F.sigmoid, in_place(lambda y: y.sigmoid_())],
    "tanh": [torch.tanh, F.tanh, nn.Tanh()],
    "pow": [lambda x: x**2, lambda x: x.pow(3), lambda x: torch.pow(x, 2)],
    "prelu": [lambda x: F.prelu(x, torch.tensor([0.2], dtype=x.dtype))],
    "add": [lambda x: x + 1, lambda x: 1 + x, lambda x: torch.add(x, x, alpha=3), in_place(lambda y: iadd(y, 2)),
            in_place(lambda y: y.add_(1)), lambda x: x - 2, lambda x: 2 - x, lambda x: x.sub(x.flip(0), alpha=2),
            lambda x: torch.rsub(x, 3)],
    "product": [lambda x: x * x.flip(0), lambda x: x.mul(x), lambda x: torch.mul(x, x), lambda x: imul(x.flip(0), x)],
    "matmul": [lambda x: x @ x.mT, lambda x: torch.matmul(x, x.mT), lambda x: torch.bmm(x, x.mT),
               lambda x: torch.bmm(x, mat2=x.mT)],
    "softmax": [lambda x: x.softmax(-1), lambda x: F.softmax(x, dim=1), nn.Softmax(dim=0),
                lambda x: torch.softmax(x, -1)],
    "length": [lambda x: x.norm(dim=-1), lambda x: x.norm(), lambda x: torch.norm(x, 1, (0, 1), True),
               lambda x: torch.norm(x, p=3, dim=1), lambda x: torch.linalg.norm(x, dim=-1, keepdim=True),
               lambda x: torch.linalg.norm(x, "fro", (1, 2)), lambda x: torch.linalg.norm(x, ord=1, dim=0),
               lambda x: torch.linalg.vector_norm(x, dim=(0, 2)), lambda x: torch.linalg.vector_norm(x, 1),
               lambda x: x.norm(2, -1, keepdim=True)],
    "max_pool": [nn.MaxPool1d(2), lambda x: F.max_pool2d(x, 2), nn.MaxPool2d(3, 2, padding=1),
                 nn.AdaptiveMaxPool2d(2)],
}  # fmt: skip


@pytest.mark.parametrize(("rule", "way"), [(rule, i) for rule, ways in WAYS.items() for i in range(len(ways))])
def test_every_way_to_write_an_operation(rule, way):
    x = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert seen_in(WAYS[rule][way], x) == [rule]


def test_quotients_are_products_with_a_reciprocal():
    x = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    assert seen_in(lambda x: x / x.flip(0), x) == ["reciprocal", "product"]
    assert seen_in(lambda x: 2 / x, x) == ["reciprocal"]
    assert seen_in(lambda x: torch.div(x, 2), x) == []


NORMALISED = {
    "F.normalize": (lambda x: F.normalize(x, dim=-1), ["length", "reciprocal", "product"]),
    "F.normalize, short vectors": (lambda x: F.normalize(x, p=1, eps=9.0), ["length", "reciprocal", "product"]),
    "cosine to a constant": (
        lambda x: F.cosine_similarity(x, x.new_tensor([1, 2, 3, 4]), dim=-1), ["length", "reciprocal", "product"]
    ),
    "cosine of two": (lambda x: F.cosine_similarity(x[0], x[1:], -1), 2 * ["length", "reciprocal", "product"] + ["product"]),
    "rms_norm": (lambda x: F.rms_norm(x, (4,), x.new_ones(4)), ["product", "add", "rsqrt", "product", "scaled"]),
    "a matrix product with a constant": (lambda x: x @ x.new_ones(4, 2), ["affine"]),
    "a constant's product with it": (lambda x: x.new_ones(4, 4) @ x, []),
    "einsum with a constant": (lambda x: torch.einsum("nij,j->ni", x, x.new_ones(4)), []),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMALISED)
def test_normalised_vectors_and_products_with_constants(name):
    operation, rules = NORMALISED[name]
    x = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert seen_in(operation, x) == rules


LAYERS = {
    "conv": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=2), ["affine"]),
    "grouped": (lambda: nn.Conv2d(3, 6, 3, groups=3, bias=False, padding="same"), ["affine"]),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), ["affine"]),
    "linear": (lambda: nn.Linear(8, 5), ["affine"]),
    "batch norm": (lambda: nn.BatchNorm2d(3), ["scaled"]),
    "batch norm, no scale": (lambda: nn.BatchNorm2d(3, affine=False), ["scaled"]),
    "layer norm": (lambda: nn.LayerNorm(8), ["normalise", "scaled"]),
    "layer norm, no scale": (lambda: nn.LayerNorm((8, 8), elementwise_affine=False), ["normalise"]),
    "group norm": (lambda: nn.GroupNorm(3, 3), ["normalise", "scaled"]),
    "dropout at rest": (lambda: nn.Dropout(0.5), []),
    "pooling": (lambda: nn.AvgPool2d(2), []),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    make, rules = LAYERS[name]
    assert seen_in(frozen(make()), pictures(2, 8)) == rules


ATTENTION = ["matmul", "softmax", "matmul"]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"scale": 0.3},
        {"is_causal": True},
        {"attn_mask": torch.ones(4, 4, dtype=torch.bool).tril()},
    ],
)
def test_fused_attention_is_taken_apart(how):
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen = seen_in(lambda x: F.scaled_dot_product_attention(x, x.flip(2), x.cos(), **how), x)
    assert [s for s in seen if s != "cos"] == ATTENTION


def test_numbers_can_be_added_to_attention():
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.randn(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    seen = seen_in(lambda x: F.scaled_dot_product_attention(x, x, x, mask), x)
    assert seen == ["matmul", "add", "softmax", "matmul"]


@pytest.mark.parametrize("batch_first", [True, False])
def test_multi_head_attention_is_taken_apart(batch_first):
    layer = frozen(nn.MultiheadAttention(6, 2, batch_first=batch_first))
    x = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen = seen_in(lambda x: layer(x, x, x, need_weights=False)[0], x)
    assert seen == ["affine"] * 3 + ATTENTION + ["affine"]


class Twice(nn.Module):
    """One module, called twice."""

    def __init__(self):
        super().__init__()
        self.conv, self.relu = nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.relu(self.conv(x))
        x = self.relu(self.conv(x) + x)
        return x.mean((2, 3))


def test_a_module_called_twice_is_seen_twice():
    assert seen_in(frozen(Twice()), pictures(2, 8)) == ["affine", "relu", "affine", "add", "relu"]


def test_what_does_not_depend_on_the_input_is_left_alone():
    fixed = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def operation(x):
        return x * (fixed @ fixed).softmax(-1).relu() + 0 * x

    assert seen_in(operation, torch.ones(4, 4, dtype=torch.float64)) == ["add"]


# -- what cannot be followed ---------------------------------------------------------------------------------------


def write(x):
    y = x.clone()
    y[0] = x[1]
    return y


UNKNOWN = {
    "cumprod": lambda x: x.cumprod(0),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "amax": lambda x: x.amax(0),
    "einsum": lambda x: torch.einsum("nij,nkj->nik", x, x),
    "setitem": write,
    "var": lambda x: x.var(0),
    "norm of order nuc of a matrix": lambda x: torch.linalg.norm(x, "nuc", dim=(1, 2)),
    "norm of order 2 of a matrix": lambda x: torch.linalg.norm(x, 2, (1, 2)),
    "instance_norm": lambda x: F.instance_norm(x),
    "batch_norm by the statistics of the batch": lambda x: F.batch_norm(x, None, None, training=True),
    "dropout in training mode": lambda x: F.dropout(x, 0.5),
    "division with rounding": lambda x: torch.div(x, 2, rounding_mode="floor"),
    "linear with weights that depend on the input": lambda x: F.linear(x, x[0]),
    "attention whose heads share keys": lambda x: F.scaled_dot_product_attention(
        x[None], x[None, :1], x[None, :1], enable_gqa=True
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_operations_are_refused_by_name(name):
    x = torch.randn(4, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    with pytest.raises(NotApplicable, match=f"no rule for the operation '{name}'"), Rules():
        UNKNOWN[name](x)
    with Rules():  # on what does not depend on the input, anything may be done
        UNKNOWN[name](x.detach())


def test_lenient_rules_let_unknown_operations_pass():
    class Lenient(Rules):
        strict = False

    x = torch.randn(4, 4, dtype=torch.float64)
    torch.testing.assert_close(answer(lambda x: x.cumprod(0), x, Lenient()), answer(lambda x: x.cumprod(0), x))


class Unreturned(nn.Module):
    """Works in place and goes on with the tensor it changed: rules, which never work in place, cannot see that."""

    def __init__(self, broken):
        super().__init__()
        self.conv, self.head, self.broken = nn.Conv2d(3, 4, 3), nn.Linear(4, 2), broken

    def forward(self, x):
        x = self.conv(x)
        if self.broken:
            F.relu_(x)
        else:
            x = F.relu_(x)
        return self.head(x.mean((2, 3)))


def look(net, x, rules=Rules, read=lambda seen: seen.slope()):
    """What a probe streams of a network under rules."""
    target = torch.zeros(len(x), dtype=torch.long)
    samples = Batch(Inputs({"pixels": x}), target, target, Streams(0, tuple(digest_of_tensor(row) for row in x)))
    probe = probe_for(TorchModel(net, "net", ImageDomain()))
    found = probe.run_with_rules(samples, torch.arange(len(x)), samples.x.take, rules, read, "logit")
    return torch.cat([out for _, out in found])


def test_statements_in_place_that_are_not_returned_are_refused():
    x = pictures(3, 8)
    whole, broken = (frozen(Unreturned(b)) for b in (False, True))
    torch.testing.assert_close(whole(x), broken(x))
    assert look(whole, x).abs().max() > 0
    with pytest.raises(NotApplicable, match=r"cannot follow what net computes .* try integrated_gradients"):
        look(broken, x)


def test_a_probe_looks_at_the_ordinary_gradient():
    net, x = frozen(Twice()), pictures(3, 8)
    leaf = x.clone().requires_grad_()
    (want,) = torch.autograd.grad(net(leaf)[:, 0].sum(), leaf)
    torch.testing.assert_close(look(net, x), want)


class Fails(Rules):
    def activation(self, name, x, apply):
        raise RuntimeError("on purpose")


def test_rules_end_with_their_block_whatever_happens():
    net, x = frozen(Twice()), pictures(1, 8)
    before = state_of(net)
    plain = answer(net, x)
    depth = _len_torch_function_stack()
    with pytest.raises(RuntimeError, match="on purpose"):
        look(net, x, Fails)
    with pytest.raises(RuntimeError, match="on purpose"):
        look(net, x, read=lambda seen: Fails().activation("", seen.leaf, torch.relu))
    assert _len_torch_function_stack() == depth
    assert state_of(net) == before
    assert all(torch.equal(a, b) for a, b in zip(answer(net, x), plain, strict=True))
