"""What `sds` is called on aligned models, and what a run tells about how its models were trained."""

import io
import json

import polars as pl
import pytest
import torch
from rich.console import Console
from tests.run.conftest import build_setup, explained, pictures

from heatcheck.api.benchmark import Benchmark, as_component
from heatcheck.api.explain import score
from heatcheck.api.result import Result
from heatcheck.core.types import HeatcheckError
from heatcheck.data.load import load_data
from heatcheck.models.training_record import told
from heatcheck.report.terminal import leaderboard
from heatcheck.run.execution import execute
from heatcheck.run.history import study_digest
from heatcheck.run.naming import difference, naming, training_facts
from heatcheck.run.records import RUN, DamagedRecord, checked
from heatcheck.run.runtime import Runtime

MUTANTS = (
    (
        "run/naming.py",
        'for name in ("units", "fill") if',
        'for name in ("units",) if',
        "test_another_fill_is_not_in_domain",
    ),
    ("run/naming.py", "if name not in taken:", "if True:", "test_a_name_that_another_metric_has_is_not_given"),
    (
        "run/reader.py",
        "block.metrics = [names.get(label, label)",
        "block.metrics = [label",
        "test_each_model_has_its_name",
    ),
    (
        "run/manifest.py",
        '{"trained": trained} if trained else {}',
        "{}",
        "test_the_record_says_how_a_model_was_trained",
    ),
)
FIXED = Runtime(progress="none", batch=4)
METHODS = ["saliency", "occlusion", "random"]


def training(delete=0.5, grid=4, fill="zero", **changes):
    """What `Model.trained` holds."""
    return {
        "heatcheck": "0",
        "recipe": "align",
        "variant": "small",
        "settings": {"seed": 7, "delete": delete, "grid": grid, "fill": fill},
        "parent": {
            "spec": "timm:toy",
            "name": "the <b>parent</b>",
            "identity": "f" * 64,
            "architecture": "a" * 64,
            "modality": "image",
            "preprocess": None,
            "new_head": False,
        },
        "classes": [],
        "data": "folder:learnt",
        "held_out": "folder:held",
        "samples": 1600,
        "held_out_samples": 400,
        "data_identity": "d",
        "numerics": {},
        "steps": 5,
        "accuracy": {"before": 0.745, "last": 0.72, "chosen": 0.73},
        "chosen": 2.0,
        "kept": [],
        "marks": ["A batch did not fit."],
        "finished": True,
        "checkpoint": "chosen",
        **changes,
    }


def aligned_model(seed=0, name="aligned", **settings):
    model = explained(seed, name)
    model.trained = training(**settings)
    return model


def run(out, metrics, models, **rest):
    setup = build_setup(METHODS, metrics, n=6, models=models, **rest)
    return Result(execute(setup, out, FIXED), only=True)


def names(result):
    """The metrics in the table, by model."""
    rows = result.scores().select("model", "metric").unique().sort("model", "metric").rows()
    return {model: [metric for m, metric in rows if m == model] for model in {m for m, _ in rows}}


def test_each_model_has_its_name(tmp_path):
    result = run(tmp_path, ["sds", "morf(steps=4)"], {"plain": explained(1), "aligned": aligned_model()})
    assert names(result) == {"aligned": ["idsds", "morf(steps=4)"], "plain": ["morf(steps=4)", "sds"]}
    board = result.leaderboard().full
    assert set(board.filter(pl.col("model") == "aligned")["metric"]) == {"idsds", "morf(steps=4)"}
    assert [m["name"] for m in result.facts["metrics"]] == ["sds", "idsds", "morf(steps=4)"]


def test_what_is_known_about_sds_holds_for_idsds(tmp_path):
    result = run(tmp_path, ["sds"], {"aligned": aligned_model()})
    facts = result.stats_facts
    assert facts.higher_is_better == {"idsds": True}
    assert facts.bounds("idsds") == (-1, 1)
    assert facts.circular == {("occlusion", "idsds")}
    assert result.leaderboard().full.filter(pl.col("circular"))["method"].to_list() == ["occlusion"]


