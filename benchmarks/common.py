"""What the benchmarks share: bare model passes, measured in the same process as what is compared with them."""

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import heatcheck as hc
from heatcheck.core.types import Batch, Inputs, Streams
from heatcheck.data.load import load_data
from heatcheck.probe.asks import Shape
from heatcheck.probe.numerics import SIZES, Numerics, measure
from heatcheck.probe.tuning import tune_allocator
from heatcheck.run.task import first_line

clock = time.process_time
"""Seconds of the processor, not of the wall: with one thread, what others do to the machine counts less."""


def settle() -> None:
    """One thread and a tuned allocator, as a run has them."""
    torch.set_num_threads(1)
    tune_allocator()


def median(values: list[float]) -> float | None:
    """The median, if there is one."""
    return round(statistics.median(values), 4) if values else None


def attempt(call: Callable[[], Any], who: str, reasons: dict[str, str]) -> Any:
    """What a peer gives; None, with the reason noted, where it fails or is not installed."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return call()
    except ImportError as problem:
        reasons[who] = f"not installed ({problem.name})"
    except Exception as problem:
        reasons[who] = f"failed: {first_line(problem)}"
    return None


@dataclass(frozen=True)
class Stage:
    """A model, samples with the predicted class as target and label, and how the model is asked.

    Args:
        model: who is asked.
        batch: the samples.
        numerics: the micro-batches that are best for the model.
    """

    model: hc.Model
    batch: Batch
    numerics: Numerics

    @staticmethod
    def make(model: str, data: str, samples: int) -> "Stage":
        """Load, encode, predict, and find the best micro-batches; at least as many samples as the largest one has."""
        explained = hc.load_model(model)
        good = [s for s in load_data(data, samples=max(samples, SIZES[-1]), seed=0) if not s.problem]
        x = Inputs.cat([explained.encode(s) for s in good])
        with torch.inference_mode():
            target = torch.cat(
                [explained.logits(part).argmax(1) for part in map(x.take, torch.arange(len(x)).split(1))]
            )
        references = tuple(explained.references(s, x.take(torch.tensor([i]))) for i, s in enumerate(good))
        batch = Batch(x, target.clone(), target.clone(), Streams(0, tuple(s.digest for s in good)), references)
        return Stage(explained, batch, measure(explained, x))

    def shape(self, i: int) -> Shape:
        """One sample as a plan sees it."""
        return Shape(self.model.domain, self.batch.x.take(torch.tensor([i])), self.model)


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


def measure_bare(model: hc.Model, x: Inputs, numerics: Numerics, calls: int = 2) -> Bare:
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


def _forward(model: hc.Model, x: Inputs, size: int) -> None:
    with torch.inference_mode():
        model.logits(_rows(x, size))


def _backward(model: hc.Model, x: Inputs, size: int) -> None:
    rows = _rows(x, size)
    leaf = model.domain.leaf(rows).detach().requires_grad_()
    torch.autograd.grad(model.logits(model.domain.with_leaf(rows, leaf))[:, 0].sum(), leaf)
