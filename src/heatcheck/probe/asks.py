"""What methods and metrics ask, as sets of questions: what is in two sets is asked once."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heatcheck.core.types import Inputs, NotApplicable
from heatcheck.domain.base import Domain, Units
from heatcheck.models.base import Model

Ask = tuple[Hashable, ...]
"""One question about one sample, such as `("single", "zero", "grid(4)", 7)`; a probe asks each once."""

CLEAN: Ask = ("clean",)


@dataclass
class Shape:
    """One sample as a plan sees it: how many units of each kind, how many windows. Looked up as asked for.

    Args:
        domain: pictures or texts.
        x: the sample, with a batch axis of one.
        model: who will be asked, where that matters: for methods that ask once per channel of a layer.
        reference: what is known about the sample, by kind, where that decides what is asked.
    """

    domain: Domain
    x: Inputs
    model: Model | None = None
    reference: Mapping[str, Any] = field(default_factory=dict)
    _units: dict[str, Units] = field(default_factory=dict)

    def units(self, name: str) -> int:
        """How many units called `name` the sample has."""
        return int(self.partition(name).count[0])

    def partition(self, name: str) -> Units:
        """The sample's units called `name`."""
        if name not in self._units:
            self._units[name] = self.domain.units(name, self.x)
        return self._units[name]

    def windows(self) -> int:
        """How many windows the sample has."""
        return int(self.domain.windows(self.x).valid.sum())

    def channels(self, layer: str) -> int:
        """How many feature maps a layer of the model has; none where it has no such layer."""
        try:
            known = self.model.layers(self.x) if self.model else []
        except NotApplicable:
            return 0
        found = {f.name: f.channels for f in known} | {"auto": known[-1].channels if known else 0}
        return found.get(layer, 0)


def gradient(output: str) -> set[Ask]:
    """The gradient at the sample itself."""
    return {("gradient", output)}


def feature_maps(layer: str) -> set[Ask]:
    """The feature maps of a layer at the sample itself."""
    return {("maps", layer)}


def feature_gradient(layer: str, output: str) -> set[Ask]:
    """The feature maps of a layer at the sample itself, with their gradient."""
    return {("gradient", output, layer)}


def single(fill: str, units: str, shape: Shape) -> set[Ask]:
    """Each unit deleted alone; where there is only one, that is everything."""
    n = shape.units(units)
    return {("full", fill)} if n == 1 else {("single", fill, units, i) for i in range(n)}


def removal(method: str, fill: str, units: str, shape: Shape, order: str, counts: Iterable[int]) -> set[Ask]:
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


def passes_of(asks: set[Ask], extra: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Forward and backward passes of a set of questions and what comes beside it."""
    slopes = sum(1 for a in asks if a[0] == "gradient")
    return len(asks) + extra[0], slopes + extra[1]
