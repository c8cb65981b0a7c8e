"""Orders, nested deletions and areas: pure functions, shared by every curve metric and by the report."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.domain.base import Units
from heatcheck.engine.probe import Masks, Probe
from heatcheck.metrics.base import spread_rows
from heatcheck.types import Batch, Streams


def tie_breakers(streams: Streams, units: Units, ties: str) -> Int[Tensor, "b u"]:
    """The order in which equal units go: random per sample (the same for every method), or by index."""
    if ties == "random":
        width = units.width
        return streams.draw("ties", lambda g: torch.randperm(width, generator=g))
    index = torch.arange(units.width).expand(len(units.count), -1)
    return index if ties == "index" else index.flip(-1)


def by_relevance(
    values: Float[Tensor, "m b u"], first: Int[Tensor, "b u"], units: Units
) -> Int[Tensor, "m b u"]:
    """The place of each unit when the most relevant go first; units that do not exist come last.

    `first` lists the units of a sample in the order in which equal ones are taken.
    """
    first = first.expand(values.shape)
    ghost = (~units.valid).expand(values.shape)
    shuffled = values.gather(-1, first)
    order = shuffled.argsort(dim=-1, descending=True, stable=True)
    order = first.gather(-1, order)
    last = ghost.gather(-1, order).long().argsort(dim=-1, stable=True)
    order = order.gather(-1, last)
    place = torch.arange(values.shape[-1]).expand(values.shape)
    return torch.empty_like(order).scatter_(-1, order, place)


def counts(units: Units, steps: int) -> Int[Tensor, "b k"]:
    """How many units are gone at step k = 0 … L: ⌊k·n/L⌋."""
    return torch.arange(steps + 1) * units.count[:, None] // steps


def percentile_places(
    values: Float[Tensor, "m b u"], units: Units, steps: int, *, least_first: bool
) -> Int[Tensor, "m b u"]:
    """M4's own deletion sets: the first step at which each unit is gone, `steps + 1` if never.

    MoRF deletes values strictly above the (100 - k·100/L)th percentile at step k; LeRF those strictly below the
    ((k - 1)·100/L)th. Ties are never split, and LeRF's first step deletes nothing.
    """
    k = torch.arange(1, steps + 1, dtype=torch.float64)
    q = (k - 1) / steps if least_first else 1 - k / steps
    when = torch.empty(values.shape, dtype=torch.long)
    for m in range(values.shape[0]):
        for b in range(values.shape[1]):
            own = values[m, b, : int(units.count[b])].double()
            bounds = torch.from_numpy(_percentiles(own, q))
            gone = own[:, None] < bounds if least_first else own[:, None] > bounds
            when[m, b] = steps + 1
            when[m, b, : len(own)] = torch.where(gone.any(1), gone.long().argmax(1) + 1, steps + 1)
    return when


def _percentiles(values: Tensor, q: Tensor) -> "object":
    import numpy as np

    return np.quantile(values.numpy(), q.numpy())


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
        return at[method[i], sample[i]] >= gone[sample[i], step[i]][:, None]

    answers = probe.deletions(batch, fill, Masks(sample, keep))
    return answers.read(output).reshape(b, m, k).transpose(0, 1)


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
    a, b = a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)
    scale = (a.square().sum(-1) * b.square().sum(-1)).sqrt()
    flat = (a == 0).all(-1) | (b == 0).all(-1) | (scale == 0)
    return torch.where(flat, torch.nan, ((a * b).sum(-1) / scale).clamp(-1, 1))


def spearman(a: Float[Tensor, "... u"], b: Float[Tensor, "... u"]) -> Float[Tensor, "..."]:
    """Rank correlation with average ranks for ties; NaN where one side is constant."""
    return pearson(average_ranks(a), average_ranks(b))
