"""The work on one chunk: encode, ask, explain, score. The same function runs in process and in workers."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from heatcheck.core.types import OK, Attribution, Batch, Inputs, Sample, Scores, Streams
from heatcheck.metrics.base import Maps
from heatcheck.probe.asks import Shape
from heatcheck.probe.calls import Spent
from heatcheck.probe.numerics import DeviceLostError
from heatcheck.probe.probe import Probe
from heatcheck.run.ahead import Ahead
from heatcheck.run.chunk import Chunk, Cost, Finished
from heatcheck.run.grid import Labelled, ModelGrid
from heatcheck.run.isolation import (
    all_scores,
    first_line,
    isolated,
    isolated_logits,
    isolated_score,
    join_maps,
    no_maps,
)
from heatcheck.run.lacking import context_of, done, lacks_cell, lacks_score, record_for, score_status
from heatcheck.run.pace import PORTION, Pace, now
from heatcheck.run.packing import MapColumn, SampleGroup
from heatcheck.run.resources import Resources
from heatcheck.run.store import Store
from heatcheck.run.watch import Watch
from heatcheck.run.work import Cell, FailedCell, Work

CHUNK = 8


class Member(NamedTuple):
    """A sample, as the model reads it, with what a right map would show on the model's sites."""

    sample: Sample
    x: Inputs
    reference: Mapping[str, Any]


def run_work(work: Work, resources: Resources, store: Store, watch: Watch) -> Spent:
    """Compute what a work lacks, and write it: the task of every executor."""
    start, chunk = now(), Chunk(store.commit)
    portion = PORTION if work.timeout is None else min(PORTION, work.timeout / 2)
    pace = Pace(resources.seconds, portion, work.alone)
    try:
        grid, samples = resources.grid(work), resources.samples(work)
        run_chunk(
            grid, samples, store, watch, chunk, pace, work.failed, resources.ahead, lambda: resources.look_ahead(work)
        )
    except DeviceLostError:
        raise  # what was not saved is on the device
    except BaseException:
        chunk.save()
        raise
    chunk.save()
    chunk.spent.elapsed += now() - start
    return chunk.spent


def run_chunk(
    grid: ModelGrid,
    samples: Sequence[Sample],
    store: Store | None = None,
    watch: Watch | None = None,
    chunk: Chunk | None = None,
    pace: Pace | None = None,
    failed: Sequence[FailedCell] = (),
    ahead: Ahead | None = None,
    loaded: Callable[[], None] = lambda: None,
) -> Chunk:
    """Compute what is missing for a handful of samples of one model.

    Args:
        grid: the model, methods and metrics.
        samples: the samples.
        store: what is known already.
        watch: who is told what is done.
        chunk: takes what is finished.
        pace: how much is computed at a time.
        failed: cells that have failed already and are not tried.
        ahead: samples that were read before.
        loaded: called when all samples are read.
    """
    start, ahead = now(), ahead or Ahead()
    session = Session(grid, store, watch or Watch(), chunk or Chunk(), pace or Pace(), dict(failed))
    ready: dict[Any, list[Member]] = {}
    for sample in samples:
        if sample.problem or (store is not None and done(store, sample, grid)):
            continue
        cell = Cell(sample.digest)
        if cell in session.failed:
            session.give_up(sample, session.failed[cell])
            continue
        session.watch.begin(cell)
        try:
            member = Member(sample, *ahead.take(grid.model, sample))
        except Exception as problem:
            session.give_up(sample, f"failed: {first_line(problem)}")
            continue
        together = len(ready) if session.pace.alone else (member.x.shape_key(), grid.keeps_maps(sample.digest))
        ready.setdefault(together, []).append(member)
    session.chunk.spent.loading += now() - start
    loaded()
    for members in ready.values():
        run_group(session, members)
    session.chunk.close()
    return session.chunk


@dataclass(frozen=True)
class Session:
    """What the groups of one chunk have in common."""

    grid: ModelGrid
    store: Store | None
    watch: Watch
    chunk: Chunk
    pace: Pace
    failed: dict[Cell, str]

    def give_up(self, sample: Sample, problem: str) -> None:
        """File why a sample has no results, unless that is known."""
        known = self.store and self.store.problem(
            self.grid.model.identity, sample.digest, context_of(sample), self.grid.target
        )
        if problem != known:
            self.chunk.groups.append(problem_group(self.grid, sample, problem))
        if problem.startswith("failed"):
            self.watch.failed(FailedCell(Cell(sample.digest), problem))


