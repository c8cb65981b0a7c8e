"""FullGrad: contributions of the input and of the biases."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Batch, NotApplicable
from heatcheck.methods.base import Method, method
from heatcheck.methods.cams import channel_sum
from heatcheck.probe.asks import Shape
from heatcheck.probe.inside import Seen
from heatcheck.probe.probe import Probe
from heatcheck.probe.rules import Rules, depends, operation

HOMOGENEOUS = ("relu", "leaky_relu", "prelu", "abs")
"""Activations whose tangent has no intercept."""


@method(
    "full_grad",
    family="gradient",
    on=("image",),
    uses=("gradient",),
    properties=("nonnegative",),
    elsewhere="it adds up spatial maps of biases; try integrated_gradients or deep_lift",
    version=3,
)
@dataclass(frozen=True, kw_only=True, repr=False)
class FullGrad(Method):
    r"""The absolute values of input × gradient and of every layer's bias × gradient, summed.

    $A = \psi(x \odot \partial f_t / \partial x) + \sum_l \psi(b_l \odot \partial f_t / \partial z_l), \quad
    \psi$: absolute value, scaled to [0, 1] per layer, summed over channels, interpolated bilinearly to pixels

    Biases are those of convolutions, of batch norm by its running statistics, constants that are added, and the
    intercepts of tangents, $\phi(z) - \phi'(z) z$, of everything else that is not linear. Without $\psi$ all terms
    sum to $f_t(x)$. Terms without a position in the image (linear heads, pooled channels) are not in the map, as in the
    paper; networks with attention, where most biases belong to tokens, are refused.

    Paper: srinivas2019.  Differs: $\psi$ scales a layer as a whole, as the authors' code does; pixels are interpolated
        between centres, not corners; $\psi$ divides by the layer's largest value exactly, where the authors' code adds
        eps = 1e-6 to it, which shrinks layers of small values; a constant layer contributes nothing.
    Cost per sample: 1 gradient.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b h w"]:
        def read(seen: Seen[Intercepts]) -> Tensor:
            if seen.rules.attends:
                raise NotApplicable(
                    "finds no place in the picture for the biases of tokens; try input_x_gradient, deep_lift or "
                    "integrated_gradients"
                )
            terms = list(decompose(seen))
            require_sum(terms, seen, probe.model.name)
            shown = [
                probe.domain.layout(scaled(term.spatial()), batch.x, "bilinear") for term in terms if term.has_place
            ]
            return torch.stack(shown, -1).sum(-1)

        rows = probe.rows(len(batch))
        found = probe.run_with_rules(batch, rows, batch.x.take, Intercepts, read, self.output)
        return probe.domain.as_map(torch.cat([sites for _, sites in found]), batch.x)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 1, 1


@dataclass(frozen=True)
class Term:
    """The contribution of one layer's biases, or of the input, to the value; `last`: channels are the last axis."""

    values: Float[Tensor, "n ..."]
    last: bool = False

    @property
    def has_place(self) -> bool:
        """Whether values belong to positions in the image."""
        return self.values.ndim == 4 and self.spatial()[0, 0].numel() > 1

    def spatial(self) -> Float[Tensor, "n c h w"]:
        """Values with their channels first."""
        return self.values.movedim(-1, 1) if self.last else self.values


def scaled(values: Float[Tensor, "n c h w"]) -> Float[Tensor, "n h w"]:
    """Absolute values, scaled to [0, 1] per sample and summed over channels."""
    size = values.abs()
    low, high = size.amin((1, 2, 3), keepdim=True), size.amax((1, 2, 3), keepdim=True)
    share = torch.where(high > low, (size - low) / (high - low), 0)
    return channel_sum(share)


def decompose(seen: "Seen[Intercepts]") -> Iterator[Term]:
    """The terms that sum to the value explained: the input's, then each layer's; the scalar's own comes last."""
    layers = seen.rules.layers
    places = [seen.leaf, seen.logits, seen.entered, *(out for out, _, _ in layers)]
    slopes = torch.autograd.grad(seen.value.sum(), places, allow_unused=True, materialize_grads=True)
    own = (seen.leaf * slopes[0]).detach()
    yield Term(own)
    constant = (seen.entered * slopes[2]).detach() - own
    if constant.any():  # what a blindfold puts in place of what it hides
        yield Term(constant)
    for (_, intercept, last), slope in zip(layers, slopes[3:], strict=True):
        yield Term(intercept * slope, last)
    yield Term((seen.value - (seen.logits * slopes[1]).sum(1)).detach())


def require_sum(terms: list[Term], seen: "Seen[Intercepts]", name: str) -> None:
    """Refuse a network that adds a constant which the rules do not see."""
    rows = torch.cat([term.values.reshape(len(seen.value), -1) for term in terms], 1)
    tolerance = 10 * torch.finfo(rows.dtype).eps ** 0.5
    if ((rows.sum(1) - seen.value).abs() > tolerance * rows.abs().sum(1)).any():
        raise NotApplicable(
            f"cannot follow {name}: its terms do not sum to the score, so a constant comes in that is no bias; "
            "try input_x_gradient or integrated_gradients"
        )


class Intercepts(Rules):
    """Records, for every operation that is not linear, the intercept of its tangent."""

    graphs = 4

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[tuple[Tensor, Tensor, bool]] = []
        """Results, their intercepts, and whether channels are their last axis."""
        self.attends = False
        self._channels_last: dict[int, Tensor] = {}

    def note(self, out: Tensor, intercept: Any = None, *sources: Any, last: bool = False) -> Tensor:
        """Record a result; its channels are last if those of a source are."""
        last = last or any(id(source) in self._channels_last for source in sources)
        if last:
            self._channels_last[id(out)] = out
        if intercept is not None:
            self.layers.append((out, torch.as_tensor(intercept, dtype=out.dtype).detach(), last))
        return out

    def affine(self, op: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, **how: Any) -> Tensor:
        out = super().affine(op, x, weight, bias, **how)
        last = operation(op) == "linear"
        shape = (-1, *[1] * (weight.ndim - 2))
        return self.note(out, None if bias is None else bias.reshape(shape), last=last)

    def scaled(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return self.note(super().scaled(x, scale, shift), shift, x, last=scale.ndim == 1)

    def activation(self, name: str, x: Tensor, apply: Callable[[Tensor], Tensor]) -> Tensor:
        out = super().activation(name, x, apply)
        if name in HOMOGENEOUS:
            return self.note(out, None, x)
        (slope,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
        return self.note(out, out - slope * x, x)

    def add(self, a: Any, b: Any) -> Tensor:
        constant = None if depends(a) and depends(b) else b if depends(a) else a
        return self.note(super().add(a, b), constant, a, b)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        out = super().product(a, b)
        return self.note(out, -out, a, b)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        self.attends = True
        out = super().matmul(a, b)
        return self.note(out, -out)

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        out = super().softmax(x, dim)
        moved = torch.where(out == 0, 0, out * x)
        return self.note(out, out - moved + out * moved.sum(dim, keepdim=True))

    def normalise(self, x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
        out = super().normalise(x, dims, eps)
        return self.note(out, out * out.square().mean(dims, keepdim=True), x, last=dims == (-1,) and x.ndim == 4)

    def length(self, x: Tensor, order: float, dims: tuple[int, ...], least: float) -> Tensor:
        out = super().length(x, order, dims, least)
        return self.note(out, torch.where(out > least, 0, out))
