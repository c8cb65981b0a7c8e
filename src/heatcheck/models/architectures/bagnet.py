"""BagNets: a ResNet-50 that sees nothing larger than a small patch, and averages what it finds in each.

Paper: brendel2019. Names follow github.com/wielandbrendel/bag-of-local-features-models.
"""

import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.sources import source
from heatcheck.models.architectures.fresh import FreshNetwork
from heatcheck.models.architectures.published import IMAGENET, Published, load_published
from heatcheck.models.base import Model
from heatcheck.models.request import Request

_DEPTHS = (3, 4, 6, 3)
_STRIDES = (2, 2, 2, 1)
_EXPANSION = 4


class Block(nn.Module):
    """A bottleneck without padding; what the identity has too much is cut off at the bottom and at the right.

    Args:
        channels: what comes in.
        width: channels inside.
        kernel: side of the middle convolution, 1 or 3.
        stride: of the middle convolution.
        project: whether the identity has to be projected.
    """

    def __init__(self, channels: int, width: int, *, kernel: int, stride: int, project: bool) -> None:
        super().__init__()
        out = width * _EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, kernel, stride=stride, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu3 = nn.ReLU()
        self.downsample = (
            nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))
            if project
            else nn.Identity()
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k i j"]:
        out: Tensor = self.relu1(self.bn1(self.conv1(x)))
        out = self.relu2(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        kept: Tensor = self.downsample(x)
        result: Tensor = self.relu3(out + kept[..., : out.shape[-2], : out.shape[-1]])
        return result


class BagNet(FreshNetwork):
    """A BagNet.

    Args:
        wide: for each stage, whether its first block looks at 3 × 3 pixels of what it gets, or at one.
        classes: how many it tells apart.
        width: channels of the first stage.
        depths: blocks of each stage.
        strides: of the first block of each stage.
    """

    def __init__(
        self,
        wide: Sequence[bool],
        classes: int = 1000,
        *,
        width: int = 64,
        depths: Sequence[int] = _DEPTHS,
        strides: Sequence[int] = _STRIDES,
    ) -> None:
        super().__init__()
        self.patch = patch_side(wide, strides)
        self.stride = math.prod(strides)
        """Pixels from one patch to the next."""
        self.conv1 = nn.Conv2d(3, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        channels = width
        for stage, (depth, stride, first_wide) in enumerate(zip(depths, strides, wide, strict=True)):
            inner = width << stage
            blocks = [Block(channels, inner, kernel=3 if first_wide else 1, stride=stride, project=True)]
            channels = inner * _EXPANSION
            blocks += [Block(channels, inner, kernel=1, stride=1, project=False) for _ in range(depth - 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.stages = len(depths)
        self.fc = nn.Linear(channels, classes)

    def features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k i j"]:
        """What is found in each patch."""
        x = self.relu(self.bn1(self.conv2(self.conv1(x))))
        for stage in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{stage}")(x)
        return x

    def evidence(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b i j n"]:
        """The class scores of each patch alone; the patches begin `stride` pixels apart."""
        scores: Tensor = self.fc(self.features(x).permute(0, 2, 3, 1))
        return scores

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
        scores: Tensor = self.fc(self.features(x).mean((2, 3)))
        return scores


def patch_side(wide: Sequence[bool], strides: Sequence[int] = _STRIDES) -> int:
    """How many pixels wide the patches are."""
    side, step = 3, 1
    for first_wide, stride in zip(wide, strides, strict=True):
        side += 2 * step if first_wide else 0
        step *= stride
    return side


def bagnet9(classes: int = 1000) -> BagNet:
    """BagNet-9."""
    return BagNet((True, True, False, False), classes)


def bagnet17(classes: int = 1000) -> BagNet:
    """BagNet-17."""
    return BagNet((True, True, True, False), classes)


def bagnet33(classes: int = 1000) -> BagNet:
    """BagNet-33."""
    return BagNet((True, True, True, True), classes)


_PLACE = "https://bitbucket.org/wielandbrendel/bag-of-feature-pretrained-models"
PUBLISHED = {
    "bagnet9": Published(bagnet9, "fc.weight", IMAGENET, "bagnet8-34f4ccd2.pth.tar", _PLACE),
    "bagnet17": Published(bagnet17, "fc.weight", IMAGENET, "bagnet16-105524de.pth.tar", _PLACE),
    "bagnet33": Published(bagnet33, "fc.weight", IMAGENET, "bagnet32-2ddd53ed.pth.tar", _PLACE),
}


@source(
    "9",
    "17",
    "33",
    prefix="bagnet",
    form="{id}@WEIGHTS",
    modality="image",
    about="BagNet-{name} on ImageNet, sees patches of {name}² pixels; for the method `bagnet`",
    install="the weights are given as a file",
    group="weights",
    position=2,
)
def published_bagnet(id: str, request: Request) -> Model:
    """A BagNet with its authors' weights."""
    return load_published(id, PUBLISHED[id], request)
