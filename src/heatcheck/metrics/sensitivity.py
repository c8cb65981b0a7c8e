"""Sensitivity of maps to small random steps of the input: maximum, mean, and the local Lipschitz estimate."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Scores
from heatcheck.metrics.base import Maps, SiteMetric, first_problem, metric, undefined
from heatcheck.metrics.nearby import merge_statuses, noisy_copies, uniform
from heatcheck.probe.asks import Ask, Shape
from heatcheck.probe.probe import Probe

SENSITIVITY_FACTS: dict[str, Any] = {"family": "sanity", "better": "lower", "within": (0, None), "needs": ("method",)}
"""What all three metrics declare."""


@dataclass(frozen=True)
class Steps:
    """How maps change under small random steps of the input.

    Args:
        probe: the probe that was asked, held so that no other gets its `id` while these steps are cached.
        change: distance between the map before and after each step.
        length: length of each step of the input.
        size: norm of each map.
        status: `ok`, or why a sample could not be explained again.
    """

    probe: Probe
    change: Float[Tensor, "m b k"]
    length: Float[Tensor, "b k"]
    size: Float[Tensor, "m b"]
    status: tuple[tuple[str, ...], ...]

    @property
    def relative(self) -> Float[Tensor, "m b k"]:
        """The change as a share of the map's norm; NaN where the map is zero."""
        return self.change / torch.where(self.size > 0, self.size, torch.nan)[..., None]


@dataclass(frozen=True, kw_only=True, repr=False)
class Sensitivity(SiteMetric):
    """The base of all three: they share the same random steps, which are explained once.

    Steps are not clipped to valid colours, and special tokens do not move. Norms are Euclidean, over the units of the map,
    which are those of sites that may be deleted.

    Args:
        units: where maps are compared, such as `word`: the sums over their sites.
        samples: steps per input, drawn uniformly from the L∞ ball around pixels or word embeddings.
        radius: of the ball, as a share of each input's range (its largest value minus its smallest).
    """

    samples: int = 10
    radius: float = 0.02

    revised: ClassVar[Mapping[str, int]] = {"text": 2}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.radius > 0:
            raise SpecError(f"metric {self.id}: radius={self.radius} must be above 0")

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        key = f"ball {self.radius} {self.samples} {self.units} {id(probe)}"
        steps = maps.cached(key, lambda: self._explained_steps(probe, batch, maps))
        value = self.summarise(steps)
        moved = (steps.length > 0).all(-1).expand(value.shape)
        constant = undefined(value, moved, "the input is constant, so steps relative to its range have length zero")
        scores = undefined(value, ~value.isnan(), "the map is zero everywhere")
        return Scores(scores.value, tuple(map(first_problem, steps.status, constant.status, scores.status)))

    @abstractmethod
    def summarise(self, steps: Steps) -> Float[Tensor, "m b"]:
        """One number per method and sample; NaN where the map is zero."""

    def _explained_steps(self, probe: Probe, batch: Batch, maps: Maps) -> Steps:
        units = probe.units(self.units, batch)
        before = maps.on(units)
        n = units.counts
        leaf = probe.domain.leaf(batch.x).detach()
        status = [list(own) for own in maps.status]
        change, length = [], []
        for rows, part in noisy_copies(probe, batch, self.samples, uniform, self.radius, "ball"):
            again = Maps(maps.explain(part, probe), maps.domain, part)
            after = again.on(units.take(rows))
            merge_statuses(status, rows, again.status)
            for k, i in enumerate(rows.tolist()):
                change.append(norm(after[:, k, : n[i]].double() - before[:, i, : n[i]].double()))
                length.append(norm(probe.domain.leaf(part.x)[k].double().flatten() - leaf[i].double().flatten()))
        return Steps(
            probe,
            torch.stack(change, 1).reshape(len(maps), len(batch), self.samples),
            torch.stack(length).reshape(len(batch), self.samples),
            torch.stack([norm(before[:, i, :k].double()) for i, k in enumerate(n)], 1),
            tuple(map(tuple, status)),
        )

    def reexplanation_count(self, shape: Shape) -> int:
        return self.samples

    def reexplanations(self, shape: Shape) -> set[Ask]:
        return {("ball", self.radius, self.samples, self.units, i) for i in range(self.samples)}


def norm(values: Float[Tensor, "... u"]) -> Float[Tensor, "..."]:
    """Euclidean length along the last axis.

    >>> float(norm(torch.tensor([3.0, 4.0])))
    5.0
    """
    return values.square().sum(-1).sqrt()


@metric("max_sensitivity", invariant=("scale", "sign"), **SENSITIVITY_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class MaxSensitivity(Sensitivity):
    r"""How far can the map move, relative to its size, when the input moves a little?

    $\max_k \|A(x + \delta_k) - A(x)\| \,/\, \|A(x)\|, \quad \|\delta_k\|_\infty \le r$

    Random methods reuse their random numbers, so that their own noise is not counted. A map that never changes scores
    0: this measures robustness, not faithfulness.

    Args:
        units: where maps are compared, such as `word`: the sums over their sites.
        samples: steps per input, drawn uniformly from the L∞ ball around pixels or word embeddings.
        radius: of the ball, as a share of each input's range (its largest value minus its smallest).

    Paper: yeh2019.  Differs: the radius is a share of the input's range; a map of zeros has no score.
    Cost per sample: `samples` explanations per method, shared with avg_sensitivity and local_lipschitz.
    """

    def summarise(self, steps: Steps) -> Float[Tensor, "m b"]:
        return steps.relative.amax(-1)


@metric("avg_sensitivity", invariant=("scale", "sign"), **SENSITIVITY_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class AvgSensitivity(Sensitivity):
    r"""How far does the map move on average, relative to its size, when the input moves a little?

    $\frac1K \sum_k \|A(x + \delta_k) - A(x)\| \,/\, \|A(x)\|, \quad \|\delta_k\|_\infty \le r$

    Args:
        units: as in `max_sensitivity`.
        samples: as in `max_sensitivity`.
        radius: as in `max_sensitivity`.

    Paper: yeh2019, bhatt2020.  Differs: the radius is a share of the input's range; a map of zeros has no score.
    Cost per sample: `samples` explanations per method, shared with max_sensitivity and local_lipschitz.
    """

    def summarise(self, steps: Steps) -> Float[Tensor, "m b"]:
        return steps.relative.mean(-1)


@metric("local_lipschitz", invariant=("sign", "shift"), **SENSITIVITY_FACTS)
@dataclass(frozen=True, kw_only=True, repr=False)
class LocalLipschitz(Sensitivity):
    r"""How much faster than the input can the map move?

    $\max_k \|A(x + \delta_k) - A(x)\| \,/\, \|\delta_k\|, \quad \|\delta_k\|_\infty \le r$

    It grows with the map: compare methods whose maps have the same scale, or one method on several inputs.

    Args:
        units: as in `max_sensitivity`.
        samples: as in `max_sensitivity`.
        radius: as in `max_sensitivity`.

    Paper: alvarezmelis2018.  Differs: the largest of random steps, not a search for the worst one.
    Cost per sample: `samples` explanations per method, shared with max_sensitivity and avg_sensitivity.
    """

    def summarise(self, steps: Steps) -> Float[Tensor, "m b"]:
        return (steps.change / steps.length).amax(-1).nan_to_num(0.0)
