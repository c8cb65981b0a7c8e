"""Iterative removal of features."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from heatcheck.core.types import Batch, Scores
from heatcheck.metrics.base import Maps, Metric, first_problem, metric, no_units_reason, undefined
from heatcheck.metrics.removal import RANKED, relevance_places, removal_curves
from heatcheck.probe.asks import Ask, Shape, removal
from heatcheck.probe.probe import Probe

FLOOR = 1e-3
"""Below this clean probability, shares of it are not meaningful."""


@metric("irof", family="curve", better="higher", within=(None, 1), invariant=("scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class IROF(Metric):
    r"""What share of the class probability is lost while superpixels are deleted one by one, most relevant first?

    $1 - \frac1{n+1}\sum_{k=0}^{n} p_t(x^{(k)}) / p_t(x)$, where the k superpixels with the largest mean of the map are
    deleted at step k: from the clean input to a picture without any. The score is undefined where $p_t(x)$ is below
    0.001.

    Args:
        units: what is deleted at each step; about 100 superpixels on pictures, words on texts.
        fill: what replaces it.
        ties: how equal units are ordered: `random` (per sample, the same for all methods), `index`, `reverse_index`.

    Paper: rieger2020.  Differs: from Quantus, whose curve lacks the clean point and a superpixel and has steps of 1.
    Cost per sample: as many forwards as superpixels per method; the clean and the fully deleted input are shared.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"ties": RANKED}
    unit_value: ClassVar[str] = "mean"

    units: str = "region"
    fill: str = "auto"
    ties: str = "random"

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        place = relevance_places(maps, units, self.ties, self.unit_value)
        gone = torch.arange(units.width + 1, device=batch.device).clamp(max=units.count[:, None])
        curve = removal_curves(probe, batch, self.fill, units, place, gone, "prob")
        value = torch.empty(curve.shape[:2], dtype=torch.float64, device=batch.device)
        for i, n in enumerate(units.counts):
            own = curve[:, i, : n + 1].contiguous()
            value[:, i] = 1 - (own / own[:, :1]).mean(-1)
        empty = undefined(value, (units.count > 0).expand(value.shape), no_units_reason(self.units))
        scores = undefined(
            value, curve[..., 0] >= FLOOR, f"the clean probability is below {FLOOR}, too small to divide by"
        )
        return Scores(scores.value, tuple(map(first_problem, empty.status, scores.status)))

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        n = shape.units(self.units)
        return removal(method, self.fill, self.units, shape, f"most {self.unit_value} {self.ties}", range(n + 1))
