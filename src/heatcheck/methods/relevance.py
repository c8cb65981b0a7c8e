r"""Relevance propagation: every operation passes its output's relevance back to its inputs, in shares set by a rule.

What flows back is not the relevance $R$ of a tensor but $G = R / \text{tensor}$, because $G$ follows the chain rule as
gradients do. Sums, reshapes, pooling and fixed factors then distribute relevance in proportion without any rule;
`design/relevance.md` gives the reasons.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import Batch, NotApplicable
from heatcheck.probe.inside import Seen
from heatcheck.probe.probe import Probe
from heatcheck.probe.rules import Rules, depends, operation, words

Back = Callable[..., tuple[Tensor, ...]]

_THROUGH_ZERO = frozenset(
    ("relu6", "hardtanh", "leaky_relu", "prelu", "elu", "selu", "celu", "gelu", "silu", "mish", "hardswish", "tanh")
)
"""Activations other than ReLU that map 0 to 0: the input gets all relevance of the output."""
DIVISORS = frozenset(("reciprocal", "rsqrt"))
"""Activations by which a norm divides a signal."""
_GATES = frozenset(("sigmoid", "hardsigmoid")) | DIVISORS
"""Activations whose result scales a signal: in a product with them the signal gets all relevance."""
_STILL_A_GATE = words(
    "mul div unsqueeze squeeze view view_as reshape reshape_as flatten unflatten expand expand_as repeat permute "
    "transpose getitem to type type_as float double half bfloat16 contiguous clone"
)
"""Operations that leave a gate what it is: they move it, or multiply it by a constant."""


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """`a / b`, and 0 where `b` is too small to divide by."""
    usable = b.abs() > torch.finfo(b.dtype).tiny ** 0.5
    return torch.where(usable, a / torch.where(usable, b, 1), 0)


class _Ruled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Tensor], back: Back, *inputs: Tensor) -> Tensor:
        out = compute(*inputs)
        ctx.back = back
        ctx.save_for_backward(out, *inputs)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.back(g, *ctx.saved_tensors)


def ruled(compute: Callable[..., Tensor], back: Back, *inputs: Tensor) -> Tensor:
    """`compute(*inputs)`, whose derivatives are `back(g, out, *inputs)`.

    `back` must not refer to the rules, which refer to this tensor: such a reference cycle is never freed.
    """
    out: Tensor = _Ruled.apply(compute, back, *inputs)  # type: ignore[no-untyped-call]
    return out


def passed(compute: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """An elementwise operation whose input gets all relevance of its output."""
    return ruled(compute, lambda g, out, x: (g * ratio(out, x),), x)


def halved(x: Tensor) -> Tensor:
    """`x` itself; half of its relevance is passed back."""
    return (x + x.detach()) / 2


# -- rules of convolutions and linear layers ---------------------------------------------------------------------


@dataclass(frozen=True)
class AffineLayer:
    """A convolution or linear layer: its operation and parameters, without an input."""

    op: Callable[..., Tensor]
    weight: Tensor
    bias: Tensor | None
    how: dict[str, Any]

    def __call__(self, x: Tensor) -> Tensor:
        return self.op(x, self.weight, self.bias, **self.how)

    @property
    def convolves(self) -> bool:
        """Whether it is a convolution, which looks at one window at a time."""
        return operation(self.op) != "linear"

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """The same operation with other weights and no bias."""
        return self.op(x, weight, None, **self.how)

    def transposed(self, x: Tensor, weight: Tensor, s: Callable[[Tensor], Tensor]) -> Tensor:
        """The layer's transpose with other weights, applied to `s` of what these weights make of `x`."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            z = self.linear(x, weight)
            return torch.autograd.grad(z, x, s(z.detach()))[0]

    def spread_bias(self, out: Tensor) -> Tensor | float:
        """The bias, shaped so that it can be added to the output."""
        if self.bias is None:
            return 0.0
        return self.bias.reshape(-1, *[1] * (out.ndim - 2)) if self.convolves else self.bias

    def merged(self, scale: Tensor, shift: Tensor) -> "AffineLayer | None":
        """This layer and the batch norm after it as one layer; None if the scales are not one per output channel."""
        fits = scale.ndim == self.weight.ndim and scale.numel() == len(self.weight)
        if not fits or operation(self.op).startswith("conv_transpose"):
            return None
        s, b = scale.flatten(), shift.flatten()
        bias = b if self.bias is None else b + s * self.bias
        return replace(self, weight=self.weight * s.reshape(-1, *[1] * (self.weight.ndim - 1)), bias=bias)


