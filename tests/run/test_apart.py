"""Trials in a copy of the process: plain results, errors as they are, crashes that end the copy only."""

import os
import signal
import sys
from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from heatcheck.core.types import HeatcheckError
from heatcheck.probe.memory import resident_bytes
from heatcheck.run import apart as module
from heatcheck.run import setup as preparing
from heatcheck.run.apart import CrashedError, apart
from heatcheck.run.execution import execute
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import leads, prepare
from heatcheck.run.work import Sources

MUTANTS = (
    ("run/apart.py", "    if code:\n", "    if False:\n", "test_a_crash_ends_the_copy_only"),
    ("run/apart.py", 'if "wrong" in told:', "if False:", "test_what_is_wrong_is_said"),
    ("run/setup.py", "runtime.on_ray or (setup.sources.portable and", "(", "test_who_leads_others"),
    ("run/execution.py", "            compute(setup, store, careful, claims)", "            pass", "test_a_run_goes_on_after_it"),
)  # fmt: skip

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")


@pytest.fixture
def fresh(monkeypatch):
    """Other tests have asked for gradients in this process, so torch would refuse them in a copy of it."""
    monkeypatch.setattr(module, "check_gradients", lambda: None)


@linux
def test_a_trial_is_made_in_a_copy(fresh):
    here = os.getpid()
    seen = []

    def trial():
        seen.append(1)
        return {"process": os.getpid(), "seen": len(seen)}

    found = apart(trial, "it")
    assert found["process"] != here and found["seen"] == 1 and not seen


@linux
def test_its_memory_goes_with_it(fresh):
    before = resident_bytes()
    held = apart(lambda: [torch.ones(50_000_000).sum().item(), resident_bytes()], "it")
    assert held[0] == 50_000_000
    assert resident_bytes() - before < 50_000_000


@linux
def test_what_is_wrong_is_said(fresh):
    made_here = []

    def refuse():
        made_here.append(True)
        raise HeatcheckError("it has no layers")

    with pytest.raises(HeatcheckError, match=r"^it has no layers$"):
        apart(refuse, "it")
    assert not made_here


@linux
def test_an_error_is_seen_where_it_comes_from(fresh):
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 / 0, "it")


@linux
@pytest.mark.parametrize(("end", "how"), [(lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"), (lambda: os._exit(7), "exit code 7")])  # fmt: skip
def test_a_crash_ends_the_copy_only(fresh, end, how):
    with pytest.raises(CrashedError, match=f"^model 'm' ended the process in which it was tried, with {how}$"):
        apart(end, "model 'm'")


def test_where_gradients_cannot_be_copied_it_is_made_here(monkeypatch):
    def refuse():
        raise RuntimeError("Unable to handle autograd's threading in combination with fork-based multiprocessing")

    monkeypatch.setattr(module, "check_gradients", refuse)
    assert apart(os.getpid, "it") == os.getpid()


@pytest.mark.parametrize(
    ("options", "portable", "expected"),
    [
        ({}, True, False),
        ({"on": "processes:2"}, True, True),
        ({"on": "processes:2"}, False, False),
        ({"on": "processes:2", "threads": 2}, True, False),
        ({"on": "ray"}, False, True),
        ({"on": "here"}, True, False),
    ],
)
def test_who_leads_others(make_setup, options, portable, expected):
    setup = make_setup(["saliency"], ["sds"], n=2, sources=Sources(portable=portable))
    assert leads(setup, Runtime(**options)) == expected


@linux
def test_the_parts_are_the_same(make_setup, monkeypatch, fresh):
    made = []
    monkeypatch.setattr(preparing, "apart", lambda trial, what: made.append(what) or apart(trial, what))
    setup = make_setup(["saliency", "rollout", "random"], ["sds"], n=2, sources=Sources(portable=True))
    (here,) = prepare(setup, Runtime(progress="none", batch=4), None)
    (there,) = prepare(setup, Runtime(progress="none", batch=4, on="processes:2"), None)
    assert made == ["model 'toy'"] and here.skipped and replace(here, tried=()) == replace(there, tried=())


@linux
def test_a_run_goes_on_after_it(make_setup, tmp_path, monkeypatch):
    computed = []

    def compute(setup, store, runtime, claims):
        computed.append(runtime.timeout)
        if runtime.timeout is None:
            (store.folder / f".crash-{os.getpid()}").write_text(
                'Fatal Python error: Aborted\n  File "a/b.py", line 3 in f'
            )
            raise CrashedError("model 'm' ended the process in which it was tried, with SIGABRT")

    class Shown:
        notes: ClassVar[list[str]] = []

        def note(self, text):
            self.notes.append(text)

    monkeypatch.setattr("heatcheck.run.execution.compute", compute)
    setup = make_setup(["saliency"], ["sds"], n=2, sources=Sources(portable=True))
    execute(setup, tmp_path / "r", Runtime(progress=Shown(), on="processes:2"))
    assert computed[0] is None and computed[1] is not None
    assert "with SIGABRT (Aborted in f, b.py line 3): worker processes compute now" in Shown.notes[0]
    with pytest.raises(CrashedError):
        execute(setup, tmp_path / "s", Runtime(progress=Shown(), on="here"))
