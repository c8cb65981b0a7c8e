"""Loader processes: decode and encode samples beside a process that computes, so that its own lock is not in the way.

They are started as worker processes are, with a pipe each: the main module of a user's script is not run again, nothing
lies in shared memory, and they end with the process that started them, however it ends. What travels are pickles: samples
and a model's reading part there, inputs back.
"""

import os
import pickle  # noqa: TID251 - between a process and the loaders that it started; no file is read
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from heatcheck.core.types import HeatcheckError, Inputs, Sample
from heatcheck.models.base import Model
from heatcheck.models.devices import WORKERS

MOST = 4
"""Loaders of one process, at most."""
HEAVY = 1 << 20
"""Bytes from which a model's reading part is too large to be sent with every sample."""
_GONE = "a loader process is gone"


class Encoded(NamedTuple):
    """A sample as the model reads it, and what a right map would show on the model's sites."""

    x: Inputs
    reference: Mapping[str, Any]


class Reading(NamedTuple):
    """A model's reading part as it travels, and each loader's word on whether it can use it."""

    reader: bytes
    tried: list[Future[bytes]]


def encoded(model: Model, sample: Sample) -> Encoded:
    """Decode a sample and make the model's input of it."""
    x = model.encode(sample)
    return Encoded(x, model.references(sample, x))


def loader_count() -> int:
    """How many loaders a process has: its share of the cores, one at least and four at most."""
    return min(MOST, max(1, (os.cpu_count() or 1) // int(os.environ.get(WORKERS, "1"))))


def start_loader() -> subprocess.Popen[bytes]:
    """Start a loader process; Ctrl+C at the terminal does not reach it."""
    return subprocess.Popen(
        [sys.executable, "-m", "heatcheck.run.loader"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,
    )


def answer(reader: bytes, sample: bytes | None) -> bytes | None:
    """What a loader sends back for a sample, or, without one, when it has the reader; None where something fails."""
    try:
        model = _unpacked(reader)
        return b"" if sample is None else pickle.dumps(encoded(model, pickle.loads(sample)))  # noqa: S301 - from its parent
    except Exception:  # what is wrong is found again, and told, by the process that computes
        return None


@lru_cache(maxsize=8)
def _unpacked(reader: bytes) -> Model:
    model: Model = pickle.loads(reader)  # noqa: S301 - from its parent
    return model


class Loaders:
    """The loader processes of this one; they are started when the first sample is asked for.

    Args:
        count: how many.
        start: starts one.
    """

    def __init__(self, count: int | None = None, start: Callable[[], subprocess.Popen[bytes]] = start_loader) -> None:
        self._count = loader_count() if count is None else count
        self._start = start
        self._threads: ThreadPoolExecutor | None = None
        self._own = threading.local()
        self._running: list[subprocess.Popen[bytes]] = []
        self._readings: dict[str, Reading | None] = {}
        self._lost = False
        self.close = weakref.finalize(self, _end, self._running)

    def read(self, model: Model, sample: Sample) -> Future[Encoded] | None:
        """A sample as a loader will have encoded it; None where the caller should read it itself.

        That is so until the loaders have started, where the model's reading part or the sample cannot be sent, where the
        sample is a tensor, of which nothing is to be decoded, and once a loader has died.
        """
        if self._lost:
            self.close()
            return None
        if model.identity not in self._readings:
            self._readings[model.identity] = self._begin(model)
        reading = self._readings[model.identity]
        if reading is None or isinstance(sample.content, Tensor) or not self._usable(reading):
            return None
        raw = _pickled(sample)
        return None if raw is None or self._threads is None else self._threads.submit(self._read, reading.reader, raw)

    def _begin(self, model: Model) -> Reading | None:
        """Give every loader the model's reading part; None where it cannot be sent."""
        reader = model.reader()
        raw = None if reader is None else _pickled(reader)
        if raw is None or len(raw) > HEAVY:
            return None
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="heatcheck-loader")
        return Reading(raw, [self._threads.submit(self._ask, raw, None) for _ in range(self._count)])

    def _usable(self, reading: Reading) -> bool:
        return all(one.done() and one.exception() is None for one in reading.tried)

    def _read(self, reader: bytes, sample: bytes) -> Encoded:
        found: Encoded = pickle.loads(self._ask(reader, sample))  # noqa: S301 - from a loader of this process
        return found

    def _ask(self, reader: bytes, sample: bytes | None) -> bytes:
        """What this thread's loader answers.

        Raises:
            HeatcheckError: it cannot read the sample, or is gone.
        """
        if self._lost:
            raise HeatcheckError(_GONE)
        try:
            if not hasattr(self._own, "process"):
                self._own.process = self._start()
                self._running.append(self._own.process)
            process = self._own.process
            pickle.dump((reader, sample), process.stdin)
            process.stdin.flush()
            found: bytes | None = pickle.load(process.stdout)  # noqa: S301 - from a loader of this process
        except (OSError, EOFError, ValueError, pickle.UnpicklingError) as problem:
            self._lost = True
            raise HeatcheckError(_GONE) from problem
        if found is None:
            raise HeatcheckError("a loader process could not read a sample")
        return found


def _pickled(value: object) -> bytes | None:
    """A value as it travels; None where it cannot."""
    try:
        return pickle.dumps(value)
    except Exception:  # pickling runs the code of whatever it meets
        return None


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    for process in running:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # what was not read by a loader that is gone
                    continue
