"""HSIC attribution."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs
from heatcheck.methods.base import Method, eraser, method, spread_density
from heatcheck.methods.coalitions import ways
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe

BLOCK = 256
"""Rows of the outputs' kernel matrix that are held at a time."""


@method("hsic", family="perturbation", uses=(), properties=("implementation_invariant", "nonnegative"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Hsic(Method):
    r"""How much the output depends on whether a unit is there, by the Hilbert–Schmidt independence criterion.

    $A_m = \frac{1}{N^2} \operatorname{tr}(K_m H L H), \quad K_m[i, j] = \tfrac12 - (z_{im} - z_{jm})^2, \quad
    L[i, j] = \exp\big(-(y_i - y_j)^2 / 2 \sigma^2\big), \quad H = I - \tfrac1N 1 1^\top$

    Each $z_i$ says which units are kept, $y_i = p_t(x^{z_i})$, and $\sigma$ is the median of all $y_i$. The $z_i$ are a
    Latin hypercube rounded to 0 and 1: every unit is there in half of them. Where a sample has so few units that all
    ways to keep them fit into `samples`, each is asked once.

    Args:
        output: where the model is read.
        samples: ways N to keep units.
        units: what is switched together; a grid of 8 × 8 patches on pictures, tokens on texts.
        fill: what replaces what is off.

    Paper: novello2022.  Differs: the authors' package multiplies by N and enlarges the grid with a cubic spline; here
    each site gets its unit's score divided by the unit's area.
    Cost per sample: `samples` forwards.
    """

    output: str = "prob"
    samples: int = 500
    units: str = "patch"
    fill: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 2:
            raise SpecError(
                f"{self.id}: samples={self.samples!r} must be at least 2 for anything to depend on anything"
            )

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        units = probe.units(self.units, batch)
        designs = [
            design(count, self.samples, batch.streams.generator(i, "hsic-masks"))
            for i, count in enumerate(units.count.tolist())
        ]
        asked = torch.tensor([len(z) for z in designs])
        rows = torch.arange(len(batch)).repeat_interleave(asked)
        kept = torch.zeros(len(rows), units.width, dtype=torch.bool)
        for i, z in enumerate(designs):
            kept[rows == i, : z.shape[1]] = z
        erase = eraser(probe, batch, self.fill)

        def switched(i: Int[Tensor, " n"]) -> Inputs:
            return erase(rows[i], units.take(rows[i]).spread(kept[i], outside=1.0))

        heard = torch.cat([a.read(self.output) for _, a in probe.answers(batch, rows, switched)])
        worth = torch.zeros(len(batch), units.width, dtype=torch.float64)
        for i, (z, y) in enumerate(zip(designs, torch.split(heard, asked.tolist()), strict=True)):
            worth[i, : z.shape[1]] = dependence(z.double(), y)
        return spread_density(probe, batch, units, worth)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return min(self.samples, ways(shape.units(self.units))), 0


def design(units: int, samples: int, rng: torch.Generator) -> Bool[Tensor, "n u"]:
    """Which units each question keeps: every way there is, or a Latin hypercube rounded to 0 and 1."""
    if ways(units) <= samples:
        return (torch.arange(2**units)[:, None] >> torch.arange(units) & 1).bool()
    stratum = torch.rand(samples, units, generator=rng, dtype=torch.float64).argsort(0)
    return stratum >= samples // 2


def dependence(kept: Float[Tensor, "n u"], heard: Float[Tensor, " n"]) -> Float[Tensor, " u"]:
    r"""HSIC of each unit and the output.

    For a unit that is on or off $H K_m H$ is $2 \tilde z \tilde z^\top$ with $\tilde z$ centred, so that the trace is
    a quadratic form in L, which is made in blocks.
    """
    z = (kept - kept.mean(0)).T.contiguous()
    spread = 2 * heard.quantile(0.5).square().clamp_min(torch.finfo(heard.dtype).tiny)
    total = torch.zeros(len(z), dtype=torch.float64)
    for y, own in zip(torch.split(heard, BLOCK), torch.split(z, BLOCK, 1), strict=True):
        kernel = (-(heard[:, None] - y).square() / spread).exp()
        total += ((z @ kernel) * own).sum(1)
    return (2 * total / len(heard) ** 2).clamp_min(0)
