"""One work after another, in this process."""

from collections.abc import Iterator
from dataclasses import asdict

from heatcheck.run.executors.base import Executor, Receipt, executor
from heatcheck.run.task import run_work
from heatcheck.run.watch import Watch


@executor("here")
class Here(Executor):
    """Computes works one after another in this process, with the models and data that it has."""

    def receipts(self) -> Iterator[Receipt]:
        while (work := self.take()) is not None:
            yield Receipt(work, asdict(run_work(work, self.resources, self.store, Watch(self.tick))))
