"""HSIC attribution."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs
from heatcheck.methods.base import Method, counted_rows, eraser, method, spread_density, stacked
from heatcheck.methods.coalitions import all_sets, ways
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe

BLOCK = 256
"""Rows of the outputs' kernel matrix that are computed at a time."""


@method("hsic", family="perturbation", uses=(), properties=("implementation_invariant", "nonnegative"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Hsic(Method):
    r"""How much the output depends on whether a unit is present, by the Hilbert–Schmidt independence criterion.

    $A_m = \frac{1}{N^2} \operatorname{tr}(K_m H L H), \quad K_m[i, j] = \tfrac12 - (z_{im} - z_{jm})^2, \quad
    L[i, j] = \exp\big(-(y_i - y_j)^2 / 2 \sigma^2\big), \quad H = I - \tfrac1N 1 1^\top$

    Each $z_i$ says which units are kept, $y_i = p_t(x^{z_i})$, and $\sigma$ is the median of all $y_i$. The $z_i$ are a
    Latin hypercube rounded to 0 and 1: every unit is kept in half of them. If a sample has so few units that all
    subsets fit into `samples`, each subset is used once.

    Args:
        output: the model output that is used.
        samples: the number N of masks.
        units: what is switched on and off together; a grid of 8 × 8 patches on pictures, tokens on texts.
        fill: what replaces units that are off.

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
            raise SpecError(f"{self.id}: samples={self.samples!r} must be at least 2: one output shows no dependence")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        units = probe.units(self.units, batch)
        designs = [
            design(count, self.samples, batch.streams.generator(i, "hsic-masks"))
            for i, count in enumerate(units.counts)
        ]
        asked = [len(z) for z in designs]
        rows, which = counted_rows(asked, probe.device)
        kept = stacked(designs, units.width, probe.device)
        erase = eraser(probe, batch, self.fill)

        def switched(i: Int[Tensor, " n"]) -> Inputs:
            return erase(rows[i], units.take(rows[i]).spread(kept[rows[i], which[i]], outside=1.0))

        outputs = torch.cat([a.read(self.output) for _, a in probe.answers(batch, rows, switched)])
        scores = torch.zeros(len(batch), units.width, dtype=torch.float64, device=batch.device)
        for i, (count, y) in enumerate(zip(units.counts, torch.split(outputs, asked), strict=True)):
            scores[i, :count] = dependence(kept[i, : len(y), :count].double(), y)
        return spread_density(probe, batch, units, scores)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return min(self.samples, ways(shape.units(self.units))), 0


def design(units: int, samples: int, rng: torch.Generator) -> Bool[Tensor, "n u"]:
    """The units that each mask keeps: all subsets, or a Latin hypercube rounded to 0 and 1."""
    if ways(units) <= samples:
        return all_sets(units).flip(0)
    stratum = torch.rand(samples, units, generator=rng, dtype=torch.float64).argsort(0)
    return stratum >= samples // 2


def dependence(kept: Float[Tensor, "n u"], outputs: Float[Tensor, " n"]) -> Float[Tensor, " u"]:
    r"""HSIC of each unit and the output.

    As units are on or off, $H K_m H = 2 \tilde z \tilde z^\top$ with the centred $\tilde z = H z$. So the trace is a
    quadratic form in L, and L is computed in blocks.
    """
    z = (kept - kept.mean(0)).T.contiguous()
    spread = 2 * outputs.quantile(0.5).square().clamp_min(torch.finfo(outputs.dtype).tiny)
    total = torch.zeros(len(z), dtype=torch.float64, device=z.device)
    for y, part in zip(torch.split(outputs, BLOCK), torch.split(z, BLOCK, 1), strict=True):
        kernel = (-(outputs[:, None] - y).square() / spread).exp()
        total += ((z @ kernel) * part).sum(1)
    return (2 * total / len(outputs) ** 2).clamp_min(0)
