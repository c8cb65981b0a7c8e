"""A whole study of retraining on toys: maps, masks, trainings, scores, report; killed and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from torch import nn

from heatcheck.api.benchmark import Benchmark
from heatcheck.api.retraining_result import RetrainingResult
from heatcheck.api.roar import RetrainingStudy, roar
from heatcheck.core import catalogue
from heatcheck.core.types import HeatcheckError, Modality
from heatcheck.data.base import Dataset
from heatcheck.data.images import picture_sample
from heatcheck.models.preprocess import Preprocess
from heatcheck.models.training_record import LAST
from heatcheck.models.vision import VisionModel
from heatcheck.stats import accuracy_curves, population_accuracies
from heatcheck.stats.student import t_quantile
from heatcheck.stats.two_way import two_way_mean
from heatcheck.training.masks import TopMasks
from heatcheck.training.state import write_tensors

MUTANTS = [
    ("metrics/roar.py", "curve[..., 1:].mean(-1)", "curve.mean(-1)", "test_scores_are_the_mean_over_levels_and_seeds"),
    (
        "metrics/roar.py",
        'if protocol == "roar" else 100 -',
        'if protocol != "roar" else 100 -',
        "test_curves_begin_whole",
    ),
    ("metrics/roar.py", "if found.model != probe.model.identity", "if False", "test_a_study_is_read_into_other_runs"),
    ("stats/retraining.py", 'pl.col("seeds").sqrt()', 'pl.col("seeds")', "test_intervals_are_over_seeds"),
    ("stats/retraining.py", '(found["seeds"] - 1).sum()', 'found["seeds"].sum()', "test_intervals_are_over_seeds"),
    ("api/roar.py", "laid.expand(channels, -1).T.flatten()", "laid.expand(channels, -1).flatten()", "test_scalars"),
    ("api/retraining.py", "scores.softmax(1)", "scores", "test_every_answer_is_stored"),
]
SIDE, CLASSES = 12, ("blue", "red")
SMALL = {"epochs": 1, "batch": 8, "lr": 0.05, "augment": "none", "flip": False, "schedule": "constant"}


def coloured(n, seed):
    """Noise with a square in one of two colours."""
    rng = np.random.default_rng(seed)
    contents = rng.integers(60, 190, (n, SIDE, SIDE, 3)).astype(np.uint8)
    for i, content in enumerate(contents):
        top, left = rng.integers(0, SIDE - 4, 2)
        content[top : top + 4, left : left + 4] = (255, 0, 0) if i % 2 else (0, 0, 255)
    return contents


def data_set(n, seed, name):
    samples = [replace(picture_sample(f"{name}-{i}", c), label=i % 2) for i, c in enumerate(coloured(n, seed))]
    return Dataset(name, Modality.IMAGE, tuple(samples), CLASSES)


def finder():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(100, 2))


def model():
    seen = Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=SIDE, resize=SIDE)
    return VisionModel(finder().eval(), "finder", preprocess=seen, classes=CLASSES)


def study(out, **changes):
    known = {
        "model": model(),
        "data": data_set(16, 0, "learnt"),
        "held_out": data_set(8, 1, "judged"),
        "methods": ["saliency"],
        "out": Path(out),
        "levels": (25, 75),
        "seeds": 2,
        "protocols": ("roar", "kar"),
        "settings": SMALL,
        "device": "cpu",
    }
    return RetrainingStudy(**{**known, **changes})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished study, and how it was asked for."""
    asked = study(tmp_path_factory.mktemp("study"))
    return asked, asked.run("none")


def test_the_networks_are_those_that_were_promised(done):
    asked, found = done
    cells = pl.DataFrame(found.study["cells"])
    methods, levels, seeds = {"saliency", "random", "sobel"}, {25.0, 75.0}, {0, 1}
    assert set(asked.contestants) == methods
    for protocol, which in (("roar", seeds), ("kar", seeds), ("masks", {0})):
        own = cells.filter(pl.col("protocol") == protocol).select("method", "level", "seed").rows()
        assert sorted(own) == sorted((m, t, s) for m in methods for t in levels for s in which)
    assert cells.filter(pl.col("protocol") == "unmodified")["seed"].to_list() == [0, 1]
    assert len(cells) == len(asked.trainings()) == asked.plan().trainings == asked.plan().done


