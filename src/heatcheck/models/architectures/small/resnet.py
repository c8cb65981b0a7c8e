"""Residual networks for small pictures: with batch norm, without, and with Fixup's scalars in its place.

Papers: He et al. 2016, Deep Residual Learning for Image Recognition, section 4.2; Zhang et al. 2019, Fixup
Initialization; Hesse et al. 2021 for what has no biases. Names follow github.com/akamaster/pytorch_resnet_cifar10.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.models.architectures.fresh import FreshNetwork
from heatcheck.models.architectures.small.parts import blocks_per_stage, check_norm, norm_layer, shortcut

STAGES = 3


class SmallBlock(nn.Module):
    """Two 3 × 3 convolutions beside the identity.

    Args:
        channels: what comes in.
        out: what goes out.
        stride: of the first convolution.
        norm: `batch` or `none`.
        bias: whether constants are learnt: a batch norm's shift or, without one, a convolution's bias.
    """

    def __init__(self, channels: int, out: int, *, stride: int, norm: str, bias: bool) -> None:
        super().__init__()
        own_bias = bias and norm == "none"
        self.conv1 = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=own_bias)
        self.bn1 = norm_layer(norm, out, bias=bias)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=own_bias)
        self.bn2 = norm_layer(norm, out, bias=bias)
        self.shortcut = shortcut(channels, out, stride)
        self.relu2 = nn.ReLU()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k i j"]:
        out = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        result: Tensor = self.relu2(out + self.shortcut(x))
        return result


class FixupSmallBlock(nn.Module):
    """The same without norms, with a scalar added before and after every convolution, and a scale on the last."""

    def __init__(self, channels: int, out: int, *, stride: int) -> None:
        super().__init__()
        self.bias1a, self.bias1b, self.bias2a, self.bias2b = (nn.Parameter(torch.zeros(1)) for _ in range(4))
        self.scale = nn.Parameter(torch.ones(1))
        self.conv1 = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.shortcut = shortcut(channels, out, stride)
        self.relu2 = nn.ReLU()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k i j"]:
        inside = x + self.bias1a
        out = self.relu1(self.conv1(inside) + self.bias1b)
        out = self.conv2(out + self.bias2a) * self.scale + self.bias2b
        kept = x if isinstance(self.shortcut, nn.Identity) else self.shortcut(inside)
        result: Tensor = self.relu2(out + kept)
        return result


class SmallResNet(FreshNetwork):
    """A residual network of 6n + 2 layers: a convolution, three stages of n blocks, a linear layer on the means.

    Without batch norm, He's initialisation would double the variance in every block, so that it begins as Fixup does.

    Args:
        depth: layers, 6n + 2.
        width: channels of the first stage; each later one has twice as many.
        norm: `batch` or `none`.
        bias: whether constants are learnt. Without them and without norms the network is homogeneous.
        classes: how many it tells apart.
    """

    def __init__(self, *, depth: int, width: int, norm: str, bias: bool, classes: int) -> None:
        super().__init__()
        check_norm(norm)
        self.norm = norm
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=bias and norm == "none")
        self.bn1 = norm_layer(norm, width, bias=bias)
        self.relu = nn.ReLU()
        channels = width
        for stage in range(STAGES):
            blocks: list[nn.Module] = []
            for i in range(blocks_per_stage(depth)):
                stride = 2 if stage and not i else 1
                blocks.append(SmallBlock(channels, width << stage, stride=stride, norm=norm, bias=bias))
                channels = width << stage
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.linear = nn.Linear(channels, classes, bias=bias)

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b n"]:
        scores: Tensor = self.linear(_pooled(self, self.relu(self.bn1(self.conv1(x)))))
        return scores

    def initialise(self) -> None:
        super().initialise()
        if self.norm == "none":
            _scale_down(self)

    def draw(self, module: nn.Module) -> None:
        super().draw(module)
        if self.norm == "none" and isinstance(module, nn.Linear):
            nn.init.zeros_(module.weight)


class FixupSmallResNet(FreshNetwork):
    """The same network with Fixup's scalars in place of batch norm.

    Args:
        depth: layers, 6n + 2.
        width: channels of the first stage.
        classes: how many it tells apart.
    """

    def __init__(self, *, depth: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bias1, self.bias2 = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        self.relu = nn.ReLU()
        channels = width
        for stage in range(STAGES):
            blocks: list[nn.Module] = []
            for i in range(blocks_per_stage(depth)):
                blocks.append(FixupSmallBlock(channels, width << stage, stride=2 if stage and not i else 1))
                channels = width << stage
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.linear = nn.Linear(channels, classes)

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b n"]:
        pooled = _pooled(self, self.relu(self.conv1(x) + self.bias1))
        scores: Tensor = self.linear(pooled + self.bias2)
        return scores

    def initialise(self) -> None:
        super().initialise()
        for name, scalar in self.named_parameters():
            if name.rpartition(".")[2].startswith(("bias", "scale")):
                nn.init.constant_(scalar, 1.0 if name.endswith("scale") else 0.0)
        _scale_down(self)

    def draw(self, module: nn.Module) -> None:
        super().draw(module)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.weight)


def _pooled(network: nn.Module, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
    """What the stages make of the first feature map, averaged over places."""
    for stage in range(1, STAGES + 1):
        x = network.get_submodule(f"layer{stage}")(x)
    return x.mean((2, 3))


def _scale_down(network: nn.Module) -> None:
    r"""Fixup's rules for residual branches: the last convolution zero, the one before times $L^{-1/2}$, L blocks."""
    blocks = [m for m in network.modules() if isinstance(m, SmallBlock | FixupSmallBlock)]
    with torch.no_grad():
        for block in blocks:
            block.conv1.weight.mul_(len(blocks) ** -0.5)
            block.conv2.weight.zero_()


def small_fixup(*, depth: int, width: int, bias: bool, classes: int) -> FreshNetwork:
    """Fixup's network or, without biases, X-ResNet: no scalars either."""
    if bias:
        return FixupSmallResNet(depth=depth, width=width, classes=classes)
    return SmallResNet(depth=depth, width=width, norm="none", bias=False, classes=classes)
