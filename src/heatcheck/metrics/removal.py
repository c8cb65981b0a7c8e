"""MoRF, LeRF and ABPC, and the removal curves that other metrics use too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import Batch, Scores
from heatcheck.domain.base import Units
from heatcheck.metrics.base import Maps, Metric, metric, no_units_reason, spread_rows, undefined
from heatcheck.metrics.curves import (
    AREAS,
    area,
    by_relevance,
    mirrored,
    percentile_counts,
    percentile_places,
    step_counts,
    tie_breakers,
)
from heatcheck.probe.asks import Ask, Shape, removal
from heatcheck.probe.deletions import Masks
from heatcheck.probe.probe import Probe

MOST, LEAST = "most", "least"
RANKED = ("random", "index", "reverse_index")
"""Ways to break ties that put all units into one order."""


def relevance_places(maps: Maps, units: Units, ties: str, reduce: str = "sum") -> Int[Tensor, "m b u"]:
    """`by_relevance` of all maps, summed or averaged over units; sorted once for all metrics."""

    def sort() -> Tensor:
        return by_relevance(maps.on(units, reduce), tie_breakers(maps.batch.streams, units, ties), units)

    return maps.cached(f"places {units.name} {reduce} {ties}", sort)


def removal_curves(
    probe: Probe,
    batch: Batch,
    fill: str,
    units: Units,
    place: Int[Tensor, "m b u"],
    gone: Int[Tensor, "b k"],
    output: str,
) -> Float[Tensor, "m b k"]:
    """The output with the first `gone[b, k]` units of each order deleted; masks are made batch by batch."""
    m, b, k = place.shape[0], place.shape[1], gone.shape[1]
    at = units.spread(place.to(torch.int32), outside=torch.iinfo(torch.int32).max)
    method, sample, step = spread_rows(m, b, k, probe.device)

    def keep(i: Int[Tensor, " n"]) -> Tensor:
        orders = at.flatten(0, 1).index_select(0, method[i] * b + sample[i])
        return orders >= gone[sample[i], step[i]][:, None]

    answers = probe.deletions(batch, fill, Masks(sample, keep))
    return answers.read(output).reshape(b, m, k).transpose(0, 1).contiguous()


def curve_scores(
    value: Float[Tensor, "m b"], curve: Float[Tensor, "m b k"], units: Units, share: tuple[float, ...]
) -> Scores:
    """Scores with their curves; undefined where there is nothing to delete."""
    there = (units.count > 0).expand(value.shape)
    return undefined(value, there, no_units_reason(units.name), curve=curve, share=share)


@dataclass(frozen=True, kw_only=True, repr=False)
class Removal(Metric):
    """Units deleted step by step in the order of the map: ⌊k·n/L⌋ of n at step k of L."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"area": AREAS, "end": ("deleted", "zero")}
    orders: ClassVar[tuple[str, ...]]

    steps: int = 20
    units: str = "site"
    fill: str = "auto"
    output: str = "prob"
    ties: str = "random"
    area: str = "mean"
    end: str = "deleted"

    def outputs(self, probe: Probe, batch: Batch, maps: Maps, order: str) -> Float[Tensor, "m b k"]:
        """The output at steps 0 … L when the most or the least relevant units are deleted first."""
        units = probe.units(self.units, batch)
        if self.ties == "percentile_compat":
            inclusive = probe.domain.inclusive_percentiles
            least_first = order == LEAST
            place = percentile_places(maps.on(units), units, self.steps, least_first=least_first, inclusive=inclusive)
            gone = torch.arange(1, self.steps + 2, device=batch.device).expand(len(batch), -1)
        else:
            place = relevance_places(maps, units, self.ties)
            place = mirrored(place, units) if order == LEAST else place
            gone = step_counts(units, self.steps)
        if self.end == "zero":
            asked = removal_curves(probe, batch, self.fill, units, place, gone[:, :-1], self.output)
            return F.pad(asked, (0, 1))
        return removal_curves(probe, batch, self.fill, units, place, gone, self.output)

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        curve = self.outputs(probe, batch, maps, self.orders[0])
        return self.scores(probe, batch, self.summarise(curve), curve)

    def summarise(self, curve: Float[Tensor, "m b k"]) -> Float[Tensor, "m b"]:
        """The score of a curve: by default how far the output falls below its start, averaged over the curve."""
        return area(curve[..., :1] - curve, self.area)

    def scores(self, probe: Probe, batch: Batch, value: Float[Tensor, "m b"], curve: Float[Tensor, "m b k"]) -> Scores:
        """Scores with their curves; undefined where there is nothing to delete."""
        share = tuple(k / self.steps for k in range(self.steps + 1))
        return curve_scores(value, curve, probe.units(self.units, batch), share)

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        n = shape.units(self.units)
        asks: set[Ask] = set()
        for order in self.orders:
            if self.ties == "percentile_compat":
                inclusive = shape.domain.inclusive_percentiles
                gone = percentile_counts(n, self.steps, least_first=order == LEAST, inclusive=inclusive)
            else:
                gone = [k * n // self.steps for k in range(self.steps + 1)]
            asked = gone[:-1] if self.end == "zero" else gone
            asks |= removal(method, self.fill, self.units, shape, f"{order} {self.ties}", asked)
        return asks


@metric("morf", family="curve", better="higher", within=(-1, 1), invariant=("monotone", "scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class MoRF(Removal):
    r"""How much does the output fall while the most relevant units are deleted first?

    $\frac1{L+1}\sum_{k=0}^{L} \big[f_t(x) - f_t(x^{(k)})\big]$

    The stored curve holds the raw outputs $f_t(x^{(k)})$.

    Args:
        steps: L, the number of deletions.
        units: what is deleted; pixels or tokens.
        fill: what replaces it.
        output: where the fall is read.
        ties: how equal units are ordered: `random` (per sample, the same for all methods), `index`, `reverse_index`;
            `percentile_compat` deletes M4's percentile sets instead, which never split ties (strict on pictures;
            on texts they contain the percentile itself).
        area: `mean` of all L + 1 points; the `trapezoid` rule; `left`, all points but the last; `quantus`, its
            trapezoid rule with steps of length 1 and without the clean point, which grows with L.
        end: the last point: the output when all is `deleted`, or `zero` without asking the model, as in Chefer et al.

    Paper: samek2017, li2023, duan2024.  Differs: exact counts and exactly reverse orders, not percentile sets.
    Cost per sample: `steps` forwards per method; the clean and the fully deleted input are shared.
    """

    orders: ClassVar[tuple[str, ...]] = (MOST,)


@metric("lerf", family="curve", better="lower", within=(-1, 1), invariant=("monotone", "scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class LeRF(Removal):
    r"""How much does the output fall while the least relevant units are deleted first?

    Like `morf`, in the reverse order. The stored curve holds the raw outputs.

    Args:
        steps: L, the number of deletions.
        units: what is deleted; pixels or tokens.
        fill: what replaces it.
        output: where the fall is read.
        ties: how equal units are ordered, as in `morf`.
        area: the rule, as in `morf`.
        end: the last point, as in `morf`.

    Paper: samek2017, li2023, duan2024.  Differs: exact counts; M4's LeRF deletes nothing in its first step, never all.
    Cost per sample: `steps` forwards per method; the clean and the fully deleted input are shared.
    """

    orders: ClassVar[tuple[str, ...]] = (LEAST,)


@metric("abpc", family="curve", better="higher", within=(-1, 1), invariant=("monotone", "scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class ABPC(Removal):
    r"""The area between the two perturbation curves: MoRF − LeRF.

    The stored curve is the LeRF curve minus the MoRF curve, whose area the score is.

    Args:
        steps: L, the number of deletions of each order.
        units: as in `morf`.
        fill: as in `morf`.
        output: as in `morf`.
        ties: as in `morf`.
        area: as in `morf`.
        end: as in `morf`.

    Paper: samek2017, li2023.  Differs: the two orders mirror each other, so that ABPC of a negated map is negated where
        no units are equal; equal ones keep their order when a map is negated, so that with ties `index` and
        `reverse_index` must be exchanged too.
    Cost per sample: 2 · `steps` forwards per method, all shared with `morf` and `lerf`.
    """

    orders: ClassVar[tuple[str, ...]] = (MOST, LEAST)

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        most, least = (self.outputs(probe, batch, maps, order) for order in self.orders)
        return self.scores(probe, batch, self.summarise(most) - self.summarise(least), least - most)
