"""Agreement with the other models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.engine.probe import Probe
from heatcheck.metrics.base import Maps, Metric, metric
from heatcheck.types import OK, Batch, NotApplicable, Scores


@metric("pscore", family="reference", better="higher", within=(-1, 1), needs=("models",))
@dataclass(frozen=True, kw_only=True, repr=False)
class PseudoTruth(Metric):
    r"""Does a model's map look like the average map of all models under the same method?

    $\cos\big(\tfrac1{|M|}\sum_{g \in M} A(x, g),\; A(x, f)\big)$ at the maps' own resolution

    M holds the models that have a map for the sample, f among them.

    Args:
        leave_one_out: leave f out of the average.
        normalise: `l2` gives every model the same say; with `none` the largest maps dominate.

    Paper: li2023.
    Cost per sample: none.
    """

    across_models: ClassVar[bool] = True

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"normalise": ("none", "l2")}

    leave_one_out: bool = False
    normalise: str = "none"

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        raise NotApplicable("pscore compares the maps of several models; give more than one")

    def score_models(self, batches: Mapping[str, Batch], maps: Mapping[str, Maps]) -> dict[str, Scores]:
        held: dict[tuple[str, str], dict[str, Tensor]] = {}
        for model in sorted(maps):
            own = maps[model]
            for item, status in zip(own.items, own.status, strict=True):
                for row, sample in enumerate(batches[model].streams.digests):
                    if status[row] == OK:
                        held.setdefault((item.method, sample), {})[model] = self._map(own, item.values, row)
        return {model: self._scores(model, batches[model], maps[model], held) for model in maps}

    def _map(self, maps: Maps, values: Float[Tensor, "b ..."], row: int) -> Float[Tensor, "..."]:
        """One map in double precision, zero on sites that are never deleted."""
        free = maps.domain.deletable(maps.batch.x)[row]
        own = values[row].double()
        own = own * free.reshape(own.shape) if own.numel() == free.numel() else own
        size = own.square().sum().sqrt()
        return own / size if self.normalise == "l2" and size > 0 else own

    def _scores(
        self, model: str, batch: Batch, maps: Maps, held: Mapping[tuple[str, str], Mapping[str, Tensor]]
    ) -> Scores:
        value = torch.full((len(maps), len(batch)), torch.nan, dtype=torch.float64)
        status = [[OK] * len(batch) for _ in maps.items]
        for i, item in enumerate(maps.items):
            for j, sample in enumerate(batch.streams.digests):
                found = held.get((item.method, sample), {})
                if model in found:
                    value[i, j], status[i][j] = self._cosine(model, found)
        return Scores(value, tuple(map(tuple, status)))

    def _cosine(self, model: str, found: Mapping[str, Tensor]) -> tuple[float, str]:
        others = [a for name, a in found.items() if name != model or not self.leave_one_out]
        sizes = sorted({tuple(a.shape) for a in found.values()})
        if len(sizes) > 1:
            listed = ", ".join("×".join(map(str, size)) for size in sizes)
            return torch.nan, f"undefined: the models' maps differ in size ({listed})"
        if not others:
            return torch.nan, "undefined: no other model has this map"
        total = torch.zeros_like(others[0])
        for a in others:
            total = total + a
        mean, own = (total / len(others)).flatten(), found[model].flatten()
        scale = mean.square().sum().sqrt() * own.square().sum().sqrt()
        if scale == 0:
            return torch.nan, "undefined: the map, or the models' average, is zero everywhere"
        return float(((mean * own).sum() / scale).clamp(-1, 1)), OK
