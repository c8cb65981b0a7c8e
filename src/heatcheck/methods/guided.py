"""Guided backpropagation and its relatives: gradients whose negative part is dropped at every ReLU."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.devices import constants
from heatcheck.core.types import Batch, NotApplicable
from heatcheck.methods.base import Method, method
from heatcheck.methods.cams import GradCam
from heatcheck.probe.asks import Ask, Shape, gradient
from heatcheck.probe.inside import Seen
from heatcheck.probe.probe import Probe
from heatcheck.probe.rules import Rules

RECTIFIERS = ("relu", "relu6", "hardtanh", "clamp", "clamp_min", "threshold")
GATES = ("sigmoid", "hardsigmoid")
DIVISORS = ("reciprocal", "rsqrt")
"""What divides a signal by its norm; like a layer norm it is no activation."""


class Deconvolved(Rules):
    """A rectifier passes back the positive part of the signal, whatever its input was."""

    def __init__(self) -> None:
        super().__init__()
        self.rectifies = False
        self.mixes = False
        self.gates: list[tuple[str, Tensor, Tensor]] = []

    def rectifier(self, x: Tensor, apply: Callable[[Tensor], Tensor]) -> Tensor:
        """A ReLU, clipped or not."""
        out: Tensor = _Rectified.apply(apply(x.detach()), x)  # type: ignore[no-untyped-call]
        return out

    def activation(self, name: str, x: Tensor, apply: Callable[[Tensor], Tensor]) -> Tensor:
        if rectifies(name, x, apply):
            self.rectifies = True
            return self.rectifier(x, apply)
        if name in DIVISORS:
            return apply(x)
        if name not in GATES:
            raise undefined(name)
        self.gates.append((name, x, apply(x)))
        return self.gates[-1][-1]

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        for name, x, gate in self.gates:
            if (gate is a and x is b) or (gate is b and x is a):
                raise undefined(f"x · {name}(x)")
        self.gates = [entry for entry in self.gates if entry[-1] is not a and entry[-1] is not b]
        return super().product(a, b)

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        self.mixes = True
        return super().softmax(x, dim)

    def refuse_unsupported(self) -> None:
        """Refuse a network whose non-linearity is not its rectifiers; called after it has run."""
        if self.gates:
            raise undefined(self.gates[0][0])
        if self.mixes and not self.rectifies:
            raise undefined("softmax")


class Guided(Deconvolved):
    """A rectifier passes back the positive part of the signal, where its input was positive."""

    def rectifier(self, x: Tensor, apply: Callable[[Tensor], Tensor]) -> Tensor:
        plain = apply(x)
        out: Tensor = _Rectified.apply(plain.detach(), plain)  # type: ignore[no-untyped-call]
        return out


class _Rectified(torch.autograd.Function):
    """The first argument; the positive part of its gradient goes to the second."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, out: Tensor, back: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[None, Tensor]:
        return None, grads[0].relu()


def rectifies(name: str, x: Tensor, apply: Callable[[Tensor], Tensor]) -> bool:
    """Whether an activation is a ReLU, clipped or not, whatever its name."""
    if name not in RECTIFIERS:
        return False
    around_zero = constants((-1, -1e-3, 0, 1e-3), x.dtype, x.device)
    return torch.equal(apply(around_zero), around_zero.relu())


def undefined(what: str) -> NotApplicable:
    """The reason why a network with other non-linearities than rectifiers is refused."""
    return NotApplicable(
        f"is defined for networks whose activations are ReLUs, and this one has {what}; "
        "try saliency, input_x_gradient or integrated_gradients"
    )


def passed_back(probe: Probe, batch: Batch, rules: type[Deconvolved], output: str) -> Float[Tensor, "b ..."]:
    """The gradient at the input, with rectifiers under other rules."""

    def read(seen: Seen[Deconvolved]) -> Tensor:
        seen.rules.refuse_unsupported()
        return seen.slope()

    rows = probe.rows(len(batch))
    return torch.cat([slope for _, slope in probe.run_with_rules(batch, rows, batch.x.take, rules, read, output)])


