"""Integrated gradients."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.engine.plan import Shape
from heatcheck.engine.probe import Probe
from heatcheck.methods.base import Method, eraser, method, repeat_rows
from heatcheck.spec import SpecError
from heatcheck.types import Batch, Inputs

QUADRATURES = ("gauss_legendre", "trapezoid", "riemann_middle", "linspace_n")


@method(
    "integrated_gradients",
    uses=("gradient",),
    properties=("complete", "dummy", "implementation_invariant", "linear", "symmetric"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class IntegratedGradients(Method):
    r"""The gradient averaged along the straight line from a baseline, times the way from there.

    $a = (x - b) \odot \int_0^1 \partial f_t(b + \alpha (x - b)) / \partial x \, d\alpha$

    Sums to $f_t(x) - f_t(b)$, up to the error of the quadrature.

    Args:
        steps: points on the line.
        baseline: the fill with which everything is deleted; a random one is drawn once per sample.
        quadrature: `gauss_legendre`, `trapezoid`, `riemann_middle`, or `linspace_n` (InterpretDL's and PAIR's rule:
            both ends included, each point weighing 1/steps, complete only to O(1/steps)).

    Paper: sundararajan2017.  Differs: Gauss–Legendre points, not a Riemann sum; special tokens of a text stay.
    Cost per sample: `steps` gradients.
    """

    steps: int = 50
    baseline: str = "zero"
    quadrature: str = "gauss_legendre"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quadrature not in QUADRATURES:
            raise SpecError(f"{self.id}: quadrature={self.quadrature!r} is not one of {', '.join(QUADRATURES)}")
        if self.quadrature == "trapezoid" and self.steps < 2:
            raise SpecError(f"{self.id}: the trapezoid rule needs steps=2 or more, not {self.steps}")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        domain = probe.domain
        nothing = torch.zeros_like(domain.deletable(batch.x))
        start = domain.leaf(eraser(probe, batch, self.baseline)(torch.arange(len(batch)), nothing)).detach()
        way = domain.leaf(batch.x).detach() - start
        place, weight = (
            torch.from_numpy(v).reshape(-1, *[1] * (way.ndim - 1)) for v in nodes(self.quadrature, self.steps)
        )
        rows = repeat_rows(len(batch), self.steps)

        def on_the_way(i: Int[Tensor, " n"]) -> Inputs:
            share = place[i % self.steps].to(way.dtype)
            return domain.with_leaf(batch.x.take(rows[i]), start[rows[i]] + share * way[rows[i]])

        slope = torch.zeros(way.shape, dtype=torch.float64)
        for i, gradient in probe.gradients(batch, rows, on_the_way, self.output):
            slope.index_add_(0, rows[i], weight[i % self.steps] * gradient)
        return way * slope

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.steps, self.steps


@cache
def nodes(quadrature: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in [0, 1] and their weights."""
    if quadrature == "gauss_legendre":
        place, weight = np.polynomial.legendre.leggauss(n)
        return (place + 1) / 2, weight / 2
    if quadrature == "riemann_middle":
        return (np.arange(n) + 0.5) / n, np.full(n, 1 / n)
    ends = np.linspace(0, 1, n)
    if quadrature == "linspace_n":
        return ends, np.full(n, 1 / n)
    weight = np.full(n, 1 / (n - 1))
    weight[[0, -1]] /= 2
    return ends, weight
