"""Incremental deletion."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core import catalogue
from heatcheck.core.types import Batch, NotApplicable, Scores
from heatcheck.domain.base import Units
from heatcheck.fills.base import Fill
from heatcheck.metrics.base import Maps, Metric, first_problem, metric
from heatcheck.metrics.curves import by_relevance, mirrored, step_counts, tie_breakers
from heatcheck.metrics.nearby import merge_statuses
from heatcheck.metrics.removal import RANKED, curve_scores, relevance_places, removal_curves
from heatcheck.probe.asks import Ask, Shape, removal
from heatcheck.probe.probe import Probe


@metric("ids", family="curve", better="higher", within=(0, 1), invariant=("monotone", "scale", "shift"))
@dataclass(frozen=True, kw_only=True, repr=False)
class IncrementalDeletion(Metric):
    r"""How high does the class probability stay while the least relevant units are deleted first?

    $\frac1L\sum_{k=0}^{L-1} p_t(x^{(k)})$, where $\lfloor kn/L \rfloor$ units are deleted at step k (never all)

    The reverse order, with the most relevant first and lower scores better (the authors' `id_order=descending`), is
    `deletion(area=left)`.

    Args:
        steps: L, the number of points.
        units: what is deleted; pixels or tokens.
        fill: what replaces it.
        output: what is averaged.
        ties: how equal units are ordered: `random` (per sample, the same for all methods), `index`, `reverse_index`.
        update: explain again after every step what is left of the input; deleted units stay deleted.

    Paper: hesse2024.  Differs: ties are broken at random by the seed, not by an unstable sort.
    Cost per sample: `steps - 1` forwards per method beside the clean one; with `update` also `steps - 2` explanations.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"ties": RANKED}

    steps: int = 32
    units: str = "site"
    fill: str = "auto"
    output: str = "prob"
    ties: str = "random"
    update: bool = False

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        gone = step_counts(units, self.steps)[:, :-1]
        if self.update:
            curve, status = self._updated(probe, batch, maps, units, gone)
        else:
            place = mirrored(relevance_places(maps, units, self.ties), units)
            curve, status = removal_curves(probe, batch, self.fill, units, place, gone, self.output), maps.status
        share = tuple(k / self.steps for k in range(self.steps))
        scores = curve_scores(curve.mean(-1), curve, units, share)
        return Scores(scores.value, tuple(map(first_problem, status, scores.status)), curve, share)

    def _updated(
        self, probe: Probe, batch: Batch, maps: Maps, units: Units, gone: Int[Tensor, "b k"]
    ) -> tuple[Float[Tensor, "m b k"], tuple[tuple[str, ...], ...]]:
        """Explain x^(k) to choose what is deleted at step k + 1, where step k deleted anything."""
        filler: Fill = catalogue.build("fill", self.fill)
        if type(filler).erase is not Fill.erase:
            raise NotApplicable(f"ids(update=true) needs units that stay in place, but fill={self.fill} moves them")
        full = filler.full(probe.domain, batch)
        ties = tie_breakers(batch.streams, units, self.ties)
        values = maps.on(units).clone()
        status = [list(row) for row in maps.status]
        curve = []
        for k in range(self.steps):
            place = mirrored(by_relevance(values, ties, units), units)
            curve.append(removal_curves(probe, batch, self.fill, units, place, gone[:, k : k + 1], self.output))
            removed = place < gone[:, k, None]
            rows = torch.nonzero(gone[:, k] > gone[:, max(0, k - 1)]).flatten()
            if k < self.steps - 1 and len(rows):
                part, full_part, of_part = batch.take(rows.tolist(), rows), full.take(rows), units.take(rows)
                keep = ~units.spread(removed)[:, rows]
                inputs = [filler.erase(probe.domain, part.x, own, full_part) for own in keep]
                again = Maps(maps.explain([part.with_inputs(x) for x in inputs], probe), maps.domain, part)
                values[:, rows] = again.on(of_part).to(values.dtype)
                merge_statuses(status, rows, again.status)
            values = values.masked_fill(removed, torch.finfo(values.dtype).min)
        return torch.cat(curve, -1), tuple(map(tuple, status))

    def asks(self, shape: Shape, method: str) -> set[Ask]:
        n = shape.units(self.units)
        gone = [k * n // self.steps for k in range(self.steps)]
        order = f"least {self.ties}" + (" updated" if self.update else "")
        return removal(method, self.fill, self.units, shape, order, gone)

    def reexplanation_count(self, shape: Shape) -> int:
        n = shape.units(self.units)
        return len({k * n // self.steps for k in range(self.steps - 1)} - {0}) if self.update else 0
