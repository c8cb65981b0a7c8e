"""Infidelity."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.devices import CPU, moved
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Attribution, Batch, Inputs, NotApplicable, Scores, Streams
from heatcheck.domain.base import Domain, Units, parse_units
from heatcheck.fills.base import Fill
from heatcheck.metrics.base import SITE, Maps, SiteMetric, metric, undefined
from heatcheck.metrics.subsets import Subset, deletion_masks, members, subset_asks, subset_sums, subsets
from heatcheck.probe.asks import CLEAN, Ask, Shape
from heatcheck.probe.deletions import Masks
from heatcheck.probe.probe import Probe

PERCENTS, EACH = (1, 2, 3, 4, 5), 40
"""M4's random sets for long texts: 40 with each of these percentages of the tokens."""

CostsAndSums = tuple[list[Float[Tensor, " _"]], list[Float[Tensor, "m _"]]]
"""Per sample: the drop under each perturbation, and each map's prediction of it."""


@metric("infidelity", family="deletion", better="lower", within=(0, None), invariant=("scale", "sign"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Infidelity(SiteMetric):
    r"""How well does the map's sum over a window predict the drop when the window is deleted?

    $\mathbb E_I\big[(\beta\, I^\top A - (f_t(x) - f_t(x \ominus I)))^2\big]$ over all windows $I$, with the best factor
    $\beta = \mathbb E[\Delta\, I^\top A] / \mathbb E[(I^\top A)^2]$, and $\mathbb E[\Delta^2]$ where the map is zero on
    every window. As $\beta$ may be negative, the sign of a map is not tested. As deleting large windows costs more, a
    map that is positive everywhere predicts much by their area alone: compare with `constant` and `random`.

    With `scale=none` this is the formula of Yeh et al.; unsigned maps, and maps that explain another output than
    `output`, are then skipped.

    Args:
        scale: `optimal` multiplies the map by the best factor; `none` leaves it as it is.
        perturbation: `binary` sums the map over the window; `difference` weighs each site by what deleting it changes,
            $\sum_c (x - \tilde x)_c$ (pairs with gradients; the map is one number per site, so channels are summed);
            `gaussian` deletes nothing and subtracts noise from the whole input, weighing each site by its noise,
            summed over channels; special tokens get none.
        sets: what is deleted: `windows` (M4's squares of three sizes on pictures, runs of one to five tokens on texts)
            or `random` (M4's sets for long texts: 40 each of 1, 2, 3, 4 and 5 % of the sites; one site where M4's
            rounding leaves none).
        units: what windows and random sets are made of, each deleted as a whole: runs of one to five words or sentences
            on texts, squares of the cells of a `grid(n)` on pictures by the rule for pixels; superpixels lie in no rows
            and need `sets=random`. Noise deletes nothing and has none.
        centered: compare deviations from the mean over windows.
        normalised: divide by $\mathbb E[\Delta^2]$, which makes models comparable.
        samples: how many windows are drawn at random; 0 uses all. With `gaussian`, how often noise is drawn.
        sigma: standard deviation of the noise.
        fill: what replaces a window.
        output: where the drop is read.

    Paper: yeh2019, li2023.  Differs: a site equal to the fill counts as deleted; random sets are never empty or alike.
    Cost per sample: 1 + windows forwards (1,235 at 224 pixels), shared by all methods; larger units have fewer windows.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "scale": ("optimal", "none"),
        "perturbation": ("binary", "difference", "gaussian"),
        "sets": ("windows", "random"),
    }

    scale: str = "optimal"
    perturbation: str = "binary"
    sets: str = "windows"
    centered: bool = False
    normalised: bool = False
    samples: int = 0
    sigma: float = 0.2
    fill: str = "auto"
    output: str = "logit"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.perturbation == "gaussian" and self.samples < 1:
            raise SpecError(f"metric {self.id}: perturbation='gaussian' needs a number of draws, such as samples=50")
        if not self.sigma > 0:
            raise SpecError(f"metric {self.id}: sigma={self.sigma!r} must be above 0")

    def resolve(self, domain: Domain) -> Self:
        found = super().resolve(domain)
        if found.units == SITE:
            return found
        if self.perturbation == "gaussian":
            raise NotApplicable(
                f"{self.id}: noise is added to every {domain.roles[SITE]}, and units={self.units} say nothing"
            )
        if self.sets == "windows" and parse_units(found.units)[0] not in domain.windowed:
            raise NotApplicable(
                f"{self.id}: windows of a {domain.modality} are made of {' or '.join(domain.windowed)} units, "
                f"not of {found.units}; sets=random takes any"
            )
        return found

    def map_status(self, a: Attribution) -> str:
        if self.scale == "none" and not a.signed:
            return f"skipped: {self.name} needs signed maps, and those of {a.method} are unsigned"
        if self.scale == "none" and a.output != self.output:
            return f"skipped: {self.name} reads the {self.output}, but the maps of {a.method} explain the {a.output}"
        return super().map_status(a)

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        if self.perturbation == "gaussian":
            cost, share = self._noise(probe, batch, maps)
        elif self.sets == "windows" and self.units == SITE:
            cost, share = self._windows(probe, batch, maps)
        else:
            cost, share = self._sets(probe, batch, maps)
        cost, share = list(moved(CPU, *cost)), list(moved(CPU, *share))
        value = torch.empty(len(maps), len(batch), dtype=torch.float64)
        for i, (own, given) in enumerate(zip(cost, share, strict=True)):
            for j, each in enumerate(given):
                value[j, i] = self._mean_square(own, each)
        return undefined(value, ~value.isnan(), "there are no windows, or none of them changes the output")

    def _windows(self, probe: Probe, batch: Batch, maps: Maps) -> CostsAndSums:
        windows = probe.domain.windows(batch.x)
        there = [windows.valid[i].nonzero().flatten() for i in range(len(batch))]
        drawn = [self._drawn(batch.streams, i, len(own)).to(batch.device) for i, own in enumerate(there)]
        chosen = [own[which] for own, which in zip(there, drawn, strict=True)]
        rows = torch.cat([torch.full_like(own, i) for i, own in enumerate(chosen)])
        which = torch.cat(chosen)
        masks = Masks(rows, lambda i: windows.keep(rows[i], which[i]))
        weight = self._weight(probe, batch)
        share = [torch.empty(len(maps), len(own), dtype=torch.float64, device=batch.device) for own in chosen]
        for j, site_map in enumerate(maps.sites()):
            weighted = site_map.double() * weight
            total, noise = windows.sums(weighted), 1e-12 * weighted.abs().sum(-1)
            for i, own in enumerate(chosen):
                # a summed-area table leaves rounding where a window's sum is zero
                share[i][j] = torch.where(total[i, own].abs() <= noise[i], 0.0, total[i, own])
        return self._cost(probe, batch, masks, [len(own) for own in chosen]), share

    def _sets(self, probe: Probe, batch: Batch, maps: Maps) -> CostsAndSums:
        units = probe.units(self.units, batch)
        every = self._every_set(probe.domain, batch, units)
        chosen = [[own[k] for k in self._drawn(batch.streams, i, len(own)).tolist()] for i, own in enumerate(every)]
        heat = units.sum(maps.sites().double() * self._weight(probe, batch)).cpu()
        share = [subset_sums(heat[:, i, :n], chosen[i]) for i, n in enumerate(units.counts)]
        return self._cost(probe, batch, deletion_masks(units, chosen), [len(own) for own in chosen]), share

    def _every_set(self, domain: Domain, batch: Batch, units: Units) -> list[list[Subset]]:
        """Per sample, the sets of units that may be deleted."""
        if self.sets == "random":
            return [
                [s for size, many in set_sizes(n).items() for s in subsets(batch.streams, i, n, size, many)]
                for i, n in enumerate(units.counts)
            ]
        windows = domain.unit_windows(units, batch.x)
        return [
            [partial(members, n, torch.tensor(window)) for window in own]
            for n, own in zip(units.counts, windows, strict=True)
        ]

    def _noise(self, probe: Probe, batch: Batch, maps: Maps) -> CostsAndSums:
        domain, k = probe.domain, self.samples
        leaf, free = domain.leaf(batch.x).detach(), domain.deletable(batch.x)
        rows = probe.rows(len(batch)).repeat_interleave(k)

        def noise(i: int) -> Float[Tensor, "1 ..."]:
            rng = batch.streams.generator(i // k, f"infidelity-noise {i % k}")
            return self.sigma * torch.randn(1, *leaf.shape[1:], generator=rng, dtype=torch.float64)

        def make(index: Int[Tensor, " n"]) -> Inputs:
            own, x = rows[index], batch.x.take(rows[index])
            moved = leaf[own] - torch.cat([noise(i) for i in index.tolist()]).to(leaf.dtype)
            return domain.delete(x, torch.zeros_like(free[own]), domain.with_leaf(x, moved))

        names = [f"noise {self.sigma}, draw {i % k}, seed {batch.streams.seed}" for i in range(len(rows))]
        after = probe.named_answers(batch, rows, names, make).read(self.output).reshape(len(batch), k)
        sites = maps.sites().double()
        share = torch.empty(len(batch), len(maps), k, dtype=torch.float64, device=batch.device)
        for i in range(len(rows)):
            change = domain.reduce(noise(i), "sum").flatten() * free[i // k]
            share[i // k, :, i % k] = (sites[:, i // k] * change).sum(-1)
        return list(probe.clean(batch).read(self.output)[:, None] - after), list(share)

    def _cost(self, probe: Probe, batch: Batch, masks: Masks, counts: list[int]) -> list[Float[Tensor, " _"]]:
        """Per sample, the drop of the output when each window is deleted."""
        after = torch.split(probe.deletions(batch, self.fill, masks).read(self.output), counts)
        return [before - own for before, own in zip(probe.clean(batch).read(self.output), after, strict=True)]

    def _drawn(self, streams: Streams, row: int, n: int) -> Int[Tensor, " k"]:
        """Which of a sample's `n` windows are used: all, or a random choice."""
        if not 0 < self.samples < n:
            return torch.arange(n)
        return torch.randperm(n, generator=streams.generator(row, "infidelity-windows"))[: self.samples].sort().values

    def _weight(self, probe: Probe, batch: Batch) -> Float[Tensor, "b s"]:
        """The factor of the map at each site inside a window."""
        domain = probe.domain
        if self.perturbation == "binary":
            return torch.ones(domain.deletable(batch.x).shape, dtype=torch.float64, device=batch.device)
        filler: Fill = catalogue.build("fill", self.fill)
        if type(filler).erase is not Fill.erase:
            raise NotApplicable(
                f"infidelity(perturbation=difference) needs a fill that does not depend on the window, not {self.fill}"
            )
        change = domain.leaf(batch.x).detach().double() - domain.leaf(filler.full(domain, batch)).detach().double()
        return domain.reduce(change, "sum").flatten(1)

    def _mean_square(self, cost: Float[Tensor, " k"], share: Float[Tensor, " k"]) -> Float[Tensor, ""]:
        """The mean squared difference of drop and prediction, with the factor and normalisation asked for."""
        if self.centered:
            cost, share = cost - cost.mean(), share - share.mean()
        energy = share.square().mean()
        if self.scale == "optimal" and energy > 0:
            share = share * ((cost * share).mean() / energy)
        found = (cost - share).square().mean()
        return found / cost.square().mean() if self.normalised else found

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        if self.perturbation == "gaussian":
            return {CLEAN} | {("noise", self.sigma, i) for i in range(self.samples)}
        units = shape.domain.resolve_units(self.units)
        if self.sets == "random":
            every = self._random_asks(shape, units)
        else:
            every = self._window_asks(shape) if self.units == SITE else self._unit_window_asks(shape, units)
        if 0 < self.samples < len(every):
            every = {(self.sets, self.fill, units, "drawn", i) for i in range(self.samples)}
        return {CLEAN} | every

    def _random_asks(self, shape: Shape, units: str) -> set[Ask]:
        sizes = set_sizes(shape.units(units))
        return set().union(*(subset_asks(self.fill, units, shape, size, many) for size, many in sizes.items()))

    def _unit_window_asks(self, shape: Shape, units: str) -> set[Ask]:
        partition = shape.partition(units)
        asks: set[Ask] = set()
        for window in shape.domain.unit_windows(partition, shape.x)[0]:
            if len(window) == partition.counts[0]:
                asks.add(("full", self.fill))
            elif len(window) == 1:
                asks.add(("single", self.fill, units, *window))
            else:
                asks.add(("window", self.fill, units, *window))
        return asks

    def _window_asks(self, shape: Shape) -> set[Ask]:
        windows = shape.domain.windows(shape.x)
        sites = shape.partition(shape.domain.resolve_units(SITE))
        asks: set[Ask] = set()
        for top, bottom, left, right in windows.box[0, windows.valid[0]].tolist():
            size = (bottom - top) * (right - left)
            if size == int(sites.count[0]):
                asks.add(("full", self.fill))
            elif size == 1:
                asks.add(("single", self.fill, sites.name, int(sites.index[0, top * windows.shape[1] + left])))
            else:
                asks.add(("window", self.fill, top, bottom, left, right))
        return asks


def set_sizes(n: int) -> dict[int, int]:
    """How many random sets of each size; percentages that give the same number of sites are merged.

    >>> set_sizes(150)
    {1: 40, 3: 40, 4: 40, 6: 40, 7: 40}
    """
    return {size: EACH * times for size, times in Counter(max(1, n * p // 100) for p in PERCENTS).items()} if n else {}
