"""Infidelity."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck import catalogue
from heatcheck.domain.base import Windows
from heatcheck.engine.plan import CLEAN, Ask, Shape
from heatcheck.engine.probe import Masks, Probe
from heatcheck.fills.base import Fill
from heatcheck.metrics.base import Maps, Metric, metric, undefined
from heatcheck.types import Batch, NotApplicable, Scores


@metric("infidelity", family="deletion", better="lower", within=(0, None), invariant=("scale", "sign"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Infidelity(Metric):
    r"""How well does the map's sum over a window predict what deleting the window costs?

    $\mathbb E_I\big[(\beta\, I^\top A - (f_t(x) - f_t(x \ominus I)))^2\big]$ over all windows $I$, with the best factor
    $\beta = \mathbb E[\Delta\, I^\top A] / \mathbb E[(I^\top A)^2]$, and $\mathbb E[\Delta^2]$ where the map is zero on
    every window. As $\beta$ may be negative, the sign of a map is not tested.

    Args:
        scale: `optimal` takes the best factor; `none` takes the map at its word.
        perturbation: `binary` sums the map over the window; `difference` weighs each site by what deleting it changes,
            $\sum_c (x - \tilde x)_c$ (pairs with gradients; the map is one number per site, so channels are summed).
        centered: compare deviations from the mean over windows.
        normalised: divide by $\mathbb E[\Delta^2]$, which makes models comparable.
        samples: use that many windows, drawn by the seed; 0 for all.
        fill: what replaces a window.
        output: where the cost is read.

    Paper: yeh2019, li2023.  Differs: a site that already equals the fill counts as deleted; M4 counts it as untouched.
    Cost per sample: 1 + windows forwards (1,235 at 224 pixels), shared by all methods.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "scale": ("optimal", "none"),
        "perturbation": ("binary", "difference"),
    }

    scale: str = "optimal"
    perturbation: str = "binary"
    centered: bool = False
    normalised: bool = False
    samples: int = 0
    fill: str = "auto"
    output: str = "logit"

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        windows = probe.domain.windows(batch.x)
        chosen = [self._chosen(windows, batch, i) for i in range(len(batch))]
        rows = torch.cat([torch.full_like(own, i) for i, own in enumerate(chosen)])
        which = torch.cat(chosen)
        masks = Masks(rows, lambda i: windows.keep(rows[i], which[i]))
        after = torch.split(probe.deletions(batch, self.fill, masks).read(self.output), [len(own) for own in chosen])
        cost = [before - own for before, own in zip(probe.clean(batch).read(self.output), after, strict=True)]
        weight = self._weight(probe, batch)
        value = torch.empty(len(maps), len(batch), dtype=torch.float64)
        for j, site_map in enumerate(maps.sites()):
            weighted = site_map.double() * weight
            sums, noise = windows.sums(weighted), 1e-12 * weighted.abs().sum(-1)
            for i, own in enumerate(chosen):
                share = sums[i, own]
                # a summed-area table leaves rounding where a window's sum is zero
                share = torch.where(share.abs() <= noise[i], 0.0, share)
                value[j, i] = self._misfit(cost[i], share)
        return undefined(value, ~value.isnan(), "there are no windows, or none of them changes the output")

    def _chosen(self, windows: Windows, batch: Batch, row: int) -> Int[Tensor, " k"]:
        """The windows of one sample: all that exist, or those its seed draws."""
        there = torch.nonzero(windows.valid[row]).flatten()
        if not 0 < self.samples < len(there):
            return there
        rng = batch.streams.generator(row, "infidelity-windows")
        return there[torch.randperm(len(there), generator=rng)[: self.samples].sort().values]

    def _weight(self, probe: Probe, batch: Batch) -> Float[Tensor, "b s"]:
        """What a unit of the map at each site is worth under a window."""
        domain = probe.domain
        if self.perturbation == "binary":
            return torch.ones(domain.deletable(batch.x).shape, dtype=torch.float64)
        filler: Fill = catalogue.build("fill", self.fill)
        if type(filler).erase is not Fill.erase:
            raise NotApplicable(
                f"infidelity(perturbation=difference) needs a fill that is the same for all windows, not {self.fill}"
            )
        change = domain.leaf(batch.x).detach().double() - domain.leaf(filler.full(domain, batch)).detach().double()
        return domain.reduce(change, "sum").flatten(1)

    def _misfit(self, cost: Float[Tensor, " k"], share: Float[Tensor, " k"]) -> Float[Tensor, ""]:
        if self.centered:
            cost, share = cost - cost.mean(), share - share.mean()
        energy = share.square().mean()
        if self.scale == "optimal" and energy > 0:
            share = share * ((cost * share).mean() / energy)
        misfit = (cost - share).square().mean()
        return misfit / cost.square().mean() if self.normalised else misfit

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        windows = shape.domain.windows(shape.x)
        boxes = windows.box[0, windows.valid[0]]
        if 0 < self.samples < len(boxes):
            return {CLEAN} | {("window", self.fill, f"{self.samples} drawn", i) for i in range(self.samples)}
        sites = shape.domain.units("site", shape.x)
        asks: set[Ask] = {CLEAN}
        for top, bottom, left, right in boxes.tolist():
            size = (bottom - top) * (right - left)
            if size == int(sites.count[0]):
                asks.add(("full", self.fill))
            elif size == 1:
                asks.add(("single", self.fill, sites.name, int(sites.index[0, top * windows.shape[1] + left])))
            else:
                asks.add(("window", self.fill, top, bottom, left, right))
        return asks
