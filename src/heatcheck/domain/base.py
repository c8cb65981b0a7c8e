"""What methods and metrics need of their inputs: six operations, implemented once per modality."""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.devices import moved
from heatcheck.core.types import HeatcheckError, Inputs, Modality, NotApplicable

ROLES = {
    "site": "The smallest there is",
    "cell": "A few large units",
    "patch": "More and smaller units",
    "segment": "Units that follow the content",
    "region": "More of these",
}
"""Units by what they are for, so that a default fits every modality; each domain says which ones they are there."""
KEEP, COVER = "keep", "cover_"
"""Names under which inputs carry a blindfold: the sites it leaves, and before the name of each tensor, what hides the rest."""
REDUCTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda a, dim: a.sum(dim),
    "sum_abs": lambda a, dim: a.abs().sum(dim),
    "mean_abs": lambda a, dim: a.abs().mean(dim),
    "mean_square": lambda a, dim: a.square().mean(dim),
    "l2": lambda a, dim: a.square().sum(dim).sqrt(),
}


def reduce_over(values: Tensor, how: str, dim: int) -> Tensor:
    """Collapse channels or embedding coordinates into one number per site."""
    if how not in REDUCTIONS:
        raise HeatcheckError(f"reduction={how!r} is not one of {', '.join(REDUCTIONS)}")
    return REDUCTIONS[how](values, dim)


