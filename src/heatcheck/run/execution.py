"""A run: models × samples × methods × metrics into one folder, resumable at any moment."""

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from heatcheck.core import catalogue, progress
from heatcheck.core.files import printable
from heatcheck.core.types import HeatcheckError, Sample
from heatcheck.models.base import Model
from heatcheck.models.devices import gpus_of
from heatcheck.models.torch_model import TorchModel
from heatcheck.probe.calls import Spent
from heatcheck.probe.memory import peak_bytes
from heatcheck.probe.tuning import give_back, tune_allocator
from heatcheck.run import across, crashes, history
from heatcheck.run.apart import CrashedError
from heatcheck.run.claims import Claims
from heatcheck.run.compaction import compact_when_many
from heatcheck.run.executors.base import Executor
from heatcheck.run.executors.cluster import check_cluster
from heatcheck.run.expected import Effort, Expected, Gauge, seconds_per_site
from heatcheck.run.lacking import failed_cells, lacking
from heatcheck.run.manifest import describe
from heatcheck.run.records import NUMERICS
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import Part, Setup, place, prepare, resources_of, write_numerics
from heatcheck.run.shard import Shard
from heatcheck.run.sharing import Place, Sharing
from heatcheck.run.store import Store
from heatcheck.run.task import CHUNK
from heatcheck.run.work import SampleRef, Work


def execute(setup: Setup, out: str | Path, runtime: Runtime) -> Store:
    """Compute what is missing, chunk by chunk; what is finished is on disk before the next begins."""
    tune_allocator()
    check_timeout(setup, runtime)
    if runtime.on_ray:
        check_cluster(runtime.on or "")
    folder = str(Path(out).expanduser().resolve())
    if printable(folder) != folder:
        raise HeatcheckError(
            f"the folder '{printable(folder)}' has a name that chunk files cannot bear: choose another, in UTF-8"
        )
    crash = crashes.last_crash(Path(out).expanduser())
    if crash is not None:
        runtime = after_crash(f"the last run into this folder crashed ({crash})", setup, runtime)
    store = Store.open(out, create=True)
    with crashes.last_words(store.folder), Claims(store.folder) as claims:
        try:
            compute(setup, store, runtime, claims)
        except CrashedError as problem:
            place = crashes.own_words(store.folder)
            careful = after_crash(f"{problem} ({place})" if place else str(problem), setup, runtime)
            if careful == runtime:
                raise
            compute(setup, store, careful, claims)
    return store


def after_crash(told: str, setup: Setup, runtime: Runtime) -> Runtime:
    """How to compute after a crash: in worker processes, where other processes can load the study; say so."""
    shown = progress.choose(runtime.progress)
    if not setup.sources.portable or not (runtime.on or "processes").startswith("processes"):
        shown.note(
            f"{told}; a study that can be loaded by name is computed in processes of their own, by on='processes'"
        )
        return runtime
    shown.note(f"{told}: worker processes compute now, and a sample that ends one is named")
    return crashes.carefully(runtime)


def compute(setup: Setup, store: Store, runtime: Runtime, claims: Claims) -> None:
    """Compute what is missing in an open folder, together with other processes that do."""
    shown = progress.choose(runtime.progress)
    given = setup.models
    setup, placed = place(setup, runtime, store)
    for note in placed:
        shown.note(note)
    parts = agreed_parts(setup, runtime, store, claims, shown)
    manifest = describe(setup, runtime, parts)
    with claims.alone("record"):
        history.begin(store, manifest)
    runner = Runner(setup, runtime, store, claims, held=(*given.values(), *setup.models.values()))
    runner.run(parts)
    store.refresh()
    for metric in compared(parts):
        with claims.alone("across"):
            store.refresh()
            across.score(metric, parts, setup.data, store, runner.spent)
    store.refresh()
    with claims.alone("record"):
        history.end(store, manifest, runner.spent, peak_bytes(), finished=runner.left == 0)
        compact_when_many(store)


def agreed_parts(setup: Setup, runtime: Runtime, store: Store, claims: Claims, shown: progress.Progress) -> list[Part]:
    """Every model's share; numerics that the folder lacks are fixed by one process, and others wait for them."""

    def unknown() -> bool:
        return any(model.identity not in store.numerics() for model in setup.models.values())

    with contextlib.ExitStack() as turn:
        if unknown():
            turn.enter_context(
                claims.alone("numerics", lambda who: shown.note(f"waiting for {who}, who measures the model"))
            )
            if runtime.numerics is not None:
                adopt_numerics(store, runtime.numerics)
            if not unknown():
                turn.close()
        parts = prepare(setup, runtime, store)
        write_numerics(store, parts)
    for note in (note for part in parts for note in part.notes):
        shown.note(note)
    return parts


