"""The costs that `heatcheck list` shows are those of the embedded defaults."""

import json
from pathlib import Path

import pytest

import heatcheck as hc
from heatcheck.api import costs
from heatcheck.core import catalogue
from heatcheck.probe.asks import Shape

FILE = Path(costs.__file__).parent.parent / "cli" / "costs.json"
WRITTEN = json.loads(FILE.read_text(encoding="utf-8"))

MUTANTS = [
    (
        "api/costs.py",
        "passes_of(one - other, ",
        "passes_of(one, ",
        "test_costs_on_pictures_are_true",
    ),
    ("api/costs.py", "sum(passes_of(one & other))", "len(one | other)", "test_costs_on_pictures_are_true"),
]


@pytest.mark.parametrize("kind", ["method", "metric"])
def test_every_shipped_component_has_a_cost(kind):
    for facts in WRITTEN.values():
        assert set(facts[kind]) == set(catalogue._shipped(kind)), "run `make docs`"


def test_costs_on_pictures_are_true():
    model, sample = hc.load_model("efficientnet_lite0"), hc.load_data("images", samples=None)[0]
    x = model.encode(sample)
    shape = Shape(model.domain, x, model, model.references(sample, x))
    facts = WRITTEN["image"]
    assert (facts["model"], facts["sample"]) == (model.name, costs.described(model.domain, x))
    methods = {id: costs.method_cost(id, shape) for id, cost in facts["method"].items() if cost is not None}
    assert methods == {id: cost for id, cost in facts["method"].items() if cost is not None}, "run `make docs`"
    assert {id: costs.metric_cost(id, shape) for id in facts["metric"]} == facts["metric"], "run `make docs`"


def test_the_file_is_written_as_it_is_read():
    assert costs.written(WRITTEN) == FILE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_all_costs_are_true():
    assert costs.written(costs.embedded()) == FILE.read_text(encoding="utf-8"), "run `make docs`"
