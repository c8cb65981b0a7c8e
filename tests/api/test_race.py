"""Races as runs: who is explained on how many samples, what is said, and that a killed race ends with the same verdict."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.api.race import Engine
from heatcheck.cli import app
from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError
from heatcheck.report import render
from heatcheck.report.page import page_view
from heatcheck.report.race import RaceCase, RaceReport
from heatcheck.stats.race import Goal, Race, looks

MUTANTS = (
    (
        "api/race.py",
        "self.setup.methods if label in methods",
        "self.setup.methods",
        "test_the_worst_is_explained_no_further_and_the_best_is_found",
    ),
    (
        "api/race.py",
        "(n - len(self.order)) * self.each",
        "n * self.each",
        "test_the_worst_is_explained_no_further_and_the_best_is_found",
    ),
    (
        "api/race.py",
        "self.each(racing, asked) + made_up",
        "self.each(racing, asked)",
        "test_a_method_that_rests_is_explained_no_further_until_it_is_woken",
    ),
    (
        "api/race.py",
        "if self.goal.margin:",
        "if True:",
        "test_it_says_beforehand_what_it_may_cost",
    ),
    (
        "api/race.py",
        "self.setup.metrics if label in metrics",
        "self.setup.metrics",
        "test_settled_metrics_are_asked_no_further",
    ),
    (
        "report/race.py",
        "if not all(race.certain):",
        "if False:",
        "test_what_only_the_margin_settles_is_called_chosen",
    ),
    (
        "report/race.py",
        "case.race.settled and all(case.race.certain)",
        "case.race.settled",
        "test_what_only_the_margin_settles_is_called_chosen",
    ),
    ("api/race.py", "RACE: dict(self.looked)", "", "test_the_page_of_a_race_says_that_it_is_one_until_a_full_run_is_there"),
    ("report/raced.py", 'race["n"] < race["of"]', "True", "test_the_page_of_a_race_that_needed_all_samples_warns_of_nothing"),
    (
        "report/raced.py",
        'race["n"] >= other["n"]',
        "True",
        "test_the_page_of_a_race_says_that_it_is_one_until_a_full_run_is_there",
    ),
)  # fmt: skip
METHODS = {"exact": "input_x_gradient", "near": "smoothgrad(of=input_x_gradient, samples=2)", "slope": "saliency"}
SDS = {"metrics": ["sds"]}
HOW = {"progress": "none", "batch": 16, "maps": "none"}


@pytest.fixture
def linear():
    """Zero fill deletes w·x of a cell, which `input_x_gradient` says exactly."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 3)).double()


