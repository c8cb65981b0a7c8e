"""Guided integrated gradients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch
from heatcheck.methods.base import Method, method
from heatcheck.methods.integrated_gradients import start_of
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe

CLOSE = 1e-9
"""A step counts as done when less than this share of the whole distance is missing."""
ALIKE = 1 + 1e-6
"""Gradients within this factor are ties: rounding must not decide which feature goes first."""


@method(
    "guided_ig",
    family="gradient",
    uses=("gradient",),
    properties=("dummy", "implementation_invariant", "symmetric"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class GuidedIG(Method):
    r"""Integrated gradients along a path that moves the features with the smallest gradients first.

    $a_i = \sum_k (x^{k+1}_i - x^k_i) \, \partial f_t(x^k) / \partial x_i$

    Each step brings the point nearer to the input by an equal share of the $L_1$ distance. Of the features that may
    still move, the `fraction` with the smallest absolute gradients goes first, as far as `max_dist` allows, then the
    next. Steep features move last, so that the path collects less noise.

    Sums to $f_t(x) - f_t(b)$, up to an error that falls with the steps and grows with `max_dist`.

    Args:
        steps: points of the path.
        fraction: the share of the features that moves together.
        max_dist: how far a feature may be ahead of or behind the straight line, as a share of its own distance; 0 is
            the straight line.
        baseline: the fill that replaces everything at the start of the path.

    Paper: kapishnikov2021.  Differs: gradients that differ by rounding alone go together; special tokens and padding of
    a text, which cannot move, are no features.
    Cost per sample: `steps` gradients, one after another.
    """

    steps: int = 200
    fraction: float = 0.25
    max_dist: float = 0.02
    baseline: str = "zero"

    revised: ClassVar[Mapping[str, int]] = {"text": 2}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fraction", "max_dist"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise SpecError(f"{self.id}: {name}={value!r} is a share and must lie between 0 and 1")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        domain = probe.domain
        leaf = domain.leaf(batch.x).detach()
        start = start_of(probe, batch, self.baseline).double()
        way = leaf.double() - start
        rows = probe.rows(len(batch))
        length = way.abs().flatten(1)
        length = length / length.sum(1, keepdim=True).clamp_min(torch.finfo(length.dtype).tiny)
        free = domain.deletable(batch.x)
        features = free.sum(1) * (length.shape[1] // free.shape[1])  # special tokens and padding stay where they are
        block = [int(self.fraction * (n - 1)) + 1 for n in features.tolist()]
        done = torch.zeros_like(length)
        total = torch.zeros_like(length)
        for step in range(self.steps):
            point = (start + done.reshape(way.shape) * way).to(leaf.dtype)
            x = domain.with_leaf(batch.x, point)
            slope = torch.cat([g for _, g in probe.gradients(batch, rows, x.take, self.output)]).flatten(1)
            before, goal = done, (step + 1) / self.steps
            each = zip(done, length, slope.abs(), block, strict=True)
            done = torch.stack([self.advance(*one, goal) for one in each])
            total += (done - before) * slope
        return total.reshape(way.shape) * way

    def advance(
        self,
        done: Float[Tensor, " n"],
        length: Float[Tensor, " n"],
        steepness: Float[Tensor, " n"],
        block: int,
        goal: float,
    ) -> Float[Tensor, " n"]:
        """How far each feature of one sample has moved, from 0 to 1, when `goal` of the whole distance is covered."""
        low, high = max(goal - self.max_dist, 0.0), min(goal + self.max_dist, 1.0)
        done = done.clamp_min(low)
        free = (done < high) & (length > 0)
        steepness = steepness.nan_to_num(nan=0.0)
        while count := int(free.sum()):
            missing = (length * (goal - done)).sum()
            if missing <= CLOSE:
                break
            bound = steepness.masked_select(free).kthvalue(min(block, count)).values
            moving = free & (steepness <= ALIKE * bound)
            free = free & ~moving
            room = torch.where(moving, high - done, 0)
            reach = (length * room).sum()
            done = done + room * (missing / reach) if reach > missing else torch.where(moving, high, done)
        return done

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.steps, self.steps
