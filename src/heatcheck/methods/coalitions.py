"""Cooperative games whose players are units: shared by LIME and the methods that estimate Shapley or Owen values."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.base import Units
from heatcheck.methods.base import Method, counted_rows, eraser, is_random, repeat_rows, spread_density
from heatcheck.probe.asks import CLEAN, Ask, Shape
from heatcheck.probe.deletions import Masks
from heatcheck.probe.probe import Probe

Kept = Callable[[Int[Tensor, " k"], Int[Tensor, " k"]], Bool[Tensor, "k u"]]
"""Which units are present in some coalitions, given by their samples and their numbers among these samples' own."""


@dataclass(frozen=True)
class Game:
    """The model's output as a function of the units that are present; absent units are deleted.

    It is played where the model lives. Values come back to the CPU, which settles what each unit gets: least squares
    without a unique solution are solved nowhere else.

    Args:
        probe: runs the model.
        batch: the samples, one game each.
        units: the players.
        fill: what replaces absent units.
        output: the model output that is the value of a coalition.
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
        """The values of `counts[i]` coalitions of each sample. Masks are made for one call at a time."""
        rows, which = counted_rows(counts, self.probe.device)

        def deleted(i: Int[Tensor, " n"]) -> Inputs:
            own = rows[i]
            return self._erase(own, self.units.take(own).spread(kept(own, which[i]), outside=1))

        outputs = [a.read(self.output) for _, a in self.probe.answers(self.batch, rows, deleted)]
        whole = torch.cat(outputs).cpu() if outputs else torch.empty(0, dtype=torch.float64)
        return list(torch.split(whole, list(counts)))

    def ends(self) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
        """The values of all units and of none. With a fixed fill they are cached and shared between methods."""
        if is_random(self.fill):
            whole = self.probe.clean(self.batch).read(self.output).cpu()

            def none(rows: Int[Tensor, " k"], _which: Int[Tensor, " k"]) -> Bool[Tensor, "k u"]:
                return torch.zeros(len(rows), self.units.width, dtype=torch.bool, device=rows.device)

            outputs = self.play([min(n, 1) for n in self.units.counts], none)
            return whole, torch.stack([y[0] if len(y) else whole[i] for i, y in enumerate(outputs)])

        def keep(i: Int[Tensor, " k"]) -> Bool[Tensor, "k s"]:
            return (i % 2 == 0)[:, None] | (self.units.index[i // 2] < 0)

        masks = Masks(repeat_rows(len(self.batch), 2, self.probe.device), keep)
        answers = self.probe.deletions(self.batch, self.fill, masks).reshape(len(self.batch), 2)
        both = answers.read(self.output).cpu()
        return both[:, 0], both[:, 1]


@dataclass(frozen=True, kw_only=True, repr=False)
class CoalitionMethod(Method):
    """A method that divides among the units what the output loses when all of them are deleted.

    Args:
        units: the players; a grid of 4 × 4 cells on pictures, tokens on texts.
        fill: what replaces absent units.
    """

    units: str = "cell"
    fill: str = "auto"

    @abstractmethod
    def shares(self, game: Game, whole: Float[Tensor, " b"], nothing: Float[Tensor, " b"]) -> Float[Tensor, "b u"]:
        """Each unit's share of `whole - nothing`, on the CPU as these are."""

    @abstractmethod
    def questions(self, shape: Shape) -> int:
        """How many coalitions it evaluates per sample, besides all units and none."""

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        units = probe.units(self.units, batch)
        game = Game(probe, batch, units, self.fill, self.output)
        return spread_density(probe, batch, units, self.shares(game, *game.ends()).to(probe.device))

    def asks(self, shape: Shape) -> set[Ask]:
        if is_random(self.fill) or not shape.units(self.units):
            return {CLEAN}
        left_over = (shape.partition(self.units).index < 0) & shape.domain.deletable(shape.x)
        return {CLEAN, ("nothing", self.fill, self.units) if left_over.any() else ("full", self.fill)}

    def passes(self, shape: Shape) -> tuple[int, int]:
        alone = is_random(self.fill) and shape.units(self.units) > 0
        return self.questions(shape) + alone, 0


def ways(units: int) -> int:
    """The number of sets of units, but at most 2**62."""
    return 1 << min(units, 62)


def all_sets(units: int) -> Bool[Tensor, "n u"]:
    """Every set of units; the first holds all of them, the last none."""
    number = torch.arange(2**units).flip(0)
    return (number[:, None] >> torch.arange(units) & 1).bool()
