"""How results are computed: the shape of every model call, measured once and written down before the first."""

import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from heatcheck.core.types import HeatcheckError, Inputs
from heatcheck.models.base import Model
from heatcheck.models.devices import own_device
from heatcheck.probe.answers import scalar

SIZES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, kw_only=True)
class Numerics:
    """Micro-batch per direction, threads and machine. Equal numerics give bit-equal results."""

    forward: int = 16
    backward: int = 8
    threads: int = 1
    channels_last: bool = False
    device: str = "cpu"
    torch: str = ""
    capability: str = ""
    compile: bool = False

    def record(self) -> dict[str, Any]:
        """As plain data; what older records do not have is left out where it is as it was."""
        return {name: value for name, value in asdict(self).items() if name != "compile" or value}


def machine(device: str = "cpu") -> dict[str, Any]:
    """The part of the numerics that belongs to the machine and the device."""
    capability = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    if device.startswith("cuda"):
        capability = torch.cuda.get_device_name(own_device(device))
    return {"device": device, "torch": torch.__version__, "capability": capability}


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether an exception says that memory ran out, on any device."""
    if isinstance(problem, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(problem).lower()
    return isinstance(problem, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)


def measure(model: Model, x: Inputs, *, threads: int = 1, largest: int = SIZES[-1], device: str = "cpu") -> Numerics:
    """Find the micro-batch with the best rate for each direction; bigger is not always faster."""
    one = x.take(slice(0, 1)).to(model.device)
    target = torch.zeros(1, dtype=torch.long, device=model.device)

    def rows(n: int) -> Inputs:
        return one.take(torch.zeros(n, dtype=torch.long, device=model.device))

    def forward(n: int) -> None:
        with torch.inference_mode():
            model.logits(rows(n))

    def backward(n: int) -> None:
        leaf = model.domain.leaf(rows(n)).detach().requires_grad_()
        with torch.enable_grad():
            out = scalar(model.logits(model.domain.with_leaf(rows(n), leaf)), target.expand(n), "logit")
            torch.autograd.grad(out.sum(), leaf)

    best_forward = fastest(forward, largest)
    best_backward = best_forward
    if model.differentiable:
        try:
            best_backward = fastest(backward, min(largest, best_forward * 2))
        except RuntimeError:  # the doctor says why gradients do not flow; forward-only methods still run
            best_backward = best_forward
    return Numerics(
        forward=best_forward,
        backward=best_backward,
        threads=threads,
        channels_last=bool(getattr(model, "channels_last", False)),
        **machine(device),
    )


def fastest(call: Callable[[int], None], largest: int) -> int:
    """The size with the lowest time per row; a larger one must win by 10 %, and running out of memory ends it."""
    best, best_rate = 1, float("inf")
    for size in (s for s in SIZES if s <= largest):
        try:
            call(size)
            start = time.perf_counter()
            call(size)
            rate = (time.perf_counter() - start) / size
        except (RuntimeError, MemoryError) as problem:
            if not is_out_of_memory(problem):
                raise
            break
        if rate < best_rate * 0.9:
            best, best_rate = size, rate
        elif rate > best_rate * 1.5:
            break
    if best_rate == float("inf"):
        raise HeatcheckError("a single input does not fit into memory")
    return best
