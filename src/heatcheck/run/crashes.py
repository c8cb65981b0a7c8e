"""Native crashes are remembered: the next run into the folder computes where a process may end without ending the run.

A crash of C code ends a process without a word. While a run is under way, Python's fault handler has a file in the run's
folder to write the last words into: which signal, and which lines of Python were at work. An orderly end removes it, and
a kill leaves it empty; so one that holds something tells of a crash.
"""

import contextlib
import faulthandler
import os
import re
from collections.abc import Iterator
from pathlib import Path

from heatcheck.core.files import alive
from heatcheck.run.runtime import Runtime

PREFIX = ".crash-"
LIMIT = 3600.0
"""Seconds that a cell may take in the run after a crash, where a user gives no limit; worker processes have one."""
_LINE = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')


@contextlib.contextmanager
def last_words(folder: Path) -> Iterator[None]:
    """Have a crash inside write down what was at work; a fault handler that somebody else has set up stays theirs."""
    if faulthandler.is_enabled():
        yield
        return
    path = folder / f"{PREFIX}{os.getpid()}"
    try:
        file = path.open("w")
    except OSError:  # the run itself will say what is wrong with the disk
        yield
        return
    try:
        with file:
            faulthandler.enable(file)
            try:
                yield
            finally:
                faulthandler.disable()
    finally:
        for _ in range(2):  # a disk that fails once; what it leaves twice, the next run removes
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def own_words(folder: Path) -> str | None:
    """How a copy of this process crashed, and where; None if nothing is known of it."""
    with contextlib.suppress(OSError):
        return _told((folder / f"{PREFIX}{os.getpid()}").read_text(errors="replace"))
    return None


def last_crash(folder: Path) -> str | None:
    """How the last run into a folder crashed, and where; None if it did not. What it left behind is removed.

    >>> last_crash(Path("nowhere")) is None
    True
    """
    found = None
    for path in sorted(folder.glob(f"{PREFIX}*")):
        pid = path.name.removeprefix(PREFIX)
        if not pid.isdigit() or alive(int(pid)):
            continue
        with contextlib.suppress(OSError):
            found = _told(path.read_text(errors="replace")) or found
            path.unlink()
    return found


def _told(words: str) -> str | None:
    if not words.strip():
        return None
    cause = words.splitlines()[0].removeprefix("Fatal Python error: ").strip()
    place = _LINE.search(words)
    return f"{cause} in {place[3]}, {Path(place[1]).name} line {place[2]}" if place else cause


def carefully(runtime: Runtime) -> Runtime:
    """The runtime of the run after a crash: with a time limit, so that worker processes compute."""
    return runtime if runtime.timeout is not None else Runtime.of(runtime, timeout=LIMIT)
