"""The same study on Ray: bit-equal scores, whatever is killed, and whoever writes the chunks.

The tests marked slow share one cluster of three nodes.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.api.benchmark import Benchmark
from heatcheck.api.result import Result
from heatcheck.api.study import Study
from heatcheck.core import catalogue
from heatcheck.core.progress import Silent
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError
from heatcheck.run.execution import execute
from heatcheck.run.executors import cluster as clusters
from heatcheck.run.executors.parcels import packed
from heatcheck.run.executors.ray import Ray, death_of
from heatcheck.run.executors.ray_worker import Outbox, reaches
from heatcheck.run.runtime import Runtime

MUTANTS = (
    ("run/executors/ray_worker.py", "if n > confirmed", "if n > self._sent", "test_messages_are_kept_until_confirmed"),
    (
        "run/executors/ray_worker.py",
        "if (folder / name).read_text() != content:",
        "if not (folder / name).exists():",
        "test_a_folder_is_reached_only_if_it_is_the_same",
    ),
    ("run/executors/cluster.py", "signal.signal(number, handler)", "pass", "test_signal_handlers_are_kept"),
    (
        "run/executors/cluster.py",
        'node.get("CPU", 0) // cpus',
        'node.get("CPU", 0)',
        "test_room_is_counted_node_by_node",
    ),
)


# -- without a cluster ------------------------------------------------------------------------------------------------


def test_messages_are_kept_until_confirmed():
    box = Outbox()
    box.put({"tick": 2})
    box.put({"tick": 3})
    box.put({"begin": ("a",)})
    last, found = box.fetch(0)
    assert found == [{"tick": 5}, {"begin": ("a",)}]
    box.put({"spent": {}})
    assert box.fetch(0) == (last + 1, [*found, {"spent": {}}])  # the first answer was lost on its way
    box.put({"tick": 1})
    assert box.fetch(last + 1)[1] == [{"tick": 1}]


def test_a_message_that_must_arrive_is_waited_for():
    box = Outbox()
    order = []
    teller = threading.Thread(target=lambda: (box.put_and_wait({"begin": ("a",)}), order.append("told")))
    teller.start()
    last, _ = box.fetch(0)
    order.append("fetched")
    box.put({"tick": 1})
    box.fetch(last)
    teller.join()
    assert order == ["fetched", "told"]


def test_a_folder_is_reached_only_if_it_is_the_same(tmp_path):
    (tmp_path / "name").write_text("content")
    assert reaches(tmp_path, ("name", "content"))
    assert not reaches(tmp_path, ("name", "other"))
    assert not reaches(tmp_path, ("gone", "content"))
    assert [path.name for path in tmp_path.iterdir()] == ["name"]


def test_an_address_where_nothing_answers_is_told_before_anything_is_loaded(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(HeatcheckError, match=rf"no Ray cluster answers at ray://127.0.0.1:{port}: .*ray start --head"):
        Benchmark(models=nn.Flatten(), data=torch.rand(2, 3, 8, 8)).run(tmp_path / "r", on=f"ray://127.0.0.1:{port}")
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(HeatcheckError, match=rf"127.0.0.1:{port} \(from RAY_ADDRESS\)"):
        clusters.check_cluster("ray")


def test_missing_ray_is_told_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(HeatcheckError, match=r'on=\'ray\' needs ray.*: pip install "heatcheck\[cluster\]"'):
        clusters.check_cluster("ray")


def test_signal_handlers_are_kept():
    before = signal.getsignal(signal.SIGTERM)
    with clusters.signals_kept():
        signal.signal(signal.SIGTERM, lambda *_: None)
    assert signal.getsignal(signal.SIGTERM) is before


def test_room_is_counted_node_by_node():
    def ray(*nodes):
        return SimpleNamespace(nodes=lambda: [{"Alive": True, "Resources": node} for node in nodes])

    three = ray({"CPU": 3.0}, {"CPU": 3.0, "GPU": 1.0}, {"memory": 1.0})
    assert clusters.room(three, 1, 0.0) == 6 and clusters.room(three, 2, 0.0) == 2
    assert clusters.room(three, 1, 1.0) == 1 and clusters.room(three, 1, 0.5) == 2
    with pytest.raises(HeatcheckError, match="no node of the Ray cluster has room for a worker of 1 CPUs and 2 GPUs"):
        clusters.room(three, 1, 2.0)


def test_a_lost_node_is_told_from_a_dead_process():
    assert not death_of(RuntimeError("The actor died because its node has died. Node Id: 1")).blame
    assert death_of(RuntimeError("The actor is dead because its worker process has died. Node ID: 1")).blame


def test_what_cannot_be_pickled_is_told():
    with pytest.raises(HeatcheckError, match=r"the thing cannot be sent to Ray's workers: .*pickle"):
        packed(threading.Lock(), "the thing")


def test_gpus_are_for_ray_and_a_device_is_any():
    assert Runtime.of(on="ray", gpus=0.5).gpus == 0.5
    with pytest.raises(SpecError, match=r"gpus = 0\.5 is for workers on Ray"):
        Runtime.of(on="processes", gpus=0.5)
    assert Runtime.of(on="ray", device="cuda").device == "cuda"
    with pytest.raises(SpecError, match=r"device = 'cuda:1' on Ray: .* write cuda"):
        Runtime.of(on="ray", device="cuda:1")


# -- one shared cluster -----------------------------------------------------------------------------------------------

SMALL = {"num_cpus": 1, "object_store_memory": 100 << 20}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def cluster():
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with clusters.signals_kept():
        made = Cluster(initialize_head=True, head_node_args={**SMALL, "include_dashboard": False})
        made.nodes = [made.add_node(**SMALL), made.add_node(**SMALL)]
        ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    assert {number: signal.getsignal(number) for number in before} == before
    yield made
    with clusters.signals_kept():
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def study(make_study) -> Path:
    return make_study(
        18,
        """
