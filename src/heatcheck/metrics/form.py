"""What a map looks like, whatever the model says: sparseness, complexity and entropy."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Attribution, Batch, Scores
from heatcheck.metrics.base import Maps, Metric, metric, undefined
from heatcheck.probe.probe import Probe

EMPTY = "the map is zero everywhere"


def sizes(probe: Probe, batch: Batch, maps: Maps) -> list[Float[Tensor, "m n"]]:
    """Per sample, the size of every map at every site that may be deleted."""
    units = probe.units("site", batch)
    values = maps.on(units).double().abs()
    return [values[:, i, :n] for i, n in enumerate(units.count.tolist())]


def gini(size: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
    """Half the mean difference between two of the values, relative to their mean; NaN where all are zero."""
    n = size.shape[-1]
    weight = torch.arange(1 - n, n, 2, dtype=size.dtype)
    return (weight * size.sort(-1).values).sum(-1) / (n * size.sum(-1))


def entropy_of(size: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
    """Entropy in nats of values as shares of their sum; NaN where all are zero."""
    share = size / size.sum(-1, keepdim=True)
    return -torch.xlogy(share, share).sum(-1)


def undefined_if_empty(value: Float[Tensor, "m b"]) -> Scores:
    """Scores with a reason where the map has nothing to share out."""
    return undefined(value, ~value.isnan(), EMPTY)


@metric("sparseness", family="form", better="higher", within=(0, 1), invariant=("scale", "sign"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Sparseness(Metric):
    r"""Is the map's weight on few sites?

    $\sum_{i=1}^{n} (2i - n - 1)\,|a|_{(i)} \,/\, \big(n \sum_i |a_i|\big)$, the Gini index, with $|a|_{(i)}$ ascending:
    0 for equal sites, $1 - 1/n$ for a single one

    Paper: chalasani2020.
    Cost per sample: nothing.
    """

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        return undefined_if_empty(torch.stack([gini(own) for own in sizes(probe, batch, maps)], 1))


@metric("complexity", family="form", better="lower", within=(0, None), invariant=("scale", "sign"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Complexity(Metric):
    r"""Over how many sites is the map's weight spread?

    $-\sum_i p_i \ln p_i, \quad p_i = |a_i| / \sum_j |a_j|$: 0 for a single site, $\ln n$ for equal ones

    Paper: bhatt2020.
    Cost per sample: nothing.
    """

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        return undefined_if_empty(torch.stack([entropy_of(own) for own in sizes(probe, batch, maps)], 1))


@metric("entropy", family="form", better="lower", within=(0, None), invariant=("scale", "sign"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Entropy(Metric):
    r"""How many bits does the map spread over, at the resolution its method gave it?

    $-\sum_i p_i \log_2 p_i, \quad p_i = |a_i| / \sum_j |a_j|$, over the cells of the map before it is carried to sites

    Coarse maps have fewer cells and thus fewer bits: compare methods of one resolution.

    Paper: li2023.  Differs: special tokens do not count.
    Cost per sample: nothing.
    """

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        return undefined_if_empty(torch.stack([self._bits(probe, batch, a) for a in maps.items]))

    def _bits(self, probe: Probe, batch: Batch, a: Attribution) -> Float[Tensor, " b"]:
        cells = torch.where(torch.isfinite(a.values), a.values, 0).double().abs().flatten(1)
        free = probe.domain.deletable(batch.x)
        whole = cells.shape[1] == free.shape[1]
        return torch.stack([entropy_of(own[free[i]] if whole else own) / math.log(2) for i, own in enumerate(cells)])
