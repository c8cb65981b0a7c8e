"""Zero in leaf space, for every modality."""

from dataclasses import dataclass

import torch

from heatcheck.core.types import Batch, Inputs
from heatcheck.domain.base import Domain
from heatcheck.fills.base import Fill, fill


@fill("zero", on=("image", "text"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Zero(Fill):
    """Zero after normalisation: the data set's mean colour for most models, black for some (B-cos).

    On texts, the zero embedding; special tokens keep theirs.
    """

    def full(self, domain: Domain, batch: Batch) -> Inputs:
        nothing = domain.with_leaf(batch.x, torch.zeros_like(domain.leaf(batch.x)))
        return domain.delete(batch.x, torch.zeros_like(domain.deletable(batch.x)), nothing)