methods = ["saliency", "rise(samples=24)", "random"]
metrics = ["sds", "morf(steps=4)"]
""",
    )


def run(study: Path, out: Path, **options) -> Result:
    loaded = Study.load(study)
    return Benchmark.from_study(loaded).run(out, runtime=Runtime.of(batch=8, **{"progress": "none", **options}))


def bits(result: Result) -> list[tuple]:
    columns = ("sample", "method", "metric", "score", "status")
    return result.scores().select(*columns).sort(*columns[:3]).rows()


@pytest.fixture(scope="module")
def reference(study, tmp_path_factory) -> list[tuple]:
    return bits(run(study, tmp_path_factory.mktemp("here") / "r"))


class Watching(Silent):
    """Keeps notes, and calls something once, when so many passes were made."""

    def __init__(self, passes: int = 0, then=None) -> None:
        self.notes: list[str] = []
        self.passes, self.after, self.then = 0, passes, then

    def advance(self, passes: int) -> None:
        self.passes += passes
        if self.then is not None and self.passes >= self.after:
            then, self.then = self.then, None
            then()

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.slow
def test_here_processes_and_ray_agree_to_the_bit(cluster, study, reference, tmp_path):
    told = Watching()
    first = run(study, tmp_path / "ray", on="ray", progress=told)
    assert bits(first) == reference
    assert bits(run(study, tmp_path / "processes", on="processes:2")) == reference
    assert told.passes == first.facts["passes"]["forwards"] + first.facts["passes"]["backwards"] > 0
    assert not [note for note in told.notes if "Ray" in note]  # nothing had to travel
    assert not list(tmp_path.glob("ray/.tmp-*"))


@pytest.mark.slow
def test_a_node_that_is_killed_changes_nothing(cluster, study, reference, tmp_path):
    def kill() -> None:
        with clusters.signals_kept():
            cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)

    told = Watching(100, kill)
    try:
        assert bits(run(study, tmp_path / "r", on="ray", workers=3, progress=told)) == reference
        assert told.then is None and len(cluster.nodes) == 1
    finally:
        with clusters.signals_kept():
            cluster.nodes.append(cluster.add_node(**SMALL))


@pytest.mark.slow
def test_chunks_come_back_where_the_folder_cannot_be_reached(cluster, study, reference, tmp_path, monkeypatch):
    monkeypatch.setattr(Ray, "_write_token", lambda self: ("absent", "content"))
    told = Watching()
    few = Study.load(study, metrics=["sds"])
    Benchmark.from_study(few).run(tmp_path / "r", runtime=Runtime(batch=8, on="ray", workers=1, progress=told))
    assert any("chunks come back and are written here" in note for note in told.notes)
    before = Result.open(tmp_path / "r").facts["passes"]
    result = run(study, tmp_path / "r", on="ray", workers=1)
    assert bits(result) == reference
    assert result.facts["passes"]["backwards"] == before["backwards"]  # maps that were known travelled to the workers


@pytest.mark.slow
def test_what_workers_cannot_read_travels(cluster, study, reference, tmp_path):
    setup = Benchmark.from_study(Study.load(study)).setup()
    gone = {label: "timm:test_resnet@/gone/weights.safetensors" for label in setup.sources.models}
    told = Watching()
    runtime = Runtime(batch=8, on="ray", workers=1, progress=told)
    elsewhere = replace(setup, sources=replace(setup.sources, models=gone, data="folder:/gone"))
    assert bits(Result(execute(elsewhere, tmp_path / "r", runtime))) == reference
    assert {note.partition(" from here")[0] for note in told.notes} >= {
        "workers on Ray get the samples",
        "workers on Ray get the weights",
    }


DEADLY = 50.0


class Own(nn.Module):
    """A module of this file, which workers cannot import."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(
                nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 5)
            )

    def forward(self, x):
        return self.net(x)


