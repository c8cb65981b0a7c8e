"""Agreement of the map with a reference mask: pointing game, relevance mass and relevance rank."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.core.devices import CPU, moved
from heatcheck.core.spec import SpecError
from heatcheck.core.types import OK, Batch, Scores
from heatcheck.domain.base import Units
from heatcheck.metrics.base import Maps, SiteMetric, metric
from heatcheck.probe.probe import Probe

SIDE = 224
"""Tolerances are given in pixels of pictures whose shorter side is this long."""

MASK_FACTS: dict[str, Any] = {"family": "reference", "better": "higher", "within": (0, 1), "needs": ("reference:mask",)}
"""What all metrics declare that compare a map with a mask."""


@dataclass(frozen=True, kw_only=True, repr=False)
class MaskMetric(SiteMetric):
    """The base of metrics that compare a map with a reference mask.

    Sites that are never deleted (special tokens, padding) do not count. A mask that is empty or covers everything
    cannot tell one map from another: the score is undefined. A unit is inside if one of its sites is, and its value is
    the sum over its sites.
    """

    nan_reason: ClassVar[str] = "the score is not finite"
    """Why `compare` returns NaN, where it does."""

    @abstractmethod
    def compare(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        """The score of one map: its value on each unit of a sample, and which units are inside the mask."""

    def region(self, mask: Bool[Tensor, "h w"]) -> Bool[Tensor, "h w"]:
        """The sites that count as inside."""
        return mask

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units, shape = probe.units(self.units, batch), probe.domain.shape(batch.x)
        share, index, count = moved(CPU, maps.on(units), units.index, units.count)  # references are there
        units = replace(units, index=index, count=count)
        value = torch.full((len(maps), len(batch)), torch.nan, dtype=torch.float64)
        masks, status = usable_masks(batch, units)
        for i, mask in masks.items():
            inside = units_inside(self.region(mask.reshape(shape)), units, i)
            for j, own in enumerate(share[:, i, : len(inside)]):
                value[j, i] = self.compare(own, inside)
        return Scores(value, tuple(tuple(map(self._status, row, status)) for row in value.tolist()))

    def _status(self, value: float, status: str) -> str:
        return f"undefined: {self.nan_reason}" if status == OK and value != value else status


def units_inside(mask: Bool[Tensor, "..."], units: Units, row: int) -> Bool[Tensor, " n"]:
    """Which units of a sample contain a site of its mask.

    >>> words = Units("word", torch.tensor([[-1, 0, 0, 1, -1]]), torch.tensor([2]), 2)
    >>> units_inside(torch.tensor([True, False, True, False, False]), words, 0)
    tensor([ True, False])
    """
    touched = units.index[row][mask.flatten()]
    inside = torch.zeros(units.counts[row], dtype=torch.bool)
    inside[touched[touched >= 0]] = True
    return inside


def usable_masks(batch: Batch, units: Units) -> tuple[dict[int, Bool[Tensor, "..."]], list[str]]:
    """The masks that maps can be compared with, by sample, and every sample's status; `needs` tells of those without one."""
    masks: dict[int, Tensor] = {}
    status = [OK] * len(batch)
    for i, reference in enumerate(batch.references):
        if "mask" in reference:
            mask = torch.as_tensor(reference["mask"]).bool().cpu()
            status[i] = mask_status(mask, units, i)
            if status[i] == OK:
                masks[i] = mask
    return masks, status


def mask_status(mask: Bool[Tensor, "..."], units: Units, row: int) -> str:
    """`ok`, or why no map of the sample can be compared with its mask."""
    sites = units.index.shape[1]
    if mask.numel() != sites:
        return f"undefined: the mask has {mask.numel()} sites, the input {sites}"
    inside = units_inside(mask, units, row)
    if bool(inside.all()):
        return "undefined: the mask covers everything"
    return OK if bool(inside.any()) else "undefined: the mask is empty"


