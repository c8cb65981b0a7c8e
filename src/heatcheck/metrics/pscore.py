"""Agreement of the maps of several models."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.identity import canonical
from heatcheck.core.types import OK, Batch, Inputs, NotApplicable, Scores
from heatcheck.domain.base import Domain
from heatcheck.metrics.base import Maps, Metric, metric
from heatcheck.models.base import Model
from heatcheck.probe.probe import Probe

UNITS_OF = {"words": "word", "sentences": "sentence"}
"""What texts can be compared on besides sites, and the units that this means."""


@dataclass(frozen=True)
class ModelMap:
    """One model's map of one sample by one method, with its place in the batch."""

    maps: Maps
    item: int
    row: int
    sites: tuple[str, ...]

    @cached_property
    def values(self) -> Float[Tensor, "..."]:
        """The map at its native resolution, in double precision."""
        return self.maps.items[self.item].values[self.row].double()

    @property
    def size(self) -> int:
        """How many sites the model's input has."""
        return self.maps.domain.deletable(self.maps.batch.x).shape[1]

    def on_sites_of(self, other: "ModelMap") -> Float[Tensor, "..."]:
        """The map resized to the sites of another model's input."""
        return other.maps.domain.layout(self.values[None], other.x, self.maps.items[self.item].interpolation)[0]

    @property
    def x(self) -> Inputs:
        """The sample as the model reads it."""
        return self.maps.batch.x.take(slice(self.row, self.row + 1))

    def on_units(self, index: Int[Tensor, " s"], count: int) -> Float[Tensor, " n"]:
        """The map summed over units, given the unit of each site; -1 is none."""
        sites = self.maps.domain.layout(self.values[None], self.x, self.maps.items[self.item].interpolation)[0]
        return sites.new_zeros(count).index_add_(0, index[index >= 0], sites[index >= 0])

    def without_fixed(self, values: Float[Tensor, "..."]) -> Float[Tensor, " n"]:
        """A map without the sites that are never deleted (special tokens, padding)."""
        free = self.maps.domain.deletable(self.maps.batch.x)[self.row]
        return values.flatten()[free] if values.numel() == len(free) else values.flatten()


