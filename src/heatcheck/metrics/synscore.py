"""Agreement with a known mask."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.engine.probe import Probe
from heatcheck.metrics.base import Maps, Metric, metric
from heatcheck.metrics.curves import average_ranks
from heatcheck.types import OK, Batch, Scores


@metric(
    "synscore",
    family="reference",
    better="higher",
    within=(0, 1),
    needs=("reference:mask",),
    invariant=("monotone", "scale", "shift"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class SyntheticTruth(Metric):
    """How well does the map separate the sites that decide the class from the others?

    Args:
        kind: `auc`, the area under the ROC curve (0.5 for a constant map), or `ap`, average precision (the mask's
            share of the input for a constant map).

    Paper: li2023.
    Cost per sample: none.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"kind": ("auc", "ap")}

    kind: str = "auc"

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        free = probe.domain.deletable(batch.x)
        judge = roc_auc if self.kind == "auc" else average_precision
        value = torch.full((len(maps), len(batch)), torch.nan, dtype=torch.float64)
        status = [OK] * len(batch)
        for i, reference in enumerate(batch.references):
            if "mask" not in reference:
                continue
            mask = torch.as_tensor(reference["mask"]).bool()
            if mask.numel() != free.shape[1]:
                status[i] = f"undefined: the mask has {mask.numel()} sites, the input {free.shape[1]}"
                continue
            inside = mask.flatten()[free[i]]
            if not 0 < int(inside.sum()) < len(inside):
                status[i] = "undefined: the mask holds everything or nothing"
                continue
            for j, site_map in enumerate(maps.sites()):
                value[j, i] = judge(site_map[i, free[i]], inside)
        return Scores(value, (tuple(status),) * len(maps))


def roc_auc(values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
    """The chance that a site inside ranks above one outside; equal values count half."""
    p = int(inside.sum())
    ranks = average_ranks(values)[inside].sum()
    return (ranks - p * (p + 1) / 2) / (p * (len(values) - p))


def average_precision(values: Float[Tensor, " n"], inside: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
    """Precision at each distinct value, weighted by the recall it adds."""
    ordered, order = values.sort(descending=True)
    hits = inside[order].double().cumsum(0)
    ends = torch.nonzero(torch.cat([ordered[1:] != ordered[:-1], torch.ones(1, dtype=torch.bool)])).flatten()
    gained = torch.diff(hits[ends], prepend=hits.new_zeros(1))
    return (gained * hits[ends] / (ends + 1)).sum() / hits[-1]
