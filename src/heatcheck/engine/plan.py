"""What a run will ask, before anything is spent: the same sets that the probe shares, counted."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from heatcheck.domain.base import Domain, Units
from heatcheck.types import Inputs

Ask = tuple[Hashable, ...]
"""One question about one sample, such as `("single", "zero", "grid(4)", 7)`."""

CLEAN: Ask = ("clean",)


@dataclass
class Shape:
    """One sample as a plan sees it: how many units of each kind, how many windows. Looked up as asked for."""

    domain: Domain
    x: Inputs
    _units: dict[str, Units] = field(default_factory=dict)

    def units(self, name: str) -> int:
        """How many units called `name` the sample has."""
        if name not in self._units:
            self._units[name] = self.domain.units(name, self.x)
        return int(self._units[name].count[0])

    def windows(self) -> int:
        """How many windows the sample has."""
        return int(self.domain.windows(self.x).valid.sum())


def single(fill: str, units: str, shape: Shape) -> set[Ask]:
    """Each unit deleted alone."""
    return {("single", fill, units, i) for i in range(shape.units(units))}


def removal(method: str, fill: str, units: str, shape: Shape, order: str, counts: list[int]) -> set[Ask]:
    """The first `count` units of a method's order deleted, for each count; ends are shared by all methods."""
    n = shape.units(units)
    asks: set[Ask] = set()
    for count in counts:
        if count <= 0:
            asks.add(CLEAN)
        elif count >= n:
            asks.add(("full", fill))
        else:
            asks.add(("removal", method, fill, units, order, count))
    return asks
