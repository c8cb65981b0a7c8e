"""Which of the first samples a model answers in time, found out in a process that can be stopped."""

from collections.abc import Sequence

import torch

from heatcheck.core import catalogue
from heatcheck.core.types import HeatcheckError, Sample
from heatcheck.models.base import Model
from heatcheck.probe.numerics import Numerics
from heatcheck.run.resources import Resources
from heatcheck.run.store import Store
from heatcheck.run.watch import Watch
from heatcheck.run.work import Cell, SampleRef, Sources, Work

LOOK = 6
"""Samples that are tried; the rehearsal needs fewer."""


def answer_samples(work: Work, resources: Resources, watch: Watch) -> None:
    """Ask a work's model about each sample once, and keep nothing; what it raises, the sample's status tells later."""
    model = resources.grid(work).model
    given_up = {failed.cell for failed in work.failed}
    for sample in resources.samples(work):
        cell = Cell(sample.digest)
        if cell in given_up:
            continue
        watch.begin(cell)
        try:
            with torch.inference_mode():
                model.logits(model.encode(sample))
        except Exception:  # noqa: S112 - reported when the sample's chunk is run
            continue


def answered(
    label: str, model: Model, samples: Sequence[Sample], sources: Sources, store: Store, timeout: float
) -> list[Sample]:
    """Those of the first samples on which the model neither hangs nor ends its process.

    Raises:
        HeatcheckError: there are none.
    """
    first = [s for s in samples if not s.problem][:LOOK]
    work = Work(
        model=label,
        identity=model.identity,
        samples=tuple(SampleRef(s.name, s.digest, s.label) for s in first),
        methods=(),
        metrics=(),
        numerics=Numerics(rounding=model.rounding),
        out=str(store.folder),
        sources=sources,
        timeout=timeout,
        alone=True,
        scout=True,
    )
    with catalogue.component_class("executor", "processes")(Resources(), store, lambda n: None, 1) as executor:
        executor.submit(work)
        (receipt,) = executor.receipts()
    reasons = {failed.cell.sample: failed.status for failed in receipt.work.failed}
    good = [s for s in first if s.digest not in reasons]
    if first and not good:
        why = reasons[first[0].digest].removeprefix("failed: ")
        raise HeatcheckError(f"model {label!r} answered none of the first {len(first)} samples: {why}")
    return good
