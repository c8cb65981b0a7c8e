"""Layer-wise relevance propagation."""

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
MIXED = {
    "epsilon_plus_flat": ("alpha1_beta0", "epsilon", "flat"),
    "epsilon_gamma_box": ("gamma", "epsilon", "box"),
}
"""Composites of several rules: for convolutions, linear layers and the first convolution. Others use one rule."""


@method("lrp", family="relevance", uses=("gradient",), properties=("linear", "symmetric"), version=3)
@dataclass(frozen=True, kw_only=True, repr=False)
class LRP(Method):
    r"""The output passed back layer by layer, at each layer in proportion to the contributions of its inputs.

    $R_i = \sum_j \frac{x_i w_{ij}}{z_j + \epsilon\,\mathrm{sign}(z_j)} R_j$

    is the ε-rule; other rules give positive contributions more weight than negative ones. Without biases the map sums
    to the output. With ε → 0 everywhere it is input × gradient on ReLU networks.

    | composite | convolutions | linear layers | first convolution |
    |---|---|---|---|
    | `epsilon_plus_flat` | α1β0 (z⁺) | ε | flat: evenly over the window |
    | `epsilon_gamma_box` | γ | ε | z^B: relative to the darkest and brightest pixel |
    | `epsilon` | ε | ε | ε |
    | `gamma` | γ | γ | γ |
    | `alpha1_beta0`, `alpha2_beta1` | αβ | αβ | αβ |

    Args:
        composite: which rule is used where.
        epsilon: the stabiliser in the denominator of the ε-rule.
        gamma: how much more positive contributions count in the γ-rule.

    Paper: bach2015, montavon2019.  Differs: batch norms are merged into the layer before them; the γ-rule also
    handles negative inputs and outputs; attention follows `attn_lrp`; a linear first layer keeps the ε-rule.
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
        """A factory of the composite's rules, which are new for every call of the network."""
        rules: dict[str, Rule] = {
            "epsilon": Epsilon(self.epsilon),
            "gamma": gamma_rule(self.gamma),
            "alpha1_beta0": alpha_beta(1.0, 0.0),
            "alpha2_beta1": alpha_beta(2.0, 1.0),
        }
        conv, linear, first = MIXED.get(self.composite, (self.composite, self.composite, None))
        entry = box(*probe.domain.bounds(batch.x)) if first == "box" else flat if first == "flat" else None
        return lambda: Relevance(rules[conv], rules[linear], entry)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 1, 1
