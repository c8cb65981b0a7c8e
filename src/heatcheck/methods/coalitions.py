"""Games whose players are units: what the methods share that ask for the worth of sets of units."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.base import Units
from heatcheck.methods.base import Method, eraser, repeat_rows, spread_density
from heatcheck.probe.asks import CLEAN, Ask, Shape
from heatcheck.probe.deletions import Masks
from heatcheck.probe.probe import Probe

Kept = Callable[[int, Int[Tensor, " k"]], Bool[Tensor, "k u"]]
"""Which units of sample `i` are there in its questions with the given numbers."""


@dataclass(frozen=True)
class Game:
    """A model's output as a function of the units that are there; the others are deleted.

    Args:
        probe: who is asked.
        batch: the samples, one game each.
        units: the players.
        fill: what replaces those that are not there.
        output: the scalar that a coalition is worth.
    """

    probe: Probe
    batch: Batch
    units: Units
    fill: str
    output: str
    _erase: Callable[..., Inputs] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_erase", eraser(self.probe, self.batch, self.fill))

    def play(self, counts: Sequence[int], kept: Kept) -> list[Float[Tensor, " k"]]:
        """The worth of `counts[i]` coalitions of each sample; masks are made call by call."""
        asked = torch.tensor(counts, dtype=torch.long)
        rows = torch.arange(len(counts)).repeat_interleave(asked)
        first = asked.cumsum(0) - asked

        def thinned(i: Int[Tensor, " n"]) -> Inputs:
            own = rows[i]
            there = torch.zeros(len(i), self.units.width, dtype=torch.bool)
            for row in sorted(set(own.tolist())):
                mine = own == row
                masks = kept(row, i[mine] - first[row])
                there[mine, : masks.shape[1]] = masks
            return self._erase(own, self.units.take(own).spread(there, outside=1))

        heard = [a.read(self.output) for _, a in self.probe.answers(self.batch, rows, thinned)]
        return list(torch.split(torch.cat([torch.empty(0, dtype=torch.float64), *heard]), list(counts)))

    def ends(self) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
        """The worth of all units and of none; asked once, however many methods want them."""
        if draws(self.fill):
            whole, counts = self.probe.clean(self.batch).read(self.output), self.units.count.tolist()

            def none(i: int, which: Int[Tensor, " k"]) -> Bool[Tensor, "k u"]:
                return torch.zeros(len(which), counts[i], dtype=torch.bool)

            heard = self.play([min(n, 1) for n in counts], none)
            return whole, torch.stack([y[0] if len(y) else whole[i] for i, y in enumerate(heard)])

        def keep(i: Int[Tensor, " k"]) -> Bool[Tensor, "k s"]:
            return (i % 2 == 0)[:, None] | (self.units.index[i // 2] < 0)

        masks = Masks(repeat_rows(len(self.batch), 2), keep)
        both = self.probe.deletions(self.batch, self.fill, masks).reshape(len(self.batch), 2).read(self.output)
        return both[:, 0], both[:, 1]


@dataclass(frozen=True, kw_only=True, repr=False)
class CoalitionMethod(Method):
    """A method that divides among units what the output loses when all of them are deleted.

    Args:
        units: the players; a grid of 4 × 4 cells on pictures, tokens on texts.
        fill: what replaces those that are not there.
    """

    units: str = "cell"
    fill: str = "auto"

    @abstractmethod
    def shares(self, game: Game, whole: Float[Tensor, " b"], nothing: Float[Tensor, " b"]) -> Float[Tensor, "b u"]:
        """What each unit gets of `whole - nothing`."""

    @abstractmethod
    def questions(self, shape: Shape) -> int:
        """How many coalitions it asks about one sample beside all units and none."""

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        units = probe.units(self.units, batch)
        game = Game(probe, batch, units, self.fill, self.output)
        return spread_density(probe, batch, units, self.shares(game, *game.ends()))

    def asks(self, shape: Shape) -> set[Ask]:
        if draws(self.fill) or not shape.units(self.units):
            return {CLEAN}
        left_over = (shape.partition(self.units).index < 0) & shape.domain.deletable(shape.x)
        return {CLEAN, ("nothing", self.fill, self.units) if left_over.any() else ("full", self.fill)}

    def passes(self, shape: Shape) -> tuple[int, int]:
        alone = draws(self.fill) and shape.units(self.units) > 0
        return self.questions(shape) + alone, 0


def draws(fill: str) -> bool:
    """Whether a fill is random; methods then delete with other draws than metrics, and share nothing."""
    return bool(catalogue.build("fill", fill).random)


def ways(units: int) -> int:
    """How many sets of units there are; a large number where there are more."""
    return 1 << min(units, 62)


def all_sets(units: int) -> Bool[Tensor, "n u"]:
    """Every set of units, all of them first and none last."""
    number = torch.arange(2**units).flip(0)
    return (number[:, None] >> torch.arange(units) & 1).bool()