def adopt_numerics(store: Store, source: str) -> None:
    """Write down the numerics of another run's models before this one measures its own.

    Raises:
        HeatcheckError: that run has none.
    """
    theirs = Store(Path(source).expanduser()).read(NUMERICS)
    if theirs is None:
        raise HeatcheckError(f"numerics={source!r} has no {NUMERICS}: name the folder of a run that has begun")
    store.write(NUMERICS, {**theirs, **store.numerics()})


def check_timeout(setup: Setup, runtime: Runtime) -> None:
    """Refuse a time limit where the work cannot be done in another process, which alone can be stopped."""
    if runtime.timeout is not None and not setup.sources.portable and not runtime.on_ray:
        raise HeatcheckError(
            f"timeout={runtime.timeout:g} needs a worker process, and the model, the data or a method of this study exists "
            "in this process only; name them by specs (timm:…, folder:…), put own components into a plugin file, compute "
            "on='ray', or leave the timeout out"
        )
    if runtime.timeout is not None and runtime.on == "here":
        raise HeatcheckError(
            f"timeout={runtime.timeout:g} needs a worker process, and on='here' is this one; leave one of them out"
        )


def compared(parts: Sequence[Part]) -> list[str]:
    """Labels of the metrics that compare models."""
    return list(dict.fromkeys(m.label for p in parts for m in p.across))


def missing(part: Part, data: Sequence[Sample], store: Store) -> list[Sample]:
    """Samples that lack something, in the data's order."""
    return lacking(store, data, part.grid)


