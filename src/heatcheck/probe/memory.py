"""What memory a process holds, and what a call needs at most: on the CPU as the system counts it, on GPUs as torch does."""

import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from heatcheck.probe.tuning import give_back

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_bytes() -> int:
    """The largest memory that this process, or a worker that has ended, has held."""
    return max(_most(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def resident_bytes() -> int:
    """What this process holds now; where the system does not say, the most it has held."""
    return _status("VmRSS") or _most(resource.RUSAGE_SELF)


def needed(call: Callable[[], object], device: torch.device) -> dict[str, int]:
    """Bytes that a call needs at most beside what is held before it: of the process, and of a CUDA device by name."""
    give_back(0)
    with suppress(OSError):
        _RESET.write_text("5")  # the system's count of the most starts anew
    before = resident_bytes()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    call()
    found = {"cpu": max(0, (_status("VmHWM") or _most(resource.RUSAGE_SELF)) - before)}
    if device.type == "cuda":
        found[str(device)] = torch.cuda.max_memory_allocated(device)
    return found


def _status(name: str) -> int:
    """A number of bytes that Linux counts for this process; 0 elsewhere."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def _most(who: int) -> int:
    return resource.getrusage(who).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
