"""Samples that come next are read while the model computes; nothing else depends on it."""

import os
import pickle  # noqa: TID251 - what travels between a process and its loaders
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from heatcheck.core.types import HeatcheckError, Inputs, Sample
from heatcheck.models.devices import WORKERS
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel
from heatcheck.run import ahead as reading_ahead
from heatcheck.run import loaders as loading
from heatcheck.run.ahead import Ahead
from heatcheck.run.executors.here import Here
from heatcheck.run.loader import main
from heatcheck.run.loaders import Loaders, encoded, loader_count
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
    ("run/ahead.py", "promise.cancel()", "pass", "test_loaders_leave_out_what_was_forgotten"),
    (
        "run/loaders.py",
        "self._lost = True",
        "pass",
        "test_when_a_loader_dies_its_samples_are_read_here_and_the_rest_by_the_thread",
    ),
    (
        "models/torch_model.py",
        "Released(self.name, CPU, self.dtype), CPU",
        "self._network, CPU",
        "test_a_reader_takes_no_weights_along",
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

    def reader(self):
        return None


@pytest.fixture
def model():
    return Reader()


def samples(*contents):
    return [Sample(f"{i}", f"digest {i}", content) for i, content in enumerate(contents)]


def refs(some):
    return [SampleRef(s.name, s.digest) for s in some]


def settle(ahead):
    """Wait until the thread has done all that it was given so far."""
    ahead._reader.submit(lambda: None).result(10)


def test_what_was_read_ahead_is_not_read_again(model):
    some, ahead = samples(3.0, 4.0), Ahead()
    by_name = {s.name: s for s in some}
    ahead.begin(model, refs(some[:1]), lambda ref: by_name[ref.name])
    settle(ahead)
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
    settle(ahead)
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


# -- loader processes ----------------------------------------------------------------------------------------------


class Beside:
    """A loader that is a thread of this process, at the other end of real pipes."""

    def __init__(self):
        (task_out, task_in), (reply_out, reply_in) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(task_in, "wb"), os.fdopen(reply_out, "rb")
        self._thread = threading.Thread(target=self._serve, args=(os.fdopen(task_out, "rb"), os.fdopen(reply_in, "wb")))
        self._thread.start()

    def _serve(self, inp, out):
        with suppress(EOFError, OSError), inp, out:
            main(inp, out)

    def kill(self):
        self.stdin.close()

    def wait(self):
        self._thread.join(10)


@pytest.fixture
def loaders():
    made = Loaders(1, Beside)
    yield made
    made.close()


@pytest.fixture
def vision():
    preprocess = Preprocess(mean=(0.5,) * 3, std=(0.25,) * 3, size=8)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 1000).double())
    return VisionModel(network, "net", preprocess=preprocess, classes=tuple("abc"))


def pictures(n):
    rng = np.random.default_rng(0)
    boxes = {"boxes": [[2, 2, 9, 9]]}
    return [Sample(f"{i}", f"digest {i}", rng.integers(0, 255, (12, 12, 3), np.uint8), 0, boxes) for i in range(n)]


def started(loaders, model):
    """Loaders that have the model's reading part."""
    loaders.read(model, pictures(1)[0])
    wait(loaders._readings[model.identity].tried, 10)
    return loaders


def same(one, other):
    return torch.equal(one.x["pixels"], other.x["pixels"]) and torch.equal(
        one.reference["mask"], other.reference["mask"]
    )


def test_a_reader_takes_no_weights_along(vision):
    travels = pickle.dumps(vision.reader())
    assert len(travels) < 20_000 < vision.module()[1].weight.nbytes
    there, sample = pickle.loads(travels), pictures(1)[0]
    assert (
        same(encoded(there, sample), encoded(vision, sample)) and there.encode(sample)["pixels"].dtype == torch.double
    )
    with pytest.raises(HeatcheckError, match="weights were let go"):
        there.logits(there.encode(sample))
    assert not vision.released and vision.classes


def test_loaders_decode_and_the_model_gets_the_same(vision, loaders, monkeypatch):
    some, ahead = pictures(3), Ahead(started(loaders, vision))
    expected = [encoded(vision, sample) for sample in some]
    monkeypatch.setattr(reading_ahead, "encoded", lambda *_: pytest.fail("decoded in this process"))
    ahead.begin(vision, refs(some), lambda ref: some[int(ref.name)])
    settle(ahead)
    assert all(same(ahead.take(vision, sample), right) for sample, right in zip(some, expected, strict=True))


def test_until_loaders_have_started_the_thread_reads(vision):
    gate, sample = threading.Event(), pictures(1)[0]
    loaders = Loaders(1, lambda: gate.wait(10) and Beside())
    assert loaders.read(vision, sample) is None
    gate.set()
    assert same(started(loaders, vision).read(vision, sample).result(10), encoded(vision, sample))
    loaders.close()


