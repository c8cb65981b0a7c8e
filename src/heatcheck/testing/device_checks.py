"""What a component does on a pretend accelerator: the same as on the CPU, with few copies."""

from collections.abc import Callable
from typing import TypeVar

from heatcheck.core.devices import CPU
from heatcheck.core.types import Attribution, Batch, Scores
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe
from heatcheck.testing.models import Toy
from heatcheck.testing.pretend import Misplaced, Transfers, pretend_device

T = TypeVar("T", Attribution, Scores)

CALLS = Numerics(forward=8, backward=8)
"""The shape of model calls, here and there."""
OWN, BLOCKS = 5, 8
"""Copies in each direction that a component may make whatever its size, besides one for every call of the model; and
how many calls it takes to make one more, for questions that are looked up many at a time."""


def on_cpu(model: Toy, batch: Batch, run: Callable[[Probe, Batch], T]) -> T:
    """What `run` makes of the samples, asking the model on the CPU."""
    return run(Probe(model, CALLS), batch)


def on_pretend(
    model: Toy, batch: Batch, run: Callable[[Probe, Batch], T], who: str, *, float64: bool = True
) -> tuple[T, Transfers, int]:
    """What `run` makes of the samples on a pretend device, brought back; with its copies and the calls of the model.

    Args:
        model: who is asked; it is moved to the device.
        batch: the samples, on the CPU.
        run: a method or a metric.
        who: for messages.
        float64: whether the device has double precision.

    Raises:
        AssertionError: something is not where the model is, or is copied too often.
    """
    calls = 0

    def tick(_: int) -> None:
        nonlocal calls
        calls += 1

    with pretend_device(float64=float64) as device:
        probe = Probe(model.on(device.name), CALLS, tick=tick)
        placed = probe.placed(batch)
        before = device.counted()
        try:
            found = run(probe, placed)
        except Misplaced as problem:
            raise AssertionError(f"{who}: {problem}") from None
        used = device.counted().since(before)
        found = found.to(CPU)
    allowed = OWN + calls + calls // BLOCKS
    for number, where in ((used.ins, "to"), (used.outs, "from")):
        if number > allowed:
            raise AssertionError(
                f"{who} copied {number} tensors {where} the device in {calls} calls of the model; copy what is needed "
                "at once, before the loop"
            )
    return found, used, calls
