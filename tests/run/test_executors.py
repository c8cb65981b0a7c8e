"""Works are plain data, and every executor makes the same chunks of them."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.progress import Silent
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError
from heatcheck.models import devices
from heatcheck.run.execution import Runner, execute
from heatcheck.run.executors.base import Executor, Receipt
from heatcheck.run.executors.crew import TRIES, Crew, Death, Job, after_death
from heatcheck.run.executors.here import Here
from heatcheck.run.executors.processes import Processes
from heatcheck.run.expected import Effort, Expected, Gauge
from heatcheck.run.resources import Resources
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import resources_of
from heatcheck.run.work import Cell, SampleRef, Sources, Work

FIXED = Runtime(batch=4, progress="none")
MUTANTS = (
    ("run/executors/base.py", "self.waiting.pop(0)", "self.waiting.pop()", "test_works_are_computed_in_their_order"),
    (
        "run/execution.py",
        "elapsed + elapsed / finished > self.runtime.budget",
        "elapsed > self.runtime.budget",
        "test_no_chunk_is_begun_that_would_exceed_the_budget",
    ),
    (
        "run/execution.py",
        "                else:\n                    book(receipt.work)",
        "                book(receipt.work)",
        "test_a_failed_chunk_is_left",
    ),
    (
        "run/executors/crew.py",
        "job.cell not in known and death.blame",
        "job.cell not in known",
        "test_a_lost_machine_is_no_cells_fault",
    ),
    ("run/runtime.py", "workers != most", "workers > most", "test_on_says_where_and_agrees_with_workers"),
    (
        "run/resources.py",
        "if sample is None or sample.digest != ref.digest:",
        "if sample is None:",
        "test_a_sample_that_has_changed_is_refused",
    ),
    (
        "run/resources.py",
        "if loaded.identity != work.identity:",
        "if False:",
        "test_a_model_that_has_changed_is_refused",
    ),
    ("run/isolation.py", "if is_device_lost(problem):", "if False:", "test_a_lost_device_is_no_sample_s_fault"),
    (
        "run/execution.py",
        "            self.let_go()",
        "            pass",
        "test_where_workers_compute_the_driver_lets_go_of_its_models",
    ),
    (
        "run/execution.py",
        "min(workers, gpus) if runtime.chooses and gpus else workers",
        "workers",
        "test_on_gpus_each_has_a_process_of_its_own",
    ),
)


def test_a_work_is_one_line_of_json_and_back(ready):
    *_, works = ready
    line = works[0].to_json()
    assert "\n" not in line and Work.from_json(line) == works[0]
    assert Work.from_json(json.dumps(json.loads(line))) == works[0]


def test_works_name_every_sample_once_in_at_most_eight(ready):
    setup, *_, works = ready
    assert [ref for work in works for ref in work.samples] == [SampleRef(s.name, s.digest, s.label) for s in setup.data]
    assert max(len(work.samples) for work in works) <= 8


def test_works_are_computed_in_their_order(ready):
    setup, store, parts, works = ready
    ticks = []
    with Here(resources_of(setup, parts), store, ticks.append) as executor:
        for work in works:
            executor.submit(work)
        receipts = list(executor.receipts())
    assert [r.work for r in receipts] == works
    sites = 16 * 16
    assert sum(ticks) == sites * sum(r.spent["forwards"] + r.spent["backwards"] for r in receipts) > 0
    assert len(list(store.chunks.iterdir())) == len(works)


def test_a_cancelled_executor_begins_nothing_more(ready):
    setup, store, parts, works = ready
    executor = Here(resources_of(setup, parts), store)
    for work in works:
        executor.submit(work)
    receipts = executor.receipts()
    next(receipts)
    executor.cancel()
    assert list(receipts) == []


def test_a_work_is_cut_down_or_withheld_when_it_is_about_to_begin(ready):
    setup, store, parts, works = ready
    executor = Here(resources_of(setup, parts), store)
    some = {1: None, 2: replace(works[2], samples=works[2].samples[:1])}
    executor.admit = lambda work: some.get(works.index(work), work)
    for work in works:
        executor.submit(work)
    assert [receipt.work for receipt in executor.receipts()] == [works[0], some[2]]
    assert len(works) == 3


class Slow(Executor):
    """An executor that computes nothing and lets the clock go on by one second for each work."""

    def receipts(self) -> Iterator[Receipt]:
        while self.waiting:
            SECONDS.append(1)
            yield Receipt(self.waiting.pop(0))


class Failing(Executor):
    def receipts(self) -> Iterator[Receipt]:
        while self.waiting:
            yield Receipt(self.waiting.pop(0), problem="on purpose")


SECONDS: list[int] = []


def collect(monkeypatch, ready, kind, budget=None):
    setup, store, _, works = ready
    SECONDS.clear()
    monkeypatch.setattr("heatcheck.run.execution.time.monotonic", lambda: float(len(SECONDS)))
    runner = Runner(setup, Runtime.of(FIXED, budget=budget), store, started=0.0)
    runner.collect(kind(Resources(), store), works, Silent())
    return runner, works


def test_no_chunk_is_begun_that_would_exceed_the_budget(ready, monkeypatch):
    runner, works = collect(monkeypatch, ready, Slow, budget=2.5)
    assert len(SECONDS) == 2 and runner.left == len(works) - 2


def test_a_failed_chunk_is_left(ready, monkeypatch):
    runner, works = collect(monkeypatch, ready, Failing)
    assert runner.left == len(works)


def test_a_sample_that_has_changed_is_refused(ready):
    setup, _, parts, works = ready
    name = works[0].samples[0].name
    other = replace(works[0], samples=(SampleRef(name, "0" * 64),))
    with pytest.raises(HeatcheckError, match="has changed since the run began"):
        resources_of(setup, parts).samples(other)


def test_a_model_that_has_changed_is_refused(ready, monkeypatch):
    *_, works = ready
    setup = ready[0]
    monkeypatch.setattr("heatcheck.run.resources.load_model", lambda spec, **_: setup.models["toy"])
    told = replace(works[0], identity="another", sources=Sources(models={"toy": "toy"}))
    with pytest.raises(HeatcheckError, match="model 'toy' has changed"):
        Resources().grid(told)


def test_where_workers_compute_the_driver_lets_go_of_its_models(ready):
    setup, store, parts, _ = ready
    setup = replace(setup, sources=Sources(portable=True))
    held = tuple(setup.models.values())
    with Runner(setup, FIXED, store, held=held).executor(parts, Expected(), Gauge(Silent(), Effort())):
        assert not setup.models["toy"].released, "this process computes"
    with Runner(setup, Runtime.of(FIXED, workers=2), store, held=held).executor(
        parts, Expected(), Gauge(Silent(), Effort())
    ):
        assert setup.models["toy"].released


def test_on_gpus_each_has_a_process_of_its_own(ready, monkeypatch):
    setup, store, parts, _ = ready
    setup = replace(setup, sources=Sources(portable=True))
    parts[0].grid = replace(parts[0].grid, numerics=replace(parts[0].grid.numerics, device="cuda"))
    monkeypatch.setattr(devices.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(Runner, "foreseen", lambda *_: 3600.0)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    for wanted, workers in (("auto", 2), (None, 1), (5, 5)):
        with Runner(setup, Runtime.of(FIXED, workers=wanted), store).executor(
            parts, Expected(), Gauge(Silent(), Effort())
        ) as executor:
            assert isinstance(executor, Processes) and executor.workers == workers


def test_a_lost_device_is_no_sample_s_fault(ready):
    setup, store, parts, works = ready
    model = setup.models["toy"]
    calls = []

    def lost(x):
        calls.append(len(x))
        if len(calls) > 2:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return type(model).logits(model, x)

    model.logits = lost
    executor = Here(resources_of(setup, parts), store)
    executor.submit(works[0])
    with pytest.raises(HeatcheckError, match=r"cpu has failed.*illegal memory access.*run again"):
        list(executor.receipts())
    assert len(calls) == 3, "nothing more is asked of it"
    assert not list(store.chunks.iterdir()), "nothing is filed as failed"


def test_executors_are_found_by_name_in_their_folder():
    assert set(catalogue.entries("executor")) >= {"here", "processes"}
    assert catalogue.component_class("executor", "here") is Here


def test_what_exists_here_only_is_not_sent_to_workers(make_setup, tmp_path):
    setup = make_setup(["saliency"], ["sds"])
    assert not setup.sources.portable
    told = Notes()
    store = execute(setup, tmp_path / "r", Runtime.of(FIXED, workers=2, progress=told))
    assert store.read("run.json")["finished"]
    assert [text for text in told.notes if text.startswith("the work stays in one process")]


class Notes(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_run_says_why_it_stays_in_one_process(tmp_path):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 5))
    bench = hc.Benchmark(models={"mine": network}, data=torch.rand(2, 3, 16, 16), methods=["random"], metrics=["sds"])
    told = Notes()
    bench.run(tmp_path / "r", on="processes", batch=4, progress=told)
    (why,) = [text for text in told.notes if text.startswith("the work stays in one process")]
    assert "model 'mine' is an object" in why and "the data are objects" in why and "FILE.py:NAME" in why


def test_on_says_where_and_agrees_with_workers():
    assert Runtime.of(on="processes:3").processes(0.0) == 3
    assert Runtime.of(on="processes", workers=2).processes(0.0) == 2
    assert Runtime.of(on="here", workers="auto").processes(1e9) == 1
    for wrong in ("process", "processes:0", "processes:", "ray//x", "ray://nowhere", 4):
        with pytest.raises(SpecError, match=re.escape(f"on = {wrong!r} should be here, processes, processes:4")):
            Runtime.of(on=wrong)
    for on, workers in (("here", 2), ("processes:4", 2)):
        with pytest.raises(SpecError, match="contradict each other"):
            Runtime.of(on=on, workers=workers)


def test_a_lost_machine_is_no_cells_fault(ready):
    *_, works = ready
    alone = replace(works[0], alone=True)
    cell = Cell("a", "b")
    assert after_death(Job(alone, cell), 3, Death("SIGSEGV")).failed[0].cell == cell
    crew = Dying(Resources(), ready[1], workers=1)
    crew.submit(alone)
    (receipt,) = crew.receipts()
    assert not receipt.work.failed and receipt.problem == f"its worker died {TRIES} times (its node was lost)"


class Dying(Crew):
    """Workers that begin a cell and are lost with their machine."""

    def start(self) -> int:
        self.starts = getattr(self, "starts", 0) + 1
        assert self.starts <= TRIES, "it is given up"
        self.mail: list = [(0, {"ready": True}), (0, {"begin": ("a", "b")}), (0, None)]
        return 0

    def send(self, number, work) -> None: ...

    def receive(self, wait):
        return self.mail.pop(0)

    def kill(self, number) -> None: ...

    def death(self, number) -> Death:
        return Death("its node was lost", blame=False)


@pytest.mark.slow
def test_a_work_whose_worker_dies_is_tried_again_and_then_given_up(ready, tmp_path):
    setup, store, _, works = ready
    store.write("run.json", {})
    plugin = tmp_path / "deadly.py"
    plugin.write_text("import os\nos._exit(7)\n")
    with Processes(Resources(), store, lambda n: None, 1) as executor:
        executor.submit(replace(works[0], sources=replace(setup.sources, plugins=(str(plugin),))))
        (receipt,) = executor.receipts()
        assert receipt.problem == f"its worker died {TRIES} times (exit code 7)"
        assert len(executor._processes) == TRIES
