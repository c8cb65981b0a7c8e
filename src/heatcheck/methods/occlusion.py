"""Occlusion."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Batch
from heatcheck.methods.base import Method, method, spread_density
from heatcheck.probe.asks import CLEAN, Ask, Shape, single
from heatcheck.probe.probe import Probe


@method(
    "occlusion", family="perturbation", uses=(), properties=("dummy", "implementation_invariant", "linear", "symmetric")
)
@dataclass(frozen=True, kw_only=True, repr=False)
class Occlusion(Method):
    r"""What the output loses when each unit is deleted alone, spread evenly over the unit.

    $A_i = \big(f_t(x) - f_t(x^{p_m})\big) / |p_m| \quad \text{for } i \in p_m$

    With the units and the fill of `sds` these are exactly the drops that `sds` compares maps with, so that this pair is
    marked circular.

    Args:
        units: what is deleted; a grid of 4 × 4 cells on pictures, tokens on texts.
        fill: what replaces it.

    Paper: zeiler2014.  Differs: units do not overlap; each site gets its unit's drop divided by the unit's area.
    Cost per sample: 1 + units forwards, shared with `sds`.
    """

    units: str = "cell"
    fill: str = "auto"

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        units = probe.units(self.units, batch)
        more = replace(units, width=units.width + 1)  # one more column, where nothing is deleted
        outputs = probe.singles(batch, self.fill, more).reshape(len(batch), more.width).read(self.output)
        return spread_density(probe, batch, units, outputs[:, -1:] - outputs[:, :-1])

    def asks(self, shape: Shape) -> set[Ask]:
        return {CLEAN} | single(self.fill, self.units, shape)
