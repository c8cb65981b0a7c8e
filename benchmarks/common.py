"""What the benchmarks share: bare model passes, measured in the same process as what is compared with them."""

import time
from dataclasses import dataclass

import torch

import heatcheck as hc
from heatcheck.engine.numerics import Numerics, tune_allocator
from heatcheck.types import Inputs

clock = time.process_time
"""Seconds of the processor, not of the wall: with one thread, what others do to the machine counts less."""


def settle() -> None:
    """One thread and a tuned allocator, as a run has them."""
    torch.set_num_threads(1)
    tune_allocator()


@dataclass(frozen=True)
class Bare:
    """Seconds per input, without anything of ours.

    Args:
        forward: a forward pass without a graph.
        backward: a forward pass with the gradient of one class to the input.
    """

    forward: float
    backward: float

    def seconds(self, forwards: int, backwards: int) -> float:
        """What so many forwards, some of them with a backward pass, take at least."""
        return (forwards - backwards) * self.forward + backwards * self.backward


def measure_bare(model: hc.Explained, x: Inputs, numerics: Numerics, calls: int = 2) -> Bare:
    """Time bare passes at the micro-batches that the probe uses; the first call of each kind is not counted."""
    forward = _seconds(lambda: _forward(model, x, numerics.forward), calls) / numerics.forward
    backward = forward
    if model.differentiable:
        backward = _seconds(lambda: _backward(model, x, numerics.backward), calls) / numerics.backward
    return Bare(forward, backward)


def _seconds(call, calls: int) -> float:
    call()
    start = clock()
    for _ in range(calls):
        call()
    return (clock() - start) / calls


def _rows(x: Inputs, size: int) -> Inputs:
    return x.take(torch.zeros(size, dtype=torch.long))


def _forward(model: hc.Explained, x: Inputs, size: int) -> None:
    with torch.inference_mode():
        model.logits(_rows(x, size))


def _backward(model: hc.Explained, x: Inputs, size: int) -> None:
    rows = _rows(x, size)
    leaf = model.domain.leaf(rows).detach().requires_grad_()
    torch.autograd.grad(model.logits(model.domain.with_leaf(rows, leaf))[:, 0].sum(), leaf)
