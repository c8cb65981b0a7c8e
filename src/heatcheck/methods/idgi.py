"""Integrated gradients along the important direction."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import Batch, Inputs
from heatcheck.methods.base import Method, method, repeat_rows
from heatcheck.methods.integrated_gradients import start_of
from heatcheck.probe.asks import CLEAN, Ask, Shape
from heatcheck.probe.probe import Probe


@method("idgi", family="gradient", uses=("gradient",), properties=("complete", "implementation_invariant", "symmetric"))
@dataclass(frozen=True, kw_only=True, repr=False)
class IDGI(Method):
    r"""The rise of the score along the straight line from a baseline, divided at each step by squared gradients.

    $a_i = \sum_k \frac{g_i(x_k)^2}{\sum_j g_j(x_k)^2} \big(f_t(x_{k+1}) - f_t(x_k)\big), \quad
    g = \partial f_t / \partial x, \; x_k = b + \tfrac{k}{n} (x - b)$

    Sums to $f_t(x) - f_t(b)$ exactly. A feature that equals its baseline can get a share, as only gradients count.

    Args:
        steps: points on the line, the baseline among them.
        baseline: the fill that replaces everything at the start of the line.

    Paper: yang2023.  Differs: a point with zero gradient is skipped and its rise goes to the point before (the
        paper divides by zero); special tokens of a text get nothing.
    Cost per sample: `steps` gradients and the clean answer.
    """

    steps: int = 50
    baseline: str = "zero"

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        domain = probe.domain
        start = start_of(probe, batch, self.baseline)
        way = domain.leaf(batch.x).detach() - start
        rows = repeat_rows(len(batch), self.steps, probe.device)

        def on_the_way(i: Int[Tensor, " n"]) -> Inputs:
            full = way[rows[i]]
            done = along((i % self.steps).double() / self.steps, full).to(way.dtype)
            return domain.with_leaf(batch.x.take(rows[i]), start[rows[i]] + done * full)

        movable = movable_of(probe, batch)
        total = torch.zeros(way.shape, dtype=torch.float64, device=batch.device)
        share = torch.zeros_like(total)
        height = torch.zeros(len(batch), dtype=torch.float64, device=batch.device)
        sloped = torch.zeros(len(batch), dtype=torch.bool, device=batch.device)
        for index, values, slopes in probe.values_and_gradients(batch, rows, on_the_way, self.output):
            for i, value, slope in zip(index.tolist(), values, slopes, strict=True):
                row = i // self.steps
                if i % self.steps == 0:
                    height[row] = value
                square = (slope.double() * movable[row]).square_()
                whole = square.flatten().sum()
                if whole == 0:
                    continue
                if sloped[row]:
                    total[row].add_(share[row], alpha=float(value - height[row]))
                    height[row] = value
                share[row], sloped[row] = square.div_(whole), True
        rest = probe.clean(batch).read(self.output) - height
        lost = torch.where(~sloped & (rest != 0), torch.nan, 0.0)
        return total + share * along(rest, way) + along(lost, way)

    def asks(self, shape: Shape) -> set[Ask]:
        return {CLEAN}

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.steps, self.steps


def along(values: Float[Tensor, " b"], like: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
    """One number per sample, in a shape that broadcasts over leaf-shaped values."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def movable_of(probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
    """One at every coordinate of the leaf that a deletion can change, zero at special tokens."""
    domain = probe.domain
    zeros = torch.zeros_like(domain.leaf(batch.x).detach())
    here, gone = (domain.with_leaf(batch.x, zeros + value) for value in (0.0, 1.0))
    return domain.leaf(domain.delete(here, torch.zeros_like(domain.deletable(batch.x)), gone))
