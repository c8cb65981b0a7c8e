"""DeepLIFT with the Rescale rule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import Batch, Inputs, NotApplicable
from heatcheck.methods.base import Method, eraser, method
from heatcheck.probe.asks import Shape
from heatcheck.probe.inside import Seen
from heatcheck.probe.probe import Probe
from heatcheck.probe.rules import Rules


@method("deep_lift", family="gradient", uses=("gradient",), properties=("complete", "dummy", "linear"), version=3)
@dataclass(frozen=True, kw_only=True, repr=False)
class DeepLift(Method):
    r"""The difference from a baseline, times multipliers that are exact for that difference.

    $a = (x - b) \odot m, \quad m_{z \to y} = (y_x - y_b) / (z_x - z_b)$ at every activation $y(z)$

    Multipliers chain as derivatives do, so maps sum to $f_t(x) - f_t(b)$ exactly. A product counts each factor's
    change at the mean of the other, $\Delta(uv) = \bar v \Delta u + \bar u \Delta v$; softmax, layer norm and norms of
    vectors are decomposed into exponentials, logarithms, products and roots; the change of a window's maximum is
    assigned to the position of the larger of the two maxima. Where input and baseline agree, multipliers are
    derivatives.

    Args:
        baseline: the fill that replaces the whole input; a random one is drawn once per sample.

    Paper: shrikumar2017.  Differs: Rescale only, no RevealCancel; products, softmax and norms have exact multipliers,
        which the paper does not give; special tokens of a text stay.
    Cost per sample: 2 forwards, 1 backward.
    """

    baseline: str = "zero"

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        domain = probe.domain
        nothing = torch.zeros_like(domain.deletable(batch.x))
        start = domain.leaf(eraser(probe, batch, self.baseline)(probe.rows(len(batch)), nothing)).detach()
        leaf = domain.leaf(batch.x).detach()

        def with_baselines(i: Int[Tensor, " n"]) -> Inputs:
            return domain.with_leaf(batch.x.take(torch.cat([i, i])), torch.cat([leaf[i], start[i]]))

        def read(seen: Seen[Rescale]) -> Tensor:
            n = len(seen.target)
            value = seen.rules.scalar(seen.logits, seen.target.repeat(2), self.output, multi_label=seen.multi_label)
            (multiplier,) = torch.autograd.grad(value[:n].sum(), seen.leaf)
            shares = (seen.leaf[:n] - seen.leaf[n:]) * multiplier[:n]
            require_sum(shares.flatten(1), value[:n].detach(), value[n:].detach(), probe.model.name)
            return shares

        rows = probe.rows(len(batch))
        found = probe.run_with_rules(batch, rows, with_baselines, Rescale, read, self.output, forwards=2)
        return torch.cat([shares for _, shares in found])

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 2, 1


def require_sum(shares: Float[Tensor, "n k"], now: Float[Tensor, " n"], before: Float[Tensor, " n"], name: str) -> None:
    """Refuse a network that mixes inputs with baselines: its shares do not sum to the change in output."""
    eps = torch.finfo(shares.dtype).eps
    rounding = 10 * eps**0.5 * shares.abs().sum(1) + 1000 * eps * (now.abs() + before.abs())
    if ((shares.sum(1) - (now - before)).abs() > rounding).any():
        raise NotApplicable(
            f"cannot follow {name}: contributions do not sum to the change in output, for instance because "
            "samples are not kept along the first axis; try integrated_gradients"
        )


class Rescale(Rules):
    """Multipliers in place of derivatives: the first half of every tensor is the inputs', the second the baselines'.

    All formulas are symmetric in the two, so they are written once for both halves.
    """

    def activation(self, name: str, x: Tensor, apply: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = _Rescaled.apply(x, apply)  # type: ignore[no-untyped-call]
        return out

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return counted_as(a * b, a * mean(b) + mean(a) * b)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        return counted_as(a @ b, a @ mean(b) + mean(a) @ b)

    def max_pool(self, x: Tensor, pool: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = _LargerMaximum.apply(x, pool)  # type: ignore[no-untyped-call]
        return out

    def normalise(self, x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
        centred = x - x.mean(dims, keepdim=True)
        variance = self.product(centred, centred).mean(dims, keepdim=True)
        return self.product(centred, self.activation("rsqrt", variance + eps, torch.rsqrt))

    def length(self, x: Tensor, order: float, dims: tuple[int, ...], least: float) -> Tensor:
        if order != 2:
            self.unknown(f"norm of order {order:g}")
        squares = self.product(x, x).sum(dims, keepdim=True)
        return self.activation("sqrt", squares, lambda z: z.sqrt().clamp_min(least))

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        return self.activation("exp", self.log_softmax(x, dim), torch.exp)

    def log_softmax(self, x: Tensor, dim: int) -> Tensor:
        """The logarithm of the softmax: the scores minus the logarithm of their sum of exponentials."""
        z = x.detach()
        parts = (z - torch.maximum(z, other(z)).amax(dim, keepdim=True)).exp()
        total, level = parts.sum(dim, keepdim=True), z.logsumexp(dim, keepdim=True)
        weights = multiplier(z, parts, parts) * multiplier(total, level, 1 / total)
        return counted_as(z - level, x - (weights * x).sum(dim, keepdim=True))

    def scalar(
        self, logits: Float[Tensor, "m c"], target: Int[Tensor, " m"], output: str, *, multi_label: bool
    ) -> Float[Tensor, " m"]:
        """The scalar explained, under the same rules."""
        if multi_label:
            label = logits.gather(1, target[:, None]).squeeze(1)
            apply = {"prob": torch.sigmoid, "logprob": F.logsigmoid}.get(output)
            return label if apply is None else self.activation(output, label, apply)
        scores = self.log_softmax(logits, 1) if output in ("prob", "logprob") else logits
        own = scores.gather(1, target[:, None]).squeeze(1)
        if output == "prob":
            return self.activation("exp", own, torch.exp)
        if output == "margin":
            return own - self.max_pool(logits.scatter(1, target[:, None], -torch.inf), lambda z: z.amax(1))
        return own


def other(t: Tensor) -> Tensor:
    """The counterpart's values: the baselines' for inputs, the inputs' for baselines."""
    return t.detach().roll(len(t) // 2, 0)


def mean(t: Tensor) -> Tensor:
    """The mean of input and baseline."""
    return (t.detach() + other(t)) / 2


def multiplier(x: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    """The change in `y` per change in `x`; its slope where `x` does not change."""
    way, none = way_to(x.detach(), other(x))
    return torch.where(none, slope, (y.detach() - other(y)) / way)


def way_to(x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """The difference `x - start`, and where it is zero up to rounding; equal infinities have none."""
    way = x - start
    rounding = start.abs().mul_(16 * torch.finfo(x.dtype).eps).add_(1e-10)
    return way, (way.abs() < rounding).logical_or_(x == start)


class _Rescaled(torch.autograd.Function):
    """An activation that passes back its change per change of its input; baselines get nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, apply: Callable[[Tensor], Tensor]) -> Tensor:
        y = apply(x)
        ctx.save_for_backward(x, y)
        ctx.activation = apply
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, y = ctx.saved_tensors
        n = len(x) // 2
        here, there, signal = x[:n], x[len(x) - n :], grads[0][:n]
        z = here.detach().requires_grad_()
        with torch.enable_grad():
            (steep,) = torch.autograd.grad(ctx.activation(z), z, signal)
        way, none = way_to(here, there)
        change = (y[:n] - y[len(y) - n :]).mul_(signal).div_(way)
        back = torch.zeros_like(x)
        torch.where(none, steep, change, out=back[:n])
        return back, None


class _As(torch.autograd.Function):
    """The value of the first argument, with the derivatives of the second."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, form: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, grads[0]


def counted_as(value: Tensor, form: Tensor) -> Tensor:
    """A value with the derivatives of another expression of the same shape."""
    out: Tensor = _As.apply(value.detach(), form)  # type: ignore[no-untyped-call]
    return out


class _LargerMaximum(torch.autograd.Function):
    """A maximum whose change is assigned to the position of the larger of the input's and the baseline's maximum.

    There the values differ at least as much as the maxima do, in the same direction, so multipliers lie in [0, 1].
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, pool: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.pool = pool
        return pool(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x: Tensor = ctx.saved_tensors[0]
        z = x.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.pool(z)

        def to_maxima(signal: Tensor) -> Tensor:
            there: Tensor = torch.autograd.grad(y, z, signal, retain_graph=True)[0]
            return there

        signal = grads[0]
        n = len(x) // 2
        change = y.detach() - other(y)
        own = torch.where(change >= 0, signal * change, 0)
        baselines = torch.where(change < 0, signal * change, 0)
        moved = to_maxima(own) + to_maxima(baselines.roll(n, 0)).roll(n, 0)
        way, none = way_to(x, other(x))
        return torch.where(none, to_maxima(signal), moved / way), None
