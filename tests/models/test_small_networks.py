"""Small networks: counted, computed slowly and begun as their papers say; weights that tell what they are by name."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

import heatcheck as hc
from heatcheck.api.study import Study
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError, Inputs, Sample
from heatcheck.data.cifar10 import CLASSES
from heatcheck.data.packages import package_folder
from heatcheck.models.architectures import bagnet, bcos, fixup, xvgg
from heatcheck.models.architectures.bcos import BatchNormUncentered2d, explanation_mode
from heatcheck.models.architectures.fresh import drawn_from
from heatcheck.models.architectures.small.source import HEADS, NETWORKS, SEED, read_small
from heatcheck.models.file_names import is_weights_file, recognised
from heatcheck.models.load import load_model
from heatcheck.models.retarget import reinitialised
from heatcheck.models.vision_shim import load_torchvision
from heatcheck.testing.models import fill_weights

MUTANTS = (
    ("models/architectures/small/parts.py", "x[..., :: self.stride, :: self.stride]", "x[..., 1 :: self.stride, :: self.stride]",
     "test_a_residual_network_is_the_papers_computed_slowly"),
    ("models/architectures/small/parts.py", "(0, 0, 0, 0, self.before, self.behind)", "(0, 0, 0, 0, 0, self.before + self.behind)",
     "test_a_residual_network_is_the_papers_computed_slowly"),
    ("models/architectures/small/resnet.py", "len(blocks) ** -0.5", "len(blocks) ** -0.25", "test_fixup_begins_as_its_paper_says"),
    ("models/architectures/small/resnet.py", "self.conv1(inside) + self.bias1b", "self.conv1(x) + self.bias1b",
     "test_fixups_scalars_are_where_the_paper_has_them"),
    ("models/architectures/small/resnet.py", "norm=\"none\", bias=False", "norm=\"none\", bias=True",
     "test_without_biases_and_norms_they_are_homogeneous"),
    ("models/architectures/small/vit.py", "self.norm(self.blocks(tokens))[:, 0]", "self.norm(self.blocks(tokens))[:, 1]",
     "test_a_vision_transformer_is_the_papers_computed_slowly"),
    ("models/architectures/bagnet.py", "step *= stride", "step += stride",
     "test_a_bagnet_sees_its_receptive_field_and_no_more"),
    ("models/architectures/bcos.py", "variance = x.var((0, 2, 3), correction=0)", "variance = x.square().mean((0, 2, 3))",
     "test_while_training_a_b_cos_norm_uses_the_batchs_variance"),
    ("models/architectures/fresh.py", "torch.default_generator.manual_seed(seed)", "torch.default_generator.seed()",
     "test_fresh_weights_are_always_the_same_and_leave_the_generator_alone"),
)  # fmt: skip

EVERY = ("resnet(depth=8)", "resnet(norm=none, depth=8)", "resnet(bias=false, depth=8)", "fixup(depth=8)", "xresnet8",
         "vgg8(width=8)", "vgg8_bn(width=8)", "xvgg8(width=8)", "vit(depth=2, dim=16, heads=2)", "bagnet9(width=4)",
         "bcos8(width=8)")  # fmt: skip


def network(spec, seed=0, **facts):
    """A small network with random weights and batch norm statistics, in double precision."""
    net = fill_weights(load_model(f"small:{spec}", **facts).module(), seed, torch.float64).eval()
    rng = torch.Generator().manual_seed(seed)
    for name, buffer in net.named_buffers():
        if "running" in name:
            buffer.copy_(torch.rand(buffer.shape, generator=rng) + 0.2)
    return net.requires_grad_(False)


def saved(net, path):
    save_file({name: tensor.contiguous() for name, tensor in net.state_dict().items()}, path)
    return path


def pictures(n=2, side=32, seed=0):
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# -- residual networks -------------------------------------------------------------------------------------------


def weights_of_a_residual_network(n, width, classes=10):
    """Counted as the paper draws it: 3 × 3 convolutions, each with a batch norm of two numbers per channel."""
    count, channels = 3 * 9 * width + 2 * width, width
    for stage in (width, 2 * width, 4 * width):
        for _ in range(n):
            count += channels * stage * 9 + stage * stage * 9 + 4 * stage
            channels = stage
    return count + channels * classes + classes


@pytest.mark.parametrize(("depth", "published"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)])
def test_as_many_weights_as_the_paper_says(depth, published):
    with torch.device("meta"):
        net = NETWORKS["resnet"](depth=depth)
    counted = sum(p.numel() for p in net.parameters())
    assert counted == weights_of_a_residual_network((depth - 2) // 6, 16)
    assert abs(counted / 1e6 - published) < 0.05 and (depth != 20 or counted == 269_722)
    wide = NETWORKS["resnet"](depth=8, width=5, classes=3)
    assert sum(p.numel() for p in wide.parameters()) == weights_of_a_residual_network(1, 5, 3)


def slow_residual_network(state, x):
    """He et al. 2016, section 4.2, from a state dict: loops, plain functions, shortcuts of type A."""

    def norm(x, name):
        mean, var, weight, bias = (
            state[f"{name}.{k}"][:, None, None] for k in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    out = norm(F.conv2d(x, state["conv1.weight"], padding=1), "bn1").clamp(min=0)
    for stage in (1, 2, 3):
        for block in range(sum(f"layer{stage}." in k and k.endswith("conv1.weight") for k in state)):
            at = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            inner = norm(F.conv2d(out, state[f"{at}.conv1.weight"], stride=stride, padding=1), f"{at}.bn1").clamp(min=0)
            inner = norm(F.conv2d(inner, state[f"{at}.conv2.weight"], padding=1), f"{at}.bn2")
            if stride == 2:
                kept = torch.zeros_like(inner)
                first = (inner.shape[1] - out.shape[1]) // 2
                for i in range(inner.shape[2]):
                    for j in range(inner.shape[3]):
                        kept[:, first : first + out.shape[1], i, j] = out[:, :, 2 * i, 2 * j]
                out = kept
            out = (inner + out).clamp(min=0)
    return out.flatten(2).mean(2) @ state["linear.weight"].T + state["linear.bias"]


@pytest.mark.parametrize(("spec", "side"), [("resnet8", 32), ("resnet(depth=14, width=5, classes=4)", 17)])
def test_a_residual_network_is_the_papers_computed_slowly(spec, side):
    net, x = network(spec), pictures(side=side)
    assert_close(net(x), slow_residual_network(net.state_dict(), x))


@pytest.mark.parametrize("bias", ["true", "false"])
@pytest.mark.parametrize("norm", ["batch", "none"])
@pytest.mark.parametrize("kind", ["resnet(depth=8", "vgg(width=8"])
def test_constants_are_learnt_where_they_are_asked_for(kind, norm, bias):
    net = load_model(f"small:{kind}, norm={norm}, bias={bias})").module()
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    head = net.get_submodule("linear" if "resnet" in kind else "classifier")
    assert len(norms) == (len(layers) if norm == "batch" else 0)
    assert all((m.bias is not None) == (bias == "true" and norm == "none") for m in layers)
    assert all((m.bias is not None) == (bias == "true") for m in [*norms, head])


def test_fixups_scalars_are_where_the_paper_has_them():
    net, x = network("fixup(depth=8, width=4)"), pictures()
    out = (F.conv2d(x, net.conv1.weight, padding=1) + net.bias1).clamp(min=0)
    for stage in (net.layer1, net.layer2, net.layer3):
        block = stage[0]
        stride = 1 if stage is net.layer1 else 2
        inner = F.conv2d(out + block.bias1a, block.conv1.weight, stride=stride, padding=1)
        inner = F.conv2d((inner + block.bias1b).clamp(min=0) + block.bias2a, block.conv2.weight, padding=1)
        inner = inner * block.scale + block.bias2b
        if stride == 2:
            kept = (out + block.bias1a)[..., ::2, ::2]
            none = torch.zeros_like(kept[:, : kept.shape[1] // 2])
            out = torch.cat([none, kept, none], 1)
        out = (inner + out).clamp(min=0)
    assert_close(net(x), F.linear(out.mean((2, 3)) + net.bias2, net.linear.weight, net.linear.bias))


@pytest.mark.parametrize("spec", ["xresnet14(width=4)", "resnet(depth=8, norm=none, bias=false)", "xvgg8(width=4)"])
def test_without_biases_and_norms_they_are_homogeneous(spec):
    net, x = network(spec), pictures() - 0.5
    assert_close(net(3.5 * x), 3.5 * net(x))
    one = hc.explain(net, x, method="input_x_gradient", target=1).values
    assert_close(one.flatten(1).sum(1), net(x)[:, 1])
    for method in ("integrated_gradients(steps=3)", "deep_lift", "lrp(composite=epsilon, epsilon=0.0)"):
        assert_close(hc.explain(net, x, method=method, target=1).values, one, rtol=1e-6, atol=1e-9)
    biased = network(spec.replace("x", "", 1) if spec.startswith("x") else "resnet(depth=8, norm=none)")
    assert not torch.allclose(biased(3.5 * x), 3.5 * biased(x))


# -- the others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [11, 13, 16])
def test_vgg_has_the_papers_convolutions(depth):
    name = {11: "A", 13: "B", 16: "D"}[depth]
    theirs = [v for v in load_torchvision().models.vgg.cfgs[name] if v != "M"]
    with torch.device("meta"):
        net = NETWORKS["vgg"](depth=depth)
        ours = [m.out_channels for m in net.features if isinstance(m, nn.Conv2d)]
        last = net.features(torch.empty(1, 3, 32, 32))
    assert ours == theirs and len(ours) == depth - 3
    assert last.shape == (1, 512, 4, 4)


def test_vgg_pools_as_far_as_there_is_something_to_pool():
    with torch.device("meta"):
        widths = [m.out_channels for m in NETWORKS["vgg"]().features if isinstance(m, nn.Conv2d)]
        assert widths == [64, 128, 256, 512, 512]
        for size, side in ((8, 4), (16, 4), (64, 4), (128, 8), (224, 14)):
            net = NETWORKS["vgg"](size=size, width=4)
            assert net.features(torch.empty(1, 3, size, size)).shape[2:] == (side, side)


def slow_vision_transformer(net, x):
    """Dosovitskiy et al. 2021, equations 1 to 4, one picture, one patch and one head at a time."""
    side = net.patch_embed.kernel_size[0]
    answers = []
    for picture in x:
        tokens = [net.cls_token[0, 0]]
        for i in range(0, picture.shape[1], side):
            for j in range(0, picture.shape[2], side):
                patch = picture[:, i : i + side, j : j + side].flatten()
                tokens.append(net.patch_embed.weight.flatten(1) @ patch + net.patch_embed.bias)
        z = torch.stack(tokens) + net.pos_embed[0]
        for block in net.blocks:
            y = F.layer_norm(z, z.shape[1:], block.norm1.weight, block.norm1.bias, 1e-6)
            q, k, v = F.linear(y, block.attn.qkv.weight, block.attn.qkv.bias).chunk(3, 1)
            size = q.shape[1] // block.attn.heads
            mixed = [
                torch.softmax(a @ b.T / size**0.5, 1) @ c
                for a, b, c in zip(q.split(size, 1), k.split(size, 1), v.split(size, 1), strict=True)
            ]
            z = z + F.linear(torch.cat(mixed, 1), block.attn.proj.weight, block.attn.proj.bias)
            y = F.layer_norm(z, z.shape[1:], block.norm2.weight, block.norm2.bias, 1e-6)
            z = z + F.linear(F.gelu(F.linear(y, block.mlp[0].weight, block.mlp[0].bias)), block.mlp[2].weight,
                             block.mlp[2].bias)  # fmt: skip
        last = F.layer_norm(z[0], z.shape[1:], net.norm.weight, net.norm.bias, 1e-6)
        answers.append(net.head.weight @ last + net.head.bias)
    return torch.stack(answers)


def test_a_vision_transformer_is_the_papers_computed_slowly():
    net, x = network("vit(patch=4, dim=12, depth=2, heads=3, size=16, classes=4)"), pictures(side=16)
    assert_close(net(x), slow_vision_transformer(net, x))


def test_its_attention_is_found():
    model = load_model("small:vit(depth=3, dim=16, heads=2)")
    assert model.attention_blocks() == [f"blocks.{i}.attn" for i in range(3)]
    last = model.layers(Inputs({"pixels": pictures(1).float()}))[-1]
    assert (last.height, last.width, last.prefix) == (8, 8, 1)


@pytest.mark.parametrize("field", [5, 9, 13, 17])
def test_a_bagnet_sees_its_receptive_field_and_no_more(field):
    net = network(f"bagnet(receptive_field={field}, width=8, depth=14)")
    x = pictures(4, 21).requires_grad_()
    scores = net.evidence(x)
    places = (21 - field) // 2 + 1
    assert scores.shape == (4, places, places, 10) and (net.patch, net.stride) == (field, 2)
    i, j = places - 1, places // 2
    (slope,) = torch.autograd.grad(scores[:, i, j].square().sum(), x)
    rows, columns = (slope.abs().sum((0, 1, axis)).nonzero().flatten() for axis in (3, 2))
    assert (rows.min(), rows.max()) == (2 * i, 2 * i + field - 1)
    assert (columns.min(), columns.max()) == (2 * j, 2 * j + field - 1)


def test_a_bagnets_map_is_the_score_of_every_patch_by_itself():
    net = network("bagnet(receptive_field=9, width=2, depth=14, classes=3)")
    x = pictures(1, 13)
    padded = F.pad(x, (4, 4, 4, 4))
    want = torch.stack([
        torch.stack([net(padded[..., i : i + 9, j : j + 9])[0, 2] for j in range(13)]) for i in range(13)
    ])  # fmt: skip
    assert_close(hc.explain(net, x, method="bagnet", target=2).values[0], want)
    assert_close(want[4:-4:2, 4:-4:2].mean(), net(x)[0, 2])
    fast = hc.explain(net, x, method="bagnet(fast=true)", target=2).values[0]
    assert_close(fast[4:-4:2, 4:-4:2], want[4:-4:2, 4:-4:2])


def test_a_b_cos_network_is_linear_with_the_weights_of_its_input():
    net = network("bcos(depth=14, width=4, classes=3)")
    x = pictures()
    total = hc.explain(net, x, method="bcos", target=1).values.flatten(1).sum(1)
    assert_close(total, net(x)[:, 1] - net.logit_bias, rtol=1e-5, atol=1e-7)
    assert net.logit_bias == -np.log(2) and net.conv1.linear.in_channels == 6
    encoded = net.encode(x).requires_grad_()
    with explanation_mode(net):
        for c in range(3):
            maps = net.class_maps(encoded).mean((2, 3))[:, c]
            (weight,) = torch.autograd.grad(maps.sum(), encoded)
            assert_close((weight * encoded).flatten(1).sum(1), maps)
    assert all(m.bias is None for m in net.modules() if isinstance(m, nn.Conv2d))


def test_while_training_a_b_cos_norm_uses_the_batchs_variance():
    norm = BatchNormUncentered2d(2).double().train()
    x = torch.randn(3, 2, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 3
    variance = torch.tensor([float(np.var(x[:, c].numpy())) for c in range(2)], dtype=torch.float64)
    assert_close(norm(x), x / (variance + norm.eps).sqrt()[:, None, None])
    assert_close(norm.running_var, 0.9 + 0.1 * variance)
    assert_close(norm.eval()(x), x / (0.9 + 0.1 * variance + norm.eps).sqrt()[:, None, None])


def test_a_b_cos_network_sees_colours_and_the_others_normalised_ones(tmp_path):
    whole = np.zeros((32, 32, 3), np.uint8)
    assert load_model("small:bcos8").encode(Sample("black", "", whole))["pixels"].abs().max() == 0
    model = load_model("small:resnet8")
    seen = model.encode(Sample("black", "", whole))["pixels"]
    assert_close(seen[0, :, 0, 0], torch.tensor([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]))
    corner = whole.copy()
    corner[0, 0] = 255
    assert (model.encode(Sample("corner", "", corner))["pixels"] != seen).sum() == 3  # nothing is cropped or scaled
    assert load_model("small:resnet8(size=48)").encode(Sample("black", "", whole))["pixels"].shape[2:] == (48, 48)


# -- how they begin ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", EVERY)
def test_fresh_weights_are_always_the_same_and_leave_the_generator_alone(spec):
    torch.manual_seed(7)
    before = torch.get_rng_state()
    model = load_model(f"small:{spec}")
    torch.manual_seed(8)
    again = load_model(f"small:{spec}")
    assert model.identity == again.identity
    assert any("untrained" in note for note in model.notes)
    torch.set_rng_state(before)
    anew, other = reinitialised(model.module(), SEED), reinitialised(model.module(), SEED + 1)
    assert torch.equal(torch.get_rng_state(), before)
    for (name, a), b, c in zip(model.module().state_dict().items(), anew.state_dict().values(),
                               other.state_dict().values(), strict=True):  # fmt: skip
        assert torch.equal(a, b), name
        assert torch.equal(a, c) == (not a.is_floating_point() or a.std(correction=0).item() == 0), name


def test_a_network_that_was_trained_begins_anew_as_one_that_was_not():
    model = load_model("small:fixup8")
    trained = fill_weights(load_model("small:fixup8").module(), 3, torch.float32)
    assert all(map(torch.equal, reinitialised(trained, SEED).parameters(), model.module().parameters()))
    seen = load_model("small:resnet8").module().train()
    with torch.no_grad():
        seen(torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert not torch.equal(seen.bn1.running_var, torch.ones(16))
    assert torch.equal(reinitialised(seen, 0).bn1.running_var, torch.ones(16))


def test_convolutions_begin_with_he_s_variance():
    for spec in ("resnet(depth=8, width=32)", "vgg8(width=32)", "bagnet9(width=32)"):
        net = load_model(f"small:{spec}").module()
        for layer in (m for m in net.modules() if isinstance(m, nn.Conv2d) and m.weight.numel() > 3000):
            fan_in = layer.in_channels * layer.kernel_size[0] ** 2
            assert abs(layer.weight.std() / (2 / fan_in) ** 0.5 - 1) < 0.07
            assert layer.bias is None or not layer.bias.any()


def test_fixup_begins_as_its_paper_says():
    for spec in ("fixup(depth=26, width=32)", "xresnet26(width=32)", "resnet(depth=26, width=32, norm=none)"):
        net = load_model(f"small:{spec}").module()
        assert not net.linear.weight.any()
        blocks = [block for stage in (net.layer1, net.layer2, net.layer3) for block in stage]
        assert len(blocks) == 12
        for block in blocks:
            he = (2 / (9 * block.conv1.in_channels)) ** 0.5
            assert abs(block.conv1.weight.std() / (he * 12**-0.5) - 1) < 0.07
            assert not block.conv2.weight.any()
            assert not hasattr(block, "scale") or (block.scale.item(), block.bias1a.item()) == (1, 0)


def test_the_large_fixup_network_begins_likewise():
    with drawn_from(0):
        net = fixup.FixupResNet(3, width=32, depths=(2, 2))
        net.initialise()
    assert not net.fc.weight.any() and net.layer1[0].scale.item() == 1
    for block in (*net.layer1, *net.layer2):
        assert not block.conv3.weight.any()
        he = (2 / (9 * block.conv2.in_channels)) ** 0.5
        assert abs(block.conv2.weight.std() / (he * 4**-0.25) - 1) < 0.07


# -- how they are written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("written", "means"), [
    ("resnet20", "resnet(depth=20)"), ("vgg16_bn", "vgg(depth=16, norm=batch)"), ("vgg11", "vgg(depth=11)"),
    ("xvgg13", "vgg(depth=13, bias=false)"), ("xresnet20", "fixup(depth=20, bias=false)"), ("bcos20", "bcos(depth=20)"),
    ("bagnet9(width=8)", "bagnet(receptive_field=9, width=8)"), ("resnet(32)", "resnet(depth=32)"),
    ("resnet20(depth=20)", "resnet(depth=20)"),
])  # fmt: skip
def test_short_names(written, means):
    assert read_small(written) == read_small(means)


@pytest.mark.parametrize(("spec", "said"), [
    ("small:resnt20", "small has no network 'resnt20'; did you mean resnet"),
    ("small:inception", "known: bagnet, bcos, fixup, resnet, vgg, vit"),
    ("small:resnet20_bn", "no network 'resnet20_bn'"), ("small:xbcos20", "no network 'xbcos20'"),
    ("small:resnet(dept=20)", "small:resnet has no parameter 'dept'; did you mean depth"),
    ("small:resnet(depth=21)", r"small:resnet\(depth=21\): depth=21 is not 6n \+ 2.*try 20 or 26"),
    ("small:resnet(depth=2)", r"try 8$"), ("small:fixup(depth=19)", "try 14 or 20"), ("small:bcos9", "try 8 or 14"),
    ("small:vgg(depth=12)", "depth=12 is not one of 8, 11, 13, 16"),
    ("small:resnet(norm=layer)", "norm=layer is neither batch nor none"), ("small:vgg(norm=1)", "norm=1 is not a word"),
    ("small:resnet(depth=2.5)", "depth=2.5 is not a whole number, such as 20"),
    ("small:resnet(bias=0)", "bias=0 is not true or false"), ("small:resnet(width=0)", "width=0 is less than 1"),
    ("small:resnet(classes=1)", "classes=1 is less than 2"), ("small:resnet20(depth=32)", "gives depth twice"),
    ("small:vit(patch=5)", "patch=5 does not divide size=32"), ("small:vit(heads=3)", "heads=3 does not divide dim=128"),
    ("small:bagnet(receptive_field=10)", "is not one of 5, 9, 13, 17"), ("small:bagnet(depth=20)", r"not 12n \+ 2"),
    ("small:bagnet17(size=16)", "larger than the pictures, size=16"), ("small:resnet(", "cannot be read.*not closed"),
    ("small:", "lacks a name: write small:NAME"),
])  # fmt: skip
def test_what_cannot_be_built_is_refused_with_what_can(spec, said):
    with pytest.raises(HeatcheckError, match=said):
        load_model(spec)


def test_a_checkpoint_tells_how_many_classes_there_are(tmp_path):
    for spec in ("resnet8", "fixup8", "vgg8(width=4)", "vit(dim=8, depth=1, heads=1)", "bagnet9(width=2)", "bcos8"):
        id, _ = read_small(spec)
        net = load_model(f"small:{spec}", classes=["a", "b", "c"]).module()
        assert len(net.get_parameter(f"{HEADS[id]}.weight")) == 3
        model = load_model(f"small:{spec}@{saved(net, tmp_path / 'w@1.safetensors')}")
        assert all(map(torch.equal, model.module().parameters(), net.parameters()))
        assert model.notes == [] and model.name == f"small:{spec}" and model.classes is None


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    path = saved(load_model("small:resnet8").module(), tmp_path / "w.safetensors")
    with pytest.raises(HeatcheckError, match=r"does not fit SmallResNet: missing layer1\.1"):
        load_model(f"small:resnet14@{path}")
    with pytest.raises(HeatcheckError, match=r"w.safetensors does not fit small:vgg8: it has no classifier\.weight"):
        load_model(f"small:vgg8@{path}")
    with pytest.raises(HeatcheckError, match=r"of other shape: linear.bias is \(10,\), not \(7,\)"):
        load_model(f"small:resnet(depth=8, classes=7)@{path}")


# -- weights by name ---------------------------------------------------------------------------------------------


def test_a_file_whose_name_tells_what_it_is(tmp_path):
    net = load_model("small:resnet8").module()
    path = saved(net, tmp_path / "cifar10_resnet8_akamaster.safetensors")
    model = load_model(str(path))
    assert (model.name, model.classes, model.notes) == ("cifar10_resnet8_akamaster", CLASSES, [])
    assert load_model(str(path), name="mine", classes=list("abcdefghij")).class_name(0) == "a"
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in net.state_dict().items()}}, tmp_path / "resnet8-0123abcd.th"
    )
    assert load_model(str(tmp_path / "resnet8-0123abcd.th")).identity == model.identity
    with pytest.raises(HeatcheckError, match=r"names a checkpoint, and checkpoint='other.pt' another"):
        load_model(str(path), checkpoint="other.pt")


def test_what_authors_call_their_files_is_recognised(tmp_path):
    for id, network in {**bagnet.PUBLISHED, **bcos.PUBLISHED, **fixup.PUBLISHED, **xvgg.PUBLISHED}.items():
        file = tmp_path / network.file.replace("*", "0123456789")
        file.touch()
        assert recognised(str(file)) == (id, "")


def test_a_file_whose_name_tells_nothing(tmp_path):
    path = tmp_path / "best.pt"
    path.touch()
    said = rf"model='{re.escape(str(path))}': its name does not tell what network .* write ARCHITECTURE@FILE"
    with pytest.raises(HeatcheckError, match=said):
        load_model(str(path))
    with pytest.raises(HeatcheckError, match=r"bst.pt': there is no such file; did you mean best.pt"):
        load_model(str(tmp_path / "bst.pt"))
    assert not is_weights_file(f"timm:resnet50@{path}") and not is_weights_file("resnet50_v1")


def test_a_study_file_may_name_weights_beside_it(tmp_path):
    path = tmp_path / "cifar10_resnet8_akamaster.safetensors"
    path.touch()
    (tmp_path / "study.toml").write_text('models = ["cifar10_resnet8_akamaster.safetensors"]\ndata = "images"\n')
    assert Study.load(tmp_path / "study.toml").models == (str(path),)
    (tmp_path / "study.toml").write_text('models = ["cifar10_resnet9_akamaster.safetensors"]\ndata = "images"\n')
    with pytest.raises(SpecError, match="there is no such file; did you mean cifar10_resnet8"):
        Study.load(tmp_path / "study.toml")


@pytest.fixture(scope="module")
def cifar_pictures():
    """Twenty pictures of CIFAR-10's test set with their labels, from an installed package."""
    files = sorted(package_folder("this test", "foolbox", "data").glob("cifar10_*.png"))
    return [Sample(f.name, "", np.array(Image.open(f).convert("RGB")), int(f.stem.split("_")[2])) for f in files]


@pytest.mark.slow
@pytest.mark.parametrize("depth", [20, 32, 44, 56])
def test_the_real_networks_know_cifar(shared: Path, cifar_pictures, depth):
    model = load_model(str(shared / "weights" / f"cifar10_resnet{depth}_akamaster.safetensors"))
    x = torch.cat([model.encode(sample)["pixels"] for sample in cifar_pictures])
    with torch.inference_mode():
        logits = model.logits(Inputs({"pixels": x}))
        want = slow_residual_network({k: v.double() for k, v in model.module().state_dict().items()}, x.double())
    assert_close(logits.double(), want, rtol=1e-3, atol=1e-3)
    right = [
        model.class_name(int(i)) == CLASSES[s.label] for i, s in zip(logits.argmax(1), cifar_pictures, strict=True)
    ]
    assert len(right) == 20 and sum(right) >= 17
    drop = logits - model.logits(Inputs({"pixels": torch.zeros_like(x)}))
    heat = hc.explain(model, x[:4], method="deep_lift", target=[s.label for s in cifar_pictures[:4]]).values
    for i, sample in enumerate(cifar_pictures[:4]):
        assert_close(heat[i].sum(), drop[i, sample.label], rtol=1e-3, atol=1e-3)
