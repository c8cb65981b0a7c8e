"""Properties of the map alone, without the model: sparseness, complexity and entropy."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Attribution, Batch, Scores
from heatcheck.metrics.base import Maps, Metric, metric, undefined
from heatcheck.probe.probe import Probe

ZERO_MAP = "the map is zero everywhere"


def score_sites(measure: Callable[[Tensor], Tensor], probe: Probe, batch: Batch, maps: Maps) -> Scores:
    """A measure of the maps' absolute values over the sites that may be deleted."""
    units = probe.units("site", batch)
    values = maps.on(units).double().abs()
    each = [measure(values[:, i, :n]) for i, n in enumerate(units.counts)]
    return undefined_if_zero(torch.stack(each, 1))


def gini(size: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
    """The Gini index: half the mean difference between any two values, relative to their mean; NaN if all are zero.

    >>> gini(torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 2.0]])).tolist()
    [0.0, 0.75]
    """
    n = size.shape[-1]
    weight = torch.arange(1 - n, n, 2, dtype=size.dtype, device=size.device)
    return (weight * size.sort(-1).values).sum(-1) / (n * size.sum(-1))


def entropy_of(size: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
    """Entropy in nats of values as shares of their sum; NaN if all are zero.

    >>> round(float(entropy_of(torch.tensor([1.0, 1.0, 1.0, 1.0])).exp()), 4)
    4.0
    """
    share = size / size.sum(-1, keepdim=True)
    return -torch.xlogy(share, share).sum(-1)


def undefined_if_zero(value: Float[Tensor, "m b"]) -> Scores:
    """Scores, undefined where the map is zero everywhere (NaN)."""
    return undefined(value, ~value.isnan(), ZERO_MAP)


@metric("sparseness", family="form", better="higher", within=(0, 1), invariant=("scale", "sign"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Sparseness(Metric):
    r"""Is the map concentrated on few sites?

    $\sum_{i=1}^{n} (2i - n - 1)\,|a|_{(i)} \,/\, \big(n \sum_i |a_i|\big)$, the Gini index, with $|a|_{(i)}$ ascending:
    0 for equal sites, $1 - 1/n$ for a single one

    Paper: chalasani2020.
    Cost per sample: nothing.
    """

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        return score_sites(gini, probe, batch, maps)


@metric("complexity", family="form", better="lower", within=(0, None), invariant=("scale", "sign"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Complexity(Metric):
    r"""How widely is the map spread over sites?

    $-\sum_i p_i \ln p_i, \quad p_i = |a_i| / \sum_j |a_j|$: 0 for a single site, $\ln n$ for equal ones

    Paper: bhatt2020.
    Cost per sample: nothing.
    """

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        return score_sites(entropy_of, probe, batch, maps)


@metric("entropy", family="form", better="lower", within=(0, None), invariant=("scale", "sign"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Entropy(Metric):
    r"""What is the entropy of the map, in bits, at its native resolution?

    $-\sum_i p_i \log_2 p_i, \quad p_i = |a_i| / \sum_j |a_j|$, over the cells of the map at its native resolution

    Coarse maps have fewer cells and thus fewer bits: compare methods of one resolution.

    Paper: li2023.  Differs: special tokens do not count.
    Cost per sample: nothing.
    """

    def score(self, probe: Probe, batch: Batch, maps: Maps) -> Scores:
        return undefined_if_zero(torch.stack([self._bits(probe, batch, a) for a in maps.items]))

    def _bits(self, probe: Probe, batch: Batch, a: Attribution) -> Float[Tensor, " b"]:
        cells = torch.where(torch.isfinite(a.values), a.values, 0).double().abs().flatten(1)
        free = probe.domain.deletable(batch.x)
        whole = cells.shape[1] == free.shape[1]
        return torch.stack([entropy_of(own[free[i]] if whole else own) / math.log(2) for i, own in enumerate(cells)])
