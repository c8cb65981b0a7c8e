"""A native crash leaves its last words in the folder, and the next run heeds them."""

import faulthandler
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from heatcheck.run.crashes import LIMIT, PREFIX, carefully, last_crash, last_words
from heatcheck.run.execution import after_crash
from heatcheck.run.runtime import Runtime
from heatcheck.run.work import Sources

DEAD = 2**22 - 3
MUTANTS = (
    ("run/crashes.py", "if not words.strip():", "if False:", "test_a_kill_leaves_no_words"),
    ("run/crashes.py", "or alive(int(pid))", "", "test_a_run_that_goes_on_has_not_crashed"),
    ("run/crashes.py", "            path.unlink()\n    return found", "            pass\n    return found", "test_a_crash_is_told_once"),
    ("run/execution.py", "    return crashes.carefully(runtime)", "    return runtime", "test_after_a_crash_workers_compute"),
)  # fmt: skip


def crash(folder: Path, end: str) -> int:
    code = (
        f"import ctypes, os, pathlib\nfrom heatcheck.run.crashes import last_words\n"
        f"def forward():\n    {end}\n"
        f"with last_words(pathlib.Path({str(folder)!r})):\n    forward()\n"
    )
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode


def test_a_crash_is_told_once(tmp_path):
    assert crash(tmp_path, "ctypes.string_at(0)") == -signal.SIGSEGV
    told = last_crash(tmp_path)
    assert told is not None and told.startswith("Segmentation fault in string_at, __init__.py line ")
    assert last_crash(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "raise KeyError", "pass"])
def test_a_kill_leaves_no_words(tmp_path, end):
    assert (crash(tmp_path, end) == -signal.SIGKILL) == ("kill" in end)
    assert last_crash(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_goes_on_has_not_crashed(tmp_path):
    mine = tmp_path / f"{PREFIX}{os.getpid()}"
    mine.write_text("Fatal Python error: Aborted")
    (tmp_path / f"{PREFIX}nobody").write_text("Fatal Python error: Aborted")
    assert last_crash(tmp_path) is None and mine.exists()
    (tmp_path / f"{PREFIX}{DEAD}").write_text("Fatal Python error: Aborted")
    assert last_crash(tmp_path) == "Aborted"


def test_the_fault_handler_of_others_is_left_alone(tmp_path):
    assert faulthandler.is_enabled(), "pytest has one"
    with last_words(tmp_path):
        assert list(tmp_path.iterdir()) == []
    assert faulthandler.is_enabled()


class Notes:
    """A progress display that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize(("on", "portable"), [(None, True), ("processes:2", True), ("here", True), (None, False)])
def test_after_a_crash_workers_compute(make_setup, on, portable):
    shown = Notes()
    runtime = Runtime(progress=shown, on=on)
    setup = make_setup(["saliency"], ["sds"], n=2, sources=Sources(portable=portable))
    changed = after_crash("the last run crashed (Aborted in forward, mine.py line 3)", setup, runtime)
    assert (changed.timeout is not None) == (portable and on != "here")
    assert "crashed (Aborted in forward, mine.py line 3)" in shown.notes[0]


def test_a_time_limit_that_a_user_gave_stays():
    assert carefully(Runtime(timeout="5")).timeout == 5
    assert carefully(Runtime()).timeout == LIMIT
