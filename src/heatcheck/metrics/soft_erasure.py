"""Soft comprehensiveness and sufficiency."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.devices import CPU, moved
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs, Scores, Streams
from heatcheck.domain.base import Units
from heatcheck.fills.base import Fill
from heatcheck.metrics.base import Maps, Metric, metric, no_units_reason, spread_rows, undefined
from heatcheck.probe.asks import CLEAN, Ask, Shape
from heatcheck.probe.probe import Probe


@dataclass(frozen=True, kw_only=True, repr=False)
class SoftErasure(Metric):
    """The fall of the output when units are deleted at random, with probabilities by the map."""

    keep: float = 0.5
    samples: int = 16
    units: str = "site"
    fill: str = "auto"
    output: str = "prob"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.keep < 1:
            raise SpecError(f"metric {self.id}: keep={self.keep!r} is a share of the units and must be between 0 and 1")
        if self.samples < 1:
            raise SpecError(f"metric {self.id}: samples={self.samples} must be at least 1")

    @abstractmethod
    def kept(self, values: Float[Tensor, "m n"], uniform: Float[Tensor, "k n"]) -> Bool[Tensor, "m k n"]:
        """Which units of a sample stay in each draw, given its maps and random numbers between 0 and 1."""

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        stays = self._draws(batch.streams, maps, units).to(probe.device)
        m, b, k = stays.shape[:3]
        method, sample, draw = spread_rows(m, b, k, probe.device)
        filler: Fill = catalogue.build("fill", self.fill)
        full, fixed = probe.full(batch, filler), ~probe.domain.deletable(batch.x)

        def make(i: Int[Tensor, " n"]) -> Inputs:
            rows = sample[i]
            keep = units.take(rows).spread(stays[method[i], rows, draw[i]]) | fixed[rows]
            return filler.erase(probe.domain, batch.x.take(rows), keep, full.take(rows))

        after = torch.empty(m, b, k, dtype=torch.float64, device=batch.device)
        for index, answers in probe.answers(batch, sample, make):
            after[method[index], sample[index], draw[index]] = answers.read(self.output).double()
        fall = probe.clean(batch).read(self.output)[:, None] - after
        return undefined(fall.mean(-1), (units.count > 0).expand(m, b), no_units_reason(units.name))

    def _draws(self, streams: Streams, maps: Maps, units: Units) -> Bool[Tensor, "m b k u"]:
        """What stays in each draw; the random numbers belong to the sample, so that equal maps keep equal units."""
        (values,) = moved(CPU, maps.on(units))
        stays = torch.zeros(len(maps), len(units.counts), self.samples, units.width, dtype=torch.bool)
        for i, n in enumerate(units.counts):
            rng = streams.generator(i, "soft-erasure")
            uniform = torch.rand(n, self.samples, generator=rng, dtype=torch.float64).T
            if n:
                stays[:, i, :, :n] = self.kept(values[:, i, :n].double(), uniform)
        return stays

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        return {CLEAN}

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.samples, 0


def chances(values: Float[Tensor, "m n"], share: float) -> Float[Tensor, "m n"]:
    r"""Probabilities in proportion to maps scaled to [0, 1], whose mean is `share` whatever the map.

    $q_i = \min(1, c\,\bar a_i)$, with the one $c$ for which $\sum_i q_i = \text{share} \cdot n$. Where all units above the
    smallest value are certain and still do not suffice, the others share the rest equally; so do all units of a constant
    map.

    >>> chances(torch.tensor([[4.0, 2.0, 1.0, 0.0], [9.0, 0.0, 0.0, 0.0], [5.0, 5.0, 5.0, 5.0]]).double(), 0.5).tolist()
    [[1.0, 0.6666666666666666, 0.3333333333333333, 0.0], [1.0, 0.3333333333333333, 0.3333333333333333, 0.3333333333333333], [0.5, 0.5, 0.5, 0.5]]
    """
    n = values.shape[-1]
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    scaled = torch.where(high > low, (values - low) / (high - low), 1.0)
    ordered, order = scaled.sort(dim=-1, descending=True)
    place = torch.arange(n, dtype=scaled.dtype)
    left = share * n - place  # what the units from each place on share, if those before it are certain
    rest = ordered.flip(-1).cumsum(-1).flip(-1)
    certain = (left * ordered <= rest).long().argmax(-1, keepdim=True)
    mine, others = left[certain], rest.gather(-1, certain)
    shared = torch.where(others > 0, mine * ordered / others, mine / (n - certain))
    return torch.empty_like(scaled).scatter_(-1, order, torch.where(place < certain, 1.0, shared.clamp(0, 1)))


@metric("soft_comprehensiveness", family="curve", better="higher", within=(-1, 1), invariant=("scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class SoftComprehensiveness(SoftErasure):
    r"""How much does the output fall when units are deleted with a probability that grows with their relevance?

    $\mathbb E\big[p_t(x) - p_t(x \odot e)\big]$, $e_i = 0$ with probability $q_i$: the map scaled to [0, 1] times the
    factor that makes the mean of $q$ one minus `keep`, cut at 1

    Every map deletes as many units on average, so that none gains by large values; a constant map deletes at random.
    Maps are compared on the same random numbers. Scaling moves the zero of a map with both signs: units that speak
    against the class are the last to be deleted.

    Args:
        keep: the share of units that stay, on average.
        samples: draws that the fall is averaged over.
        units: what is deleted; pixels or tokens.
        fill: what replaces it.
        output: where the fall is read.

    Paper: zhao2023.  Differs: whole tokens are deleted, not single elements of their embeddings; all maps delete equally
        many; several draws; falls below zero count, and are not divided by that of the empty text.
    Cost per sample: `samples` forwards per method; the clean input is shared.
    """

    def kept(self, values: Float[Tensor, "m n"], uniform: Float[Tensor, "k n"]) -> Bool[Tensor, "m k n"]:
        return uniform >= chances(values, 1 - self.keep)[:, None]


@metric("soft_sufficiency", family="curve", better="lower", within=(-1, 1), invariant=("scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class SoftSufficiency(SoftErasure):
    r"""How much does the output fall when units are kept with a probability that grows with their relevance?

    $\mathbb E\big[p_t(x) - p_t(x \odot e)\big]$, $e_i = 1$ with probability $q_i$: the map scaled to [0, 1] times the
    factor that makes the mean of $q$ equal to `keep`, cut at 1

    Every map keeps as many units on average; a constant map keeps them at random. Maps are compared on the same random
    numbers.

    Args:
        keep: as in `soft_comprehensiveness`.
        samples: as in `soft_comprehensiveness`.
        units: as in `soft_comprehensiveness`.
        fill: as in `soft_comprehensiveness`.
        output: as in `soft_comprehensiveness`.

    Paper: zhao2023.  Differs: whole tokens are kept, not single elements of their embeddings; all maps keep equally many;
        several draws; falls below zero count, and are not divided by that of the empty text; lower is better.
    Cost per sample: `samples` forwards per method; the clean input is shared.
    """

    def kept(self, values: Float[Tensor, "m n"], uniform: Float[Tensor, "k n"]) -> Bool[Tensor, "m k n"]:
        return uniform < chances(values, self.keep)[:, None]
