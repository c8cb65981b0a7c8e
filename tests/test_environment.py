"""The environment that `make` builds: users' own scripts work in it, and building it is quiet."""

import importlib.util
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from heatcheck.models import vision_shim

ROOT = Path(__file__).parent.parent
REPAIR = ROOT / "tools" / "torchvision_repair"


def plain_script(code):
    """What a user's script prints, in a process that knows nothing of the tests."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def repair():
    spec = importlib.util.spec_from_file_location("repair", REPAIR / "torchvision_repair.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_users_script_imports_torchvision_and_timm():
    code = (
        "import sys, torch; assert 'torchvision' not in sys.modules, 'the repair imported it'\n"
        "import torchvision, timm; print(timm.create_model('resnet18').num_classes)"
    )
    assert plain_script(code) == "1000\n"


def test_a_users_script_imports_transformers_classifiers():
    code = "from transformers import BertForSequenceClassification, CLIPModel; print(CLIPModel.__name__)"
    assert plain_script(code) == "CLIPModel\n"


def test_the_repair_is_not_loaded_where_torch_is_not():
    assert plain_script("import sys; print(sorted({'torch', 'torchvision_repair'} & set(sys.modules)))") == "[]\n"


@pytest.fixture
def declared(monkeypatch, tmp_path):
    """Which operators the repair declares beside a torchvision of this version; None: there is no torchvision."""
    names = []

    class Library:
        def __init__(self, *place):
            assert place == ("torchvision", "DEF")

        def define(self, schema):
            names.append(schema.partition("(")[0])

    def with_version(version, cuda=None):
        module = repair()
        package = tmp_path / "torchvision" / "__init__.py"
        package.parent.mkdir(exist_ok=True)
        package.with_name("version.py").write_text(f"__version__ = '{version}'\n")
        spec = importlib.util.spec_from_file_location("torchvision", package) if version else None
        with monkeypatch.context() as patch:
            patch.setattr(torch.library, "Library", Library)
            patch.setattr(torch.version, "cuda", cuda)
            patch.setattr(importlib.util, "find_spec", lambda name: spec)
            module.declare_missing_operators()
        return names

    return with_version


def test_operators_are_declared_where_cpu_torch_meets_a_torchvision_for_cuda(declared):
    assert declared("0.28.0+cu130") == ["nms", "qnms"]


@pytest.mark.parametrize(
    ("version", "cuda"), [("0.28.0+cpu", None), ("0.28.0", None), ("0.28.0+cu130", "13.0"), (None, None)]
)
def test_nothing_is_declared_where_torchvision_is_whole_or_absent(declared, version, cuda):
    assert declared(version, cuda) == []


def test_the_repair_and_the_programs_own_shim_declare_the_same():
    assert repair().SCHEMAS == vision_shim._SCHEMAS


def test_the_wheel_touches_nobodys_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "entry-points" not in project["project"]
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/heatcheck"]


PIP = """#!/bin/sh
case " $* " in *" -qq "*) ;; *) echo 'Collecting everything' ;; esac
case " $* " in *"$BROKEN"*) echo 'ERROR: No matching distribution found' >&2; exit 1 ;; esac
"""


def build(tmp_path, broken):
    """What `make` prints while it builds an environment with a pip that only pretends."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"))
    (tmp_path / "pip").write_text(PIP)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nmkdir -p .venv/bin && cp -p pip .venv/bin/pip\n")
    for script in (python, tmp_path / "pip"):
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return subprocess.run(
        ["make", "--no-print-directory", f"PYTHON={python}", ".venv/.base"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "BROKEN": broken, "MAKEFLAGS": ""},
    )


def test_make_prints_a_line_per_step_and_nothing_of_pip(tmp_path):
    done = build(tmp_path, "nothing of the kind")
    assert (done.returncode, done.stderr) == (0, "")
    first, *steps = done.stdout.splitlines()
    assert "minutes" in first
    assert [step.split(":")[0] for step in steps] == ["  1 of 3", "  2 of 3", "  3 of 3"]
    assert (tmp_path / ".venv" / ".base").exists()


def test_an_error_of_pip_is_shown_and_the_step_is_not_taken_for_done(tmp_path):
    done = build(tmp_path, "[demo]")
    assert done.returncode != 0
    assert "ERROR: No matching distribution found" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("  2 of 3")
    assert not (tmp_path / ".venv" / ".base").exists()
