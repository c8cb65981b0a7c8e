"""AffineLayer-wise relevance propagation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch
from heatcheck.methods.base import Method, method
from heatcheck.methods.relevance import Epsilon, Relevance, Rule, alpha_beta, box, flat, gamma_rule, propagate
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe

COMPOSITES = ("epsilon_plus_flat", "epsilon_gamma_box", "epsilon", "gamma", "alpha1_beta0", "alpha2_beta1")


@method("lrp", family="relevance", uses=("gradient",), properties=("linear", "symmetric"))
@dataclass(frozen=True, kw_only=True, repr=False)
class LRP(Method):
    r"""The output handed back from layer to layer, each layer in proportion to what it was made of.

    $R_i = \sum_j \frac{x_i w_{ij}}{z_j + \epsilon\,\mathrm{sign}(z_j)} R_j$

    is the ε-rule; others weigh what speaks for an output more than what speaks against it. Without biases the map sums
    to the output. With ε → 0 everywhere it is input × gradient on ReLU networks.

    | composite | convolutions | linear layers | first convolution |
    |---|---|---|---|
    | `epsilon_plus_flat` | α1β0 (z⁺) | ε | flat: evenly over the window |
    | `epsilon_gamma_box` | γ | ε | z^B: by distance from darkest and brightest |
    | `epsilon` | ε | ε | ε |
    | `gamma` | γ | γ | γ |
    | `alpha1_beta0`, `alpha2_beta1` | αβ | αβ | αβ |

    Args:
        composite: which rule holds where.
        epsilon: what keeps the ε-rule from dividing by nothing.
        gamma: how much more positive contributions count in the γ-rule.

    Paper: bach2015, montavon2019.  Differs: batch norms are merged into the layer before them; the γ-rule also knows
    negative inputs and outputs; attention follows `attn_lrp`; a first layer that sees the whole input keeps ε.
    Cost per sample: 1 forward and 1 backward; two gradients' time with the default, up to five with γ and αβ.
    """

    composite: str = "epsilon_plus_flat"
    epsilon: float = 1e-9
    gamma: float = 0.25

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"composite": COMPOSITES}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon < 0 or self.gamma < 0:
            raise SpecError(f"method lrp: epsilon={self.epsilon} and gamma={self.gamma} must not be negative")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return propagate(probe, batch, self.rules(probe, batch), self.output)

    def rules(self, probe: Probe, batch: Batch) -> Callable[[], Relevance]:
        """Makes the composite's rules."""
        epsilon, gamma = Epsilon(self.epsilon), gamma_rule(self.gamma)
        if self.composite == "epsilon_plus_flat":
            return lambda: Relevance(alpha_beta(1.0, 0.0), epsilon, flat)
        if self.composite == "epsilon_gamma_box":
            low, high = probe.domain.bounds(batch.x)
            return lambda: Relevance(gamma, epsilon, box(low, high))
        rules: dict[str, Rule] = {
            "epsilon": epsilon,
            "gamma": gamma,
            "alpha1_beta0": alpha_beta(1.0, 0.0),
            "alpha2_beta1": alpha_beta(2.0, 1.0),
        }
        everywhere = rules[self.composite]
        return lambda: Relevance(everywhere, everywhere)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 1, 1
