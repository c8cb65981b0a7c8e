"""Single deletion."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from heatcheck.core.types import Batch, Scores
from heatcheck.metrics.base import Maps, Metric, metric, undefined
from heatcheck.metrics.curves import spearman
from heatcheck.probe.asks import CLEAN, Ask, Shape, single
from heatcheck.probe.probe import Probe


@metric("sds", family="deletion", better="higher", within=(-1, 1), invariant=("scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class SingleDeletion(Metric):
    r"""Are the units with the highest relevance those whose deletion lowers the output most?

    $r = \mathrm{Spearman}_m\big(\sum_{i \in p_m} A_i,\; f_t(x) - f_t(x^{p_m})\big)$

    The score is undefined where all units of the map, or all drops, are equal. On a model fine-tuned with
    deleted cells this is IDSDS. Random maps score 0 on average, with deviation $1/\sqrt{P - 1}$ for $P$ units.

    Args:
        units: what is deleted; P = 16 cells, `grid(4)`, on pictures (`grid(2)` and `grid(8)` for P = 4 and 64), tokens
            on texts. Where a side cannot be divided, the pixels left over belong to no cell, as in the paper's code.
        fill: what replaces it.
        output: where the drop is read, whatever output the map explains.
        nan: an undefined score has a `status` and is left out of means, as in the paper's code; or it counts as `zero`.

    Paper: hesse2024.  Differs: an undefined correlation is a status with its coverage shown, not silently dropped.
    Cost per sample: 1 + units forwards, shared by all methods.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"nan": ("status", "zero")}

    units: str = "cell"
    fill: str = "auto"
    output: str = "logit"
    nan: str = "status"

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        after = probe.singles(batch, self.fill, units).reshape(len(batch), units.width).read(self.output)
        drop = probe.clean(batch).read(self.output)[:, None] - after
        share = maps.on(units)
        value = torch.empty(len(maps), len(batch), dtype=torch.float64, device=batch.device)
        for i, n in enumerate(units.counts):
            value[:, i] = spearman(share[:, i, :n], drop[i, :n].expand(len(maps), n))
        if self.nan == "zero":
            value = value.nan_to_num(0.0)
        return undefined(value, ~value.isnan(), "all units have the same attribution, or the same drop")

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        return {CLEAN} | single(self.fill, self.units, shape)
