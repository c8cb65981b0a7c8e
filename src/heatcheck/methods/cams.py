"""Class activation maps: a layer's feature maps, weighted by their gradients."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Batch
from heatcheck.methods.base import Method, method
from heatcheck.methods.smoothing import noisy_copies, require_deviation
from heatcheck.probe.asks import Ask, Shape, feature_gradient, feature_maps
from heatcheck.probe.probe import Probe

GRADIENT_CAM: Any = {
    "family": "cam",
    "on": ("image",),
    "uses": ("gradient", "layers"),
    "properties": ("nonnegative",),
    "elsewhere": "it weighs the channels of a spatial feature map; try integrated_gradients or occlusion",
}
"""What every method in this file declares."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Cam(Method):
    """A map at a layer's resolution, interpolated bilinearly to pixels where that is needed.

    Args:
        layer: the module whose output is used; `auto` is the last one whose output is a feature map, by its outermost
            name. Feature maps may be channels-first, channels-last or tokens; class and register tokens are left out.
        relu: whether to keep only positive evidence for the class.
    """

    layer: str = "auto"
    relu: bool = True

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b h w"]:
        cam = self.cam(probe, batch)
        return cam.relu() if self.relu else cam

    @abstractmethod
    def cam(self, probe: Probe, batch: Batch) -> Float[Tensor, "b h w"]:
        """The map before the ReLU."""

    @property
    def signed(self) -> bool:
        return not self.relu and self.post == "none"