@dataclass(frozen=True)
class Epsilon:
    r"""The ε-rule, with the bias in $z$ and sign(0) = 1.

    $R_i = \sum_j \frac{x_i w_{ij}}{z_j + \epsilon\,\mathrm{sign}(z_j)} R_j$
    """

    epsilon: float

    def stabilised(self, z: Tensor) -> Tensor:
        """`z` itself; its derivative is scaled so that the layer before it follows the rule."""
        if self.epsilon == 0:
            return z
        epsilon = self.epsilon
        return ruled(torch.clone, lambda g, out, _: (g * out.abs() / (out.abs() + epsilon),), z)


@dataclass(frozen=True)
class Signed:
    """A rule that treats contributions `x_i w_ij` by their sign, whatever the sign of the input.

    Args:
        shares: from relevance, output and the sums of positive and negative contributions (each with its part of the
            bias) to the factors of the positive and the negative ones; None for a factor that is 0.
        negative: whether negative contributions get relevance.
        bias: whether the bias counts as a contribution.
    """

    shares: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor | None]]
    negative: bool = True
    bias: bool = True

    def back(self, layer: AffineLayer) -> Back:
        """Derivatives of a layer."""

        def back(g: Tensor, out: Tensor, x: Tensor) -> tuple[Tensor]:
            bias = layer.spread_bias(out) if self.bias else 0.0
            weights = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
            mixed = bool((x < 0).any())
            with torch.enable_grad():
                up, down = (t.detach().requires_grad_() for t in (x.clamp(min=0), x.clamp(max=0)))

                def total(first: Tensor, second: Tensor) -> Tensor:
                    z = layer.linear(up, first)
                    return z + layer.linear(down, second) if mixed else z

                plus = total(*weights)
                minus = total(*reversed(weights)) if self.negative else torch.zeros_like(plus)
            b = torch.as_tensor(bias)
            shares = self.shares(g * out, out, plus.detach() + b.clamp(min=0), minus.detach() + b.clamp(max=0))
            ends, factors = ([plus, minus], list(shares)) if self.negative else ([plus], [shares[0]])
            slopes = torch.autograd.grad(ends, [up, down] if mixed else [up], factors)
            return (torch.where(x < 0, slopes[1], slopes[0]) if mixed else slopes[0],)

        return back


def alpha_beta(alpha: float, beta: float, *, bias: bool = True) -> Signed:
    r"""Positive contributions get α times the relevance of an output, negative ones −β times.

    $R_i = \sum_j \big(\alpha \frac{(x_i w_{ij})^+}{z_j^+} - \beta \frac{(x_i w_{ij})^-}{z_j^-}\big) R_j$
    """

    def shares(r: Tensor, _out: Tensor, plus: Tensor, minus: Tensor) -> tuple[Tensor, Tensor | None]:
        return alpha * ratio(r, plus), -beta * ratio(r, minus) if beta else None

    return Signed(shares, negative=beta != 0, bias=bias)


def gamma_rule(gamma: float) -> Signed:
    r"""Contributions with the sign of the output count 1 + γ times.

    $R_i = \sum_j \frac{c_{ij} + \gamma c_{ij}^*}{\sum_i c_{ij} + \gamma c_{ij}^*} R_j$ with $c_{ij} = x_i w_{ij}$,
    where $c^*$ are the contributions with the sign of the output; for positive inputs and outputs, those of $w^+$.
    """

    def shares(r: Tensor, out: Tensor, plus: Tensor, minus: Tensor) -> tuple[Tensor, Tensor]:
        up = out > 0
        s = ratio(r, out + gamma * torch.where(up, plus, minus))
        return s * (1 + gamma * up), s * (1 + gamma * ~up)

    return Signed(shares)


