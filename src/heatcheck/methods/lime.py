"""LIME."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch
from heatcheck.methods.base import Method, method, spread_density, stacked
from heatcheck.methods.coalitions import Game, all_sets, ways
from heatcheck.probe.asks import CLEAN, Ask, Shape
from heatcheck.probe.probe import Probe


@method("lime", family="perturbation", uses=(), properties=("implementation_invariant", "linear"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Lime(Method):
    r"""The weights of a linear model of which units are present, fitted around the input.

    $\min_{w, w_0} \sum_n \pi(z_n) \big(f_t(x^{z_n}) - w_0 - w^\top z_n\big)^2 + \alpha \lVert w \rVert^2, \quad
    \pi(z) = \sqrt{\exp(-d(z)^2 / k^2)}$

    Each mask $z_n$ keeps every unit with probability one half; the first keeps all, and $d$ is the cosine distance to
    it. If a sample has so few units that all subsets fit into `samples`, each subset is used once.
    M4's version is `lime(units=quickshift, fill=superpixel_mean(units=quickshift), output=prob)`, on texts
    `lime(units=token, fill=unk, output=prob)`; the authors' code has `alpha=1.0`.

    Args:
        samples: number of masks, including the first.
        units: what is deleted together; about 50 superpixels on pictures, words on texts.
        fill: what replaces it.
        kernel: the width k.
        alpha: the ridge penalty; without it, a fit that is not unique is the one of smallest norm.

    Paper: ribeiro2016.  Differs: explains the logit; deletes as the metrics do, not by the superpixel's mean colour.
    Cost per sample: `samples` forwards, the first shared.
    """

    samples: int = 1000
    units: str = "segment"
    fill: str = "auto"
    kernel: float = 0.25
    alpha: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.kernel > 0:
            raise SpecError(f"{self.id}: kernel={self.kernel!r} is a width and must be above 0")
        if not self.alpha >= 0:
            raise SpecError(f"{self.id}: alpha={self.alpha!r} is a penalty and cannot be negative")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        units = probe.units(self.units, batch)
        designs = [
            design(n, self.samples, batch.streams.generator(i, "lime-masks")) for i, n in enumerate(units.counts)
        ]

        there = stacked(designs, units.width, probe.device)

        def kept(rows: Int[Tensor, " k"], which: Int[Tensor, " k"]) -> Bool[Tensor, "k u"]:
            return there[rows, 1 + which]

        outputs = Game(probe, batch, units, self.fill, self.output).play([len(z) - 1 for z in designs], kept)
        clean = probe.clean(batch).read(self.output).cpu()
        values = torch.zeros(len(batch), units.width, dtype=torch.float64)
        for i, z in enumerate(designs):
            y = torch.cat([clean[i : i + 1], outputs[i]])
            values[i, : z.shape[1]] = surrogate(z.double(), y, proximity(z, self.kernel), self.alpha)
        return spread_density(probe, batch, units, values.to(probe.device))

    def asks(self, shape: Shape) -> set[Ask]:
        return {CLEAN}

    def passes(self, shape: Shape) -> tuple[int, int]:
        return min(self.samples, ways(shape.units(self.units))) - 1, 0


def design(units: int, samples: int, rng: torch.Generator) -> Bool[Tensor, "n u"]:
    """The units that each mask keeps; the first mask keeps all."""
    if ways(units) <= samples:
        return all_sets(units)
    kept = torch.rand(samples, units, generator=rng, dtype=torch.float64) < 0.5
    kept[0] = True
    return kept


def proximity(kept: Bool[Tensor, "n u"], kernel: float) -> Float[Tensor, " n"]:
    """LIME's kernel on the cosine distance to the mask that keeps all; the empty mask is at distance one."""
    distance = 1 - kept.double().mean(1).sqrt()
    return (-distance.square() / kernel**2).exp().sqrt()


def surrogate(
    kept: Float[Tensor, "n u"], outputs: Float[Tensor, " n"], weight: Float[Tensor, " n"], alpha: float
) -> Float[Tensor, " u"]:
    """Weighted ridge regression with a free intercept; the solution of smallest norm if it is not unique."""
    share = (weight / weight.sum())[:, None]
    x = kept - (share * kept).sum(0)
    y = outputs[:, None] - (share * outputs[:, None]).sum(0)
    root = weight.sqrt()[:, None]
    left, right = root * x, root * y
    if alpha > 0:
        n = kept.shape[1]
        left = torch.cat([left, alpha**0.5 * torch.eye(n, dtype=left.dtype, device=left.device)])
        right = torch.cat([right, right.new_zeros(n, 1)])
    solution: Tensor = torch.linalg.lstsq(left, right, driver="gelsd").solution
    return solution[:, 0]
