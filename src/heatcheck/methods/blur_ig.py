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
    r"""The gradient integrated along a path of more and more blurred pictures.

    $a = -\int_0^{\sigma_{max}} \frac{\partial f_t(x_\sigma)}{\partial x_\sigma} \odot
    \frac{\partial x_\sigma}{\partial \sigma} \, d\sigma$,
    where $x_\sigma$ is $x$ blurred by a Gaussian of standard deviation $\sigma$, with zeros around the picture

    Sums to $f_t(x) - f_t(x_{\sigma_{max}})$, up to O(1/steps).

    Args:
        steps: number of blurred pictures; their standard deviations start at 0 and grow in equal steps.
        sigma_max: where the path ends: a standard deviation in pixels at width 224, scaled with the picture's width.
        grad_step: the step of the finite difference $\partial x_\sigma / \partial \sigma$, scaled likewise.

    Paper: xu2020.  Differs: the Gaussian is not cut off at four standard deviations.
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
        rows = repeat_rows(len(batch), self.steps, probe.device)
        lost: dict[str, Tensor] = {}

        def blur(i: Int[Tensor, " n"]) -> Inputs:
            now, lost["now"] = fading(picture[rows[i]], width * (i % self.steps).double(), step)
            return domain.with_leaf(batch.x.take(rows[i]), now)

        total = torch.zeros(picture.shape, dtype=torch.float64, device=batch.device)
        for i, gradient in probe.gradients(batch, rows, blur, self.output):
            total.index_add_(0, rows[i], (gradient * lost["now"][: len(i)]).double())
        return total * (width / step)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.steps, self.steps


def fading(
    pictures: Float[Tensor, "n c h w"], sigma: Float[Tensor, " n"], step: float
) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
    """Each picture blurred with its own standard deviation, and what it loses when that grows by `step`.

    The loss is computed from the difference of the two Gaussians: in single precision the difference of the two blurred
    pictures would be mostly rounding error.
    """
    down, across = (gaussians(side, sigma) for side in pictures.shape[-2:])
    down_more, across_more = (gaussians(side, sigma + step) for side in pictures.shape[-2:])

    def on(matrices: Tensor) -> Tensor:
        return matrices.to(pictures.dtype)[:, None]

    rows = pictures @ on(across)
    lost = on(down - down_more) @ rows + on(down_more) @ (pictures @ on(across - across_more))
    return on(down) @ rows, lost


def gaussians(side: int, sigma: Float[Tensor, " n"]) -> Float[Tensor, "n s s"]:
    """Convolution with a Gaussian whose taps sum to one, zero-padded, as one matrix per standard deviation."""
    reach = max(side, math.ceil(10 * float(sigma.max())))
    distance = torch.arange(reach + 1, dtype=torch.float64, device=sigma.device)
    taps = torch.exp(-0.5 * (distance / sigma.double().clamp_min(1e-9)[:, None]) ** 2)
    taps = taps / (2 * taps.sum(1, keepdim=True) - 1)
    place = torch.arange(side, device=sigma.device)
    return taps[:, (place[:, None] - place).abs()]
