"""Average drop and increase in confidence."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.types import Batch, Inputs, NotApplicable, Scores
from heatcheck.domain.base import Units
from heatcheck.fills.base import Fill
from heatcheck.metrics.base import Maps, SiteMetric, metric, spread_rows, undefined
from heatcheck.probe.asks import CLEAN, Ask, Shape
from heatcheck.probe.probe import Probe

CONSTANT = "the map is constant, or the clean probability is zero"


@dataclass(frozen=True, kw_only=True, repr=False)
class Confidence(SiteMetric):
    """The class's probability for x ⊙ Ā: units with high values are kept, those with low values fade into the fill."""

    fill: str = "auto"

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        before, after, ok = self.faded(probe, batch, maps)
        return undefined(self.compare(before, after), ok, CONSTANT)

    @abstractmethod
    def compare(self, before: Float[Tensor, "m b"], after: Float[Tensor, "m b"]) -> Float[Tensor, "m b"]:
        """The score of the probabilities before and after fading."""

    def faded(
        self, probe: Probe, batch: Batch, maps: Maps
    ) -> tuple[Float[Tensor, "m b"], Float[Tensor, "m b"], Bool[Tensor, "m b"]]:
        """The probability before and after fading, and where the two can be compared."""
        domain = probe.domain
        filler: Fill = catalogue.build("fill", self.fill)
        if type(filler).erase is not Fill.erase:
            raise NotApplicable(f"{self.id} fades units in place, which fill={self.fill} cannot do")
        full = filler.full(domain, batch)
        keep, varied = self._shown(maps, probe.units(self.units, batch))
        m, b = len(maps), len(batch)
        method, sample, _ = spread_rows(m, b, 1, probe.device)

        def make(i: Int[Tensor, " n"]) -> Inputs:
            rows = sample[i]
            return domain.delete(batch.x.take(rows), keep[method[i], rows], full.take(rows))

        after = torch.empty(m, b, dtype=torch.float64, device=batch.device)
        for index, answers in probe.answers(batch, sample, make):
            after[method[index], sample[index]] = answers.read("prob")
        before = probe.clean(batch).read("prob").expand(m, b)
        return before, after, varied & (before > 0)

    def _shown(self, maps: Maps, units: Units) -> tuple[Float[Tensor, "m b s"], Bool[Tensor, "m b"]]:
        """Ā, the maps on units scaled to [0, 1], at the sites of each unit, and which maps are not constant there."""
        values, free = maps.on(units).double(), units.valid
        low = torch.where(free, values, torch.inf).amin(-1, keepdim=True)
        high = torch.where(free, values, -torch.inf).amax(-1, keepdim=True)
        varied = high > low
        shown = torch.where(varied & free, (values - low) / (high - low), 1.0)
        return units.spread(shown, outside=1.0), varied.squeeze(-1)

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        return {CLEAN}

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 1, 0


@metric("average_drop", family="curve", better="lower", within=(0, 1), invariant=("scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class AverageDrop(Confidence):
    r"""What share of the class's probability is lost when the input is multiplied by the map?

    $\max(0,\; p_t(x) - p_t(x \odot \bar A)) / p_t(x)$, where $\bar A$ is the map scaled to [0, 1] and
    $x \odot \bar A$ lies that far from the deleted input towards x, site by site (on texts, in the space of word
    embeddings). Undefined for a constant map. Scaling moves the zero of a map with both signs to about one half, so
    that sites without relevance are half kept; the paper's maps have no sign.

    Args:
        units: what fades as one, such as `word`, by the sum of the map over its sites.
        fill: what units with low values fade into.

    Paper: chattopadhay2018.  Differs: a share in [0, 1], not in percent; sites fade into any fill, not only into zero.
    Cost per sample: 1 forward per method; the clean input is shared.
    """

    def compare(self, before: Float[Tensor, "m b"], after: Float[Tensor, "m b"]) -> Float[Tensor, "m b"]:
        return (before - after).clamp_min(0) / before


@metric("increase_in_confidence", family="curve", better="higher", within=(0, 1), invariant=("scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class IncreaseInConfidence(Confidence):
    r"""Is the class more probable when the input is multiplied by the map?

    $1[\,p_t(x \odot \bar A) > p_t(x)\,]$, with $\bar A$ as in `average_drop`: 1 or 0 per sample.

    Args:
        units: as in `average_drop`.
        fill: as in `average_drop`.

    Paper: chattopadhay2018.  Differs: a share in [0, 1], not in percent; sites fade into any fill, not only into zero.
    Cost per sample: 1 forward per method; the clean input is shared.
    """

    def compare(self, before: Float[Tensor, "m b"], after: Float[Tensor, "m b"]) -> Float[Tensor, "m b"]:
        return (after > before).double()
