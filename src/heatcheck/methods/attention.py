"""Maps read from a transformer's attention: rollout, generic attribution, Grad-CAM of attention, LeGrad."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heatcheck.core.types import Batch, Inputs, NotApplicable
from heatcheck.methods.base import Method, method
from heatcheck.probe.answers import scalar
from heatcheck.probe.asks import Shape
from heatcheck.probe.attention import AttentionTrace, Block, HeadTrace
from heatcheck.probe.inside import Seen
from heatcheck.probe.probe import Probe

PREFIXES = 16
"""The most tokens (class, distillation, registers) that may come before an image's patches."""


@dataclass(frozen=True, kw_only=True, repr=False)
class AttentionMethod(Method):
    """A method that gives every token a value, from one pass through a network with global self-attention.

    A subclass implements `tokens`, which turns what was recorded of a pass into one value per token. This class turns
    the values into a map: tokens before an image's patches (class, distillation, registers) are dropped and the rest
    laid out as the patch grid; a text's tokens are its sites, and those that are never deleted get 0. Networks without
    attention, with attention inside windows, or whose tokens are neither patches nor sites are refused.

    Subclasses can use:

    - `self.blocks(seen)`: the attention layers of the pass, checked;
    - `class_rows(slope)`: which tokens the classifier reads, as weights that sum to 1, given the gradient at the
      last attention layer;
    - `carried(rows, layers)`: rows times a product of layers `(I + M_L) … (I + M_1)`;
    - `trace`: a subclass of `AttentionTrace`, if the pass needs other derivatives.

    Methods that combine layers derive from `LayeredAttention`, which has the parameter `start`.
    """

    interpolation: ClassVar[str] = "nearest"
    trace: ClassVar[type[AttentionTrace]] = AttentionTrace

    @abstractmethod
    def tokens(self, seen: Seen[AttentionTrace]) -> Float[Tensor, "n ..."]:
        """The value of each token of each question, prefix tokens included."""

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        maps = self.stream(probe, batch, probe.rows(len(batch)), batch.x.take, self.tokens)
        return without_special(probe, batch.x, torch.cat([m for _, m in maps]))

    def stream(
        self,
        probe: Probe,
        batch: Batch,
        rows: Int[Tensor, " n"],
        make: Callable[[Tensor], Inputs],
        tokens: Callable[[Seen[AttentionTrace]], Tensor],
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Stream values per token, laid out as maps, at inputs made on the fly; the last axis becomes the map's axes."""

        def read(seen: Seen[AttentionTrace]) -> Tensor:
            return token_map(probe, seen.given, seen.rules, tokens(seen))

        yield from probe.run_with_rules(batch, rows, make, self.trace, read, self.output)

    def passes(self, shape: Shape) -> tuple[int, int]:
        return 1, 1

    def blocks(self, seen: Seen[AttentionTrace]) -> list[Block]:
        """All attention layers of the pass; raises NotApplicable where there is no global self-attention."""
        blocks = seen.rules.blocks
        if seen.rules.changed:
            raise NotApplicable(
                "needs attention as a softmax gives it, but this network changes or regroups it first; "
                "try integrated_gradients or occlusion"
            )
        if not blocks:
            raise NotApplicable(
                "needs attention between tokens, and this network has none; try integrated_gradients or occlusion"
            )
        inputs, tokens = len(seen.leaf), blocks[0].weights.shape[-1]
        for block in blocks:
            n, _, queries, keys = block.weights.shape
            if n != inputs or (queries, keys) != (tokens, tokens):
                raise NotApplicable(
                    "needs attention between all tokens in every layer, but this network attends inside windows, "
                    "to pooled tokens or from one layer's tokens to another's; try integrated_gradients or occlusion"
                )
        if len(blocks) > 1 and any(block.stream is None for block in blocks):
            raise NotApplicable(
                "needs attention layers that each add to the tokens before the next one reads them, but this network "
                "joins them otherwise; try integrated_gradients or occlusion"
            )
        return blocks


@dataclass(frozen=True, kw_only=True, repr=False)
class LayeredAttention(AttentionMethod):
    """An attention method over the layers from `start` on.

    Args:
        start: the first layer used, counted from 0, or from the end if negative: -4 means the last four. The number of
            layers means that none is used.
    """

    start: int = 0

    def blocks(self, seen: Seen[AttentionTrace]) -> list[Block]:
        blocks = super().blocks(seen)
        self.first(len(blocks))
        return blocks

    def first(self, layers: int) -> int:
        """The first layer used, counted from 0; raises NotApplicable where there are too few."""
        if self.start > layers:
            raise NotApplicable(f"start={self.start} is beyond the last of {layers} attention layers")
        if self.start < -layers:
            raise NotApplicable(
                f"start={self.start} means the last {-self.start} attention layers, and there are {layers}"
            )
        return self.start if self.start >= 0 else layers + self.start


def class_rows(slope: Float[Tensor, "n h t k"]) -> Float[Tensor, "n t"]:
    """The tokens that the classifier reads: those whose attention in the last layer affects the class.

    The class token of a ViT or BERT; that and the distillation token of a distilled DeiT; all patches or words
    where the head averages them. Weights are equal and sum to 1; all are 0 where no attention affects the class.
    """
    read = (slope != 0).flatten(3).any(-1).any(1).to(slope.dtype)
    return read / read.sum(-1, keepdim=True).clamp_min(1)


def carried(
    rows: Float[Tensor, "n r t"], layers: Sequence[Float[Tensor, "n t t"]], *, residual: bool = True
) -> Float[Tensor, "n r t"]:
    """`rows` times the product of layers, the last one first; with `residual`, of identity plus each layer.

    The full matrix product is never computed, only these rows of it.
    """
    for layer in reversed(layers):
        step = torch.matmul(rows, layer)
        rows = rows + step if residual else step
    return rows


def token_map(
    probe: Probe, x: Inputs, trace: AttentionTrace, tokens: Float[Tensor, "n *more t"]
) -> Float[Tensor, "n ..."]:
    """Values of tokens as a map: the patch grid of an image, or the sites of a text."""
    width = tokens.shape[-1]
    if trace.patches is None:
        sites = probe.domain.deletable(x).shape[1]
        if width != sites:
            raise NotApplicable(
                f"{probe.model.name} attends between {width} tokens, but there are {sites} sites and no patch grid "
                "to lay them out on; try integrated_gradients or occlusion"
            )
        return probe.domain.leaving(tokens, x)
    rows, columns = trace.patches
    prefix = width - rows * columns
    if not 0 <= prefix <= PREFIXES:
        raise NotApplicable(
            f"{probe.model.name} attends between {width} tokens, which are not the {rows}×{columns} patches of its "
            "last convolution before; try integrated_gradients or occlusion"
        )
    return tokens[..., prefix:].reshape(*tokens.shape[:-1], rows, columns)


def without_special(probe: Probe, x: Inputs, maps: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
    """Set a text's tokens that are never deleted, such as [CLS], to 0; maps over patches stay as they are."""
    free = probe.domain.deletable(x)
    return torch.where(free, maps, 0) if maps.shape == free.shape else maps


@method("rollout", family="attention", uses=("gradient", "attention"), properties=("nonnegative", "target_free"))
@dataclass(frozen=True, kw_only=True, repr=False)
class Rollout(LayeredAttention):
    r"""Attention multiplied through the layers, each averaged with the identity for the residual connection.

    $R = \hat A_L \cdots \hat A_{\mathrm{start}}, \quad
    \hat A_l = \mathrm{rownorm}\big(\mathrm{mean}_h A_l^h + I\big)$

    Taken from the rows of the tokens that the classifier reads. The same for every class.

    Args:
        start: the first layer used, counted from 0, or from the end if negative; IDSDS leaves out layer 0.

    Paper: abnar2020.
    Cost per sample: 1 gradient, back to the last attention layer only, which finds the tokens that the head reads.
    """

    def tokens(self, seen: Seen[AttentionTrace]) -> Float[Tensor, "n t"]:
        blocks = self.blocks(seen)
        first = blocks[0].weights
        identity = torch.eye(first.shape[-1], dtype=first.dtype, device=first.device)
        layers = [b.weights.detach().mean(1) + identity for b in blocks[self.first(len(blocks)) :]]
        layers = [a / a.sum(-1, keepdim=True) for a in layers]
        anything = torch.arange(1, seen.logits.shape[1] + 1, dtype=seen.logits.dtype, device=first.device)
        (slope,) = torch.autograd.grad((seen.logits * anything).sum(), blocks[-1].weights)
        return carried(class_rows(slope)[:, None], layers, residual=False)[:, 0]


@method("generic_attribution", family="attention", uses=("gradient", "attention"), properties=("nonnegative",))
@dataclass(frozen=True, kw_only=True, repr=False)
class GenericAttribution(LayeredAttention):
    r"""The positive part of attention times its gradient, accumulated through the layers.

    $R \leftarrow R + \bar A_l R$ from $R = I$, with
    $\bar A_l = \mathrm{mean}_h \big(\partial f_t / \partial A_l^h \odot A_l^h\big)^+$

    Taken from the rows of the tokens that the classifier reads.

    Args:
        start: the first layer used, counted from 0, or from the end if negative; M4 takes 2, 4 and 8 for ViT-S, -B and -L.
        head_reduce: `clamp_then_mean` as in the authors' code, `mean_then_clamp`, or `mean_separately`, InterpretDL's
            $(\mathrm{mean}_h A \odot \mathrm{mean}_h \nabla A)^+$.

    Paper: chefer2021generic.
    Cost per sample: 1 gradient.
    """

    head_reduce: str = "clamp_then_mean"

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "head_reduce": ("clamp_then_mean", "mean_then_clamp", "mean_separately")
    }

    def tokens(self, seen: Seen[AttentionTrace]) -> Float[Tensor, "n t"]:
        blocks = self.blocks(seen)
        slopes = seen.gradients([b.weights for b in blocks])
        pairs = zip(blocks, slopes, strict=True)
        layers = [self.one_head(block.weights.detach(), slope) for block, slope in pairs][self.first(len(blocks)) :]
        return carried(class_rows(slopes[-1])[:, None], layers)[:, 0]

    def one_head(self, weights: Float[Tensor, "n h t k"], slope: Float[Tensor, "n h t k"]) -> Float[Tensor, "n t k"]:
        """One layer's heads combined into one."""
        if self.head_reduce == "clamp_then_mean":
            return (weights * slope).relu().mean(1)
        if self.head_reduce == "mean_then_clamp":
            return (weights * slope).mean(1).relu()
        return (weights.mean(1) * slope.mean(1)).relu()


@method("attention_grad_cam", family="attention", uses=("gradient", "attention"), properties=("nonnegative",))
@dataclass(frozen=True, kw_only=True, repr=False)
class AttentionGradCam(AttentionMethod):
    r"""The last layer's heads as feature maps, each weighted by its mean gradient.

    $A = \mathrm{ReLU}\big(\mathrm{mean}_h\, \alpha_h A_L^h[c, \cdot]\big), \quad
    \alpha_h = \mathrm{mean}_k\, \partial f_t / \partial A_L^h[c, k]$

    $c$ is the token that the classifier reads, $k$ runs over the patches or words; several tokens $c$ are averaged.

    Paper: chefer2021 (there as a baseline).  Differs: not scaled to [0, 1].
    Cost per sample: 1 gradient, back to the last attention layer only.
    """

    def tokens(self, seen: Seen[AttentionTrace]) -> Float[Tensor, "n w t"]:
        """Every head's attention from the tokens that the classifier reads, then its gradient."""
        last = self.blocks(seen)[-1].weights
        (slope,) = seen.gradients([last])
        rows = class_rows(slope)[:, None, None]
        return torch.cat([torch.matmul(rows, v)[:, :, 0] for v in (last.detach(), slope)], 1)

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        attention, slope = super().attribute(probe, batch).chunk(2, 1)
        places = without_special(probe, batch.x, torch.ones_like(attention[:, 0])).flatten(1)[:, None]
        alpha = (slope.flatten(2) * places).sum(-1) / places.sum(-1)
        maps = attention.flatten(2).transpose(1, 2) * alpha[:, None]
        cam = maps.contiguous().mean(-1).relu().reshape(attention[:, 0].shape)
        return without_special(probe, batch.x, cam)


@method("legrad", family="attention", uses=("gradient", "attention"), properties=("nonnegative",))
@dataclass(frozen=True, kw_only=True, repr=False)
class LeGrad(LayeredAttention):
    r"""The positive gradient of each layer's own class score at its attention, summed over layers.

    $A = \mathrm{minmax}\Big(\sum_{l \ge \mathrm{start}}
    \mathrm{mean}_{h,q} \big(\partial s_l / \partial A_l^h[q, \cdot]\big)^+\Big)$

    $s_l$ is the score that the network's own head (its last norm, pooling and classifier) gives to the output
    tokens of layer $l$; for the last layer that is the network's score.

    Args:
        start: the first layer that counts, from 0, or from the end if negative.

    Paper: bousselham2024.  Differs: tokens are pooled as the network pools them; the authors' code averages all tokens
    also where a CLIP model reads its class token, and uses the last two layers by default.
    Cost per sample: 1 gradient; each layer's score goes back through the head and that layer only.
    """

    trace: ClassVar[type[AttentionTrace]] = HeadTrace

    def tokens(self, seen: Seen[AttentionTrace]) -> Float[Tensor, "n t"]:
        blocks, trace = self.blocks(seen), cast(HeadTrace, seen.rules)
        total = torch.zeros_like(blocks[0].weights[:, 0, 0])
        first = self.first(len(blocks))
        for layer, block in enumerate(blocks[first:], first):
            value = seen.value
            if block is not blocks[-1]:
                scores = trace.head(layer, seen.logits)
                value = scalar(scores, seen.target, self.output, multi_label=seen.multi_label)
            (slope,) = torch.autograd.grad(value.sum(), block.weights, retain_graph=True)
            total = total + slope.relu().mean((1, 2))
        return total

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        maps = super().attribute(probe, batch)
        free = without_special(probe, batch.x, torch.ones_like(maps)) > 0
        low = torch.where(free, maps, torch.inf).flatten(1).amin(1)
        high = maps.flatten(1).amax(1)
        shape = (-1, *[1] * (maps.ndim - 1))
        scaled = (maps - low.reshape(shape)) / (high - low).clamp_min(torch.finfo(maps.dtype).tiny).reshape(shape)
        return torch.where(free, scaled, 0)
