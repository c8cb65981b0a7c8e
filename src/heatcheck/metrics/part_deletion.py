"""Single deletion of annotated parts."""

from dataclasses import dataclass

import torch

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Scores
from heatcheck.metrics.base import Maps, Metric, metric, undefined
from heatcheck.metrics.curves import spearman
from heatcheck.probe.asks import Ask, Shape
from heatcheck.probe.parts import part_asks, part_drops, parts_of
from heatcheck.probe.probe import Probe


@metric(
    "part_deletion", family="deletion", better="higher", within=(0, 1), needs=("reference:parts",), invariant=("scale",)
)
@dataclass(frozen=True, kw_only=True, repr=False)
class PartDeletion(Metric):
    r"""Are the parts with the highest relevance those whose deletion lowers the output most?

    $\tfrac12 + \tfrac12\,\mathrm{Spearman}_m\big(\sum_{i \in \mathrm{dilate}(p_m)} A_i,\; f_t(x) - f_t(x^{p_m})\big)$
    over the parts $p_m$ that the reference `parts` marks

    One half is chance: what `signed_random` scores on average, noise being as often below zero as above. Sums of
    unsigned values grow with the part, so `random` and `constant` rank parts by their size: where large parts matter
    more, they are well above one half, and unsigned methods must beat that. `part_oracle` scores 1. If the
    reference `without` holds the sample rendered without each part, the model sees these; else the part is replaced by
    the fill. The score is undefined with fewer than two parts, or where all have the same sum or the same drop.

    Args:
        dilate: side of the square by which parts are dilated before the map is summed; 1 for not at all. Parts of
            texts are not dilated.
        fill: what replaces a part.
        output: where the drop is read.
        raw: the rank correlation itself, between -1 and 1.

    Paper: hesse2023.  Differs: an undefined correlation is a status, not silently left out of the mean.
    Cost per sample: 1 + parts forwards, shared by all methods.
    """

    dilate: int = 5
    fill: str = "auto"
    output: str = "logit"
    raw: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dilate < 1 or self.dilate % 2 == 0:
            raise SpecError(f"metric {self.id}: dilate={self.dilate!r} must be an odd number of sites")

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        free = probe.domain.deletable(batch.x)
        parts = parts_of(probe, batch)
        drops = part_drops(probe, batch, parts, self.fill, self.output)
        sites = maps.sites()
        value = torch.full((len(maps), len(batch)), torch.nan, dtype=torch.float64, device=batch.device)
        for i, (own, drop) in enumerate(zip(parts, drops, strict=True)):
            if len(own) > 1:
                near = probe.domain.dilate(own, batch.x.take(slice(i, i + 1)), self.dilate) & free[i]
                sums = [torch.where(part, sites[:, i].double(), 0.0).sum(-1) for part in near]
                value[:, i] = spearman(torch.stack(sums, -1), drop.expand(len(maps), -1))
        score = value if self.raw else 0.5 + 0.5 * value
        return undefined(
            score, ~value.isnan(), "there are fewer than two parts, or all have the same attribution or the same drop"
        )

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        return part_asks(shape, self.fill)
