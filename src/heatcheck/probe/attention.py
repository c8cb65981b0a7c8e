"""What passes through a transformer's attention, whichever way the network computes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import NotApplicable
from heatcheck.probe.rules import Rules, depends, operation

_COPIES = frozenset(("to", "type", "type_as", "float", "double", "half", "bfloat16", "contiguous", "clone"))
"""Operations that leave attention weights what they are."""


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
        self._changed = False
        self._softmax: Tensor | None = None
        self._stacked: Tensor | None = None
        """The softmax with samples and heads on one axis, as DeBERTa-v2 multiplies it."""
        self._mixed: Tensor | None = None

    @property
    def changed(self) -> bool:
        """Whether some softmax was not what values were weighed with: that attention was changed, and is not known."""
        return self._changed or self._softmax is not None

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        out = super().softmax(x, dim)
        if out.ndim in (3, 4):
            self._changed = self.changed
            self._softmax = out
        return out

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        if a is self._stacked and self._softmax is not None and b.ndim == 3:
            self.blocks.append(Block(self._softmax, b.reshape(*self._softmax.shape[:2], *b.shape[1:])))
            self._softmax = self._stacked = None
            self._mixed = super().matmul(a, b)
            return self._mixed
        if a is not self._softmax or a.ndim != b.ndim or a.ndim not in (3, 4):
            return super().matmul(a, b)
        one_head = a.ndim == 3
        weights, values = (a[:, None], b[:, None]) if one_head else (a, b)
        self.blocks.append(Block(weights, values))
        self._softmax = None
        out = super().matmul(weights, values)
        self._mixed = out[:, 0] if one_head else out
        return self._mixed

    def affine(self, op: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, **how: Any) -> Tensor:
        out = super().affine(op, x, weight, bias, **how)
        if not self.blocks and out.ndim == 4:
            self.patches = (out.shape[-2], out.shape[-1])
        return out

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs)
        if isinstance(out, Tensor):
            name = operation(func)
            given = [a for a in (*args, *(kwargs or {}).values()) if depends(a)]
            if name in _COPIES and self._softmax is not None and given and given[0] is self._softmax:
                self._softmax = out
            elif name in ("view", "reshape", "flatten") and self._softmax is not None and args[0] is self._softmax:
                self._stacked = out if out.ndim == 3 and out.shape[1:] == self._softmax.shape[-2:] else None
            elif self._mixed is not None and any(a is self._mixed for a in given):
                self._follow(name, args, given, out)
        return out

    def _follow(self, name: str, args: Any, given: list[Tensor], out: Tensor) -> None:
        """Follow what an attention layer gives, over its projection and scales, to the sum with its block's input."""
        block, mixed = self.blocks[-1], self._mixed
        whole = mixed is not None and out.numel() == mixed.numel()
        self._mixed = out if whole else None
        weights = args[1] if name == "linear" else args[2].mT if name == "addmm" else None
        if weights is not None and block.projection is None:
            block.projection, self._mixed = weights, out
        elif name == "add" and len(given) == 2 and whole:
            block.stream, self._mixed = given[0] if given[1] is mixed else given[1], None


class Step(NamedTuple):
    """One operation of a call, as it was made, and what it gave."""

    func: Any
    types: Any
    args: Any
    kwargs: Any
    out: Any


class HeadTrace(AttentionTrace):
    """Notes every operation that makes something as well, so that the network's head can be asked about the tokens of any block."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_function__(func, types, args, kwargs)
        if _news(out, args):
            self.steps.append(Step(func, types, args, kwargs or {}, out))
        return out

    def head(self, layer: int, logits: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """What the network would answer if the attention block `layer` were its last.

        Args:
            layer: any block but the last.
            logits: what the network answered.
        """
        end = self._end()
        known: dict[int, Any] = {id(self.steps[end].out): self.blocks[layer + 1].stream}
        for step in self.steps[end + 1 :]:
            args, kwargs = _exchanged((step.args, step.kwargs), known)
            _learn(step.out, Rules.__torch_function__(self, step.func, step.types, args, kwargs), known)
        found: Tensor = known[id(logits)]
        return found

    def _end(self) -> int:
        """The step that gives what the last block puts out: as far behind its input as the last two inputs are apart.

        Blocks are told apart by what they do, so it does not matter where they normalise.
        """
        before, last = (block.stream for block in self.blocks[-2:])
        first, second = self._made(before), self._made(last)
        end = 2 * second - first
        names = [operation(step.func) for step in self.steps]
        if names[first + 1 : second + 1] != names[second + 1 : end + 1] or _shape(self.steps[end].out) != _shape(last):
            raise NotApplicable(
                "needs to ask the network's head about the tokens of every block, and cannot tell where the last "
                "block ends, for it is unlike the one before; try generic_attribution or integrated_gradients"
            )
        return end

    def _made(self, tensor: Tensor | None) -> int:
        return next((i for i, step in enumerate(self.steps) if step.out is tensor), -1)


def _news(out: Any, args: Any) -> bool:
    """Whether an operation gave tensors that depend on the input, and not just what was put in."""
    if isinstance(out, tuple | list):
        return any(_news(part, args) for part in out)
    return depends(out) and not any(out is a for a in args)


def _shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, Tensor) else None


def _exchanged(value: Any, known: dict[int, Any]) -> Any:
    """`value` with every tensor that is known replaced."""
    if isinstance(value, Tensor):
        return known.get(id(value), value)
    if isinstance(value, dict):
        return {k: _exchanged(v, known) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_exchanged(v, known) for v in value)
    return value


def _learn(old: Any, new: Any, known: dict[int, Any]) -> None:
    if isinstance(old, Tensor):
        known[id(old)] = new
    elif isinstance(old, tuple | list):
        for a, b in zip(old, new, strict=True):
            _learn(a, b, known)
