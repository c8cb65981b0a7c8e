"""Models and methods that end the process, hang or raise on one picture: they cost that picture, and nothing else."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from PIL import Image

from heatcheck.api.result import Result
from heatcheck.run.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PLUGIN = '''
import ctypes
import time
from pathlib import Path

import torch

import heatcheck as hc
from heatcheck.models.vision_shim import load_timm

load_timm()
from timm.models.resnet import ResNet

HERE = Path(__file__).parent


def spring(x, who):
    """Do what trap.txt says where a picture has a white corner."""
    trap = HERE / "trap.txt"
    whose, what = trap.read_text().split() if trap.exists() else ("nobody", "nothing")
    if whose == who and bool((x.detach()[:, :, 0, 0] > 0.99).all(1).any()):
        with (HERE / "sprung.txt").open("a") as log:
            log.write(what + "\\n")
        if what == "segfault":
            ctypes.string_at(0)
        if what == "hang":
            while True:
                time.sleep(60)
        raise ValueError("a white corner")


plain = ResNet.forward


def forward(self, x):
    spring(x, "model")
    return plain(self, x)


ResNet.forward = forward


@hc.method("stumbles", uses=())
def stumbles(model, x, target):
    spring(x, "method")
    return x


@hc.method("waits", uses=())
def waits(model, x, target):
    """A second for each picture, and a line that says so."""
    for one in x:
        time.sleep(float((HERE / "waits.txt").read_text()))
        with (HERE / "waited.txt").open("a") as log:
            log.write("waited\\n")
    return x
'''


@pytest.fixture(scope="module")
def study(make_study) -> Path:
    """Six pictures, of which the last but one has a white corner."""
    made = make_study(
        6, 'methods = ["saliency", "stumbles", "random"]\nmetrics = ["sds", "sparseness"]\nplugins = ["trap.py"]\n'
    )
    (made.parent / "trap.py").write_text(PLUGIN)
    with Image.open(made.parent / "pictures" / "04.png") as picture:
        picture.paste("white", (0, 0, 16, 16))
        picture.save(made.parent / "pictures" / "04.png")
    return made


@pytest.fixture(scope="module")
def reference(study, tmp_path_factory) -> pl.DataFrame:
    set_trap(study, "nobody nothing")
    scores = run(study, tmp_path_factory.mktemp("whole"))[1]
    assert set(scores["status"]) == {"ok"}
    return scores


def maps_by_method(out: Path) -> Counter:
    """How many maps of each method are stored."""
    groups = [group for header in Store.open(out).headers.values() for group in header["groups"]]
    return Counter(column["method"] for group in groups for column in group["maps"] for _ in group["samples"])


def run(study: Path, out: Path, *extra: str) -> tuple[subprocess.CompletedProcess[str], pl.DataFrame]:
    line = [sys.executable, "-m", "heatcheck", "run", str(study), "--out", str(out), "--batch", "4", "-j", "2", *extra]
    done = subprocess.run(line, capture_output=True, text=True, timeout=400)
    scores = Result.open(out).scores().select("sample", "method", "metric", "score", "status")
    return done, scores


def failed(scores: pl.DataFrame) -> dict[tuple[str, str], set[str]]:
    bad = scores.filter(pl.col("status") != "ok")
    found: dict[tuple[str, str], set[str]] = {}
    for sample, method, status in bad.select("sample", "method", "status").iter_rows():
        found.setdefault((sample, method), set()).add(status)
    return found


def set_trap(study: Path, what: str) -> None:
    (study.parent / "trap.txt").write_text(what)


METHODS = ("saliency", "stumbles", "random")


@pytest.mark.parametrize(
    ("trap", "methods", "status"),
    [
        ("model segfault", METHODS, "failed: the process ended while it was computed (SIGSEGV)"),
        ("method segfault", ("stumbles",), "failed: the process ended while it was computed (SIGSEGV)"),
        ("model hang", METHODS, "failed: took longer than 15 s; raise --timeout"),
        ("model raise", METHODS, None),
    ],
)
def test_a_trap_costs_its_picture_only_and_the_next_run_tries_it_again(
    study, reference, tmp_path, trap, methods, status
):
    (study.parent / "sprung.txt").unlink(missing_ok=True)
    set_trap(study, trap)
    limit = ("--timeout", "15") if "hang" in trap else ()
    done, scores = run(study, tmp_path / "r", *limit)
    assert done.returncode == 3, done.stderr
    found = failed(scores)
    assert set(found) == {("04.png", m) for m in methods}
    if status is not None:
        assert {s for statuses in found.values() for s in statuses} == {status}
    else:
        assert all(s.startswith("failed: ValueError: a white corner") for own in found.values() for s in own)
    bad = pl.col("sample").eq("04.png") & pl.col("method").is_in(methods)
    assert scores.filter(~bad).equals(reference.filter(~bad))
    assert len((study.parent / "sprung.txt").read_text().split()) <= 4
    set_trap(study, "nobody nothing")
    done, again = run(study, tmp_path / "r", *limit)
    assert done.returncode == 0, done.stderr
    assert f"{2 * len(methods)} failed cells are tried again" in done.stderr
    assert again.equals(reference)


def test_a_model_that_hangs_on_the_first_picture_is_found_before_the_rehearsal(study, tmp_path):
    few = study.parent / "few"
    few.mkdir()
    shutil.copy(study.parent / "pictures" / "04.png", few / "0.png")
    shutil.copy(study.parent / "pictures" / "00.png", few / "1.png")
    set_trap(study, "model hang")
    done, scores = run(study, tmp_path / "r", "--data", f"folder:{few}", "--timeout", "15", "--methods", "saliency")
    assert done.returncode == 3, done.stderr
    late = {"failed: took longer than 15 s; raise --timeout"}
    assert failed(scores) == {("0.png", "saliency"): late, ("0.png", "random"): late}


@pytest.fixture
def slow_study(study) -> Path:
    """The same with a method that waits instead of the one that stumbles; nothing has waited yet."""
    set_trap(study, "nobody nothing")
    (study.parent / "waited.txt").unlink(missing_ok=True)
    made = study.with_name("slow.toml")
    made.write_text(study.read_text().replace('"stumbles"', '"waits"'))
    return made


def test_a_kill_in_a_slow_chunk_keeps_what_was_saved(slow_study, tmp_path):
    """Saved after every two seconds instead of forty: after the kill, no more than those are computed again."""
    study, folder = slow_study, slow_study.parent
    (folder / "waits.txt").write_text("1.5")
    impatient = "import heatcheck.run.chunk as c, heatcheck.run.task as t; c.SAVE = 2.0; t.PORTION = 1.0; "
    line = f"from heatcheck.cli import app; app(['run', {str(study)!r}, '--out', {str(tmp_path / 'r')!r}, '--batch', '4', '-j', '1', '-q'])"
    child = subprocess.Popen([sys.executable, "-c", impatient + line], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    waited = folder / "waited.txt"
    while time.monotonic() < deadline and (not waited.exists() or len(waited.read_text().split()) < 4):
        time.sleep(0.1)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    computed = len(waited.read_text().split())
    kept = min(maps_by_method(tmp_path / "r").values())  # the other methods do not wait
    assert 4 <= computed <= kept + 2
    (folder / "waits.txt").write_text("0")
    waited.unlink()
    done, again = run(study, tmp_path / "r", "-j", "1")
    assert done.returncode == 0, done.stderr
    assert set(again["status"]) == {"ok"}
    counting_its_passes = 1
    assert len(waited.read_text().split()) == 6 - kept + counting_its_passes


def test_an_interrupted_run_with_workers_keeps_what_they_had_finished(slow_study, tmp_path):
    study, folder = slow_study, slow_study.parent
    (folder / "waits.txt").write_text("1")
    line = [sys.executable, "-m", "heatcheck", "run", str(study), "--out", str(tmp_path / "r"), "--batch", "4", "-q"]
    child = subprocess.Popen([*line, "-j", "2"], stderr=subprocess.PIPE, text=True)
    waited = folder / "waited.txt"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and (not waited.exists() or len(waited.read_text().split()) < 4):
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    stopped = time.monotonic()
    _, told = child.communicate(timeout=60)
    assert (child.returncode, time.monotonic() - stopped < 10) == (130, True), told
    assert maps_by_method(tmp_path / "r").total() > 3, "one worker's saliency maps, and more"
    assert not list((tmp_path / "r").glob("**/.tmp-*"))
