"""What small convolutional networks are made of."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from heatcheck.core.types import HeatcheckError


class ShiftlessBatchNorm2d(nn.BatchNorm2d):
    """Batch norm without a learnt shift; it still subtracts the running mean."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        """Back to how it begins."""
        self.reset_running_stats()
        nn.init.ones_(self.weight)


def norm_layer(norm: str, channels: int, *, bias: bool) -> nn.Module:
    """Batch norm with or without a shift, or nothing."""
    if norm == "none":
        return nn.Identity()
    return nn.BatchNorm2d(channels) if bias else ShiftlessBatchNorm2d(channels)


def check_norm(norm: str) -> None:
    """Refuse what is no norm."""
    if norm not in ("batch", "none"):
        raise HeatcheckError(f"norm={norm} is neither batch nor none")


class ZeroPaddedShortcut(nn.Module):
    """The shortcut without weights (option A of He et al. 2016): every second pixel, new channels zero around the old.

    Args:
        channels: what comes in.
        out: what goes out, at least as many.
        stride: pixels from one that is kept to the next.
    """

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.before = (out - channels) // 2
        self.behind = out - channels - self.before

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k i j"]:
        return F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.behind))


def shortcut(channels: int, out: int, stride: int) -> nn.Module:
    """The identity, or as much of it as fits."""
    return nn.Identity() if stride == 1 and channels == out else ZeroPaddedShortcut(channels, out, stride)


def blocks_per_stage(depth: int) -> int:
    """The n of a residual network with 6n + 2 layers.

    Raises:
        HeatcheckError: there is none; says which depths are near.
    """
    n, rest = divmod(depth - 2, 6)
    if rest or n < 1:
        below, above = 6 * max(n, 1) + 2, 6 * max(n + 1, 1) + 2
        near = f"{below} or {above}" if below < above else f"{below}"
        raise HeatcheckError(f"depth={depth} is not 6n + 2: two layers in n blocks of three stages each; try {near}")
    return n
