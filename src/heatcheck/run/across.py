"""Metrics that compare models: a second phase over stored maps, one sample at a time.

A method's maps are compared between the models that have the method and could read the sample. Scores are filed under
the set of models in the run: another model is another question, and what was scored without it stays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from heatcheck.core.types import Batch, NotApplicable, Sample, Scores, Streams
from heatcheck.metrics.base import Maps
from heatcheck.probe.calls import Spent
from heatcheck.probe.probe import Probe
from heatcheck.run.grid import Labelled
from heatcheck.run.isolation import all_scores, first_line
from heatcheck.run.lacking import context_of, done, record_for
from heatcheck.run.packing import MapColumn, SampleGroup, ScoreColumn
from heatcheck.run.setup import Part
from heatcheck.run.store import Store
from heatcheck.run.task import CHUNK, explain, stored_map


@dataclass(frozen=True)
class Reader:
    """A model that could read a sample, and what is stored about it."""

    part: Part
    metric: Labelled
    sample: Sample
    record: dict[str, Any]
    store: Store
    spent: Spent

    @cached_property
    def methods(self) -> dict[str, Labelled]:
        """The model's methods by label."""
        return {m.label: m for m in self.part.grid.methods}

    @cached_property
    def batch(self) -> Batch:
        """The sample alone, as the model sees it."""
        x = self.part.grid.model.encode(self.sample)
        return Batch(
            x=x,
            target=torch.tensor([self.record["target"]]),
            label=torch.tensor([-1 if self.record["label"] is None else self.record["label"]]),
            streams=Streams(self.part.grid.seed, (self.sample.digest,)),
            references=(self.part.grid.model.references(self.sample, x),),
        )

    def key(self, method: str) -> tuple[str, int, str]:
        """What a method's maps are filed under."""
        return self.part.grid.model.identity, self.part.grid.seed, self.methods[method].digest

    def explained(self, method: str) -> bool:
        """Whether the first phase has come to this map, or sees nothing to do for the sample."""
        return self.store.made_map(*self.key(method), self.record) or done(self.store, self.sample, self.part.grid)

    def scored(self, method: str) -> bool:
        """Whether the score is stored; one that failed is tried again."""
        status = self.store.status(*self.key(method), self.metric.digest, self.record)
        return status is not None and not status.startswith("failed")

    def column(self, method: str) -> MapColumn:
        """The map: stored, or explained again, from stored answers, where maps are not kept."""
        grid = self.part.grid
        stored = stored_map(self.store, grid, self.methods[method], self.record, self.batch.x)
        memo = self.store.answers(grid.model.identity, [self.sample.digest]) if stored is None else {}
        probe = Probe(grid.model, grid.numerics, memo=memo, spent=self.spent)
        return explain(self.methods[method], probe, self.batch, stored)[0]


def score(label: str, parts: Sequence[Part], samples: Sequence[Sample], store: Store, spent: Spent) -> None:
    """Score what the first phase has explained and no run has compared, and file the scores under each model."""
    pending: list[SampleGroup] = []
    for sample in samples:
        pending += score_sample(label, parts, sample, store, spent)
        if len(pending) >= CHUNK * len(parts):
            store.commit(pending)
            pending = []
    if pending:
        store.commit(pending)


def score_sample(label: str, parts: Sequence[Part], sample: Sample, store: Store, spent: Spent) -> list[SampleGroup]:
    """The scores of one sample that are missing, a group for each model that has some."""
    readers = readers_of(label, parts, sample, store, spent)
    found: dict[str, list[ScoreColumn]] = {}
    for method in dict.fromkeys(m for r in readers for m in r.methods):
        having = [r for r in readers if method in r.methods]
        if all(r.explained(method) for r in having) and not all(r.scored(method) for r in having):
            for reader, column in compare(method, having):
                if not reader.scored(method):
                    found.setdefault(reader.part.label, []).append(column)
    return [
        SampleGroup(r.part.grid.model.identity, r.part.grid.seed, [r.record], scores=found[r.part.label])
        for r in readers
        if r.part.label in found
    ]


def readers_of(label: str, parts: Sequence[Part], sample: Sample, store: Store, spent: Spent) -> list[Reader]:
    """The models that could read a sample; none while one of them has not tried."""
    readers = []
    for part in parts:
        metric = next((m for m in part.across if m.label == label), None)
        identity = part.grid.model.identity
        known = store.sample(identity, sample.digest)
        if sample.problem:
            return []
        if known is None:
            if store.problem(identity, sample.digest, context_of(sample), part.grid.target) is None:
                return []
            continue
        if metric is None:
            continue
        record = record_for(sample, known, part.grid)
        if record["target"] is not None:
            readers.append(Reader(part, metric, sample, record, store, spent))
    return readers


def compare(method: str, readers: Sequence[Reader]) -> Iterator[tuple[Reader, ScoreColumn]]:
    """Score one method's maps of one sample, each model's with those of the others beside it."""
    columns = [r.column(method) for r in readers]
    batches = {r.part.label: r.batch for r in readers}
    maps = {
        r.part.label: Maps([column.maps], r.part.grid.model.domain, r.batch)
        for r, column in zip(readers, columns, strict=True)
    }
    try:
        scores: dict[str, Scores] = readers[0].metric.component.across(batches, maps)
    except NotApplicable as reason:
        scores = {model: all_scores(1, 1, f"skipped: {reason}") for model in maps}
    except Exception as problem:
        scores = {model: all_scores(1, 1, f"failed: {first_line(problem)}") for model in maps}
    for reader, column in zip(readers, columns, strict=True):
        found = scores[reader.part.label]
        curve = None if found.curve is None else found.curve[0]
        status = list(found.status[0])
        yield reader, ScoreColumn(column.method, reader.metric.digest, found.value[0], status, curve, found.share)
