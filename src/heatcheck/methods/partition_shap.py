"""Partition SHAP: Owen values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core.devices import CPU, moved
from heatcheck.domain.base import Units
from heatcheck.methods.base import method, stacked
from heatcheck.methods.coalitions import CoalitionMethod, Game
from heatcheck.probe.asks import Shape


@method(
    "partition_shap",
    family="perturbation",
    uses=(),
    properties=("complete", "dummy", "implementation_invariant", "linear"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class PartitionShap(CoalitionMethod):
    r"""Owen values: what each unit adds, averaged over the orders that keep the groups of a tree together.

    $\phi_m = \operatorname{mean}_{\pi \in \Pi(T)} \big(f_t(x^{P \cup m}) - f_t(x^P)\big), \quad
    P = \{ m' : \pi(m') < \pi(m) \}$

    The tree $T$ splits the units in two, then each half, down to single units: the cells of a picture across their
    longer side; a text between two sentences, a sentence between two words, a word between two tokens, so that every
    sentence and every word is a group, and is worth the same whatever of it the units are. $\Pi(T)$ are the orders that
    finish one half of every group before they begin the other. Level by level, every group is split in all its
    contexts; a context says which other groups are present. If `samples` is too small for all contexts, each group gets
    a random selection, with its first half leading in half of them. If it is too small for even one per group, the tree
    is cut and a group's value is divided evenly among its units. The values always sum to
    $f_t(x) - f_t(x^{\text{all}})$.

    Args:
        samples: the largest number of forwards, besides two that are shared.
        units: the players; a grid of 4 × 4 cells on pictures, tokens on texts.
        fill: what replaces absent units.

    Paper: owen1977.  Differs: SHAP's explainer splits the groups that change most and cuts the rest; here all groups
    are split equally deep, so that the values are linear in the model; each site gets its unit's value divided by the
    unit's area.
    Cost per sample: 2/3 (units² - 1) forwards where all halves are equal, but at most `samples`, and 2 that are shared.
    """

    samples: int = 1000

    revised: ClassVar[Mapping[str, int]] = {"text": 2}

    def shares(self, game: Game, whole: Float[Tensor, " b"], nothing: Float[Tensor, " b"]) -> Float[Tensor, "b u"]:
        domain, x, counts = game.probe.domain, game.batch.x, game.units.counts
        shape, groups = domain.shape(x), moved(CPU, *domain.groups(game.units, x))
        here = game.units.to(CPU)
        trees = [
            tree(here.take(torch.tensor([i])), shape, self.samples, [own[i, :n] for own in groups])
            for i, n in enumerate(counts)
        ]
        most = [contexts(levels, self.samples) for levels in trees]
        streams = [game.batch.streams.generator(i, "partition-orders") for i in range(len(counts))]
        paths = [Paths.start(whole[i], nothing[i]) for i in range(len(counts))]
        for depth in range(max(map(len, trees))):
            going = [i for i, levels in enumerate(trees) if depth < len(levels)]
            asked: dict[int, Bool[Tensor, "n g"]] = {}
            for i in going:
                paths[i] = paths[i].fork(trees[i][depth], most[i], streams[i])
                asked[i] = paths[i].joined(trees[i][depth]).flatten(0, 1)

            none = torch.zeros(0, 0, dtype=torch.bool)
            sets = [asked[i][:, trees[i][depth].group] if i in asked else none for i in range(len(counts))]
            there = stacked(sets, game.units.width, game.probe.device)

            def kept(rows: Int[Tensor, " k"], which: Int[Tensor, " k"]) -> Bool[Tensor, "k u"]:
                return there[rows, which]  # noqa: B023

            outputs = game.play([len(own) for own in sets], kept)
            for i in going:
                paths[i] = paths[i].update(trees[i][depth], outputs[i])
        values = torch.zeros(len(counts), game.units.width, dtype=torch.float64)
        for i, n in enumerate(counts):
            group = trees[i][-1].group if trees[i] else torch.zeros(n, dtype=torch.long)
            gain = (paths[i].high - paths[i].low).mean(1)
            values[i, :n] = (gain / group.bincount(minlength=len(gain)))[group]
        return values

    def questions(self, shape: Shape) -> int:
        units, domain = shape.partition(self.units), shape.domain
        groups = [own[0, : units.counts[0]] for own in domain.groups(units, shape.x)]
        levels = tree(units, domain.shape(shape.x), self.samples, groups)
        return price(levels, contexts(levels, self.samples))


@dataclass(frozen=True)
class Level:
    """One level of the tree: groups of units, from splitting the groups of the level above.

    Args:
        group: the group of each unit.
        parent: the group of the level above that each group is part of.
        split: the two halves of each group that was split.
    """

    group: Int[Tensor, " u"]
    parent: Int[Tensor, " g"]
    split: Int[Tensor, "k 2"]


def tree(units: Units, shape: tuple[int, int], most: int, nature: Sequence[Int[Tensor, " u"]] = ()) -> list[Level]:
    """The levels of one sample's tree, as long as they have no more than `most` splits in total.

    Args:
        units: the units of one sample.
        shape: rows and columns of its sites.
        most: the largest number of splits.
        nature: groups that units belong to by nature, the largest first; no cut separates what lies in one of them, as
            long as there is another cut.
    """
    where = places(units, shape)
    groups = [torch.arange(len(where))]
    levels: list[Level] = []
    splits = 0
    while True:
        splits += sum(len(g) > 1 for g in groups)
        if splits > most or all(len(g) < 2 for g in groups):
            return levels
        parent: list[int] = []
        split: list[tuple[int, int]] = []
        halves: list[Tensor] = []
        for i, group in enumerate(groups):
            if len(group) > 1:
                split.append((len(halves), len(halves) + 1))
            parts = halve(group, where, nature) if len(group) > 1 else (group,)
            halves.extend(parts)
            parent.extend([i] * len(parts))
        groups = halves
        own = torch.empty(len(where), dtype=torch.long)
        for i, group in enumerate(groups):
            own[group] = i
        levels.append(Level(own, torch.tensor(parent), torch.tensor(split)))


def places(units: Units, shape: tuple[int, int]) -> Float[Tensor, "u 2"]:
    """The mean row and column of each unit of one sample."""
    site = torch.arange(shape[0] * shape[1], dtype=torch.float64)[None]
    row = torch.div(site, shape[1], rounding_mode="floor")
    total = torch.stack([units.sum(row)[0], units.sum(site - row * shape[1])[0]], 1)
    return (total / units.area[0].clamp_min(1)[:, None])[: int(units.count[0])]


def halve(
    group: Int[Tensor, " k"], where: Float[Tensor, "u 2"], nature: Sequence[Int[Tensor, " u"]] = ()
) -> tuple[Int[Tensor, " a"], Int[Tensor, " c"]]:
    """Cut a group across its longer side, between two positions, as close to its middle as possible.

    The middle is that of the largest groups by nature that can be told apart, else that of the units.
    """
    at = where[group]
    along = at[:, int((at.amax(0) - at.amin(0)).argmax())]
    place, order = along.sort(stable=True)
    for kind in (*nature, torch.arange(len(where))):
        own = kind[group[order]]
        gaps = 1 + (_whole(own) & (place.diff() > 0)).nonzero()[:, 0]
        if len(gaps):
            met = torch.cat([own.new_zeros(1), own.diff().ne(0).long()]).cumsum(0)
            cut = int(gaps[(2 * met[gaps] - met[-1] - 1).abs().argmin()])
            break
    else:
        cut = len(group) // 2
    return group[order[:cut]].sort().values, group[order[cut:]].sort().values


def _whole(kinds: Int[Tensor, " k"]) -> Bool[Tensor, " k-1"]:
    """Behind which units of a row, the last one excepted, no kind comes again that has come before.

    >>> _whole(torch.tensor([0, 0, 1, 2, 1, 3])).tolist()
    [False, True, False, False, True]
    """
    _, kind = torch.unique(kinds, return_inverse=True)
    place = torch.arange(len(kind))
    last = torch.zeros_like(kind).scatter_reduce(0, kind, place, "amax", include_self=False)
    return (last[kind].cummax(0).values == place)[:-1]


def price(levels: list[Level], most: int) -> int:
    """The forwards needed to split every group in all its contexts, or in `most` of them if it has more."""
    return sum(len(level.split) * min(2 ** (depth + 1), most) for depth, level in enumerate(levels))


def contexts(levels: list[Level], samples: int) -> int:
    """The largest number of contexts per group, a power of two, for which `samples` is enough; at least one."""
    most: int = 2 ** len(levels)
    while most > 1 and price(levels, most) > samples:
        most //= 2
    return most


@dataclass(frozen=True)
class Paths:
    """The contexts of each group, and the output in each before and after the group is added.

    Args:
        before: the groups that are present before it is added, per context.
        low: the output before it is added.
        high: the output after it is added.
        ahead: for each split, whether the first half is added before the second.
    """

    before: Bool[Tensor, "g c g"]
    low: Float[Tensor, "g c"]
    high: Float[Tensor, "g c"]
    ahead: Bool[Tensor, "k c"]

    @staticmethod
    def start(whole: Float[Tensor, ""], nothing: Float[Tensor, ""]) -> "Paths":
        """The root of the tree: all units are one group, and no other group exists."""
        none = torch.zeros(1, 1, 1, dtype=torch.bool)
        return Paths(none, nothing.reshape(1, 1), whole.reshape(1, 1), none[0])

    def fork(self, level: Level, most: int, rng: torch.Generator) -> "Paths":
        """Pass the contexts on to the halves and choose which half leads: each in turn, or at random beyond `most`."""
        before, low, high = (
            self.before[level.parent][..., level.parent],
            self.low[level.parent],
            self.high[level.parent],
        )
        now, splits = low.shape[1], len(level.split)
        if 2 * now <= most:
            ahead = torch.arange(2 * now).expand(splits, -1) < now
            before, low, high = (torch.cat([t, t], 1) for t in (before, low, high))
            return Paths(before, low, high, ahead)
        lot = torch.rand(splits, now, generator=rng, dtype=torch.float64).argsort(1)
        coin = torch.randint(2, (splits, 1), generator=rng)  # decides which half leads if there is only one context
        return Paths(before, low, high, 2 * lot + coin < now)

    def joined(self, level: Level) -> Bool[Tensor, "k c g"]:
        """The groups that are present once the leading half of each split is added, in each context."""
        first, second = level.split.T
        leader = torch.where(self.ahead, first[:, None], second[:, None])
        return self.before[first].scatter(2, leader[..., None], True)

    def update(self, level: Level, outputs: Float[Tensor, " n"]) -> "Paths":
        """Enter the new outputs: after the leading half is added, and before the other half is."""
        before, low, high = self.before.clone(), self.low.clone(), self.high.clone()
        between, joined = outputs.reshape(self.ahead.shape), self.joined(level)
        for half, leads in zip(level.split.T, (self.ahead, ~self.ahead), strict=True):
            high[half] = torch.where(leads, between, high[half])
            low[half] = torch.where(leads, low[half], between)
            before[half] = torch.where(leads[..., None], before[half], joined)
        return Paths(before, low, high, self.ahead)