@method("guided_backprop", family="gradient", uses=("gradient", "relu"), properties=("gradient_on_linear",), version=2)
@dataclass(frozen=True, kw_only=True, repr=False)
class GuidedBackprop(Method):
    r"""The gradient, with its negative part dropped at every ReLU.

    At a rectifier $y = \mathrm{ReLU}(z)$ the signal $R$ goes back as
    $R_z = \mathbb{1}[z > 0]\, \mathbb{1}[R_y > 0]\, R_y$; everything else has its ordinary derivative.

    ReLU6 counts as a rectifier, open between 0 and 6. Sigmoids that weight channels (squeeze and excitation) are not
    activations in the paper's sense and keep their derivative. Networks with other activations are refused.

    Args:
        final_relu_only: apply the ReLU once, to the gradient at the input, as in Meta-Rank's formula S5; that is not
            the published method, and works with any activation.
        reduction: as in `saliency`: `auto` sums channels, and takes the Euclidean norm (`l2`) of a word embedding's
            signal, whose sum is zero where a LayerNorm comes next. With `final_relu_only` it is the sum.

    Paper: springenberg2015.
    Cost per sample: 1 gradient.
    """

    final_relu_only: bool = False
    reduction: str = "auto"

    @property
    def plain_gradient(self) -> bool:
        return not self.final_relu_only

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        if self.final_relu_only:
            return probe.gradient(batch, self.output).relu()
        return passed_back(probe, batch, Guided, self.output)

    def asks(self, shape: Shape) -> set[Ask]:
        return gradient(self.output) if self.final_relu_only else set()

    def passes(self, shape: Shape) -> tuple[int, int]:
        return (0, 0) if self.final_relu_only else (1, 1)


@method("deconvolution", family="gradient", uses=("gradient", "relu"), properties=("gradient_on_linear",), version=2)
@dataclass(frozen=True, kw_only=True, repr=False)
class Deconvolution(Method):
    r"""The gradient, with the ReLU applied to the backward signal in place of its derivative.

    At a rectifier $R_z = \mathbb{1}[R_y > 0]\, R_y$; everything else has its ordinary derivative.

    ReLU6 counts as a rectifier; sigmoids that weight channels keep their derivative; networks with other activations
    are refused.

    Args:
        reduction: as in `saliency`: `auto` sums channels, and takes the Euclidean norm (`l2`) of a word embedding's
            signal, whose sum is zero where a LayerNorm comes next.

    Paper: zeiler2014.  Differs: starts at the class score, not at a feature; max-pooling sends the signal back to the
        positions of the maxima, which the paper calls switches.
    Cost per sample: 1 gradient.
    """

    reduction: str = "auto"

    @property
    def plain_gradient(self) -> bool:
        return True

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        return passed_back(probe, batch, Deconvolved, self.output)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 1, 1


@method(
    "guided_grad_cam",
    family="gradient",
    on=("image",),
    uses=("gradient", "layers", "relu"),
    elsewhere="it weighs the channels of a spatial feature map; try integrated_gradients or occlusion",
    version=2,
)
@dataclass(frozen=True, kw_only=True, repr=False)
class GuidedGradCam(Method):
    r"""Guided backpropagation times the upsampled Grad-CAM map.

    $a = \mathrm{GBP} \odot \mathrm{upsample}(\mathrm{ReLU}(\sum_k \alpha_k A_k))$

    Args:
        layer: the layer of the Grad-CAM map; `auto` as in `grad_cam`.
        upsample: `bilinear` as in the paper, or `nearest`, Captum's default.

    Paper: selvaraju2017.
    Cost per sample: 2 gradients, one of them through the layers after `layer` only.
    """

    layer: str = "auto"
    upsample: str = "bilinear"

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"upsample": ("bilinear", "nearest")}

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b c h w"]:
        guided = passed_back(probe, batch, Guided, self.output)
        where = probe.domain.layout(self.grad_cam.attribute(probe, batch), batch.x, self.upsample)
        return guided * probe.domain.as_map(where, batch.x)[:, None]

    @property
    def grad_cam(self) -> GradCam:
        """The Grad-CAM that it multiplies with."""
        return GradCam(layer=self.layer, output=self.output)

    def asks(self, shape: Shape) -> set[Ask]:
        return self.grad_cam.asks(shape)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 1, 1
