"""A worker whose GPU fails ends, and a new one does its work; no sample is blamed."""

import subprocess
import sys

import pytest

from heatcheck.api.result import Result

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PLUGIN = """
from pathlib import Path

import heatcheck as hc

HERE = Path(__file__).parent


@hc.method("loses", uses=())
def loses(model, x, target):
    lost = HERE / "lost.txt"
    if not lost.exists() and (HERE / "armed.txt").exists():
        lost.write_text("once")
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    return x
"""
KEY = ["sample", "method", "metric", "score", "status"]


def test_another_process_does_the_work(make_study, tmp_path):
    study = make_study(4, 'methods = ["loses", "random"]\nmetrics = ["sparseness"]\nplugins = ["loses.py"]\n')
    (study.parent / "loses.py").write_text(PLUGIN)
    line = [sys.executable, "-m", "heatcheck", "run", str(study), "--batch", "4"]
    found = {}
    for name in ("whole", "lost"):
        out = tmp_path / name
        done = subprocess.run([*line, "-j", "2", "--out", str(out)], capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr
        found[name] = Result.open(out).scores().select(KEY)
        (study.parent / "armed.txt").write_text("")
    assert (study.parent / "lost.txt").exists()
    assert found["lost"].equals(found["whole"]) and set(found["lost"]["status"]) == {"ok"}
