"""A run: models × samples × methods × metrics into one folder, resumable at any moment."""

import datetime
import itertools
import os
import platform
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import heatcheck
from heatcheck import catalogue
from heatcheck.data.base import Dataset
from heatcheck.engine import across
from heatcheck.engine.identity import digest
from heatcheck.engine.numerics import Numerics, machine, measure, tune_allocator
from heatcheck.engine.plan import Shape, forecast
from heatcheck.engine.probe import Spent
from heatcheck.engine.progress import Progress
from heatcheck.engine.rehearsal import TRIED, readable, reason_against
from heatcheck.engine.store import Store
from heatcheck.engine.task import CHUNK, Chunk, Named, Work, context_of, done, named_units, run_chunk
from heatcheck.engine.workers import Pool
from heatcheck.metrics.base import circular
from heatcheck.models.base import Explained
from heatcheck.types import HeatcheckError, Inputs, Sample

GALLERY = 8
"""Samples whose maps and pictures the report shows."""


@dataclass(frozen=True)
class Setup:
    """What is to be run, with every name resolved.

    Args:
        models: adapters by the label tables show.
        data: the samples.
        methods: methods by label.
        metrics: metrics by label.
        target: the class to explain.
        seed: of every random stream.
        record: the study as plain data, for the run's own record.
        remote: what a worker process needs to build the same; None if something exists only in this process.
    """

    models: dict[str, Explained]
    data: Dataset
    methods: list[tuple[str, Any]]
    metrics: list[tuple[str, Any]]
    target: str | int = "predicted"
    seed: int = 0
    record: dict[str, Any] = field(default_factory=dict)
    remote: dict[str, Any] | None = None


@dataclass(frozen=True)
class Options:
    """How it is run; none of this changes a result."""

    workers: int = 1
    threads: int = 1
    batch: int | None = None
    maps: str = "keep"
    budget: float | None = None


@dataclass
class Part:
    """One model's share of a run."""

    label: str
    model: Explained
    work: Work
    across: tuple[Named, ...]
    skipped: dict[str, str]
    numerics: Numerics
    circular: list[tuple[str, str]]


def make_work(setup: Setup, model: Explained, maps: str) -> tuple[Work, tuple[Named, ...], dict[str, str]]:
    """What is computed for one model, the metrics that compare models, and what does not apply with its reason."""
    methods, no_method = named_units(setup.methods, model)
    tried = list(itertools.islice(readable(model, setup.data), TRIED))
    refused = {m.label: reason for m in methods if tried and (reason := reason_against(m.unit, model, tried))}
    methods = tuple(m for m in methods if m.label not in refused)
    metrics, no_metric = named_units(setup.metrics, model)
    gallery = frozenset([s.digest for s in setup.data if not s.problem][:GALLERY])
    own = tuple(m for m in metrics if not m.unit.across_models and not m.unit.composite)
    everyone = sorted(m.identity for m in setup.models.values())
    shared = tuple(
        replace(m, digest=digest({"metric": m.digest, "models": everyone})) for m in metrics if m.unit.across_models
    )
    if len(everyone) < 2:
        no_metric |= {m.label: f"{m.unit.id} compares models, and there is only {model.name}" for m in shared}
        shared = ()
    return Work(methods, own, setup.target, setup.seed, maps, gallery), shared, {**no_method, **refused, **no_metric}


def prepare(setup: Setup, options: Options, store: Store | None) -> list[Part]:
    """Resolve units for every model and fix the numerics before anything is computed."""
    parts = []
    for label, model in setup.models.items():
        if model.domain.modality != setup.data.modality:
            raise HeatcheckError(
                f"model {label!r} reads {model.domain.modality}s, but the data {setup.data.name!r} are "
                f"{setup.data.modality}s"
            )
        work, shared, skipped = make_work(setup, model, options.maps)
        x = first_input(model, setup.data)
        numerics = fixed_numerics(model, x, options, store)
        shape = None if x is None else Shape(model.domain, x, model)
        pairs = find_circular(work.methods, work.metrics, shape) if shape else []
        parts.append(Part(label, model, work, shared, skipped, numerics, pairs))
    return parts