@pytest.fixture
def pictures():
    return torch.randn(64, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Told:
    """Progress that keeps its notes."""

    def __init__(self):
        self.notes = []

    def begin(self, what, passes, done=0): ...
    def advance(self, passes): ...
    def note(self, text):
        self.notes.append(text)

    def end(self): ...


def raced(linear, pictures, out, **changes):
    settings = {"methods": METHODS, **SDS, **HOW, **changes}
    return hc.race(linear, pictures, out=out, **settings)


def test_the_worst_is_explained_no_further_and_the_best_is_found(linear, pictures, tmp_path):
    found = raced(linear, pictures, tmp_path)
    race, rows = found.report.cases[0].race, {row["method"]: row for row in found.table().iter_rows(named=True)}
    assert found.finished and race.chosen == ("exact",)
    stored = hc.Result.open(tmp_path).scores().filter(status="ok")
    explained = {m: len(set(stored.filter(method=m)["sample"])) for m in METHODS}
    assert explained == {m: rows[m]["samples"] for m in METHODS}
    assert explained["slope"] == race.decided[2] < explained["exact"] < 64
    assert found.verdicts == [f"sds on Sequential: exact is the best of 3 methods (after {race.n} of 64 samples)."]
    spent = hc.Result.open(tmp_path).facts["passes"]
    assert found.report.passes == spent["forwards"] + spent["backwards"] < found.report.full_passes

    again = raced(linear, pictures, tmp_path)
    assert again.record() == found.record()
    assert hc.Result.open(tmp_path).facts["passes"]["forwards"] == spent["forwards"], "a finished race computes nothing"

    full = hc.Benchmark(models=linear, data=pictures, methods=METHODS, **SDS).run(tmp_path, **HOW)
    means = {row["method"]: row["mean"] for row in full.leaderboard().full.iter_rows(named=True) if row["n"] == 64}
    assert max(METHODS, key=means.get) == "exact"
    assert race.low[0, 1] <= means["exact"] - means["near"] <= race.high[0, 1]


def settled(scores, goal, margin=None):
    """The verdict, states and record of a race to its end."""
    names = ("a", "b", "c", "d")[: len(scores)]
    race = Race(names, Goal.parse(goal, margin), scores.shape[1], 2.0)
    for n in looks(scores.shape[1]):
        race = race if race.settled else race.after(scores[:, :n])
    case = RaceCase("net", "sds", race)
    found = RaceReport(race.goal, race.population, "photos", (case,), 1, 2, True).record()["races"][0]
    return case.verdict().split(" (")[0], [row["state"] for row in found["methods"]], found["certain"]


def test_what_only_the_margin_settles_is_called_chosen():
    noise = np.random.default_rng(0).normal(0, 0.1, (4, 400))
    near = np.array([[0.5], [0.49], [0.0], [0.9]]) + noise - noise.mean(axis=1, keepdims=True)
    bound = "no other is better by more than 0.1"
    assert settled(near[:3], "best", 0.1) == (
        f"sds on net: chosen: a; {bound}", ["chosen", "left out", "not best"], False
    )  # fmt: skip
    words = "sds on net: chosen: d and a; no other is better than one of them by more than 0.1"
    assert settled(near, "top=2", 0.1) == (words, ["top 2", "chosen", "left out", "left out"], False)
    words = "sds on net: chosen order: a, b, c; no method is better than one before it by more than 0.1"
    assert settled(near[:3], "order", 0.1) == (words, ["rank 1", "rank 2", "rank 3"], False)


def test_what_is_certain_is_called_the_best_with_a_margin_too():
    noise = np.random.default_rng(0).normal(0, 0.1, (3, 400))
    far = np.array([[0.9], [0.4], [0.0]]) + noise - noise.mean(axis=1, keepdims=True)
    assert settled(far, "best", 0.01) == ("sds on net: a is the best of 3 methods", ["best", *["not best"] * 2], True)
    assert settled(far, "top=2", 0.01)[0] == "sds on net: the best 2 of 3 methods are a and b"
    assert settled(far, "order", 0.01)[0] == "sds on net: the order is a, b, c"


def test_equal_methods_are_named_and_neither_is_called_the_best():
    noise = np.random.default_rng(0).normal(0, 0.1, (2, 40))
    scores = np.clip(np.array([[0.5], [0.0]]) + noise, -1, 1)
    words, states, certain = settled(scores[[0, 0, 1]], "best")
    assert words == "sds on net: chosen: a; a and b are equal" and not certain
    assert states == ["chosen", "left out", "not best"]


def limits(folder):
    """By the number of samples of each case, what its page says of a race; and the lines about races below."""
    view = page_view(hc.Result.open(folder))
    told = {case.n: ["".join(part.text for part in line) for line in case.verdict.limits] for case in view.cases}
    return {n: [line for line in lines if "race" in line] for n, lines in told.items()}, view.races


def test_the_page_of_a_race_says_that_it_is_one_until_a_full_run_is_there(linear, pictures, tmp_path):
    found = raced(linear, pictures, tmp_path, margin=0.01)
    end = found.report.cases[0].race.n
    told, below = limits(tmp_path)
    last = told.pop(end)
    assert end < 64 and told, "the worst left earlier, and stands in a table of its own"
    assert len(last) == 1 and f"a race stopped after {end} of 64 samples by looking at scores. Intervals and" in last[0]
    for n, lines in told.items():
        assert len(lines) == 1 and f"a race left methods out after {n} of 64 samples by looking at scores." in lines[0]
    assert len(below) == 1 and below[0].startswith("Race, goal best, margin 0.01, Sequential on ")
    page = render(hc.Result.open(tmp_path))
    assert page.count("by looking at scores") == len(told) + 2 and "heatcheck race" in below[0]

    raced(linear, pictures, tmp_path, margin=0.01)
    assert limits(tmp_path)[1] == below, "a race that is started again tells the same"
    hc.Benchmark(models=linear, data=pictures, methods=METHODS, **SDS).run(tmp_path, **HOW)
    assert limits(tmp_path) == ({64: []}, ())
    raced(linear, pictures, tmp_path, margin=0.01)
    assert limits(tmp_path) == ({64: []}, ()), "all samples are there, whatever is raced over them"


def test_the_page_of_a_race_that_needed_all_samples_warns_of_nothing(linear, pictures, tmp_path):
    found = raced(linear, pictures[:20], tmp_path, goal="order")
    assert found.report.cases[0].race.n == 20
    told, below = limits(tmp_path)
    assert told[20] == [] and "all 20 samples were needed." in below[0] and "too sure" not in below[0]


@pytest.fixture
def own(monkeypatch):
    """What a test declares is forgotten after it."""
    monkeypatch.setattr(catalogue, "_own", dict(catalogue._own))


def scripted(scores):
    """Methods and a metric that give these scores, in the order in which a race looks at pictures that are their numbers."""
    n = scores.shape[1]
    pictures = torch.arange(n, dtype=torch.float64)[:, None, None, None].expand(n, 3, 4, 4).clone()
    names = [sample.name for sample in hc.load_data(pictures)]
    order = sorted(range(n), key=lambda i: hashlib.sha256(f"0|{names[i]}".encode()).digest())
    table = torch.empty(scores.shape, dtype=torch.float64)
    table[:, order] = torch.from_numpy(scores)

    def scripted_method(row):
        @hc.method(f"scripted_{row}")
        def method(model, x, target):
            """A given number, after a pass."""
            model(x)
            return table[row][x[:, 0, 0, 0].long()][:, None, None, None].expand_as(x)

        return method

    @hc.metric("first_value", better="higher", within=(-1, 1), family="form")
    def first_value(model, x, target, maps):
        """The map's first number."""
        return maps.flatten(2)[:, :, 0].clamp(-1, 1)

    return pictures, {f"m{row}": scripted_method(row) for row in range(len(scores))}, [first_value]


def overtaken():
    """The noisy m1 overtakes m0 after some samples; m2 moves with m0, a little below: it rests while m0 is chosen."""
    rng = np.random.default_rng(0)
    base, other = rng.uniform(-0.05, 0.05, 400), rng.uniform(-0.9, 0.9, 400)
    for part, ahead in ((slice(304), -0.01), (slice(304, 400), 0.125)):
        other[part] += base[part].mean() - other[part].mean() + ahead
    return np.stack([base, other, base - 0.001])


def test_a_method_that_rests_is_still_open():
    race = Race(("m0", "m1", "m2"), Goal(1, 0.05), 400, 2.0).after(overtaken()[:, :304])
    assert race.racing == ("m0", "m1")
    assert RaceCase("net", "sds", race).verdict().endswith("still open: m0, m1 and m2.")


def test_a_method_that_rests_is_explained_no_further_until_it_is_woken(tmp_path, monkeypatch, own):
    pictures, methods, metrics = scripted(overtaken())
    seen = []
    look = Engine.look
    monkeypatch.setattr(Engine, "look", lambda *a: (look(*a), seen.append((a[3], dict(a[1].explained)))))
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).double()
    found = hc.race(network, pictures, out=tmp_path, methods=methods, metrics=metrics, margin=0.05, **HOW)
    rested = [n for n, explained in seen if explained["m2"] < n]
    assert rested
    woken = [n for i, (n, _) in enumerate(seen) if n in [before for before, _ in seen[:i]]]
    assert woken, "who was woken makes up for what it missed before anything is decided"
    spent = hc.Result.open(tmp_path).facts["passes"]
    assert found.report.passes == spent["forwards"] + spent["backwards"]


