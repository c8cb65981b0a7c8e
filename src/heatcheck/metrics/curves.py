"""Orders, nested deletions and areas: pure functions, shared by every curve metric and by the report."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import Batch, Scores, Streams
from heatcheck.domain.base import Units
from heatcheck.metrics.base import Maps, spread_rows, undefined
from heatcheck.probe.deletions import Masks
from heatcheck.probe.probe import Probe

RANKED = ("random", "index", "reverse_index")
"""Ways to break ties that put the units into one order."""
AREAS = ("mean", "trapezoid", "left", "quantus")
"""Rules for the area under a curve; see `area`."""


def tie_breakers(streams: Streams, units: Units, ties: str) -> Int[Tensor, "b u"]:
    """The order in which equal units go: random per sample (the same for every method), or by index."""
    if ties == "random":
        order = torch.arange(units.width).repeat(len(units.count), 1)
        for i, n in enumerate(units.count.tolist()):  # not of the width, which depends on the neighbours
            order[i, :n] = torch.randperm(n, generator=streams.generator(i, "ties"))
        return order
    index = torch.arange(units.width).expand(len(units.count), -1)
    return index if ties == "index" else index.flip(-1)


def by_relevance(values: Float[Tensor, "m b u"], first: Int[Tensor, "b u"], units: Units) -> Int[Tensor, "m b u"]:
    """The place of each unit when the most relevant go first; units that do not exist come last.

    `first` lists the units of a sample in the order in which equal ones are taken; values must be finite.
    """
    real = torch.where(units.valid, values, -torch.inf)
    first = first.expand(values.shape)
    order = first.gather(-1, real.gather(-1, first).argsort(dim=-1, descending=True, stable=True))
    place = torch.arange(values.shape[-1]).expand(values.shape)
    return torch.empty_like(order).scatter_(-1, order, place)


def relevance_places(maps: Maps, units: Units, ties: str, reduce: str = "sum") -> Int[Tensor, "m b u"]:
    """`by_relevance` of all maps, summed or averaged over units; sorted once however many metrics ask."""

    def sort() -> Tensor:
        return by_relevance(maps.on(units, reduce), tie_breakers(maps.batch.streams, units, ties), units)

    return maps.cached(f"places {units.name} {reduce} {ties}", sort)


def mirrored(place: Int[Tensor, "m b u"], units: Units) -> Int[Tensor, "m b u"]:
    """The same order backwards: the least relevant go first; units that do not exist still come last."""
    n = units.count[:, None]
    return torch.where(place < n, n - 1 - place, place)


def counts(units: Units, steps: int) -> Int[Tensor, "b k"]:
    """How many units are gone at step k = 0 … L: ⌊k·n/L⌋."""
    return torch.arange(steps + 1) * units.count[:, None] // steps


def percentile_places(
    values: Float[Tensor, "m b u"], units: Units, steps: int, *, least_first: bool, inclusive: bool = False
) -> Int[Tensor, "m b u"]:
    """M4's own deletion sets: the first step at which each unit is gone, `steps + 1` if never. Ties are never split.

    MoRF deletes values above the (100 - k·100/L)th percentile at step k; LeRF those below the ((k - 1)·100/L)th, both
    strictly: LeRF's first step deletes nothing, and MoRF's last one spares the minimum. `inclusive` sets, as M4 has
    them for texts, hold the percentile itself, and LeRF's is the (k·100/L)th: both end with everything gone.
    """
    never = steps + 1
    when = torch.full(values.shape, never)
    first = 1 if inclusive and least_first else 0
    percentiles = [min(100.0, 100.0 / steps * i) for i in range(first, first + steps)]
    for b, n in enumerate(units.count.tolist()):
        for own, out in zip(values[:, b, :n].double(), when[:, b, :n], strict=True):
            if n:
                bounds = torch.from_numpy(np.percentile(own.numpy(), percentiles))
                below = torch.searchsorted(bounds, own.contiguous(), right=least_first != inclusive)
                out.copy_(below + 1 if least_first else never - below)
    return when


def percentile_counts(n: int, steps: int, *, least_first: bool, inclusive: bool) -> list[int]:
    """How many of `n` different values are gone at step k = 0 … L of `percentile_places`."""
    gone = [0]
    for k in range(1, steps + 1):
        if least_first:
            gone.append((n - 1) * k // steps + 1 if inclusive else -((1 - n) * (k - 1) // steps))
        else:
            spared = (n - 1) * (steps - k)
            gone.append(n + -spared // steps if inclusive else n - 1 - spared // steps)
    return gone


def removal_curves(
    probe: Probe,
    batch: Batch,
    fill: str,
    units: Units,
    place: Int[Tensor, "m b u"],
    gone: Int[Tensor, "b k"],
    output: str,
) -> Float[Tensor, "m b k"]:
    """The output while the first `gone[b, k]` places of each order are deleted; masks are made as they are asked."""
    m, b, k = place.shape[0], place.shape[1], gone.shape[1]
    at = units.spread(place.to(torch.int32), outside=torch.iinfo(torch.int32).max)
    method, sample, step = spread_rows(m, b, k)

    def keep(i: Int[Tensor, " n"]) -> Tensor:
        orders, steps = torch.unique_consecutive(method[i] * b + sample[i], return_counts=True)
        limits = torch.split(gone[sample[i], step[i]], steps.tolist())
        return torch.cat([at[o // b, o % b] >= limit[:, None] for o, limit in zip(orders, limits, strict=True)])

    answers = probe.deletions(batch, fill, Masks(sample, keep))
    return answers.read(output).reshape(b, m, k).transpose(0, 1).contiguous()


def curve_scores(
    value: Float[Tensor, "m b"], curve: Float[Tensor, "m b k"], units: Units, share: tuple[float, ...]
) -> Scores:
    """Scores with their curves; undefined where there is nothing to delete."""
    there = (units.count > 0).expand(value.shape)
    return undefined(value, there, f"there is no {units.name} to delete", curve=curve, share=share)


def area(curve: Float[Tensor, "... k"], rule: str) -> Float[Tensor, "..."]:
    """Area under a curve over [0, 1].

    Args:
        curve: the points, evenly spaced.
        rule: the plain `mean` of all points; the `trapezoid` rule; `left`, the mean of all but the last; `quantus`,
            the trapezoid rule with steps of length one and without the first point, which grows with their number.
    """
    if rule == "trapezoid":
        return trapezoid(curve)
    if rule == "left":
        return curve[..., :-1].contiguous().mean(-1)
    if rule == "quantus":
        after = curve[..., 1:].contiguous()
        return after.sum(-1) - (after[..., 0] + after[..., -1]) / 2
    return curve.mean(-1)


def trapezoid(curve: Float[Tensor, "... k"]) -> Float[Tensor, "..."]:
    """Area under a curve over [0, 1] with evenly spaced points."""
    inner = curve.sum(-1) - (curve[..., 0] + curve[..., -1]) / 2
    return inner / (curve.shape[-1] - 1)


def average_ranks(values: Float[Tensor, "... u"]) -> Float[Tensor, "... u"]:
    """Ranks from one, equal values sharing their mean rank."""
    sorted_values, order = values.sort(dim=-1)
    n = values.shape[-1]
    new = torch.ones(values.shape, dtype=torch.bool)
    new[..., 1:] = sorted_values[..., 1:] != sorted_values[..., :-1]
    place = torch.arange(n).expand(values.shape)
    start = torch.where(new, place, 0).cummax(-1).values
    ends = torch.ones(values.shape, dtype=torch.bool)
    ends[..., :-1] = new[..., 1:]
    stop = torch.where(ends, place, n).flip(-1).cummin(-1).values.flip(-1)
    rank = (start + stop).double() / 2 + 1
    return torch.empty_like(rank).scatter_(-1, order, rank)


def pearson(a: Float[Tensor, "... u"], b: Float[Tensor, "... u"]) -> Float[Tensor, "..."]:
    """Correlation along the last axis in double precision; NaN where one side is constant."""
    a, b = a.double(), b.double()
    flat = (a == a[..., :1]).all(-1) | (b == b[..., :1]).all(-1)
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    scale = a.square().sum(-1).sqrt() * b.square().sum(-1).sqrt()
    return torch.where(flat, torch.nan, ((a * b).sum(-1) / scale).clamp(-1, 1))


def spearman(a: Float[Tensor, "... u"], b: Float[Tensor, "... u"]) -> Float[Tensor, "..."]:
    """Rank correlation with average ranks for ties; NaN where one side is constant."""
    return pearson(average_ranks(a), average_ranks(b))
