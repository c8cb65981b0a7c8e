"""A worker process: reads works as JSON lines, computes them, writes their files, answers with JSON lines."""

import contextlib
import ctypes
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

PR_SET_PDEATHSIG = 1
LOST = 75
"""The exit code of a worker whose GPU has failed: a new process can use it again, this one cannot."""


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent is gone; a parent killed outright cannot do it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def stop(*_: object) -> None:
    """End the work under way, which saves what is finished."""
    raise KeyboardInterrupt


def main(inp: TextIO, out: TextIO) -> None:
    """Serve until the input ends."""
    from heatcheck.probe.tuning import tune_allocator
    from heatcheck.run.isolation import end_if_lost, first_line
    from heatcheck.run.resources import Resources
    from heatcheck.run.scout import answer_samples
    from heatcheck.run.store import Store
    from heatcheck.run.task import run_work
    from heatcheck.run.watch import Watch
    from heatcheck.run.work import Work

    tune_allocator()
    resources = Resources()
    stores: dict[str, Store] = {}

    def answer(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    watch = Watch(
        tick=lambda n: answer({"tick": n}),
        begin=lambda cell: answer({"begin": cell}),
        failed=lambda failed: answer({"failed": failed}),
    )
    for line in inp:
        work = Work.from_json(line)
        try:
            if work.scout:
                answer_samples(work, resources, watch)
                answer({"spent": {}})
                continue
            if work.out not in stores:
                stores[work.out] = Store.open(Path(work.out))
            elif work.resumed:
                stores[work.out].refresh()
            spent = run_work(work, resources, stores[work.out], watch)
            answer({"spent": asdict(spent)})
        except Exception as problem:
            end_if_lost(problem)
            answer({"problem": first_line(problem)})


if __name__ == "__main__":
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, stop)
    from heatcheck.probe.numerics import DeviceLostError

    try:
        main(sys.stdin, replies)
    except DeviceLostError:
        os._exit(LOST)
    except KeyboardInterrupt:
        os._exit(0)  # what was finished is saved; nothing is worth the seconds that an orderly end takes
