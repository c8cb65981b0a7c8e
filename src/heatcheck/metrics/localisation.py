"""Does the map point at what is known to matter: masks, boxes and rationales that somebody gave."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import OK, Batch, Scores
from heatcheck.domain.base import Units
from heatcheck.metrics.base import Maps, Metric, metric
from heatcheck.probe.probe import Probe

SIDE = 224
"""The shorter side of the pictures on which tolerances are given."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Located(Metric):
    """What metrics share that compare a map with a reference mask, one map at a time.

    Sites that are never deleted (special tokens, padding) do not count. A mask that holds everything or nothing tells
    no map from another: no score.
    """

    nothing: ClassVar[str] = "the score is not finite"
    """Why `judge` gives NaN, where it does."""

    @property
    def grain(self) -> str:
        """The units that are inside or outside."""
        return "site"

    @abstractmethod
    def judge(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        """The score of one map over the units of a sample, some of which are inside the reference."""

    def region(self, mask: Bool[Tensor, "h w"]) -> Bool[Tensor, "h w"]:
        """The sites that count as inside."""
        return mask

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units, shape = probe.units(self.grain, batch), probe.domain.shape(batch.x)
        share = maps.on(units)
        value = torch.full((len(maps), len(batch)), torch.nan, dtype=torch.float64)
        status = [OK] * len(batch)
        for i, reference in enumerate(batch.references):
            if "mask" not in reference:
                continue
            mask = torch.as_tensor(reference["mask"]).bool()
            status[i] = problem_with(mask, units, i)
            if status[i] == OK:
                inside = on_units(self.region(mask.reshape(shape)), units, i)
                for j, own in enumerate(share[:, i, : len(inside)]):
                    value[j, i] = self.judge(own, inside)
        return Scores(value, tuple(tuple(map(self._status, row, status)) for row in value.tolist()))

    def _status(self, value: float, status: str) -> str:
        return f"undefined: {self.nothing}" if status == OK and value != value else status


def on_units(mask: Bool[Tensor, "..."], units: Units, row: int) -> Bool[Tensor, " n"]:
    """Which units of a sample hold a site of its mask."""
    touched = units.index[row][mask.flatten()]
    inside = torch.zeros(int(units.count[row]), dtype=torch.bool)
    inside[touched[touched >= 0]] = True
    return inside


def problem_with(mask: Bool[Tensor, "..."], units: Units, row: int) -> str:
    """`ok`, or why no map of the sample can be compared with its mask."""
    sites = units.index.shape[1]
    if mask.numel() != sites:
        return f"undefined: the mask has {mask.numel()} sites, the input {sites}"
    inside = on_units(mask, units, row)
    if bool(inside.all()):
        return "undefined: the mask holds everything"
    return OK if bool(inside.any()) else "undefined: the mask holds nothing"


@metric(
    "pointing_game",
    family="reference",
    better="higher",
    within=(0, 1),
    needs=("reference:mask",),
    invariant=("monotone", "scale", "shift"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class PointingGame(Located):
    r"""Does the largest value of the map lie in the reference, or near it?

    $\mathbb{1}\big[\min_{j \in R} \lVert \arg\max_i A_i - j \rVert \le \text{tolerance}\big]$

    Where several sites share the largest value, the score is the share of them that hit, which is what picking one
    of them at random is worth: a constant map scores the share of the picture that lies within the tolerance.

    Args:
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

    def judge(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        return inside[values == values.max()].double().mean()


@metric(
    "relevance_mass",
    family="reference",
    better="higher",
    within=(0, 1),
    needs=("reference:mask",),
    invariant=("scale",),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class RelevanceMass(Located):
    r"""How much of the map's positive relevance lies in the reference?

    $\sum_{i \in R} A_i^+ \,/\, \sum_i A_i^+$

    With boxes as reference this is the energy in the box, also called the energy-based pointing game. It is undefined
    where no relevance is positive. A constant map scores the reference's share of the input.

    Paper: arras2022, wang2020.
    Cost per sample: none.
    """

    nothing: ClassVar[str] = "the map has no positive relevance"

    def judge(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        positive = values.double().clamp_min(0)
        hit, missed = positive[inside].sum(), positive[~inside].sum()
        return hit / (hit + missed)


@metric(
    "relevance_rank",
    family="reference",
    better="higher",
    within=(0, 1),
    needs=("reference:mask",),
    invariant=("monotone", "scale", "shift"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class RelevanceRank(Located):
    r"""How many of the most relevant sites, as many as the reference holds, lie in it?

    $|\mathrm{top}_{|R|}(A) \cap R| \,/\, |R|$

    Of sites that share the value at which the top ends, each is in it with the same chance: the score is what is
    expected, and a constant map scores the reference's share of the input.

    Paper: arras2022.  Differs: ties are expected values, not the order of a sort.
    Cost per sample: none.
    """

    def judge(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        return expected_hits(values, inside) / inside.sum()


def expected_hits(values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
    """How many of the top units, as many as are inside, are inside; those tied at the border in proportion."""
    k = int(inside.sum())
    last = values.kthvalue(len(values) - k + 1).values
    above, tied = values > last, values == last
    room = (k - above.sum()).double()
    return (above & inside).sum() + room * (tied & inside).sum() / tied.sum()
