"""Separation of the sites inside a known mask from the others: SynScore."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.metrics.base import metric
from heatcheck.metrics.curves import average_ranks
from heatcheck.metrics.localisation import MASK_FACTS, MaskMetric


@metric("synscore", invariant=("monotone", "scale", "shift"), **MASK_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class SyntheticTruth(MaskMetric):
    r"""How well does the map separate the sites that decide the class from the others?

    $\mathrm{AUC}(\mathrm{Syn}(x), A(x, f))$ or $\mathrm{AP}(\mathrm{Syn}(x), A(x, f))$

    Meant for models that were trained on pictures with a synthetic patch (M4's squares of 60 × 60), where the mask is
    the truth; it works on any mask.

    Args:
        kind: `auc`, the area under the ROC curve (0.5 for a constant map), or `ap`, average precision (the mask's
            share of the input for a constant map).
        units: what is separated: sites, or units such as `word`, whose value is the sum over their sites and which are
            inside if one of their sites is; a planted word then counts once, however many tokens it has. Sums favour
            large units: on units of different sizes a constant map no longer scores 0.5.

    Paper: li2023.  Differs: the paper does not say which of the two its table shows; ours is `auc` by default.
    Cost per sample: none.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"kind": ("auc", "ap")}

    kind: str = "auc"

    def compare(self, values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
        return roc_auc(values, inside) if self.kind == "auc" else average_precision(values, inside)


def roc_auc(values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
    """The probability that a unit inside has a higher value than one outside; ties count half.

    >>> float(roc_auc(torch.tensor([3.0, 1.0, 1.0, 0.0]), torch.tensor([True, True, False, False])))
    0.875
    """
    p = int(inside.sum())
    ranks = average_ranks(values)[inside].sum()
    return (ranks - p * (p + 1) / 2) / (p * (len(values) - p))


def average_precision(values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
    """Precision at each distinct value, weighted by the recall that it adds.

    >>> float(average_precision(torch.tensor([3.0, 2.0, 1.0, 0.0]), torch.tensor([True, False, False, True])))
    0.75
    """
    gained, precision = _precision_curve(values, inside)
    return (gained * precision).sum() / inside.sum()


def trapezoid_precision(values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
    """The area under precision over recall by the trapezoid rule, from precision 1 at recall 0.

    >>> round(float(trapezoid_precision(torch.tensor([3.0, 2.0, 1.0, 0.0]), torch.tensor([True, False, False, True]))), 6)
    0.708333
    """
    gained, precision = _precision_curve(values, inside)
    before = torch.cat([precision.new_ones(1), precision[:-1]])
    return (gained * (before + precision) / 2).sum() / inside.sum()


def _precision_curve(
    values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]
) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    """At each distinct value, from the highest: how many units inside it adds, and the precision down to it."""
    ordered, order = values.sort(descending=True)
    hits = inside[order].double().cumsum(0)
    ends = torch.nonzero(
        torch.cat([ordered[1:] != ordered[:-1], torch.ones(1, dtype=torch.bool, device=values.device)])
    ).flatten()
    return torch.diff(hits[ends], prepend=hits.new_zeros(1)), hits[ends] / (ends + 1)
