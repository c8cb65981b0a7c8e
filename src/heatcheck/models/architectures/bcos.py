r"""B-cos networks: every layer is a linear map whose weights depend on the input, so the whole network is one.

A B-cos unit gives $|\cos(x, w)|^{B-1} \hat w^\top x$. Take the factor as given, and what is left is linear in $x$:
that is explanation mode. Papers: boehle2022 and boehle2024. Names follow github.com/B-cos/B-cos-v2, $B = 2$, MaxOut 1.
Trained with binary cross-entropy, for which the logits begin at the bias $-\log(n - 1)$ of n classes.
"""

import importlib
import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.sources import source
from heatcheck.core.spec import suggest
from heatcheck.core.types import HeatcheckError
from heatcheck.models.architectures.fresh import FreshNetwork
from heatcheck.models.architectures.published import CLASSES, Published, imagenet_model, load_published
from heatcheck.models.base import Model
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.request import Request
from heatcheck.models.vision_shim import load_torchvision
from heatcheck.models.weights import fill_network, load_weights

_TINY = 1e-6
"""Added to the squared norm of a patch, as in the published networks."""
_STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_DENSE = {
    121: (32, (6, 12, 24, 16), 64),
    161: (48, (6, 12, 36, 24), 96),
    169: (32, (6, 12, 32, 32), 64),
    201: (32, (6, 12, 48, 32), 64),
}
_VGG11 = ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2))


class AddInverse(nn.Module):
    """A picture in [0, 1] and its negative, as six channels: no colour is darker than another."""

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 6 h w"]:
        return torch.cat([x, 1 - x], 1)


class NormedConv2d(nn.Conv2d):
    """A convolution whose filters have length one."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight / torch.linalg.vector_norm(self.weight, dim=(1, 2, 3), keepdim=True)
        out: Tensor = self._conv_forward(x, weight, None)
        return out


class BcosConv2d(nn.Module):
    """A convolution times how well each patch points where the filter does."""

    def __init__(
        self, channels: int, out: int, kernel: int = 1, *, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> None:
        super().__init__()
        self.linear = NormedConv2d(channels, out, kernel, stride=stride, padding=padding, groups=groups, bias=False)
        self.kernel, self.stride, self.padding, self.groups = kernel, stride, padding, groups
        self.explaining = False

    def set_explanation_mode(self, on: bool) -> None:
        """Whether the factor is taken as given; what comes out is the same."""
        self.explaining = on

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k i j"]:
        out: Tensor = self.linear(x)
        factor = out.abs() / self.norms(x)
        return out * (factor.detach() if self.explaining else factor)

    def norms(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b g i j"]:
        """The length of each patch, once for each output channel or once for all."""
        squares = x.square().reshape(len(x), self.groups, -1, *x.shape[2:]).sum(2)
        area = F.avg_pool2d(squares, self.kernel, self.stride, self.padding, divisor_override=1)
        lengths = (area + _TINY).sqrt()
        return lengths if self.groups == 1 else lengths.repeat_interleave(self.linear.out_channels // self.groups, 1)


class BatchNormUncentered2d(nn.BatchNorm2d):
    """Batch norm that scales, but neither centres nor shifts."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        """Back to how it begins."""
        self.reset_running_stats()
        nn.init.ones_(self.weight)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        scale = self.weight / (self._variance(x) + self.eps).sqrt()
        return x * scale[:, None, None]

    def _variance(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, " c"]:
        """The batch's own while training, which moves the running one along, and that one otherwise."""
        assert self.running_var is not None  # noqa: S101 - for the type checker
        if not self.training:
            return self.running_var
        variance = x.var((0, 2, 3), correction=0)
        self.running_var.lerp_(variance.detach(), self.momentum or 0.0)
        return variance


