"""KernelSHAP."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.methods.base import method
from heatcheck.methods.coalitions import CoalitionMethod, Game, all_sets, ways
from heatcheck.probe.asks import Shape


@method("kernel_shap", family="perturbation", uses=(), properties=("complete", "implementation_invariant", "linear"))
@dataclass(frozen=True, kw_only=True, repr=False)
class KernelShap(CoalitionMethod):
    r"""Shapley values as the weights of a linear model of which units are there.

    $\min_\phi \sum_z \pi(z) \big(f_t(x^z) - f_t(x^0) - \phi^\top z\big)^2 \;\text{ with }\;
    \sum_m \phi_m = f_t(x) - f_t(x^0), \quad \pi(z) = \frac{M - 1}{\binom{M}{|z|} |z| (M - |z|)}$

    Sets of units are drawn as the kernel weighs them: first their size, then their members; each is asked together
    with its complement. Where all sets fit into `samples`, each is asked once and weighed by the kernel, and the values
    are Shapley's own. With fewer draws than units, the values are the most even ones that fit.

    Args:
        samples: sets of units.
        units: the players; a grid of 4 × 4 cells on pictures, tokens on texts.
        fill: what replaces those that are not there.

    Paper: lundberg2017.  Differs: sets come in complementary pairs; that the values sum to the drop is exact, not a
    large weight; each site gets its unit's value divided by the unit's area.
    Cost per sample: `samples` forwards, fewer where there are fewer sets, and 2 that are shared.
    """

    samples: int = 1000

    def shares(self, game: Game, whole: Float[Tensor, " b"], nothing: Float[Tensor, " b"]) -> Float[Tensor, "b u"]:
        counts = game.units.count.tolist()
        drawn = [
            coalitions(n, self.samples, game.batch.streams.generator(i, "kernel-shap-sets"))
            for i, n in enumerate(counts)
        ]

        def kept(i: int, which: Int[Tensor, " k"]) -> Bool[Tensor, "k u"]:
            return drawn[i][0][which]

        heard = game.play([len(z) for z, _ in drawn], kept)
        worth = torch.zeros(len(counts), game.units.width, dtype=torch.float64)
        for i, (z, weight) in enumerate(drawn):
            worth[i, : counts[i]] = constrained(z.double(), heard[i] - nothing[i], weight, whole[i] - nothing[i])
        return worth

    def questions(self, shape: Shape) -> int:
        return min(self.samples, max(0, ways(shape.units(self.units)) - 2))


def coalitions(units: int, samples: int, rng: torch.Generator) -> tuple[Bool[Tensor, "n u"], Float[Tensor, " n"]]:
    """Sets of units, neither none nor all, and what each counts."""
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
    """Weighted least squares among the weights that sum to `total`; the most even ones where there are many.

    An even split already has the sum; what is fitted beside it is orthogonal to the ones, because the rows are.
    """
    size = z.shape[1]
    if not len(z):
        return total.expand(size) / max(1, size)
    root = weight.sqrt()[:, None]
    share = z.mean(1, keepdim=True)
    left, right = root * (z - share), root * (gain[:, None] - share * total)
    beside: Tensor = torch.linalg.lstsq(left, right, driver="gelsd").solution[:, 0]
    return total / size + beside - beside.mean()