def test_every_answer_is_stored(done):
    asked, found = done
    table = found.answers()
    assert table.height == len(asked.trainings()) * 8
    key = ["protocol", "method", "level", "seed", "sample"]
    assert table.select(key).unique().height == table.height
    assert ((table["answer"] == table["label"]) == table["right"]).all()
    assert table["prob"].is_between(0, 1).all()
    # two classes: an answer is right where its label has at least half of the probability
    assert ((table["prob"] > 0.5) == table["right"]).all()
    cells = {tuple(c[k] for k in ("protocol", "method", "level", "seed")): c["accuracy"] for c in found.study["cells"]}
    means = table.group_by("protocol", "method", "level", "seed").agg(pl.col("right").mean())
    assert all(cells[row[:4]] == row[4] for row in means.rows())


def test_scores_are_the_mean_over_levels_and_seeds(done):
    _, found = done
    scores = found.result.scores().with_columns(pl.col("method", "metric", "sample").cast(pl.String))
    assert set(scores["metric"]) == {"roar", "kar"} and (scores["status"] == "ok").all()
    answers = found.answers()
    for method, metric, sample, score in scores.select("method", "metric", "sample", "score").rows():
        own = answers.filter(
            (pl.col("protocol") == metric) & (pl.col("method") == method) & (pl.col("sample") == sample)
        )
        assert own.height == 4 and score == pytest.approx(own["right"].mean(), abs=1e-12)


def test_curves_begin_whole(done):
    _, found = done
    answers = found.answers()
    for metric, at in (("roar", (None, 25.0, 75.0)), ("kar", (None, 75.0, 25.0))):
        rows = found.result.curves("finder", metric)
        assert rows.height == 3 * 8
        for row in rows.iter_rows(named=True):
            assert row["share"] == [0.0, 0.25, 0.75]
            own = answers.filter(pl.col("sample") == row["sample"])
            want = [
                own.filter(
                    (pl.col("protocol") == "unmodified")
                    if level is None
                    else (pl.col("protocol") == metric)
                    & (pl.col("method") == row["method"])
                    & (pl.col("level") == level)
                )["right"].mean()
                for level in at
            ]
            assert row["curve"] == pytest.approx(want)


def test_the_masks_are_the_top_of_the_stored_maps(done):
    asked, found = done
    masks = TopMasks.open(asked.masks["saliency", 25.0])
    section = found.result.sections[0]
    for sample in section.manifest["samples"]:
        heat = section.map("finder", sample["name"], "saliency")
        top = masks.top(sample["digest"])[..., 0]
        assert top.sum() == SIDE * SIDE // 4 and heat[top].min() >= heat[~top].max()
    assert masks.colour == tuple(round(float(v)) for v in np.stack(list(coloured(16, 0))).astype(float).mean((0, 1, 2)))


def test_leaderboard_export_and_report_show_it(done):
    asked, found = done
    board = found.result.leaderboard().full
    assert set(board["metric"]) == {"roar", "kar"} and board.filter(pl.col("method") == "saliency")["ranked"].all()
    again = RetrainingResult.open(asked.out)
    page = again.result.report(asked.out / "page.html").read_text(encoding="utf-8")
    assert "Does accuracy follow the maps?" in page and "Masks alone" in page
    assert page.count('<figure class="chart">') >= 3 and "retraining.cells" not in page


def test_begun_again_nothing_is_trained(done, monkeypatch):
    asked, found = done
    monkeypatch.setattr("heatcheck.api.retraining.train_one", lambda *_: pytest.fail("it was trained again"))
    again = study(asked.out).run("none")
    assert again.answers().equals(found.answers()) and again.study == found.study
    assert again.result.scores().equals(found.result.scores())


def test_a_training_with_answers_keeps_no_state_to_go_on_from(tmp_path, monkeypatch):
    """Killed after the answers, it is not looked at again: the state must be gone before."""
    kept = []

    def written(path, *content):
        kept.append((path.parent / LAST).exists())
        write_tensors(path, *content)

    monkeypatch.setattr("heatcheck.api.retraining.write_tensors", written)
    study(tmp_path, levels=(25,), seeds=1, protocols=("roar",)).run("none")
    assert kept == [False] * 7