class BcosNet(FreshNetwork, ABC):
    """What all B-cos networks share: the six channels in front, and the head.

    Args:
        classes: how many it tells apart.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.encode = AddInverse()
        self.logit_bias = -math.log(classes - 1)

    @abstractmethod
    def class_maps(self, x: Float[Tensor, "b 6 h w"]) -> Float[Tensor, "b n i j"]:
        """The evidence for each class at each place."""

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b n"]:
        return self.class_maps(self.encode(x)).mean((2, 3)) + self.logit_bias


class BasicBlock(nn.Module):
    """Two 3 × 3 convolutions beside the identity."""

    expansion = 1

    def __init__(self, channels: int, width: int, *, stride: int, groups: int, project: bool) -> None:
        super().__init__()
        self.conv1 = BcosConv2d(channels, width, 3, stride=stride, padding=1)
        self.bn1 = BatchNormUncentered2d(width)
        self.conv2 = BcosConv2d(width, width, 3, padding=1)
        self.bn2 = BatchNormUncentered2d(width)
        self.downsample = _projection(channels, width, stride) if project else nn.Identity()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k i j"]:
        out: Tensor = self.bn2(self.conv2(self.bn1(self.conv1(x)))) + self.downsample(x)
        return out


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3 and 1 × 1 convolutions beside the identity."""

    expansion = 4

    def __init__(self, channels: int, width: int, *, stride: int, groups: int, project: bool) -> None:
        super().__init__()
        inner = width if groups == 1 else width * groups // 16  # groups of 4 channels in the first stage
        out = width * self.expansion
        self.conv1 = BcosConv2d(channels, inner)
        self.bn1 = BatchNormUncentered2d(inner)
        self.conv2 = BcosConv2d(inner, inner, 3, stride=stride, padding=1, groups=groups)
        self.bn2 = BatchNormUncentered2d(inner)
        self.conv3 = BcosConv2d(inner, out)
        self.bn3 = BatchNormUncentered2d(out)
        self.downsample = _projection(channels, out, stride) if project else nn.Identity()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k i j"]:
        out: Tensor = self.bn3(self.conv3(self.bn2(self.conv2(self.bn1(self.conv1(x)))))) + self.downsample(x)
        return out