@metric("pointing_game", invariant=("monotone", "scale", "shift"), **MASK_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class PointingGame(MaskMetric):
    r"""Does the largest value of the map lie in the reference, or near it?

    $\mathbb{1}\big[\min_{j \in R} \lVert \arg\max_i A_i - j \rVert \le \text{tolerance}\big]$

    Where several sites share the largest value, the score is the share of them that hit, the expected score of picking
    one at random: a constant map scores the share of the picture that lies within the tolerance.

    Args:
        units: what is pointed at, such as `word`: the sum over its sites counts, and it is hit where one of them is.
        tolerance: how far outside a hit may lie, in pixels of a picture whose shorter side is 224 (scaled with the
            picture; less than one token on texts).

    Paper: zhang2018.  Differs: tied largest values share the score.
    Cost per sample: none.
    """

    tolerance: float = 15.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tolerance < torch.inf:
            raise SpecError(f"metric pointing_game: tolerance={self.tolerance} must be at least 0")

    def region(self, mask: Bool[Tensor, "h w"]) -> Bool[Tensor, "h w"]:
        from scipy.ndimage import distance_transform_edt

        distance = torch.from_numpy(distance_transform_edt(~mask.numpy()))
        return distance <= self.tolerance * min(mask.shape) / SIDE

    def compare(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        return inside[values == values.max()].double().mean()


@metric("relevance_mass", invariant=("scale",), **MASK_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class RelevanceMass(MaskMetric):
    r"""How much of the map's positive relevance lies in the reference?

    $\sum_{i \in R} A_i^+ \,/\, \sum_i A_i^+$

    With boxes as reference this is the energy in the box, also called the energy-based pointing game. It is undefined
    where no relevance is positive. A constant map scores the reference's share of the input.

    Args:
        units: what has relevance, such as `word`: the sum over its sites, of which the positive part is taken then. A unit
            lies in the reference if one of its sites does.

    Paper: arras2022, wang2020.
    Cost per sample: none.
    """

    nan_reason: ClassVar[str] = "the map has no positive relevance"

    def compare(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        positive = values.double().clamp_min(0)
        hit, missed = positive[inside].sum(), positive[~inside].sum()
        return hit / (hit + missed)


@metric("relevance_rank", invariant=("monotone", "scale", "shift"), **MASK_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class RelevanceRank(MaskMetric):
    r"""If the reference has k sites, what share of the k most relevant sites lies in it?

    $|\mathrm{top}_{|R|}(A) \cap R| \,/\, |R|$

    Sites tied at the end of the top are counted in proportion, the expected score of breaking ties at random: a
    constant map scores the reference's share of the input.

    Args:
        units: what is ranked, such as `word`, by the sum over its sites; a unit lies in the reference if one of its sites
            does, and k counts units.

    Paper: arras2022.  Differs: ties count in proportion, not by the order of a sort.
    Cost per sample: none.
    """

    def compare(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        return top_precision(values, inside)


def top_precision(values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
    """The share of the top k units that are inside, where k units are inside; ties at rank k count in proportion.

    >>> float(top_precision(torch.tensor([3.0, 2.0, 2.0, 0.0]), torch.tensor([True, True, False, False])))
    0.75
    """
    k = int(inside.sum())
    return top_hits(values, inside, k) / k


def top_hits(values: Float[Tensor, " n"], inside: Bool[Tensor, " n"], k: int) -> Float[Tensor, ""]:
    """How many of the top k units are inside; those tied at rank k count in proportion.

    >>> float(top_hits(torch.tensor([3.0, 2.0, 2.0, 0.0]), torch.tensor([True, False, True, True]), 2))
    1.5
    """
    last = values.kthvalue(len(values) - k + 1).values
    above, tied = values > last, values == last
    room = (k - above.sum()).double()
    return (above & inside).sum() + room * (tied & inside).sum() / tied.sum()