class Interrupts:
    """Progress that breaks the study off after some trainings."""

    def __init__(self, after):
        self.left = after

    def begin(self, what, passes, done=0):
        self.counts = what.startswith("retraining")

    def advance(self, passes):
        self.left -= passes if self.counts else 0
        if self.left < 0:
            raise KeyboardInterrupt

    def note(self, text): ...

    def end(self): ...


def test_broken_off_and_resumed_it_finds_the_same(done, tmp_path):
    _, found = done
    fewer = {"seeds": 1, "protocols": ("roar",), "levels": (25,)}
    for after in (40, 5):
        with pytest.raises(KeyboardInterrupt):
            study(tmp_path, **fewer).run(Interrupts(after))
    halfway = study(tmp_path, **fewer).plan()
    assert 0 < halfway.done < halfway.trainings == 7
    got = study(tmp_path, **fewer).run("none").answers()
    same = (pl.col("seed") == 0) & (pl.col("protocol") != "kar") & pl.col("level").is_in([0.0, 25.0])
    assert got.equals(found.answers().filter(same))


def test_another_level_reuses_what_is_trained(done):
    asked, _ = done
    more = study(asked.out, levels=(25, 50, 75))
    plan = more.plan()
    assert plan.done == len(asked.trainings()) and plan.trainings - plan.done == 3 * (2 * 2 + 1)
    assert study(asked.out, settings={**SMALL, "lr": 0.1}).plan().done == 0


# -- the metrics ---------------------------------------------------------------------------------------------------


def test_without_a_study_the_metric_says_what_to_do(tmp_path):
    bench = Benchmark(
        models=model(), data=data_set(4, 1, "judged"), methods=["saliency"], metrics=["roar", "sds(units=grid(2))"]
    )
    result = bench.run(tmp_path, progress="none", device="cpu")
    (skip,) = result.facts["skipped"]
    assert skip["metric"] == "roar" and "`heatcheck roar --model" in skip["reason"]
    assert {"roar", "kar"} <= set(catalogue.entries("metric"))


def test_a_study_is_read_into_other_runs(done, tmp_path):
    asked, found = done
    own = f'roar(study="{asked.out}")'
    judged = data_set(8, 1, "judged")
    bench = Benchmark(models=model(), data=judged, methods=["saliency", "gradient_shap"], metrics={"roar": own})
    result = bench.run(tmp_path / "run", progress="none", device="cpu", batch=4)
    scores = result.scores().with_columns(pl.col("method", "sample").cast(pl.String))
    same = found.result.scores().filter((pl.col("metric") == "roar") & (pl.col("method") == "saliency"))
    assert scores.filter(pl.col("method") == "saliency")["score"].to_list() == same["score"].to_list()
    assert (
        scores.filter(pl.col("method") == "gradient_shap")["status"]
        .str.starts_with("skipped: the study has no answers for gradient_shap")
        .all()
    )
    other = VisionModel(nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 2)), "other", preprocess=asked.seen)
    result = Benchmark(models=other, data=judged, methods=["saliency"], metrics={"roar": own}).run(
        tmp_path / "other", progress="none", device="cpu", batch=4
    )
    assert "retrained on maps of another model" in result.scores()["status"][0]


def test_a_study_has_the_same_identity_wherever_it_lies(done, tmp_path):
    asked, _ = done
    for name in ("answers.parquet", "retraining.json"):
        (tmp_path / name).write_bytes((asked.out / name).read_bytes())
    one, other = (catalogue.build("metric", "roar", study=str(path)) for path in (asked.out, tmp_path))
    assert one.name != other.name and one.identity() == other.identity()
    (tmp_path / "answers.parquet").write_bytes((asked.out / "answers.parquet").read_bytes() + b" ")
    assert other.identity() != one.identity()


# -- scalars -------------------------------------------------------------------------------------------------------


def test_scalars(tmp_path):
    asked = study(
        tmp_path, granularity="scalar", protocols=("roar",), seeds=1, levels=(50,), methods=["input_x_gradient"]
    )
    found = asked.run("none")
    masks = TopMasks.open(asked.masks["input_x_gradient", 50.0])
    section = found.result.sections[0]
    assert masks.shape == (SIDE, SIDE, 3)
    for sample in section.manifest["samples"]:
        heat = section.map("finder", sample["name"], "input_x_gradient")
        assert heat.shape == (3, SIDE, SIDE) and heat.min() >= 0
        top = masks.top(sample["digest"])
        apart = heat.transpose(1, 2, 0)
        assert top.sum() == SIDE * SIDE * 3 // 2 and apart[top].min() >= apart[~top].max()
    assert found.result.scores()["status"].unique().to_list() == ["ok"]


