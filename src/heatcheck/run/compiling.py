"""Whether compiled forward passes pay: tried before a run, and written down with its numerics."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch

from heatcheck.core.progress import clock
from heatcheck.core.types import HeatcheckError, Inputs, Sample
from heatcheck.models.devices import FP32
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe
from heatcheck.probe.tuning import AGREES
from heatcheck.run.forecast import forecast, shapes_of
from heatcheck.run.grid import ModelGrid
from heatcheck.run.isolation import end_if_lost, first_line

LOOK = 64
"""Samples that are looked at; beyond them the mean is taken."""
LEAST = 5.0
"""Seconds of forward passes in each process below which nothing is tried: compiling takes longer."""
ROUGHLY = 0.05
"""Largest difference of outputs, relative to the largest, in precisions below fp32: where sums are rounded shows."""
TIMES = 3
"""Calls of each kind that are timed; the fastest counts."""


class Timing(NamedTuple):
    """Seconds of one forward pass, plain and compiled, and of compiling for one shape of input."""

    plain: float
    compiled: float
    compiling: float


class Foreseen(NamedTuple):
    """What is to come: forward passes without a graph, and the shapes of input that a network would be compiled for."""

    forwards: float
    shapes: int


@dataclass(frozen=True)
class Decision:
    """How a model's forward passes are computed.

    Args:
        numerics: with `compiled` decided.
        note: what was decided and why, in one sentence; empty where nobody asked.
        seconds: what compiling takes in each process.
    """

    numerics: Numerics
    note: str = ""
    seconds: float = 0.0


def pays(timing: Timing, forwards: float, shapes: int = 1) -> bool:
    """Whether compiling takes less time than it saves, in one process.

    >>> pays(Timing(plain=0.024, compiled=0.018, compiling=41.0), forwards=7000)
    True
    >>> pays(Timing(plain=0.024, compiled=0.018, compiling=41.0), forwards=7000, shapes=2)
    False

    Args:
        timing: as measured.
        forwards: passes of one process.
        shapes: of input, each of which is compiled for.
    """
    return saves(timing, forwards) > shapes * timing.compiling


def saves(timing: Timing, forwards: float) -> float:
    """Seconds that compiled passes take less, compiling aside."""
    return forwards * (timing.plain - timing.compiled)


def foresee(grid: ModelGrid, samples: Sequence[Sample], *, blank: bool = False) -> Foreseen:
    """Count what is to come from the first samples.

    Args:
        grid: the model, and what is asked of it.
        samples: those that are computed.
        blank: count on blank inputs, on which no user's function hangs.
    """
    shapes = shapes_of(grid.model, samples[:LOOK])
    if blank:
        shapes = [replace(s, x=s.domain.with_leaf(s.x, torch.zeros_like(s.domain.leaf(s.x)))) for s in shapes]
    each = [forecast(grid, shape) for shape in shapes]
    mean = sum(f.forwards - f.backwards for f in each) / max(1, len(each))
    return Foreseen(mean * len(samples), len({shape.x.shape_key() for shape in shapes}))


def decide(
    name: str, grid: ModelGrid, inputs: Sequence[Inputs], foreseen: Foreseen, processes: Callable[[float], int]
) -> Decision:
    """Compile a model's forward passes where that pays.

    Args:
        name: what tables call the model.
        grid: the model with its numerics, and what is asked of it.
        inputs: on which it is tried: the first that it answers.
        foreseen: what is to come.
        processes: how many processes share so many seconds of work.
    """
    plain = grid.numerics
    try:
        many, seconds = timed_input(grid, inputs)
        here = foreseen.forwards / processes(foreseen.forwards * seconds)
        if here * seconds < LEAST:
            return Decision(
                plain, f"{name}: compiling does not pay: its forward passes take {told(here * seconds)} in all"
            )
        timing = tried(grid, many, seconds)
    except Exception as problem:
        end_if_lost(problem)
        return Decision(plain, f"{name} is not compiled: {reason(problem)}")
    passes = f"{name}: compiled passes take {milliseconds(timing.compiled)} instead of {milliseconds(timing.plain)}"
    shapes = "" if foreseen.shapes == 1 else f" for {foreseen.shapes} shapes of input"
    spent = foreseen.shapes * timing.compiling
    passes += f", compiling {told(spent)} in each process{shapes}"
    gain = saves(timing, here)
    if pays(timing, here, foreseen.shapes):
        return Decision(replace(plain, compiled=True), f"{passes}: saves about {told(gain - spent)} there", spent)
    return Decision(plain, f"{passes}: does not pay, it would save {told(max(0.0, gain))}")


def as_begun(name: str, grid: ModelGrid, inputs: Sequence[Inputs], *, wanted: bool) -> Decision:
    """Go on as a run was begun, whatever is wanted now.

    Args:
        name: what tables call the model.
        grid: the model with the numerics that the run was begun with.
        inputs: on which it is tried, since another machine may not be able to compile it; none where nothing is left to
            compute.
        wanted: whether compiled passes are wanted now.
    """
    numerics = grid.numerics
    if not numerics.compiled:
        told = f"{name}: the run was begun without compiled passes and goes on so; a new folder decides anew"
        return Decision(numerics, told if wanted else "")
    note = "" if wanted else f"{name}: the run was begun with compiled passes and goes on so"
    if not inputs:
        return Decision(numerics, note)
    try:
        timing = tried(grid, *timed_input(grid, inputs))
    except Exception as problem:
        end_if_lost(problem)
        plain = replace(numerics, compiled=False)
        why = f"{name}: the run was begun with compiled passes and goes on without: {reason(problem)}"
        return Decision(plain, f"{why}; scores agree within rounding")
    return Decision(numerics, note, timing.compiling)


def timed_input(grid: ModelGrid, inputs: Sequence[Inputs]) -> tuple[Inputs, float]:
    """The first input that the model answers, as many times as a call has rows, and the seconds of one pass.

    Raises:
        Exception: what the model raised on the last of them.
    """
    rows = torch.zeros(grid.numerics.forward, dtype=torch.long)
    probe = Probe(grid.model, replace(grid.numerics, compiled=False))
    problem: Exception = HeatcheckError("there is no input to try it on")
    for x in inputs:
        many = x.take(rows)
        try:
            probe.logits(many)
            return many, fastest_of(partial(probe.logits, many)) / len(many)
        except Exception as failure:
            problem = failure
    raise problem


def tried(grid: ModelGrid, many: Inputs, plain: float) -> Timing:
    """Compile a model, and measure it at the run's own micro-batch.

    Raises:
        Exception: it cannot be compiled, or answers otherwise then.
    """
    model = grid.model
    model.compile()
    probe = Probe(model, replace(grid.numerics, compiled=True))
    start = time.perf_counter()
    answer = probe.logits(many)
    first = time.perf_counter() - start
    reference = Probe(model, replace(grid.numerics, compiled=False)).logits(many)
    bound = (AGREES if model.precision == FP32 else ROUGHLY) * float(reference.abs().max())
    if not torch.allclose(reference, answer, rtol=0, atol=bound):
        apart = float((reference - answer).abs().max())
        raise HeatcheckError(f"its compiled answers are {apart:.2g} away from its own, more than rounding explains")
    best = fastest_of(partial(probe.logits, many))
    return Timing(plain, best / len(many), max(0.0, first - best))


def fastest_of(call: Callable[[], object]) -> float:
    """Seconds of the fastest of a few calls."""
    found = []
    for _ in range(TIMES):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def reason(problem: Exception) -> str:
    """Why a model cannot be compiled, in one line."""
    return str(problem) if isinstance(problem, HeatcheckError) else first_line(problem)


def milliseconds(seconds: float) -> str:
    """A short time, to three digits.

    >>> milliseconds(0.0183), milliseconds(0.00042)
    ('18.3 ms', '0.42 ms')
    """
    return f"{1000 * seconds:.3g} ms"


def told(seconds: float) -> str:
    """A time as a note says it.

    >>> told(2.4), told(723.0)
    ('2.4 s', '12 min')
    """
    return f"{seconds:.2g} s" if seconds < 10 else clock(seconds)
