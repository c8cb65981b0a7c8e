"""Worker processes that take works as JSON lines: no pickle, no shared memory, safe to kill."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from heatcheck.models.devices import WORKER
from heatcheck.run.executors.base import Executor, Receipt, executor
from heatcheck.run.work import Cell, FailedCell, Work

TRIES = 3
"""Deaths of workers after which a work is given up, where no cell can be blamed."""
TOGETHER = 2
"""Deaths after which the cells of a work are computed one by one."""
GRACE = 3.0
"""Seconds that a worker has to save what it has finished when it is told to stop."""
Inbox = queue.Queue[tuple[int, dict[str, Any] | None]]


@dataclass
class Job:
    """A work that a worker has, the cell that it computes, since when, and whether it was killed for taking too long."""

    work: Work
    cell: Cell | None = None
    since: float = 0.0
    late: bool = False

    def deadline(self) -> float | None:
        """When the cell has taken too long; loading models and data is not limited."""
        if self.work.timeout is None or self.cell is None or self.late:
            return None
        return self.since + self.work.timeout


@executor("processes", workers=True)
class Processes(Executor):
    """Single-threaded worker processes over one run folder; each loads what its works name, once."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._processes: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []
        self._busy: dict[int, Job] = {}
        self._idle: list[int] = []
        self._inbox: Inbox = queue.Queue()

    def receipts(self) -> Iterator[Receipt]:
        """Hand out works and yield what becomes of them; one whose worker dies is tried again elsewhere."""
        deaths: Counter[tuple[Any, ...]] = Counter()
        self._hand_out()
        while self._busy:
            number, message = self._next()
            if message is None:
                job = self._busy.pop(number, None)
                if job is None:
                    self._idle = [other for other in self._idle if other != number]
                    continue
                key = job.work.model, job.work.samples
                deaths[key] += 1
                ended = how_it_ended(self._processes[number].wait())
                blamed = {failed.cell for failed in job.work.failed}
                if (job.cell is None or job.cell in blamed) and deaths[key] >= TRIES:
                    yield Receipt(job.work, problem=f"its worker died {deaths[key]} times ({ended})")
                else:
                    self.waiting.insert(0, after_death(job, deaths[key], ended))
                self._hand_out()
            elif "tick" in message:
                self.tick(message["tick"])
            elif "begin" in message:
                self._busy[number].cell, self._busy[number].since = Cell(*message["begin"]), time.monotonic()
            elif "failed" in message:
                cell, status = message["failed"]
                job = self._busy[number]
                job.work = replace(job.work, failed=(*job.work.failed, FailedCell(Cell(*cell), status)))
            else:
                self._idle.append(number)
                yield Receipt(self._busy.pop(number).work, message.get("spent", {}), message.get("problem"))
                self._hand_out()

    def _next(self) -> tuple[int, dict[str, Any] | None]:
        """The next message; a worker whose cell takes too long is killed, and its death is the message."""
        while True:
            deadlines = [limit for job in self._busy.values() if (limit := job.deadline()) is not None]
            wait = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
            try:
                return self._inbox.get(timeout=wait)
            except queue.Empty:
                for number, job in self._busy.items():
                    limit = job.deadline()
                    if limit is not None and limit <= time.monotonic():
                        job.late = True
                        self._processes[number].kill()

    def _hand_out(self) -> None:
        """Give every worker something to do; start those that are missing."""
        while len(self._busy) < self.workers and (work := self.take()) is not None:
            number = self._idle.pop() if self._idle else self._start()
            self._busy[number] = Job(work)
            send(self._processes[number], work.to_json())

    def _start(self) -> int:
        """Start a worker; its number."""
        number = len(self._processes)
        process = subprocess.Popen(
            [sys.executable, "-m", "heatcheck.run.executors.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, WORKER: str(number)},
        )
        self._processes.append(process)
        listener = threading.Thread(target=_listen, args=(number, process, self._inbox), daemon=True)
        self._listeners.append(listener)
        listener.start()
        return number

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


def after_death(job: Job, deaths: int, ended: str) -> Work:
    """The work to try next: the same, then cell by cell, then without the cell that ended its process."""
    work = job.work
    if not work.alone:
        return replace(work, alone=True) if job.late or (job.cell is not None and deaths >= TOGETHER) else work
    if job.cell is None:
        return work
    limit = f"failed: took longer than {work.timeout:g} s; raise --timeout" if job.late and work.timeout else None
    culprit = FailedCell(job.cell, limit or f"failed: the process ended while it was computed ({ended})")
    return replace(work, failed=(*work.failed, culprit))


def how_it_ended(code: int) -> str:
    """A process's exit code in words.

    >>> how_it_ended(-11), how_it_ended(7)
    ('SIGSEGV', 'exit code 7')
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
    return f"{name}; was memory short?" if name == "SIGKILL" else name


def send(process: subprocess.Popen[str], line: str) -> None:
    """One JSON line to a worker; a dead one is noticed by its listener."""
    if process.stdin is None:
        return
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except (BrokenPipeError, OSError):
        return


def _listen(number: int, process: subprocess.Popen[str], inbox: Inbox) -> None:
    if process.stdout is not None:
        with process.stdout:
            for line in process.stdout:
                if line.startswith("{"):
                    inbox.put((number, json.loads(line)))
    inbox.put((number, None))
