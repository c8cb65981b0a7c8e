"""Remove and debias (ROAD)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Batch, Scores
from heatcheck.metrics.base import Maps, Metric, metric
from heatcheck.metrics.curves import mirrored
from heatcheck.metrics.removal import LEAST, MOST, RANKED, curve_scores, relevance_places, removal_curves
from heatcheck.probe.asks import CLEAN, Ask, Shape, removal
from heatcheck.probe.probe import Probe

PERCENTAGES = (10, 20, 30, 40, 50, 70, 90)


@metric(
    "road",
    family="imputation",
    better="higher",
    within=(-0.5, 0.5),
    on=("image",),
    invariant=("monotone", "scale", "shift"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class Road(Metric):
    r"""How much higher is the output without the least relevant pixels than without the most relevant ones?

    $\frac12 \cdot \frac1{|P|}\sum_{p \in P} \big[f_t(x^{(p)}_{\mathrm{LeRF}}) - f_t(x^{(p)}_{\mathrm{MoRF}})\big]$,
    where a share p ∈ {.1, .2, .3, .4, .5, .7, .9} is removed and filled in from its surroundings, so that the shape of
    the hole reveals little

    Higher is better for every order: `morf` is the mean fall $f_t(x) - f_t(x^{(p)})$, `lerf` the mean rise
    $f_t(x^{(p)}) - f_t(x)$, and `combined` the mean of the two. The stored curve holds the raw outputs
    $f_t(x^{(p)})$ for `morf` and `lerf`, and half their difference for `combined`. The paper's own numbers are the
    curves: there a lower MoRF is better. Its code takes p as the share that is kept where the least relevant go
    first; here p is always removed. It breaks ties by adding 1e-4 of noise, which also swaps pixels that are not equal.

    Args:
        order: `combined`, or the most (`morf`) or least (`lerf`) relevant first alone.
        units: what is removed; pixels.
        fill: what replaces it.
        output: where the change is read; `accuracy` against the label is the paper's.
        ties: how equal units are ordered: `random` (per sample, the same for all methods), `index`, `reverse_index`.

    Paper: rong2022.  Differs: changes of the output, not accuracies; p is always the share removed; ties by the seed.
    Cost per sample: 14 forwards per method, 7 for one order, and as many fills (`linear`: 45 ms each at 224 × 224).
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"order": ("combined", "morf", "lerf"), "ties": RANKED}

    order: str = "combined"
    units: str = "site"
    fill: str = "linear"
    output: str = "prob"
    ties: str = "random"

    @property
    def orders(self) -> tuple[str, ...]:
        """The orders of removal."""
        return {"combined": (LEAST, MOST), "morf": (MOST,), "lerf": (LEAST,)}[self.order]

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        share = tuple(p / 100 for p in PERCENTAGES)
        outputs = [self.outputs(probe, batch, maps, order) for order in self.orders]
        if self.order == "combined":
            curve = (outputs[0] - outputs[1]) / 2
            return curve_scores(curve.mean(-1), curve, units, share)
        rise = (outputs[0] - probe.clean(batch).read(self.output)[:, None]).mean(-1)
        return curve_scores(rise if self.order == "lerf" else -rise, outputs[0], units, share)

    def outputs(self, probe: Probe, batch: Batch, maps: Maps, order: str) -> Float[Tensor, "m b k"]:
        """The output at each share removed."""
        units = probe.units(self.units, batch)
        place = relevance_places(maps, units, self.ties)
        place = mirrored(place, units) if order == LEAST else place
        gone = units.count[:, None] * torch.tensor(PERCENTAGES, device=batch.device) // 100
        return removal_curves(probe, batch, self.fill, units, place, gone, self.output)

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        gone = [shape.units(self.units) * p // 100 for p in PERCENTAGES]
        asks: set[Ask] = set() if self.order == "combined" else {CLEAN}
        for order in self.orders:
            asks |= removal(method, self.fill, self.units, shape, f"{order} {self.ties}", gone)
        return asks
