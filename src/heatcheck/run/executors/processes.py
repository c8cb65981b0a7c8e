"""Worker processes that take works as JSON lines: no pickle, no shared memory, safe to kill."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from heatcheck.models.devices import WORKER, WORKERS
from heatcheck.run.executors.base import executor
from heatcheck.run.executors.crew import GRACE, Crew, Death, Message
from heatcheck.run.executors.worker import LOST
from heatcheck.run.work import Work

Inbox = queue.Queue[tuple[int, Message | None]]


@executor("processes", workers=True)
class Processes(Crew):
    """Single-threaded worker processes over one run folder; each loads what its works name, once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._processes: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []
        self._inbox: Inbox = queue.Queue()

    def start(self) -> int:
        number = len(self._processes)
        process = subprocess.Popen(
            [sys.executable, "-m", "heatcheck.run.executors.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, WORKER: str(number), WORKERS: str(max(1, self.workers))},
        )
        self._processes.append(process)
        self._inbox.put((number, {"ready": True}))  # its input can be written before it reads it
        listener = threading.Thread(target=_listen, args=(number, process, self._inbox), daemon=True)
        self._listeners.append(listener)
        listener.start()
        return number

    def send(self, number: int, work: Work) -> None:
        stdin = self._processes[number].stdin
        if stdin is None:
            return
        with suppress(BrokenPipeError, OSError):
            stdin.write(work.to_json() + "\n")
            stdin.flush()

    def receive(self, wait: float | None) -> tuple[int, Message | None] | None:
        try:
            return self._inbox.get(timeout=wait)
        except queue.Empty:
            return None

    def kill(self, number: int) -> None:
        self._processes[number].kill()

    def death(self, number: int) -> Death:
        return Death(how_it_ended(self._processes[number].wait()))

    def close(self) -> None:
        """Let workers save what they have finished; those that do not end are killed."""
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + GRACE
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            process.kill()
            process.wait()
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        for listener in self._listeners:
            listener.join()


def how_it_ended(code: int) -> str:
    """A process's exit code in words.

    >>> how_it_ended(-11), how_it_ended(7)
    ('SIGSEGV', 'exit code 7')
    """
    if code == LOST:
        return "its GPU failed"
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
    return f"{name}; was memory short?" if name == "SIGKILL" else name


def _listen(number: int, process: subprocess.Popen[str], inbox: Inbox) -> None:
    if process.stdout is not None:
        with process.stdout:
            for line in process.stdout:
                if line.startswith("{"):
                    inbox.put((number, json.loads(line)))
    inbox.put((number, None))
