"""One work after another, in this process."""

from collections.abc import Iterator
from dataclasses import asdict

from heatcheck.core.types import HeatcheckError
from heatcheck.probe.numerics import DeviceLostError
from heatcheck.run.executors.base import Executor, Receipt, executor
from heatcheck.run.task import run_work
from heatcheck.run.watch import Watch


@executor("here")
class Here(Executor):
    """Computes works one after another in this process, with the models and data that it has."""

    def receipts(self) -> Iterator[Receipt]:
        while (work := self.take()) is not None:
            try:
                spent = run_work(work, self.resources, self.store, Watch(self.tick))
            except DeviceLostError as lost:
                raise HeatcheckError(
                    f"{work.numerics.device} has failed, and this process cannot use it any more: {lost}; what was finished "
                    "is saved, run again to go on, or with --on processes:1, where a new process takes over by itself"
                ) from lost
            yield Receipt(work, asdict(spent))
