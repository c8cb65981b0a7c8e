"""Several processes on one folder share its work: the same bits as one, hardly anything twice, the dead replaced."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from heatcheck.api.result import Result
from heatcheck.core.progress import Silent
from heatcheck.run import execution
from heatcheck.run.claims import Claims
from heatcheck.run.execution import Runner, execute
from heatcheck.run.executors.here import Here
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import resources_of
from heatcheck.run.sharing import Sharing
from heatcheck.run.task import problem_group

from .conftest import bits

FIXED = Runtime(batch=4, progress="none")
HEARTBEAT = 1.5
MUTANTS = (
    (
        "run/sharing.py",
        "if turn is Turn.TAKEN_OVER or not tried",
        "if not tried",
        "test_what_a_dead_process_had_begun_again_is_tried",
    ),
    (
        "run/sharing.py",
        "return place in self._others or place not in self.failed",
        "return False",
        "test_what_failed_elsewhere_meanwhile_is_not_tried_here_as_well",
    ),
    ("run/sharing.py", "if theirs:", "if False:", "test_what_another_has_is_waited_for_and_then_dropped"),
    ("run/history.py", "n + now[", "n + 0 * now[", "test_passes_of_processes_that_overlap_add_up"),
)


def sharing(ready, claims, failed=()) -> Sharing:
    setup, store, parts, _ = ready
    named = {(s.name, s.digest): s for s in setup.data}
    return Sharing(claims, store, {"toy": parts[0].grid}, named, set(failed))


@pytest.fixture
def pair(ready):
    """This process's claims and those of another one."""
    folder = ready[1].folder
    with Claims(folder) as mine, Claims(folder) as other:
        yield mine, other


def compute(ready, works) -> None:
    setup, store, parts, _ = ready
    with Here(resources_of(setup, parts), store) as executor:
        for work in works:
            executor.submit(work)
        list(executor.receipts())


def test_a_work_that_overlaps_with_anothers_is_cut_down(ready, pair):
    mine, other = sharing(ready, pair[0]), sharing(ready, pair[1])
    _, _, _, works = ready
    across = replace(works[0], samples=(*works[0].samples[4:], *works[1].samples[:3]))
    assert other.admit(works[0]) == works[0]
    assert mine.admit(across).samples == works[1].samples[:3]
    assert [work.samples for work in mine.aside] == [works[0].samples[4:]]
    assert mine.admit(works[0]) is None


def test_what_another_has_is_waited_for_and_then_dropped(ready, pair):
    mine, other = sharing(ready, pair[0]), sharing(ready, pair[1])
    setup, store, parts, works = ready
    theirs = other.admit(works[1])
    told = []

    class Shown(Silent):
        def note(self, text: str) -> None:  # only now does the other one finish
            told.append(text)
            compute(ready, [theirs])
            other.release(theirs)

    runner = Runner(setup, FIXED, store, pair[0])
    with Here(resources_of(setup, parts), store) as executor:
        runner.collect(executor, works, Shown(), mine)
    assert told == [f"waiting for 1 chunk under way elsewhere (process {os.getpid()} on {os.uname().nodename})"]
    assert runner.left == 0 and len(list(store.chunks.iterdir())) == len(works)
    assert [work.samples for work in mine.finished] == [works[1].samples]
    assert not [p for p in pair[0].place.iterdir() if not p.name.endswith(".lease")]


def test_what_others_do_when_the_budget_ends_is_left(ready, pair):
    other = sharing(ready, pair[1])
    setup, store, parts, works = ready
    other.admit(works[1])
    runner = Runner(setup, Runtime.of(FIXED, budget=1e9), store, pair[0])
    runner.over_budget = lambda finished: finished > 1
    with Here(resources_of(setup, parts), store) as executor:
        runner.collect(executor, works, Silent(), sharing(ready, pair[0]))
    assert runner.left == 1


def test_what_failed_elsewhere_meanwhile_is_not_tried_here_as_well(make_setup, ready, pair):
    setup, store, parts, works = ready
    mine = sharing(ready, pair[0])
    bad = tuple(ref for ref in works[0].samples[:1])
    grid = parts[0].grid
    failing = replace(works[0], samples=bad, failed=())
    sample = next(s for s in setup.data if s.name == bad[0].name)
    store.commit([problem_group(grid, sample, "failed: on purpose")])
    pair[0].company = True
    assert mine.admit(failing) is None
    before = sharing(ready, pair[0], failed={("toy", bad[0])})
    assert before.admit(failing).samples == bad


