"""Samples that come next are read while the model computes; nothing else depends on it."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from heatcheck.core.types import Inputs, Sample
from heatcheck.run.ahead import Ahead
from heatcheck.run.executors.here import Here
from heatcheck.run.resources import Resources
from heatcheck.run.store import Store
from heatcheck.run.work import SampleRef, Work

MUTANTS = (
    ("run/ahead.py", "waiting.cancel()", "pass", "test_what_was_not_taken_is_forgotten"),
    (
        "run/ahead.py",
        "if coming is not None and not coming.cancel():",
        "if False:",
        "test_what_was_read_ahead_is_not_read_again",
    ),
    ("run/executors/base.py", "max(0, self.workers - 1)", "0", "test_a_work_says_what_comes_next_for_whoever_takes_it"),
)


class Reader:
    """A model that says which thread encodes what."""

    identity = "reader"

    def __init__(self):
        self.read, self.gate = [], threading.Event()
        self.gate.set()

    def encode(self, sample):
        self.gate.wait(10)
        self.read.append((sample.name, threading.current_thread() is threading.main_thread()))
        if sample.content is None:
            raise ValueError("torn")
        return Inputs({"pixels": torch.full((1, 1), float(sample.content))})

    def references(self, sample, x):
        return {"of": sample.name}


@pytest.fixture
def model():
    return Reader()


def samples(*contents):
    return [Sample(f"{i}", f"digest {i}", content) for i, content in enumerate(contents)]


def refs(some):
    return [SampleRef(s.name, s.digest) for s in some]


def test_what_was_read_ahead_is_not_read_again(model):
    some, ahead = samples(3.0, 4.0), Ahead()
    by_name = {s.name: s for s in some}
    ahead.begin(model, refs(some[:1]), lambda ref: by_name[ref.name])
    while not model.read:
        pass
    found = [ahead.take(model, sample) for sample in some]
    assert [float(one.x["pixels"]) for one in found] == [3.0, 4.0]
    assert [one.reference for one in found] == [{"of": "0"}, {"of": "1"}]
    assert model.read == [("0", False), ("1", True)]


def test_what_was_not_taken_is_forgotten(model):
    some, ahead = samples(1.0, 2.0, 3.0), Ahead()
    by_name = {s.name: s for s in some}
    model.gate.clear()
    ahead.begin(model, refs(some[:2]), lambda ref: by_name[ref.name])
    ahead.begin(model, refs(some[2:]), lambda ref: by_name[ref.name])
    model.gate.set()
    assert float(ahead.take(model, some[2]).x["pixels"]) == 3.0
    assert ("1", False) not in model.read and not ahead._coming


def test_a_sample_that_fails_ahead_fails_when_it_is_read(model):
    (torn,), ahead = samples(None), Ahead()
    ahead.begin(model, refs([torn]), lambda ref: torn)
    with pytest.raises(ValueError, match="torn"):
        ahead.take(model, torn)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_work_says_what_comes_next_for_whoever_takes_it(tmp_path, workers):
    executor = Here(Resources(), Store.open(tmp_path / "r", create=True), workers=workers)
    works = [
        Work(model="m", identity="", samples=(SampleRef(f"{i}", f"{i}"),), methods=(), metrics=()) for i in range(4)
    ]
    for work in [*works[:3], replace(works[3], model="other")]:
        executor.submit(work)
    taken = [executor.take() for _ in range(4)]
    names = [[ref.name for ref in work.following] for work in taken]
    assert names == ([["1"], ["2"], [], []] if workers == 1 else [["2"], [], [], []])
    assert taken[:3] == works[:3], "it is the same work all the same"
    assert Work.from_json(taken[0].to_json()).following == taken[0].following


@pytest.mark.parametrize(("device", "ahead"), [("cpu", []), ("cuda", ["1"])])
def test_only_accelerators_have_samples_read_ahead(device, ahead, monkeypatch):
    begun = []
    resources = Resources(models={"m": SimpleNamespace(device=torch.device(device))})
    monkeypatch.setattr(resources.ahead, "begin", lambda model, refs, read: begun.extend(ref.name for ref in refs))
    following = (SampleRef("1", "1"),)
    resources.look_ahead(Work(model="m", identity="", samples=(), methods=(), metrics=(), following=following))
    assert begun == ahead
