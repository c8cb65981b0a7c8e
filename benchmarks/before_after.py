"""Own cost before and after a change: the same run on two source trees, in turns, each in a process of its own.

    git worktree add ../before COMMIT
    python benchmarks/before_after.py ../before/src src --repeats 15

The model is almost free, so that what is left of the time is heatcheck's own: explaining, deleting, sorting, scoring,
writing. Pass counts must be equal; the ratio of the medians is the answer.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

RUN = """
import json, sys, tempfile, time
import torch
from torch import nn
import heatcheck as hc

torch.set_num_threads(1)
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 4, 16, stride=16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
x = torch.randn(4, 3, 224, 224)
bench = hc.Benchmark(
    models={"free": net},
    data=(x, torch.arange(4)),
    methods=["saliency", "integrated_gradients(steps=8)", "grad_cam", "occlusion", "random"],
    metrics=["sds", "morf(steps=16)", "infidelity(samples=32)", "ids(steps=8)"],
)
bench.setup()
with tempfile.TemporaryDirectory() as folder:
    start = time.perf_counter()
    result = bench.run(folder, batch=8, progress="none")
    board = result.leaderboard().full
    wall = time.perf_counter() - start
    passes = result.manifest["passes"]
print(json.dumps({"wall": wall, **passes, "score": result.scores()["score"].sum()}))
"""


def once(source: Path) -> dict[str, float]:
    env = {**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", RUN], env=env, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    found["own"] = found["wall"] - found["seconds"] - found["slope_seconds"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    for _ in range(given.repeats):
        for name, source in (("before", given.before), ("after", given.after)):
            found[name].append(once(source))
    for what in ("forwards", "backwards", "padding", "score"):
        before, after = ({row[what] for row in found[name]} for name in ("before", "after"))
        print(f"{what}: {sorted(before)} before, {sorted(after)} after{'' if before == after else '  DIFFERENT'}")
    for what in ("own", "wall"):
        before, after = (statistics.median(row[what] for row in found[name]) for name in ("before", "after"))
        print(f"{what}: {before:.3f} s before, {after:.3f} s after, ratio {after / before:.3f}")


if __name__ == "__main__":
    main()
