"""Worker processes that take works as JSON lines: no pickle, no shared memory, safe to kill."""

import json
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from heatcheck.run.executors.base import Executor, Receipt, executor
from heatcheck.run.work import Work

TRIES = 3
Inbox = queue.Queue[tuple[int, dict[str, Any] | None]]


@executor("processes", workers=True)
class Processes(Executor):
    """Single-threaded worker processes over one run folder; each loads what its works name, once."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._processes: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []

    def receipts(self) -> Iterator[Receipt]:
        """Hand out works and yield what becomes of them; one whose worker dies is tried again elsewhere."""
        inbox: Inbox = queue.Queue()
        busy: dict[int, Work] = {}
        deaths: Counter[tuple[Any, ...]] = Counter()

        def hand_out(number: int) -> None:
            if self.waiting:
                busy[number] = self.waiting.pop(0)
                send(self._processes[number], busy[number].to_json())

        for _ in range(self.workers):
            hand_out(self._start(inbox))
        while busy:
            number, message = inbox.get()
            if message is None:
                work = busy.pop(number, None)
                if work is None:
                    continue
                deaths[work.model, work.samples] += 1
                code = self._processes[number].wait()
                if deaths[work.model, work.samples] >= TRIES:
                    yield Receipt(work, problem=f"its worker died {TRIES} times (exit code {code})")
                else:
                    self.waiting.insert(0, work)
                if self.waiting:
                    hand_out(self._start(inbox))
            elif "tick" in message:
                self.tick(message["tick"])
            else:
                yield Receipt(busy.pop(number), message.get("spent", {}), message.get("problem"))
                hand_out(number)

    def _start(self, inbox: Inbox) -> int:
        """Start a worker; its number."""
        process = subprocess.Popen(
            [sys.executable, "-m", "heatcheck.run.executors.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        number = len(self._processes)
        self._processes.append(process)
        listener = threading.Thread(target=_listen, args=(number, process, inbox), daemon=True)
        self._listeners.append(listener)
        listener.start()
        return number

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        for listener in self._listeners:
            listener.join()


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