def test_what_cannot_be_sent_the_thread_reads(vision, loaders):
    class Own(VisionModel):
        def encode(self, sample):
            return super().encode(sample)

    sample, own = pictures(1)[0], Own(vision.module(), "own")
    assert own.reader() is None and loaders.read(own, sample) is None and not loaders._running
    started(loaders, vision)
    assert loaders.read(vision, replace(sample, content=lambda: None)) is None
    assert loaders.read(vision, replace(sample, content=torch.rand(1, 3, 8, 8))) is None


def test_when_a_loader_dies_its_samples_are_read_here_and_the_rest_by_the_thread(vision, loaders):
    some, ahead = pictures(2), Ahead(started(loaders, vision))
    loaders._running[0].kill()
    for _ in range(2):
        ahead.begin(vision, refs(some), lambda ref: some[int(ref.name)])
        settle(ahead)
        assert all(same(ahead.take(vision, sample), encoded(vision, sample)) for sample in some)
    assert loaders.read(vision, some[0]) is None and not loaders.close.alive


def test_loaders_leave_out_what_was_forgotten(vision, loaders, monkeypatch):
    gate, begun, asked = threading.Event(), threading.Event(), []
    some, ahead = pictures(3), Ahead(started(loaders, vision))

    def held(reader, sample):
        asked.append(pickle.loads(sample).name)
        begun.set()
        gate.wait(10)
        return asking(loaders, reader, sample)

    asking = Loaders._ask
    monkeypatch.setattr(loaders, "_ask", held)
    ahead.begin(vision, refs(some[:2]), lambda ref: some[int(ref.name)])
    settle(ahead)
    assert begun.wait(10)
    ahead.begin(vision, refs(some[2:]), lambda ref: some[int(ref.name)])
    settle(ahead)
    gate.set()
    assert same(ahead.take(vision, some[2]), encoded(vision, some[2])) and asked == ["0", "2"]


def test_a_sample_that_a_loader_cannot_read_fails_here(vision, loaders):
    torn, ahead = Sample("0", "digest 0", Path("nowhere.png")), Ahead(started(loaders, vision))
    ahead.begin(vision, refs([torn]), lambda ref: torn)
    settle(ahead)
    with pytest.raises(Exception, match=r"nowhere\.png"):
        ahead.take(vision, torn)
    assert not loaders._lost


@pytest.mark.parametrize(("cores", "workers", "count"), [(1, 1, 1), (8, 1, 4), (8, 4, 2), (8, 16, 1)])
def test_workers_share_the_cores_for_their_loaders(cores, workers, count, monkeypatch):
    monkeypatch.setattr(loading.os, "cpu_count", lambda: cores)
    monkeypatch.setenv(WORKERS, str(workers))
    assert loader_count() == count


SCRIPT = """
import os, signal, sys, time
print("begun", flush=True)
import torch
from concurrent.futures import wait
from heatcheck.core.types import Sample
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.vision import VisionModel
from heatcheck.run.ahead import Ahead
from heatcheck.run.loaders import Loaders, encoded
from heatcheck.run.work import SampleRef
from pathlib import Path

network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
model = VisionModel(network, "net", preprocess=Preprocess(mean=(0.5,) * 3, std=(0.25,) * 3, size=8))
samples = [Sample(str(i), str(i), Path(sys.argv[1])) for i in range(6)]
loaders = Loaders(2)
ahead = Ahead(loaders)

def read():
    ahead.begin(model, [SampleRef(s.name, s.digest) for s in samples], lambda ref: samples[int(ref.name)])
    return [ahead.take(model, s).x["pixels"] for s in samples]

read()
wait(loaders._readings[model.identity].tried)
right = encoded(model, samples[0]).x["pixels"]
assert loaders.read(model, samples[0]) is not None and all(torch.equal(x, right) for x in read())
pids = [p.pid for p in loaders._running]
print(*pids, flush=True)
if sys.argv[2] == "loader":
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    assert all(torch.equal(x, right) for x in read()) and not loaders._lost
    os.kill(pids[0], signal.SIGTERM)
    deadline = time.monotonic() + 30  # it is noticed when a sample falls to it, and this process takes some itself
    while not loaders._lost and time.monotonic() < deadline:
        assert all(torch.equal(x, right) for x in read())
    assert loaders._lost and all(torch.equal(x, right) for x in read())
elif sys.argv[2] == "parent":
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["parent", "loader", "nobody"])
def test_real_loaders_read_end_with_their_parent_and_say_nothing(tmp_path, killed):
    """They are started by a script whose main module must not be run again."""
    picture, script = tmp_path / "a.png", tmp_path / "script.py"
    Image.fromarray(pictures(1)[0].content).save(picture)
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(picture), killed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        pids = [int(pid) for pid in process.stdout.readline().split()]
        if killed == "parent":
            process.send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if killed == "parent" else 0), err
    assert len(pids) == 2 and not out and not err
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
