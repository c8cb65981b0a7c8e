"""Trials in a copy of this process: what they need of its memory ends with the copy, and so does a crash."""

import contextlib
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from heatcheck.core.types import HeatcheckError


class CrashedError(HeatcheckError):
    """A trial ended the process that it was made in."""


def apart(trial: Callable[[], Any], what: str) -> Any:
    """What a trial returns, made in a copy of this process; made here where no copy can make it.

    The copy computes on one thread: the threads of this process are not copied. One whose gradients were asked for before
    cannot be copied for that either, since torch keeps threads for them.

    Args:
        trial: returns plain data.
        what: is tried.

    Raises:
        HeatcheckError: it said what is wrong.
        CrashedError: it ended the copy.
    """
    if sys.platform != "linux":
        return trial()
    reading, writing = os.pipe()
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads, none of which is used there
        child = os.fork()
    if not child:
        os.close(reading)
        _answer(trial, writing)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            sent = pipe.read()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise CrashedError(f"{what} ended the process in which it was tried, with {how}")
    told = json.loads(sent)
    if "wrong" in told:
        raise HeatcheckError(told["wrong"])
    return told["found"] if "found" in told else trial()


def _answer(trial: Callable[[], Any], writing: int) -> None:
    """Make the trial, send what comes of it, and end: nothing that this process has begun is finished by its copy."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with os.fdopen(writing, "w") as pipe:
            json.dump(_outcome(trial), pipe)
        sys.stdout.flush()
        code = 0
    finally:
        os._exit(code)


def _outcome(trial: Callable[[], Any]) -> dict[str, Any]:
    """What was found, or what is wrong; nothing where the trial is to be made again, in the process itself."""
    torch.set_num_threads(1)
    try:
        check_gradients()
        return {"found": trial()}
    except HeatcheckError as problem:
        return {"wrong": str(problem)}
    except Exception:  # there it can be seen where it comes from
        return {}


def check_gradients() -> None:
    """Raise where torch refuses gradients to a copy of a process, before anything is taken for a model's fault."""
    torch.ones(1, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]
