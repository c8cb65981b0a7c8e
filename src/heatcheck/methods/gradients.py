"""The gradient, and the gradient times the input."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Batch
from heatcheck.methods.base import Method, method
from heatcheck.probe.asks import Ask, Shape, gradient
from heatcheck.probe.probe import Probe


@method(
    "saliency",
    family="gradient",
    uses=("gradient",),
    properties=("gradient_on_linear", "implementation_invariant", "linear"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class Saliency(Method):
    r"""The gradient of the class score.

    $a = \partial f_t / \partial x$

    Args:
        reduction: how channels or embedding coordinates become one number per site. `auto` sums channels, and takes the
            Euclidean norm (`l2`) of a word embedding's gradient, whose sum is zero where a LayerNorm comes next.

    Paper: simonyan2014.  Differs: signed on images; the paper takes the largest absolute channel, here `reduction`
    decides.
    Cost per sample: 1 gradient.
    """

    reduction: str = "auto"

    @property
    def plain_gradient(self) -> bool:
        return True

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return probe.gradient(batch, self.output)

    def asks(self, shape: Shape) -> set[Ask]:
        return gradient(self.output)


@method(
    "input_x_gradient",
    family="gradient",
    uses=("gradient",),
    properties=("implementation_invariant", "linear", "dummy"),
)
@dataclass(frozen=True, kw_only=True, repr=False)
class InputXGradient(Method):
    r"""The input times the gradient.

    $a = x \odot \partial f_t / \partial x$

    Sums to the score for networks without biases (piecewise linear and homogeneous).
    Paper: shrikumar2016.
    Cost per sample: 1 gradient.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return probe.domain.leaf(batch.x).detach() * probe.gradient(batch, self.output)

    def asks(self, shape: Shape) -> set[Ask]:
        return gradient(self.output)