@metric("pscore", family="reference", better="higher", within=(-1, 1), needs=("models",))
@dataclass(frozen=True, kw_only=True, repr=False)
class PseudoTruth(Metric):
    r"""Does a model's map look like the average map of all models under the same method?

    $\cos\big(\tfrac1{|M|}\sum_{g \in M} A(x, g),\; A(x, f)\big)$

    M holds f itself and every other model whose map of the sample has the same resolution. Where there is no other, the
    score would be 1 for any map: it is undefined. Agreement is not faithfulness: maps that do not depend on the model,
    such as those of controls, agree perfectly.

    Texts are compared on tokens where all models cut them into the same ones. Else they are compared on words, found by
    where tokens stand in the text: a word is worth the sum of its tokens, words that tokenizers cut differently (*don't*)
    are joined, and words that a model does not read, because the text is too long for it, are left out for all. Sentences
    are found in the same way; where models read only one in common, the score is 1 or -1 and says no more than a sign.

    Args:
        leave_one_out: leave f out of the average.
        normalise: what is done to each map first: `l2` and `minmax` (to between 0 and 1) give every model the same
            weight; with `none` the largest maps dominate.
        common_resolution: compare maps of different resolutions too, resized to the sites of the model with the largest
            input; models that crop a picture differently then see different parts of it.
        on: where texts are compared: on `words` or `sentences` always, on `sites` (tokens) only, or on words where tokens
            differ (`auto`).

    Paper: li2023.  Differs: without another model of the same resolution it is undefined, not 1.
    Cost per sample: none.
    """

    across_models: ClassVar[bool] = True

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "normalise": ("none", "l2", "minmax"),
        "on": ("auto", "sites", "words", "sentences"),
    }

    leave_one_out: bool = False
    normalise: str = "none"
    common_resolution: bool = False
    on: str = "auto"

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        raise NotApplicable("pscore compares the maps of several models; give more than one")

    def score_models(self, batches: Mapping[str, Batch], maps: Mapping[str, Maps]) -> dict[str, Scores]:
        by_sample: dict[tuple[str, str], dict[str, ModelMap]] = {}
        value = {m: torch.full((len(own), len(own.batch)), torch.nan, dtype=torch.float64) for m, own in maps.items()}
        status = {m: [[OK] * len(own.batch) for _ in own.items] for m, own in maps.items()}
        for model in sorted(maps):
            own, sites = maps[model], maps[model].domain.spelled(batches[model].x)
            for i, item in enumerate(own.items):
                for row, sample in enumerate(batches[model].streams.digests):
                    if own.status[i][row] == OK:
                        by_sample.setdefault((item.method, sample), {})[model] = ModelMap(own, i, row, sites[row])
        for found in by_sample.values():
            for model, (number, reason) in self._compared(found).items():
                value[model][found[model].item, found[model].row] = number
                status[model][found[model].item][found[model].row] = reason
        return {m: Scores(value[m], tuple(map(tuple, status[m]))) for m in maps}

    def comparison(self, models: Mapping[str, Model]) -> str:
        domain = next(iter(models.values())).domain
        alike = len({canonical(model.preprocessing) for model in models.values()}) == 1
        whose = "the others of " if self.leave_one_out else ""
        return f"the cosine with the mean map of {whose}{', '.join(models)}, {self._compared_on(domain, alike)}"

    def _compared_on(self, domain: Domain, alike: bool) -> str:
        """What maps are compared on, by models that read samples alike or not."""
        site, common = domain.roles["site"], domain.aligned_by
        if not common:
            return "all resized to the largest input" if self.common_resolution else "among maps of one resolution"
        if self.on in UNITS_OF:
            return f"{UNITS_OF[self.on]} by {UNITS_OF[self.on]}"
        if alike:
            return f"{site} by {site}"
        if self.on == "sites":
            return f"{site} by {site}, among models that have the same {site}s"
        return f"{common} by {common} where models have different {site}s, else {site} by {site}"

    def _compared(self, found: Mapping[str, ModelMap]) -> dict[str, tuple[float, str]]:
        """The scores and statuses of all models that have a map of one method and sample."""
        on_units = self._on_units(list(found.values()))
        if on_units is not None and on_units.shape[1] == 0:
            what = UNITS_OF.get(self.on, "word")
            return dict.fromkeys(found, (torch.nan, f"undefined: the models read no {what} of the text in common"))
        if on_units is not None:
            return dict(zip(found, self._cosines(on_units), strict=True))
        groups: dict[Any, list[str]] = {}
        for model, own in found.items():
            size = None if self.common_resolution else tuple(own.values.shape)
            groups.setdefault((own.sites, size), []).append(model)
        where = " at its resolution" if len(found) > 1 else ""
        scores = dict.fromkeys(found, (torch.nan, f"undefined: no other model has this map{where}"))
        for models in groups.values():
            if len(models) > 1:
                scores |= dict(zip(models, self._cosines(self._flattened([found[m] for m in models])), strict=True))
        return scores

    def _on_units(self, maps: list[ModelMap]) -> Float[Tensor, "g n"] | None:
        """Maps of a text as rows over the words or sentences that all models read; None where sites are compared."""
        alike = len({own.sites for own in maps}) == 1
        if len(maps) < 2 or self.on == "sites" or (alike and self.on == "auto"):
            return None
        units = maps[0].maps.domain.aligned([own.x for own in maps], UNITS_OF.get(self.on, ""))
        if units is None:
            return None
        count = int(max(index.max() for index in units)) + 1
        return torch.stack([own.on_units(index, count) for own, index in zip(maps, units, strict=True)])

    def _cosines(self, flat: Float[Tensor, "g n"]) -> list[tuple[float, str]]:
        """The scores and statuses of maps over the same units."""
        flat = self._normalised(flat)
        return list(map(cosine, self._means(flat), flat))

    def _means(self, flat: Float[Tensor, "g n"]) -> list[Float[Tensor, " n"]]:
        """The average that each row is compared with."""
        if self.leave_one_out:
            return [torch.cat([flat[:k], flat[k + 1 :]]).mean(0) for k in range(len(flat))]
        return [flat.mean(0)] * len(flat)

    def _flattened(self, maps: list[ModelMap]) -> Float[Tensor, "g n"]:
        """Maps as rows over the same sites."""
        largest = max(maps, key=lambda own: own.size)
        if len({tuple(own.values.shape) for own in maps}) > 1:
            return torch.stack([largest.without_fixed(own.on_sites_of(largest)) for own in maps])
        return torch.stack([own.without_fixed(own.values) for own in maps])

    def _normalised(self, flat: Float[Tensor, "g n"]) -> Float[Tensor, "g n"]:
        if self.normalise == "minmax":
            flat = flat - flat.amin(1, keepdim=True)
        scale = {
            "none": torch.ones(len(flat), 1, dtype=flat.dtype),
            "l2": flat.square().sum(1, keepdim=True).sqrt(),
            "minmax": flat.amax(1, keepdim=True),
        }[self.normalise]
        return torch.where(scale > 0, flat / scale, 0.0)


def cosine(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> tuple[float, str]:
    """The cosine similarity of a model's map and an average, with its status.

    >>> cosine(torch.tensor([3.0, 4.0]), torch.tensor([4.0, 3.0]))
    (0.9599999785423279, 'ok')
    """
    scale = a.square().sum().sqrt() * b.square().sum().sqrt()
    if scale == 0:
        return torch.nan, "undefined: the map, or the average over models, is zero everywhere"
    return float(((a * b).sum() / scale).clamp(-1, 1)), OK