def test_the_name_changes_no_score_and_no_digest(tmp_path):
    """The same network, once known to be aligned: the store has every score already, and nothing is computed."""
    before = run(tmp_path, ["sds"], {"toy": explained()})
    chunks = sorted(p.name for p in (tmp_path / "chunks").iterdir())
    after = run(tmp_path, ["sds"], {"toy": aligned_model()})
    assert sorted(p.name for p in (tmp_path / "chunks").iterdir()) == chunks
    assert names(after) == {"toy": ["idsds"]}
    assert before.scores()["score"].to_list() == after.scores()["score"].to_list()
    (plain,), (named,) = (r.manifest["models"][0]["metrics"] for r in (before, after))
    assert plain == named


def test_the_union_of_studies_calls_each_model_by_its_own_name(tmp_path):
    run(tmp_path, ["sds"], {"plain": explained(1)})
    run(tmp_path, ["sds"], {"aligned": aligned_model()})
    assert names(Result.open(tmp_path)) == {"plain": ["sds"], "aligned": ["idsds"]}


def test_another_grid_is_not_in_domain(tmp_path):
    result = run(tmp_path, ["sds(units=grid(8))", "sds"], {"aligned": aligned_model()})
    assert names(result) == {"aligned": ["idsds", "sds(units=grid(8))"]}
    remarks = {r["metric"]: r["remark"] for r in result.facts["remarks"]}
    assert remarks["sds(units=grid(8))"] == (
        "sds(units=grid(8)), not idsds: the model was aligned on grid(4) with zero, this is grid(8)"
    )
    assert remarks["idsds"] == "idsds: sds on a model that was aligned with the same deletions, grid(4) with zero"
    assert remarks["sds(units=grid(8))"] in " ".join(str(result.leaderboard()).split())


@pytest.mark.parametrize(
    ("fill", "metric", "same"),
    [
        ("zero", "sds(fill=zero)", True),
        ("blur", "sds(fill=blur)", True),
        ("blur(sigma=41.0)", "sds(fill=blur)", True),
        ("blur", "sds(fill=blur(sigma=5))", False),
        ("blur", "sds", False),
        ("uniform", "sds(fill=uniform)", True),
        ("uniform", "sds(fill=uniform(shared=true))", False),
        ("zero", "sds(fill=zero, units=grid(2))", False),
    ],
)
def test_another_fill_is_not_in_domain(fill, metric, same):
    """As a run files them: resolved on the model's domain."""
    model = aligned_model(fill=fill)
    resolved = as_component("metric", metric).resolved_on(model.domain)
    filed = {"label": metric, "name": resolved.name, "digest": "", "identity": resolved.identity()}
    found = naming({"trained": training_facts(model), "metrics": [filed]})
    assert found.names == ({metric: f"id{metric}"} if same else {})
    assert list(found.remarks) == [f"id{metric}" if same else metric]


def test_a_model_trained_without_deletions_is_not_aligned(tmp_path):
    result = run(tmp_path, ["sds"], {"trained": aligned_model(delete=0.0)})
    assert names(result) == {"trained": ["sds"]}
    assert result.facts["remarks"] == []
    assert difference(None, "sds(units=grid(4), fill=zero)") == "the model was not aligned with single deletions"


def test_a_name_that_another_metric_has_is_not_given(tmp_path):
    setup = build_setup(METHODS, {"idsds": "morf(steps=4)", "sds": "sds"}, n=4, models={"aligned": aligned_model()})
    assert names(Result(execute(setup, tmp_path, FIXED))) == {"aligned": ["idsds", "sds"]}


def test_a_users_label_stays(tmp_path):
    setup = build_setup(METHODS, {"mine": "sds"}, n=4, models={"aligned": aligned_model()})
    result = Result(execute(setup, tmp_path, FIXED))
    assert names(result) == {"aligned": ["mine"]}
    assert result.facts["remarks"][0]["metric"] == "mine"


# -- asking for it by name -----------------------------------------------------------------------------------


def bench(models, metrics):
    x, labels = pictures(4)
    return Benchmark(models=models, data=load_data((x, labels)), methods=METHODS, metrics=metrics)


def test_idsds_may_be_asked_for(tmp_path):
    result = bench({"plain": explained(1), "aligned": aligned_model()}, ["idsds"]).run(tmp_path, runtime=FIXED)
    assert names(result) == {"plain": ["sds"], "aligned": ["idsds"]}


