"""Blur integrated gradients."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs
from heatcheck.methods.base import Method, method, repeat_rows
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe


@method(
    "blur_ig",
    family="gradient",
    on=("image",),
    uses=("gradient",),
    properties=("dummy", "implementation_invariant", "linear"),
    elsewhere="words cannot be blurred; try integrated_gradients",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class BlurIG(Method):
    r"""The gradient integrated along the pictures that ever more blur gives.

    $a = -\int_0^{\sigma_{max}} \frac{\partial f_t(x_\sigma)}{\partial x_\sigma} \odot
    \frac{\partial x_\sigma}{\partial \sigma} \, d\sigma$,
    where $x_\sigma$ is $x$ under a Gaussian of deviation $\sigma$, with zeros around the picture

    Sums to $f_t(x) - f_t(x_{\sigma_{max}})$, up to O(1/steps).

    Args:
        steps: blurred pictures, with deviations from 0 in equal steps.
        sigma_max: the largest deviation, in pixels at 224, scaled with the picture's width.
        grad_step: the difference of deviations by which the change of the picture is measured, scaled likewise.

    Paper: xu2020.  Differs: the Gaussian is not cut off at four deviations.
    Cost per sample: `steps` gradients.
    """

    steps: int = 100
    sigma_max: float = 50.0
    grad_step: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sigma_max", "grad_step"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise SpecError(f"{self.id}: {name}={value!r} must be positive")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        domain = probe.domain
        picture = domain.leaf(batch.x).detach()
        scale = picture.shape[-1] / 224
        width, step = self.sigma_max * scale / self.steps, self.grad_step * scale
        rows = repeat_rows(len(batch), self.steps)
        lost: dict[str, Tensor] = {}

        def blur(i: Int[Tensor, " n"]) -> Inputs:
            now, lost["now"] = fading(picture[rows[i]], width * (i % self.steps).double(), step)
            return domain.with_leaf(batch.x.take(rows[i]), now)

        total = torch.zeros(picture.shape, dtype=torch.float64)
        for i, gradient in probe.gradients(batch, rows, blur, self.output):
            total.index_add_(0, rows[i], (gradient * lost["now"][: len(i)]).double())
        return total * (width / step)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.steps, self.steps


def fading(
    pictures: Float[Tensor, "n c h w"], sigma: Float[Tensor, " n"], step: float
) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
    """Each picture under a Gaussian of its own deviation, and what it loses when that grows by `step`.

    The loss is computed from the differences of the Gaussians, as single precision has no digits left for those of
    the pictures.
    """
    down, across = (gaussians(side, sigma) for side in pictures.shape[-2:])
    down_more, across_more = (gaussians(side, sigma + step) for side in pictures.shape[-2:])

    def on(matrices: Tensor) -> Tensor:
        return matrices.to(pictures.dtype)[:, None]

    rows = pictures @ on(across)
    lost = on(down - down_more) @ rows + on(down_more) @ (pictures @ on(across - across_more))
    return on(down) @ rows, lost


def gaussians(side: int, sigma: Float[Tensor, " n"]) -> Float[Tensor, "n s s"]:
    """Convolution with a Gaussian whose taps sum to one, zeros outside, as a matrix for each deviation."""
    reach = max(side, math.ceil(10 * float(sigma.max())))
    distance = torch.arange(reach + 1, dtype=torch.float64)
    taps = torch.exp(-0.5 * (distance / sigma.double().clamp_min(1e-9)[:, None]) ** 2)
    taps = taps / (2 * taps.sum(1, keepdim=True) - 1)
    place = torch.arange(side)
    return taps[:, (place[:, None] - place).abs()]
