"""Worker processes that take chunks as JSON lines: no pickle, no shared memory, safe to kill."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

TRIES = 3


@dataclass
class Event:
    """A chunk that is finished, or that could not be."""

    job: dict[str, Any]
    spent: dict[str, float] = field(default_factory=dict)
    problem: str | None = None


@dataclass
class Pool:
    """Single-threaded worker processes over one run folder.

    Args:
        size: how many.
        hello: what each needs to build models, data and units, as plain data.
    """

    size: int
    hello: dict[str, Any]
    left: int = 0
    _workers: list[subprocess.Popen[str]] = field(default_factory=list)
    _listeners: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.wait()
            if worker.stdin is not None:
                with suppress(OSError):
                    worker.stdin.close()
        for listener in self._listeners:
            listener.join()

    def _start(self, inbox: "queue.Queue[tuple[int, dict[str, Any] | None]]") -> subprocess.Popen[str]:
        worker = subprocess.Popen(
            [sys.executable, "-m", "heatcheck.engine.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        number = len(self._workers)
        self._workers.append(worker)
        send(worker, self.hello)
        listener = threading.Thread(target=_listen, args=(number, worker, inbox), daemon=True)
        self._listeners.append(listener)
        listener.start()
        return worker

    def run(
        self, jobs: list[dict[str, Any]], tick: Callable[[int], None], enough: Callable[[int], bool]
    ) -> Iterator[Event]:
        """Hand out jobs and yield what becomes of them; a job whose worker dies is tried again elsewhere."""
        inbox: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        waiting = [{**job, "tries": 0} for job in jobs]
        busy: dict[int, dict[str, Any]] = {}
        finished = 0

        def hand_out(number: int) -> None:
            if waiting and not enough(finished):
                busy[number] = waiting.pop(0)
                send(self._workers[number], busy[number])

        for _ in range(self.size):
            self._start(inbox)
            hand_out(len(self._workers) - 1)
        while busy:
            number, message = inbox.get()
            if message is None:
                job = busy.pop(number, None)
                if job is None:
                    continue
                job["tries"] += 1
                code = self._workers[number].wait()
                if job["tries"] >= TRIES:
                    finished += 1
                    yield Event(job, problem=f"its worker died {TRIES} times (exit code {code})")
                else:
                    waiting.insert(0, job)
                self._start(inbox)
                hand_out(len(self._workers) - 1)
            elif "tick" in message:
                tick(message["tick"])
            else:
                job = busy.pop(number)
                finished += 1
                yield Event(job, message.get("spent", {}), message.get("problem"))
                hand_out(number)
        self.left = len(waiting)


def send(worker: subprocess.Popen[str], message: dict[str, Any]) -> None:
    """One JSON line to a worker; a dead one is noticed by its listener."""
    if worker.stdin is None:
        return
    try:
        worker.stdin.write(json.dumps(message) + "\n")
        worker.stdin.flush()
    except (BrokenPipeError, OSError):
        return


def _listen(
    number: int, worker: subprocess.Popen[str], inbox: "queue.Queue[tuple[int, dict[str, Any] | None]]"
) -> None:
    if worker.stdout is not None:
        with worker.stdout:
            for line in worker.stdout:
                if line.startswith("{"):
                    inbox.put((number, json.loads(line)))
    inbox.put((number, None))
