"""The bidirectional explanations of transformers, by head and by token."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Batch, Inputs, NotApplicable
from heatcheck.methods.attention import LayeredAttention, carried, class_rows, without_special
from heatcheck.methods.base import method, repeat_rows
from heatcheck.probe.asks import Shape
from heatcheck.probe.attention import AttentionTrace, Block
from heatcheck.probe.inside import Seen
from heatcheck.probe.probe import Probe

Layers = list[Float[Tensor, "n t k"]]


@dataclass(frozen=True, kw_only=True, repr=False)
class Bidirectional(LayeredAttention):
    """What the paper calls attention perception, between tokens through the layers, times reasoning feedback.

    Subclasses define the perception of a layer.

    Args:
        start: the first layer used, counted from 0, or from the end if negative; M4 takes 2, 4 and 8 for ViT-S, -B and -L.
        steps: scaled inputs that the reasoning feedback is averaged over, both ends included.
    """

    steps: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 2:
            raise SpecError(f"{self.id}: steps={self.steps} cannot include both ends of the path; it must be 2 or more")

    @abstractmethod
    def perceived(self, seen: Seen[AttentionTrace], blocks: list[Block]) -> tuple[Layers, Float[Tensor, "n h t k"]]:
        """How much each token takes from every other, layer by layer; and the gradient at the last attention layer."""

    def tokens(self, seen: Seen[AttentionTrace]) -> Float[Tensor, "n w t k"]:
        """At the input itself: the perception through all layers, the weight of each row, and the gradient per head."""
        layers, slope = self.perceived(seen, self.blocks(seen))
        n, _, tokens, _ = slope.shape
        identity = torch.eye(tokens, dtype=slope.dtype, device=slope.device).expand(n, -1, -1)
        rows = class_rows(slope)[:, :, None].expand(-1, -1, tokens)
        return torch.cat([carried(identity, layers)[:, None], rows[:, None], slope], 1)

    def attribute(self, probe: Probe, batch: Batch) -> Float[Tensor, "b ..."]:
        everyone = probe.rows(len(batch))
        parts = [self._part(probe, batch, own) for own in torch.split(everyone, probe.numerics.backward)]
        return without_special(probe, batch.x, torch.cat(parts))

    def _part(self, probe: Probe, batch: Batch, own: Int[Tensor, " p"]) -> Float[Tensor, "p ..."]:
        """The maps of a few samples, whose gradients per head are all kept in memory."""
        whole = torch.cat([m for _, m in self.stream(probe, batch, own, lambda i: batch.x.take(own[i]), self.tokens)])
        used = whole[:, 1].flatten(2).any(-1).any(0).nonzero()[:, 0]
        perception, rows, slope = whole[:, 0, used], whole[:, 1, used], whole[:, 2:, used]

        leaf = probe.domain.leaf(batch.x).detach()
        share = torch.linspace(0, 1, self.steps, dtype=torch.float64, device=batch.device)[:-1]
        which = repeat_rows(len(own), len(share), probe.device)

        def scaled(i: Int[Tensor, " n"]) -> Inputs:
            at = own[which[i]]
            by = share[i % len(share)].to(leaf.dtype).reshape(-1, *[1] * (leaf.ndim - 1))
            return probe.domain.with_leaf(batch.x.take(at), by * leaf[at])

        def reasoning(seen: Seen[AttentionTrace]) -> Tensor:
            return seen.gradients([self.blocks(seen)[-1].weights])[0][:, :, used]

        total = torch.zeros(slope.shape, dtype=torch.float64, device=batch.device)
        for i, more in self.stream(probe, batch, own[which], scaled, reasoning):
            total.index_add_(0, which[i], more.double())
        feedback = (total + slope).relu() / self.steps
        return in_turn(rows * perception * in_turn(feedback) / slope.shape[1])

    def passes(self, shape: Shape) -> tuple[int, int]:
        return self.steps, self.steps


def in_turn(values: Float[Tensor, "p k ..."]) -> Float[Tensor, "p ..."]:
    """The sum over the second axis, added one by one so that its bits do not depend on the rest of the batch."""
    total = torch.zeros_like(values[:, :1]).sum(1)
    for value in values.unbind(1):
        total = total + value
    return total


@method("bt_head", family="attention", uses=("gradient", "attention"), properties=("nonnegative",))
@dataclass(frozen=True, kw_only=True, repr=False)
class BtHead(Bidirectional):
    r"""Perception through heads weighted by their importance, times reasoning feedback.

    $A = \big(R \odot F\big)[c, \cdot]$ with $R \leftarrow R + \tilde A_l R$ from $R = I$,
    $\tilde A_l = \sum_h I_h A_l^h$, $I_h \propto \mathrm{mean}\,\big|{A_l^h}^\top \partial f_t / \partial A_l^h\big|$ and
    $F = \mathrm{mean}_h \big(\mathrm{mean}_\alpha\, \partial f_t(\alpha x) / \partial A_L^h\big)^+$

    $c$ is the token that the classifier reads; several are averaged.

    Args:
        start: the first layer used, counted from 0, or from the end if negative; M4 takes 2, 4 and 8 for ViT-S, -B and
            -L, the authors' BERT -1.
        steps: scaled inputs that the reasoning feedback is averaged over, both ends included.

    Paper: chen2023.  Differs: heads are weighted per sample, over real tokens only; all layers are used by default.
    Cost per sample: `steps` gradients, all but one back to the last attention layer only.
    """

    revised: ClassVar[Mapping[str, int]] = {"text": 2}

    def perceived(self, seen: Seen[AttentionTrace], blocks: list[Block]) -> tuple[Layers, Float[Tensor, "n h t k"]]:
        first = self.first(len(blocks))
        weights = [block.weights for block in blocks[first:] or blocks[-1:]]
        slopes = seen.gradients(weights)
        pairs = list(zip(weights, slopes, strict=True))[: len(blocks) - first]
        return [by_head(a.detach(), slope, seen.read) for a, slope in pairs], slopes[-1]


def by_head(
    weights: Float[Tensor, "n h t k"], slope: Float[Tensor, "n h t k"], read: Bool[Tensor, "n k"] | None = None
) -> Float[Tensor, "n t k"]:
    """Heads summed, each weighted by its share of the mean of |Aᵀ ∂f/∂A| over the tokens that the network reads.

    Equally where that is zero. Padding gets no attention, but the class would change if it got some.
    """
    if read is not None and read.shape[1] == slope.shape[-1]:
        slope = torch.where(read[:, None, None], slope, 0)
    meets = torch.matmul(weights.transpose(-2, -1), slope).abs().flatten(2).mean(-1)
    total = meets.sum(1, keepdim=True)
    share = torch.where(total > 0, meets / total, 1 / weights.shape[1])
    return (share[..., None, None] * weights).sum(1)


@method("bt_token", family="attention", uses=("gradient", "attention"), properties=("nonnegative",))
@dataclass(frozen=True, kw_only=True, repr=False)
class BtToken(Bidirectional):
    r"""Perception of tokens weighted by how much attention lengthens them, times reasoning feedback.

    $A = \big(R \odot F\big)[c, \cdot]$ with $R \leftarrow R + \tilde A_l R$ from $R = I$,
    $\tilde A_l = \mathrm{mean}_h A_l^h \cdot \mathrm{diag}_j\big(\lVert v_j W_O \rVert / \lVert z_j \rVert\big)$ and
    $F = \mathrm{mean}_h \big(\mathrm{mean}_\alpha\, \partial f_t(\alpha x) / \partial A_L^h\big)^+$

    $v_j$ are the values of token $j$ over all heads, $W_O$ the output projection without its bias, $z_j$ the layer's
    input before it is normalised, and $c$ the token that the classifier reads; several are averaged.

    Args:
        start: the first layer used, counted from 0, or from the end if negative; M4 takes 2, 4 and 8 for ViT-S, -B and
            -L, the authors' BERT -4.
        steps: scaled inputs that the reasoning feedback is averaged over, both ends included.

    Paper: chen2023.  Differs: all layers are used by default.
    Cost per sample: `steps` gradients, all of them back to the last attention layer only.
    """

    def perceived(self, seen: Seen[AttentionTrace], blocks: list[Block]) -> tuple[Layers, Float[Tensor, "n h t k"]]:
        (slope,) = seen.gradients([blocks[-1].weights])
        return [by_token(block) for block in blocks[self.first(len(blocks)) :]], slope


def by_token(block: Block) -> Float[Tensor, "n t k"]:
    """The mean over heads, each token weighted by the length of its projected values relative to its input."""
    if block.projection is None or block.stream is None:
        raise NotApplicable(
            "compares what attention makes of a token with what comes in, but this network has no projection behind "
            "its heads or adds their result to nothing; try bt_head or generic_attribution"
        )
    values = block.values.detach().transpose(1, 2).flatten(2)
    made = torch.matmul(values, block.projection.detach().T).norm(dim=-1)
    given = block.stream.detach().norm(dim=-1)
    growth = torch.where(given > 0, made / given, 0)
    return block.weights.detach().mean(1) * growth[:, None]