def first_input(model: Explained, data: Sequence[Sample]) -> Inputs | None:
    """The first sample that can be read at all."""
    return next(readable(model, data), None)


def fixed_numerics(model: Explained, x: Inputs | None, options: Options, store: Store | None) -> Numerics:
    """The run's numerics for a model: as written down, else measured now and written down."""
    held = (store.read("numerics.json") or {}) if store is not None else {}
    if model.identity in held:
        return Numerics(**{**held[model.identity], **machine(), "threads": options.threads})
    if options.batch is not None or x is None:
        size = options.batch or 1
        channels_last = bool(getattr(model, "channels_last", False))
        found = Numerics(forward=size, backward=size, threads=options.threads, channels_last=channels_last, **machine())
    else:
        found = measure(model, x, threads=options.threads)
    if store is not None:
        store.write("numerics.json", {**held, model.identity: found.record()})
    return found


def find_circular(methods: Sequence[Named], metrics: Sequence[Named], shape: Shape) -> list[tuple[str, str]]:
    """Pairs in which a method asks the metric's own questions."""
    return [(m.label, k.label) for m in methods for k in metrics if circular(m.unit, k.unit, shape)]


def execute(setup: Setup, out: str | Path, options: Options, progress: Progress) -> Store:
    """Compute what is missing, chunk by chunk; what is finished is on disk before the next begins."""
    tune_allocator()
    store = Store.open(out, create=True)
    parts = prepare(setup, options, store)
    manifest = describe(setup, options, parts)
    before = store.read("run.json") or {}
    manifest["passes"] = before.get("passes", manifest["passes"])
    store.write("run.json", manifest)
    runner = Runner(setup, options, store, progress)
    runner.run(parts)
    store.refresh()
    for metric in compared(parts):
        across.score(metric, parts, setup.data, store, runner.spent)
    store.refresh()
    manifest["passes"] = {k: v + manifest["passes"].get(k, 0) for k, v in asdict(runner.spent).items()}
    manifest["peak_bytes"] = max(peak_bytes(), before.get("peak_bytes", 0))
    manifest["finished"] = runner.left == 0
    store.write("run.json", manifest)
    return store


def compared(parts: list[Part]) -> list[str]:
    """Labels of the metrics that compare models."""
    return list(dict.fromkeys(m.label for p in parts for m in p.across))


