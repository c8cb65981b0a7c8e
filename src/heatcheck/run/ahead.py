"""Reads and encodes the samples that come next while the model computes, so that an accelerator does not wait for a picture.

One thread is enough: decoders release Python's lock, and the samples of one chunk are read in a fraction of the time
that the chunk before it takes. At most one chunk is held.
"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heatcheck.core.types import Inputs, Sample
from heatcheck.models.base import Model
from heatcheck.run.work import SampleRef


class Encoded(NamedTuple):
    """A sample as the model reads it, and what a right map would show on the model's sites."""

    x: Inputs
    reference: Mapping[str, Any]


def encoded(model: Model, sample: Sample) -> Encoded:
    """Decode a sample and make the model's input of it."""
    x = model.encode(sample)
    return Encoded(x, model.references(sample, x))


@dataclass
class Ahead:
    """The samples of the next chunk, as far as they are read."""

    _reader: ThreadPoolExecutor | None = None
    _coming: dict[tuple[str, str], Future[Encoded]] = field(default_factory=dict)

    def begin(self, model: Model, refs: Iterable[SampleRef], read: Callable[[SampleRef], Sample]) -> None:
        """Read these samples in the background; what was read before and not taken is forgotten."""
        for waiting in self._coming.values():
            waiting.cancel()
        reader = self._reader = self._reader or ThreadPoolExecutor(1, thread_name_prefix="heatcheck-reader")
        self._coming = {
            (model.identity, ref.digest): reader.submit(lambda ref=ref: encoded(model, read(ref))) for ref in refs
        }

    def take(self, model: Model, sample: Sample) -> Encoded:
        """A sample that was read ahead; where it was not, or that failed, it is read now."""
        coming = self._coming.pop((model.identity, sample.digest), None)
        if coming is not None and not coming.cancel():
            with suppress(Exception):  # what is wrong with a sample is found again by whoever reads it now
                return coming.result()
        return encoded(model, sample)
