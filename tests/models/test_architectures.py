"""Networks that explain themselves: tensors named as their authors name them, and the laws they are built for."""

import json
import math
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.core.types import HeatcheckError
from heatcheck.models import catalogue
from heatcheck.models.architectures import bagnet, bcos, fixup, xvgg
from heatcheck.models.architectures.bagnet import BagNet, Block, bagnet9, bagnet17, bagnet33
from heatcheck.models.architectures.bcos import (
    AddInverse,
    BasicBlock,
    BcosConv2d,
    BcosDenseNet,
    BcosResNet,
    BcosVgg,
    Bottleneck,
    Encoded,
    explanation_mode,
)
from heatcheck.models.architectures.fixup import FixupResNet, XResNet
from heatcheck.models.architectures.xvgg import XVgg
from heatcheck.models.load import load_model
from heatcheck.testing.models import fill_weights

PUBLISHED = {**bagnet.PUBLISHED, **bcos.PUBLISHED, **fixup.PUBLISHED, **xvgg.PUBLISHED}
FIXTURES = Path(__file__).parent / "fixtures"
"""Names and shapes of the authors' own state dicts, in their order."""


def small(network, seed=0):
    """Random weights and batch norm statistics, in double precision and evaluation mode."""
    rng = torch.Generator().manual_seed(seed)
    network = fill_weights(network, seed, torch.float64).eval()
    for name, buffer in network.named_buffers():
        if name.endswith("running_var"):
            buffer.copy_(torch.rand(buffer.shape, generator=rng) + 0.1)
        elif name.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=rng) * 0.1)
    return network.requires_grad_(False)


def pictures(n=2, side=32, seed=0):
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# -- the authors' weights fit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", sorted(PUBLISHED))
def test_tensors_are_named_shaped_and_ordered_as_the_authors_have_them(id):
    theirs = json.loads((FIXTURES / f"{id}.json").read_text())
    with torch.device("meta"):
        ours = {name: list(tensor.shape) for name, tensor in PUBLISHED[id].build(1000).state_dict().items()}
    assert list(ours.items()) == list(theirs.items())
    assert PUBLISHED[id].head in ours and ours[PUBLISHED[id].head][0] == 1000


def test_every_network_is_listed():
    listed = {id for id, s in catalogue.models().items() if s.form == f"{id}@WEIGHTS"}
    assert listed == set(PUBLISHED) == {path.stem for path in FIXTURES.glob("*.json")}


def saved(network, path, wrap=lambda state: state):
    torch.save(wrap({k: v.clone() for k, v in network.state_dict().items()}), path)
    return path


def test_weights_come_from_a_file_as_their_authors_save_them(tmp_path, picture):
    torch.manual_seed(0)
    network = bagnet9(5).eval()
    path = saved(
        network,
        tmp_path / "bagnet8.pth.tar",
        lambda s: {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in s.items()}},
    )
    model = load_model(f"bagnet9@{path}")
    x = model.encode(picture)
    assert x["pixels"].shape == (1, 3, 224, 224) and model.domain.mean == (0.485, 0.456, 0.406)
    small_x = x.replace(pixels=x["pixels"][..., :40, :40])
    with torch.inference_mode():
        torch.testing.assert_close(model.logits(small_x), network(small_x["pixels"]))
    assert model.name == "bagnet9" and model.classes is None


def test_weights_saved_from_a_wrapped_network_with_plain_filters_fit_too(tmp_path, picture):
    torch.manual_seed(0)
    network = BcosResNet(BasicBlock, (2, 2, 2, 2), 4).eval()
    path = saved(
        network,
        tmp_path / "fine_tuned.pth",
        lambda s: {"state_dict": {f"module.model.{k.replace('.linear.', '.')}": v for k, v in s.items()}},
    )
    model = load_model(f"bcos_resnet18@{path}")
    x = model.encode(picture)
    assert x["pixels"].min() >= 0 and 0.5 < x["pixels"].max() <= 1
    with torch.inference_mode():
        torch.testing.assert_close(model.logits(x), network(x["pixels"]))


def test_a_thousand_classes_are_imagenets(tmp_path):
    torch.manual_seed(0)
    model = load_model(f"bcos_resnet18@{saved(PUBLISHED['bcos_resnet18'].build(1000), tmp_path / 'w.pth')}")
    assert len(model.classes) == 1000 and model.module().logit_bias == -math.log(999)


@pytest.mark.parametrize("id", sorted(PUBLISHED))
def test_without_a_file_it_is_told_where_to_get_one(id):
    with pytest.raises(HeatcheckError, match=rf"{id}' needs its weights: get \S+ from https://\S+ and write {id}@FILE"):
        load_model(id)