def missing_chunks(part: Part, data: Dataset, store: Store, workers: int) -> list[list[int]]:
    """Samples that lack something, at most eight at a time, in the data's order; as many chunks for each worker."""
    rows = [i for i, s in enumerate(data) if not s.problem and not done(store, part.model.identity, s, part.work)]
    chunks = -(-len(rows) // CHUNK)
    chunks = min(len(rows), -(-chunks // workers) * workers)
    return [rows[len(rows) * i // chunks : len(rows) * (i + 1) // chunks] for i in range(chunks)]


def predicted(part: Part, samples: Sequence[Sample]) -> int:
    """Roughly how many passes a chunk takes, for the progress bar."""
    x = first_input(part.model, samples)
    if x is None:
        return 0
    each = forecast(part.work.methods, part.work.metrics, Shape(part.model.domain, x, part.model))
    return each.forwards * len(samples)


@dataclass
class Runner:
    """Computes missing chunks, here or in workers, until they are done or the budget is used up."""

    setup: Setup
    options: Options
    store: Store
    progress: Progress
    spent: Spent = field(default_factory=Spent)
    left: int = 0
    started: float = field(default_factory=time.monotonic)

    def run(self, parts: list[Part]) -> None:
        """Compute what is missing for every model."""
        workers = self.options.workers if self.setup.remote is not None else 1
        data = self.setup.data
        todo = [(part, rows) for part in parts for rows in missing_chunks(part, data, self.store, workers)]
        if not todo:
            return
        total = sum(predicted(part, self.samples(rows)) for part, rows in todo)
        counts = ((len(data), "sample"), (len(parts), "model"))
        self.progress.begin(" × ".join(f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in counts), total)
        try:
            if workers > 1 and len(todo) > 1:
                self.in_workers(todo, min(workers, len(todo)))
            else:
                self.in_process(todo)
        finally:
            self.progress.end()
        if self.left:
            self.progress.note(f"{self.left} of {len(todo)} chunks are left; run again to go on")

    def samples(self, rows: list[int]) -> list[Sample]:
        """Some of the samples."""
        return [self.setup.data[i] for i in rows]

    def in_process(self, todo: list[tuple[Part, list[int]]]) -> None:
        """Run chunks one after another in this process."""
        for finished, (part, rows) in enumerate(todo):
            if self.over_budget(finished):
                self.left = len(todo) - finished
                return
            chunk = run_chunk(
                part.model, part.numerics, self.samples(rows), part.work, self.store, self.progress.advance
            )
            commit(self.store, chunk)
            self.spent.add(asdict(chunk.spent))

    def in_workers(self, todo: list[tuple[Part, list[int]]], workers: int) -> None:
        """Run chunks in worker processes, one thread each; what a worker cannot do stays missing."""
        hello = {
            **(self.setup.remote or {}),
            "out": str(self.store.folder),
            "maps": self.options.maps,
            "numerics": {part.label: part.numerics.record() for part, _ in todo},
        }
        jobs = [{"model": part.label, "rows": rows} for part, rows in todo]
        try:
            with Pool(workers, hello) as pool:
                for event in pool.run(jobs, self.progress.advance, self.over_budget):
                    self.spent.add(event.spent)
                    if event.problem:
                        self.left += 1
                        self.progress.note(f"a chunk of {event.job['model']} failed: {event.problem}")
                self.left += pool.left
        finally:
            self.store.sweep()  # a worker that was stopped while it wrote leaves half a file

    def over_budget(self, finished: int) -> bool:
        """Whether another chunk, at the mean time of those finished, would exceed the budget."""
        if self.options.budget is None or finished == 0:
            return False
        elapsed = time.monotonic() - self.started
        return elapsed + elapsed / finished > self.options.budget


def commit(store: Store, chunk: Chunk) -> None:
    """Write a chunk, if it holds anything."""
    if not chunk.empty:
        store.commit(chunk.groups)


def describe(setup: Setup, options: Options, parts: list[Part]) -> dict[str, Any]:
    """The run's own record: what was asked, of whom, how, and where."""
    return {
        "heatcheck": heatcheck.__version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "study": setup.record,
        "target": setup.target,
        "seed": setup.seed,
        "maps": options.maps,
        "data": {"name": setup.data.name, "n": len(setup.data), "notes": list(setup.data.notes)},
        "samples": [
            {
                "name": s.name,
                "digest": s.digest,
                "label": s.label,
                "context": context_of(s),
                "problem": s.problem,
            }
            for s in setup.data
        ],
        "models": [
            {
                "name": part.label,
                "identity": part.model.identity,
                "modality": str(part.model.domain.modality),
                "classes": list(part.model.classes) if part.model.classes else None,
                "methods": [unit_record(n) for n in part.work.methods],
                "metrics": [unit_record(n) for n in (*part.work.metrics, *part.across)],
                "skipped": part.skipped,
                "circular": part.circular,
                "numerics": part.numerics.record(),
                "gallery": sorted(part.work.gallery),
            }
            for part in parts
        ],
        "methods": [unit_facts(label, unit) for label, unit in setup.methods],
        "metrics": [unit_facts(label, unit) for label, unit in setup.metrics],
        "environment": environment(),
        "passes": asdict(Spent()),
        "finished": False,
    }


def unit_record(named: Named) -> dict[str, Any]:
    """A resolved unit as the run records it."""
    return {"label": named.label, "name": named.unit.name, "digest": named.digest, "identity": named.unit.identity()}


def unit_facts(label: str, unit: Any) -> dict[str, Any]:
    """What a report says about a unit."""
    return {**catalogue.find(type(unit).kind, unit.id).record(), "label": label, "name": unit.name}


def peak_bytes() -> int:
    """The largest memory that this process, or a worker that has ended, has held."""
    most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return most * (1 if sys.platform == "darwin" else 1024)


def environment() -> dict[str, str]:
    """The machine and versions, without anything private."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
    }
