"""Races as runs: who is explained on how many samples, what is said, and that a killed race ends with the same verdict."""

import pytest
import torch
from torch import nn

import heatcheck as hc

MUTANTS = (
    (
        "api/race.py",
        "if label in methods},",
        "},",
        "test_the_worst_is_explained_no_further_and_the_best_is_found",
    ),
    ("api/race.py", "(n - len(self.order)) * self.each", "n * self.each", "test_passes_are_those_of_the_runs"),
    (
        "api/race.py",
        "if self.goal.margin:",
        "if True:",
        "test_it_says_beforehand_what_it_may_cost",
    ),
    (
        "api/race.py",
        "set(self.races[metric].racing if metric in self.races else",
        "set(",
        "test_settled_metrics_are_asked_no_further",
    ),
)
METHODS = {"exact": "input_x_gradient", "near": "smoothgrad(of=input_x_gradient, samples=2)", "slope": "saliency"}
SDS = {"metrics": ["sds"]}


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
    settings = {"methods": METHODS, **SDS, "progress": "none", "batch": 16, "maps": "none", "goal": "best", **changes}
    return hc.race(linear, pictures, out=out, **settings)


def test_the_worst_is_explained_no_further_and_the_best_is_found(linear, pictures, tmp_path):
    found = raced(
        linear,
        pictures,
        tmp_path,
        metrics=["sds(fill=zero)"],
        methods={**METHODS, "worst": "input_x_gradient(post=neg)"} if False else METHODS,
    )
    full = hc.Benchmark(models=linear, data=pictures, methods=METHODS, metrics=["sds(fill=zero)"]).run(
        tmp_path / "full", progress="none", batch=16, maps="none"
    )
    board = full.leaderboard().full.filter(~full.leaderboard().full["control"])
    assert found.finished and found.report.cases[0].race.chosen == (board["method"][0],) == ("exact",)
    rows = {row["method"]: row for row in found.table().iter_rows(named=True)}
    stored = hc.Result.open(tmp_path).scores().filter(status="ok")
    explained = {m: len(set(stored.filter(method=m)["sample"])) for m in METHODS}
    assert explained == {m: rows[m]["samples"] for m in METHODS}
    assert explained["slope"] < 64
    assert "exact is the best of 3 methods" in found.verdicts[0]


def test_passes_are_those_of_the_runs(linear, pictures, tmp_path):
    found = raced(linear, pictures, tmp_path, goal="order")
    facts = hc.Result.open(tmp_path).facts["passes"]
    assert found.report.passes == facts["forwards"] + facts["backwards"]
    assert 0 < found.share <= 1
