"""Agreement with the other models."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import OK, Batch, NotApplicable, Scores
from heatcheck.metrics.base import Maps, Metric, metric
from heatcheck.probe.probe import Probe


@dataclass(frozen=True)
class Held:
    """One model's map of one sample, and where it lies."""

    maps: Maps
    item: int
    row: int
    sites: tuple[str, ...]

    @cached_property
    def values(self) -> Float[Tensor, "..."]:
        """The map at its own resolution, in double precision."""
        return self.maps.items[self.item].values[self.row].double()

    @property
    def size(self) -> int:
        """How many sites its model sees."""
        return self.maps.domain.deletable(self.maps.batch.x).shape[1]

    def on_sites_of(self, other: "Held") -> Float[Tensor, "..."]:
        """The map carried to the sites of another model."""
        x = other.maps.batch.x.take(slice(other.row, other.row + 1))
        return other.maps.domain.layout(self.values[None], x, self.maps.items[self.item].interpolation)[0]

    def counted(self, values: Float[Tensor, "..."]) -> Float[Tensor, " n"]:
        """A map without the sites that are never deleted."""
        free = self.maps.domain.deletable(self.maps.batch.x)[self.row]
        return values.flatten()[free] if values.numel() == len(free) else values.flatten()


@metric("pscore", family="reference", better="higher", within=(-1, 1), needs=("models",))
@dataclass(frozen=True, kw_only=True, repr=False)
class PseudoTruth(Metric):
    r"""Does a model's map look like the average map of all models under the same method?

    $\cos\big(\tfrac1{|M|}\sum_{g \in M} A(x, g),\; A(x, f)\big)$

    M holds f itself and every other model whose map of the sample has the same resolution (the same tokens, on texts).
    Where there is no other, the score would be 1 whatever the map: it is undefined. Agreement is not faithfulness: maps
    that do not depend on the model, those of the controls among them, agree perfectly.

    Args:
        leave_one_out: leave f out of the average.
        normalise: what is done to each map first: `l2` and `minmax` (to between 0 and 1) give every model the same
            say; with `none` the largest maps dominate.
        common_resolution: compare maps of different resolutions too, carried to the sites of the model that sees the
            most; models that crop a picture differently then see different parts of it.

    Paper: li2023.  Differs: without another model of the same resolution it is undefined, not 1.
    Cost per sample: none.
    """

    across_models: ClassVar[bool] = True

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"normalise": ("none", "l2", "minmax")}

    leave_one_out: bool = False
    normalise: str = "none"
    common_resolution: bool = False

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        raise NotApplicable("pscore compares the maps of several models; give more than one")

    def score_models(self, batches: Mapping[str, Batch], maps: Mapping[str, Maps]) -> dict[str, Scores]:
        held: dict[tuple[str, str], dict[str, Held]] = {}
        value = {m: torch.full((len(own), len(own.batch)), torch.nan, dtype=torch.float64) for m, own in maps.items()}
        status = {m: [[OK] * len(own.batch) for _ in own.items] for m, own in maps.items()}
        for model in sorted(maps):
            own, sites = maps[model], maps[model].domain.spelled(batches[model].x)
            for i, item in enumerate(own.items):
                for row, sample in enumerate(batches[model].streams.digests):
                    if own.status[i][row] == OK:
                        held.setdefault((item.method, sample), {})[model] = Held(own, i, row, sites[row])
        for found in held.values():
            for model, (number, reason) in self._compared(found).items():
                value[model][found[model].item, found[model].row] = number
                status[model][found[model].item][found[model].row] = reason
        return {m: Scores(value[m], tuple(map(tuple, status[m]))) for m in maps}

    def _compared(self, found: Mapping[str, Held]) -> dict[str, tuple[float, str]]:
        """The scores of all models that have the map of one method and sample."""
        groups: dict[Any, list[str]] = {}
        for model, own in found.items():
            size = None if self.common_resolution else tuple(own.values.shape)
            groups.setdefault((own.sites, size), []).append(model)
        others = " at its resolution" if len(found) > 1 else ""
        scores = dict.fromkeys(found, (torch.nan, f"undefined: no other model has this map{others}"))
        for models in groups.values():
            if len(models) > 1:
                flat = self._laid_out([found[m] for m in models])
                scores |= dict(zip(models, map(cosine, self._means(flat), flat), strict=True))
        return scores

    def _means(self, flat: Float[Tensor, "g n"]) -> list[Float[Tensor, " n"]]:
        """What each row is compared with."""
        if self.leave_one_out:
            return [torch.cat([flat[:k], flat[k + 1 :]]).mean(0) for k in range(len(flat))]
        return [flat.mean(0)] * len(flat)

    def _laid_out(self, held: list[Held]) -> Float[Tensor, "g n"]:
        """Maps as rows over the same sites, normalised."""
        widest = max(held, key=lambda h: h.size)
        if len({tuple(h.values.shape) for h in held}) > 1:
            flat = torch.stack([widest.counted(h.on_sites_of(widest)) for h in held])
        else:
            flat = torch.stack([h.counted(h.values) for h in held])
        if self.normalise == "minmax":
            flat = flat - flat.amin(1, keepdim=True)
        scale = {
            "none": torch.ones(len(flat), 1, dtype=flat.dtype),
            "l2": flat.square().sum(1, keepdim=True).sqrt(),
            "minmax": flat.amax(1, keepdim=True),
        }[self.normalise]
        return torch.where(scale > 0, flat / scale, 0.0)


def cosine(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> tuple[float, str]:
    """The cosine of a model's map and an average, with its status."""
    scale = a.square().sum().sqrt() * b.square().sum().sqrt()
    if scale == 0:
        return torch.nan, "undefined: the map, or the models' average, is zero everywhere"
    return float(((a * b).sum() / scale).clamp(-1, 1)), OK
