"""Whether a method can work on a model at all, found out before a run with a handful of passes."""

from collections.abc import Iterator, Sequence

import torch

from heatcheck.core import catalogue
from heatcheck.core.types import Batch, Inputs, NotApplicable, Sample, Streams
from heatcheck.data.documents import no_documents
from heatcheck.methods.base import Method
from heatcheck.models.base import Model
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe
from heatcheck.run.grid import resolve_components

CALLS = 3
"""Calls of the model after which a method counts as able; what is refused later, a sample's status tells."""
TRIED = 3
"""Samples on which a method must be refused before it is skipped for the whole model."""


class _EnoughError(Exception):
    """The method has got as far as it needed to."""


def reason_against(method: Method, model: Model, inputs: Sequence[Inputs]) -> str | None:
    """Why a method cannot explain any of these inputs; None if it can. Methods that need outputs only always can."""
    if not method.uses:
        return None
    reason = None
    for x in inputs:
        reason = _refused(method, model, x)
        if reason is None:
            return None
    return reason


def applicable(model: Model, x: Inputs) -> dict[str, str | None]:
    """Every method there is, with the reason why it does not apply to the model, or None if it does."""
    found: dict[str, str | None] = {}
    for name in catalogue.entries("method"):
        method: Method = catalogue.build("method", name).for_corpus(no_documents)
        (named, skipped) = resolve_components([(name, method)], model)
        found[name] = reason_against(named[0].component, model, [x]) if named else skipped[name]
    return found


def _refused(method: Method, model: Model, x: Inputs) -> str | None:
    calls = 0

    def stop(_passes: int) -> None:
        nonlocal calls
        calls += 1
        if calls == CALLS:
            raise _EnoughError

    one = torch.zeros(1, dtype=torch.long)
    batch = Batch(x.take(one), one, one - 1, Streams(0, ("rehearsal",)), altered=True)
    try:
        method(Probe(model, Numerics(forward=1, backward=1), tick=stop), batch)
    except NotApplicable as refusal:
        return str(refusal)
    except Exception:  # what else goes wrong, a sample's status tells
        return None
    return None


def readable(model: Model, samples: Sequence[Sample]) -> Iterator[Inputs]:
    """Those samples that the model can read, as inputs."""
    for sample in samples:
        if not sample.problem:
            try:
                yield model.encode(sample)
            except Exception:  # noqa: S112 - reported per sample when its chunk is run
                continue