def test_scores_beyond_the_range_that_a_metric_states_end_a_race_with_its_name(linear, pictures, tmp_path, own):
    @hc.metric("mistaken_range", better="higher", within=(0, 1e-9), family="form")
    def mistaken(model, x, target, maps):
        """More than it says."""
        return maps.flatten(2).abs().sum(2)

    with pytest.raises(
        HeatcheckError, match=r"mistaken_range on Sequential: a value of .* is beyond the reach of 1e-09"
    ):
        raced(linear, pictures, tmp_path, metrics=[mistaken])


def test_settled_metrics_are_asked_no_further(linear, pictures, tmp_path):
    told = Told()
    few = {"exact": "input_x_gradient", "slope": "saliency"}
    found = raced(linear, pictures, tmp_path, methods=few, metrics=["sds", "sparseness"], progress=told)
    ends = {case.metric: case.race.n for case in found.report.cases}
    stored = hc.Result.open(tmp_path).scores().filter(status="ok")
    assert {m: len(set(stored.filter(metric=m)["sample"])) for m in ends} == ends
    assert len(set(ends.values())) == 2
    assert any("is settled" in note for note in told.notes)


def test_it_says_beforehand_what_it_may_cost(linear, pictures, tmp_path):
    told = Told()
    raced(linear, pictures[:20], tmp_path, progress=told, goal="order")
    assert "goal order without a margin may need all 20 samples" in told.notes[0] and "at most" in told.notes[0]
    told = Told()
    raced(linear, pictures[:20], tmp_path, progress=told, goal="order", margin=0.05)
    assert told.notes[0].startswith("goal order, differences up to 0.05 do not matter: at most")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"goal": "winner"}, "goal 'winner' should be best, top=K"),
        ({"margin": -1.0}, "margin -1.0 should be a difference greater than 0"),
        ({"shard": "1/2"}, "shard='1/2': a race decides by the samples in order"),
        ({"goal": "top=3"}, "goal top=3: only 3 methods race .exact, near, slope."),
        ({"metrics": ["pscore"]}, "nobody can race: Sequential: pscore is not raced: pscore compares models"),
    ],
)
def test_what_cannot_be_raced_is_said_before_anything_is_spent(linear, pictures, tmp_path, changes, words):
    with pytest.raises((SpecError, hc.HeatcheckError), match=words):
        raced(linear, pictures[:20], tmp_path, **changes)
    assert not (tmp_path / "run.json").exists()