def _projection(channels: int, out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(BcosConv2d(channels, out, stride=stride), BatchNormUncentered2d(out))


class BcosResNet(BcosNet):
    """A B-cos ResNet or ResNeXt.

    Args:
        block: what its stages are made of.
        depths: blocks of each stage.
        classes: how many it tells apart.
        width: channels of the first stage.
        groups: of the 3 × 3 convolutions of bottlenecks.
        shrink: whether pictures are made smaller before the first stage, by four; small ones need not be.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        classes: int = 1000,
        *,
        width: int = 64,
        groups: int = 1,
        shrink: bool = True,
    ) -> None:
        super().__init__(classes)
        self.conv1 = BcosConv2d(6, width, 7, stride=2, padding=3) if shrink else BcosConv2d(6, width, 3, padding=1)
        self.bn1 = BatchNormUncentered2d(width)
        self.pool = nn.AvgPool2d(3, stride=2, padding=1) if shrink else nn.Identity()
        channels = width
        for stage, depth in enumerate(depths):
            inner, stride = width << stage, 2 if stage else 1
            out = inner * block.expansion
            blocks: list[nn.Module] = [
                block(channels, inner, stride=stride, groups=groups, project=stride != 1 or channels != out)
            ]
            blocks += [block(out, inner, stride=1, groups=groups, project=False) for _ in range(depth - 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
            channels = out
        self.stages = len(depths)
        self.fc = BcosConv2d(channels, classes)

    def class_maps(self, x: Float[Tensor, "b 6 h w"]) -> Float[Tensor, "b n i j"]:
        x = self.pool(self.bn1(self.conv1(x)))
        for stage in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        maps: Tensor = self.fc(x)
        return maps


class DenseLayer(nn.Module):
    """What a dense block adds to its features."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm1 = BatchNormUncentered2d(channels)
        self.conv1 = BcosConv2d(channels, 4 * growth)
        self.norm2 = BatchNormUncentered2d(4 * growth)
        self.conv2 = BcosConv2d(4 * growth, growth, 3, padding=1)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k h w"]:
        more: Tensor = self.conv2(self.norm2(self.conv1(self.norm1(x))))
        return more


class DenseBlock(nn.Module):
    """Layers that each see everything before them."""

    def __init__(self, channels: int, growth: int, depth: int) -> None:
        super().__init__()
        for i in range(depth):
            self.add_module(f"denselayer{i + 1}", DenseLayer(channels + i * growth, growth))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k h w"]:
        for layer in self.children():
            x = torch.cat([x, layer(x)], 1)
        return x


class BcosDenseNet(BcosNet):
    """A B-cos DenseNet.

    Args:
        growth: channels that a layer adds.
        depths: layers of each block.
        width: channels at the start.
        classes: how many it tells apart.
    """

    def __init__(self, growth: int, depths: Sequence[int], width: int, classes: int = 1000) -> None:
        super().__init__(classes)
        self.features = nn.Sequential()
        self.features.add_module("conv0", BcosConv2d(6, width, 7, stride=2, padding=3))
        self.features.add_module("norm0", BatchNormUncentered2d(width))
        self.features.add_module("pool0", nn.AvgPool2d(3, stride=2, padding=1))
        channels = width
        for i, depth in enumerate(depths, 1):
            self.features.add_module(f"denseblock{i}", DenseBlock(channels, growth, depth))
            channels += growth * depth
            if i < len(depths):
                self.features.add_module(f"transition{i}", _transition(channels))
                channels //= 2
        self.features.add_module("norm5", BatchNormUncentered2d(channels))
        self.classifier = BcosConv2d(channels, classes)

    def class_maps(self, x: Float[Tensor, "b 6 h w"]) -> Float[Tensor, "b n i j"]:
        maps: Tensor = self.classifier(self.features(x))
        return maps


def _transition(channels: int) -> nn.Sequential:
    parts = nn.Sequential()
    parts.add_module("norm", BatchNormUncentered2d(channels))
    parts.add_module("conv", BcosConv2d(channels, channels // 2))
    parts.add_module("pool", nn.AvgPool2d(2))
    return parts


class BcosVgg(BcosNet):
    """A B-cos VGG-11 with batch norm.

    Args:
        classes: how many it tells apart.
    """

    def __init__(self, classes: int = 1000) -> None:
        super().__init__(classes)
        layers: list[nn.Module] = []
        channels = 6
        for width, depth in _VGG11:
            for _ in range(depth):
                layers += [BcosConv2d(channels, width, 3, padding=1), BatchNormUncentered2d(width)]
                channels = width
            layers.append(nn.AvgPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            BcosConv2d(channels, 4096, 7, padding=3), BcosConv2d(4096, 4096), BcosConv2d(4096, classes)
        )

    def class_maps(self, x: Float[Tensor, "b 6 h w"]) -> Float[Tensor, "b n i j"]:
        maps: Tensor = self.classifier(self.features(x))
        return maps


class Encoded(nn.Module):
    """A B-cos network that expects six channels, such as those of the package `bcos`, behind `AddInverse`.

    Args:
        network: the network.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.encode = AddInverse()
        self.network = network

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b n"]:
        scores: Tensor = self.network(self.encode(x))
        return scores


def bcos_resnet(depth: int, classes: int = 1000) -> BcosResNet:
    """B-cos ResNet-18, 34, 50, 101 or 152."""
    return BcosResNet(Bottleneck if depth >= 50 else BasicBlock, _STAGES[depth], classes)


def bcos_resnext50(classes: int = 1000) -> BcosResNet:
    """B-cos ResNeXt-50 with 32 groups of 4 channels."""
    return BcosResNet(Bottleneck, _STAGES[50], classes, groups=32)


def bcos_densenet(depth: int, classes: int = 1000) -> BcosDenseNet:
    """B-cos DenseNet-121, 161, 169 or 201."""
    growth, depths, width = _DENSE[depth]
    return BcosDenseNet(growth, depths, width, classes)


def detachable(network: nn.Module) -> list[Any]:
    """The parts of a network, this file's or the package's, that explanation mode changes."""
    return [part for part in network.modules() if hasattr(part, "set_explanation_mode")]


@contextmanager
def explanation_mode(network: nn.Module) -> Iterator[None]:
    """While inside, the network's dynamic weights are taken as given, so that its gradient is its summary weight."""
    parts = detachable(network)
    for part in parts:
        part.set_explanation_mode(True)
    try:
        yield
    finally:
        for part in parts:
            part.set_explanation_mode(False)


RAW = Preprocess(mean=(0.0,) * 3, std=(1.0,) * 3, interpolation="bilinear")
"""Colours in [0, 1]; a B-cos network adds the inverse channels itself. Zero is black."""
_PLACE = "https://github.com/B-cos/B-cos-v2/releases/tag/v0.0.1-weights"
PUBLISHED = {
    **{
        f"bcos_resnet{depth}": Published(
            partial(bcos_resnet, depth), "fc.linear.weight", RAW, f"resnet_{depth}-*.pth", _PLACE
        )
        for depth in (18, 34, 50, 101, 152)
    },
    "bcos_resnext50_32x4d": Published(
        bcos_resnext50, "fc.linear.weight", RAW, "resnext_50_32x4d-57af241ab9.pth", _PLACE
    ),
    **{
        f"bcos_densenet{depth}": Published(
            partial(bcos_densenet, depth), "classifier.linear.weight", RAW, f"densenet_{depth}-*.pth", _PLACE
        )
        for depth in (121, 161, 169, 201)
    },
    "bcos_vgg11_bnu": Published(BcosVgg, "classifier.2.linear.weight", RAW, "vgg_11_bnu-34036029f0.pth", _PLACE),
}


@source(
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "densenet121",
    "densenet161",
    "densenet169",
    "densenet201",
    "vgg11_bnu",
    prefix="bcos_",
    form="{id}@WEIGHTS",
    modality="image",
    about="B-cos {name} on ImageNet, for the method `bcos`; zero is black",
    install="the weights are given as a file",
    licence="Apache-2.0",
    group="weights",
    position=2,
)
def published_bcos(id: str, request: Request) -> Model:
    """A B-cos network of this file with its authors' weights."""
    return load_published(id, PUBLISHED[id], request)


@source(
    "bcos",
    form="bcos:NAME@CHECKPOINT",
    modality="image",
    about="any B-cos network of the package bcos, such as its vision transformers",
    install="pip install bcos einops; the weights are given as a file",
    licence="Apache-2.0",
    group="hubs",
    position=1,
)
def packaged(name: str, request: Request) -> Model:
    """A B-cos network of the package `bcos`, such as its vision transformers, with weights from a file."""
    if importlib.util.find_spec("bcos") is None:
        raise HeatcheckError(f"bcos:{name} needs the package bcos: pip install bcos einops")
    load_torchvision()
    package = importlib.import_module("bcos.models.pretrained")
    known = [entry for entry in package.list_available() if not entry.startswith("standard_")]
    if name not in known:
        raise HeatcheckError(f"bcos has no B-cos network {name!r}{suggest(name, known)}")
    if request.checkpoint is None:
        raise HeatcheckError(f"bcos:{name} needs its weights: get them from {_PLACE} and write bcos:{name}@FILE")
    network = getattr(package, name)(pretrained=False).eval()
    fill_network(network, load_weights(request.checkpoint), str(request.checkpoint))
    return imagenet_model(Encoded(network), CLASSES, RAW, request)
