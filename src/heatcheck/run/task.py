"""The work on one chunk: encode, ask, explain, score. The same function runs in process and in workers."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heatcheck.core.identity import digest
from heatcheck.core.plugins import line_of
from heatcheck.core.types import OK, Attribution, Batch, Inputs, NotApplicable, Sample, Scores, Streams
from heatcheck.data.references import plain
from heatcheck.methods.base import Method
from heatcheck.metrics.base import Maps, Metric
from heatcheck.probe.calls import Spent
from heatcheck.probe.probe import Probe
from heatcheck.run.grid import Labelled, ModelGrid
from heatcheck.run.resources import Resources
from heatcheck.run.store import MapColumn, SampleGroup, ScoreColumn, Store, map_row, score_row
from heatcheck.run.work import Work

CHUNK = 8


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


@dataclass
class Chunk:
    """Groups that were computed, and what they cost."""

    groups: list[SampleGroup] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)

    @property
    def empty(self) -> bool:
        """Whether nothing was missing."""
        return not self.groups


class Member(NamedTuple):
    """A sample, as the model reads it, with what a right map would show on the model's sites."""

    sample: Sample
    x: Inputs
    reference: Mapping[str, Any]


def run_work(work: Work, resources: Resources, store: Store, tick: Callable[[int], None]) -> Spent:
    """Compute what a work lacks, and write it: the task of every executor."""
    chunk = run_chunk(resources.grid(work), resources.samples(work), store, tick)
    if not chunk.empty:
        store.commit(chunk.groups)
    return chunk.spent


def run_chunk(
    grid: ModelGrid,
    samples: Sequence[Sample],
    store: Store | None = None,
    tick: Callable[[int], None] = lambda n: None,
) -> Chunk:
    """Compute what is missing for a handful of samples of one model."""
    chunk = Chunk()
    model = grid.model
    ready: dict[Any, list[Member]] = {}
    for sample in samples:
        if sample.problem:
            continue
        if store is not None and done(store, sample, grid):
            continue
        try:
            x = model.encode(sample)
            member = Member(sample, x, model.references(sample, x))
        except Exception as problem:
            chunk.groups.append(problem_group(grid, sample, f"failed: {first_line(problem)}"))
            continue
        ready.setdefault((x.shape_key(), grid.keeps_maps(sample.digest)), []).append(member)
    for members in ready.values():
        chunk.groups += run_group(grid, members, store, tick, chunk.spent)
    return chunk


def done(store: Store, sample: Sample, grid: ModelGrid) -> bool:
    """Whether every cell of a sample is stored already; failed ones are not, so that they are tried again."""
    model = grid.model.identity
    record = store.samples.get((model, sample.digest))
    if record is None:
        return False
    if record.get("problem"):
        return True
    row = record_for(sample, record, grid)
    if row["target"] is None:
        return True
    maps = grid.keeps_maps(sample.digest)
    for m in grid.methods:
        if maps and map_row(row) not in store.maps.get((model, grid.seed, m.digest), {}):
            return False
        for metric in grid.metrics:
            at = store.scores.get((model, grid.seed, m.digest, metric.digest), {}).get(score_row(row))
            if at is None or store.status(at).startswith("failed"):
                return False
    return True


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


def problem_group(grid: ModelGrid, sample: Sample, problem: str) -> SampleGroup:
    """A group that says why its one sample has no results."""
    record = {"name": sample.name, "digest": sample.digest, "label": sample.label, "context": context_of(sample)}
    return SampleGroup(
        grid.model.identity, grid.seed, [{**record, "target": None, "top": [], "prob": [], "problem": problem}]
    )


def first_line(problem: BaseException) -> str:
    """An exception as one line, with the line of the user's own file that raised it."""
    text = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {text[0] if text else ''}".rstrip(": ") + line_of(problem)


