"""Accuracy under the worst single deletion."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from heatcheck.core.types import Batch, Scores
from heatcheck.metrics.base import Maps, Metric, metric, no_units_reason, undefined
from heatcheck.probe.asks import Ask, Shape, single
from heatcheck.probe.deletions import Masks
from heatcheck.probe.probe import Probe


@metric("corrupted_accuracy", family="deletion", better="higher", within=(0, 1), needs=("label",), invariant=("map",))
@dataclass(frozen=True, kw_only=True, repr=False)
class CorruptedAccuracy(Metric):
    r"""Does the model still predict the label, whichever single unit is deleted?

    $\min_m \mathbb 1\big[\arg\max f(x^{p_m}) = y\big]$ with the label $y$

    It measures the model: every map of a sample has the same score. Its mean over samples is the share of samples for
    which no single deletion changes a correct prediction.

    Args:
        units: what is deleted; a grid of 4 × 4 cells on pictures, tokens on texts.
        fill: what replaces it.

    Paper: hesse2024.
    Cost per sample: as many forwards as units, all shared with `sds`.
    """

    units: str = "cell"
    fill: str = "auto"

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        rows, which = units.valid.nonzero().unbind(1)

        def keep(i: Int[Tensor, " k"]) -> Bool[Tensor, "k s"]:
            return units.index[rows[i]] != which[i, None]

        right = probe.deletions(batch, self.fill, Masks(rows, keep)).read("accuracy")
        worst = torch.ones(len(batch), dtype=torch.float64, device=batch.device).scatter_reduce(0, rows, right, "amin")
        value = worst.expand(len(maps), -1)
        return undefined(value, (units.count > 0).expand(value.shape), no_units_reason(units.name))

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        return single(self.fill, self.units, shape)
