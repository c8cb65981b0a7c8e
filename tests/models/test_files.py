"""Models in a user's Python file, named on the command line as `FILE.py:NAME`."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.api.result import Result
from heatcheck.cli import app
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError, Inputs
from heatcheck.training.defaults import load_model

MINE = """
import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes: int = 3):
        torch.manual_seed(0)
        super().__init__(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, classes))

net = Net()

def build(classes=3):
    return Net(classes)

def scores(x):
    return net(x).detach()

def breaks():
    return nn.Linear("many", 3)

five = 5
"""
X = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
SMALL = "mean=0.5 0.5 0.5,std=0.25 0.25 0.25,size=16,fit=squash"


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


@pytest.mark.parametrize("name", ["net", "Net", "build", "scores"])
def test_a_module_a_class_what_builds_one_and_a_function_all_answer(mine, name):
    model = load_model(f"{mine}:{name}")
    want = load_model(f"{mine}:net")
    assert torch.equal(model.logits(Inputs({"pixels": X})), want.logits(Inputs({"pixels": X})))
    assert model.name == f"{mine}:{name}"


def test_a_checkpoint_fills_it(mine, tmp_path):
    state = {k: torch.zeros_like(v) for k, v in load_model(f"{mine}:net").module().state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    assert not load_model(f"{mine}:build@{tmp_path / 'w.pt'}").logits(Inputs({"pixels": X})).any()


def test_it_runs_on_the_command_line_and_in_workers(mine, tmp_path):
    (tmp_path / "pics").mkdir()
    for i in range(2):
        noise = np.random.default_rng(i).integers(0, 255, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "pics" / f"{i}.png")
    found = []
    for workers in ("1", "2"):
        out = tmp_path / f"run{workers}"
        line = [
            "run",
            "-m",
            f"{mine}:build",
            "-d",
            f"folder:{tmp_path / 'pics'}",
            "--preprocess",
            SMALL,
            "--batch",
            "2",
        ]
        line += ["--methods", "saliency,random", "--metrics", "sds", "-q", "-j", workers, "-o", str(out)]
        done = CliRunner().invoke(app, line)
        assert done.exit_code == 0, done.output
        found.append(Result.open(out).scores().sort("sample", "method")["score"].to_list())
        assert json.loads((out / "run.json").read_text())["models"][0]["name"] == f"{mine}:build"
    assert found[0] == found[1]


def test_a_study_file_names_it_from_its_own_folder(mine, tmp_path):
    (tmp_path / "study.toml").write_text('models = ["mine.py:build@w.pt"]\ndata = "images"\n')
    assert list(hc.Study.load(tmp_path / "study.toml").models) == [f"{mine}:build@{tmp_path / 'w.pt'}"]


def test_mistakes_are_named(mine, tmp_path):
    for spec, words in {
        f"{mine}:nett": r"nothing in .*mine.py is called 'nett'; possible are: Net, net, build, scores, breaks",
        f"{mine}:breaks": r"could not be built \(mine.py, line 19\): TypeError",
        f"{mine}:five": "five|a model is a spec, a torch module, or a function",
        f"{mine}": "names nothing in the file: write FILE.py:NAME",
    }.items():
        with pytest.raises(HeatcheckError, match=words):
            load_model(spec)
    with pytest.raises(SpecError, match=r"'.*gone.py' is not a Python file"):
        load_model(f"{tmp_path / 'gone.py'}:net")
