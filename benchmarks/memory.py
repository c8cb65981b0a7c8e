"""Peak memory of every process of a run, beside a bare pass at the run's own micro-batches and what `plan` predicts."""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import heatcheck as hc
from heatcheck.core.types import Inputs
from heatcheck.data.load import load_data
from heatcheck.probe.memory import needed, resident_bytes
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe
from heatcheck.probe.tuning import give_back, tune_allocator
from heatcheck.run.plan import passes

MB = 1 << 20
SLACK = 300
"""Megabytes that a process may hold beside a bare pass and the maps in flight (P7)."""
DRIVER = 500
"""Megabytes that a process without a model may hold."""


def status(pid: int) -> dict[str, int]:
    """What Linux counts for a process, in megabytes; empty once it is gone."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return {
            line.split(":")[0]: int(line.split()[1]) // 1024 for line in lines if line.startswith(("VmHWM", "VmRSS"))
        }
    return {}


def children(pid: int) -> list[int]:
    """The worker processes of a process."""
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def watch(process: subprocess.Popen) -> tuple[int, int, dict[int, int]]:
    """The most that the driver held at all, held while it had workers, and that each worker held."""
    most = leading = 0
    workers: dict[int, int] = {}
    while process.poll() is None:
        own = status(process.pid)
        most = max(most, own.get("VmHWM", 0))
        for pid in children(process.pid):
            workers[pid] = max(workers.get(pid, 0), status(pid).get("VmHWM", 0))
        if len(children(process.pid)) > 1 and min(workers.values(), default=0) > 100:
            leading = max(leading, own.get("VmRSS", 0))
        time.sleep(0.05)
    return most, leading, {pid: peak for pid, peak in workers.items() if peak > 100}


def bare(model: str, data: str, numerics: Numerics) -> tuple[int, int]:
    """Megabytes of a process that has only loaded the model and the pictures, and what a pass needs beside that."""
    tune_allocator()
    torch.set_num_threads(1)
    network = hc.load_model(model)
    network.lay_out(channels_last=numerics.channels_last)
    x = Inputs.cat([network.encode(s) for s in load_data(data, samples=1, seed=0)])
    probe = Probe(network, numerics)
    passes(probe, x)
    most = needed(lambda: passes(probe, x), network.device)["cpu"]
    give_back(0)
    return resident_bytes() // MB, most // MB


def main() -> None:
    """Run, watch, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--data", default="images")
    parser.add_argument("--samples", type=int, default=28)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, help="micro-batch; measured by the run if not given")
    parser.add_argument("--methods", help="methods; those of the profile if not given")
    parser.add_argument("--metrics", help="metrics; those of the profile if not given")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chosen = ["--models", given.model, "--data", given.data, "--samples", str(given.samples)]
        chosen += ["--profile", "quick", "--workers", str(given.workers), "--out", folder]
        for name in ("batch", "methods", "metrics"):
            chosen += [f"--{name}", str(value)] if (value := getattr(given, name)) is not None else []
        heatcheck = [sys.executable, "-m", "heatcheck"]
        start = time.perf_counter()
        most, leading, workers = watch(subprocess.Popen([*heatcheck, "run", *chosen, "-q"], stdout=subprocess.DEVNULL))
        seconds = time.perf_counter() - start
        record = json.loads((Path(folder) / "run.json").read_text())
        planned = subprocess.run(
            [*heatcheck, "plan", *chosen[:-2], "--json"], capture_output=True, text=True, check=True
        )
    numerics = Numerics(**record["models"][0]["numerics"])
    base, one = bare(given.model, given.data, numerics)
    count = len(record["models"][0]["methods"])
    maps = 8 * count * 224 * 224 * 12 // MB
    print(
        f"{given.samples} samples, {count} methods, {seconds:.0f} s; calls of {numerics.forward} and {numerics.backward}"
    )
    print(f"{record['passes']['forwards'] / seconds:.1f} passes a second with {given.workers} workers")
    print(f"a process with the model at rest {base} MB; a bare best-batch pass {one} MB; maps in flight {maps} MB")
    bound = base + one + maps + SLACK
    for pid, peak in workers.items():
        print(f"worker {pid}: {peak} MB, bound {bound} MB: {'holds' if peak <= bound else 'MISSED'}")
    print(
        f"driver while workers compute: {leading} MB, bound {DRIVER} MB: {'holds' if leading <= DRIVER else 'MISSED'}"
    )
    print(f"driver at all (it sets up and reads the result): {most} MB")
    for row in json.loads(planned.stdout)["memory"]:
        print(f"planned for {row['process']} on {row['device']}: {row['bytes'] // MB} MB")


if __name__ == "__main__":
    main()
