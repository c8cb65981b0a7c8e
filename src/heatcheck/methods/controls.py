"""Controls: yardsticks that every leaderboard shows and none ranks."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
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
    """Uniform noise from the sample's own stream: what no method may fall below.

    Each model gets noise of its own, so that it agrees with no other; copies with random weights keep their model's.

    Args:
        grid: cells per side of noise that is then enlarged bilinearly; none for every site alone.

    Cost per sample: nothing.
    """

    grid: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid is not None and (type(self.grid) is not int or self.grid < 1):
            raise SpecError(f"{self.id}: grid={self.grid!r} must be none or a whole number of at least 1")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        shape = probe.domain.shape(batch.x)
        cells = shape if self.grid is None else (min(self.grid, shape[0]), min(self.grid, shape[1]))
        streams = batch.streams.derive(probe.model.lineage)
        noise = streams.draw("random-map", lambda g: torch.rand(cells, generator=g, dtype=torch.float64))
        if cells != shape:
            noise = F.interpolate(noise[:, None], shape, mode="bilinear", align_corners=False)[:, 0]
        return probe.domain.as_map(noise.flatten(1), batch.x)


@method("constant", family="control", uses=(), properties=("nonnegative", "target_free"), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Constant(Method):
    """The same value everywhere: what ties alone are worth.

    Cost per sample: nothing.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        rows, columns = probe.domain.shape(batch.x)
        return probe.domain.as_map(torch.ones(len(batch), rows * columns), batch.x)


@method("sobel", family="control", uses=(), properties=("nonnegative", "target_free"), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Sobel(Method):
    """Edges of the picture, jumps between the words of a text: what can be had without asking the model.

    Paper: hooker2019.
    Cost per sample: nothing.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return probe.domain.as_map(probe.domain.edges(batch.x), batch.x)


@method("center", family="control", uses=(), properties=("nonnegative", "target_free"), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Center(Method):
    """A Gaussian around the middle of what may be deleted: where photographers put things.

    Args:
        sigma: its deviation, as a share of each side.

    Cost per sample: nothing.
    """

    sigma: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sigma > 0:
            raise SpecError(f"{self.id}: sigma={self.sigma!r} is a deviation and must be above 0")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        rows, columns = probe.domain.shape(batch.x)
        place = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).double()
        free = probe.domain.deletable(batch.x)[..., None]
        first = torch.where(free, place, torch.inf).amin(1, keepdim=True)
        last = torch.where(free, place, -torch.inf).amax(1, keepdim=True)
        away = (place - (first + last) / 2) / (self.sigma * (last - first + 1))
        return probe.domain.as_map((-away.square().sum(-1) / 2).exp(), batch.x)


@method("input_magnitude", family="control", uses=(), properties=("nonnegative", "target_free"), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class InputMagnitude(Method):
    """How far the input is from zero in leaf space, whatever the model makes of it.

    Cost per sample: nothing.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return probe.domain.leaf(batch.x).detach().abs()


@method("position", family="control", uses=(), properties=("nonnegative", "target_free"), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Position(Method):
    """Earlier is more, in reading order: what a text that begins with its point gives away for nothing.

    Falls evenly from 1 at the first site that may be deleted to 1 / sites at the last; pictures are read row by row.

    Cost per sample: nothing.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        free = probe.domain.deletable(batch.x).double()
        left = free.sum(1, keepdim=True) - free.cumsum(1) + 1
        return probe.domain.as_map(free * left / free.sum(1, keepdim=True).clamp_min(1), batch.x)


@method("oracle", family="control", uses=(), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class Oracle(Occlusion):
    """What the output really loses when each unit is deleted alone: the best that `sds` can be given.

    Cost per sample: 1 + units forwards, shared with `sds`.
    """


@method("anti_oracle", family="control", uses=(), control=True)
@dataclass(frozen=True, kw_only=True, repr=False)
class AntiOracle(Occlusion):
    """The oracle upside down: the worst that `sds` can be given.

    Cost per sample: 1 + units forwards, shared with `sds`.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return -super().attribute(probe, batch)
