"""Executors compute works: they take them, yield a receipt for each, and can be cancelled."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from heatcheck.run.resources import Resources
from heatcheck.run.runtime import Runtime
from heatcheck.run.store import Store
from heatcheck.run.work import Work

T = TypeVar("T", bound=type)


def executor(id: str, *, workers: bool = False) -> Callable[[T], T]:
    """Declare an executor, which the catalogue then finds in this folder.

    Args:
        id: its name.
        workers: whether it computes several works at a time.
    """

    def decorate(cls: T) -> T:
        cls.id, cls.facts = id, {"workers": workers}  # type: ignore[attr-defined]
        return cls

    return decorate


@dataclass(frozen=True)
class Receipt:
    """A work that is finished, or that could not be.

    Args:
        work: which one.
        spent: passes and time, as `Spent` names them.
        problem: why it could not be computed; None if it could. What it lacks stays missing.
    """

    work: Work
    spent: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


class Executor(ABC):
    """Computes works and writes what they give into the run's folder.

    Args:
        resources: what works name, as far as it is loaded in this process.
        store: the run's folder.
        tick: called with the sites that passes were made over whenever some were, as in `Watch`.
        workers: how many works to compute at a time; an executor may have fewer, or, where it is 0, decide itself.
        runtime: what else a user said about how works are computed.
        note: called with what is worth a line on the terminal.

    A work is taken with `take`, right before it is begun: `admit` may then cut it down to what no other process does, or
    withhold it. Without an `admit`, every work is begun as it was submitted.
    """

    def __init__(
        self,
        resources: Resources,
        store: Store,
        tick: Callable[[int], None] = lambda n: None,
        workers: int = 1,
        runtime: Runtime | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.resources, self.store, self.tick, self.workers = resources, store, tick, workers
        self.runtime, self.note = runtime or Runtime(), note
        self.waiting: list[Work] = []
        self.admit: Callable[[Work], Work | None] | None = None

    def submit(self, work: Work) -> None:
        """Accept a work; it is begun when receipts are asked for."""
        self.waiting.append(work)

    def take(self) -> Work | None:
        """The next work to begin; None if there is none."""
        while self.waiting:
            work = self.waiting.pop(0)
            admitted = work if self.admit is None else self.admit(work)
            if admitted is not None:
                soon = self.waiting[max(0, self.workers - 1) :][:1]  # the others take what lies between
                same = [one for one in soon if one.model == work.model]
                return replace(admitted, following=same[0].samples if same else ())
        return None

    @abstractmethod
    def receipts(self) -> Iterator[Receipt]:
        """A receipt for each work that is begun, as they finish. More works may be submitted when it has ended."""

    def cancel(self) -> None:
        """Begin no other work; those under way are finished."""
        self.waiting.clear()

    def close(self) -> None:
        """Let go of everything; whatever is still under way is stopped."""
        self.waiting.clear()

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
