"""Comprehensiveness and sufficiency."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from heatcheck.core.types import Batch, Scores
from heatcheck.metrics.base import Maps, Metric, metric
from heatcheck.metrics.curves import mirrored
from heatcheck.metrics.removal import LEAST, MOST, RANKED, curve_scores, relevance_places, removal_curves
from heatcheck.probe.asks import CLEAN, Ask, Shape, removal
from heatcheck.probe.probe import Probe

PERCENT = (1, 5, 10, 20, 50)
"""Sizes of a rationale, in percent of the units."""


def rationale_size(n: int | Int[Tensor, " b"], percent: int) -> int | Int[Tensor, " b"]:
    """How many units a rationale has: ⌈q·n⌉ of n, so at least one where there is any.

    >>> [rationale_size(30, percent) for percent in PERCENT]
    [1, 2, 3, 6, 15]
    """
    return -(-n * percent // 100)


@dataclass(frozen=True, kw_only=True, repr=False)
class Erasure(Metric):
    """The fall of the output when the most relevant units are deleted, or when only they are left."""

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"ties": RANKED}
    order: ClassVar[str]
    """Whether the most relevant units are deleted, or the least relevant."""

    units: str = "site"
    fill: str = "auto"
    output: str = "prob"
    ties: str = "random"

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        place = relevance_places(maps, units, self.ties)
        sizes = torch.stack([torch.as_tensor(rationale_size(units.count, q), device=batch.device) for q in PERCENT], -1)
        if self.order == MOST:
            gone, share = sizes, tuple(q / 100 for q in PERCENT)
        else:
            place = mirrored(place, units)
            gone, share = (units.count[:, None] - sizes).flip(-1), tuple(1 - q / 100 for q in reversed(PERCENT))
        curve = removal_curves(probe, batch, self.fill, units, place, gone, self.output)
        fall = probe.clean(batch).read(self.output)[:, None] - curve
        return curve_scores(fall.mean(-1), curve, units, share)

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        n = shape.units(self.units)
        sizes = [int(rationale_size(n, q)) for q in PERCENT]
        gone = sizes if self.order == MOST else [n - size for size in sizes]
        return {CLEAN} | removal(method, self.fill, self.units, shape, f"{self.order} {self.ties}", gone)


@metric("comprehensiveness", family="curve", better="higher", within=(-1, 1), invariant=("monotone", "scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Comprehensiveness(Erasure):
    r"""How much does the output fall without the units that matter most?

    The mean of $p_t(x) - p_t(x \text{ without the top } q)$ over $q$ = 1, 5, 10, 20 and 50 %; the top q are
    $\lceil qn \rceil$ units, so that a short text loses at least one token.

    Args:
        units: what is deleted; pixels or tokens.
        fill: what replaces it.
        output: where the fall is read.
        ties: how equal units are ordered: `random` (per sample, the same for all methods), `index`, `reverse_index`.

    Paper: deyoung2020.  Differs: deleted tokens become the fill, where ERASER closes the gap (`fill=remove`).
    Cost per sample: 5 forwards per method; the clean input is shared.
    """

    order: ClassVar[str] = MOST


@metric("sufficiency", family="curve", better="lower", within=(-1, 1), invariant=("monotone", "scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Sufficiency(Erasure):
    r"""How much does the output fall when only the units that matter most are left?

    The mean of $p_t(x) - p_t(\text{only the top } q)$ over $q$ = 1, 5, 10, 20 and 50 %; the top q are
    $\lceil qn \rceil$ units.

    Args:
        units: as in `comprehensiveness`.
        fill: as in `comprehensiveness`.
        output: as in `comprehensiveness`.
        ties: as in `comprehensiveness`.

    Paper: deyoung2020.  Differs: deleted tokens become the fill, where ERASER closes the gap (`fill=remove`).
    Cost per sample: 5 forwards per method; the clean input is shared.
    """

    order: ClassVar[str] = LEAST