def own_gradient(model, x, target):
    """The gradient, but not of pictures that are too bright or too dark."""
    if float(x.detach().max()) > DEADLY:
        os._exit(7)
    if float(x.detach().min()) < -4 * DEADLY:
        time.sleep(600)
    if float(x.detach().min()) < -3 * DEADLY:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if float(x.detach().min()) < -DEADLY:
        raise ValueError("too dark")
    x = x.detach().requires_grad_()
    return torch.autograd.grad(model(x).gather(1, target[:, None]).sum(), x)[0]


@pytest.fixture
def own_study():
    declared = hc.method("own_gradient")(own_gradient)
    yield lambda x: Benchmark(models={"own": Own()}, data=x, methods=[declared, "saliency"], metrics=["sds"])
    catalogue._own.pop(("method", "own_gradient"))


@pytest.mark.slow
def test_objects_work_on_ray_and_errors_are_statuses(cluster, own_study, tmp_path):
    x = torch.randn(20, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    x[12, 0, 0, 0] = -2 * DEADLY
    bench, told = own_study(x), Watching()
    here = bench.run(tmp_path / "here", batch=4, progress="none")
    there = bench.run(tmp_path / "ray", batch=4, on="ray", workers=2, progress=told)
    assert bits(there) == bits(here)
    statuses = {row[1]: row[4] for row in bits(there) if row[0] == "00012"}
    assert "too dark" in statuses.pop("own_gradient") and set(statuses.values()) == {"ok"}
    assert any("pickles" in note for note in told.notes)


@pytest.mark.slow
def test_a_cell_that_ends_its_process_is_named(cluster, own_study, tmp_path):
    x = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    x[5, 0, 0, 0] = 2 * DEADLY
    result = own_study(x).run(tmp_path / "r", batch=4, on="ray", workers=1, progress="none")
    failed = [(row[0], row[1], row[4]) for row in bits(result) if row[4] != "ok"]
    assert failed == [("00005", "own_gradient", "failed: the process ended while it was computed (its process died)")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cell_that_takes_too_long_is_named(cluster, own_study, tmp_path):
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    x[3, 0, 0, 0] = -5 * DEADLY
    result = own_study(x).run(tmp_path / "r", batch=4, on="ray", workers=1, timeout="4s", progress="none")
    failed = [(row[0], row[1], row[4]) for row in bits(result) if row[4] != "ok"]
    assert [one[:2] for one in failed] == [("00003", "own_gradient")] and "4 s" in failed[0][2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_gpu_that_fails_ends_its_worker_and_the_rest_is_computed(cluster, own_study, tmp_path):
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    x[3, 0, 0, 0] = -3.5 * DEADLY
    result = own_study(x).run(tmp_path / "r", batch=4, on="ray", workers=1, progress="none")
    failed = [(row[0], row[1], row[4]) for row in bits(result) if row[4] != "ok"]
    assert failed == [("00003", "own_gradient", "failed: the process ended while it was computed (its GPU failed)")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_is_joined_from_outside(cluster, study, reference, tmp_path):
    port = free_port()
    place = ["--address", cluster.address, "--host", "127.0.0.1", "--port", str(port), "--mode", "proxy"]
    server = subprocess.Popen([sys.executable, "-m", "ray.util.client.server", *place])
    try:
        until(lambda: answers(port))
        line = command(study, tmp_path / "r", "--on", f"ray://127.0.0.1:{port}", "--workers", "1")
        for _ in range(3):  # the process that serves a client has 30 seconds to begin, too few on a busy machine
            done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=200)
            if done.returncode == 0:
                break
    finally:
        server.kill()
        server.wait()
    assert done.returncode == 0, done.stderr
    assert bits(Result.open(tmp_path / "r")) == reference


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_a_budget_ends_a_run_that_goes_on_later(cluster, study, reference, tmp_path):
    told = Watching()
    first = run(study, tmp_path / "r", on="ray", workers=1, budget=0.1, progress=told)
    assert not first.facts["finished"] and any("chunks are left" in note for note in told.notes)
    assert bits(run(study, tmp_path / "r", on="ray", workers=1)) == reference


def command(study: Path, out: Path, *extra: str) -> list[str]:
    line = [sys.executable, "-m", "heatcheck", "run", str(study), "--out", str(out), "--batch", "8", "--quiet"]
    return [*line, *extra]


def until(condition, seconds: float = 240.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.1)


@pytest.mark.slow
def test_a_killed_driver_leaves_no_workers_and_the_run_goes_on(cluster, study, reference, tmp_path):
    import ray

    joined = {**os.environ, "RAY_ADDRESS": cluster.address}
    child = subprocess.Popen(command(study, tmp_path / "r", "--on", "ray", "--workers", "1"), env=joined)
    until(lambda: list(tmp_path.glob("r/chunks/*.safetensors")))
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    until(lambda: ray.available_resources().get("CPU") == 3)
    assert bits(run(study, tmp_path / "r", on="ray", workers=1)) == reference


@pytest.mark.slow
def test_an_own_cluster_ends_with_its_run(study, reference, tmp_path):
    marked = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"} | {"HEATCHECK_TEST_MARK": str(tmp_path)}
    line = command(study, tmp_path / "r", "--on", "ray", "--workers", "1")
    child = subprocess.Popen(line, env=marked, stderr=subprocess.PIPE, text=True)
    until(lambda: list(tmp_path.glob("r/chunks/*.safetensors")))
    assert len(marked_processes(tmp_path)) > 3
    child.send_signal(signal.SIGTERM)
    _, told = child.communicate(timeout=60)
    assert child.returncode == 130 and "run the same command again to continue" in told, told
    until(lambda: not marked_processes(tmp_path), 30)
    assert bits(run(study, tmp_path / "r")) == reference


def marked_processes(mark: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HEATCHECK_TEST_MARK") == str(mark) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