def test_a_file_of_another_network_is_refused(tmp_path):
    path = saved(small(XResNet(3, width=2)), tmp_path / "w.pth")
    with pytest.raises(HeatcheckError, match="does not fit BagNet: missing"):
        load_model(f"bagnet33@{path}")


# -- BagNet ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "side"), [(bagnet9, 9), (bagnet17, 17), (bagnet33, 33)])
def test_patches_are_as_wide_as_the_name_says(make, side):
    with torch.device("meta"):
        network = make(3).eval()
        assert network.patch == side
        assert network.evidence(torch.empty(1, 3, side, side)).shape == (1, 1, 1, 3)
        assert network.evidence(torch.empty(1, 3, 224, 224)).shape[1:3] == ((224 - side) // 8 + 1,) * 2
        with pytest.raises(RuntimeError, match=r"[Kk]ernel size"):
            network(torch.empty(1, 3, side - 1, side - 1))


@pytest.mark.parametrize("wide", [(1, 1, 0, 0), (1, 1, 1, 0), (1, 1, 1, 1)])
def test_each_score_is_that_of_its_patch_alone(wide):
    network = small(BagNet(wide, 3, width=2, depths=(2, 1, 2, 1)))
    x = pictures(1, side=network.patch + 18)
    scores = network.evidence(x)
    assert scores.shape == (1, 3, 3, 3)
    for i in range(3):
        for j in range(3):
            alone = x[..., 8 * i : 8 * i + network.patch, 8 * j : 8 * j + network.patch]
            torch.testing.assert_close(network(alone)[0], scores[0, i, j])
    torch.testing.assert_close(network(x), scores.mean((1, 2)))


def test_the_identity_is_cut_at_the_bottom_and_at_the_right():
    block = Block(8, 2, kernel=3, stride=1, project=False).eval()
    nn.init.zeros_(block.bn3.weight)
    x = torch.rand(1, 8, 6, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(block(x), x[..., :4, :5])


# -- without biases ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: XResNet(3, width=4, depths=(1, 2, 1, 1)), lambda: XVgg(3, shrink=16)])
def test_networks_without_biases_are_homogeneous_and_input_x_gradient_is_complete(make):
    network = small(make())
    x = pictures() - 0.5
    torch.testing.assert_close(network(3.5 * x), 3.5 * network(x))
    total = hc.explain(network, x, method="input_x_gradient", target=1).values.sum((1, 2))
    torch.testing.assert_close(total, network(x)[:, 1])
    ig = hc.explain(network, x, method="integrated_gradients(steps=3)", target=1).values
    torch.testing.assert_close(ig, hc.explain(network, x, method="input_x_gradient", target=1).values)


def test_fixups_scalars_are_added_where_the_paper_adds_them():
    network = small(FixupResNet(3, width=2, depths=(1, 1)))
    assert not torch.allclose(network(2 * pictures()), 2 * network(pictures()))
    block = network.layer2[0]
    x = torch.randn(1, 8, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    out = torch.relu(block.conv1(x + block.bias1a) + block.bias1b)
    out = torch.relu(block.conv2(out + block.bias2a) + block.bias2b)
    out = block.scale * block.conv3(out + block.bias3a) + block.bias3b
    torch.testing.assert_close(block(x), torch.relu(out + block.downsample(x + block.bias1a)))
    seen = {}
    handle = network.layer2.register_forward_hook(lambda _m, _a, out: seen.update(out=out))
    logits = network(pictures())
    handle.remove()
    torch.testing.assert_close(logits, network.fc(seen["out"].mean((2, 3)) + network.bias2))


# -- B-cos -------------------------------------------------------------------------------------------------------


def slow_bcos(layer, x):
    """|cos(patch, w)| ŵᵀ patch, one place and one filter at a time."""
    padded = nn.functional.pad(x, (layer.padding,) * 4)
    weight = layer.linear.weight
    side = (padded.shape[-1] - layer.kernel) // layer.stride + 1
    out = torch.zeros(len(weight), side, side, dtype=x.dtype)
    per_group, inputs = len(weight) // layer.groups, weight.shape[1]
    for k, w in enumerate(weight):
        first = k // per_group * inputs
        for i in range(side):
            for j in range(side):
                top, left = i * layer.stride, j * layer.stride
                patch = padded[first : first + inputs, top : top + layer.kernel, left : left + layer.kernel]
                straight = (w / w.norm() * patch).sum()
                out[k, i, j] = straight * straight.abs() / (patch.square().sum() + 1e-6).sqrt()
    return out


@pytest.mark.parametrize(
    "layer",
    [
        BcosConv2d(4, 6, 3, stride=2, padding=1),
        BcosConv2d(4, 6, 3, padding=1, groups=2),
        BcosConv2d(4, 5, 1, stride=2),
        BcosConv2d(4, 3),
    ],
)
def test_a_bcos_layer_is_the_papers_formula(layer):
    layer = small(layer)
    x = torch.randn(4, 7, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(layer(x[None])[0], slow_bcos(layer, x), rtol=1e-9, atol=1e-12)


def bcos_networks():
    return [
        BcosResNet(BasicBlock, (1, 2), 3, width=4),
        BcosResNet(Bottleneck, (2, 1), 3, width=16, groups=4),
        BcosDenseNet(4, (2, 1), 6, 3),
    ]


@pytest.mark.parametrize("make", range(3))
def test_explanation_mode_changes_derivatives_and_no_value(make):
    network = small(bcos_networks()[make])
    x = pictures().requires_grad_()
    plain = network(x)
    with explanation_mode(network):
        explained = network(x)
    assert torch.equal(plain, explained)
    slopes = [torch.autograd.grad(out[:, 0].sum(), x)[0] for out in (plain, explained)]
    assert not torch.allclose(*slopes, rtol=0.05)
    assert torch.equal(network(x), plain) and torch.equal(torch.autograd.grad(network(x)[:, 0].sum(), x)[0], slopes[0])


def test_explanation_mode_ends_with_an_error_too():
    network = small(bcos_networks()[0])
    with pytest.raises(ValueError, match="stop"), explanation_mode(network):
        raise ValueError("stop")
    assert not any(part.explaining for part in network.modules() if isinstance(part, BcosConv2d))


def test_black_is_zero_and_the_other_three_channels_are_its_inverse():
    seen = AddInverse()(torch.zeros(1, 3, 2, 2))
    assert torch.equal(seen[0, :, 0, 0], torch.tensor([0.0, 0, 0, 1, 1, 1]))


def test_a_bcos_vgg_answers():
    with torch.device("meta"):
        assert BcosVgg(7)(torch.empty(2, 3, 64, 64)).shape == (2, 7)


# -- the package of B-cos's authors ------------------------------------------------------------------------------


class SixChannels(nn.Module):
    """Stands for a network of the package: it expects the six channels."""

    def __init__(self, pretrained):
        super().__init__()
        assert not pretrained
        self.conv = BcosConv2d(6, 1000, 3)

    def forward(self, x):
        return self.conv(x).mean((2, 3))


@pytest.fixture
def package(monkeypatch):
    """A stand-in for the package `bcos` with one network."""
    for name in ("bcos", "bcos.models", "bcos.models.pretrained"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    module.list_available = lambda: ["tiny_vit", "standard_tiny_vit"]
    module.tiny_vit = SixChannels


def test_networks_of_the_package_are_wrapped(package, tmp_path, picture):
    torch.manual_seed(0)
    network = SixChannels(False)
    model = load_model(f"bcos:tiny_vit@{saved(network, tmp_path / 'w.pth')}")
    x = model.encode(picture)
    assert isinstance(model.module(), Encoded) and model.domain.mean == (0.0, 0.0, 0.0)
    with torch.inference_mode():
        torch.testing.assert_close(model.logits(x), network(AddInverse()(x["pixels"])))
    assert torch.isfinite(hc.explain(model, x["pixels"][..., :32, :32], method="bcos").values).all()


def test_what_the_package_lacks_is_told(package, monkeypatch):
    with pytest.raises(HeatcheckError, match="no B-cos network 'tiny_vot'; did you mean tiny_vit"):
        load_model("bcos:tiny_vot")
    with pytest.raises(HeatcheckError, match="no B-cos network 'standard_tiny_vit'"):
        load_model("bcos:standard_tiny_vit")
    with pytest.raises(HeatcheckError, match="bcos:tiny_vit needs its weights: get them from https"):
        load_model("bcos:tiny_vit")
    monkeypatch.setattr(bcos.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HeatcheckError, match="pip install bcos"):
        load_model("bcos:tiny_vit@w.pth")


@pytest.mark.parametrize("name", ["resnet18", "densenet121"])
def test_the_real_package_gives_the_same(name):
    pytest.importorskip("bcos", reason="the package bcos is not installed")
    from heatcheck.models.vision_shim import load_torchvision

    load_torchvision()
    import bcos.models.pretrained as real

    theirs = small(getattr(real, name)())
    ours = PUBLISHED[f"bcos_{name}"].build(1000).double().eval()
    ours.load_state_dict(theirs.state_dict())
    x = pictures(1, side=64)
    torch.testing.assert_close(ours(x), theirs(torch.cat([x, 1 - x], 1)), rtol=1e-10, atol=1e-10)
    want = theirs.explain(torch.cat([x, 1 - x], 1).requires_grad_(), idx=3)["contribution_map"][0]
    torch.testing.assert_close(hc.explain(ours, x, method="bcos", target=3).values[0], want, rtol=1e-8, atol=1e-14)
