"""Random sets of units, all different, and their deletions."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, count, islice

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core.types import Streams
from heatcheck.domain.base import Units
from heatcheck.probe.asks import Ask, Shape, single
from heatcheck.probe.deletions import Masks

Subset = Callable[[], Bool[Tensor, " n"]]
"""A function that makes the mask of a set over a sample's units, so that masks need not be kept in memory."""
LISTED = 8
"""With fewer than this many times the wanted sets, all are listed and some chosen; else they are drawn one by one."""


def subsets(streams: Streams, row: int, n: int, size: int, wanted: int) -> list[Subset]:
    """`wanted` different random sets of `size` of a sample's `n` units, or all where there are fewer.

    They depend on the sample and the seed only, so they are the same for every map.
    """
    total = subset_count(n, size, LISTED * wanted)
    if total < LISTED * wanted:
        listed = torch.tensor(list(combinations(range(n), size)), dtype=torch.long)
        order = torch.randperm(total, generator=streams.generator(row, f"metric-subsets {size} of {n}"))
        which = order[:wanted].sort().values if wanted < total else torch.arange(total)
        return [partial(members, n, listed[j]) for j in which]
    return list(islice(_different(streams, row, n, size), wanted))


def subset_count(n: int, size: int, limit: int) -> int:
    """How many sets of `size` of `n` units there are, or `limit` if that is less.

    >>> subset_count(5, 2, 100), subset_count(50, 20, 100)
    (10, 100)
    """
    found = 1
    for j in range(min(size, n - size)):
        found = found * (n - j) // (j + 1)
        if found >= limit:
            return limit
    return min(found, limit) if 0 < size <= n else 0


def _different(streams: Streams, row: int, n: int, size: int) -> Iterator[Subset]:
    def drawn(draw: int) -> Int[Tensor, " k"]:
        rng = streams.generator(row, f"metric-subset {size} {draw}")
        return torch.randperm(n, generator=rng)[:size]

    if size * math.log(n / size) > math.log(1e18):  # more than 1e18 sets: no two draws are equal
        yield from (lambda draw=draw: members(n, drawn(draw)) for draw in count())
    seen: set[bytes] = set()
    for draw in count():
        chosen = drawn(draw).sort().values
        if chosen.numpy().tobytes() not in seen:
            seen.add(chosen.numpy().tobytes())
            yield partial(members, n, chosen)


def members(n: int, chosen: Int[Tensor, " k"]) -> Bool[Tensor, " n"]:
    """The mask of a set over `n` units, given their numbers."""
    inside = torch.zeros(n, dtype=torch.bool)
    inside[chosen] = True
    return inside


def deletion_masks(units: Units, sets: Sequence[Sequence[Subset]]) -> Masks:
    """Masks that delete each set of each sample."""
    each = [(row, subset) for row, own in enumerate(sets) for subset in own]
    rows = torch.tensor([row for row, _ in each], dtype=torch.long, device=units.index.device)

    def keep(i: Int[Tensor, " k"]) -> Bool[Tensor, "k s"]:
        gone = torch.zeros(len(i), units.width, dtype=torch.bool)
        for out, j in zip(gone, i.tolist(), strict=True):
            inside = each[j][1]()
            out[: len(inside)] = inside
        return ~units.take(rows[i]).spread(gone.to(rows.device))

    return Masks(rows, keep)


def subset_sums(values: Float[Tensor, "m n"], sets: Sequence[Subset]) -> Float[Tensor, "m k"]:
    """The sum of the values in each set, on the CPU, in double precision and in the order of units.

    >>> subset_sums(torch.tensor([[1.0, 2.0, 4.0]]), [lambda: torch.tensor([True, False, True])]).tolist()
    [[5.0]]
    """
    wide = values.double()
    found = [wide.index_select(1, subset().nonzero().flatten()).sum(-1) for subset in sets]
    return torch.stack(found, -1) if found else wide.new_empty(len(wide), 0)


def subset_asks(fill: str, units: str, shape: Shape, size: int, wanted: int) -> set[Ask]:
    """The deletions of `subsets`, for planning; sets of one unit or of all units are shared with other metrics."""
    n = shape.units(units)
    number = subset_count(n, size, wanted)
    if size == n and number:
        return {("full", fill)}
    if size == 1 and number == n:
        return single(fill, units, shape)
    return {("subset", fill, units, size, wanted, j) for j in range(number)}
