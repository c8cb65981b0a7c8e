"""Orders of units, areas under curves and correlations: pure functions that ask no model."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import Streams
from heatcheck.domain.base import Units

AREAS = ("mean", "trapezoid", "left", "quantus")
"""Rules for the area under a curve; see `area`."""


def tie_breakers(streams: Streams, units: Units, ties: str) -> Int[Tensor, "b u"]:
    """The order in which units of equal relevance are deleted: random per sample, or by index.

    >>> units = Units("token", torch.tensor([[0, 1, 2]]), torch.tensor([3]), 3)
    >>> tie_breakers(Streams(0, ("sample",)), units, "reverse_index")
    tensor([[2, 1, 0]])
    """
    if ties == "random":
        order = torch.arange(units.width).repeat(len(units.count), 1)
        for i, n in enumerate(units.counts):  # the width depends on the other samples
            order[i, :n] = torch.randperm(n, generator=streams.generator(i, "ties"))
        return order.to(units.index.device)
    index = torch.arange(units.width, device=units.index.device).expand(len(units.count), -1)
    return index if ties == "index" else index.flip(-1)


def by_relevance(values: Float[Tensor, "m b u"], first: Int[Tensor, "b u"], units: Units) -> Int[Tensor, "m b u"]:
    """The place of each unit when the most relevant are deleted first; places beyond a sample's units come last.

    >>> units = Units("token", torch.tensor([[0, 1, 2]]), torch.tensor([3]), 3)
    >>> by_relevance(torch.tensor([[[0.2, 0.9, 0.2]]]), torch.tensor([[2, 1, 0]]), units)
    tensor([[[2, 0, 1]]])

    Args:
        values: the relevance of each unit; must be finite.
        first: the units of each sample in the order in which equal ones are deleted (`tie_breakers`).
        units: the units.
    """
    real = torch.where(units.valid, values, -torch.inf)
    first = first.expand(values.shape)
    order = first.gather(-1, real.gather(-1, first).argsort(dim=-1, descending=True, stable=True))
    place = torch.arange(values.shape[-1], device=units.index.device).expand(values.shape)
    return torch.empty_like(order).scatter_(-1, order, place)


def mirrored(place: Int[Tensor, "m b u"], units: Units) -> Int[Tensor, "m b u"]:
    """The reverse order, least relevant first; places beyond a sample's units still come last.

    >>> units = Units("token", torch.tensor([[0, 1, 2, -1]]), torch.tensor([3]), 4)
    >>> mirrored(torch.tensor([[[2, 0, 1, 3]]]), units)
    tensor([[[0, 2, 1, 3]]])
    """
    n = units.count[:, None]
    return torch.where(place < n, n - 1 - place, place)


def step_counts(units: Units, steps: int) -> Int[Tensor, "b k"]:
    """How many units are deleted at step k = 0 … L: ⌊k·n/L⌋.

    >>> step_counts(Units("token", torch.tensor([[0, 1, 2]]), torch.tensor([3]), 3), 4)
    tensor([[0, 0, 1, 2, 3]])
    """
    return torch.arange(steps + 1, device=units.index.device) * units.count[:, None] // steps


def percentile_places(
    values: Float[Tensor, "m b u"], units: Units, steps: int, *, least_first: bool, inclusive: bool = False
) -> Int[Tensor, "m b u"]:
    """M4's own deletion sets: the first step at which each unit is deleted, `steps + 1` if never. Ties are never split.

    MoRF deletes values above the (100 - k·100/L)th percentile at step k; LeRF those below the ((k - 1)·100/L)th, both
    strictly: LeRF's first step deletes nothing, and MoRF's last step keeps the minimum. M4's sets for texts are
    `inclusive`: they contain the percentile itself, and LeRF's is the (k·100/L)th, so both end with everything deleted.

    >>> units = Units("token", torch.tensor([[0, 1, 2]]), torch.tensor([3]), 3)
    >>> percentile_places(torch.tensor([[[0.0, 1.0, 2.0]]]), units, 2, least_first=False)
    tensor([[[3, 2, 1]]])
    """
    never = steps + 1
    when = torch.full(values.shape, never)
    here = values.double().cpu()  # numpy's percentiles
    first = 1 if inclusive and least_first else 0
    percentiles = [min(100.0, 100.0 / steps * i) for i in range(first, first + steps)]
    for b, n in enumerate(units.counts):
        for own, out in zip(here[:, b, :n], when[:, b, :n], strict=True):
            if n:
                bounds = torch.from_numpy(np.percentile(own.numpy(), percentiles))
                below = torch.searchsorted(bounds, own.contiguous(), right=least_first != inclusive)
                out.copy_(below + 1 if least_first else never - below)
    return when.to(values.device)


def percentile_counts(n: int, steps: int, *, least_first: bool, inclusive: bool) -> list[int]:
    """How many of `n` different values are deleted at step k = 0 … L of `percentile_places`.

    >>> percentile_counts(3, 2, least_first=False, inclusive=False)
    [0, 1, 2]
    >>> percentile_counts(3, 2, least_first=True, inclusive=True)
    [0, 2, 3]
    """
    gone = [0]
    for k in range(1, steps + 1):
        if least_first:
            gone.append((n - 1) * k // steps + 1 if inclusive else -((1 - n) * (k - 1) // steps))
        else:
            spared = (n - 1) * (steps - k)
            gone.append(n + -spared // steps if inclusive else n - 1 - spared // steps)
    return gone


def area(curve: Float[Tensor, "... k"], rule: str) -> Float[Tensor, "..."]:
    """Area under a curve over [0, 1].

    >>> points = torch.tensor([1.0, 0.5, 0.0, 0.0])
    >>> [round(float(area(points, rule)), 3) for rule in AREAS]
    [0.375, 0.333, 0.5, 0.25]

    Args:
        curve: the points, evenly spaced.
        rule: the plain `mean` of all points; the `trapezoid` rule; `left`, the mean of all but the last; `quantus`,
            the trapezoid rule with steps of length one and without the first point, which grows with the number of
            points.
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
    """Area under evenly spaced points over [0, 1], by the trapezoid rule.

    >>> float(trapezoid(torch.tensor([1.0, 0.5, 0.5])))
    0.625
    """
    inner = curve.sum(-1) - (curve[..., 0] + curve[..., -1]) / 2
    return inner / (curve.shape[-1] - 1)