def run_group(
    grid: ModelGrid,
    members: list[Member],
    store: Store | None,
    tick: Callable[[int], None],
    spent: Spent,
) -> list[SampleGroup]:
    """Compute what is missing for samples of one shape."""
    model = grid.model
    identity = model.identity
    digests = [m.sample.digest for m in members]
    memo = store.answers(identity, digests) if store is not None else {}
    known = set(memo)
    probe = Probe(model, grid.numerics, memo=memo, tick=tick, spent=spent)
    x = Inputs.cat([m.x for m in members])
    logits = clean_logits(probe, x, [store.clean_logits(identity, d) if store else None for d in digests])
    top = logits.double().softmax(1).topk(min(2, logits.shape[1]), dim=1)
    probs = top.values.tolist() if logits.shape[1] > 1 else [[]] * len(logits)
    records, usable, groups = [], [], []
    for i, (sample, _, _) in enumerate(members):
        record = record_for(sample, {"top": top.indices[i].tolist(), "prob": probs[i]}, grid)
        problem = target_problem(record, grid, logits[i])
        if problem:
            groups.append(problem_group(grid, sample, problem))
        else:
            records.append(record)
            usable.append(i)
    if not usable:
        return groups
    rows = torch.tensor(usable)
    batch = Batch(
        x=x.take(rows),
        target=torch.tensor([r["target"] for r in records]),
        label=torch.tensor([known_label(r, logits.shape[1]) for r in records]),
        streams=Streams(grid.seed, tuple(r["digest"] for r in records)),
        references=tuple(members[i].reference for i in usable),
    )
    probe.remember_clean(batch, logits[rows])
    group = SampleGroup(identity, grid.seed, records, logits=logits[rows])
    columns = [explain(m, probe, batch, stored_map(store, identity, grid.seed, m, records)) for m in grid.methods]
    group.costs = {c.method: cost for c, cost in columns if cost is not None}
    group.maps = [c for c, cost in columns if cost is not None and grid.keeps_maps(records[0]["digest"])]
    group.scores = score_all(probe, batch, grid, [c for c, _ in columns], store, records)
    group.answers = {k: v for k, v in probe.memo.items() if k not in known}
    group.displays = [
        {**model.display(members[i].sample, members[i].x), "sample": members[i].sample.digest}
        for i in usable
        if members[i].sample.digest in grid.gallery
    ]
    group.numerics = {**probe.numerics.record(), "halved": probe.halved}
    return [*groups, group]


def clean_logits(probe: Probe, x: Inputs, stored: list[Tensor | None]) -> Tensor:
    """Logits of the clean inputs, asking only for those that are not stored."""
    missing = [i for i, t in enumerate(stored) if t is None]
    fresh = dict(zip(missing, probe.logits(x.take(torch.tensor(missing))), strict=True)) if missing else {}
    return torch.stack([fresh[i] if t is None else t for i, t in enumerate(stored)])


def target_problem(record: Mapping[str, Any], grid: ModelGrid, logits: Tensor) -> str | None:
    """Why a sample cannot be explained, if it cannot."""
    if not torch.isfinite(logits).all():
        return "failed: the model's output is not finite"
    if record["target"] is None and grid.target == "top2":
        return "failed: target='top2', but the model gives one number per input"
    if record["target"] is None:
        return f"skipped: target={grid.target!r}, but the sample has no label"
    if not 0 <= record["target"] < len(logits):
        if grid.target == "label":
            return f"skipped: target='label', but label {record['label']} is not a class of a model with {len(logits)}"
        return f"failed: target {record['target']} is not a class of a model with {len(logits)}"
    return None


def known_label(record: Mapping[str, Any], classes: int) -> int:
    """The sample's label; -1 if it has none, or one that is no class of the model."""
    label = -1 if record["label"] is None else int(record["label"])
    return label if label < classes else -1


def stored_map(
    store: Store | None, model: str, seed: int, method: Labelled, records: Sequence[Mapping[str, Any]]
) -> MapColumn | None:
    """A method's maps for all samples, if every one of them is stored."""
    if store is None:
        return None
    known = store.maps.get((model, seed, method.digest), {})
    places = [known.get(map_row(dict(r))) for r in records]
    if not places or any(p is None for p in places):
        return None
    found = [p for p in places if p is not None]
    record = store.record(found[0], "maps")
    values = torch.stack([store.tensor(p.file, store.record(p, "maps")["tensor"])[p.row] for p in found])
    status = [store.record(p, "maps")["status"].get(str(p.row), OK) for p in found]
    facts = {k: record[k] for k in ("signed", "output", "interpolation")}
    target = torch.tensor([r["target"] for r in records])
    return MapColumn(method.digest, Attribution(values, target, method.label, status=tuple(status), **facts))


def explain(
    method: Labelled, probe: Probe, batch: Batch, stored: MapColumn | None
) -> tuple[MapColumn, dict[str, float] | None]:
    """A method's maps, from the store or computed now; then with what one of them costs."""
    if stored is not None:
        return stored, None
    before, start = probe.spent.copy(), time.perf_counter()
    maps = isolated(method.component, probe, batch)
    used, n = probe.spent.since(before), len(batch)
    seconds = time.perf_counter() - start + used.shared_seconds(probe.spent)
    cost = {"forwards": used.asked / n, "backwards": used.slopes / n, "seconds": seconds / n}
    return MapColumn(method.digest, replace(maps, method=method.label)), cost


