"""Whether a model answers as a measurement needs it: the same for the same input, whatever stands beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heatcheck.core.types import Inputs
from heatcheck.models.base import Model
from heatcheck.models.torch_model import TorchModel
from heatcheck.probe.numerics import is_out_of_memory


@dataclass(frozen=True)
class Misbehaviour:
    """Why no number measured on a model would mean anything.

    Args:
        what: what the model does.
        remedy: what to change in it.
    """

    what: str
    remedy: str


def misbehaviours(model: Model, inputs: Sequence[Inputs]) -> list[Misbehaviour]:
    """Ask a model about some inputs alone, twice, as copies and in a batch: what differs, but should not.

    Args:
        model: who is asked.
        inputs: up to a few inputs, each with a batch axis of one.
    """
    with torch.no_grad():
        return list(_about(model, inputs))


def _about(model: Model, inputs: Sequence[Inputs]) -> Iterator[Misbehaviour]:
    x = inputs[0]
    kept, state = _clone(x), _state(model)
    alone = model.logits(x).clone()
    if any(not torch.equal(kept[name], given) for name, given in x.tensors.items()):
        yield Misbehaviour("it changes its input in place", "write x = x - mean instead of x -= mean, or clone x first")
        return
    if len(alone) != 1:
        yield Misbehaviour(
            f"it returns {tuple(alone.shape)} for one input", "return one row of class scores per input, [n, classes]"
        )
        return
    again, copied = model.logits(x).clone(), model.logits(_clone(x)).clone()
    if _state(model) != state:
        yield Misbehaviour(
            "it changes its own weights or buffers while it answers",
            "keep counters and running statistics out of forward, or call .eval() where it is built",
        )
    if not (_same(alone, again) and _same(alone, copied)):
        yield Misbehaviour(
            "it answers the same input differently each time" + _gap(alone, again if _same(alone, copied) else copied),
            "turn dropout and other randomness off: F.dropout needs training=self.training, a function that calls a "
            "module needs module.eval()",
        )
        return
    widths = {alone.shape[1], *(model.logits(other).shape[1] for other in inputs[1:])}
    if len(widths) > 1:
        yield Misbehaviour(
            f"it returns {' or '.join(map(str, sorted(widths)))} classes, depending on the input",
            "return one tensor [n, classes] with the same classes for every input",
        )
        return
    yield from _among_neighbours(model, x, alone, inputs[1:])


def _among_neighbours(model: Model, x: Inputs, alone: Tensor, others: Sequence[Inputs]) -> Iterator[Misbehaviour]:
    fitting = [other for other in others if other.shape_key() == x.shape_key()]
    if fitting:
        pair = Inputs.cat([x, fitting[0]])
    else:
        leaf = model.domain.leaf(x)
        pair = Inputs.cat([model.domain.with_leaf(x, leaf), model.domain.with_leaf(x, -leaf.flip(-1))])
    try:
        beside = model.logits(pair)
    except Exception as problem:  # a network that takes one input at a time is no classifier of batches
        if is_out_of_memory(problem):  # then every call of the run has one input, and no neighbours
            return
        yield Misbehaviour(
            f"it answers one input, but fails on a batch of two ({str(problem).splitlines()[0]})",
            "return one row of class scores per input, [n, classes]",
        )
        return
    if beside.shape != (2, alone.shape[1]):
        yield Misbehaviour(
            f"it returns {tuple(beside.shape)} for two inputs and {tuple(alone.shape)} for one",
            "return one row of class scores per input, [n, classes]",
        )
    elif not _same(alone[0], beside[0]):
        yield Misbehaviour(
            "its answer to an input depends on the other inputs of the batch" + _gap(alone[0], beside[0]),
            "use batch norm with running statistics and .eval(); normalise each input by itself",
        )


def look_like_probabilities(scores: Tensor) -> bool:
    """Whether class scores are not negative and add up to 1 for every input: then a softmax has been taken already."""
    several = scores.shape[1] > 1 and bool((scores >= 0).all())
    return several and float((scores.sum(1) - 1).abs().max()) < 1e-4


def _clone(x: Inputs) -> Inputs:
    return Inputs({name: tensor.clone() for name, tensor in x.tensors.items()})


def _state(model: Model) -> list[tuple[int, int]]:
    """Which tensors are its weights and buffers and how often each was written; nothing of a black box is known."""
    if not isinstance(model, TorchModel):
        return []
    network = model.module()
    tensors = (*network.parameters(), *network.buffers())
    return [(t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors]


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two answers agree as well as different batch sizes do."""
    return a.shape == b.shape and bool(torch.allclose(a, b, rtol=0, atol=_tolerance(a), equal_nan=True))


def _tolerance(answer: Tensor) -> float:
    relative = 1e-3 if torch.finfo(answer.dtype).eps < 1e-4 else 0.05
    return relative * max(1e-6, float(answer.nan_to_num().abs().max()))


def _gap(a: Tensor, b: Tensor) -> str:
    """How far apart two answers are, for messages."""
    if a.shape != b.shape:
        return f" (shapes {tuple(a.shape)} and {tuple(b.shape)})"
    return f" (class scores differ by up to {float((a - b).abs().max()):.3g})"
