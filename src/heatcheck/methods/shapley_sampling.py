"""Shapley value sampling."""

import itertools
import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.methods.base import method, stacked
from heatcheck.methods.coalitions import CoalitionMethod, Game
from heatcheck.probe.asks import Shape


@method(
    "shapley_sampling",
    family="perturbation",
    uses=(),
    properties=("complete", "dummy", "implementation_invariant", "linear"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class ShapleySampling(CoalitionMethod):
    r"""What each unit adds when units are added one after another, averaged over random orders.

    $\phi_m = \operatorname{mean}_\pi \big(f_t(x^{P \cup m}) - f_t(x^P)\big), \quad
    P = \{ m' : \pi(m') < \pi(m) \}$

    Every order is also used backwards (antithetic pairs). If a sample has so few units that all orders fit, each is
    used once and the Shapley values are exact. With any number of orders the values sum to
    $f_t(x) - f_t(x^{\text{all}})$; interchangeable units get equal values only on average.

    Args:
        samples: number of random orders, each used in both directions.
        units: the players; a grid of 4 × 4 cells on pictures, tokens on texts.
        fill: what replaces absent units.

    Paper: castro2009.  Differs: antithetic pairs; each site gets its unit's value divided by the unit's area.
    Cost per sample: 2 `samples` × (units - 1) forwards, and 2 that are shared.
    """

    samples: int = 25

    def shares(self, game: Game, whole: Float[Tensor, " b"], nothing: Float[Tensor, " b"]) -> Float[Tensor, "b u"]:
        counts = game.units.counts
        turns = [
            orders(n, self.samples, game.batch.streams.generator(i, "shapley-orders")).argsort(1)
            for i, n in enumerate(counts)
        ]

        there = stacked(turns, game.units.width, game.probe.device)

        def kept(rows: Int[Tensor, " k"], which: Int[Tensor, " k"]) -> Bool[Tensor, "k u"]:
            between = game.units.count[rows] - 1
            present: Tensor = there[rows, which // between] <= (which % between)[:, None]
            return present

        outputs = game.play([len(turn) * max(0, n - 1) for turn, n in zip(turns, counts, strict=True)], kept)
        values = torch.zeros(len(counts), game.units.width, dtype=torch.float64)
        for i, (turn, n) in enumerate(zip(turns, counts, strict=True)):
            if n:
                ends = [end[i].expand(len(turn), 1) for end in (nothing, whole)]
                path = torch.cat([ends[0], outputs[i].reshape(len(turn), n - 1), ends[1]], 1)
                values[i, :n] = path.diff(dim=1).gather(1, turn).mean(0)
        return values

    def questions(self, shape: Shape) -> int:
        n = shape.units(self.units)
        return number_of_orders(n, self.samples) * max(0, n - 1)


def number_of_orders(units: int, samples: int) -> int:
    """The number of orders used: two per draw, or all orders if there are fewer."""
    return min(2 * samples, math.factorial(min(units, 20)))


def orders(units: int, samples: int, rng: torch.Generator) -> Int[Tensor, "n u"]:
    """Random orders and their reverses, or every order once if there are no more than that."""
    if math.factorial(min(units, 20)) <= 2 * samples:
        return torch.tensor(list(itertools.permutations(range(units))), dtype=torch.long)
    drawn = torch.rand(samples, units, generator=rng, dtype=torch.float64).argsort(1)
    return torch.cat([drawn, drawn.flip(1)])
