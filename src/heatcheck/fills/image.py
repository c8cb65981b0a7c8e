"""Fills for pictures that look at the picture alone, not at what is deleted."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.image import ImageDomain
from heatcheck.fills.base import Fill, fill


@fill("black", on=("image",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Black(Fill):
    """Zero before normalisation."""

    def full(self, domain: ImageDomain, batch: Batch) -> Inputs:
        return domain.with_leaf(batch.x, domain.normalise(0.0, batch.x).expand_as(domain.leaf(batch.x)))


@fill("grey127", on=("image",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Grey127(Fill):
    """The byte 127 in every channel before normalisation, as M4 deletes."""

    def full(self, domain: ImageDomain, batch: Batch) -> Inputs:
        return domain.with_leaf(batch.x, domain.normalise(127 / 255, batch.x).expand_as(domain.leaf(batch.x)))


@fill("channel_mean", on=("image",))
@dataclass(frozen=True, kw_only=True, repr=False)
class ChannelMean(Fill):
    """Each channel's mean over the whole picture, deleted pixels included."""

    def full(self, domain: ImageDomain, batch: Batch) -> Inputs:
        leaf = domain.leaf(batch.x)
        return domain.with_leaf(batch.x, leaf.mean((2, 3), keepdim=True).expand_as(leaf))


class GaussianFill(Fill):
    """The picture convolved with a Gaussian along both axes, zero-padded; subclasses say with which taps."""

    kernel: int
    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel < 1 or not self.sigma > 0:
            raise SpecError(f"{self.id}: kernel={self.kernel} and sigma={self.sigma:g} must be above 0")

    def full(self, domain: ImageDomain, batch: Batch) -> Inputs:
        leaf = domain.leaf(batch.x)
        scale = leaf.shape[-1] / 224
        half = max(1, round((self.kernel // 2) * scale))
        return domain.with_leaf(batch.x, _blurred(leaf, self.taps(half, self.sigma * scale, leaf)))

    @abstractmethod
    def taps(self, half: int, sigma: float, like: Tensor) -> Float[Tensor, " k"]:
        """The kernel's 2 `half` + 1 weights, whose sum is 1, in the precision of `like`."""


def gaussian(reach: int, sigma: float, like: Tensor) -> Float[Tensor, " k"]:
    """Weights of a Gaussian at the distances -`reach` … `reach`, whose sum is 1."""
    distance = torch.arange(-reach, reach + 1, dtype=like.dtype, device=like.device)
    weights = torch.exp(-0.5 * (distance / sigma) ** 2)
    return weights / weights.sum()


@fill("blur", on=("image",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Blur(GaussianFill):
    r"""The picture under a Gaussian blur, zero-padded, so that borders fade to the mean colour.

    Args:
        kernel: taps per side at 224 pixels; scaled with the picture, always odd.
        sigma: deviation in pixels at 224, scaled likewise.
        compat: IDSDS's exponent $-(d/2\sigma)^2$, which is a deviation of $\sigma\sqrt2$.

    Paper: hesse2024.
    """

    kernel: int = 51
    sigma: float = 41.0
    compat: bool = False

    def taps(self, half: int, sigma: float, like: Tensor) -> Float[Tensor, " k"]:
        return gaussian(half, sigma * (math.sqrt(2) if self.compat else 1.0), like)


@fill("folded_blur", on=("image",))
@dataclass(frozen=True, kw_only=True, repr=False)
class FoldedBlur(GaussianFill):
    r"""The picture under the blur of RISE's authors: a Gaussian whose tails are folded back into the kernel.

    Their kernel is what `gaussian_filter` makes of a point in the middle of a square of `kernel` × `kernel` pixels. What
    of the Gaussian lies outside the square, up to 4 deviations, is reflected into it, so that 11 taps of deviation 5
    are nearly a box: the outermost tap has 0.94 of the middle one's weight, where `blur` has 0.61.

    Args:
        kernel: taps per side at 224 pixels; scaled with the picture, always odd.
        sigma: deviation in pixels at 224, scaled likewise.

    Paper: petsiuk2018.
    """

    kernel: int = 11
    sigma: float = 5.0

    def taps(self, half: int, sigma: float, like: Tensor) -> Float[Tensor, " k"]:
        reach, width = int(4 * sigma + 0.5), 2 * half + 1
        place = (half + torch.arange(-reach, reach + 1, device=like.device)) % (2 * width)
        place = torch.where(place < width, place, 2 * width - 1 - place)
        return like.new_zeros(width).index_add_(0, place, gaussian(reach, sigma, like))


def _blurred(pixels: Float[Tensor, "b c h w"], taps: Float[Tensor, " k"]) -> Float[Tensor, "b c h w"]:
    """A convolution with the taps along both axes, zero-padded."""
    channels, half = pixels.shape[1], len(taps) // 2
    down = taps.view(1, 1, -1, 1).expand(channels, 1, -1, 1)
    blurred = F.conv2d(pixels, down, padding=(half, 0), groups=channels)
    return F.conv2d(blurred, down.transpose(2, 3), padding=(0, half), groups=channels)


@fill("uniform", on=("image",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Uniform(Fill):
    """Noise from U(-1, 1) in normalised space, one draw per sample, the same for every deletion.

    Args:
        shared: whether one draw serves all samples, as IDSDS's baseline of IG-U and RISE-U does.

    Paper: hesse2024.  Differs: as a deletion, IDSDS draws anew for every cell and batch.
    """

    random: ClassVar[bool] = True

    shared: bool = False

    def full(self, domain: ImageDomain, batch: Batch) -> Inputs:
        leaf = domain.leaf(batch.x)
        shape = tuple(leaf.shape[1:])
        streams = batch.streams.shared() if self.shared else batch.streams
        noise = streams.draw("fill", lambda g: torch.rand(shape, generator=g, dtype=torch.float64) * 2 - 1)
        return domain.with_leaf(batch.x, noise.to(leaf.dtype))
