"""The faithfulness violation test."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Scores
from heatcheck.domain.base import Units
from heatcheck.metrics.base import Maps, Metric, metric, undefined
from heatcheck.metrics.curves import by_relevance, tie_breakers
from heatcheck.metrics.removal import removal_curves
from heatcheck.probe.asks import CLEAN, Ask, Shape, removal, single
from heatcheck.probe.probe import Probe


@metric("violation", family="deletion", better="lower", within=(0, 1), invariant=("scale",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Violation(Metric):
    r"""Does the unit with the largest |a| change the output in the direction of its sign?

    $\mathbb 1\big[a_{i^*} \cdot (p_t(x) - p_t(x \setminus i^*)) < 0\big]$ with $i^* = \arg\max_i |a_i|$

    One is a violation; the mean over samples is the violation ratio. A random sign is wrong half of the time, and an
    unsigned random map as often as deleting a unit raises the output, which may be rarer than for real methods.
    Unsigned maps are taken as positive. A map that is zero everywhere has no score.

    Args:
        units: what is deleted; a grid of 4 × 4 cells on pictures, tokens on texts.
        fill: what replaces it.
        output: where the drop is read.
        top: delete this share of the units, those with the largest |a|, together, and use the sign of their sum; 0
            deletes only the largest.

    Paper: liu2022.  Differs: on pictures the unit is a cell; of units with equal |a| the seed chooses one.
    Cost per sample: 1 + units forwards, shared by all methods and with `sds`; with `top`, 1 per method.
    """

    units: str = "cell"
    fill: str = "auto"
    output: str = "prob"
    top: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.top <= 1:
            raise SpecError(f"metric {self.id}: top={self.top!r} must be a share between 0 and 1")

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        share = maps.on(units).double()
        place = by_relevance(share.abs(), tie_breakers(batch.streams, units, "random"), units)
        many = torch.tensor([self._top_count(n) for n in units.counts], device=batch.device)
        claim = torch.where(place < many[:, None], share, 0.0).sum(-1)
        drop = probe.clean(batch).read(self.output) - self._after(probe, batch, units, place, many)
        value = (claim.sign() * drop < 0).double()
        return undefined(value, claim != 0, "the map is zero on the deleted units, or sums to zero there")

    def _top_count(self, n: int) -> int:
        return min(n, max(1, int(self.top * n)))

    def _after(
        self, probe: Probe, batch: Batch, units: Units, place: Int[Tensor, "m b u"], many: Int[Tensor, " b"]
    ) -> Float[Tensor, "m b"]:
        """The output without the units of each map with the largest |a|."""
        if self.top > 0:
            return removal_curves(probe, batch, self.fill, units, place, many[:, None], self.output)[..., 0]
        each = probe.singles(batch, self.fill, units).reshape(len(batch), units.width).read(self.output)
        return each.expand(place.shape).gather(-1, place.argmin(-1, keepdim=True))[..., 0]

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        if self.top > 0:
            gone = self._top_count(shape.units(self.units))
            return {CLEAN} | removal(method, self.fill, self.units, shape, "largest random", [gone])
        return {CLEAN} | single(self.fill, self.units, shape)
