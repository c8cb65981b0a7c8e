"""ResNet-50 without batch norm: Fixup, with a few scalars in its place, and X-ResNet, with nothing and no biases.

Papers: zhang2019 and hesse2021. Names follow github.com/hongyi-zhang/Fixup and
github.com/visinf/fast-axiomatic-attribution. Only the X variant is homogeneous: there, input × gradient sums to the
class score.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.sources import source
from heatcheck.models.architectures.fresh import FreshNetwork
from heatcheck.models.architectures.published import IMAGENET, Published, load_published
from heatcheck.models.base import Model
from heatcheck.models.request import Request

_DEPTHS = (3, 4, 6, 3)
_EXPANSION = 4


class XBlock(nn.Module):
    """A bottleneck of convolutions without biases.

    Args:
        channels: what comes in.
        width: channels inside.
        stride: of the middle convolution.
        project: whether the identity has to be projected.
    """

    def __init__(self, channels: int, width: int, *, stride: int, project: bool) -> None:
        super().__init__()
        out = width * _EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.relu3 = nn.ReLU()
        self.downsample = nn.Conv2d(channels, out, 1, stride=stride, bias=False) if project else None

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k i j"]:
        out = self.conv3(self.relu2(self.conv2(self.relu1(self.conv1(x)))))
        result: Tensor = self.relu3(out + (x if self.downsample is None else self.downsample(x)))
        return result


class FixupBlock(XBlock):
    """The same with a scalar added before and after every convolution, and a scale on the last."""

    def __init__(self, channels: int, width: int, *, stride: int, project: bool) -> None:
        super().__init__(channels, width, stride=stride, project=project)
        self.bias1a, self.bias1b = _scalar(0), _scalar(0)
        self.bias2a, self.bias2b = _scalar(0), _scalar(0)
        self.bias3a, self.scale, self.bias3b = _scalar(0), _scalar(1), _scalar(0)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k i j"]:
        out = self.relu1(self.conv1(x + self.bias1a) + self.bias1b)
        out = self.relu2(self.conv2(out + self.bias2a) + self.bias2b)
        out = self.conv3(out + self.bias3a) * self.scale + self.bias3b
        result: Tensor = self.relu3(out + (x if self.downsample is None else self.downsample(x + self.bias1a)))
        return result


def _scalar(value: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor([float(value)]))


class XResNet(FreshNetwork):
    """A ResNet without batch norm and without biases.

    Args:
        classes: how many it tells apart.
        width: channels of the first stage.
        depths: blocks of each stage.
    """

    block: type[XBlock] = XBlock
    head_bias = False

    def __init__(self, classes: int = 1000, *, width: int = 64, depths: Sequence[int] = _DEPTHS) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for stage, depth in enumerate(depths):
            inner = width << stage
            blocks = [self.block(channels, inner, stride=2 if stage else 1, project=True)]
            channels = inner * _EXPANSION
            blocks += [self.block(channels, inner, stride=1, project=False) for _ in range(depth - 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.stages = len(depths)
        self.fc = nn.Linear(channels, classes, bias=self.head_bias)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
        scores: Tensor = self.fc(self.pooled(self.relu(self.conv1(x))))
        return scores

    def pooled(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """What the stages make of the first feature map, averaged over places."""
        x = self.maxpool(x)
        for stage in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return x.mean((2, 3))

    def initialise(self) -> None:
        super().initialise()
        blocks = [module for module in self.modules() if isinstance(module, XBlock)]
        with torch.no_grad():
            for block in blocks:
                for inner in (block.conv1, block.conv2):
                    inner.weight.mul_(len(blocks) ** -0.25)
                block.conv3.weight.zero_()
            for name, weight in self.named_parameters():
                if name.rpartition(".")[2].startswith(("bias", "scale")):
                    weight.fill_(1.0 if name.endswith("scale") else 0.0)

    def draw(self, module: nn.Module) -> None:
        super().draw(module)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.weight)


class FixupResNet(XResNet):
    """A ResNet with Fixup's scalars in place of batch norm."""

    block = FixupBlock
    head_bias = True

    def __init__(self, classes: int = 1000, *, width: int = 64, depths: Sequence[int] = _DEPTHS) -> None:
        super().__init__(classes, width=width, depths=depths)
        self.bias1, self.bias2 = _scalar(0), _scalar(0)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
        scores: Tensor = self.fc(self.pooled(self.relu(self.conv1(x) + self.bias1)) + self.bias2)
        return scores


def fixup_resnet50(classes: int = 1000) -> FixupResNet:
    """Fixup ResNet-50."""
    return FixupResNet(classes)


def xfixup_resnet50(classes: int = 1000) -> XResNet:
    """X-ResNet-50."""
    return XResNet(classes)


_PLACE = "https://github.com/visinf/fast-axiomatic-attribution"
PUBLISHED = {
    "fixup_resnet50": Published(fixup_resnet50, "fc.weight", IMAGENET, "fixup_resnet50_model_best.pth.tar", _PLACE),
    "xfixup_resnet50": Published(xfixup_resnet50, "fc.weight", IMAGENET, "xfixup_resnet50_model_best.pth.tar", _PLACE),
}


@source(
    "fixup_resnet50",
    form="{id}@WEIGHTS",
    modality="image",
    about="ResNet-50 on ImageNet with Fixup's scalars in place of batch norm",
    install="the weights are given as a file",
    licence="Apache-2.0",
    group="weights",
    position=2,
)
@source(
    "xfixup_resnet50",
    form="{id}@WEIGHTS",
    modality="image",
    about="X-ResNet-50 on ImageNet: no batch norm, no biases",
    install="the weights are given as a file",
    licence="Apache-2.0",
    group="weights",
    position=2,
)
def published_resnet50(id: str, request: Request) -> Model:
    """A ResNet-50 without batch norm with its authors' weights."""
    return load_published(id, PUBLISHED[id], request)
