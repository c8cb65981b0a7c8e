"""A pretend accelerator: tensors that live on the CPU, but refuse to meet others that do.

    with pretend_device() as device:
        x = torch.rand(3).to(device.name)
        x + torch.rand(3)          # Misplaced: a tensor that torch.rand creates on the CPU meets one on the model's device

It shows on any machine what a GPU would refuse, and what it would do slowly: every copy to it and from it is counted,
and every read that the CPU would have to wait for. It says nothing about a real GPU's kernels, memory or speed.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from heatcheck.core.devices import WITHOUT_FLOAT64

ACCELERATOR, SINGLE = torch.device("lazy", 0), torch.device("lazy", 1)
"""The pretend devices: one like a GPU, one without double precision like Apple's. No build of torch uses the name."""

_aten = torch.ops.aten
_WIDE = (torch.float64, torch.complex128)
_COPY_TO, _COPY_INTO = _aten._to_copy.default, _aten.copy_.default
_TO_DEVICE_AND_TYPE = _aten.to.device
"""`.to(device, dtype)`, which inference mode leaves whole, with the device among its positional arguments."""
_READS = {
    "_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive",
}  # fmt: skip
"""Operations for which the CPU must wait: their result, or its shape, is needed to go on."""
_MAKERS = (torch.tensor, torch.as_tensor, torch.asarray)


class Misplaced(AssertionError):
    """An operation that a real accelerator would refuse, or do by a hidden copy."""


@dataclass
class Transfers:
    """What went between the CPU and the device.

    Args:
        ins: copies to the device; drawn noise is one.
        outs: copies from the device, of tensors.
        reads: numbers that the CPU waited for, to decide how to go on: `.item()`, `bool(…)`, `.tolist()`, `nonzero`.
    """

    ins: int = 0
    outs: int = 0
    reads: int = 0

    def copy(self) -> "Transfers":
        """The state now."""
        return Transfers(self.ins, self.outs, self.reads)

    def since(self, before: "Transfers") -> "Transfers":
        """What was transferred since an earlier state."""
        return Transfers(self.ins - before.ins, self.outs - before.outs, self.reads - before.reads)


