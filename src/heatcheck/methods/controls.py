"""Controls: methods that every leaderboard shows and none ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch
from heatcheck.methods.base import Method, method
from heatcheck.methods.occlusion import Occlusion
from heatcheck.probe.probe import Probe


@method("random", family="control", uses=(), properties=("nonnegative", "target_free"), control=True, version=2)
@dataclass(frozen=True, kw_only=True, repr=False)
class Random(Method):
    """Uniform noise, drawn for each sample: every method should score better than this.

    Each model has its own noise, so that maps of different models do not agree by construction. Copies of a model with
    randomised weights keep the model's noise.

    Args:
        grid: cells per side of coarse noise that is enlarged bilinearly; none draws every site separately.

    Cost per sample: nothing.
    """

    grid: int | None = None

    revised: ClassVar[Mapping[str, int]] = {"text": 3}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid is not None and (type(self.grid) is not int or self.grid < 1):
            raise SpecError(f"{self.id}: grid={self.grid!r} must be none or a whole number of at least 1")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        shape = probe.domain.shape(batch.x)
        cells = shape if self.grid is None else probe.domain.coarse_shape(batch.x, self.grid)
        streams = batch.streams.derive(probe.model.lineage)
        noise = streams.draw("random-map", lambda g: torch.rand(cells, generator=g, dtype=torch.float64))
        sites = noise.flatten(1) if cells == shape else probe.domain.enlarged(noise, batch.x)
        return probe.domain.as_map(sites, batch.x)


@method("signed_random", family="control", uses=(), properties=("target_free",), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class SignedRandom(Random):
    """Uniform noise between -1 and 1, drawn for each sample.

    Its mirror image is as likely as itself, so that it says nothing about the size of what it is summed over, which
    unsigned noise does: where parts differ in size, as under `part_deletion`, it is what chance is.

    Args:
        grid: cells per side of coarse noise that is enlarged bilinearly; none draws every site separately.

    Cost per sample: nothing.
    """

    revised: ClassVar[Mapping[str, int]] = {}

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return 2 * super().attribute(probe, batch) - 1


@method("constant", family="control", uses=(), properties=("nonnegative", "target_free"), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Constant(Method):
    """The same value everywhere: the score that a metric gives to ties alone.

    Cost per sample: nothing.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        rows, columns = probe.domain.shape(batch.x)
        return probe.domain.as_map(torch.ones(len(batch), rows * columns, device=batch.device), batch.x)


@method("sobel", family="control", uses=(), properties=("nonnegative", "target_free"), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Sobel(Method):
    """Edges of the picture, or jumps between the words of a text: a map that does not depend on the model.

    Paper: hooker2019.
    Cost per sample: nothing.
    """

    revised: ClassVar[Mapping[str, int]] = {"text": 2}

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return probe.domain.as_map(probe.domain.edges(batch.x), batch.x)


@method("center", family="control", uses=(), properties=("nonnegative", "target_free"), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Center(Method):
    """A Gaussian around the middle of the deletable sites, as photographs tend to show their subject there.

    Args:
        sigma: its standard deviation, as a share of each side.

    Cost per sample: nothing.
    """

    sigma: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sigma > 0:
            raise SpecError(f"{self.id}: sigma={self.sigma!r} is a standard deviation and must be above 0")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        rows, columns = probe.domain.shape(batch.x)
        place = torch.cartesian_prod(
            torch.arange(rows, device=batch.device), torch.arange(columns, device=batch.device)
        ).double()
        free = probe.domain.deletable(batch.x)[..., None]
        first = torch.where(free, place, torch.inf).amin(1, keepdim=True)
        last = torch.where(free, place, -torch.inf).amax(1, keepdim=True)
        away = (place - (first + last) / 2) / (self.sigma * (last - first + 1))
        return probe.domain.as_map((-away.square().sum(-1) / 2).exp(), batch.x)


@method("input_magnitude", family="control", uses=(), properties=("nonnegative", "target_free"), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class InputMagnitude(Method):
    """The absolute value of the input (pixels or embeddings), whatever the model does with it.

    Cost per sample: nothing.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return probe.domain.leaf(batch.x).detach().abs()


@method("position", family="control", uses=(), properties=("nonnegative", "target_free"), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Position(Method):
    """Values that fall in reading order, as many texts make their point early.

    They fall evenly from 1 at the first deletable site to 1 / sites at the last; pictures are read row by row.

    Cost per sample: nothing.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        free = probe.domain.deletable(batch.x).double()
        left = free.sum(1, keepdim=True) - free.cumsum(1) + 1
        return probe.domain.as_map(free * left / free.sum(1, keepdim=True).clamp_min(1), batch.x)


@method("oracle", family="control", uses=(), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Oracle(Occlusion):
    """What the output loses when each unit is deleted alone: the best possible map under `sds`.

    Cost per sample: 1 + units forwards, shared with `sds`.
    """


@method("anti_oracle", family="control", uses=(), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class AntiOracle(Occlusion):
    """The oracle with its sign flipped: the worst possible map under `sds`.

    Cost per sample: 1 + units forwards, shared with `sds`.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return -super().attribute(probe, batch)
