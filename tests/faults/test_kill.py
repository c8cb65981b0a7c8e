"""`heatcheck run` killed at random moments, then run again: bit-equal scores, finished chunks never redone."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heatcheck.api.result import Result

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
KILLS = 20


@pytest.fixture(scope="module")
def study(make_study) -> Path:
    return make_study(
        24,
        """
methods = ["saliency", "smoothgrad(samples=2)", "occlusion", "rise(samples=24)", "random"]
metrics = ["sds", "morf(steps=4)", "infidelity(samples=16)"]
""",
    )


def command(study: Path, out: Path, *extra: str) -> list[str]:
    line = [sys.executable, "-m", "heatcheck", "run", str(study), "--out", str(out), "--batch", "8", "--quiet"]
    return [*line, *extra]


def finish(study: Path, out: Path, *extra: str) -> Result:
    done = subprocess.run(command(study, out, *extra), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return Result.open(out)


def bits(result: Result) -> list[tuple]:
    return (
        result.scores()
        .select("sample", "method", "metric", "score", "status")
        .sort("sample", "method", "metric")
        .rows()
    )


def cells_per_chunk(out: Path) -> list[frozenset]:
    headers = Result.open(out).store.headers.values()
    return [
        frozenset(
            (s["digest"], c["method"], c["metric"]) for g in h["groups"] for s in g["samples"] for c in g["scores"]
        )
        for h in headers
    ]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_random_kills_change_nothing_and_cost_at_most_the_chunk_in_flight(study, tmp_path, workers):
    start = time.monotonic()
    reference = finish(study, tmp_path / "reference", "--workers", workers)
    length = time.monotonic() - start
    chance = random.Random(0)
    kills, round_number = 0, 0
    while kills < KILLS // 2:
        out = tmp_path / f"killed{round_number}"
        round_number += 1
        before = kills
        while kills < KILLS // 2:
            began = time.monotonic()
            child = subprocess.Popen(
                command(study, out, "--workers", workers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                child.wait(timeout=chance.uniform(0.2, 1.0) * length)
                assert child.returncode == 0
                if kills == before:  # a whole run is shorter than thought, so kill the next ones earlier
                    length = min(length, time.monotonic() - began)
                break
            except subprocess.TimeoutExpired:
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
                kills += 1
        again = finish(study, out, "--workers", workers)
        assert bits(again) == bits(reference)
        chunks = cells_per_chunk(out)
        assert sum(len(c) for c in chunks) == len(frozenset().union(*chunks))
        assert not list(out.glob("**/.tmp-*"))


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_exits_130_and_goes_on_later(study, tmp_path, sign):
    out = tmp_path / "r"
    child = subprocess.Popen(command(study, out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("chunks/*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(sign)
    stopped = time.monotonic()
    _, told = child.communicate(timeout=60)
    assert time.monotonic() - stopped < 10
    assert child.returncode == 130, told
    assert "again" in told
    assert not list(out.glob("**/.tmp-*"))
    assert set(finish(study, out).scores()["status"]) == {"ok"}


def test_a_killed_worker_is_replaced_and_its_chunk_done_again(study, tmp_path):
    reference = finish(study, tmp_path / "reference")
    out = tmp_path / "r"
    child = subprocess.Popen(
        command(study, out, "--workers", "2"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    victims: list[int] = []
    while not victims and time.monotonic() < deadline:
        time.sleep(0.2)
        listed = subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True).stdout.split()
        victims = [int(p) for p in listed]
    os.kill(victims[0], signal.SIGKILL)
    assert child.wait(timeout=300) == 0
    assert bits(Result.open(out)) == bits(reference)


def test_several_processes_on_one_folder_do_not_hurt_each_other(study, tmp_path):
    reference = finish(study, tmp_path / "reference")
    out = tmp_path / "r"
    crowd = [
        subprocess.Popen(command(study, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(3)
    ]
    assert [c.wait(timeout=600) for c in crowd] == [0, 0, 0]
    assert bits(Result.open(out)) == bits(reference)
    assert json.loads((out / "run.json").read_text())["finished"] is True