class PretendTensor(Tensor):
    """A tensor on a pretend device, which holds one on the CPU."""

    held: Tensor
    transfers: Transfers

    @staticmethod
    def __new__(cls, held: Tensor, device: torch.device, transfers: Transfers) -> "PretendTensor":
        found: PretendTensor = Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=device,
        )
        found.held, found.transfers = held, transfers
        return found

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise Misplaced(f"{func} was called outside of pretend_device()")

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{self.held!r} on {self.device}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Misplaced(f"a tensor on {self.device} cannot be sent to another process; copy it with .cpu() first")

    def __deepcopy__(self, memo: dict[int, Any]) -> "PretendTensor":
        twin: PretendTensor = memo.setdefault(id(self), self.detach().clone().requires_grad_(self.requires_grad))
        if hasattr(self, "_is_param"):
            twin._is_param = True
        return twin

    def tolist(self) -> Any:
        """The numbers; one read, however many they are."""
        self.transfers.reads += 1
        return self.held.tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refused, as every accelerator does."""
        raise Misplaced(f".numpy() of a tensor on {self.device}: copy it once with .cpu(), outside of loops")

    __array__ = numpy


@dataclass
class Pretend:
    """A pretend device in use.

    Args:
        name: the device, for `device=` and `.to`.
        transfers: what went to it and from it so far.
    """

    name: torch.device
    transfers: Transfers

    def counted(self) -> Transfers:
        """The state of the counts now."""
        return self.transfers.copy()


@contextmanager
def pretend_device(*, float64: bool = True) -> Iterator[Pretend]:
    """A device for as long as the block lasts; tensors on it can be used inside of the block only.

    Args:
        float64: whether it has double precision.
    """
    device = Pretend(ACCELERATOR if float64 else SINGLE, Transfers())
    if not float64:
        WITHOUT_FLOAT64.add(str(SINGLE))
    try:
        with _Calls(device), _Dispatch(device):
            yield device
    finally:
        WITHOUT_FLOAT64.discard(str(SINGLE))


class _Calls(TorchFunctionMode):
    """What must be seen before torch takes it apart: lists made into tensors, and assignments."""

    def __init__(self, device: Pretend) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _MAKERS and _is(kwargs.get("device"), self.device.name):
            return func(*args, **{**kwargs, "device": "cpu"}).to(self.device.name)
        if func is Tensor.new_tensor and isinstance(args[0], PretendTensor):
            return torch.tensor(*args[1:], dtype=kwargs.get("dtype", args[0].dtype)).to(self.device.name)
        if func in _MAKERS:
            made = func(*args, **kwargs)
            made._made_by = f"torch.{func.__name__}{_line()}"
            return made
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], PretendTensor):
            self._check_index(args[1])
        if func is Tensor.__setitem__ and isinstance(args[0], PretendTensor) and _on_cpu(args[2]):
            raise Misplaced(
                f"{_origin([args[2]])} is assigned to a part of one on the model's device: {_remedy([args[2]])}"
            )
        return func(*args, **kwargs)

    def _check_index(self, index: Any) -> None:
        for part in index if isinstance(index, tuple) else (index,):
            if isinstance(part, list | np.ndarray | range):
                raise Misplaced(
                    f"a tensor on {self.device.name} is indexed by a {type(part).__name__}, which is copied each time: "
                    "make the index once, with torch.tensor(…, device=x.device)"
                )


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operations on what pretend tensors hold; refuses mixtures, and counts copies."""

    def __init__(self, device: Pretend) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is _TO_DEVICE_AND_TYPE:
            with self:
                return func.decompose(*args, **kwargs)
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        there = [t for t in tensors if isinstance(t, PretendTensor)]
        asked = kwargs.get("device")
        onto = bool(there) if asked is None else _is(asked, self.device.name)
        if func is _COPY_TO:
            self._count(args[0], to_device=onto)
        elif func is _COPY_INTO:
            self._count(args[1], to_device=isinstance(args[0], PretendTensor))
        elif there and (others := [t for t in tensors if _on_cpu(t)]):
            raise Misplaced(f"{_origin(others)} meets one on the model's device in {_name(func)}: {_remedy(others)}")
        elif there and _waits(func, args, kwargs):
            self.device.transfers.reads += 1
        if asked is not None and onto:
            kwargs["device"] = torch.device("cpu")
        held_args, held_kwargs = tree_map_only(PretendTensor, lambda t: t.held, (args, kwargs))
        out = func(*held_args, **held_kwargs)
        if func is _COPY_INTO:
            return args[0]
        if not onto:
            _remember_origin(out, func, tensors)
            return out
        same = {id(t.held): t for t in there}
        return tree_map_only(Tensor, lambda t: same[id(t)] if id(t) in same else self._wrapped(t, func), out)

    def _wrapped(self, held: Tensor, func: Any) -> PretendTensor:
        if held.dtype in _WIDE and self.device.name == SINGLE:
            raise Misplaced(f"{_name(func)} gives {held.dtype} on {SINGLE}, which has no double precision")
        with torch.inference_mode(held.is_inference()):  # a view of a tensor from outside of the mode is none of it
            return PretendTensor(held, self.device.name, self.device.transfers)

    def _count(self, source: Tensor, *, to_device: bool) -> None:
        from_device = isinstance(source, PretendTensor)
        self.device.transfers.ins += int(to_device and not from_device)
        self.device.transfers.outs += int(from_device and not to_device)


def _is(device: Any, wanted: torch.device) -> bool:
    return device is not None and torch.device(device) == wanted


def _on_cpu(value: Any) -> bool:
    """Whether a value is a tensor on the CPU with axes; numbers without any may be mixed in."""
    return isinstance(value, Tensor) and not isinstance(value, PretendTensor) and value.ndim > 0


def _waits(func: Any, args: Any, kwargs: Any) -> bool:
    name = func.overloadpacket.__name__
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name == "index":
        return any(isinstance(i, Tensor) and i.dtype == torch.bool for i in args[1])
    return name in _READS


def _name(func: Any) -> str:
    return f"torch.{func.overloadpacket.__name__}"


def _remember_origin(out: Any, func: Any, tensors: list[Tensor]) -> None:
    """Note on tensors made on the CPU which call made them, for the message if they are mixed with others."""
    if tensors:
        origin = next((o for t in tensors if (o := getattr(t, "_made_by", ""))), "")
    else:
        origin = f"{_name(func)}{_line()}"
    for t in tree_leaves(out):
        if isinstance(t, Tensor) and origin:
            t._made_by = origin  # type: ignore[attr-defined]


def _line() -> str:
    """The line of code, outside of torch and of this file, that is running."""
    frame = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename == __file__ or "/torch/" in frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return ""
    name = frame.f_code.co_filename.rpartition("/")[2]
    return f" in {name}, line {frame.f_lineno}"


def _maker(others: list[Any]) -> str:
    return next((made for t in others if (made := getattr(t, "_made_by", ""))), "")


def _origin(others: list[Any]) -> str:
    made = _maker(others)
    return f"a tensor that {made} creates on the CPU" if made else "a tensor on the CPU"


def _remedy(others: list[Any]) -> str:
    return "write device=x.device" if _maker(others) else "move it once, with .to(x.device)"