@dataclass(frozen=True)
class Units:
    """A partition of an input's sites (pixels, tokens) into what is deleted together.

    Args:
        name: the resolved id, such as `grid(4)`.
        index: the unit of each site; -1 for sites that are never deleted (special tokens, padding).
        count: how many units each sample has.
        width: length of the unit axis; at least the largest count.
    """

    name: str
    index: Int[Tensor, "b s"]
    count: Int[Tensor, " b"]
    width: int

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many units each sample has, for whoever decides by it; read once."""
        return tuple(self.count.tolist())

    @cached_property
    def are_sites(self) -> bool:
        """Whether every unit is the site of its own number, so that maps need no summing."""
        if self.index.shape[1] != self.width:
            return False
        return bool((self.index == torch.arange(self.width, device=self.index.device)).all())

    @property
    def valid(self) -> Bool[Tensor, "b u"]:
        """Which places of the unit axis are units of the sample."""
        return torch.arange(self.width, device=self.count.device) < self.count[:, None]

    @property
    def area(self) -> Float[Tensor, "b u"]:
        """Sites per unit; zero where there is no unit."""
        ones = torch.ones(self.index.shape, dtype=torch.float64, device=self.index.device)
        return self._gather_sum(ones)

    def sum(self, site_map: Float[Tensor, "... b s"]) -> Float[Tensor, "... b u"]:
        """Sum of a map over each unit, accumulated in double precision in site order."""
        lead = site_map.shape[:-2]
        flat = site_map.reshape(-1, *site_map.shape[-2:])
        out = torch.stack([self._gather_sum(m.double()) for m in flat])
        return out.reshape(*lead, *out.shape[-2:])

    def _gather_sum(self, site_map: Float[Tensor, "b s"]) -> Float[Tensor, "b u"]:
        out = site_map.new_zeros(len(site_map), self.width + 1)
        return out.scatter_add_(1, self.slot, site_map)[:, : self.width]

    @property
    def slot(self) -> Int[Tensor, "b s"]:
        """Like `index`, with the last slot (`width`) for sites that belong to no unit."""
        return torch.where(self.index < 0, self.width, self.index)

    def spread(self, values: Shaped[Tensor, "... b u"], outside: float | int = 0.0) -> Shaped[Tensor, "... b s"]:
        """Give every site the value of its unit, and `outside` to sites of none."""
        pad = torch.full((*values.shape[:-1], 1), outside, dtype=values.dtype, device=values.device)
        padded = torch.cat([values, pad], -1)
        return padded.gather(-1, self.slot.expand(*values.shape[:-1], -1))

    def to(self, device: torch.device) -> "Units":
        """The same units on a device."""
        index, count = moved(device, self.index, self.count)
        return Units(self.name, index, count, self.width)

    def take(self, rows: Int[Tensor, " n"]) -> "Units":
        """The units of some samples; rows may repeat."""
        return Units(self.name, self.index[rows], self.count[rows], self.width)


@dataclass(frozen=True)
class Windows:
    """Contiguous sets of sites, in rows and columns of the domain's site grid.

    Args:
        box: top, bottom, left, right (ends excluded) of each window.
        valid: which windows exist for the sample.
        shape: rows and columns of the site grid (a text has one row).
    """

    box: Int[Tensor, "b k 4"]
    valid: Bool[Tensor, "b k"]
    shape: tuple[int, int]

    def keep(self, rows: Int[Tensor, " n"], which: Int[Tensor, " n"]) -> Bool[Tensor, "n s"]:
        """Masks that are false inside the window `which[i]` of sample `rows[i]`."""
        top, bottom, left, right = self.box[rows, which].unbind(-1)
        y, x = (torch.arange(side, device=self.box.device) for side in self.shape)
        in_y = (y >= top[:, None]) & (y < bottom[:, None])
        in_x = (x >= left[:, None]) & (x < right[:, None])
        return ~(in_y[:, :, None] & in_x[:, None, :]).flatten(1)

    def sums(self, site_map: Float[Tensor, "b s"]) -> Float[Tensor, "b k"]:
        """Sum of a map inside each window, by a summed-area table in double precision."""
        grid = site_map.double().reshape(len(site_map), *self.shape)
        table = F.pad(grid.cumsum(1).cumsum(2), (1, 0, 1, 0)).flatten(1)
        top, bottom, left, right = self.box.unbind(-1)
        stride = self.shape[1] + 1

        def at(y: Tensor, x: Tensor) -> Tensor:
            return table.gather(1, y * stride + x)

        return at(bottom, right) - at(top, right) - at(bottom, left) + at(top, left)


_CALL = re.compile(r"(?P<id>\w+)(?:\((?P<n>\d+)\))?")


def parse_units(name: str) -> tuple[str, int | None]:
    """Split `grid(4)` into its id and number."""
    match = _CALL.fullmatch(name.strip())
    if not match:
        raise HeatcheckError(f"units={name!r} is not of the form id or id(n), such as pixel or grid(4)")
    n = int(match["n"]) if match["n"] else None
    if n == 0:
        raise HeatcheckError(f"units={name!r}: there must be at least one")
    return match["id"], n


@dataclass(frozen=True, kw_only=True)
class Domain(ABC):
    """The six operations: leaf, reduce, units, delete, windows, layout."""

    modality: ClassVar[Modality]
    roles: ClassVar[Mapping[str, str]]
    aligned_by: ClassVar[str] = ""
    """What `aligned` finds in common between models that cut a sample into different sites; empty where it finds nothing."""
    """The units that each of `ROLES` means here."""
    usual_levels: ClassVar[Mapping[str, tuple[str, ...]]]
    """Fills and units that published comparisons differ in: what a multiverse varies where nothing is said."""
    map_axes: ClassVar[int]
    """Axes of maps with a number per site, that of the samples included."""
    default_fill: ClassVar[str]
    insertion_fill: ClassVar[str]
    """What units are inserted into, where a metric inserts."""
    gradient_reduction: ClassVar[str] = "sum"
    """How a plain gradient at the leaf becomes one number per site where `reduction=auto`."""
    windowed: ClassVar[tuple[str, ...]] = ()
    """The units, by id, that `unit_windows` makes windows of."""
    inclusive_percentiles: ClassVar[bool] = False
    """Whether M4's percentile sets hold the percentile itself."""
    gallery: ClassVar[int] = 8
    """Samples that are stored as people should see them, for the report."""

    @abstractmethod
    def shape(self, x: Inputs) -> tuple[int, int]:
        """Rows and columns of the site grid."""

    def site_count(self, x: Inputs) -> int:
        """How many sites each sample has, padding included; the time of a pass grows with them."""
        return math.prod(self.shape(x))

    @abstractmethod
    def leaf(self, x: Inputs) -> Float[Tensor, "b ..."]:
        """The differentiable tensor: pixels, or token embeddings."""

    @abstractmethod
    def with_leaf(self, x: Inputs, leaf: Float[Tensor, "b ..."]) -> Inputs:
        """The same inputs at another point of leaf space."""

    @abstractmethod
    def reduce(self, values: Float[Tensor, "b ..."], how: str) -> Float[Tensor, "b ..."]:
        """Leaf-shaped values to one number per site."""

    @abstractmethod
    def deletable(self, x: Inputs) -> Bool[Tensor, "b s"]:
        """Sites that may be deleted at all."""

    def fixed(self, x: Inputs) -> Bool[Tensor, "b s"] | None:
        """Sites that are never deleted; None where all of them may go."""
        return ~self.deletable(x)

    def seen(self, x: Inputs) -> Bool[Tensor, "b s"] | None:
        """Sites that the model reads; None where it reads all. It does not read padding, and no map may depend on it."""
        return None

    def entering(self, values: Shaped[Tensor, "b s ..."], x: Inputs) -> Shaped[Tensor, "b s ..."]:
        """Values of sites in the order in which the network gets them."""
        return values

    def leaving(self, values: Shaped[Tensor, "b ... s"], x: Inputs) -> Shaped[Tensor, "b ... s"]:
        """Values in the order in which the network got its sites, in the order of the sites."""
        return values

    def leaf_range(self, x: Inputs) -> Float[Tensor, " b"]:
        """How far each input's smallest and largest leaf value lie apart; what the model does not read is left out."""
        flat = self.leaf(x).detach().flatten(1)
        return flat.amax(1) - flat.amin(1)

    def leaf_mean(self, x: Inputs) -> Float[Tensor, " b"]:
        """The mean of each input's leaf values; what the model does not read is left out."""
        return self.leaf(x).detach().flatten(1).mean(1)

    def leaf_noise(self, x: Inputs, draw: Callable[[int, Sequence[int]], Tensor]) -> Float[Tensor, "b ..."]:
        """Random values in the shape of the leaf, drawn by `draw(row, shape)`; padding gets zeros and costs no draw.

        Draws are made on the CPU; all of them are moved to the inputs at once.
        """
        shape = self.leaf(x).shape[1:]
        return torch.stack([draw(row, shape) for row in range(len(x))]).to(x.device)

    def coarse_shape(self, x: Inputs, side: int) -> tuple[int, int]:
        """Rows and columns of a map with `side` cells per side; at most one for each site."""
        rows, columns = self.shape(x)
        return min(side, rows), min(side, columns)

    def enlarged(self, cells: Float[Tensor, "b r c"], x: Inputs) -> Float[Tensor, "b s"]:
        """Coarse cells interpolated bilinearly to the sites that the model reads."""
        return F.interpolate(cells[:, None], self.shape(x), mode="bilinear", align_corners=False)[:, 0].flatten(1)

    def content(self, x: Inputs) -> list[Tensor]:
        """What decides each input, whatever its padding."""
        return [row[None] for row in next(iter(x.tensors.values()))]

    @abstractmethod
    def partition(self, kind: str, n: int | None, x: Inputs) -> tuple[Int[Tensor, "b s"], int]:
        """The unit of each site, and the length of the unit axis; unknown kinds raise NotApplicable."""

    def groups(self, units: Units, x: Inputs) -> list[Int[Tensor, "b u"]]:
        """Larger groups that units belong to by nature, as a number per unit, the largest groups first; none by default."""
        return []

    @abstractmethod
    def mix(self, x: Inputs, keep: Shaped[Tensor, "b s"], full: Inputs) -> Inputs:
        """`x` where kept, the fully deleted `full` where not; float `keep` mixes softly in leaf space."""

    @abstractmethod
    def windows(self, x: Inputs) -> Windows:
        """Contiguous unit sets: squares of a picture, runs of tokens."""

    def unit_windows(self, units: Units, x: Inputs) -> list[list[tuple[int, ...]]]:
        """Per sample, windows of units that are larger than sites: the numbers of the units in each; see `windowed`."""
        raise NotApplicable(f"windows of a {self.modality} are made of sites, not of {units.name}")

    @abstractmethod
    def layout(self, values: Float[Tensor, "b ..."], x: Inputs, interpolation: str) -> Float[Tensor, "b s"]:
        """Carry a map of any native resolution onto sites."""

    @abstractmethod
    def as_map(self, sites: Float[Tensor, "b s"], x: Inputs) -> Float[Tensor, "b ..."]:
        """A number per site in the shape of a map: rows and columns of a picture, tokens of a text."""

    @abstractmethod
    def edges(self, x: Inputs) -> Float[Tensor, "b s"]:
        """How much neighbouring sites differ, without asking any model."""

    @abstractmethod
    def wrap(self, x: Any) -> Inputs:
        """Tensors as a user holds them, ready for the model, as inputs."""

    @abstractmethod
    def display(self, x: Inputs) -> dict[str, Any]:
        """The first input as people should see it: `kind` and either `rgb` bytes, or `tokens` and where their words begin."""

    def words(self, x: Inputs) -> list[list[tuple[int, ...]]]:
        """The words of each input, in order, each as the ids of its tokens."""
        raise NotApplicable(f"needs words, and a {self.modality} has none")

    def spelled(self, x: Inputs) -> list[tuple[str, ...]]:
        """The names of each input's sites, such as its tokens; empty where positions are enough.

        Two models' maps of a sample lie on the same sites only where this agrees.
        """
        return [()] * len(x)

    def aligned(self, views: Sequence[Inputs], kind: str = "") -> list[Int[Tensor, " _"]] | None:
        """What models that cut one sample into different sites have in common: per view, the common unit of each site.

        Args:
            views: the same sample as each model reads it.
            kind: the units to find; those of `aligned_by` where none are named.

        Returns:
            units 0, 1, 2 … that every model reads whole, -1 for sites of none; None where sites cannot be aligned.
        """
        return None

    def dilate(self, masks: Bool[Tensor, "n s"], x: Inputs, size: int) -> Bool[Tensor, "n s"]:
        """Masks grown by the sites around them, within `size` rows and columns; unchanged where sites have no distance."""
        return masks

    def bounds(self, x: Inputs) -> tuple[Float[Tensor, "1 ..."], Float[Tensor, "1 ..."]]:
        """The smallest and the largest value that a leaf may have, in a shape that fits it."""
        raise NotApplicable(f"needs the range of what may go in, and a {self.modality} has none")

    def resolve_units(self, name: str) -> str:
        """The id behind a role: `cell` is `grid(4)` on pictures and `token` on texts."""
        return self.roles.get(name, name)

    def units(self, name: str, x: Inputs) -> Units:
        """The partition called `name`."""
        resolved = self.resolve_units(name)
        index, width = self.partition(*parse_units(resolved), x)
        index = torch.where(self.deletable(x), index, -1)
        return Units(resolved, index, index.amax(1) + 1, width)

    def delete(self, x: Inputs, keep: Shaped[Tensor, "b s"], full: Inputs) -> Inputs:
        """Replace what is not kept by the fully deleted input; special sites always stay."""
        fixed = self.fixed(x)
        if fixed is not None:
            keep = keep | fixed if keep.dtype == torch.bool else torch.where(fixed, torch.ones_like(keep), keep)
        return self.mix(x, keep, full)

    def with_blindfold(self, x: Inputs, keep: Bool[Tensor, "b s"], cover: Inputs) -> Inputs:
        """The same inputs, of which `visible` leaves only what is kept; rows that are taken or copied carry it along.

        Args:
            x: the inputs.
            keep: the sites that stay visible.
            cover: what is seen in place of the others.
        """
        return x.replace(**{KEEP: keep}, **{COVER + name: tensor for name, tensor in cover.tensors.items()})

    def visible(self, x: Inputs) -> Inputs:
        r"""What a network gets of inputs: $m \odot x + (1 - m) \odot c$ where they carry a blindfold, else themselves.

        Whatever stands outside $m$ changes nothing, and derivatives with respect to it are exactly zero.
        """
        if KEEP not in x:
            return x
        cover = {name.removeprefix(COVER): t for name, t in x.tensors.items() if name.startswith(COVER)}
        own = {name: t for name, t in x.tensors.items() if name != KEEP and not name.startswith(COVER)}
        return self.mix(Inputs(own), x[KEEP], Inputs(cover))

    def unknown_units(self, name: str) -> NotApplicable:
        """The error for units that this domain does not have."""
        known = ", ".join(u["form"] for u in catalogue.units().values() if self.modality in u["on"])
        return NotApplicable(f"units={name!r} do not exist for a {self.modality}; it has {known}")

    def check_units(self, name: str) -> None:
        """Raise NotApplicable for units that exist, but not on this domain."""
        form = catalogue.units().get(name.partition("(")[0])
        if form is not None and self.modality not in form["on"]:
            raise self.unknown_units(name)

    def cut_to_sites(self, values: Float[Tensor, "b ..."], x: Inputs) -> Float[Tensor, "b ..."]:
        """Maps that were padded to the longest input of a list, cut to the sites that these inputs have."""
        return values

    def padded_as(self, values: Float[Tensor, "b ..."], x: Inputs) -> Float[Tensor, "b ..."]:
        """Maps of the same samples that were computed with more padding, or less, padded as these inputs are."""
        return values
