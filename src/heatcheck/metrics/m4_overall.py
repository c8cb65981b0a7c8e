"""M4's overall score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from heatcheck.core.types import OK, Scores
from heatcheck.metrics.base import Composite, metric
from heatcheck.metrics.curves import average_ranks


@metric("m4_overall", family="composite", better="higher")
@dataclass(frozen=True, kw_only=True, repr=False)
class Overall(Composite):
    r"""M4's overall score: the sum of its five metrics.

    $\mathrm{MoRF} + \mathrm{ABPC} + \mathrm{PScore} - \mathrm{INFD} + \mathrm{SynScore}$

    A run that asks for it measures all five, with the profile's parameters. The sum is computed per sample whenever a
    run is read, and not stored: where it is standardised, adding a method changes it.

    SynScore is that of the network of the same architecture that was trained to find squares, where the folder has a
    study of it (docs/synthetic.md): its mean over pictures is added to every sample's sum, since the pictures are
    others. Else it is the model's own, on data with masks.

    Args:
        standardise: `none` adds the raw scores, of which INFD is by far the largest; `zscore` first subtracts the mean
            over methods and divides by their standard deviation (of means over samples, without controls); `rank` adds
            each sample's ranks among the methods instead, from 0 (worst) to 1.
        incomplete: `status` leaves the sum undefined where one of the five is missing; `leave_out` sums those that
            exist for the model at all (texts have no SynScore, a single model has no PScore).

    Paper: li2023.  Differs: standardised sums are ours.
    Cost per sample: that of its five parts.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "standardise": ("none", "zscore", "rank"),
        "incomplete": ("status", "leave_out"),
    }
    parts: ClassVar[Mapping[str, float]] = {"morf": 1, "abpc": 1, "pscore": 1, "infidelity": -1, "synscore": 1}
    lent: ClassVar[Mapping[str, str]] = {"synscore": "synthetic"}

    standardise: str = "none"
    incomplete: str = "status"

    def combine(self, found: Mapping[str, Scores], real: Sequence[bool]) -> Scores:
        used = {id: s for id, s in found.items() if self.incomplete == "status" or not s.value.isnan().all()}
        if not used:
            used = dict(found)
        value = torch.stack([sign * used[id].value for id, sign in self.parts.items() if id in used])
        good = ~value.isnan().any(0)
        status = tuple(
            tuple(self._reason({id: s.status[j][i] for id, s in used.items()}) for i in range(value.shape[2]))
            for j in range(value.shape[1])
        )
        if self.standardise == "zscore":
            value = torch.stack([_standard(part, good, torch.tensor(real)) for part in value])
        if self.standardise == "rank":
            value = torch.stack([_ranked(part, good) for part in value])
        return Scores(torch.where(good, value.sum(0), torch.nan), status)

    @staticmethod
    def _reason(status: Mapping[str, str]) -> str:
        """`ok`, or the first part that has no score, with its own reason."""
        for id, own in status.items():
            if own != OK:
                kind, _, why = own.partition(": ")
                return f"{kind}: m4_overall needs {id}, which has no score here: {why}"
        return OK


def _standard(part: Float[Tensor, "m b"], good: Bool[Tensor, "m b"], real: Bool[Tensor, " m"]) -> Float[Tensor, "m b"]:
    """Z-scores by the mean and standard deviation of the real methods' means; zero where these are all equal."""
    mean = torch.where(good, part, 0.0).sum(1) / good.sum(1)
    known = mean[real & good.any(1)] if bool((real & good.any(1)).any()) else mean[good.any(1)]
    spread = known.std(correction=0)
    return (part - known.mean()) / spread if len(known) and spread > 0 else torch.zeros_like(part)


def _ranked(part: Float[Tensor, "m b"], good: Bool[Tensor, "m b"]) -> Float[Tensor, "m b"]:
    """Per sample, the rank of each method that has a score: 0 for the worst, 1 for the best."""
    ranked = torch.full_like(part, torch.nan)
    for i in range(part.shape[1]):
        own = good[:, i]
        n = int(own.sum())
        ranked[own, i] = (average_ranks(part[own, i]) - 1) / max(1, n - 1)
    return ranked
