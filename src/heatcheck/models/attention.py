"""What passes through a transformer's attention, whichever way the network computes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from heatcheck.models.rules import Rules, depends, operation


@dataclass
class Block:
    """One attention layer of one call; every tensor is part of the call's graph.

    Args:
        weights: the attention of each query (rows) to each key (columns); rows sum to 1.
        values: what each key hands over, per head.
        projection: the weight of the linear layer that mixes the heads; None if there is none.
        stream: the block's input, to which its result is added; None if it is added to nothing.
    """

    weights: Float[Tensor, "n h q k"]
    values: Float[Tensor, "n h k d"]
    projection: Float[Tensor, "e hd"] | None = None
    stream: Float[Tensor, "n q e"] | None = None


class AttentionTrace(Rules):
    """Notes every attention layer of a call. Fused attention is computed step by step, so its weights exist.

    Rows of the first axis are the call's inputs where attention is global; attention inside windows has more.
    """

    strict = False

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[Block] = []
        self.patches: tuple[int, int] | None = None
        """Rows and columns of the patch grid: of the last convolution before the first attention."""
        self._softmax: Tensor | None = None
        self._mixed: Tensor | None = None

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        self._softmax = super().softmax(x, dim)
        return self._softmax

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        out = super().matmul(a, b)
        if a is self._softmax and a.ndim == b.ndim == 4:
            self.blocks.append(Block(a, b))
            self._mixed = None
        return out

    def affine(self, op: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, **how: Any) -> Tensor:
        out = super().affine(op, x, weight, bias, **how)
        if not self.blocks and out.ndim == 4:
            self.patches = (out.shape[-2], out.shape[-1])
        elif self.blocks and self.blocks[-1].projection is None and weight.ndim == 2:
            self.blocks[-1].projection = weight
            self._mixed = out
        return out

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs)
        if self._mixed is not None and isinstance(out, Tensor):
            self._follow(operation(func), [a for a in args if depends(a)], out)
        return out

    def _follow(self, name: str, given: list[Tensor], out: Tensor) -> None:
        """Follow what an attention layer gives, over scales and transpositions, to the sum with its block's input."""
        if self._mixed is None or out.numel() != self._mixed.numel() or not any(a is self._mixed for a in given):
            return
        if name == "add" and len(given) == 2:
            self.blocks[-1].stream = given[0] if given[1] is self._mixed else given[1]
            self._mixed = None
        else:
            self._mixed = out