# -- intervals -----------------------------------------------------------------------------------------------------


def test_intervals_are_over_seeds():
    cells = [
        {"protocol": "roar", "method": m, "level": t, "seed": s, "accuracy": a}
        for m, t, s, a in (
            ("a", 10, 0, 0.5),
            ("a", 10, 1, 0.7),
            ("b", 10, 0, 0.4),
            ("b", 10, 1, 0.4),
            ("c", 10, 0, 0.2),
        )
    ]
    found = {row["method"]: row for row in accuracy_curves(cells).iter_rows(named=True)}
    pooled = (0.1**2 + 0.1**2) / 2  # two cells of two seeds: two degrees of freedom
    for method, mean, n in (("a", 0.6, 2), ("b", 0.4, 2), ("c", 0.2, 1)):
        half = t_quantile(0.95, 2) * (pooled / n) ** 0.5
        assert found[method]["accuracy"] == pytest.approx(mean) and found[method]["seeds"] == n
        assert found[method]["low"] == pytest.approx(max(0, mean - half))
        assert found[method]["high"] == pytest.approx(min(1, mean + half))
    alone = accuracy_curves(cells[::4])
    assert alone["low"].is_null().all() and alone["accuracy"].to_list() == [0.5, 0.2]


def test_intervals_over_seeds_and_pictures():
    rng = np.random.default_rng(0)
    right = rng.random((3, 40)) < 0.6
    answers = pl.DataFrame(
        [
            {"protocol": "roar", "method": "a", "level": 10.0, "seed": i, "sample": f"p{j}", "right": bool(right[i, j])}
            for i in range(3)
            for j in rng.permutation(40)
        ]
        + [
            {
                "protocol": "masks",
                "method": "a",
                "level": 10.0,
                "seed": 0,
                "sample": f"p{j}",
                "right": bool(right[0, j]),
            }
            for j in range(40)
        ]
    )
    both, one = population_accuracies(answers).iter_rows(named=True)
    wanted = two_way_mean(right.astype(float), about="population")
    assert both["accuracy"] == pytest.approx(right.mean()) and (both["seeds"], both["samples"]) == (3, 40)
    assert both["low"] == pytest.approx(wanted.low) and both["high"] == pytest.approx(wanted.high)
    assert one["low"] is None and one["high"] is None and one["accuracy"] == pytest.approx(right[0].mean())


def test_accuracies_are_about_these_pictures_or_about_all(done):
    _, found = done
    here, everywhere = found.accuracies(), found.accuracies("population")
    cells = ["protocol", "method", "level"]
    assert here.select(*cells).rows() == everywhere.select(*cells).rows()
    assert here["accuracy"].to_list() == pytest.approx(everywhere["accuracy"].to_list())
    assert everywhere.filter(pl.col("protocol") == "masks")["low"].is_null().all()
    assert found.study["population"] == everywhere.to_dicts()
    with pytest.raises(HeatcheckError, match="about='galaxy' is neither benchmark"):
        found.accuracies("galaxy")


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levels": (0, 50)}, r"levels=\[0, 50\] must be percents between 0 and 100"),
        ({"levels": ()}, "must be percents"),
        ({"seeds": 0}, "seeds=0 must be at least 1"),
        ({"protocols": ("road",)}, "must be roar, kar or both"),
        ({"granularity": "patch"}, "neither pixel nor scalar"),
        ({"workers": 0}, "workers=0"),
        ({"settings": {"level": 3}}, "the setting level is decided by the study itself"),
    ],
)
def test_wrong_settings(tmp_path, changes, message):
    with pytest.raises(HeatcheckError, match=message):
        study(tmp_path, **changes)


