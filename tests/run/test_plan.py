"""What a run will cost, compared with what it does cost."""

from dataclasses import replace

import pytest

from heatcheck.run import plan as planner
from heatcheck.run.execution import execute
from heatcheck.run.plan import plan
from heatcheck.run.runtime import Runtime
from heatcheck.run.work import Sources

FIXED = Runtime(batch=4, progress="none")
METHODS, METRICS = ["saliency", "occlusion", "random"], ["sds", "morf(steps=4)"]
MUTANTS = (
    (
        "run/plan.py",
        "scale = len(open_samples) / len(each)",
        "scale = 1.0",
        "test_what_is_not_looked_at_costs_the_mean",
    ),
    (
        "run/plan.py",
        "found.reused += len(data) - len(open_samples)",
        "found.reused += len(open_samples)",
        "test_what_is_stored_is_not_computed_again",
    ),
    (
        "run/plan.py",
        "found.disk_bytes += round(kept * 4 * len(grid.methods))",
        "found.disk_bytes += round(kept * len(grid.methods))",
        "test_maps_are_four_bytes_a_site",
    ),
    (
        "run/plan.py",
        "found.forwards += round(scale * sum(f.forwards for f in each))",
        "found.forwards += round(scale * each[0].forwards)",
        "test_passes_are_those_of_the_run",
    ),
    (
        "run/plan.py",
        "- slopes) * forward + slopes * backward",
        ") * forward + slopes * backward",
        "test_time_is_the_passes_at_their_rates_shared_by_workers",
    ),
)


def test_passes_are_those_of_the_run(make_setup, tmp_path):
    setup = make_setup(METHODS, METRICS, n=5)
    foretold = plan(setup, FIXED, None, calibrate=False)
    passes = execute(setup, tmp_path / "r", FIXED).read("run.json")["passes"]
    assert (foretold.samples, foretold.forwards, foretold.backwards) == (5, passes["forwards"], passes["backwards"])
    for direction in ("forwards", "backwards"):
        assert sum(row[direction] for row in foretold.rows) == getattr(foretold, direction)


def test_what_is_stored_is_not_computed_again(make_setup, tmp_path):
    execute(make_setup(METHODS, METRICS, n=5), tmp_path / "r", FIXED)
    foretold = plan(make_setup(METHODS, METRICS, n=12), FIXED, tmp_path / "r", calibrate=False)
    alone = plan(make_setup(METHODS, METRICS, n=7), FIXED, None, calibrate=False)
    assert (foretold.reused, foretold.forwards) == (5, alone.forwards)


def test_what_is_not_looked_at_costs_the_mean(make_setup, monkeypatch):
    setup = make_setup(METHODS, METRICS, n=12)
    whole = plan(setup, FIXED, None, calibrate=False)
    monkeypatch.setattr(planner, "LOOK", 3)
    assert plan(setup, FIXED, None, calibrate=False).forwards == whole.forwards


@pytest.mark.parametrize(("maps", "samples"), [("keep", 12), ("gallery", 8), ("none", 0)])
def test_maps_are_four_bytes_a_site(make_setup, maps, samples):
    foretold = plan(make_setup(METHODS, METRICS, n=12), Runtime.of(FIXED, maps=maps), None, calibrate=False)
    assert foretold.disk_bytes == 16 * 16 * 4 * len(METHODS) * samples


def test_time_is_the_passes_at_their_rates_shared_by_workers(make_setup, monkeypatch):
    monkeypatch.setattr(planner, "rates", lambda part, x: (2.0, 5.0))
    setup = make_setup(METHODS, METRICS, n=3, sources=Sources(portable=True))
    foretold = plan(setup, FIXED, None)
    assert foretold.seconds == (foretold.forwards - foretold.backwards) * 2.0 + foretold.backwards * 5.0
    assert plan(setup, Runtime.of(FIXED, workers=2), None).seconds == foretold.seconds / 2
    assert plan(setup, FIXED, None, calibrate=False).seconds is None
    alone = plan(replace(setup, sources=Sources()), Runtime.of(FIXED, workers=2), None)
    assert alone.seconds == foretold.seconds, "what exists in this process only is not shared"


def test_memory_is_told_for_each_kind_of_process(make_setup, monkeypatch):
    monkeypatch.setattr(planner, "needed", lambda call, device: {"cpu": 70 << 20, "cuda:0": 5 << 20})
    monkeypatch.setattr(planner, "resident_bytes", lambda: 300 << 20)
    setup = make_setup(METHODS, METRICS, n=3, sources=Sources(portable=True))
    maps = planner.CHUNK * len(METHODS) * 16 * 16 * planner.MAP
    (alone, gpu) = plan(setup, FIXED, None).memory
    assert (alone["process"], alone["device"]) == ("this process", "cpu") and gpu["device"] == "cuda:0"
    assert alone["bytes"] == (300 + 70 << 20) + planner.WORKING and gpu["bytes"] == (5 << 20) + maps
    shared = plan(setup, Runtime.of(FIXED, workers=2), None)
    assert [(row["process"], row["processes"]) for row in shared.memory if row["device"] == "cpu"] == [
        ("each of 2 workers", 2),
        ("the driver", 1),
    ]
    assert shared.memory[-1]["bytes"] == 300 << 20 and shared.memory_bytes == alone["bytes"]


def test_a_plan_writes_nothing(make_setup, make_model, tmp_path):
    """Not even the shape of calls: a plan without calibration does not measure it."""
    store = execute(make_setup(METHODS, METRICS, n=2), tmp_path / "r", FIXED)
    before = store.read("numerics.json")
    more = make_setup(METHODS, METRICS, n=2, models={"toy": make_model(0), "other": make_model(1)})
    plan(more, Runtime(progress="none"), tmp_path / "r", calibrate=False)
    assert store.read("numerics.json") == before
    execute(more, tmp_path / "r", FIXED)
    assert len(store.read("numerics.json")) == 2
