"""Model parameter randomisation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from heatcheck.engine.plan import Shape
from heatcheck.engine.probe import Probe
from heatcheck.metrics.base import Maps, Metric, first_problem, metric, undefined
from heatcheck.metrics.curves import average_ranks, pearson
from heatcheck.spec import SpecError
from heatcheck.types import Batch, Scores, digest_of


@metric("mprt", family="sanity", better="lower", within=(-1, 1), needs=("method", "weights"), invariant=("scale",))
@dataclass(frozen=True, kw_only=True, repr=False)
class Randomisation(Metric):
    r"""Does the map change when the weights it explains are replaced by noise?

    The mean, over layers, of the rank correlation between the map and the map of the randomised model. The stored
    curve holds the correlation after each layer. A randomised model whose map is constant shares no ranking with the
    map and counts as 0.

    Args:
        layers: how many of the layers with weights to stop at, evenly spread, first and last included.
        order: `top_down` randomises from the output to the layer, `bottom_up` from the input, `independent` the
            layer alone.
        units: where maps are compared.

    Paper: adebayo2018.  Differs: draws keep each tensor's mean and deviation; the same draws for all samples.
    Cost per sample: `layers` explanations per method.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"order": ("top_down", "bottom_up", "independent")}

    layers: int = 4
    order: str = "top_down"
    units: str = "site"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers < 1:
            raise SpecError(f"metric mprt: layers={self.layers} must be at least 1")

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        units = probe.units(self.units, batch)
        n = units.count.tolist()
        before = maps.on(units)
        ranks = [average_ranks(before[:, i, :k]) for i, k in enumerate(n)]
        status, similar, share = maps.status, [], []
        for depth, twin in self._twins(probe, batch.streams.seed):
            again = Maps(maps.explain(batch, twin), maps.domain, batch)
            after = again.on(units)
            each = [
                pearson(own, average_ranks(after[:, i, :k])) for i, (own, k) in enumerate(zip(ranks, n, strict=True))
            ]
            similar.append(torch.stack(each, 1).nan_to_num(0.0))
            share.append(depth)
            status = tuple(map(first_problem, status, again.status))
        curve = torch.stack(similar, -1)
        varied = [(before[:, i, :k] != before[:, i, :1]).any(-1) for i, k in enumerate(n)]
        scores = undefined(curve.mean(-1), torch.stack(varied, 1), "all units of the map are equal", curve=curve)
        return Scores(scores.value, tuple(map(first_problem, status, scores.status)), curve, tuple(share))

    def _twins(self, probe: Probe, seed: int) -> Iterator[tuple[float, Probe]]:
        """The share of layers passed so far, and a probe on the model that is randomised up to there."""
        names = probe.model.weighted_layers()
        walk = names if self.order == "bottom_up" else names[::-1]
        last, stops = len(walk) - 1, min(self.layers, len(walk))
        picks = [round(i * last / max(1, stops - 1)) for i in range(stops)]
        twin, done = probe, 0
        for pick in picks:
            twin, done = (probe, pick) if self.order == "independent" else (twin, done)
            for name in walk[done : pick + 1]:
                twin = twin.randomised(name, int(digest_of(f"{seed}", "mprt", name)[:15], 16))
            done = pick + 1
            yield done / len(walk), twin

    def again(self, shape: Shape) -> int:
        return self.layers
