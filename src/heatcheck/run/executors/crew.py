"""What executors with workers in other processes have in common: who computes what, and what becomes of it if one dies."""

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from heatcheck.run.executors.base import Executor, Receipt
from heatcheck.run.work import Cell, FailedCell, Work

TRIES = 3
"""Deaths of workers after which a work is given up, where no cell can be blamed."""
TOGETHER = 2
"""Deaths after which the cells of a work are computed one by one."""
GRACE = 3.0
"""Seconds that a worker has to save what it has finished when it is told to stop."""
Message = dict[str, Any]


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


@dataclass(frozen=True)
class Death:
    """How a worker ended.

    Args:
        how: in words.
        blame: whether what it computed may be the reason; not where a whole machine was lost.
    """

    how: str
    blame: bool = True


class Crew(Executor):
    """Workers in other processes, each with one work at a time; a work whose worker dies is tried again elsewhere.

    A worker's messages: `ready` once it can take a work; while it computes, `tick`, `begin` and `failed` as in `Watch`; at
    the end `spent`, or `problem`. None says that it is dead.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.busy: dict[int, Job] = {}
        self.idle: list[int] = []
        self.alive: set[int] = set()

    @abstractmethod
    def start(self) -> int:
        """Start one more worker; its number."""

    @abstractmethod
    def send(self, number: int, work: Work) -> None:
        """Give a worker a work; a dead one is noticed by its messages."""

    @abstractmethod
    def receive(self, wait: float | None) -> tuple[int, Message | None] | None:
        """The next message and whose it is; None if there is none for so many seconds."""

    @abstractmethod
    def kill(self, number: int) -> None:
        """End a worker at once."""

    @abstractmethod
    def death(self, number: int) -> Death:
        """How a worker ended that is dead."""

    def died_idle(self, number: int) -> None:
        """A worker without a work is dead."""

    def other(self, number: int, message: Message) -> None:
        """A message that not all kinds of workers send."""

    def receipts(self) -> Iterator[Receipt]:
        """Hand out works and yield what becomes of them."""
        deaths: Counter[tuple[Any, ...]] = Counter()
        self._hand_out()
        while self.busy or self.waiting:
            number, message = self._next()
            if message is None:
                self.alive.discard(number)
                self.idle = [other for other in self.idle if other != number]
                job = self.busy.pop(number, None)
                if job is None:
                    self.died_idle(number)
                    self._hand_out()
                    continue
                key = job.work.model, job.work.samples
                deaths[key] += 1
                death = self.death(number)
                known = {failed.cell for failed in job.work.failed}
                blamed = job.cell is not None and job.cell not in known and death.blame
                if not blamed and deaths[key] >= TRIES:
                    yield Receipt(job.work, problem=f"its worker died {deaths[key]} times ({death.how})")
                else:
                    self.waiting.insert(0, after_death(job, deaths[key], death) if death.blame else job.work)
                self._hand_out()
            elif "ready" in message:
                self.idle.append(number)
                self._hand_out()
            elif "tick" in message:
                self.tick(message["tick"])
            elif "begin" in message:
                self.busy[number].cell, self.busy[number].since = Cell(*message["begin"]), time.monotonic()
            elif "failed" in message:
                cell, status = message["failed"]
                job = self.busy[number]
                job.work = replace(job.work, failed=(*job.work.failed, FailedCell(Cell(*cell), status)))
            elif "spent" in message or "problem" in message:
                self.idle.append(number)
                yield Receipt(self.busy.pop(number).work, message.get("spent", {}), message.get("problem"))
                self._hand_out()
            else:
                self.other(number, message)

    def _next(self) -> tuple[int, Message | None]:
        """The next message; a worker whose cell takes too long is killed, and its death is the message."""
        while True:
            deadlines = [limit for job in self.busy.values() if (limit := job.deadline()) is not None]
            found = self.receive(max(0.0, min(deadlines) - time.monotonic()) if deadlines else None)
            if found is not None:
                return found
            for number, job in self.busy.items():
                limit = job.deadline()
                if limit is not None and limit <= time.monotonic():
                    job.late = True
                    self.kill(number)

    def _hand_out(self) -> None:
        """Give every worker that is ready something to do; start those that are missing."""
        while self.idle and (work := self.take()) is not None:
            number = self.idle.pop()
            self.busy[number] = Job(work)
            self.send(number, work)
        while len(self.alive) < min(self.workers, len(self.busy) + len(self.waiting)):
            self.alive.add(self.start())


def after_death(job: Job, deaths: int, death: Death) -> Work:
    """The work to try next: the same, then cell by cell, then without the cell that ended its process."""
    work = job.work
    if not work.alone:
        return replace(work, alone=True) if job.late or (job.cell is not None and deaths >= TOGETHER) else work
    if job.cell is None:
        return work
    limit = f"failed: took longer than {work.timeout:g} s; raise --timeout" if job.late and work.timeout else None
    culprit = FailedCell(job.cell, limit or f"failed: the process ended while it was computed ({death.how})")
    return replace(work, failed=(*work.failed, culprit))