def chunks_of(
    lacks: Sequence[Sample], workers: int, size: Callable[[Sample], int] = lambda sample: 0
) -> Iterator[list[Sample]]:
    """Samples at most eight at a time, neighbours in size together; as many chunks for each worker.

    A chunk holds samples of several sizes where few have one; those of one size share calls. Chunks come in the order of
    their first samples: a run that ends early has not seen the short texts alone.
    """
    chunks = -(-len(lacks) // CHUNK)
    chunks = min(len(lacks), -(-chunks // workers) * workers)
    sizes = [size(sample) for sample in lacks]
    order = sorted(range(len(lacks)), key=sizes.__getitem__)
    bounds = [len(lacks) * i // chunks for i in range(chunks + 1)] if chunks else []
    for part in sorted(sorted(order[start:end]) for start, end in itertools.pairwise(bounds)):
        yield [lacks[i] for i in part]


@dataclass
class Runner:
    """Has missing chunks computed, here or elsewhere, until they are done or the budget is used up.

    Args:
        setup: what is to be run.
        runtime: how.
        store: the run's folder.
        spent: passes and time so far.
        left: chunks that were not computed.
        started: when.
        held: the models, as they were given and where they compute; worker processes load their own.
    """

    setup: Setup
    runtime: Runtime
    store: Store
    claims: Claims | None = None
    spent: Spent = field(default_factory=Spent)
    left: int = 0
    started: float = field(default_factory=time.monotonic)
    held: Sequence[Model] = ()

    @property
    def data(self) -> Sequence[Sample]:
        """The samples that are this process's, or that it shares with others on the folder."""
        return self.runtime.share(self.setup.data)

    def run(self, parts: Sequence[Part]) -> None:
        """Compute what is missing for every model."""
        self.store.refresh()  # others may have worked on it while this process was being prepared
        data = self.data
        lacking = [(part, samples) for part in parts if (samples := missing(part, data, self.store))]
        if not lacking:
            return
        expected = Expected(blank=self.runtime.timeout is not None)
        chunks = ((part, chunk) for part, some in lacking for chunk in chunks_of(some, 1, part.grid.model.size))
        total = sum((expected.of(part, chunk) for part, chunk in chunks), Effort())
        failed = {
            (part.label, SampleRef(sample.name, sample.digest, sample.label)): cells
            for part, some in lacking
            for sample in some
            if (cells := failed_cells(self.store, sample, part.grid))
        }
        again = sum(failed.values())
        shown = progress.choose(self.runtime.progress)
        counts = ((len(data), "sample"), (len(parts), "model"))
        what = " × ".join(f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in counts)
        shown.begin(f"{Shard.parse(self.runtime.shard)}: {what}" if self.runtime.shard else what, total.passes)
        gauge = Gauge(shown, total)
        if again:
            shown.note("1 failed cell is tried again" if again == 1 else f"{again:,} failed cells are tried again")
        try:
            with self.executor(parts, expected, gauge, apart=again > 0) as executor:
                works = [
                    part.work(samples, self.store, self.setup.sources, self.runtime.timeout)
                    for part, some in lacking
                    for samples in chunks_of(some, executor.workers, part.grid.model.size)
                ]
                executor.workers = min(executor.workers, len(works))
                self.collect(executor, works, shown, self.sharing(parts, failed, expected, gauge))
        except BaseException:
            progress.stop(shown)
            raise
        else:
            shown.end()
        finally:
            self.store.sweep()  # a worker that was stopped while it wrote leaves half a file
        if self.left:
            shown.note(f"{self.left} of {len(works)} chunks are left; run again to go on")

    def sharing(
        self, parts: Sequence[Part], failed: Mapping[Place, int], expected: Expected, gauge: Gauge
    ) -> Sharing | None:
        """What decides which works are this process's; None where no other process can be here."""
        if self.claims is None:
            return None
        named = {(s.name, s.digest): s for s in self.setup.data}

        by_label = {part.label: part for part in parts}

        def advance(work: Work) -> None:
            samples = [named[ref.name, ref.digest] for ref in work.samples]
            gauge.advance(expected.of(by_label[work.model], samples).work)

        grids = {label: part.grid for label, part in by_label.items()}
        return Sharing(self.claims, self.store, grids, named, set(failed), advance)

    def foreseen(self, parts: Sequence[Part], expected: Expected) -> float:
        """Roughly how many seconds this process would take; infinite where a user's code or a time limit is in it."""
        if self.setup.sources.plugins or self.runtime.timeout is not None:
            return math.inf
        total = 0.0
        for part in parts:
            lacks = missing(part, self.data, self.store)
            work = expected.of(part, lacks).work
            total += work * seconds_per_site(part, lacks) if work else 0.0
        return total

    def executor(self, parts: Sequence[Part], expected: Expected, gauge: Gauge, *, apart: bool = False) -> Executor:
        """Who computes."""
        shown = gauge.shown
        kind, workers = self.place(parts, expected, shown, apart=apart)
        if kind == "processes" and not compared(parts):
            self.let_go()
        made: Executor = catalogue.component_class("executor", kind)(
            resources_of(self.setup, parts), self.store, gauge.advance, workers, self.runtime, shown.note
        )
        return made

    def place(
        self, parts: Sequence[Part], expected: Expected, shown: progress.Progress, *, apart: bool = False
    ) -> tuple[str, int]:
        """Where it is computed, and by how many: as the user says, and the study allows.

        Worker processes are also taken where some of the work may end its process, or may have to be stopped, and on
        GPUs, of which a process that has met an error can use no more. There each GPU has one, unless the user says.
        """
        runtime, sources = self.runtime, self.setup.sources
        if runtime.on_ray:
            return "ray", runtime.workers if isinstance(runtime.workers, int) else 0
        if sources.portable:
            workers = runtime.processes(self.foreseen(parts, expected) if runtime.chooses else 0.0)
            gpus = gpus_of(part.grid.numerics.device for part in parts)
            workers = min(workers, gpus) if runtime.chooses and gpus else workers
            apart = apart or runtime.timeout is not None or runtime.on is not None or gpus > 0
            return "processes" if runtime.on != "here" and (workers > 1 or apart) else "here", workers
        if runtime.processes(math.inf) > 1 or runtime.on not in (None, "here"):
            why = "; ".join(sources.only_here) or "models and data exist in it only"
            shown.note(f"the work stays in one process: {why}; on='ray' takes objects too")
        return "here", 1

    def let_go(self) -> None:
        """Free the models and what setting up has needed: this process only hands out works from now on."""
        for model in self.held:
            if isinstance(model, TorchModel) and not model.released:
                model.release()
        give_back(0)
        torch.cuda.empty_cache()

    def collect(
        self, executor: Executor, works: Sequence[Work], shown: progress.Progress, sharing: Sharing | None = None
    ) -> None:
        """Hand out all works and book what becomes of them; stop before the budget is exceeded."""
        lacking = {(work.model, ref) for work in works for ref in work.samples}
        finished = 0
        over = False

        def book(work: Work) -> None:
            lacking.difference_update((work.model, ref) for ref in work.samples)

        if sharing is not None:
            executor.admit = sharing.admit
        ready = list(works)
        while ready:
            for work in ready:
                executor.submit(work)
            for receipt in executor.receipts():
                finished += 1
                self.spent.add(receipt.spent)
                if receipt.problem:
                    shown.note(f"a chunk of {receipt.work.model} failed: {receipt.problem}")
                else:
                    book(receipt.work)
                if sharing is not None:
                    sharing.release(receipt.work)
                over = self.over_budget(finished)
                if over:
                    executor.cancel()
            ready = []
            if sharing is not None and not over:
                ready = sharing.wait(shown.note, functools.partial(self.over_budget, max(1, finished)))
        for work in sharing.finished if sharing is not None else ():
            book(work)
        self.left = sum(any((work.model, ref) in lacking for ref in work.samples) for work in works)

    def over_budget(self, finished: int) -> bool:
        """Whether another chunk, at the mean time of those finished, would exceed the budget."""
        if self.runtime.budget is None:
            return False
        elapsed = time.monotonic() - self.started
        return elapsed + elapsed / finished > self.runtime.budget
