"""Correlation between the map's sum over random sets of units and the drop when a set is deleted."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.devices import CPU, moved
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Scores
from heatcheck.metrics.base import Maps, Metric, metric, undefined
from heatcheck.metrics.curves import pearson, spearman
from heatcheck.metrics.subsets import deletion_masks, subset_asks, subset_sums, subsets
from heatcheck.probe.asks import CLEAN, Ask, Shape
from heatcheck.probe.probe import Probe

LARGEST = 0.8
"""The share of units in the largest sets of `sensitivity_n`."""
SAME = "all sets have the same attribution, or deleting them changes the output equally"


@dataclass(frozen=True, kw_only=True, repr=False)
class SubsetCorrelation(Metric):
    """Random sets of units per sample, the same for every method, each deleted once."""

    samples: int = 100
    units: str = "site"
    fill: str = "auto"
    output: str = "logit"

    @abstractmethod
    def set_sizes(self, n: int) -> list[int]:
        """The sizes of sets drawn from `n` units."""

    def pairs(
        self, probe: Probe, batch: Batch, maps: Maps
    ) -> Iterator[list[tuple[Float[Tensor, "m _"], Float[Tensor, "m _"]]]]:
        """Per sample and size of sets: the map's sum over each set, and the drop when it is deleted; both on the CPU."""
        units = probe.units(self.units, batch)
        count = units.counts
        drawn = [
            [subsets(batch.streams, i, n, size, self.samples) for size in self.set_sizes(n)]
            for i, n in enumerate(count)
        ]
        masks = deletion_masks(units, [[s for sets in own for s in sets] for own in drawn])
        answers = probe.deletions(batch, self.fill, masks).read(self.output)
        before, answers, share = moved(CPU, probe.clean(batch).read(self.output), answers, maps.on(units))
        after = iter(torch.split(answers, [len(sets) for own in drawn for sets in own]))
        for i, (n, own) in enumerate(zip(count, drawn, strict=True)):
            heat = share[:, i, :n].double()
            yield [(subset_sums(heat, sets), (before[i] - next(after)).expand(len(maps), -1)) for sets in own]

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        sizes = self.set_sizes(shape.units(self.units))
        return {CLEAN}.union(*(subset_asks(self.fill, self.units, shape, size, self.samples) for size in sizes))


@metric("faithfulness_correlation", family="deletion", better="higher", within=(-1, 1), invariant=("scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class FaithfulnessCorrelation(SubsetCorrelation):
    r"""Does deleting a random set of units lower the output more, the higher the map's sum over the set?

    $\mathrm{corr}_{S}\big(\sum_{i \in S} A_i,\; f_t(x) - f_t(x \setminus S)\big)$ over random sets $S$ of one size

    The score is undefined where all sets have the same sum, or the same drop. MuFidelity is
    `faithfulness_correlation(rank=true, units=grid(9), share=0.2, samples=200)`: the defaults of its authors' library,
    which counts an undefined correlation as zero.

    Args:
        samples: how many sets are drawn.
        units: what the sets are made of; pixels or tokens.
        fill: what replaces them.
        output: where the drop is read.
        share: the share of units in a set; at least one unit.
        rank: correlate ranks (Spearman) instead of values (Pearson).

    Paper: bhatt2020, fel2021.  Differs: no set is drawn twice; where there are fewer sets than `samples`, all are used.
    Cost per sample: 1 + `samples` forwards, shared by all methods.
    """

    share: float = 0.1
    rank: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise SpecError(f"metric {self.id}: share={self.share!r} must be above 0 and at most 1")

    def set_sizes(self, n: int) -> list[int]:
        return [max(1, round(self.share * n))] if n else []

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        correlate = spearman if self.rank else pearson
        value = torch.full((len(maps), len(batch)), torch.nan, dtype=torch.float64)
        for i, own in enumerate(self.pairs(probe, batch, maps)):
            for total, drop in own:
                value[:, i] = correlate(total, drop)
        return undefined(value, ~value.isnan(), SAME)


@metric("sensitivity_n", family="deletion", better="higher", within=(-1, 1), invariant=("scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class SensitivityN(SubsetCorrelation):
    r"""Does the map's sum over a set of units predict the drop when the set is deleted, for sets of any size?

    $\frac1{|N|}\sum_{n \in N} \mathrm{Pearson}_{|S| = n}\big(\sum_{i \in S} A_i,\; f_t(x) - f_t(x \setminus S)\big)$,
    with sizes $N$ spaced evenly on a logarithmic scale from one unit to 80 % of them

    Sizes at which all sets have the same drop are left out, for all maps alike. Where drops differ and only the map's
    sums are all equal, the correlation at that size counts as zero; a map whose sums are equal at every size has no
    score.

    Args:
        samples: how many sets are drawn of each size.
        units: what the sets are made of; pixels or tokens.
        fill: what replaces them.
        output: where the drop is read.
        sizes: how many sizes; fewer where there are too few units.

    Paper: ancona2018.  Differs: the correlations of all sizes are averaged; no set is drawn twice.
    Cost per sample: 1 + `sizes` · `samples` forwards, shared by all methods.
    """

    sizes: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sizes < 1:
            raise SpecError(f"metric {self.id}: sizes={self.sizes!r} must be at least 1")

    def set_sizes(self, n: int) -> list[int]:
        last = max(1.0, LARGEST * n)
        steps = max(1, self.sizes - 1)
        return sorted({min(n, round(last ** (k / steps))) for k in range(self.sizes)}) if n else []

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        value = torch.full((len(maps), len(batch)), torch.nan, dtype=torch.float64)
        for i, own in enumerate(self.pairs(probe, batch, maps)):
            differ = [(total, drop) for total, drop in own if bool((drop != drop[:, :1]).any())]
            if differ:
                each = torch.stack([pearson(total, drop) for total, drop in differ], -1)
                value[:, i] = torch.where(each.isnan().all(-1), torch.nan, each.nan_to_num(0.0).mean(-1))
        return undefined(value, ~value.isnan(), SAME)
