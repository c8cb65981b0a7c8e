"""How results are computed: the shape of every model call, measured once and written down before the first."""

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from heatcheck.core.types import HeatcheckError, Inputs
from heatcheck.models.base import Model
from heatcheck.models.devices import own_device
from heatcheck.models.lengths import Rounding
from heatcheck.probe.answers import scalar

SIZES = (1, 4, 8, 16)
"""Micro-batches that are tried on CPUs: larger ones are slower there, and need more memory. In calls of two or three rows, a
row's last bits may depend on its place."""
GPU_SIZES = (*SIZES, 32, 64, 128, 256, 512)
ROOM = 0.7
"""The share of a GPU's memory that calls may fill: what methods keep beside a call, and others on the GPU, need the rest."""

LATER = {"compiled": False, "rounding": None}
"""What older records lack, and what it was for them."""


@dataclass(frozen=True, kw_only=True)
class Numerics:
    """Micro-batch per direction, threads, and machine. Equal numerics give bit-equal results.

    `compiled` is for forward passes that nothing looks into; all others are computed as the network is written. `rounding`
    is how the sizes of inputs are rounded up, None where they all have one.
    """

    forward: int = 16
    backward: int = 8
    threads: int = 1
    channels_last: bool = False
    compiled: bool = False
    rounding: Rounding | None = None
    device: str = "cpu"
    torch: str = ""
    capability: str = ""

    def __post_init__(self) -> None:
        if self.rounding is not None:
            object.__setattr__(self, "rounding", Rounding(*self.rounding))

    def record(self) -> dict[str, Any]:
        """As plain data; `compiled` and `rounding` only where they are so, as in folders from before there were such things."""
        found = {name: value for name, value in asdict(self).items() if name not in LATER or value}
        return {**found, **({"rounding": list(self.rounding)} if self.rounding else {})}


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


def is_device_lost(problem: BaseException) -> bool:
    """Whether an exception says that a GPU has failed: nothing that this process asks of it afterwards can succeed."""
    if is_out_of_memory(problem) or not isinstance(problem, RuntimeError):
        return False
    text = str(problem)
    return type(problem).__name__ == "AcceleratorError" or any(sign in text for sign in _LOST)


_LOST = ("CUDA error", "cuDNN error", "CUDNN_STATUS_", "CUBLAS_STATUS_", "CUSOLVER_STATUS_", "HIP error")


class DeviceLostError(BaseException):
    """A GPU has failed, and with it everything that this process has there: no result, and no sample's fault.

    Not an `Exception`, so that nothing files it as the status of a sample: the process must end, and its work be done by
    another.
    """


def measure(
    model: Model, x: Inputs, *, threads: int = 1, largest: int | None = None, device: str = "cpu", sharers: int = 1
) -> Numerics:
    """Find the micro-batch with the best rate for each direction; bigger is not always faster.

    Args:
        model: who is asked.
        x: an input.
        threads: threads of a call.
        largest: the largest micro-batch to try; None for what suits the device.
        device: where the run computes, as it is written down.
        sharers: processes that share a GPU's memory.
    """
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

    sizes = [size for size in (SIZES if model.device.type == "cpu" else GPU_SIZES) if size <= (largest or size)]
    room = GpuMemory(model.device, sharers) if model.device.type == "cuda" else Room()
    best_forward = fastest(forward, sizes, room)
    best_backward = best_forward
    if model.differentiable:
        try:
            best_backward = fastest(backward, [size for size in sizes if size <= best_forward * 2], room)
        except RuntimeError:  # the doctor says why gradients do not flow; forward-only methods still run
            best_backward = best_forward
    return Numerics(
        forward=best_forward,
        backward=best_backward,
        threads=threads,
        channels_last=bool(getattr(model, "channels_last", False)),
        rounding=model.rounding,
        **machine(device),
    )


class Room:
    """How much memory there is for calls; where nobody counts it, running out of it tells."""

    def begin(self) -> None:
        """A call is about to be made."""

    def end(self) -> None:
        """It was made, and has come to its end on the device too."""

    def bears(self, times: int) -> bool:
        """Whether a call of so many times the rows of the last one fits."""
        return True


class GpuMemory(Room):
    """The memory of a CUDA device, as torch counts it.

    Args:
        device: which one.
        sharers: processes that share it.
    """

    def __init__(self, device: torch.device, sharers: int = 1) -> None:
        self.device, self.sharers = device, sharers

    def begin(self) -> None:
        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)

    def end(self) -> None:
        torch.cuda.synchronize(self.device)

    def bears(self, times: int) -> bool:
        free, _ = torch.cuda.mem_get_info(self.device)
        mine = torch.cuda.memory_reserved(self.device)
        return torch.cuda.max_memory_allocated(self.device) * times <= ROOM * (free + mine) / self.sharers


def fastest(call: Callable[[int], None], sizes: Sequence[int], room: Room | None = None) -> int:
    """The size with the lowest time per row; a larger one must win by 10 %, and running out of memory ends it."""
    room = room or Room()
    best, best_rate, last = 1, float("inf"), 0
    for size in sizes:
        if last and not room.bears(size // last):
            break
        try:
            room.begin()
            call(size)
            room.end()
            start = time.perf_counter()
            call(size)
            room.end()
            rate = (time.perf_counter() - start) / size
        except (RuntimeError, MemoryError) as problem:
            if not is_out_of_memory(problem):
                raise
            break
        last = size
        if rate < best_rate * 0.9:
            best, best_rate = size, rate
        elif rate > best_rate * 1.5:
            break
    if best_rate == float("inf"):
        raise HeatcheckError("a single input does not fit into memory")
    return best
