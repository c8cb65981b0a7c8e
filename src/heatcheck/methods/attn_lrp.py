"""Relevance propagation through attention."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch
from heatcheck.methods.base import Method, method
from heatcheck.methods.relevance import Epsilon, Relevance, Rule, gamma_rule, propagate
from heatcheck.probe.asks import Shape
from heatcheck.probe.probe import Probe


@method("attn_lrp", family="relevance", uses=("gradient",), properties=("dummy", "linear", "symmetric"), version=3)
@dataclass(frozen=True, kw_only=True, repr=False)
class AttnLRP(Method):
    r"""Relevance propagation with rules for the operations in transformers.

    $R(q_i) = R(k_i) = \tfrac12 \dots, \quad R(s_i) = s_i \big(R(a_i) - a_i \sum_j R(a_j)\big), \quad a = \mathrm{softmax}(s)$

    A product or matrix product of two signals gives half to each, softmax is linearised at its input, GELU and SiLU
    pass all relevance on, the deviation in a layer norm is treated as a constant, and linear layers use the ε-rule.

    Args:
        variant: `attn` as above; `cp` treats attention weights as constants, so that values get all relevance. Without
            biases `cp` sums to the output; `attn` does not, because softmax is not zero at zero.
        gamma: use the γ-rule on convolutions and linear layers (0.05 to 0.25 for vision transformers); 0 is the ε-rule.
        epsilon: the stabiliser in the denominator of the ε-rule.

    Paper: achtibat2024; cp: ali2022.
    Cost per sample: 1 forward and 1 backward.
    """

    variant: str = "attn"
    gamma: float = 0.0
    epsilon: float = 1e-9

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"variant": ("attn", "cp")}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon < 0 or self.gamma < 0:
            raise SpecError(f"method attn_lrp: epsilon={self.epsilon} and gamma={self.gamma} must not be negative")

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        rule: Rule = gamma_rule(self.gamma) if self.gamma else Epsilon(self.epsilon)

        def rules() -> Relevance:
            return Relevance(rule, rule, constant_attention=self.variant == "cp")

        return propagate(probe, batch, rules, self.output)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 1, 1
