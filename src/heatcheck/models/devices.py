"""Devices and precisions: which there are, which one is meant, and arithmetic in it."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

import torch

from heatcheck.core.types import HeatcheckError

FP32, TF32 = "fp32", "tf32"
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precisions in which passes are computed by torch's autocast; the weights stay as they are."""
PRECISIONS = (FP32, TF32, *HALF)
WORKER = "HEATCHECK_WORKER"
"""The number of a worker process, by which several of them share the GPUs of a machine."""
WORKERS = "HEATCHECK_WORKERS"
"""How many worker processes share this machine's cores."""
_TRIAL = """
import torch
x = torch.randn(4, 8, 16, 16, requires_grad=True)
net = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.Flatten(), torch.nn.Linear(16 * 14 * 14, 32))
with torch.autocast("cpu", torch.{dtype}):
    net(x).float().sum().backward()
"""


def devices() -> list[str]:
    """The devices of this machine, best first; the CPU is always there."""
    found = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    found += ["mps"] if torch.backends.mps.is_available() else []
    return [*found, "cpu"]


def choose_device(name: str) -> str:
    """A device by name, or for `auto` the best there is.

    >>> choose_device("cpu")
    'cpu'

    Raises:
        HeatcheckError: there is none of this name; says which there are.
    """
    known = devices()
    if name == "auto":
        return known[0].partition(":")[0]
    if name not in known and name not in {device.partition(":")[0] for device in known}:
        there = " and ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)
        raise HeatcheckError(
            f"device={name!r} is not there: this machine has {there}; device='auto' takes the best of them"
        )
    return name


def own_device(name: str) -> torch.device:
    """The device that this process uses: where any GPU will do, worker processes take one after another.

    >>> own_device("cpu")
    device(type='cpu')
    """
    if name != "cuda":
        return torch.device(name)
    return torch.device("cuda", int(os.environ.get(WORKER, "0")) % max(1, torch.cuda.device_count()))


def gpus_of(names: Iterable[str]) -> int:
    """How many CUDA devices are meant by these names together.

    >>> gpus_of(["cpu"])
    0
    """
    found = {name for name in names if name.startswith("cuda")}
    return max(1, torch.cuda.device_count()) if "cuda" in found else len(found)


def check_precision(precision: str, device: str) -> None:
    """Refuse a precision that a device does not have.

    Raises:
        HeatcheckError: says which it has.
    """
    if precision not in PRECISIONS:
        raise HeatcheckError(f"precision={precision!r} is not one of {', '.join(PRECISIONS)}")
    kind = device.partition(":")[0]
    if precision == TF32 and kind != "cuda":
        raise HeatcheckError(
            f"precision='tf32' is a way of CUDA devices to compute, and the device is {device}; use fp32"
        )
    if kind == "cpu" and precision in HALF and not _cpu_computes(precision):
        raise HeatcheckError(
            f"precision={precision!r} does not work on this CPU: a trial in its own process failed; use fp32"
        )


@cache
def _cpu_computes(precision: str) -> bool:
    """Whether a trial survives: some CPUs that advertise half precision die of an illegal instruction."""
    trial = _TRIAL.format(dtype=str(HALF[precision]).removeprefix("torch."))
    return subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False).returncode == 0  # noqa: S603 - our own words


@contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """Compute passes in a precision; on CUDA, fp32 means fp32 in convolutions too, where torch would take TF32."""
    cast = torch.autocast(device.type, HALF[precision]) if precision in HALF else nullcontext()
    if device.type != "cuda":
        with cast:
            yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = precision == TF32
    try:
        with cast:
            yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before
