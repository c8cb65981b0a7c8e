"""The smallest crop that still shows the class."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from scipy import ndimage
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs, Scores
from heatcheck.metrics.base import Maps, Metric, metric, no_units_reason, undefined
from heatcheck.metrics.removal import RANKED, relevance_places
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe

SMALLEST = 0.05
"""Smaller boxes count as this share of the picture."""
_MARGIN = 0.05


@metric(
    "saliency_metric", family="imputation", better="lower", within=(-2.995732273553991, None), on=("image",),
    invariant=("monotone", "scale", "shift"),
)  # fmt: skip
@dataclass(frozen=True, kw_only=True, repr=False)
class SaliencyMetric(Metric):
    r"""How small a crop around the salient region still shows the class?

    $s = \log \max(a, 0.05) - \log p_t(\text{crop})$, where $a$ is the share of the picture inside the tightest box
    around the most relevant $q$ of all units, and the crop is resized to the size of the picture

    The score is the mean over $q = 1/L, \dots, (L-1)/L$. A map whose box is the whole picture gets $-\log p_t(x)$.

    Args:
        steps: L; q runs from 1/L to (L − 1)/L.
        share: one q instead of all of them; 0 for all.
        units: what the salient region is made of; pixels.
        box: around the whole region (`tight`), around the connected part of it that holds the most relevant unit
            (`component`), or without the outermost 5 % of it on every side (`mass`), as one outlier widens a tight box.
        ties: how equal units are ordered, as in `morf`.

    Paper: dabkowski2017, cohen2025.  Differs: the region is a share of the units, not what exceeds a tuned threshold.
    Cost per sample: `steps − 1` forwards per method.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "box": ("tight", "component", "mass"),
        "ties": RANKED,
    }

    steps: int = 10
    share: float = 0.0
    units: str = "site"
    box: str = "tight"
    ties: str = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 2:
            raise SpecError(f"metric {self.id}: steps={self.steps} must be at least 2")
        if not 0 <= self.share <= 1:
            raise SpecError(f"metric {self.id}: share={self.share!r} is not between 0 and 1")

    @property
    def shares(self) -> tuple[float, ...]:
        """The values of q."""
        return (self.share,) if self.share else tuple(k / self.steps for k in range(1, self.steps))

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        domain = probe.domain
        h, w = domain.shape(batch.x)
        units = probe.units(self.units, batch)
        salient = self._counts(units.count)
        never = torch.iinfo(torch.int32).max
        place = units.spread(relevance_places(maps, units, self.ties).to(torch.int32), outside=never)
        m, b, k = len(maps), len(batch), salient.shape[1]
        sample = torch.arange(b, device=batch.device).repeat_interleave(m * k)
        grid = place.reshape(m, b, h, w)
        edges = torch.stack([self._edges(grid[j, i], salient[i]) for i in range(b) for j in range(m)]).reshape(-1, 4)

        def crops(index: Int[Tensor, " n"]) -> Inputs:
            whole = domain.leaf(batch.x)
            cut = [whole[i, None, :, t:d, le:r] for i, (t, d, le, r) in _pairs(sample[index], edges[index])]
            resized = [F.interpolate(c, (h, w), mode="bilinear", align_corners=False) for c in cut]
            return domain.with_leaf(batch.x.take(sample[index]), torch.cat(resized))

        logprob = torch.empty(len(sample), dtype=torch.float64, device=batch.device)
        for index, answers in probe.answers(batch, sample, crops):
            logprob[index] = answers.read("logprob")
        area = ((edges[:, 1] - edges[:, 0]) * (edges[:, 3] - edges[:, 2])).double() / (h * w)
        s = (area.clamp_min(SMALLEST).log() - logprob).reshape(b, m, k).transpose(0, 1).contiguous()
        there = (units.count > 0).expand(m, b)
        return undefined(s.mean(-1), there, no_units_reason(self.units), curve=s, share=self.shares)

    def _counts(self, count: Int[Tensor, " b"]) -> Int[Tensor, "b k"]:
        """How many units are salient at each q: ⌊q·n⌋, but at least one."""
        if self.share:
            return (self.share * count[:, None].double()).floor().long().clamp_min(1)
        return (torch.arange(1, self.steps, device=count.device) * count[:, None] // self.steps).clamp_min(1)

    def _edges(self, place: Int[Tensor, "h w"], salient: Int[Tensor, " k"]) -> Int[Tensor, "k 4"]:
        """Top, bottom, left, right (ends excluded) of the box at each q."""
        if self.box == "tight":
            touched = [place.amin(1) < salient[:, None], place.amin(0) < salient[:, None]]
            return torch.stack([end for along in touched for end in _ends(along)], -1)
        region = place < salient[:, None, None]
        if self.box == "component":
            region = torch.stack([_around(r, place) for r in region])
        margin = _MARGIN if self.box == "mass" else 0.0
        return torch.stack([end for dim in (2, 1) for end in _ends(_inner(region.sum(dim), margin))], -1)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return len(self.shares), 0


def _pairs(rows: Int[Tensor, " n"], edges: Int[Tensor, "n 4"]) -> list[tuple[int, list[int]]]:
    return list(zip(rows.tolist(), edges.tolist(), strict=True))


def _ends(touched: Bool[Tensor, "k n"]) -> tuple[Int[Tensor, " k"], Int[Tensor, " k"]]:
    """The first true index of each row, and one past the last.

    >>> _ends(torch.tensor([[False, True, False, True, False]]))
    (tensor([1]), tensor([4]))
    """
    n = touched.shape[1]
    first = touched.int().argmax(1)
    return first, n - touched.flip(1).int().argmax(1)


def _inner(weight: Int[Tensor, "k n"], margin: float) -> Bool[Tensor, "k n"]:
    """The indices with weight, without the outermost `margin` of the weight on either side.

    >>> _inner(torch.tensor([[1, 0, 8, 1]]), 0.1)
    tensor([[False, False,  True, False]])
    """
    total = weight.sum(1, keepdim=True)
    before, after = weight.cumsum(1), weight.flip(1).cumsum(1).flip(1)
    return (weight > 0) & (before > margin * total) & (after > margin * total)


def _around(region: Bool[Tensor, "h w"], place: Int[Tensor, "h w"]) -> Bool[Tensor, "h w"]:
    """The connected part of a region that contains the most relevant site; diagonal neighbours are connected.

    >>> _around(torch.tensor([[True, False, True]]), torch.tensor([[1, 2, 0]]))
    tensor([[False, False,  True]])
    """
    parts, _ = ndimage.label(region.cpu().numpy(), np.ones((3, 3), dtype=int))
    return torch.from_numpy(parts == parts.flat[int(place.argmin())]).to(region.device)