def test_what_a_dead_process_had_begun_again_is_tried(ready, pair):
    setup, store, parts, works = ready
    mine = sharing(ready, pair[0])
    one = replace(works[0], samples=works[0].samples[:1])
    sample = next(s for s in setup.data if s.name == one.samples[0].name)
    store.commit([problem_group(parts[0].grid, sample, "failed: on purpose")])
    (pair[0].place / mine.key(one, one.samples[0])).write_text("d" * 16)  # its lease is gone
    admitted = mine.admit(one)
    assert admitted is not None and admitted.resumed


def test_passes_of_processes_that_overlap_add_up(make_setup, tmp_path, monkeypatch):
    """Another process runs from start to end while this one has written down its study and computed nothing yet."""
    setup, out = make_setup(["saliency", "random"], ["sds"], n=8), tmp_path / "r"
    alone = execute(setup, tmp_path / "alone", FIXED).read("run.json")["passes"]
    run = Runner.run
    nested = []

    def while_another_runs(self, parts):
        if not nested:
            nested.append(True)
            execute(setup, out, FIXED)
        run(self, parts)

    monkeypatch.setattr(execution.Runner, "run", while_another_runs)
    store = execute(setup, out, FIXED)
    assert store.read("run.json")["passes"]["forwards"] == alone["forwards"]
    assert store.read("run.json")["finished"] and not (out / "claims").exists()


# -- real processes -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(make_study) -> Path:
    return make_study(64, 'methods = ["saliency", "rise(samples=32)", "random"]\nmetrics = ["sds"]\n')


def start(study: Path, out: Path, workers: int = 1, shard: str | None = None) -> "subprocess.Popen[bytes]":
    """A process that computes the study into a folder, or a shard of it, and writes no report."""
    code = f"""
import heatcheck as hc
study = hc.Study.load({str(study)!r})
hc.Benchmark.from_study(study).run({str(out)!r}, batch=8, workers={workers}, shard={shard!r}, progress="none")
"""
    surroundings = {**os.environ, "HEATCHECK_HEARTBEAT": str(HEARTBEAT)}
    return subprocess.Popen([sys.executable, "-c", code], env=surroundings)


def computed(out: Path) -> tuple[int, int]:
    """How many cells were computed, and how many of them twice."""
    cells: Counter[tuple] = Counter()
    for header in Result.open(out).store.headers.values():
        for group in header["groups"]:
            cells.update((s["digest"], c["method"], c["metric"]) for s in group["samples"] for c in group["scores"])
    return len(cells), cells.total() - len(cells)


@pytest.fixture(scope="module")
def reference(study, tmp_path_factory) -> list[tuple]:
    out = tmp_path_factory.mktemp("reference") / "r"
    assert start(study, out).wait(timeout=300) == 0
    return bits(out)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("processes", "workers"), [(2, 2), (8, 1)])
def test_processes_share_the_work(study, reference, tmp_path, processes, workers):
    out = tmp_path / "r"
    crowd = [start(study, out, workers) for _ in range(processes)]
    assert [process.wait(timeout=500) for process in crowd] == [0] * processes
    assert bits(out) == reference
    total, twice = computed(out)
    assert total == 64 * 3 and twice < 0.05 * total
    assert not (out / "claims").exists()
    assert json.loads((out / "run.json").read_text())["finished"] is True


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_shards_at_the_same_time_in_one_folder(study, reference, tmp_path):
    out = tmp_path / "r"
    crowd = [start(study, out, shard=f"{i}/3") for i in (1, 2, 3)]
    assert [process.wait(timeout=500) for process in crowd] == [0] * 3
    assert bits(out) == reference and computed(out) == (64 * 3, 0)
    record = json.loads((out / "run.json").read_text())
    assert sorted(record["shards"]) == ["1/3", "2/3", "3/3"] and record["finished"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_one_of_several_dies_or_hangs_and_the_others_do_its_work(study, reference, tmp_path, how):
    out = tmp_path / "r"
    crowd = [start(study, out) for _ in range(2)]
    while not list(out.glob("chunks/*.safetensors")):
        time.sleep(0.02)
    os.kill(crowd[0].pid, how)
    assert crowd[1].wait(timeout=300) == 0
    assert bits(out) == reference
    assert computed(out)[1] <= 8 * 3  # what the other one had saved and not given back
    crowd[0].send_signal(signal.SIGCONT)  # one that wakes up again finds everything done
    assert crowd[0].wait(timeout=300) in (0, -signal.SIGKILL)
    assert bits(out) == reference
    assert start(study, out).wait(timeout=300) == 0
    assert not (out / "claims").exists()
