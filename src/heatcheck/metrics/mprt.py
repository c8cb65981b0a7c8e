"""Model parameter randomisation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, NotApplicable, Scores
from heatcheck.domain.base import Domain, Units
from heatcheck.metrics.base import Maps, Metric, first_problem, metric, undefined
from heatcheck.metrics.nearby import gaussian, merge_statuses, noisy_copies
from heatcheck.metrics.similarity import CONSTANT_MAP, SIMILARITIES, check_package, check_similarity, similarity, varied
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe

Explained = tuple[Float[Tensor, "m b u"], tuple[tuple[str, ...], ...]]
"""Maps on units, and their statuses."""


@metric(
    "mprt",
    family="sanity",
    better="lower",
    within=(-1, 1),
    needs=("method", "weights"),
    invariant=("scale", "shift", "sign"),
    version=2,
)
@dataclass(frozen=True, kw_only=True, repr=False)
class Randomisation(Metric):
    r"""Does the map change when the model's weights are replaced by noise?

    $\frac1L\sum_{l=1}^{L} s\big(A(x; f),\, A(x; f_l)\big)$, where in $f_l$ the weights up to layer l are randomised

    The stored curve holds the similarity after each layer. A constant map of a randomised model counts as similarity
    0. A map that does not depend on the weights scores 1.

    Args:
        layers: how many of the layers with weights to stop at, evenly spread, first and last included; 0 for all.
        order: `top_down` randomises from the output to the layer, `bottom_up` from the input, `independent` the
            layer alone.
        similarity: `spearman` (rank correlation), or `ssim` of maps scaled to [0, 1], for pictures.
        variant: `plain`; `smooth` compares means of maps over noisy copies of the input; `efficient` randomises all
            weights at once and scores minus the relative rise of the map's entropy, $-(H(A') - H(A))/H(A)$, where H is
            that of a histogram of the map's values (order, layers and similarity are then ignored).
        copies: noisy copies, if smooth.
        noise: standard deviation of their noise, as a share of each input's range.
        bins: of the histogram, if efficient; equally wide, from the map's smallest to its largest value.
        units: where maps are compared.

    Paper: adebayo2018, hedstrom2023.  Differs: draws keep each tensor's mean and deviation, and running statistics
    stay; the same draws for all samples; few layers by default; signed maps (explain with `post=abs` for others); the
    untouched model is not averaged in; the efficient variant's sign is turned so that lower is better here too.
    Cost per sample: `layers` explanations per method; smooth: `copies * (layers + 1)`; efficient: 1.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "order": ("top_down", "bottom_up", "independent"),
        "similarity": SIMILARITIES,
        "variant": ("plain", "smooth", "efficient"),
    }

    revised: ClassVar[Mapping[str, int]] = {"text": 3}

    layers: int = 4
    order: str = "top_down"
    similarity: str = "spearman"
    variant: str = "plain"
    copies: int = 10
    noise: float = 0.1
    bins: int = 100
    units: str = "site"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("layers", 0), ("copies", 1), ("bins", 2), ("noise", 0)):
            if not getattr(self, name) >= least:
                raise SpecError(f"metric mprt: {name}={getattr(self, name)} must be at least {least}")

    def applies_to(self, domain: Domain) -> None:
        super().applies_to(domain)
        check_package(self.similarity)

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        if self.variant == "efficient":
            return self._efficient(probe, batch, maps, units)
        shape = maps.domain.shape(batch.x)
        check_similarity(self.similarity, units, shape)
        stops = self._stops(probe.model.weighted_layers(batch.x))
        before, status = maps.on(units), maps.status
        if self.variant == "smooth":
            before, status = self._explained(probe, batch, maps, units)
        curve = []
        for _, layers in stops:
            after, theirs = self._randomised(probe, batch, maps, units, layers)
            curve.append(similarity(self.similarity, before, after, units, shape))
            status = tuple(map(first_problem, status, theirs))
        values = torch.stack(curve, -1)
        scores = undefined(values.mean(-1), varied(before, units), CONSTANT_MAP)
        return Scores(
            scores.value,
            tuple(map(first_problem, status, scores.status)),
            values,
            tuple(share for share, _ in stops),
        )

    def _efficient(self, probe: Probe, batch: Batch, maps: Maps, units: Units) -> Scores:
        before, status = maps.on(units), maps.status
        after, theirs = self._randomised(probe, batch, maps, units, "")
        was, now = (self._histogram_entropy(values, units) for values in (before, after))
        scores = undefined((was - now) / was, varied(before, units), CONSTANT_MAP)
        return Scores(scores.value, tuple(map(first_problem, status, theirs, scores.status)))

    def _randomised(self, probe: Probe, batch: Batch, maps: Maps, units: Units, layers: str | list[str]) -> Explained:
        """The maps of a copy of the model with some layers randomised."""
        return self._explained(probe.randomised(layers, batch.streams.seed), batch, maps, units)

    def _explained(self, probe: Probe, batch: Batch, maps: Maps, units: Units) -> Explained:
        if self.variant != "smooth":
            again = Maps(maps.explain(batch, probe), maps.domain, batch)
            return again.on(units), again.status
        total = torch.zeros(len(maps), len(batch), units.width, dtype=torch.float64, device=batch.device)
        status = [list(own) for own in maps.status]
        for rows, part in noisy_copies(probe, batch, self.copies, gaussian, self.noise, "mprt"):
            again = Maps(maps.explain(part, probe), maps.domain, part)
            total.index_add_(1, rows, again.on(units.take(rows)).double())
            merge_statuses(status, rows, again.status)
        return total / self.copies, tuple(map(tuple, status))

    def _stops(self, names: list[str]) -> list[tuple[float, list[str]]]:
        """The share of layers passed at each stop, and the layers that are randomised there."""
        walk = names if self.order == "bottom_up" else names[::-1]
        n = self._stop_count(walk)
        last = [round(i * (len(walk) - 1) / max(1, n - 1)) for i in range(n)]
        return [((k + 1) / len(walk), walk[k : k + 1] if self.order == "independent" else walk[: k + 1]) for k in last]

    def _stop_count(self, names: list[str]) -> int:
        if not names:
            raise NotApplicable("the model has no weights to randomise")
        return min(self.layers or len(names), len(names))

    def _histogram_entropy(self, values: Float[Tensor, "m b u"], units: Units) -> Float[Tensor, "m b"]:
        found = torch.zeros(values.shape[:2], dtype=torch.float64)
        here = values.double().cpu().numpy()
        for i, n in enumerate(units.counts):
            for j, own in enumerate(here[:, i, :n]):
                share = np.histogram(own, self.bins)[0] / max(1, n)
                share = share[share > 0]
                found[j, i] = float(-(share * np.log(share)).sum())
        return found.to(values.device)

    def reexplanation_count(self, shape: Shape) -> int:
        if self.variant == "efficient":
            return 1
        stops = self.layers
        if shape.model is not None:
            try:
                stops = self._stop_count(shape.model.weighted_layers(shape.x))
            except NotApplicable:
                return 0
        return self.copies * (stops + 1) if self.variant == "smooth" else stops