def problem_group(grid: ModelGrid, sample: Sample, problem: str) -> SampleGroup:
    """A group that says why its one sample has no results."""
    record = {"name": sample.name, "digest": sample.digest, "label": sample.label, "context": context_of(sample)}
    asked: dict[str, Any] = {"target": None, "asked": grid.target, "top": [], "prob": [], "problem": problem}
    return SampleGroup(grid.model.identity, grid.seed, [{**record, **asked}])


def run_group(session: Session, members: list[Member]) -> None:
    """Compute what is missing for samples of one shape."""
    grid, store, chunk = session.grid, session.store, session.chunk
    identity = grid.model.identity
    digests = [m.sample.digest for m in members]
    memo = store.answers(identity, digests) if store is not None else {}
    saved = set(memo)
    sites = grid.model.domain.site_count(members[0].x)
    probe = Probe(grid.model, grid.numerics, memo=memo, tick=lambda n: session.watch.tick(n * sites), spent=chunk.spent)
    session.watch.begin(Cell(digests[0]))
    found = clean_logits(probe, members, [store.clean_logits(identity, d) if store else None for d in digests])
    session.pace.note_passes(chunk.spent)
    records, usable = [], []
    for i, (sample, _, _) in enumerate(members):
        logits = found[i]
        if isinstance(logits, str):
            session.give_up(sample, logits)
            continue
        record = record_for(sample, most_probable(logits, multi_label=grid.model.multi_label), grid)
        problem = target_problem(record, grid, logits)
        if problem:
            session.give_up(sample, problem)
        else:
            records.append(record)
            usable.append(i)
    if not usable:
        return
    rows = [members[i] for i in usable]
    logits = torch.stack([t for i in usable if isinstance(t := found[i], Tensor)])
    batch = Batch(
        x=Inputs.cat([m.x for m in rows]),
        target=torch.tensor([r["target"] for r in records]),
        label=torch.tensor([known_label(r["label"], logits.shape[1]) for r in records]),
        streams=Streams(grid.seed, tuple(r["digest"] for r in records)),
        references=tuple(m.reference for m in rows),
    )
    probe.remember_clean(batch, logits)
    displays = [
        {**grid.model.display(m.sample, m.x), "sample": m.sample.digest}
        for m in rows
        if m.sample.digest in grid.gallery
    ]
    keeps_maps = grid.keeps_maps(records[0]["digest"])
    known = store is not None and all(store.sample(identity, d["digest"]) for d in records)
    finished = Finished(identity, grid.seed, records, logits, probe, displays, keeps_maps, saved, known)
    chunk.open(finished)
    GroupTask(session, probe, batch, records, finished).run()
    chunk.close()


def most_probable(logits: Float[Tensor, " c"], *, multi_label: bool) -> dict[str, list[Any]]:
    """The two most probable classes with their probabilities, which one number per input does not have."""
    wide, many = logits[None].double(), min(2, len(logits))
    if multi_label:
        top = wide.topk(many, dim=1)
        return {"top": top.indices[0].tolist(), "prob": top.values[0].sigmoid().tolist()}
    top = wide.softmax(1).topk(many, dim=1)
    return {"top": top.indices[0].tolist(), "prob": top.values[0].tolist() if len(logits) > 1 else []}


def clean_logits(probe: Probe, members: Sequence[Member], stored: list[Tensor | None]) -> list[Tensor | str]:
    """Logits of the clean inputs, asking only for those that are not stored; or why the model gives none."""
    missing = [i for i, t in enumerate(stored) if t is None]
    fresh = iter(isolated_logits(probe, Inputs.cat([members[i].x for i in missing])) if missing else ())
    return [next(fresh) if t is None else t for t in stored]


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


def known_label(label: int | None, classes: int) -> int:
    """A sample's label; -1 if it has none, or one that is no class of the model."""
    label = -1 if label is None else label
    return label if label < classes else -1


def stored_map(
    store: Store | None, grid: ModelGrid, method: Labelled, record: Mapping[str, Any], x: Inputs
) -> MapColumn | None:
    """A sample's stored map, if there is one, on the sites of its input: a run that was merged in may have padded it more."""
    found = None if store is None else store.map(grid.model.identity, grid.seed, method.digest, record)
    if found is None:
        return None
    facts = {k: found.facts[k] for k in ("signed", "output", "interpolation")}
    values = grid.model.domain.padded_as(found.values[None], x)
    target = torch.tensor([record["target"]])
    return MapColumn(method.digest, Attribution(values, target, method.label, status=(found.status,), **facts))


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