@dataclass(frozen=True)
class FirstLayerRule:
    """A rule of the first convolution. Its shares are not in proportion to the pixels, so they are collected here.

    Args:
        relevance: computes relevance of the input from relevance of the output, the input and the layer.
        caught: the relevance of the input, once per call of the layer.
    """

    relevance: Callable[[Tensor, Tensor, AffineLayer], Tensor]
    caught: list[Tensor] = field(default_factory=list)

    def back(self, layer: AffineLayer) -> Back:
        """Derivatives of the layer: all zero."""
        relevance, caught = self.relevance, self.caught

        def back(g: Tensor, out: Tensor, x: Tensor) -> tuple[Tensor]:
            caught.append(relevance(g * out, x, layer))
            return (torch.zeros_like(x),)

        return back


def flat(r: Tensor, x: Tensor, layer: AffineLayer) -> Tensor:
    """Every pixel of a window gets the same share; padding gets nothing."""
    return layer.transposed(torch.ones_like(x), torch.ones_like(layer.weight), lambda z: ratio(r, z))


def box(low: Tensor, high: Tensor) -> Callable[[Tensor, Tensor, AffineLayer], Tensor]:
    r"""The z^B rule for pixels between $l$ and $h$.

    $R_i = \sum_j \frac{x_i w_{ij} - l_i w_{ij}^+ - h_i w_{ij}^-}{\sum_i x_i w_{ij} - l_i w_{ij}^+ - h_i w_{ij}^-} R_j$
    """

    def relevance(r: Tensor, x: Tensor, layer: AffineLayer) -> Tensor:
        if not x.is_leaf:
            raise NotApplicable(
                "the z^B rule needs the range of what the first convolution sees, but the network changes its input "
                "before that; try composite=epsilon_plus_flat"
            )
        whole, up, down = layer.weight, layer.weight.clamp(min=0), layer.weight.clamp(max=0)
        pairs = (x.detach(), whole), (-low.expand_as(x), up), (-high.expand_as(x), down)
        with torch.enable_grad():
            ends = [p.clone().requires_grad_() for p, _ in pairs]
            z = sum((layer.linear(e, w) for e, (_, w) in zip(ends, pairs, strict=True)), torch.zeros(()))
            slopes = torch.autograd.grad(z, ends, ratio(r, z.detach()))
        return sum((p * s for (p, _), s in zip(pairs, slopes, strict=True)), torch.zeros(()))

    return relevance


Rule = Epsilon | Signed
FirstLayerShares = Callable[[Tensor, Tensor, AffineLayer], Tensor]


# -- the rules of all operations ---------------------------------------------------------------------------------


@dataclass
class _Last:
    """The layer that ran last, kept until it is known whether a batch norm follows."""

    layer: AffineLayer
    rule: Rule | FirstLayerRule
    x: Tensor
    plain: Tensor
    out: Tensor


