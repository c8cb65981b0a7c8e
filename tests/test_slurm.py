"""The job script of docs/scale.md, run as Slurm would run it: its shards merge into the table of one whole run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from heatcheck.api.result import Result

PAGE = (Path(__file__).parents[1] / "docs" / "scale.md").read_text(encoding="utf-8")
SHARDS = 3
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def surroundings(tmp_path) -> dict[str, str]:
    """A shell in which `heatcheck` is this one, and `sbatch` runs a job array's tasks one after another."""
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", PAGE, re.DOTALL)
    (tmp_path / "shards.sh").write_text(script)
    programs = {
        "heatcheck": f'#!/bin/sh\nexec {sys.executable} -m heatcheck "$@"\n',
        "sbatch": "#!/bin/sh\nset -e\n"
        f"for i in $(seq {SHARDS}); do SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_COUNT={SHARDS} bash $1; done\n",
    }
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def bits(out: Path) -> list[tuple]:
    columns = ("sample", "method", "metric", "score", "status")
    return Result.open(out).scores().select(columns).sort("sample", "method", "metric").rows()


def test_the_script_and_the_commands_around_it_give_the_table_of_one_run(make_study, surroundings, tmp_path):
    study = make_study(10, 'methods = ["saliency", "random"]\nmetrics = ["sds"]\n')
    (console,) = re.findall(r"```console\n(\$ sbatch.*?)```", PAGE, re.DOTALL)
    commands = [line.removeprefix("$ ") for line in console.splitlines()]
    assert [command.split()[0] for command in commands] == ["sbatch", "heatcheck", "heatcheck"]
    for command in (f"heatcheck run {study} --batch 16 --workers 1 --out whole", *commands):
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, env={**surroundings, "STUDY": str(study)}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        if command.startswith("sbatch"):
            assert "shard 1 of 3: 4 of 10 samples" in " ".join(done.stdout.split())
    assert bits(tmp_path / "runs/all") == bits(tmp_path / "whole")
    assert len(list((tmp_path / "runs").glob("shard-*"))) == SHARDS
