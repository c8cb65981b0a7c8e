"""Sensitivity to small steps of the input: its maximum, its mean, and the local Lipschitz estimate."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Scores
from heatcheck.metrics.base import Maps, Metric, first_problem, metric, undefined
from heatcheck.metrics.nearby import in_the_box, nearby, note
from heatcheck.probe.asks import Ask, Shape
from heatcheck.probe.probe import Probe


@dataclass(frozen=True)
class Steps:
    """What small steps away from each sample do to its maps.

    Args:
        probe: who was asked.
        change: how far each map moves, by step.
        length: how far each input moved.
        size: how large each map is.
        status: `ok`, or why a map could not be made again.
    """

    probe: Probe
    change: Float[Tensor, "m b k"]
    length: Float[Tensor, "b k"]
    size: Float[Tensor, "m b"]
    status: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Sensitivity(Metric):
    """What the three have in common: the same random steps, explained once for all of them.

    Steps are not clipped to colours that exist, and special tokens stay where they are. Norms are Euclidean, over the
    sites that may be deleted.

    Args:
        samples: steps per input, drawn evenly from the L∞ ball around pixels or word embeddings.
        radius: of the ball, as a share of each input's range (its largest value minus its smallest).
    """

    samples: int = 10
    radius: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.radius > 0:
            raise SpecError(f"metric {self.id}: radius={self.radius} must be above 0")

    def walk(self, probe: Probe, batch: Batch, maps: Maps) -> Steps:
        """Take the steps and explain where they lead, once for these maps."""
        return maps.cached(f"ball {self.radius} {self.samples} {id(probe)}", lambda: self._take(probe, batch, maps))

    def _take(self, probe: Probe, batch: Batch, maps: Maps) -> Steps:
        units = probe.units("site", batch)
        before = maps.on(units)
        n = units.count.tolist()
        leaf = probe.domain.leaf(batch.x).detach()
        status = [list(own) for own in maps.status]
        change, length = [], []
        for rows, part in nearby(probe, batch, self.samples, in_the_box, self.radius, "ball"):
            again = Maps(maps.explain(part, probe), maps.domain, part)
            after = again.on(units.take(rows))
            note(status, rows, again.status)
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

    def relative(self, probe: Probe, batch: Batch, maps: Maps) -> Float[Tensor, "m b k"]:
        """How far each map moves, as a share of its own size; NaN where it has none."""
        steps = self.walk(probe, batch, maps)
        return steps.change / torch.where(steps.size > 0, steps.size, torch.nan)[..., None]

    def with_reasons(self, value: Float[Tensor, "m b"], steps: Steps) -> Scores:
        """Scores with a reason where the input cannot be moved or the map has no size."""
        moved = (steps.length > 0).all(-1).expand(value.shape)
        still = undefined(value, moved, "the input is the same everywhere, so it has no range to move in")
        empty = undefined(value, ~value.isnan(), "the map is zero everywhere")
        status = tuple(map(first_problem, steps.status, still.status, empty.status))
        return Scores(empty.value, status)

    def reexplanation_count(self, shape: Shape) -> int:
        return self.samples

    def reexplanations(self, shape: Shape) -> set[Ask]:
        return {("ball", self.radius, self.samples, i) for i in range(self.samples)}


def norm(values: Float[Tensor, "... u"]) -> Float[Tensor, "..."]:
    """Euclidean length along the last axis."""
    return values.square().sum(-1).sqrt()


@metric(
    "max_sensitivity",
    family="sanity",
    better="lower",
    within=(0, None),
    needs=("method",),
    invariant=("scale", "sign"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class MaxSensitivity(Sensitivity):
    r"""How far can the map move, relative to its size, when the input moves a little?

    $\max_k \|A(x + \delta_k) - A(x)\| \,/\, \|A(x)\|, \quad \|\delta_k\|_\infty \le r$

    Methods that draw keep their draws, so that their own noise is not counted. A map that never moves scores 0: this
    is steadiness, not truth.

    Args:
        samples: steps per input, drawn evenly from the L∞ ball around pixels or word embeddings.
        radius: of the ball, as a share of each input's range (its largest value minus its smallest).

    Paper: yeh2019.  Differs: the radius is a share of the input's range; a map of zeros has no score.
    Cost per sample: `samples` explanations per method, shared with avg_sensitivity and local_lipschitz.
    """

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        return self.with_reasons(self.relative(probe, batch, maps).amax(-1), self.walk(probe, batch, maps))


@metric(
    "avg_sensitivity",
    family="sanity",
    better="lower",
    within=(0, None),
    needs=("method",),
    invariant=("scale", "sign"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class AvgSensitivity(Sensitivity):
    r"""How far does the map move on average, relative to its size, when the input moves a little?

    $\frac1K \sum_k \|A(x + \delta_k) - A(x)\| \,/\, \|A(x)\|, \quad \|\delta_k\|_\infty \le r$

    Args:
        samples: steps per input, drawn evenly from the L∞ ball around pixels or word embeddings.
        radius: of the ball, as a share of each input's range (its largest value minus its smallest).

    Paper: yeh2019, bhatt2020.  Differs: the radius is a share of the input's range; a map of zeros has no score.
    Cost per sample: `samples` explanations per method, shared with max_sensitivity and local_lipschitz.
    """

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        return self.with_reasons(self.relative(probe, batch, maps).mean(-1), self.walk(probe, batch, maps))


@metric(
    "local_lipschitz",
    family="sanity",
    better="lower",
    within=(0, None),
    needs=("method",),
    invariant=("sign", "shift"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class LocalLipschitz(Sensitivity):
    r"""How much faster than the input can the map move?

    $\max_k \|A(x + \delta_k) - A(x)\| \,/\, \|\delta_k\|, \quad \|\delta_k\|_\infty \le r$

    It grows with the map: compare methods whose maps have the same scale, or one method on several inputs.

    Args:
        samples: steps per input, drawn evenly from the L∞ ball around pixels or word embeddings.
        radius: of the ball, as a share of each input's range (its largest value minus its smallest).

    Paper: alvarezmelis2018.  Differs: the largest of random steps, not a search for the worst one.
    Cost per sample: `samples` explanations per method, shared with max_sensitivity and avg_sensitivity.
    """

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        steps = self.walk(probe, batch, maps)
        return self.with_reasons((steps.change / steps.length).amax(-1).nan_to_num(0.0), steps)
