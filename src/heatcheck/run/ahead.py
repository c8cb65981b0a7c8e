"""Reads and encodes the samples that come next while the model computes, so that an accelerator does not wait for a picture.

One thread finds the samples; loader processes decode them, and where they cannot, the thread does: decoders release
Python's lock. At most one chunk is held.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from heatcheck.core.types import Sample
from heatcheck.models.base import Model
from heatcheck.run.loaders import Encoded, Loaders, encoded
from heatcheck.run.work import SampleRef

Coming = Future[Encoded | Future[Encoded]]
"""What the thread makes of a sample: its encoding, or a loader's promise of it."""


@dataclass
class Ahead:
    """The samples of the next chunk, as far as they are read.

    Args:
        loaders: processes that decode.
    """

    loaders: Loaders = field(default_factory=Loaders)
    _reader: ThreadPoolExecutor | None = None
    _coming: dict[tuple[str, str], Coming] = field(default_factory=dict)

    def begin(self, model: Model, refs: Iterable[SampleRef], read: Callable[[SampleRef], Sample]) -> None:
        """Read these samples in the background; what was read before and not taken is forgotten."""
        for waiting in self._coming.values():
            waiting.cancel()
            waiting.add_done_callback(_forget_promise)
        reader = self._reader = self._reader or ThreadPoolExecutor(1, thread_name_prefix="heatcheck-reader")
        self._coming = {
            (model.identity, ref.digest): reader.submit(lambda ref=ref: self._read(model, read(ref))) for ref in refs
        }

    def take(self, model: Model, sample: Sample) -> Encoded:
        """A sample that was read ahead; where it was not, or that failed, it is read now."""
        coming = self._coming.pop((model.identity, sample.digest), None)
        if coming is not None and not coming.cancel():
            with suppress(Exception):  # what is wrong with a sample is found again by whoever reads it now
                found = coming.result()
                return found.result() if isinstance(found, Future) else found
        return encoded(model, sample)

    def _read(self, model: Model, sample: Sample) -> Encoded | Future[Encoded]:
        promise = self.loaders.read(model, sample)
        return encoded(model, sample) if promise is None else promise


def _forget_promise(coming: Coming) -> None:
    """Have a loader leave out a sample that nobody will take, unless it has begun."""
    if not coming.cancelled() and coming.exception() is None and isinstance(promise := coming.result(), Future):
        promise.cancel()
