"""What takes the place of a deleted unit."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from jaxtyping import Shaped
from torch import Tensor

from heatcheck.core.devices import CPU, moved
from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.base import Domain
from heatcheck.domain.component import Component, declare

T = TypeVar("T", bound=type)


def fill(
    id: str, *, on: tuple[str, ...], needs: tuple[str, ...] = (), host: bool = False, version: int = 1
) -> Callable[[T], T]:
    """Declare a fill.

    Args:
        id: its name everywhere.
        on: modalities it exists for.
        needs: what it needs besides the input, such as `weights`.
        host: whether only the CPU can compute it, so that from another device each batch goes there and back once.
        version: raised whenever its results change.
    """
    return declare("fill", id, version, {"on": on, "needs": needs, "host": host})


@dataclass(frozen=True, kw_only=True, repr=False)
class Fill(Component, ABC):
    """A way to delete. Most need only say what the input looks like when all of it is gone."""

    random: ClassVar[bool] = False
    """Whether the fill draws from the sample's stream, so that its answers depend on the seed."""
    moves: ClassVar[bool] = False
    """Whether what is kept changes its place, so that a site no longer shows what stood there."""

    @abstractmethod
    def full(self, domain: Any, batch: Batch) -> Inputs:
        """The fully deleted inputs."""

    def erase(self, domain: Domain, x: Inputs, keep: Shaped[Tensor, "n s"], full: Inputs) -> Inputs:
        """Delete what is not kept; `full` holds the rows of `full(…)` that belong to `x`."""
        return domain.delete(x, keep, full)


@dataclass(frozen=True, kw_only=True, repr=False)
class HostFill(Fill):
    """A fill that only the CPU can compute; declared with `host=True`."""

    @abstractmethod
    def erase_here(self, domain: Any, x: Inputs, keep: Shaped[Tensor, "n s"], full: Inputs) -> Inputs:
        """What `erase` does, given everything on the CPU."""

    def erase(self, domain: Domain, x: Inputs, keep: Shaped[Tensor, "n s"], full: Inputs) -> Inputs:
        if x.device == CPU:
            return self.erase_here(domain, x, keep, full)
        leaf, mask, gone = moved(CPU, domain.leaf(x), keep, domain.leaf(full))
        here = Inputs({})
        painted = self.erase_here(domain, domain.with_leaf(here, leaf), mask, domain.with_leaf(here, gone))
        return domain.with_leaf(x, domain.leaf(painted).to(x.device))
