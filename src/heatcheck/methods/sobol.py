"""Sobol indices."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.quasirandom import SobolEngine

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs
from heatcheck.methods.base import Method, counted_rows, eraser, method, spread_density, stacked
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe

NO_VARIANCE = 1e-12
"""An output variance below this is rounding error and has no shares."""


@method(
    "sobol",
    family="perturbation",
    on=("image",),
    uses=(),
    properties=("dummy", "implementation_invariant", "nonnegative"),
    elsewhere="its masks dim units gradually, and words cannot be dimmed; try hsic, which switches units on and off",
)
@dataclass(frozen=True, kw_only=True, repr=False)
class Sobol(Method):
    r"""The share of the output's variance that involves each unit, when all units are dimmed at random.

    $A_m = \frac{\sum_n \big(y(a_n) - y(a_n^{m})\big)^2}{2 N \operatorname{Var}_n y(a_n)}, \quad
    y(z) = p_t\big(x \odot z + b \odot (1 - z)\big)$

    The points $a_n$ and $b_n$ are the two halves of a Sobol sequence in [0, 1] with twice as many dimensions as there
    are units, and $a_n^m$ is $a_n$ with unit $m$ as in $b_n$: Jansen's estimate of total-order indices. Each sample's
    sequence is scrambled by its own seed, the same for every model, class and fill.

    Args:
        output: the model output that is used.
        designs: the number N of points; a power of two, so that the sequence is balanced.
        units: what is dimmed together; a grid of 8 × 8 patches.
        fill: what replaces a unit as far as it is dimmed.

    Paper: fel2021.  Differs: the sequence is scrambled; the model is not run at the points $b_n$, as the estimate
    does not use them; each site gets its unit's index divided by the unit's area, without cubic enlargement.
    Cost per sample: `designs` × (units + 1) forwards.
    """

    output: str = "prob"
    designs: int = 32
    units: str = "patch"
    fill: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.designs < 2 or self.designs & (self.designs - 1):
            raise SpecError(f"{self.id}: designs={self.designs!r} must be a power of two of at least 2")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        units = probe.units(self.units, batch)
        n, counts = self.designs, units.counts
        drawn = [points(count, n, batch.streams.generator(i, "sobol-masks")) for i, count in enumerate(counts)]
        here, there = stacked(
            [half for own in zip(*drawn, strict=True) for half in own], units.width, probe.device
        ).chunk(2)
        asked = [n * (count + 1) for count in counts]
        rows, which = counted_rows(asked, probe.device)
        erase = eraser(probe, batch, self.fill)

        def dimmed(i: Int[Tensor, " n"]) -> Inputs:
            own = rows[i]
            point, moved = which[i] % n, which[i] // n - 1  # -1 where no unit is moved
            at_there = torch.arange(units.width, device=batch.device) == moved[:, None]
            kept = torch.where(at_there, there[own, point], here[own, point])
            return erase(own, units.take(own).spread(kept.to(probe.model.dtype), outside=1.0))

        outputs = torch.cat([a.read(self.output) for _, a in probe.answers(batch, rows, dimmed)])
        indices = torch.zeros(len(batch), units.width, dtype=torch.float64, device=batch.device)
        for i, y in enumerate(torch.split(outputs, asked)):
            indices[i, : counts[i]] = total_order(y[:n], y[n:].reshape(-1, n))
        return spread_density(probe, batch, units, indices)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.designs * (shape.units(self.units) + 1), 0


def points(units: int, n: int, rng: torch.Generator) -> tuple[Float[Tensor, "n u"], Float[Tensor, "n u"]]:
    """The two halves of a scrambled Sobol sequence of `n` points."""
    seed = int(torch.randint(2**31, (), generator=rng))
    engine = SobolEngine(2 * units, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
    both: Tensor = engine.draw(n, dtype=torch.float64)
    return both[:, :units], both[:, units:]


def total_order(plain: Float[Tensor, " n"], moved: Float[Tensor, "u n"]) -> Float[Tensor, " u"]:
    """Jansen's total-order indices, from the outputs at the points and at the points with one unit moved."""
    half = (plain - moved).square().mean(1) / 2
    return half / plain.var().clamp_min(NO_VARIANCE)
