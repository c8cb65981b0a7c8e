"""Runs: complete, resumable, shared, and bit-equal whatever stands beside."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from torch import nn

from heatcheck.api.result import Result
from heatcheck.core.types import Sample
from heatcheck.data.base import Dataset
from heatcheck.probe.asks import Shape
from heatcheck.probe.numerics import Numerics
from heatcheck.run.execution import execute
from heatcheck.run.forecast import forecast
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import prepare
from heatcheck.run.task import run_chunk

FIXED = Runtime(progress="none", batch=4)
KEY = ["sample", "method", "metric"]
MUTANTS = (
    (
        "run/lacking.py",
        'return status is None or status.startswith("failed")',
        "return status is None",
        "test_a_score_that_failed_is_tried_again",
    ),
    (
        "run/chunk.py",
        "first.answers = {k: v for k, v in self.probe.answered().items() if k not in self.saved_answers}",
        "first.answers = {}",
        "test_a_method_added_later_asks_no_shared_question_again",
    ),
    (
        "run/task.py",
        'streams=Streams(grid.seed, tuple(r["digest"] for r in records))',
        "streams=Streams(grid.seed, tuple(str(i) for i, r in enumerate(records)))",
        "test_scores_do_not_depend_on_the_order_of_samples",
    ),
    (
        "run/setup.py",
        'if known is not None and known["device"] == device:',
        "if False:",
        "test_numerics_are_written_before_the_first_chunk_and_reused",
    ),
    (
        "run/execution.py",
        "finished=runner.left == 0",
        "finished=True",
        "test_the_budget_stops_between_chunks_and_the_next_run_goes_on",
    ),
    (
        "run/forecast.py",
        "fresh = {a for a in asks if a not in asked}",
        "fresh = set(asks)",
        "test_the_rows_of_a_forecast_add_up_to_its_total",
    ),
    (
        "run/forecast.py",
        "fresh = m.component.cache_key not in made",
        "fresh = True",
        "test_the_plan_counts_exactly_what_the_run_spends",
    ),
    (
        "probe/asks.py",
        "if count <= 0:",
        "if count < 0:",
        "test_the_plan_counts_exactly_what_the_run_spends",
    ),
    (
        "probe/asks.py",
        "elif count >= n:",
        "elif count > n:",
        "test_the_plan_counts_exactly_what_the_run_spends",
    ),
)


def table(setup, out: Path, runtime: Runtime = FIXED) -> pl.DataFrame:
    return Result(execute(setup, out, runtime), only=True).scores()


def by_content(scores: pl.DataFrame, setup) -> dict[tuple[str, str, str], tuple[float | None, str]]:
    digest = {s.name: s.digest for s in setup.data}
    rows = scores.select("sample", "method", "metric", "score", "status").iter_rows()
    return {(digest[s], m, k): (score, status) for s, m, k, score, status in rows}


def test_every_cell_has_a_row_and_a_finite_score(make_setup, tmp_path):
    scores = table(make_setup(), tmp_path / "r")
    assert len(scores) == 20 * 5 * 3
    assert scores["status"].unique().to_list() == ["ok"]
    assert scores["score"].is_finite().all()


def test_a_second_run_asks_nothing_and_writes_nothing(make_setup, tmp_path):
    first = table(make_setup(), tmp_path / "r")
    files = sorted((tmp_path / "r" / "chunks").iterdir())
    passes = json.loads((tmp_path / "r" / "run.json").read_text())["passes"]
    second = table(make_setup(), tmp_path / "r")
    assert sorted((tmp_path / "r" / "chunks").iterdir()) == files
    assert json.loads((tmp_path / "r" / "run.json").read_text())["passes"] == passes
    assert first.equals(second)


def test_scores_do_not_depend_on_the_order_of_samples(make_setup, tmp_path):
    plain, other = (
        make_setup(),
        make_setup(order=torch.randperm(20, generator=torch.Generator().manual_seed(3)).tolist()),
    )
    assert by_content(table(plain, tmp_path / "a"), plain) == by_content(table(other, tmp_path / "b"), other)


def test_scores_do_not_depend_on_neighbours_in_the_chunk(make_setup, tmp_path):
    whole, few = make_setup(), make_setup(order=[3, 11, 17])
    everything = by_content(table(whole, tmp_path / "a"), whole)
    for key, value in by_content(table(few, tmp_path / "b"), few).items():
        assert everything[key] == value


@pytest.mark.parametrize("method", ["saliency", "rise(samples=16)", "occlusion"])
def test_scores_do_not_depend_on_other_methods_and_metrics(make_setup, tmp_path, method):
    whole = make_setup()
    everything = by_content(table(whole, tmp_path / "a"), whole)
    for metric in ("sds", "morf(steps=4)", "infidelity(samples=8)"):
        alone = make_setup([method], [metric])
        for key, value in by_content(table(alone, tmp_path / f"b{metric}"), alone).items():
            assert everything[key] == value


def test_another_batch_size_changes_scores_by_rounding_only(make_setup, tmp_path):
    a = table(make_setup(), tmp_path / "a", Runtime(progress="none", batch=4))
    b = table(make_setup(), tmp_path / "b", Runtime(progress="none", batch=7))
    near = ((a["score"] - b["score"]).abs() <= 1e-5 * (1 + a["score"].abs())).mean()
    assert near is not None and near >= 0.99
    assert abs(a["score"].mean() - b["score"].mean()) < 1e-3


def test_a_method_added_later_asks_no_shared_question_again(make_setup, tmp_path):
    metrics = ["sds", "infidelity(samples=8)"]
    table(make_setup(["saliency"], metrics), tmp_path / "r")
    before = json.loads((tmp_path / "r" / "run.json").read_text())["passes"]["forwards"]
    table(make_setup(["saliency", "occlusion", "random"], metrics), tmp_path / "r")
    after = json.loads((tmp_path / "r" / "run.json").read_text())["passes"]["forwards"]
    assert after == before


def test_eight_methods_cost_the_shared_passes_of_one(make_setup):
    metrics = ["sds", "infidelity"]
    free = ["random", "random(grid=7)", "random(grid=4)", "constant", "sobel", "center", "oracle", "occlusion"]
    spent = []
    for methods in (free[:1], free):
        setup = make_setup(methods, metrics, n=6)
        part = prepare(setup, FIXED, None)[0]
        spent.append(run_chunk(part.grid, list(setup.data)).spent.forwards)
    assert spent[0] == spent[1] > 0


def test_the_plan_counts_exactly_what_the_run_spends(make_setup, tmp_path):
    methods = [
        "saliency",
        "input_x_gradient",
        "integrated_gradients(steps=3)",
        "integrated_gradients(steps=3, post=abs)",
        "occlusion",
        "rise(samples=16)",
        "random",
    ]
    metrics = ["sds", "morf(steps=5)", "lerf(steps=5)", "abpc(steps=5)", "ids(steps=4)", "infidelity(samples=8)"]
    setup = make_setup(methods, metrics, n=5)
    part = prepare(setup, FIXED, None)[0]
    told = [forecast(part.grid, Shape(part.grid.model.domain, part.grid.model.encode(s))) for s in setup.data]
    spent = run_chunk(part.grid, list(setup.data)).spent
    assert (sum(t.forwards for t in told), sum(t.backwards for t in told)) == (spent.forwards, spent.backwards)


def test_the_rows_of_a_forecast_add_up_to_its_total(make_setup):
    setup = make_setup(["saliency", "occlusion", "saliency(post=abs)"], ["sds", "morf(steps=5)", "lerf(steps=5)"], n=1)
    part = prepare(setup, FIXED, None)[0]
    told = forecast(part.grid, Shape(part.grid.model.domain, part.grid.model.encode(setup.data[0])))
    for direction in ("forwards", "backwards"):
        assert sum(row[direction] for row in told.rows) == getattr(told, direction)
    shared = run_chunk(part.grid, list(setup.data)).spent
    assert (told.forwards, told.backwards) == (shared.forwards, shared.backwards)


def test_a_bad_sample_fails_alone(make_setup, tmp_path):
    setup = make_setup(n=10)
    broken = Sample("broken", "d" * 64, "not a picture", 0)
    unusable = Sample("unusable", "e" * 64, None, problem="the file is empty")
    mixed = Dataset("mixed", setup.data.modality, (*setup.data.samples[:3], broken, unusable, *setup.data.samples[3:]))
    object.__setattr__(setup, "data", mixed)
    result = Result(execute(setup, tmp_path / "r", FIXED))
    status = dict(result.scores().group_by("sample").agg(pl.col("status").first()).iter_rows())
    assert status.pop("broken") == "failed: ValueError: unreadable"
    assert status.pop("unusable") == "failed: the file is empty"
    assert set(status.values()) == {"ok"}
    assert result.failed == 2 * 5 * 3


def test_a_method_that_raises_loses_only_its_samples(make_setup, tmp_path):
    import heatcheck as hc

    victim = make_setup(n=9).data[4].content

    @hc.method("stumbles_on_one")
    def stumbles_on_one(model, x, target):
        if any(torch.equal(one, victim) for one in x):
            raise ZeroDivisionError("on purpose")
        return x

    setup = make_setup(["stumbles_on_one", "saliency"], ["sds"], n=9)
    scores = table(setup, tmp_path / "r")
    bad = scores.filter(pl.col("status") != "ok")
    assert bad["sample"].to_list() == [setup.data[4].name]
    assert bad["status"].to_list() == ["failed: ZeroDivisionError: on purpose (test_execution.py, line 213)"]
    assert scores.filter(pl.col("method") == "saliency")["status"].unique().to_list() == ["ok"]


def test_a_score_that_failed_is_tried_again(make_setup, tmp_path, monkeypatch):
    def fail(*_args):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("heatcheck.metrics.sds.SingleDeletion.score", fail)
    setup = make_setup(["saliency"], ["sds"], n=3)
    (status,) = table(setup, tmp_path / "r")["status"].unique().to_list()
    assert status.startswith("failed: ZeroDivisionError: on purpose")
    monkeypatch.undo()
    assert table(setup, tmp_path / "r")["status"].unique().to_list() == ["ok"]


def test_a_map_that_is_not_finite_is_a_status(make_setup, tmp_path):
    import heatcheck as hc

    @hc.method("gives_nan")
    def gives_nan(model, x, target):
        return torch.full_like(x, torch.nan)

    scores = table(make_setup(["gives_nan"], ["sds"], n=3), tmp_path / "r")
    assert scores["score"].is_null().all()
    assert scores["status"].unique().to_list() == ["failed: the map has NaN values"]


def test_a_changed_weight_is_a_miss_and_both_results_are_kept(make_setup, tmp_path):
    from heatcheck.models.torch_model import TorchModel

    setup = make_setup(n=4)
    first = table(setup, tmp_path / "r")
    old = setup.models["toy"]
    net = nn.Sequential(*old.module())
    with torch.no_grad():
        net[0].weight[0, 0, 0, 0] += 0.5
    new = TorchModel(net, "toy", old.domain, encoder=old.encode, preprocessing="as it is")
    changed = table(make_setup(n=4, models={"toy": new}), tmp_path / "r")
    assert not changed["score"].equals(first["score"])
    assert table(make_setup(n=4), tmp_path / "r").drop("seconds").equals(first.drop("seconds"))


def test_a_corrected_label_is_a_miss_for_the_scores(make_setup, tmp_path):
    setup = make_setup(["saliency"], ["sds"], n=2, target="label")
    table(setup, tmp_path / "r")
    files = len(list((tmp_path / "r" / "chunks").iterdir()))
    object.__setattr__(setup.data.samples[0], "label", 3)
    table(setup, tmp_path / "r")
    assert len(list((tmp_path / "r" / "chunks").iterdir())) == files + 1


def test_numerics_are_written_before_the_first_chunk_and_reused(make_setup, tmp_path):
    table(make_setup(n=3), tmp_path / "r", Runtime(progress="none", batch=3))
    written = json.loads((tmp_path / "r" / "numerics.json").read_text())
    written.pop("sha256")
    assert [n["forward"] for n in written.values()] == [3]
    part = prepare(
        make_setup(n=3),
        Runtime(progress="none", batch=8),
        execute(make_setup(n=3), tmp_path / "r", Runtime(progress="none")),
    )[0]
    assert part.grid.numerics.forward == 3


@pytest.mark.parametrize("maps", ["keep", "gallery", "none"])
def test_maps_are_kept_as_asked_and_scores_are_the_same(make_setup, tmp_path, maps):
    setup = make_setup(n=12)
    result = Result(execute(setup, tmp_path / "r", Runtime(progress="none", batch=4, maps=maps)))
    first, last = setup.data[0].name, setup.data[11].name
    assert (result.map("toy", first, "saliency") is not None) == (maps != "none")
    assert (result.map("toy", last, "saliency") is not None) == (maps == "keep")
    reference = table(make_setup(n=12), tmp_path / "keep")
    assert result.scores()["score"].equals(reference["score"])


def test_metrics_that_compare_models_run_in_a_second_phase(make_setup, make_model, tmp_path):
    models = {"a": make_model(0, "a"), "b": make_model(1, "b")}
    setup = make_setup(["saliency(post=abs)", "constant"], ["sds", "pscore"], n=9, models=models)
    scores = table(setup, tmp_path / "r")
    consensus = scores.filter(pl.col("metric") == "pscore")
    assert len(consensus) == 2 * 9 * 2
    assert consensus["status"].unique().to_list() == ["ok"]
    assert consensus["score"].is_between(-1, 1).all()
    same = consensus.filter(pl.col("method") == "constant")["score"]
    assert (same - 1).abs().max() < 1e-6
    files = len(list((tmp_path / "r" / "chunks").iterdir()))
    table(setup, tmp_path / "r")
    assert len(list((tmp_path / "r" / "chunks").iterdir())) == files


def test_running_out_of_memory_halves_the_batch_and_marks_the_rows(make_setup, tmp_path):
    class Greedy(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > 2:
                raise torch.OutOfMemoryError("out of memory")
            return self.inner(x)

    setup = make_setup(["saliency"], ["sds"], n=3)
    part = prepare(setup, FIXED, None)[0]
    plain = run_chunk(replace(part.grid, numerics=Numerics(forward=2, backward=2)), list(setup.data))
    part.grid.model._network = Greedy(part.grid.model.module())
    halved = run_chunk(replace(part.grid, numerics=Numerics(forward=8, backward=8)), list(setup.data))
    assert halved.groups[0].numerics["halved"] is True
    assert halved.groups[0].numerics["forward"] == 2
    assert torch.equal(plain.groups[0].scores[0].value, halved.groups[0].scores[0].value)


def test_the_budget_stops_between_chunks_and_the_next_run_goes_on(make_setup, tmp_path):
    result = Result(execute(make_setup(), tmp_path / "r", Runtime(progress="none", batch=4, budget=1e-9)))
    assert result.facts["finished"] is False
    assert 0 < result.scores()["status"].str.starts_with("missing").sum() < 300
    assert table(make_setup(), tmp_path / "r")["status"].unique().to_list() == ["ok"]


def test_units_of_another_modality_are_a_skip_with_its_reason(make_setup, tmp_path):
    scores = table(make_setup(["saliency"], ["sds", "morf(units=word)"], n=2), tmp_path)
    assert scores.filter(pl.col("metric") == "sds")["status"].to_list() == ["ok", "ok"]
    status = scores.filter(pl.col("metric") == "morf(units=word)")["status"]
    assert status.str.contains("skipped: units='word' do not exist for a image").all()
