"""The random-logit test."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from heatcheck.core.types import Batch, Scores, Streams
from heatcheck.domain.base import Domain
from heatcheck.metrics.base import Maps, Metric, first_problem, metric, undefined
from heatcheck.metrics.similarity import CONSTANT_MAP, SIMILARITIES, check_package, check_similarity, similarity, varied
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe


@metric(
    "random_logit",
    family="sanity",
    better="lower",
    within=(-1, 1),
    needs=("method",),
    invariant=("scale", "shift", "sign"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class RandomLogit(Metric):
    r"""Does the map change when another class is explained?

    $s\big(A(x; t),\, A(x; t')\big)$ with $t'$ drawn from the classes other than $t$; a map that ignores the class
    scores 1, a map for the other class that is constant 0

    With two classes the second logit is often the negative of the first, and a gradient then scores about -1.

    Args:
        similarity: `spearman` (rank correlation), or `ssim` of maps scaled to [0, 1], for pictures.
        units: where maps are compared.

    Paper: sixt2020.  Differs: rank correlation by default, not SSIM.
    Cost per sample: one explanation per method.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"similarity": SIMILARITIES}

    similarity: str = "spearman"
    units: str = "site"

    def applies_to(self, domain: Domain) -> None:
        super().applies_to(domain)
        check_package(self.similarity)

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        shape = maps.domain.shape(batch.x)
        check_similarity(self.similarity, units, shape)
        classes = probe.model.class_count(batch.x)
        before = maps.on(units)
        if classes < 2:
            nowhere = torch.zeros(before.shape[:2], dtype=torch.bool, device=batch.device)
            return undefined(before[..., 0].double(), nowhere, "the model has only one class")
        other = replace(batch, target=other_classes(batch.streams, batch.target, classes))
        again = Maps(maps.explain(other, probe), maps.domain, other)
        value = similarity(self.similarity, before, again.on(units), units, shape)
        scores = undefined(value, varied(before, units), CONSTANT_MAP)
        return Scores(scores.value, tuple(map(first_problem, maps.status, again.status, scores.status)))

    def reexplanation_count(self, shape: Shape) -> int:
        return 0 if shape.model is not None and shape.model.class_count(shape.x) < 2 else 1


def other_classes(streams: Streams, target: Int[Tensor, " b"], classes: int) -> Int[Tensor, " b"]:
    """A random class other than the target for each sample, all equally likely.

    >>> other_classes(Streams(0, ("a", "b")), torch.tensor([0, 1]), 2)
    tensor([1, 0])
    """
    drawn = streams.draw("logit", lambda rng: torch.randint(classes - 1, (), generator=rng))
    return drawn + (drawn >= target).long()
