"""Metrics that compare models: a second phase over stored maps, one sample at a time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from heatcheck.engine.numerics import Numerics
from heatcheck.engine.probe import Probe, Spent
from heatcheck.engine.store import Group, MapColumn, ScoreColumn, Store, score_row
from heatcheck.engine.task import CHUNK, Named, all_scores, as_attribution, explain, first_line, record_for, stored_map
from heatcheck.metrics.base import Maps
from heatcheck.types import Batch, NotApplicable, Sample, Streams

if TYPE_CHECKING:
    from heatcheck.engine.run import Part


def score(label: str, parts: "Sequence[Part]", samples: Sequence[Sample], store: Store, spent: Spent) -> None:
    """Score every sample that all models could read, and file the scores under each model."""
    common = set.intersection(*({m.label for m in p.work.methods} for p in parts))
    pending: list[Group] = []
    for sample in samples:
        pending += score_sample(label, parts, sample, common, store, spent)
        if len(pending) >= CHUNK * len(parts):
            store.commit(pending)
            pending = []
    if pending:
        store.commit(pending)


def score_sample(
    label: str, parts: "Sequence[Part]", sample: Sample, common: set[str], store: Store, spent: Spent
) -> list[Group]:
    """The scores of one sample on every model; nothing if they are stored, or a model could not read it."""
    metric = {p.label: next(m for m in p.across if m.label == label) for p in parts}
    records = {}
    for part in parts:
        known = store.samples.get((part.model.identity, sample.digest))
        if sample.problem or known is None or known.get("problem"):
            return []
        records[part.label] = record_for(sample, known, part.work)
    methods = {p.label: [m for m in p.work.methods if m.label in common] for p in parts}
    if all(
        score_row(records[p.label])
        in store.scores.get((p.model.identity, p.work.seed, m.digest, metric[p.label].digest), {})
        for p in parts
        for m in methods[p.label]
    ):
        return []
    batches, columns = {}, {}
    for part in parts:
        record = records[part.label]
        batches[part.label] = Batch(
            x=part.model.encode(sample),
            target=torch.tensor([record["target"]]),
            label=torch.tensor([-1 if record["label"] is None else record["label"]]),
            streams=Streams(part.work.seed, (sample.digest,)),
        )
        columns[part.label] = [maps_of(m, part, batches[part.label], record, store, spent) for m in methods[part.label]]
    maps = {
        p.label: Maps([as_attribution(c, batches[p.label]) for c in columns[p.label]], p.model.domain, batches[p.label])
        for p in parts
    }
    unit = metric[parts[0].label].unit
    try:
        found = unit.across(batches, maps)
    except NotApplicable as reason:
        found = {p.label: all_scores(len(common), 1, f"skipped: {reason}") for p in parts}
    except Exception as problem:
        found = {p.label: all_scores(len(common), 1, f"failed: {first_line(problem)}") for p in parts}
    return [
        Group(
            part.model.identity,
            part.work.seed,
            [records[part.label]],
            scores=[
                ScoreColumn(
                    m.digest, metric[part.label].digest, found[part.label].value[i], list(found[part.label].status[i])
                )
                for i, m in enumerate(methods[part.label])
            ],
        )
        for part in parts
    ]


def maps_of(
    method: Named, part: "Part", batch: Batch, record: dict[str, object], store: Store, spent: Spent
) -> MapColumn:
    """A method's map of one sample: stored, or explained again where maps are not kept."""
    held = stored_map(store, part.model.identity, part.work.seed, method, [record])
    numerics: Numerics = part.numerics
    return explain(method, Probe(part.model, numerics, spent=spent), batch, held)[0]
