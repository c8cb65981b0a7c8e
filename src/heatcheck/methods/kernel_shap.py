"""KernelSHAP."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.methods.base import method, stacked
from heatcheck.methods.coalitions import CoalitionMethod, Game, all_sets, ways
from heatcheck.probe.asks import Shape


@method("kernel_shap", family="perturbation", uses=(), properties=("complete", "implementation_invariant", "linear"))
@dataclass(frozen=True, kw_only=True, repr=False)
class KernelShap(CoalitionMethod):
    r"""Shapley values, as the coefficients of a linear model of which units are present.

    $\min_\phi \sum_z \pi(z) \big(f_t(x^z) - f_t(x^0) - \phi^\top z\big)^2 \;\text{ with }\;
    \sum_m \phi_m = f_t(x) - f_t(x^0), \quad \pi(z) = \frac{M - 1}{\binom{M}{|z|} |z| (M - |z|)}$

    Sets of units are drawn with the kernel as their probability, first the size, then the members; each comes with its
    complement. If all sets fit into `samples`, each is used once with its kernel weight, and the Shapley values are
    exact. With fewer draws than units, the solution is the one closest to an even split.

    Args:
        samples: number of sets of units.
        units: the players; a grid of 4 × 4 cells on pictures, tokens on texts.
        fill: what replaces absent units.

    Paper: lundberg2017.  Differs: sets come in complementary pairs; the constraint on the sum is exact, not a large
    weight; each site gets its unit's value divided by the unit's area.
    Cost per sample: `samples` forwards, fewer where there are fewer sets, and 2 that are shared.
    """

    samples: int = 1000

    def shares(self, game: Game, whole: Float[Tensor, " b"], nothing: Float[Tensor, " b"]) -> Float[Tensor, "b u"]:
        counts = game.units.counts
        drawn = [
            coalitions(n, self.samples, game.batch.streams.generator(i, "kernel-shap-sets"))
            for i, n in enumerate(counts)
        ]

        there = stacked([z for z, _ in drawn], game.units.width, game.probe.device)

        def kept(rows: Int[Tensor, " k"], which: Int[Tensor, " k"]) -> Bool[Tensor, "k u"]:
            return there[rows, which]

        outputs = game.play([len(z) for z, _ in drawn], kept)
        values = torch.zeros(len(counts), game.units.width, dtype=torch.float64)
        for i, (z, weight) in enumerate(drawn):
            values[i, : counts[i]] = constrained(z.double(), outputs[i] - nothing[i], weight, whole[i] - nothing[i])
        return values

    def questions(self, shape: Shape) -> int:
        return min(self.samples, max(0, ways(shape.units(self.units)) - 2))


def coalitions(units: int, samples: int, rng: torch.Generator) -> tuple[Bool[Tensor, "n u"], Float[Tensor, " n"]]:
    """Sets of units, without the empty and the full one, and the weight of each."""
    size = torch.arange(1, max(1, units), dtype=torch.float64)
    by_size = (units - 1) / (size * (units - size))  # of all sets of that size together
    if ways(units) - 2 <= samples:
        sets = all_sets(units)[1:-1]
        many = torch.tensor([math.comb(units, k) for k in range(1, units)], dtype=torch.float64)
        return sets, (by_size / many)[sets.sum(1) - 1]
    pairs = -(-samples // 2)
    drawn = 1 + torch.multinomial(by_size, pairs, replacement=True, generator=rng)
    place = torch.rand(pairs, units, generator=rng, dtype=torch.float64).argsort(1).argsort(1)
    first = place < drawn[:, None]
    return torch.cat([first, ~first])[:samples], torch.ones(samples, dtype=torch.float64)


def constrained(
    z: Float[Tensor, "n u"], gain: Float[Tensor, " n"], weight: Float[Tensor, " n"], total: Float[Tensor, ""]
) -> Float[Tensor, " u"]:
    """Weighted least squares with coefficients that sum to `total`; the ones closest to an even split if not unique.

    An even split already has the sum. What is fitted on top of it sums to zero, because the rows do.
    """
    size = z.shape[1]
    if not len(z):
        return total.expand(size) / max(1, size)
    root = weight.sqrt()[:, None]
    share = z.mean(1, keepdim=True)
    left, right = root * (z - share), root * (gain[:, None] - share * total)
    rest: Tensor = torch.linalg.lstsq(left, right, driver="gelsd").solution[:, 0]
    return total / size + rest - rest.mean()
