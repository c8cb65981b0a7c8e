"""The best possible map under single deletion of parts."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import OK, Batch
from heatcheck.methods.base import Method, method
from heatcheck.probe.asks import Ask, Shape
from heatcheck.probe.parts import part_asks, part_drops, parts_of
from heatcheck.probe.probe import Probe


@method("part_oracle", family="control", uses=(), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class PartOracle(Method):
    r"""What the output loses without each annotated part, on the part: the best possible map under `part_deletion`.

    The smallest map whose sums over the dilated parts are the drops:
    $A = D^\top (D D^\top)^{+} d, \quad D_{mi} = [i \in \mathrm{dilate}(p_m)], \; d_m = f_t(x) - f_t(x^{p_m})$

    Dilated parts may overlap; the sums are right all the same, unless two parts are one, or one is empty.

    Args:
        dilate: side of the square by which parts are dilated, as in `part_deletion`.
        fill: what replaces a part that no rendering shows the sample without.

    Cost per sample: 1 + parts forwards, shared with `part_deletion`.
    """

    dilate: int = 5
    fill: str = "auto"

    reads_references: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dilate < 1 or self.dilate % 2 == 0:
            raise SpecError(f"{self.id}: dilate={self.dilate!r} must be an odd number of sites")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        free = probe.domain.deletable(batch.x)
        parts = parts_of(probe, batch)
        drops = part_drops(probe, batch, parts, self.fill, self.output)
        sites = torch.zeros(free.shape, dtype=torch.float64, device=batch.device)
        for i, (own, drop) in enumerate(zip(parts, drops, strict=True)):
            near = probe.domain.dilate(own, batch.x.take(slice(i, i + 1)), self.dilate) & free[i]
            wide = near.double()
            sites[i] = wide.T @ torch.linalg.pinv(wide @ wide.T, hermitian=True) @ drop
        return probe.domain.as_map(sites, batch.x)

    def reduced(self, probe: Probe, batch: Batch) -> tuple[Float[Tensor, "b ..."], tuple[str, ...]]:
        maps, _ = super().reduced(probe, batch)
        lacking = (
            f"skipped: {self.id} needs a reference 'parts', and none was given (docs/references.md says how to add one)"
        )
        return maps, tuple(OK if len(own) else lacking for own in parts_of(probe, batch))

    def asks(self, shape: Shape) -> set[Ask]:
        return part_asks(shape, self.fill)