def average_ranks(values: Float[Tensor, "... u"]) -> Float[Tensor, "... u"]:
    """Ranks from one; equal values share their mean rank.

    >>> average_ranks(torch.tensor([3.0, 1.0, 3.0, 7.0])).tolist()
    [2.5, 1.0, 2.5, 4.0]
    """
    sorted_values, order = values.sort(dim=-1)
    n = values.shape[-1]
    new = torch.ones(values.shape, dtype=torch.bool, device=values.device)
    new[..., 1:] = sorted_values[..., 1:] != sorted_values[..., :-1]
    place = torch.arange(n, device=values.device).expand(values.shape)
    start = torch.where(new, place, 0).cummax(-1).values
    ends = torch.ones(values.shape, dtype=torch.bool, device=values.device)
    ends[..., :-1] = new[..., 1:]
    stop = torch.where(ends, place, n).flip(-1).cummin(-1).values.flip(-1)
    rank = (start + stop).double() / 2 + 1
    return torch.empty_like(rank).scatter_(-1, order, rank)


def pearson(a: Float[Tensor, "... u"], b: Float[Tensor, "... u"]) -> Float[Tensor, "..."]:
    """Pearson correlation along the last axis in double precision; NaN where one side is constant.

    >>> round(float(pearson(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0]))), 6)
    0.5
    """
    a, b = a.double(), b.double()
    flat = (a == a[..., :1]).all(-1) | (b == b[..., :1]).all(-1)
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    scale = a.square().sum(-1).sqrt() * b.square().sum(-1).sqrt()
    return torch.where(flat, torch.nan, ((a * b).sum(-1) / scale).clamp(-1, 1))


def spearman(a: Float[Tensor, "... u"], b: Float[Tensor, "... u"]) -> Float[Tensor, "..."]:
    """Spearman rank correlation, ties at their mean rank; NaN where one side is constant.

    >>> round(float(spearman(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([1.0, 8.0, 4.0]))), 6)
    0.5
    """
    return pearson(average_ranks(a), average_ranks(b))