@dataclass(frozen=True, kw_only=True, repr=False)
class GradientCam(Cam):
    """Feature maps, weighted by a function of their values and gradient at the sample itself."""

    def cam(self, probe: Probe, batch: Batch) -> Float[Tensor, "b h w"]:
        maps, slopes = probe.activations(batch, self.layer, self.output)
        return channel_sum(self.weights(maps, slopes) * maps)

    @abstractmethod
    def weights(self, maps: Float[Tensor, "b c h w"], slopes: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c #h #w"]:
        """The weight of each feature map, one for the whole map or one per position."""

    def asks(self, shape: Shape) -> set[Ask]:
        return feature_gradient(self.layer, self.output)


@method("grad_cam", **GRADIENT_CAM)
@dataclass(frozen=True, kw_only=True, repr=False)
class GradCam(GradientCam):
    r"""A layer's feature maps, each weighted by its mean gradient.

    $A = \mathrm{ReLU}\big(\sum_k \alpha_k A_k\big), \quad
    \alpha_k = \mathrm{mean}_{uv}\, \partial f_t / \partial A_k(u, v)$

    Paper: selvaraju2017.
    Cost per sample: 1 gradient, through the layers after `layer` only; shared by all methods of this family.
    """

    def weights(self, maps: Float[Tensor, "b c h w"], slopes: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c 1 1"]:
        return slopes.flatten(2).mean(-1)[..., None, None]


@method("hires_cam", **GRADIENT_CAM)
@dataclass(frozen=True, kw_only=True, repr=False)
class HiResCam(GradientCam):
    r"""A layer's feature maps, weighted by their gradient position by position.

    $A(u, v) = \mathrm{ReLU}\big(\sum_k A_k(u, v)\, \partial f_t / \partial A_k(u, v)\big)$

    Paper: draelos2020.
    Cost per sample: 1 gradient, through the layers after `layer` only; shared by all methods of this family.
    """

    def weights(self, maps: Float[Tensor, "b c h w"], slopes: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return slopes


@method("layer_cam", **GRADIENT_CAM)
@dataclass(frozen=True, kw_only=True, repr=False)
class LayerCam(GradientCam):
    r"""A layer's feature maps, weighted position by position by the positive part of their gradient.

    $A(u, v) = \mathrm{ReLU}\big(\sum_k A_k(u, v)\, \mathrm{ReLU}\big(\partial f_t / \partial A_k(u, v)\big)\big)$

    Paper: jiang2021.  Differs: uses one layer; maps of several layers are not fused.
    Cost per sample: 1 gradient, through the layers after `layer` only; shared by all methods of this family.
    """

    def weights(self, maps: Float[Tensor, "b c h w"], slopes: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return slopes.relu()


@method("xgrad_cam", **GRADIENT_CAM)
@dataclass(frozen=True, kw_only=True, repr=False)
class XGradCam(GradientCam):
    r"""A layer's feature maps, each weighted by its gradient, averaged in proportion to its activation.

    $A = \mathrm{ReLU}\big(\sum_k w_k A_k\big), \quad
    w_k = \sum_{uv} \frac{A_k(u, v)}{\sum_{ab} A_k(a, b)}\, \partial f_t / \partial A_k(u, v)$

    Meant for layers after a ReLU: where the values of a channel cancel, its weight is meaningless. A channel whose
    values sum to zero gets weight zero.

    Paper: fu2020.
    Cost per sample: 1 gradient, through the layers after `layer` only; shared by all methods of this family.
    """

    def weights(self, maps: Float[Tensor, "b c h w"], slopes: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c 1 1"]:
        return ratio(place_sum(slopes * maps), place_sum(maps))


@method("grad_cam_pp", **GRADIENT_CAM)
@dataclass(frozen=True, kw_only=True, repr=False)
class GradCamPlusPlus(GradientCam):
    r"""A layer's feature maps, each weighted by a normalised sum of its positive gradients.

    $A = \mathrm{ReLU}\big(\sum_k w_k A_k\big), \quad w_k = \sum_{uv} \alpha_k(u, v)\, \mathrm{ReLU}(g_k(u, v)), \quad
    \alpha_k = \frac{g_k^2}{2 g_k^2 + g_k^3 \sum_{ab} A_k(a, b)}$

    with $g_k = \partial f_t / \partial A_k$, and $\alpha_k(u, v) = 0$ where $g_k(u, v) = 0$.

    Args:
        torchcam_compat: whether to use the weights $\sum_{uv} g^2 \mathrm{ReLU}(g)$, as TorchCAM does, whose code
            leaves out the division.

    Paper: chattopadhay2018.  Differs: without the factor exp(f_t), which all weights of a sample share. The division is
        exact, and 0 where the denominator is; pytorch-grad-cam adds eps = 1e-6 to the denominator, which changes the
        weights wherever squared gradients are not far above that.
    Cost per sample: 1 gradient, through the layers after `layer` only; shared by all methods of this family.
    """

    torchcam_compat: bool = False

    def weights(self, maps: Float[Tensor, "b c h w"], slopes: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c 1 1"]:
        if self.torchcam_compat:
            alpha = slopes.square()
        else:
            alpha = ratio((slopes != 0).to(slopes.dtype), 2 + slopes * place_sum(maps))  # with g² taken out
        return place_sum(alpha * slopes.relu())


@method("smooth_grad_cam_pp", **GRADIENT_CAM)
@dataclass(frozen=True, kw_only=True, repr=False)
class SmoothGradCamPlusPlus(Cam):
    r"""Grad-CAM++ with powers of the gradient averaged over noisy copies of the input.

    $w_k = \sum_{uv} \alpha_k(u, v)\, \mathrm{ReLU}(D^1_k(u, v)), \quad
    \alpha_k = \frac{D^2_k}{2 D^2_k + D^3_k \sum_{ab} A_k(a, b)}, \quad
    D^p_k = \frac{1}{n} \sum_i g_k(x + \varepsilon_i)^p, \quad \varepsilon_i \sim \mathcal{N}(0, \sigma^2)$

    The feature maps are those of the input without noise.

    Args:
        samples: noisy copies of each input.
        sigma: standard deviation of the noise, in the units of the model's (normalised) input.
        torchcam_compat: whether to compute what TorchCAM does: the last copy's gradient in place of $D^1$, its feature maps
            in the sum over channels, and $\sum_{ab} A_k(a, b) D^3_k(a, b)$ in the denominator.

    Paper: omeiza2019.  Differs: the numerator is $D^2$, as in Grad-CAM++, where the paper prints $D^1$.
    Cost per sample: 1 forward and `samples` gradients, through the layers after `layer` only.
    """

    samples: int = 4
    sigma: float = 0.3
    torchcam_compat: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_deviation(self.id, self.sigma)

    def cam(self, probe: Probe, batch: Batch) -> Float[Tensor, "b h w"]:
        maps = probe.feature_maps(batch, self.layer)
        (first, second, third), (last_maps, last_slopes) = self.under_noise(probe, batch, maps)
        if self.torchcam_compat:
            alpha = second / (2 * second + place_sum(maps * third) + 1e-8)
            return channel_sum(place_sum(alpha * last_slopes.relu()) * last_maps)
        alpha = ratio(second, 2 * second + place_sum(maps) * third)
        return channel_sum(place_sum(alpha * first.relu()) * maps)

    def under_noise(
        self, probe: Probe, batch: Batch, maps: Float[Tensor, "b c h w"]
    ) -> tuple[list[Float[Tensor, "b c h w"]], list[Float[Tensor, "b c h w"]]]:
        """Means of the gradient's first three powers over noisy copies, and the last copy's maps and gradient."""
        sums = [torch.zeros_like(maps, dtype=torch.float64) for _ in range(3)]
        last = [torch.zeros_like(maps) for _ in range(2)]
        size = probe.numerics.backward
        for rows, part in noisy_copies(probe, batch, self.samples, self.sigma, size, scale="one"):
            seen = probe.activations(part, self.layer, self.output)
            for power, total in enumerate(sums, 1):
                total.index_add_(0, rows, seen[1].double() ** power)
            for i, row in enumerate(rows.tolist()):
                for kept, new in zip(last, seen, strict=True):
                    kept[row] = new[i]
        return [(total / self.samples).to(maps.dtype) for total in sums], last

    def asks(self, shape: Shape) -> set[Ask]:
        return feature_maps(self.layer)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.samples, self.samples


def ratio(above: Float[Tensor, "..."], below: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """`above / below`, and 0 where `below` is exactly 0."""
    return torch.where(below == 0, 0, above / torch.where(below == 0, 1, below))


def place_sum(values: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c 1 1"]:
    """Sum over positions, per channel."""
    return values.flatten(2).sum(-1)[..., None, None]


def channel_sum(values: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
    """Sum over channels, contiguous so that its bits do not depend on the rest of the batch."""
    return values.movedim(1, -1).contiguous().sum(-1)