@dataclass
class GroupTask:
    """Explains and scores what samples of one shape lack, in portions that can be saved between.

    Args:
        session: what it has in common with the chunk's other groups.
        probe: who is asked.
        batch: the samples.
        records: a record per sample.
        finished: takes what is finished.
    """

    session: Session
    probe: Probe
    batch: Batch
    records: list[dict[str, Any]]
    finished: Finished
    _batches: dict[tuple[int, ...], Batch] = field(default_factory=dict)
    _shapes: dict[int, Shape] = field(default_factory=dict)
    _maps: dict[Any, Maps] = field(default_factory=dict)

    def run(self) -> None:
        """All methods, then all metrics; where maps are not kept, what was explained is scored after some seconds."""
        explained: dict[str, Explained] = {}
        start = now()
        for method in self.session.grid.methods:
            for maps in self.explain(method):
                explained.setdefault(method.digest, Explained(method, {})).maps.update(maps)
                if not self.finished.keeps_maps and now() - start >= self.session.pace.portion:
                    self.score(list(explained.values()))
                    explained, start = {}, now()
        self.score(list(explained.values()))

    def rows(self, rows: Sequence[int]) -> Batch:
        """Some samples; always the same batch, so that components share what they compute for it."""
        key = tuple(rows)
        if key == tuple(range(len(self.records))):
            return self.batch
        if key not in self._batches:
            self._batches[key] = self.batch.take(rows)
        return self._batches[key]

    def shape(self, row: int) -> Shape:
        """A sample as a forecast sees it."""
        if row not in self._shapes:
            model, one = self.session.grid.model, self.rows([row])
            self._shapes[row] = Shape(model.domain, one.x, model, one.references[0])
        return self._shapes[row]

    # -- maps --------------------------------------------------------------------------------------------------

    def explain(self, method: Labelled) -> Iterator[dict[int, Attribution]]:
        """A method's maps of the samples that lack something: stored ones, then portions that are computed now."""
        known: dict[int, Attribution] = {}
        left = []
        for row, record in enumerate(self.records):
            if not self.lacks(method, record):
                continue
            stored = self.stored(method, row)
            given_up = self.session.failed.get(Cell(record["digest"], method.digest))
            if stored is not None:
                known[row] = stored
            elif given_up is not None:
                known[row] = replace(no_maps(self.probe, self.rows([row]), given_up), method=method.label)
                self.file_map(method, row, known[row], {})
            else:
                left.append(row)
        if known:
            yield known
        while left:
            portion = self.explain_some(method, left)
            left = left[len(portion) :]
            yield portion

    def explain_some(self, method: Labelled, left: Sequence[int]) -> dict[int, Attribution]:
        """The maps of the next samples, as many as take some seconds; then what is finished is saved if it is time."""
        pace, key = self.session.pace, ("method", method.digest)
        self.begin(left[0], method)
        known = key in pace.seconds or pace.alone
        foreseen = None if known else pace.foreseen(method.component, self.shape(left[0]))
        rows = left[: pace.samples(key, len(left), foreseen)]
        start, before = now(), self.probe.spent.copy()
        column, cost = explain(method, self.probe, self.rows(rows), None)
        shared = self.probe.spent.since(before).shared_seconds(self.probe.spent)
        pace.note(key, len(rows), now() - start + max(0.0, shared))
        maps = {row: column.maps.take([i]) for i, row in enumerate(rows)}
        for row, found in maps.items():
            self.file_map(method, row, found, cost or {})
        self.session.chunk.save_when_due()
        return maps

    def lacks(self, method: Labelled, record: Mapping[str, Any]) -> bool:
        """Whether the sample's map or one of its scores is missing."""
        store = self.session.store
        return store is None or lacks_cell(store, self.session.grid, method, record)

    def stored(self, method: Labelled, row: int) -> Attribution | None:
        """The sample's map, if it is stored; maps are filed without references, so those that depend on them are not used."""
        if method.component.reads_references:
            return None
        session = self.session
        found = stored_map(session.store, session.grid, method, self.records[row], self.batch.x)
        return None if found is None else found.maps

    def file_map(self, method: Labelled, row: int, found: Attribution, cost: Cost) -> None:
        """File a map; one that has failed before, and fails again, is known."""
        failed = found.status[0].startswith("failed")
        store, grid = self.session.store, self.session.grid
        if not (failed and store and store.made_map(grid.model.identity, grid.seed, method.digest, self.records[row])):
            self.finished.add_map(method.digest, row, found, cost)
        self.tell(Cell(self.records[row]["digest"], method.digest), found.status[0])

    def file_score(self, method: Labelled, metric: Labelled, row: int, found: Scores) -> None:
        """File a score; one that failed before for the same reason is known."""
        session, record, status = self.session, self.records[row], found.status[0][0]
        store = session.store
        if store is None or score_status(store, session.grid, method, metric, record) != status:
            self.finished.add_score(method.digest, metric.digest, row, found)
        self.tell(Cell(record["digest"], method.digest, metric.digest), status)

    # -- scores ------------------------------------------------------------------------------------------------

    def score(self, explained: Sequence["Explained"]) -> None:
        """Score these maps under every metric, except what is stored. Metrics share sets of maps and their orders."""
        for metric in self.session.grid.metrics:
            together: dict[tuple[int, ...], list[Explained]] = {}
            for one in explained:
                rows = tuple(row for row in sorted(one.maps) if self.to_score(one, metric, row))
                together.setdefault(rows, []).append(one)
            for rows, some in together.items():
                self.score_rows(metric, some, rows)
        self._maps.clear()

    def to_score(self, one: "Explained", metric: Labelled, row: int) -> bool:
        """Whether a metric must be asked; where there is no map, or the cell has failed already, that is filed."""
        session, record = self.session, self.records[row]
        if session.store is not None and not lacks_score(session.store, session.grid, one.method, metric, record):
            return False
        cell = Cell(record["digest"], one.method.digest, metric.digest)
        status = one.maps[row].status[0]
        if status == OK:
            status = session.failed.get(cell, OK)
        if status == OK:
            return True
        self.file_score(one.method, metric, row, all_scores(1, 1, status))
        return False

    def score_rows(self, metric: Labelled, some: Sequence["Explained"], rows: Sequence[int]) -> None:
        """Score some samples in portions: several samples at a time, or, where one takes long, some of its methods."""
        pace, left = self.session.pace, rows
        key = ("metric", metric.digest, len(some))
        while left:
            self.begin(left[0], some[0].method, metric)
            foreseen = None
            if key not in pace.seconds and not pace.alone:
                each = pace.foreseen(metric.component, self.shape(left[0]), some[0].method.digest)
                foreseen = None if each is None else each * len(some)
            n = pace.samples(key, len(left), foreseen)
            size = len(some) if n > 1 or pace.fits(key, foreseen) else 1
            begun, at = now(), 0
            while at < len(some):
                start = now()
                portion = some[at : at + size]
                self.score_portion(metric, portion, left[:n])
                at, size = at + len(portion), pace.next_size(size, now() - start)
                self.session.chunk.save_when_due()
            pace.note(key, n, now() - begun)
            left = left[n:]

    def score_portion(self, metric: Labelled, some: Sequence["Explained"], rows: Sequence[int]) -> None:
        """Ask a metric."""
        self.begin(rows[0], some[0].method, metric)
        key = tuple(one.method.digest for one in some), tuple(rows)
        if key not in self._maps:
            joined = [join_maps([one.maps[row] for row in rows]) for one in some]
            explainers = [one.method.component for one in some]
            self._maps[key] = Maps(joined, self.probe.domain, self.rows(rows), explainers)
        scores = isolated_score(metric.component, self.probe, self._maps[key])
        for m, one in enumerate(some):
            for i, row in enumerate(rows):
                self.file_score(one.method, metric, row, cell_of(scores, m, i))

    # -- who watches -------------------------------------------------------------------------------------------

    def begin(self, row: int, method: Labelled, metric: Labelled | None = None) -> None:
        """Say which cell comes next."""
        cell = Cell(self.records[row]["digest"], method.digest, metric.digest if metric else "")
        self.session.watch.begin(cell)

    def tell(self, cell: Cell, status: str) -> None:
        """Say which cell has failed."""
        if status.startswith("failed"):
            self.session.watch.failed(FailedCell(cell, status))


class Explained(NamedTuple):
    """A method with its maps, by the samples' places in the batch."""

    method: Labelled
    maps: dict[int, Attribution]


def cell_of(scores: Scores, method: int, sample: int) -> Scores:
    """The score of one map."""
    curve = None if scores.curve is None else scores.curve[method : method + 1, sample : sample + 1]
    value = scores.value[method : method + 1, sample : sample + 1]
    return Scores(value, ((scores.status[method][sample],),), curve, scores.share)