def isolated(method: Method, probe: Probe, batch: Batch) -> Attribution:
    """Explain a batch; if that fails, each sample alone, so that only those fail that must."""
    try:
        return method(probe, batch)
    except NotApplicable as reason:
        return no_maps(probe, batch, f"skipped: {reason}")
    except Exception as problem:
        if len(batch) == 1:
            return no_maps(probe, batch, f"failed: {first_line(problem)}")
    parts = [isolated(method, probe, batch.take([i])) for i in range(len(batch))]
    good = next((p for p in parts if p.status[0] == OK), parts[0])
    values = torch.stack([p.values[0] if p.status[0] == OK else torch.zeros_like(good.values[0]) for p in parts])
    return replace(good, values=values, target=batch.target, status=tuple(p.status[0] for p in parts))


def no_maps(probe: Probe, batch: Batch, status: str) -> Attribution:
    """Placeholders for maps that do not exist."""
    values = torch.zeros(len(batch), *(1 for _ in probe.domain.leaf(batch.x).shape[2:]))
    return Attribution(values, batch.target, status=(status,) * len(batch), interpolation="nearest")


def score_all(
    probe: Probe,
    batch: Batch,
    grid: ModelGrid,
    columns: list[MapColumn],
    store: Store | None,
    records: list[dict[str, Any]],
) -> list[ScoreColumn]:
    """Score every column under every metric, except what is stored. Metrics share one set of maps and its orders."""
    found: list[ScoreColumn] = []
    explainers = {m.digest: m.component for m in grid.methods}
    present = [c for c in columns if OK in c.maps.status]
    maps = Maps([c.maps for c in present], probe.domain, batch, [explainers[c.method] for c in present])

    def stored(column: MapColumn, metric: Labelled) -> bool:
        known = store.scores.get((grid.model.identity, grid.seed, column.method, metric.digest), {}) if store else {}
        places = [known.get(score_row(r)) for r in records]
        return all(at is not None and store and not store.status(at).startswith("failed") for at in places)

    for metric in grid.metrics:
        found += [unscored(c, metric) for c in columns if OK not in c.maps.status]
        missing = [i for i, column in enumerate(present) if not stored(column, metric)]
        if missing:
            scores = isolated_score(metric.component, probe, maps.only(missing))
            found += [score_column(present[i], metric, scores, row) for row, i in enumerate(missing)]
    return found


def score_column(column: MapColumn, metric: Labelled, scores: Scores, row: int) -> ScoreColumn:
    """One method's row of a metric's scores."""
    curve = None if scores.curve is None else scores.curve[row]
    return ScoreColumn(column.method, metric.digest, scores.value[row], list(scores.status[row]), curve, scores.share)


def unscored(column: MapColumn, metric: Labelled) -> ScoreColumn:
    """The scores of a method that has no map for any sample."""
    nothing = torch.full((len(column.maps.status),), torch.nan, dtype=torch.float64)
    return ScoreColumn(column.method, metric.digest, nothing, list(column.maps.status))


def isolated_score(metric: Metric, probe: Probe, maps: Maps) -> Scores:
    """Score a batch; on failure each sample alone, then each method alone, so that only those fail that must."""
    try:
        return metric(probe, maps.batch, maps)
    except NotApplicable as reason:
        return all_scores(len(maps), len(maps.batch), f"skipped: {reason}")
    except Exception as problem:
        if len(maps.batch) == 1 and len(maps) == 1:
            return all_scores(1, 1, f"failed: {first_line(problem)}")
    if len(maps.batch) > 1:
        return join([isolated_score(metric, probe, maps.sample(i)) for i in range(len(maps.batch))], dim=1)
    return join([isolated_score(metric, probe, maps.only([m])) for m in range(len(maps))], dim=0)


def all_scores(m: int, b: int, status: str) -> Scores:
    """No score anywhere, for one reason."""
    return Scores(torch.full((m, b), torch.nan, dtype=torch.float64), ((status,) * b,) * m)


def join(parts: list[Scores], dim: int) -> Scores:
    """Scores of parts, side by side; curves of a part that has none are NaN."""
    value = torch.cat([p.value for p in parts], dim)
    if dim == 0:
        status = tuple(row for p in parts for row in p.status)
    else:
        status = tuple(tuple(s for p in parts for s in p.status[m]) for m in range(len(parts[0].status)))
    good = next((p for p in parts if p.curve is not None), None)
    if good is None or good.curve is None:
        return Scores(value, status)
    k = good.curve.shape[-1]
    curves = [p.curve if p.curve is not None else torch.full((*p.value.shape, k), torch.nan) for p in parts]
    return Scores(value, status, torch.cat([c.double() for c in curves], dim), good.share)
