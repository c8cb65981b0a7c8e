"""A worker process: reads chunks as JSON lines, computes them, writes their files, answers with JSON lines."""

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


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent is gone; a parent killed outright cannot do it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(inp: TextIO, out: TextIO) -> None:
    """Serve until the input ends."""
    from heatcheck import api
    from heatcheck.engine.numerics import Numerics, tune_allocator
    from heatcheck.engine.run import commit, make_work
    from heatcheck.engine.store import Store
    from heatcheck.engine.task import first_line, run_chunk

    tune_allocator()
    hello = json.loads(inp.readline())
    setup = api.setup_from_remote(hello)
    work = {label: make_work(setup, model, hello["maps"])[0] for label, model in setup.models.items()}
    store = Store.open(Path(hello["out"]))

    def answer(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    for line in inp:
        job = json.loads(line)
        model = setup.models[job["model"]]
        numerics = Numerics(**hello["numerics"][job["model"]])
        samples = [setup.data[i] for i in job["rows"]]
        try:
            tick = lambda n: answer({"tick": n})  # noqa: E731 - the shortest honest form
            chunk = run_chunk(model, numerics, samples, work[job["model"]], store, tick)
            commit(store, chunk)
            answer({"done": True, "spent": asdict(chunk.spent)})
        except Exception as problem:
            answer({"done": False, "problem": first_line(problem)})


if __name__ == "__main__":
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    import torch

    torch.set_num_threads(1)
    main(sys.stdin, replies)
