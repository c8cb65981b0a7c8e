"""What of a grid a store holds, and what it lacks; under which target and context a sample's cells are filed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heatcheck.core.identity import digest
from heatcheck.core.types import Sample
from heatcheck.data.references import plain
from heatcheck.run.grid import Labelled, ModelGrid
from heatcheck.run.packing import map_row, score_row
from heatcheck.run.store import Store


def context_of(sample: Sample) -> str:
    """Digest of what metrics compare with: the label and the references."""
    return digest({"label": sample.label, "reference": plain(sample.reference)})[:16]


def choose_target(policy: str | int, record: Mapping[str, Any]) -> int | None:
    """The class to explain; None where the policy has no answer for the sample."""
    if policy == "predicted":
        return int(record["top"][0])
    if policy == "top2":
        return int(record["top"][1]) if len(record["top"]) > 1 else None
    if policy == "label":
        label: int | None = record["label"]
        return label
    return policy if isinstance(policy, int) else 0  # a number made of the output is all that such a model gives


def done(store: Store, sample: Sample, grid: ModelGrid) -> bool:
    """Whether every cell of a sample is stored already; failed ones are not, so that they are tried again."""
    known = store.sample(grid.model.identity, sample.digest)
    if known is not None:
        row = record_for(sample, known, grid)
        if row["target"] is not None and not any(lacks_cell(store, grid, m, row) for m in grid.methods):
            return True
    problem = store.problem(grid.model.identity, sample.digest, context_of(sample), grid.target)
    return problem is not None and not problem.startswith("failed")


def tried(store: Store, sample: Sample, grid: ModelGrid) -> bool:
    """Whether every cell of a sample has been computed, or could not be."""
    known = store.sample(grid.model.identity, sample.digest)
    if known is not None:
        row = record_for(sample, known, grid)
        made = (store.made_map(grid.model.identity, grid.seed, m.digest, row) for m in grid.methods)
        scores = (score_status(store, grid, m, k, row) for m in grid.methods for k in grid.metrics)
        if all(made) and all(status is not None for status in scores):
            return True
    return store.problem(grid.model.identity, sample.digest, context_of(sample), grid.target) is not None


def lacking(store: Store, samples: Sequence[Sample], grid: ModelGrid) -> list[Sample]:
    """The samples of which some cell is not stored; the same as asking `done` for each, for all of them at once."""
    able = [sample for sample in samples if not sample.problem]
    rows = records_for(store, able, grid)
    whole = complete(store, grid, rows)
    return [s for s, there in zip(able, whole, strict=True) if not there and not done(store, s, grid)]


def records_for(store: Store, samples: Sequence[Sample], grid: ModelGrid) -> list[dict[str, Any] | None]:
    """The stored record of each sample under its label and the grid's target, if there is one."""
    known = store.index.samples_of(grid.model.identity)
    return [record_for(s, known[s.digest], grid) if s.digest in known else None for s in samples]


def complete(store: Store, grid: ModelGrid, rows: Sequence[Mapping[str, Any] | None]) -> np.ndarray:
    """For which samples every map and score is stored, and none failed."""
    there = np.array([row is not None and row["target"] is not None for row in rows], dtype=bool)
    there &= stored_scores(store, grid, rows) == len(grid.methods) * len(grid.metrics)
    kept = np.array([row is not None and grid.keeps_maps(row["digest"]) for row in rows], dtype=bool)
    for kind, mine in (("maps", kept), ("costs", ~kept)):
        if (there & mine).any():
            there &= ~mine | (count_stored(store, grid, rows, kind) == len(grid.methods))
    return there


def stored_scores(store: Store, grid: ModelGrid, rows: Sequence[Mapping[str, Any] | None]) -> np.ndarray:
    """How many scores of each sample are stored and not computed again."""
    return count_stored(store, grid, rows, "scores")


def count_stored(store: Store, grid: ModelGrid, rows: Sequence[Mapping[str, Any] | None], kind: str) -> np.ndarray:
    """How many cells of a kind each sample has that did not fail."""
    key_of = score_row if kind == "scores" else map_row
    keys = [key_of(row) if row is not None else None for row in rows]
    places = {key: i for i, key in enumerate(dict.fromkeys(key for key in keys if key is not None))}
    methods, metrics = [m.digest for m in grid.methods], [m.digest for m in grid.metrics]
    counts = store.index.count(kind, grid.model.identity, grid.seed, list(places), methods, metrics)
    return np.array([0 if key is None else counts[places[key]] for key in keys], dtype=np.int64)


def failed_cells(store: Store, sample: Sample, grid: ModelGrid) -> int:
    """How many cells of a sample have failed in an earlier run, and in no later one succeeded."""
    known = store.sample(grid.model.identity, sample.digest)
    if known is not None:
        row = record_for(sample, known, grid)
        stored = [score_status(store, grid, m, k, row) for m in grid.methods for k in grid.metrics]
        if any(stored):
            return sum(status is not None and status.startswith("failed") for status in stored)
    problem = store.problem(grid.model.identity, sample.digest, context_of(sample), grid.target)
    return len(grid.methods) * len(grid.metrics) if problem is not None and problem.startswith("failed") else 0


def lacks_map(store: Store, grid: ModelGrid, method: Labelled, row: Mapping[str, Any]) -> bool:
    """Whether a map is not stored; where maps are not kept, whether it was never made."""
    there = store.has_map if grid.keeps_maps(row["digest"]) else store.made_map
    return not there(grid.model.identity, grid.seed, method.digest, row)


def score_status(
    store: Store, grid: ModelGrid, method: Labelled, metric: Labelled, row: Mapping[str, Any]
) -> str | None:
    """The status of a stored score; None if there is none."""
    return store.status(grid.model.identity, grid.seed, method.digest, metric.digest, row)


def lacks_score(store: Store, grid: ModelGrid, method: Labelled, metric: Labelled, row: Mapping[str, Any]) -> bool:
    """Whether a score is not stored, or has failed."""
    status = score_status(store, grid, method, metric, row)
    return status is None or status.startswith("failed")


def lacks_cell(store: Store, grid: ModelGrid, method: Labelled, row: Mapping[str, Any]) -> bool:
    """Whether a sample lacks a method's map or one of its scores."""
    scores = any(lacks_score(store, grid, method, metric, row) for metric in grid.metrics)
    return scores or lacks_map(store, grid, method, row)


def record_for(sample: Sample, known: Mapping[str, Any], grid: ModelGrid) -> dict[str, Any]:
    """The stored record of a sample under its label and the grid's target."""
    record = {
        "name": sample.name,
        "digest": sample.digest,
        "label": sample.label,
        "context": context_of(sample),
        "top": known["top"],
        "prob": known["prob"],
    }
    return {**record, "target": choose_target(grid.target, record)}