def test_what_cannot_work_is_said_before_anything_is_spent(tmp_path):
    with pytest.raises(HeatcheckError, match="held_out: say which pictures"):
        study(tmp_path, held_out=None).run("none")
    with pytest.raises(HeatcheckError, match="method rollout cannot explain finder"):
        study(tmp_path / "a", methods=["rollout"]).run("none")
    with pytest.raises(HeatcheckError, match="has no label"):
        study(tmp_path / "b", held_out=[Image.fromarray(c) for c in coloured(3, 2)]).run("none")
    assert not (tmp_path / "b" / "learnt").exists()


# -- in processes, and killed --------------------------------------------------------------------------------------

SCRIPT = """
import json, sys
from heatcheck.api.roar import roar
roar(**json.loads(sys.argv[1]), workers=2)
"""


@pytest.mark.slow
def test_killed_and_resumed_in_processes(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(30):
        folder = tmp_path / "pictures" / CLASSES[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        content = rng.integers(0, 120, (32, 32, 3)).astype(np.uint8) + np.uint8(100 * (i % 2))
        Image.fromarray(content).save(folder / f"{i:02d}.png")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    asked = {
        "model": "small:resnet(depth=8, width=2, classes=2)",
        "data": f"folder:{tmp_path / 'pictures'}",
        "methods": ["saliency"],
        "levels": [40],
        "seeds": 1,
        "settings": {"epochs": 1, "batch": 4, "lr": 0.05, "augment": "pad_crop"},
        "device": "cpu",
        "progress": "none",
    }
    command = [sys.executable, "-c", SCRIPT, json.dumps({**asked, "out": str(killed)})]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=env)
    while not list(killed.glob("trainings/*/answers.safetensors")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "answers.parquet").exists()
    subprocess.run(command, env=env, check=True)
    one, other = RetrainingResult.open(killed), roar(**asked, out=whole, workers=1)
    assert one.answers().equals(other.answers()) and one.study["cells"] == other.study["cells"]
    numbers = [r.result.scores().select(pl.col("sample", "method").cast(pl.String), "score") for r in (one, other)]
    assert numbers[0].equals(numbers[1])
    weights = [path.relative_to(whole) for path in whole.glob("trainings/*/weights.safetensors")]
    assert len(weights) == 7 and all((killed / w).read_bytes() == (whole / w).read_bytes() for w in weights)
    assert not list(killed.glob("trainings/*/last.safetensors"))


def test_the_command_tells_the_price_and_refuses_what_contradicts(done, tmp_path):
    from typer.testing import CliRunner

    from heatcheck.cli import app

    for i, content in enumerate(coloured(10, 0)):
        folder = tmp_path / "pictures" / CLASSES[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(content).resize((32, 32)).save(folder / f"{i:02d}.png")
    given = [
        "roar",
        "--model",
        "small:resnet(depth=8, width=2, classes=2)",
        "--data",
        f"folder:{tmp_path / 'pictures'}",
    ]
    given += [
        "--methods",
        "saliency",
        "--levels",
        "20,60",
        "--seeds",
        "2",
        "--out",
        str(tmp_path / "out"),
        "--workers",
        "1",
    ]
    given += ["--set", "epochs=1", "--set", "batch=4"]
    found = CliRunner().invoke(app, [*given, "--both", "--plan", "--json"])
    assert found.exit_code == 0, found.output
    plan = json.loads(found.stdout)
    assert plan["trainings"] == 2 + 2 * (3 * 2 * 2) + 3 * 2 and plan["done"] == 0
    assert plan["samples"] == 8 and plan["judged"] == 2 and plan["seconds"] > 0 and plan["disk_bytes"] > 0
    assert not (tmp_path / "out").exists()
    wrong = CliRunner().invoke(app, [*given, "--both", "--keep-top"])
    assert wrong.exit_code == 2 and "leave one of them out" in wrong.output
    wrong = CliRunner().invoke(app, [*given[:8], "twenty", *given[9:]])
    assert wrong.exit_code == 2 and "should be percents" in wrong.output


def test_the_verb_is_the_study(tmp_path, monkeypatch):
    monkeypatch.setattr(RetrainingStudy, "run", lambda self, progress: (self, progress))
    asked, progress = roar("small:resnet8", "cifar10:DIR", methods=["saliency"], out=tmp_path, levels=[30, 10], seeds=3)
    assert (asked.levels, asked.seeds, asked.protocols, progress) == ((10.0, 30.0), 3, ("roar",), "auto")
