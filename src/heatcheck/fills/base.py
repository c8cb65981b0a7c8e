"""What takes the place of a deleted unit."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from jaxtyping import Shaped
from torch import Tensor

from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.base import Domain
from heatcheck.domain.component import Component, declare

T = TypeVar("T", bound=type)


def fill(id: str, *, on: tuple[str, ...], version: int = 1, **facts: Any) -> Callable[[T], T]:
    """Declare a fill: its id and the modalities it exists for."""
    return declare("fill", id, version, {"on": on, **facts})


@dataclass(frozen=True, kw_only=True, repr=False)
class Fill(Component, ABC):
    """A way to delete. Most need only say what the input looks like when all of it is gone."""

    random: ClassVar[bool] = False
    """Whether the fill draws from the sample's stream, so that its answers depend on the seed."""

    @abstractmethod
    def full(self, domain: Any, batch: Batch) -> Inputs:
        """The fully deleted inputs."""

    def erase(self, domain: Domain, x: Inputs, keep: Shaped[Tensor, "n s"], full: Inputs) -> Inputs:
        """Delete what is not kept; `full` holds the rows of `full(…)` that belong to `x`."""
        return domain.delete(x, keep, full)