def test_a_budget_ends_a_race_that_goes_on_later(linear, pictures, tmp_path):
    found = raced(linear, pictures[:24], tmp_path, budget=1e-9)
    assert not found.finished and found.verdicts == []
    assert raced(linear, pictures[:24], tmp_path).finished


STUDY = """
models = ["{folder}/net.py:net"]
data = "folder:{folder}/pictures"
methods = ["input_x_gradient", "saliency", "smoothgrad(of=input_x_gradient, samples=2)"]
metrics = ["sds"]
preprocess = "mean=0.5 0.5 0.5,std=0.25 0.25 0.25,size=16"
out = "{folder}/{out}"

[runtime]
batch = 8
"""


@pytest.fixture
def study(tmp_path):
    """A study that other processes can load."""
    (tmp_path / "net.py").write_text(
        "import torch\n\n\ndef net():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 3))\n"
    )
    (tmp_path / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i in range(40):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(tmp_path / "pictures" / f"{i:02d}.png")

    def write(out):
        path = tmp_path / f"{out}.toml"
        path.write_text(STUDY.format(folder=tmp_path, out=out))
        return str(path)

    return write


def test_the_command_line_ends_with_a_verdict_a_table_and_the_share(study):
    found = CliRunner().invoke(app, ["race", study("plain"), "--goal", "top=2", "--margin", "0.3", "--quiet"])
    assert found.exit_code == 0, found.output
    assert "the best 2 of 3 methods are" in found.stdout and "by more than" not in found.stdout
    assert "decided at" in found.stdout and "passes of a full run (" in found.stdout
    assert "−0." in found.stdout and "-0." not in found.stdout
    near = ["race", study("near"), "--goal", "best", "--margin", "0.8", "--quiet"]
    shown = CliRunner().invoke(app, near).stdout
    assert "net: chosen: input_x_gradient; no other is better by more than 0.8 (after 16 of 40 samples)." in shown
    assert "left out" in shown and "is the best" not in shown
    told = json.loads(CliRunner().invoke(app, [*near, "--json"]).stdout)["races"][0]
    assert [row["state"] for row in told["methods"]] == ["chosen", "left out", "not best"] and not told["certain"]
    wrong = CliRunner().invoke(app, ["race", study("plain"), "--goal", "first"])
    assert wrong.exit_code == 2 and "goal 'first' should be" in wrong.stderr


@pytest.mark.slow
def test_every_executor_decides_alike_and_a_killed_race_ends_with_the_same_verdict(study, tmp_path):
    def command(out, *options):
        return [sys.executable, "-m", "heatcheck", "race", study(out), "--goal", "order", "--json", "--quiet", *options]

    def verdict(out, *options):
        done = subprocess.run(command(out, *options), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return {k: v for k, v in json.loads(done.stdout).items() if k != "run"}

    here = verdict("here", "--on", "here")
    assert verdict("processes", "--on", "processes:2") == here
    killed = subprocess.Popen(command("killed", "--on", "here"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while killed.poll() is None and not list((tmp_path / "killed" / "chunks").glob("*")):
        time.sleep(0.05)
    os.kill(killed.pid, signal.SIGKILL) if killed.poll() is None else None
    killed.wait()
    assert verdict("killed", "--on", "here") == here