@pytest.mark.parametrize(
    ("models", "metric", "told"),
    [
        ({"plain": explained()}, "idsds", "the model was not aligned"),
        ({"toy": aligned_model()}, "idsds(units=grid(2))", "aligned on grid\\(4\\) with zero, this is grid\\(2\\)"),
    ],
)
def test_idsds_of_no_model_is_refused(models, metric, told):
    with pytest.raises(HeatcheckError, match=told):
        bench(models, [metric]).setup()
    with pytest.raises(HeatcheckError, match=told):
        score(next(iter(models.values())), torch.zeros(1, 3, 16, 16), "saliency", metric=metric)


def test_one_metric_under_both_names_is_refused():
    with pytest.raises(HeatcheckError, match="'sds' is listed twice, once as idsds"):
        bench({"aligned": aligned_model()}, ["sds", "idsds"]).setup()


# -- how a model was trained ---------------------------------------------------------------------------------


def test_the_record_says_how_a_model_was_trained(tmp_path):
    result = run(tmp_path, ["sds"], {"plain": explained(1), "aligned": aligned_model()})
    plain, trained = json.loads((tmp_path / "run.json").read_text())["models"]
    assert "trained" not in plain
    kept = trained["trained"]
    assert (kept["recipe"], kept["variant"], kept["settings"]["seed"]) == ("align", "small", 7)
    assert (kept["data"], kept["held_out"], kept["chosen"]) == ("folder:learnt", "folder:held", 2.0)
    assert kept["accuracy"] == {"before": 0.745, "last": 0.72, "chosen": 0.73}
    assert kept["parent"]["name"] == "the <b>parent</b>"
    assert kept["parent"]["identity"] == "f" * 64
    assert kept["aligned"] == {"units": "grid(4)", "fill": "zero"}
    assert result.facts["models"][1]["training"] == told(aligned_model().trained)


def test_a_study_without_trained_models_has_the_digest_it_always_had(tmp_path):
    """An old folder's study is found again only if nothing new is written about its models."""
    manifest = run(tmp_path, ["sds"], {"toy": explained()}).manifest
    assert study_digest(manifest) == study_digest(json.loads(json.dumps(manifest)))
    assert set(manifest["models"][0]) == {
        *("name", "identity", "modality", "preprocessing", "notes", "classes", "methods", "metrics", "skipped"),
        *("circular", "numerics", "gallery"),
    }


def test_a_damaged_training_is_refused(tmp_path):
    manifest = run(tmp_path, ["sds"], {"aligned": aligned_model()}).manifest
    checked(RUN, manifest, True)
    manifest["models"][0]["trained"]["samples"] = "many"
    with pytest.raises(DamagedRecord, match=r"trained\.samples cannot be 'many'"):
        checked(RUN, manifest, True)


def test_sentences():
    lines = told(training())
    assert lines == [
        "Trained from the <b>parent</b> (identity ffffffffffff) by recipe align (small) with seed 7, on 1,600 samples of "
        "folder:learnt.",
        "Of 50% of the pictures it saw, one cell of grid(4) was replaced with zero.",
        "Accuracy on 400 held-out samples of folder:held: 73.0% after epoch 2, 74.5% before.",
        "A batch did not fit.",
    ]
    assert len(told(training(delete=0.0, accuracy={}, chosen=None, marks=[]))) == 1
    assert "weights 03" in told(training(checkpoint="03"))[3]


def test_report_and_terminal_tell_it(tmp_path):
    result = run(tmp_path, ["sds", "sds(units=grid(8))"], {"plain": explained(1), "aligned": aligned_model()})
    page = result.report(tmp_path / "report.html").read_text()
    assert "Trained from the &lt;b&gt;parent&lt;/b&gt; (identity ffffffffffff)" in page
    assert "<b>parent</b>" not in page
    assert "sds(units=grid(8)), not idsds: the model was aligned on grid(4) with zero, this is grid(8)." in page
    console = Console(file=io.StringIO(), width=160)
    console.print(leaderboard(result))
    assert "Trained from the <b>parent</b>" in console.file.getvalue()
    assert console.file.getvalue().count("Trained from") == 1
