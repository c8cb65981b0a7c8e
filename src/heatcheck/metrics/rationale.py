"""Agreement of the map with the tokens that annotators marked as the rationale."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.core.devices import CPU, moved
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Scores
from heatcheck.domain.base import Units
from heatcheck.metrics.base import Maps, Metric, metric
from heatcheck.metrics.localisation import MASK_FACTS, MaskMetric, top_hits, units_inside, usable_masks
from heatcheck.metrics.removal import relevance_places
from heatcheck.metrics.synscore import average_precision, trapezoid_precision
from heatcheck.probe.probe import Probe

Span = tuple[int, int]
"""The first unit of a stretch, and the one behind its last."""
OVERLAP = 0.5
"""The share of two spans' union that they must have in common to count as the same."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Rationale(MaskMetric):
    """The base of metrics that compare token by token; a word is marked if one of its tokens is."""

    units: str = "token"


def check_top(id: str, top: float) -> None:
    """Refuse what is no share of the tokens."""
    if not 0 <= top < 1:
        raise SpecError(f"metric {id}: top={top!r} must be a share of the tokens, from 0 to below 1")


def top_size(top: float, inside: Bool[Tensor, " n"]) -> int:
    """How many tokens a map's rationale has: a share of all, or as many as are marked.

    >>> top_size(0.3, torch.tensor([True, False, False, False])), top_size(0.0, torch.tensor([True, True, False, False]))
    (2, 2)
    """
    return math.ceil(round(top * len(inside), 9)) if top else int(inside.sum())


@metric("rationale_f1", on=("text",), invariant=("monotone", "scale", "shift"), **MASK_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class RationaleF1(Rationale):
    r"""How well do the most relevant tokens agree with those that annotators marked?

    $F_1 = 2|T \cap R| \,/\, (|T| + |R|)$, T the most relevant tokens, as many as R has

    As T and R are equally large, precision, recall and F1 are equal. Tokens tied at the end of T are counted in
    proportion: a constant map scores the rationale's share of the tokens. The score is undefined where no token is
    marked, or all are.

    Args:
        units: `token`, or `word` or `sentence`, whose relevance is the sum over their tokens: this favours long ones,
            and raises the scores of the random and the constant map.
        top: the share of the tokens that T has, such as the data's mean rationale, as in ERASER; 0 for as many as R.

    Paper: deyoung2020.  Differs: T is as long as the sample's own rationale, not as the data's mean rationale.
    Cost per sample: none.
    """

    top: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_top(self.id, self.top)

    def compare(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        k = top_size(self.top, inside)
        return 2 * top_hits(values, inside, k) / (k + inside.sum())


@metric("rationale_iou_f1", on=("text",), invariant=("monotone", "scale", "shift"), **MASK_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class RationaleIOUF1(Metric):
    r"""How many stretches of the most relevant tokens are, by half, stretches that annotators marked?

    $F_1 = 2PR \,/\, (P + R)$ with $P = |H| / |S|$ and $R = |H| / |M|$: M are the marked spans, S the stretches of
    neighbours among the most relevant tokens, as many as are marked, and H those of S that have an intersection over
    union of at least a half with one of M

    Of tokens tied at the end, a random choice, the same for all methods, belongs to them: a constant map scores what a
    random one does. A span that the model cannot read, as the text is too long for it, does not count; of one that it
    reads in part, that part counts. Where only a mask is known, its stretches are the marked spans. The score is
    undefined where no token is marked, or all are.

    Args:
        units: as in `rationale_f1`.
        top: as in `rationale_f1`.

    Paper: deyoung2020.  Differs: F1 per text, where ERASER computes it from the mean precision and the mean recall of all
        texts; as many tokens as the sample's own rationale has, not as the data's mean.
    Cost per sample: none.
    """

    units: str = "token"
    top: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_top(self.id, self.top)

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        place, index, count = moved(CPU, relevance_places(maps, units, "random"), units.index, units.count)
        units = Units(units.name, index, count, units.width)
        value = torch.full((len(maps), len(batch)), torch.nan, dtype=torch.float64)
        masks, status = usable_masks(batch, units)
        for i, mask in masks.items():
            inside = units_inside(mask, units, i)
            marked, k = marked_spans(batch.references[i], units, i), top_size(self.top, inside)
            for j in range(len(maps)):
                value[j, i] = span_f1(stretches(place[j, i, : len(inside)] < k), marked)
        return Scores(value, (tuple(status),) * len(maps))


def marked_spans(reference: Mapping[str, Any], units: Units, row: int) -> list[Span]:
    """The marked spans on a sample's units: each as it was marked where that is known, else the stretches of the mask."""
    masks = reference.get("span_masks")
    if masks is None:
        masks = [torch.as_tensor(reference["mask"]).bool().cpu().flatten()]
    inside = [units_inside(own, units, row) for own in masks]
    return sorted({span for own in inside for span in stretches(own)})


def stretches(chosen: Bool[Tensor, " n"]) -> list[Span]:
    """Where chosen units lie side by side.

    >>> stretches(torch.tensor([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    found, at = [], 0
    for inside, group in groupby(chosen.tolist()):
        many = len(list(group))
        if inside:
            found.append((at, at + many))
        at += many
    return found


def span_f1(found: Sequence[Span], marked: Sequence[Span]) -> float:
    """F1 of spans, where a found one is right if it overlaps a marked one by half of what both cover.

    >>> span_f1([(0, 2), (5, 6)], [(0, 3)])
    0.6666666666666666
    """
    right = sum(any(_overlap(own, other) >= OVERLAP for other in marked) for own in found)
    return 2 * right / (len(found) + len(marked))


def _overlap(a: Span, b: Span) -> float:
    common = max(0, min(a[1], b[1]) - max(a[0], b[0]))
    return common / (a[1] - a[0] + b[1] - b[0] - common)


@metric("rationale_auprc", on=("text",), invariant=("monotone", "scale", "shift"), **MASK_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class RationaleAUPRC(Rationale):
    r"""What is the average precision of the map at finding the tokens that annotators marked?

    $\sum_k (\mathrm{recall}_k - \mathrm{recall}_{k-1})\,\mathrm{precision}_k$ over the map's distinct values

    A constant map scores the rationale's share of the tokens. Undefined where no token is marked, or all are.

    Args:
        units: as in `rationale_f1`.
        curve: how precision is averaged over recall: in `steps`, or by the `trapezoid` rule from precision 1 at recall 0,
            as in ERASER, which favours maps with few distinct values: a constant one scores half of 1 plus the share.

    Paper: deyoung2020.  Differs: average precision, not the trapezoid rule, which interpolates between thresholds.
    Cost per sample: none.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"curve": ("steps", "trapezoid")}

    curve: str = "steps"

    def compare(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        return average_precision(values, inside) if self.curve == "steps" else trapezoid_precision(values, inside)
