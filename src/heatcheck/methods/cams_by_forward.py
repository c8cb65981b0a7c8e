"""Class activation maps without gradients: channels serve as masks, are set to zero, or are only projected."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import Batch, Inputs
from heatcheck.methods.base import eraser, method, repeat_rows
from heatcheck.methods.cams import Cam, channel_sum, ratio
from heatcheck.probe.asks import CLEAN, Ask, Shape, feature_maps
from heatcheck.probe.probe import Probe


@method(
    "score_cam",
    family="cam",
    on=("image",),
    uses=("layers",),
    properties=("nonnegative",),
    elsewhere="it weighs the channels of a spatial feature map; try rise or occlusion",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class ScoreCam(Cam):
    r"""A layer's feature maps, each weighted by the score of the image masked with it.

    $A = \mathrm{ReLU}\big(\sum_k w_k A_k\big), \quad w = \mathrm{softmax}_k\, f_t\big(x \odot H_k + b \odot (1 - H_k)\big)$

    where $H_k$ is $A_k$ upsampled bilinearly, then scaled to [0, 1]; a constant map hides the whole image. The paper
    subtracts the score of a baseline from every $f_t$, which the softmax cancels.

    Args:
        fill: what replaces the input where the mask is zero; the paper's product with the input is `zero`.
        torchcam_compat: whether maps are scaled before they are upsampled, as in TorchCAM.
        channels: how many channels are used, those whose maps vary most; 0 for all, as in the paper.

    Paper: wang2020.
    Cost per sample: 1 + channels forwards.
    """

    fill: str = "zero"
    torchcam_compat: bool = False
    channels: int = 0

    def cam(self, probe: Probe, batch: Batch) -> Float[Tensor, "b h w"]:
        maps = most_varied(probe.feature_maps(batch, self.layer), self.channels)
        n, channels = maps.shape[:2]
        erase = eraser(probe, batch, self.fill)
        rows, size = repeat_rows(n, channels, probe.device), probe.domain.shape(batch.x)

        def seen(i: Int[Tensor, " m"]) -> Inputs:
            return erase(rows[i], self.masks(maps[rows[i], i % channels], size))

        score = torch.zeros(n * channels, dtype=torch.float64, device=batch.device)
        for i, answers in probe.answers(batch, rows, seen):
            score[i] = answers.read(self.output)
        weights = score.reshape(n, channels).softmax(-1).to(maps.dtype)[..., None, None]
        return channel_sum(weights * maps)

    def masks(self, maps: Float[Tensor, "m h w"], size: tuple[int, int]) -> Float[Tensor, "m s"]:
        """Feature maps as masks over sites, between 0 and 1."""
        small = unit_range(maps) if self.torchcam_compat else maps
        large = F.interpolate(small[:, None], size, mode="bilinear", align_corners=False)[:, 0]
        return (large if self.torchcam_compat else unit_range(large)).flatten(1)

    def asks(self, shape: Shape) -> set[Ask]:
        return feature_maps(self.layer)

    def passes(self, shape: Shape) -> tuple[int, int]:
        there = shape.channels(self.layer)
        return min(there, self.channels or there), 0


@method(
    "ablation_cam",
    family="cam",
    on=("image",),
    uses=("layers",),
    properties=("nonnegative",),
    elsewhere="it weighs the channels of a spatial feature map; try occlusion",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class AblationCam(Cam):
    r"""A layer's feature maps, each weighted by how much the output drops when it is set to zero.

    $A = \mathrm{ReLU}\big(\sum_k w_k A_k\big), \quad w_k = \frac{f_t - f_t^{A_k = 0}}{|f_t|}$

    In a token layer the channel of the patch tokens is set to zero; class and register tokens stay as they are.

    Paper: desai2020.  Differs: divides by the absolute value of the output, so that a drop keeps its sign where the
        output is negative; where the output is zero, it does not divide.
    Cost per sample: 2 + channels forwards, mostly of the layers after `layer` only.
    """

    def cam(self, probe: Probe, batch: Batch) -> Float[Tensor, "b h w"]:
        maps = probe.feature_maps(batch, self.layer)
        n, channels = maps.shape[:2]

        def ablate(there: Float[Tensor, "m c h w"], i: Int[Tensor, " m"]) -> None:
            there[torch.arange(len(i), device=i.device), i] = 0

        without = torch.zeros(n, channels, dtype=torch.float64, device=batch.device)
        for row, i, answers in probe.edited(batch, self.layer, channels, ablate):
            without[row, i] = answers.read(self.output)
        clean = probe.clean(batch).read(self.output)[:, None]
        loss = clean - without
        weights = (loss / torch.where(clean == 0, 1, clean.abs())).to(maps.dtype)
        return channel_sum(weights[..., None, None] * maps)

    def asks(self, shape: Shape) -> set[Ask]:
        return {CLEAN} | feature_maps(self.layer)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return shape.channels(self.layer), 0


@method(
    "eigen_cam",
    family="cam",
    on=("image",),
    uses=("layers",),
    properties=("nonnegative", "target_free"),
    elsewhere="it projects a spatial feature map; try attention methods such as rollout",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class EigenCam(Cam):
    r"""A layer's feature maps, projected onto their first principal direction in channel space.

    $A = \mathrm{ReLU}(M v_1), \quad M = U \Sigma V^\top$

    where $M$ has a row per position and a column per channel, and $v_1$ is its first right singular vector. The
    decomposition leaves the sign of $v_1$ open; it is chosen so that the map has a positive sum. The class is not used.

    Paper: muhammad2020.
    Cost per sample: 1 forward.
    """

    def cam(self, probe: Probe, batch: Batch) -> Float[Tensor, "b h w"]:
        maps = probe.feature_maps(batch, self.layer)
        return torch.stack([first_projection(m) for m in maps])

    def asks(self, shape: Shape) -> set[Ask]:
        return feature_maps(self.layer)


def most_varied(maps: Float[Tensor, "b c h w"], count: int) -> Float[Tensor, "b k h w"]:
    """The `count` channels of each sample whose maps have the largest standard deviation, in their order; 0 for all."""
    if not 0 < count < maps.shape[1]:
        return maps
    chosen = maps.flatten(2).double().std(2).argsort(dim=1, descending=True, stable=True)[:, :count].sort(1).values
    return maps.gather(1, chosen[..., None, None].expand(-1, -1, *maps.shape[2:]))


def first_projection(maps: Float[Tensor, "c h w"]) -> Float[Tensor, "h w"]:
    """Positions projected onto the first principal direction through the origin, signed to have a positive sum."""
    if not torch.isfinite(maps).all():
        return torch.full_like(maps[0], torch.nan)
    left, size, _ = torch.linalg.svd(maps.double().flatten(1).T, full_matrices=False)
    along: Tensor = left[:, 0] * size[0]
    along = -along if along.sum() < 0 else along
    return along.reshape(maps.shape[1:]).to(maps.dtype)


def unit_range(maps: Float[Tensor, "m h w"]) -> Float[Tensor, "m h w"]:
    """Each map scaled to [0, 1]; zero where it is constant."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return ratio(maps - low, (high - low).expand_as(maps))
