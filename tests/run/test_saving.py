"""Kill it any time: finished cells are saved by the clock, and a resumed run computes only what is missing."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import heatcheck as hc
from heatcheck.api.result import Result
from heatcheck.core import catalogue
from heatcheck.core.types import Scores
from heatcheck.metrics.base import Metric, metric
from heatcheck.run.execution import execute
from heatcheck.run.expected import Effort
from heatcheck.run.pace import PORTION, SAVE, Pace
from heatcheck.run.packing import map_row, score_row
from heatcheck.run.runtime import Runtime
from heatcheck.run.store import Store

FIXED = Runtime(progress="none", batch=4)
KEY = ["sample", "method", "metric"]
MUTANTS = (
    ("run/chunk.py", "now() - self._saved >= SAVE:", "False:", "test_at_most_a_minute_of_a_slow_chunk_is_lost"),
    (
        "run/pace.py",
        "else max(1, int(self.portion / each))",
        "else left",
        "test_at_most_a_minute_of_a_slow_chunk_is_lost",
    ),
    (
        "run/task.py",
        "if not self.finished.keeps_maps and now() - start >= self.session.pace.portion:",
        "if False:",
        "test_a_killed_chunk_is_continued_where_it_was",
    ),
    (
        "run/task.py",
        "if not self.lacks(method, record):",
        "if False:",
        "test_a_killed_chunk_is_continued_where_it_was",
    ),
)


NO_CLAIMS = shutil.ignore_patterns("claims")
"""The process whose folder is copied lives on, so that its claims would be waited for."""


class Clock:
    """A clock that goes on only when the toys below work; it looks at the disk before each cell of theirs."""

    def __init__(self) -> None:
        self.time = 0.0
        self.calls: Counter[str] = Counter()
        self.killed = 0.0
        self.look: Callable[[], None] = lambda: None

    def work(self, what: str, seconds: float) -> None:
        self.look()
        self.time += seconds
        self.calls[what] += 1


CLOCK = Clock()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    CLOCK.__init__()  # type: ignore[misc]
    for module in ("pace", "chunk", "task"):
        monkeypatch.setattr(f"heatcheck.run.{module}.now", lambda: CLOCK.time)
    monkeypatch.setattr("heatcheck.run.expected.Expected.of", lambda *_: Effort())  # which counts a function's passes
    return CLOCK


def key_of(x: torch.Tensor) -> str:
    return f"{float(x.double().sum()):.9f}"


def takes_25_seconds(model: Any, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    for one in x:
        CLOCK.work(f"map {key_of(one)}", 25.0)
    return x


def takes_3_seconds(model: Any, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    for one in x:
        CLOCK.work(f"quick map {key_of(one)}", 3.0)
    return x.abs()


@pytest.fixture(autouse=True, scope="module")
def _declared() -> Iterator[None]:
    """The toys exist while this file is tested, so that tests of every component there is do not meet them."""
    before = dict(catalogue._own)
    hc.method("takes_25_seconds", uses=())(takes_25_seconds)
    hc.method("takes_3_seconds", uses=())(takes_3_seconds)
    metric("takes_12_seconds", better="higher")(Takes12Seconds)
    yield
    catalogue._own.clear()
    catalogue._own.update(before)


class Takes12Seconds(Metric):
    """A metric that takes 12 seconds for each map."""

    def score(self, probe: Any, batch: Any, maps: Any) -> Scores:
        value = maps.sites().double().mean(-1)
        for m in range(len(maps)):
            for i in range(len(batch)):
                CLOCK.work(f"score {maps.methods[m]} {key_of(batch.x.take(torch.tensor([i])).tensors['pixels'])}", 12.0)
        return Scores(value)


METHODS = ["takes_25_seconds", "takes_3_seconds", "saliency"]
METRICS = ["takes_12_seconds", "sds"]


def saved_cells(out: Path) -> set[tuple[str, ...]]:
    store = Store.open(out, create=True)
    groups = [group for header in store.headers.values() for group in header["groups"]]
    maps = {(c["method"], map_row(s)) for g in groups for c in g["maps"] for s in g["samples"]}
    return maps | {(c["method"], c["metric"], score_row(s)) for g in groups for c in g["scores"] for s in g["samples"]}


@pytest.mark.parametrize("maps", ["keep", "none"])
def test_at_most_a_minute_of_a_slow_chunk_is_lost(make_setup, tmp_path, clock, maps):
    """Before every cell the disk is looked at: it never lacks more than a minute of finished work."""
    out = tmp_path / "r"
    changes: list[tuple[float, int]] = []

    def look() -> None:
        n = len(list((out / "chunks").iterdir()))
        if not changes or changes[-1][1] != n:
            changes.append((clock.time, n))
        assert clock.time - changes[-1][0] <= 60 + 12 * (maps == "none")

    clock.look = look
    result = Result(execute(make_setup(METHODS, METRICS, n=8), out, Runtime.of(FIXED, maps=maps)))
    assert set(result.scores()["status"]) == {"ok"}
    files = len(list((out / "chunks").iterdir()))
    assert clock.time == 8 * (25 + 3 + 3 * 12)
    assert 3 < files <= clock.time / SAVE + 1


@pytest.mark.parametrize("maps", ["keep", "none"])
@pytest.mark.parametrize("killed_at", [1, 7, 15, 23, 36])
def test_a_killed_chunk_is_continued_where_it_was(make_setup, tmp_path, clock, killed_at, maps):
    runtime = Runtime.of(FIXED, maps=maps)
    counted = 0

    def look() -> None:
        nonlocal counted
        counted += 1
        if counted == killed_at:
            shutil.copytree(tmp_path / "whole", tmp_path / "killed", ignore=NO_CLAIMS)
            clock.killed = clock.time

    clock.look = look
    whole = Result(execute(make_setup(METHODS, METRICS, n=8), tmp_path / "whole", runtime)).scores()
    saved, total = saved_cells(tmp_path / "killed"), clock.time
    clock.look, before = (lambda: None), clock.calls.copy()
    clock.calls.clear()
    again = Result(execute(make_setup(METHODS, METRICS, n=8), tmp_path / "killed", runtime)).scores()
    assert again.select(*KEY, "score", "status").equals(whole.select(*KEY, "score", "status"))
    assert max(before.values()) == 1
    assert clock.killed + (clock.time - total) - total <= 60 + 25 * (maps == "none"), "what was lost"
    quick, slow, scores = (
        sum(v for k, v in clock.calls.items() if k.startswith(kind)) for kind in ("quick map", "map", "score")
    )
    metric_digest = Store.open(tmp_path / "whole").read("run.json")["models"][0]["metrics"][0]["digest"]
    assert scores == 24 - sum(len(cell) == 3 and cell[1] == metric_digest for cell in saved)
    if maps == "keep":
        methods = [m["digest"] for m in Store.open(tmp_path / "whole").read("run.json")["models"][0]["methods"]]
        kept = Counter(cell[0] for cell in saved if len(cell) == 2)
        assert (slow, quick) == (8 - kept[methods[0]], 8 - kept[methods[1]])


def test_an_interrupted_chunk_keeps_what_is_finished(make_setup, tmp_path, clock):
    def look() -> None:
        if sum(clock.calls.values()) == 11:
            raise KeyboardInterrupt

    clock.look = look
    with pytest.raises(KeyboardInterrupt):
        execute(make_setup(METHODS, METRICS, n=8), tmp_path / "r", FIXED)
    assert len([cell for cell in saved_cells(tmp_path / "r") if len(cell) == 2]) >= 9
    clock.look = lambda: None
    execute(make_setup(METHODS, METRICS, n=8), tmp_path / "r", FIXED)
    assert {n for what, n in clock.calls.items() if what.startswith("map")} == {1}


def test_a_quick_chunk_is_one_file_with_one_group(make_setup, tmp_path):
    store = execute(make_setup(["saliency", "random"], ["sds"], n=8), tmp_path / "r", FIXED)
    (header,) = store.headers.values()
    assert [len(group["samples"]) for group in header["groups"]] == [8]


def test_portions_grow_and_shrink_with_what_was_measured():
    pace = Pace()
    assert pace.samples("a", 8, None) == 1
    assert pace.samples("a", 8, 0.01) == 8
    assert pace.samples("a", 8, 1.0) == 1
    pace.note("a", 2, 2 * PORTION / 3)
    assert pace.samples("a", 8, None) == 3
    pace.note("a", 1, 10 * PORTION)
    assert pace.samples("a", 8, None) == 1
    assert replace(pace, alone=True).samples("quick", 8, 0.0) == 1


def test_methods_are_taken_two_by_two_as_long_as_that_is_quick():
    pace = Pace()
    assert [pace.next_size(2, took) for took in (0.1, PORTION / 2, PORTION)] == [4, 4, 1]
    assert replace(pace, alone=True).next_size(4, 0.1) == 1


def test_scores_of_a_slow_chunk_are_those_of_a_quick_one(make_setup, tmp_path, monkeypatch):
    """In portions of one cell, and saved after each: not a bit is different."""
    plain = Result(execute(make_setup(n=6), tmp_path / "plain", FIXED)).scores()
    monkeypatch.setattr("heatcheck.run.chunk.SAVE", 0.0)
    monkeypatch.setattr("heatcheck.run.task.PORTION", 0.0)
    monkeypatch.setattr("heatcheck.run.pace.SURE", -1.0)
    store = execute(make_setup(n=6), tmp_path / "slow", FIXED)
    assert len(store.headers) > 6 * 5
    slow = Result(store).scores()
    assert slow.select(*KEY, "score", "status").equals(plain.select(*KEY, "score", "status"))
    assert slow.filter(pl.col("seconds").is_null()).is_empty()
