"""Transformer attribution: attention's gradient times its relevance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import Batch, Inputs
from heatcheck.methods.attention import LayeredAttention, carried, class_rows, token_map, without_special
from heatcheck.methods.base import method
from heatcheck.methods.relevance import DIVISORS, Relevance, alpha_beta, passed, ratio, ruled
from heatcheck.probe.asks import Shape
from heatcheck.probe.attention import AttentionTrace
from heatcheck.probe.inside import Seen
from heatcheck.probe.probe import Probe
from heatcheck.probe.rules import Rules, depends


class _PositiveRelevance(Relevance):
    """The paper's rules: z⁺ on linear layers, without bias; activations, norms and softmax pass all relevance on."""

    def __init__(self) -> None:
        plus = alpha_beta(1.0, 0.0, bias=False)
        super().__init__(plus, plus)

    def activation(self, name: str, x: Tensor, apply: Callable[[Tensor], Tensor]) -> Tensor:
        return self.gate(apply(x)) if name in DIVISORS else passed(apply, x)

    def scaled(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return passed(lambda x: scale * x + shift, x)

    def normalise(self, x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
        return passed(lambda x: Rules.normalise(self, x, dims, eps), x)

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        return passed(lambda x: torch.softmax(x, dim), x)

    def add(self, a: Any, b: Any) -> Tensor:
        if depends(a) and depends(b) and a.shape == b.shape:
            return ruled(torch.add, _by_size, a, b)
        return super().add(a, b)


def _by_size(g: Tensor, out: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Relevance of two summands in proportion, rescaled so that their totals are in proportion to absolute totals."""
    own = [(t * g).flatten(1).sum(1) for t in (a, b)]
    whole, size = own[0] + own[1], own[0].abs() + own[1].abs()
    shape = (-1, *[1] * (g.ndim - 1))
    first, second = (g * (ratio(s.abs(), size) * ratio(whole, s)).reshape(shape) for s in own)
    return first, second


class RelevanceTrace(AttentionTrace, _PositiveRelevance):
    """Records attention layers while the paper's rules apply.

    Args:
        slopes: the ordinary gradients at every layer's attention, for the same inputs.
    """

    strict = True

    def __init__(self, slopes: Float[Tensor, "n l h t k"]) -> None:
        super().__init__()
        self.slopes = slopes


@method(
    "transformer_attribution",
    family="attention",
    uses=("gradient", "attention"),
    properties=("nonnegative",),
    version=3,
)
@dataclass(frozen=True, kw_only=True, repr=False)
class TransformerAttribution(LayeredAttention):
    r"""The positive part of attention's gradient times its relevance, multiplied through the layers.

    $C = (I + \bar A_L) \cdots (I + \bar A_{\mathrm{start}}), \quad
    \bar A_l = \mathrm{mean}_h \big(\partial f_t / \partial A_l^h \odot R^{A_l^h}\big)^+$

    Relevance starts as 1 at the class. Linear layers follow the z⁺ rule, a matrix product gives half to each factor,
    residual sums are weighted by the size of their summands, and everything else passes relevance on. The map is taken
    from the rows of the tokens that the classifier reads.

    Args:
        start: the first layer used, counted from 0, or from the end if negative; IDSDS leaves out layer 0, the authors'
            code for BERT takes 11, its last.

    Paper: chefer2021.  Differs: residual sums are weighted per sample; divisions are exact, not shifted by 1e-9.
    Relevance always starts at the logit; `output` is what the gradient is taken of.
    Cost per sample: 2 forwards and 2 backwards, the second pair with the rules.
    """

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        parts = torch.split(probe.rows(len(batch)), probe.numerics.backward)
        maps = torch.cat([m for part in parts for m in self._part(probe, batch, part)])
        return without_special(probe, batch.x, maps)

    def _part(self, probe: Probe, batch: Batch, rows: Int[Tensor, " n"]) -> list[Tensor]:
        """The maps of one call's samples; the gradients at every attention layer are too large to keep for more."""
        now = torch.zeros(1, dtype=torch.long, device=batch.device)

        def make(index: Tensor) -> Inputs:
            nonlocal now
            now = index
            return batch.x.take(rows[index])

        def slopes(seen: Seen[AttentionTrace]) -> Tensor:
            return torch.stack(seen.gradients([b.weights for b in self.blocks(seen)]), 1)

        plain = torch.cat([s for _, s in probe.run_with_rules(batch, rows, make, AttentionTrace, slopes, self.output)])
        now = now[:1]

        def read(seen: Seen[RelevanceTrace]) -> Tensor:
            return token_map(probe, seen.given, seen.rules, self.tokens(seen))

        ruled = probe.run_with_rules(batch, rows, make, lambda: RelevanceTrace(plain[now]), read, self.output)
        return [m for _, m in ruled]

    def tokens(self, seen: Seen[Any]) -> Float[Tensor, "n t"]:
        slopes = seen.rules.slopes.unbind(1)
        layers = [(s * r).relu().mean(1) for s, r in zip(slopes, self.relevance(seen), strict=True)]
        return carried(class_rows(slopes[-1])[:, None], layers[self.first(len(layers)) :])[:, 0]

    def relevance(self, seen: Seen[Any]) -> list[Float[Tensor, "n h t k"]]:
        """Relevance of every layer's attention, starting as 1 at the class."""
        weights = [b.weights for b in self.blocks(seen)]
        logit = seen.logits.gather(1, seen.target[:, None])[:, 0]
        parts = torch.autograd.grad(logit, weights, ratio(torch.ones_like(logit), logit.detach()))
        return [w.detach() * g for w, g in zip(weights, parts, strict=True)]

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 2, 2
