"""What makes passes fast, decided in one place for runs and for plain tensors: allocator, layout, threads, micro-batch."""

import ctypes
import math
import os
from functools import cache
from typing import Any

import torch
from torch import nn

from heatcheck.core.types import Inputs
from heatcheck.models.base import Model
from heatcheck.models.torch_model import TorchModel
from heatcheck.probe.numerics import Numerics

ALLOCATOR = "HEATCHECK_ALLOCATOR"
"""Set to `system`, this environment variable leaves the memory allocator as it is."""
KEPT = 128 << 20
"""Bytes of freed memory that the process keeps for its next calls; more is given back between components."""
CONVOLUTIONAL = 1_000_000
"""Weights in convolutions from which their memory layout is worth a thought."""
AGREES = 1e-4
"""Largest difference of outputs, relative to the largest, between memory layouts that compute the same."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER = 1 << 30


class _Heap(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "used", "free", "keepcost")
    )


@cache
def _glibc() -> Any:
    """The C library with its heap's controls; None on other systems, and where a user wants the allocator left alone."""
    if os.environ.get(ALLOCATOR) == "system":
        return None
    try:
        library = ctypes.CDLL("libc.so.6")
        library.mallinfo2.restype = _Heap
        library.malloc_trim.argtypes = [ctypes.c_size_t]
        return library
    except (OSError, AttributeError):
        return None


@cache
def tune_allocator() -> bool:
    """Keep freed memory in the process: glibc otherwise returns it and faults it in again at every call.

    Returns:
        Whether it is so now.
    """
    library = _glibc()
    if library is None:
        return False
    return bool(library.mallopt(_MMAP_THRESHOLD, _NEVER)) and bool(library.mallopt(_TRIM_THRESHOLD, _NEVER))


def give_back(kept: int = KEPT) -> None:
    """Return freed memory to the system where there is much of it: what one component needed, the next may not."""
    library = _glibc()
    if library is not None and library.mallinfo2().free > kept:
        library.malloc_trim(0)


def settle(model: Model, x: Inputs) -> None:
    """Choose the memory layout of a module that came without one: channels last for large convolutional networks on CPUs.

    Where the network cannot run in it, or answers otherwise, it stays as it is.
    """
    if not isinstance(model, TorchModel) or model.channels_last is not None:
        return
    model.lay_out(channels_last=False)
    if model.device.type != "cpu" or _convolution_weights(model.module()) < CONVOLUTIONAL:
        return
    one = x.take(slice(0, 1))
    with torch.no_grad():
        try:
            plain = model.logits(one)
            model.lay_out(channels_last=True)
            other = model.logits(one)
        except Exception:
            model.lay_out(channels_last=False)
            return
    scale = float(plain.abs().max())
    if not math.isfinite(scale) or not torch.allclose(plain, other, rtol=0, atol=AGREES * scale):
        model.lay_out(channels_last=False)


def _convolution_weights(network: nn.Module) -> int:
    return sum(m.weight.numel() for m in network.modules() if isinstance(m, nn.Conv2d))


def for_tensors(model: Model, samples: int) -> Numerics:
    """How plain tensors are asked about: calls that hold all of them, within bounds, on the caller's own threads.

    One picture must not pay for a batch of eight gradients, and measuring would take longer than most questions.
    """
    return Numerics(
        forward=min(16, max(4, samples)),
        backward=min(8, samples),
        threads=torch.get_num_threads(),
        channels_last=bool(getattr(model, "channels_last", False)),
        rounding=model.rounding,
        device=str(model.device),
    )
