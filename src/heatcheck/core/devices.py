"""Where numbers are handled, for each device that a model may live on."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor

CPU = torch.device("cpu")
WITHOUT_FLOAT64 = {"mps"}
"""Devices, by type or full name, that have no double precision."""
_WORD = 16
"""Bytes to which the largest type is aligned."""


def home(device: torch.device) -> torch.device:
    """Where inputs, masks, orders, maps and sums live for a model on `device`: there, or on the CPU where it has no float64.

    Scores and ranks are made in double precision. On a device without it the model's calls alone run there.

    >>> home(torch.device("cuda:1")), home(torch.device("mps"))
    (device(type='cuda', index=1), device(type='cpu'))
    """
    return CPU if {device.type, str(device)} & WITHOUT_FLOAT64 else device


def constants(values: Sequence[float], dtype: torch.dtype, device: torch.device) -> Float[Tensor, " n"]:
    """A few numbers as a tensor; written on the device itself, so that nothing is copied there.

    >>> constants((0.5, 0.25), torch.float32, CPU)
    tensor([0.5000, 0.2500])
    """
    if device == CPU:
        return torch.tensor(values, dtype=dtype)
    return torch.stack([torch.full((), value, dtype=dtype, device=device) for value in values])


def indices(numbers: Sequence[int], device: torch.device) -> Int[Tensor, " n"]:
    """Whole numbers as a tensor; consecutive ones are counted on the device itself, so that nothing is copied there.

    >>> indices((3, 4, 5), CPU), indices((3, 5), CPU)
    (tensor([3, 4, 5]), tensor([3, 5]))
    """
    if device != CPU and numbers and list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))):
        return torch.arange(numbers[0], numbers[0] + len(numbers), device=device)
    return torch.tensor(list(numbers), dtype=torch.long, device=device)


def sent(device: torch.device, t: Tensor) -> Tensor:
    """The same tensor on a device; from the CPU to a GPU of CUDA through pinned memory, so that nobody waits for the copy.

    >>> sent(CPU, torch.tensor([1.5]))
    tensor([1.5000])
    """
    if device.type == "cuda" and t.device.type == "cpu" and not t.requires_grad:
        return t.contiguous().pin_memory().to(device, non_blocking=True)
    return t.to(device)


def moved(device: torch.device, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The same tensors on a device, in one copy however many they are; those that are there already stay.

    >>> [t.tolist() for t in moved(CPU, torch.tensor([1.5, 2.0]), torch.tensor([[True], [False]]))]
    [[1.5, 2.0], [[True], [False]]]
    """
    away = [t for t in tensors if t.device != device]
    if len(away) < 2 or len({t.device for t in away}) > 1:
        return tuple(sent(device, t) for t in tensors)
    found = iter(_unpacked(sent(device, torch.cat([_packed(t) for t in away])), away))
    return tuple(t if t.device == device else next(found) for t in tensors)


def _packed(t: Tensor) -> UInt8[Tensor, " n"]:
    """A tensor's bytes, filled up to whole words, so that any type can be read behind them."""
    raw = t.detach().reshape(-1).contiguous().view(torch.uint8)
    return F.pad(raw, (0, -len(raw) % _WORD))


def _unpacked(raw: UInt8[Tensor, " n"], like: Sequence[Tensor]) -> Iterator[Tensor]:
    at = 0
    for t in like:
        size = t.numel() * t.element_size()
        yield raw[at : at + size].view(t.dtype).reshape(t.shape)
        at += size + -size % _WORD