class Relevance(Rules):
    """Relevance propagation with one rule for convolutions and one for linear layers.

    * A batch norm that directly follows a convolution or linear layer is merged into it. Elsewhere (DenseNet) it is a
      layer of its own: with ε on convolutions it has the ε-rule, otherwise the rule in `_clipped`.
    * Activations that map 0 to 0 pass all relevance to their input; others follow their derivative.
    * In a product each factor gets half; a sigmoid, a reciprocal or a reciprocal root gets nothing. So what a signal is
      divided by, such as its norm, is a constant.
    * Maximum: the largest value gets all relevance. Layer norm: the deviation is a constant. Softmax: its derivative.

    Args:
        conv: the rule of convolutions.
        linear: the rule of linear layers.
        entry: the rule of the first layer, used if that is a convolution.
        constant_attention: treat attention weights as constants (CP-LRP), so that values get all relevance.
    """

    graphs = 2

    def __init__(
        self, conv: Rule, linear: Rule, entry: FirstLayerShares | None = None, *, constant_attention: bool = False
    ) -> None:
        super().__init__()
        self.conv, self.linear = conv, linear
        self.constant_attention = constant_attention
        self.entry = None if entry is None else FirstLayerRule(entry)
        self.seen: Tensor | None = None
        """The input of the first layer."""
        self._last: _Last | None = None
        self._gates: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs)
        name = operation(func)
        taken = args[:1] if name.endswith("_as") else (*args, *(kwargs or {}).values())
        given = [t for t in taken if depends(t)]
        if len(given) == 1 and depends(out):
            divides = name == "rdiv" or (name == "div" and bool(args) and given[0] is not args[0])
            if divides or (name in _STILL_A_GATE and id(given[0]) in self._gates):
                self.gate(out)
        return out

    def gate(self, out: Tensor) -> Tensor:
        """Remember a result that gets no relevance in a product."""
        self._gates[id(out)] = out
        return out

    def affine(self, op: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, **how: Any) -> Tensor:
        layer = AffineLayer(op, weight, bias, how)
        if self.seen is None:
            self.seen = x
            self.entry = self.entry if layer.convolves else None
        rule: Rule | FirstLayerRule = self.conv if layer.convolves else self.linear
        if self.entry is not None and x is self.seen and layer.convolves:
            rule = self.entry
        plain = layer(x) if isinstance(rule, Epsilon) else ruled(layer, rule.back(layer), x)
        out = rule.stabilised(plain) if isinstance(rule, Epsilon) else plain
        self._last = _Last(layer, rule, x, plain, out)
        return out

    def scaled(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        last, self._last = self._last, None
        merged = last.layer.merged(scale, shift) if last is not None and x is last.out else None
        if last is None or merged is None:
            if isinstance(self.conv, Epsilon):
                return self.conv.stabilised(scale * x + shift)
            return ruled(lambda x: scale * x + shift, _clipped(scale), x)
        if isinstance(last.rule, Epsilon):
            return last.rule.stabilised(scale * last.plain + shift)
        plain = last.plain.detach()
        return ruled(lambda _: scale * plain + shift, last.rule.back(merged), last.x)

    def activation(self, name: str, x: Tensor, apply: Callable[[Tensor], Tensor]) -> Tensor:
        if name in _THROUGH_ZERO:
            return passed(apply, x)
        return self.gate(apply(x)) if name in _GATES else apply(x)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        gates = id(a) in self._gates, id(b) in self._gates
        if gates == (True, False):
            return a.detach() * b
        if gates == (False, True):
            return a * b.detach()
        out = halved(a) * halved(b)
        return self.gate(out) if all(gates) else out

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul(halved(a), halved(b))

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        out = torch.softmax(x, dim)
        between_tokens = x.ndim > 2  # attention scores have an axis of queries; class scores are [sample, class]
        return out.detach() if self.constant_attention and between_tokens else out

    def normalise(self, x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
        variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + eps).detach()


def _clipped(scale: Tensor) -> Back:
    """A scale and shift: the input gets all relevance where the shift only reduces it.

    It gets its proportional share where the shift has the same sign, and nothing where the shift decides the sign.
    """

    def back(g: Tensor, out: Tensor, x: Tensor) -> tuple[Tensor]:
        return (g * scale * ratio(out, scale * x).clamp(0, 1),)

    return back


def propagate(probe: Probe, batch: Batch, rules: Callable[[], Relevance], output: str) -> Float[Tensor, "b ..."]:
    """Relevance of the leaf, from one forward and one backward pass per sample."""
    places = probe.domain.shape(batch.x)

    def read(seen: Seen[Relevance]) -> Tensor:
        entry, first = seen.rules.entry, seen.rules.seen
        (g,) = seen.gradients([seen.leaf], keep=entry is not None)
        total = seen.leaf.detach() * g
        if entry is not None and first is not None:
            for r in entry.caught:
                total = total + _carried(r, first, seen.leaf, places)
        return total

    rows = probe.rows(len(batch))
    return torch.cat([out for _, out in probe.run_with_rules(batch, rows, batch.x.take, rules, read, output)])


def _carried(r: Tensor, first: Tensor, leaf: Tensor, places: tuple[int, ...]) -> Tensor:
    """Relevance of the leaf, from relevance of the first layer's input, which the network may have made from the leaf.

    Where both have the same places (pixels), relevance stays where it is: rescaling changes nothing, and where the
    network has added channels (B-cos networks read the inverse too) a pixel gets the sum over them, in equal parts.
    Where the leaf was padded or rearranged, relevance follows the derivative.
    """
    if first is leaf:
        return r
    if not first.shape[2:] == leaf.shape[2:] == places:
        return torch.autograd.grad(first, leaf, r, retain_graph=True)[0]
    if first.shape == leaf.shape:
        return r
    return (r.sum(1, keepdim=True) / leaf.shape[1]).expand_as(leaf)
