"""The checkpoints of one training as models: `trained:FOLDER@*` wherever models are listed."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.api.benchmark import Benchmark, label_models
from heatcheck.api.study import Study
from heatcheck.api.train import train
from heatcheck.cli import app
from heatcheck.core.types import HeatcheckError
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.training_record import RECORD

MUTANTS = (
    (
        "models/training_record.py",
        "key=lambda kept: kept.step",
        "key=lambda kept: -kept.step",
        "test_a_star_is_every_checkpoint_in_order",
    ),
    ("run/naming.py", '"reached": reached(model.trained),', "", "test_a_run_tells_when_each_was_kept"),
)

NETWORK = """
from torch import nn

def toy():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2))
"""
SMALL = {"epochs": 2, "batch": 4, "lr": 0.05, "augment": "none"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a network, pictures, and a training that kept four checkpoints."""
    root = tmp_path_factory.mktemp("along")
    (root / "net.py").write_text(NETWORK)
    rng = np.random.default_rng(0)
    for name, light in (("dark", 0), ("bright", 120)):
        (root / "pictures" / name).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(0, 128, (16, 16, 3)).astype(np.uint8) + np.uint8(light)
            Image.fromarray(pixels).save(root / "pictures" / name / f"{i}.png")
    train(
        "plain",
        model=f"{root / 'net.py'}:toy",
        data=f"folder:{root / 'pictures'}",
        out=root / "run",
        settings=SMALL,
        preprocess=Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=16, resize=16),
        keep=4,
        threads=1,
        progress="none",
    )
    return root


@pytest.fixture(scope="module")
def names(place):
    return [f"trained:{place / 'run'}@{i:02d}" for i in (1, 2, 3, 4)]


def bench(place, models, **options):
    methods = ["saliency", "input_x_gradient", "occlusion(units=grid(2))"]
    return Benchmark(models=models, data=f"folder:{place / 'pictures'}", methods=methods, metrics=["sds"], **options)


@pytest.fixture(scope="module")
def result(place):
    return bench(place, f"trained:{place / 'run'}@*").run(place / "scores", samples=6, progress="none", threads=1)


class TestExpansion:
    def test_a_star_is_every_checkpoint_in_order(self, place, names):
        star = f"trained:{place / 'run'}@*"
        assert label_models(star) == {name: name for name in names}
        assert label_models(f"{place / 'run'}@*") == {name: name for name in names}  # the folder itself is a model
        assert list(label_models(["efficientnet_lite0", star])) == ["efficientnet_lite0", *names]
        assert label_models({"mine": star}) == {f"mine@{i:02d}": names[i - 1] for i in (1, 2, 3, 4)}
        assert label_models({"mine": names[0]}) == {"mine": names[0]}

    def test_study_files_too(self, place, names):
        file = place / "study.toml"
        file.write_text(
            'models = ["trained:run@*"]\ndata = "folder:pictures"\nmethods = ["saliency"]\nmetrics = ["sds"]\n'
        )
        assert list(Benchmark.from_study(Study.load(file)).setup(2).models) == names

    def test_other_processes_get_single_models(self, place, names):
        setup = bench(place, f"trained:{place / 'run'}@*").setup(2)
        assert setup.sources.models == {name: name for name in names}
        assert len({model.identity for model in setup.models.values()}) == 4

    def test_none_was_kept(self, place, tmp_path):
        record = json.loads((place / "run" / RECORD).read_text())
        (tmp_path / RECORD).write_text(json.dumps({**record, "kept": []}))
        with pytest.raises(HeatcheckError, match=r"@\*: the training kept no checkpoints; .* --keep 10"):
            label_models(f"trained:{tmp_path}@*")

    def test_no_training(self, tmp_path):
        with pytest.raises(HeatcheckError, match="holds no training"):
            label_models(f"trained:{tmp_path}@*")

    def test_where_one_model_is_wanted(self, place):
        with pytest.raises(HeatcheckError, match=r"@\* is several models, and one is wanted here: @01, @02, @03, @04"):
            hc.load_model(f"trained:{place / 'run'}@*")


class TestRun:
    def test_a_run_tells_when_each_was_kept(self, result, place):
        kept = json.loads((place / "run" / RECORD).read_text())["kept"]
        told = [m["trained"]["reached"] for m in result.facts["models"]]
        assert [at["epoch"] for at in told] == [0.5, 1.0, 1.5, 2.0]
        assert [at["accuracy"] for at in told] == [k["accuracy"] for k in kept]
        assert "kept after epoch 1.5, with an accuracy of" in " ".join(result.facts["models"][2]["training"])

    def test_the_rankings_are_the_leaderboards(self, result, names):
        (case,) = result.along_training()
        assert (case.training, case.metric, case.n) == (names[0].partition("@")[0], "sds", 6)
        board = {(r["model"], r["method"]): r["rank"] for r in result.leaderboard().full.iter_rows(named=True)}
        for i, name in enumerate(names):
            assert case.ranks[i].tolist() == [board[name, method] for method in case.methods]
        assert case.tau_last[-1].value == 1 and 0 <= case.w.value <= 1

    def test_the_command_tells_and_its_page_shows_them(self, result, place):
        command = ["run", "--models", f"trained:{place / 'run'}@*", "--data", f"folder:{place / 'pictures'}"]
        command += ["--methods", "saliency,input_x_gradient,occlusion(units=grid(2))", "--metrics", "sds"]
        command += ["--samples", "6", "--out", str(place / "scores"), "--threads", "1", "--quiet"]
        done = CliRunner().invoke(app, [*command, "--json"])
        assert done.exit_code == 0, done.output
        (told,) = json.loads(done.stdout)["along_training"]
        assert told["kendall_w"] == result.along_training()[0].w.value
        assert [c["checkpoint"] for c in told["checkpoints"]] == ["01", "02", "03", "04"]
        page = (place / "scores" / "report.html").read_text()
        assert "Ranks along training" in page and page.count('<path class="line"') == 3

    def test_fewer_than_three_are_no_training(self, place, names):
        few = bench(place, names[:2]).run(Path(place / "few"), samples=2, progress="none", threads=1)
        assert few.along_training() == []
        assert "Ranks along training" not in few.report(place / "few.html").read_text()
