"""Ranking over runs: what is joined, what is refused, and the files that come of it."""

import json
import xml.etree.ElementTree as ET

import polars as pl
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.cli import app
from heatcheck.core.types import HeatcheckError

MUTANTS = (
    ("api/joined_runs.py", "if before[0] != identity:", "if False:", "test_one_label_for_two_components_is_refused"),
    ("api/joined_runs.py", "        if key in by:\n", "        if False:\n", "test_the_same_case_twice_is_refused"),
    ("api/joined_runs.py", 'lower = protocol.unit == "%" and (entry["better"] == "higher")', "lower = False", "test_accuracies_are_areas_in_per_cent"),
    ("api/joined_runs.py", "answers = origin.section.samples().filter(pl.col(\"model\") == origin.model)", "answers = origin.section.samples().head(0)", "test_accuracies_by_share_go_by_the_names_of_all_runs"),
    ("api/joined_runs.py", 'pl.col("predicted") == pl.col("label")', 'pl.col("predicted") >= 0', "test_accuracies_are_areas_in_per_cent"),
)  # fmt: skip

CURVES = ["morf(steps=4, output=accuracy, fill=zero)", "lerf(steps=4, output=accuracy, fill=zero)"]
METHODS = {"IG": "integrated_gradients(steps=4)", "saliency": "saliency", "IxG": "input_x_gradient", "random": "random"}


def network(seed: int) -> hc.Model:
    torch.manual_seed(seed)
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2)
    )
    shape = hc.Preprocess(mean=(0.5,) * 3, std=(0.5,) * 3, size=16, resize=16)
    return hc.load_model(layers, preprocess=shape)


@pytest.fixture(scope="module")
def run(dark_and_bright, tmp_path_factory):
    """Makes a run of toy networks, by name and seed, into a folder of a given name."""
    root = tmp_path_factory.mktemp("rank")

    def make(name, seeds, methods=METHODS, metrics=CURVES, samples=6):
        out = root / name
        if not out.exists():
            hc.Benchmark(
                models={model: network(seed) for model, seed in seeds.items()},
                data=f"folder:{dark_and_bright}",
                methods=methods,
                metrics=metrics,
                target="label",
            ).run(out, samples=samples, progress="none", batch=4)
        return out

    return make


def test_samples_that_two_runs_share_count_once(run):
    """The same network on six samples and on four of them is not two data sets."""
    whole, part = run("first", {"a": 0, "b": 1}), run("part", {"a": 0}, samples=4)
    with pytest.raises(HeatcheckError, match="on 6 and 4 samples of which 4 are the same; leave one of them out"):
        hc.rank([whole, part])
    other = run("other metric", {"a": 0}, metrics=["sds"], samples=4)
    found = hc.rank([whole, other])
    assert {case.protocol.metric for case in found.table.cases} == {"morf", "lerf", "sds"}
    assert len(found.table.pairs) == 2 and len({case.pair for case in found.table.cases}) == 3


def test_metrics_are_a_list(two):
    with pytest.raises(HeatcheckError, match=r"metrics='sds': expected a list of names, such as \['sds'\]"):
        hc.rank(two, metrics="sds")


@pytest.fixture(scope="module")
def two(run):
    return [run("first", {"a": 0, "b": 1}), run("second", {"c": 2})]


@pytest.fixture(scope="module")
def ranked(two):
    return hc.rank(two, resamples=50)


def test_every_model_and_protocol_is_a_case(ranked):
    assert [(c.model, c.protocol.metric) for c in ranked.table.cases] == [
        (model, metric) for model in "abc" for metric in ("lerf", "morf")
    ]
    assert set(ranked.board.methods) == {"IG", "saliency", "IxG"}
    assert len(ranked.agreement.orders) == 3
    assert ranked.factor.factor == "protocol" and len(ranked.factor.levels) == 2
    assert ranked.removal_orders.height == 9


def test_accuracies_are_areas_in_per_cent(ranked, two):
    result = hc.Result.open(two[1])
    for case, means in zip(ranked.table.cases, ranked.table.means, strict=True):
        assert case.protocol.unit == "%"
        if case.model != "c":
            continue
        curves = result.curves("c", case.protocol.name)
        for method, mean in zip(ranked.table.methods, means, strict=True):
            own = curves.filter(pl.col("method") == method)["curve"].to_list()
            expected = torch.tensor(own).mean(dim=0).mean()  # the area is the mean of all points
            assert mean == pytest.approx(100 * float(expected), abs=1e-4)
    facts = ranked.runs.stats_facts
    better = {c.protocol.metric: facts.higher_is_better[c.protocol.name] for c in ranked.table.cases}
    assert better == {"morf": False, "lerf": True}


def test_accuracies_by_share_are_means_of_the_stored_curves(ranked, two):
    found = ranked.accuracy_by_share
    assert set(found["method"]) == {"IG", "saliency", "IxG", "random"} and found["model"].n_unique() == 3
    result = hc.Result.open(two[1])
    for protocol in found["protocol"].unique():
        curves = result.curves("c", protocol)
        for method in ("IG", "random"):
            own = found.filter((pl.col("model") == "c") & (pl.col("protocol") == protocol), method=method).sort("share")
            stored = torch.tensor(curves.filter(method=method)["curve"].to_list())
            assert own["accuracy"].to_list() == pytest.approx((100 * stored.mean(dim=0)).tolist(), abs=1e-4)
            assert own["share"].to_list() == [0, 0.25, 0.5, 0.75, 1]
    assert len(ranked.record()["accuracy_by_share"]) == found.height


def test_accuracies_by_share_go_by_the_names_of_all_runs(run, two):
    """A run that calls a network and a method otherwise is read under its own names and shown under the others'."""
    named = {**METHODS, "integrated gradients": METHODS["IG"]}
    del named["IG"]
    other = run("road", {"z": 0}, methods=named, metrics=["road(order=morf, output=accuracy)"])
    found = hc.rank([two[0], other], resamples=20).accuracy_by_share.filter(metric="road")
    assert set(found["model"]) == {"a"} and "IG" in set(found["method"])
    assert found["share"].min() == 0, "ROAD's curves begin with the first removal; the whole input is put before it"


def test_random_is_told(ranked):
    told = ranked.record()["against_random"]
    assert told["tested"] == 6
    board = {row["method"]: row for row in ranked.leaderboard().iter_rows(named=True)}
    better = ranked.against_random.better
    for method, row in board.items():
        column = better[:, ranked.table.methods.index(method)]
        assert (row["not_better"], row["tested"]) == ((column == 0).sum(), 6)
    assert len(told["nothing_better"]) == (better == 0).all(axis=1).sum()


def test_methods_that_a_run_lacks_are_told(run, two):
    fewer = run("fewer", {"d": 3}, methods={"saliency": "saliency", "IxG": "input_x_gradient"})
    found = hc.rank([two[0], fewer], resamples=20)
    assert {(case.partition(" ")[0], method, why) for case, method, why in found.missing()} == {
        ("d", "IG", "missing: no row")
    }
    board = found.leaderboard()
    assert dict(zip(board["method"], board["cases"], strict=True)) == {"IG": 4, "saliency": 6, "IxG": 6}


def test_one_label_for_two_components_is_refused(run, two):
    other = run("other", {"d": 3}, methods={**METHODS, "IG": "integrated_gradients(steps=8)"})
    with pytest.raises(HeatcheckError, match=r"'IG' is integrated_gradients\(.*steps=4.* in first and .*steps=8"):
        hc.rank([two[0], other])


def test_one_component_with_two_labels_is_one(run, two):
    named = {**METHODS, "integrated gradients": METHODS["IG"]}
    del named["IG"]
    other = run("named", {"d": 3}, methods=named)
    found = hc.rank([two[0], other], resamples=20)
    assert found.table.complete and "IG" in found.board.methods
    assert any("integrated gradients in named is the same method as IG" in line for line in found.runs.notes)


def test_the_same_case_twice_is_refused(run, two):
    again = run("again", {"a": 0})
    with pytest.raises(HeatcheckError, match=r"first and again both have the case a · .*`heatcheck merge`"):
        hc.rank([two[0], again])
    with pytest.raises(HeatcheckError, match="given twice"):
        hc.rank([two[0], two[0]])


def test_networks_and_samples_of_one_name_are_told_apart(run, two):
    other = run("namesake", {"a": 5}, samples=4)
    found = hc.rank([two[0], other], resamples=20)
    assert {c.model for c in found.table.cases} == {"a", "b", "a (namesake)"}
    assert len({c.data for c in found.table.cases}) == 2
    assert sum("namesake" in line for line in found.runs.notes) == 2


def test_metrics_are_chosen(two):
    found = hc.rank(two, metrics=["morf"], by="model", resamples=20)
    assert {c.protocol.metric for c in found.table.cases} == {"morf"}
    assert found.factor.factor == "model" and len(found.factor.levels) == 3
    with pytest.raises(HeatcheckError, match="'moorf'; did you mean morf"):
        hc.rank(two, metrics=["moorf"])


def test_wrong_questions_are_answered(two, tmp_path):
    with pytest.raises(HeatcheckError, match="got none"):
        hc.rank([])
    with pytest.raises(HeatcheckError, match="by='colour': expected one of model"):
        hc.rank(two, by="colour")
    with pytest.raises(HeatcheckError, match="at least three of its checkpoints"):
        hc.rank(two, by="checkpoint")
    with pytest.raises(HeatcheckError):
        hc.rank([tmp_path])


def test_the_command_writes_page_json_tables_and_figures(two, tmp_path):
    out = tmp_path / "rank"
    done = CliRunner().invoke(app, ["rank", *map(str, two), "--by", "model", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "leads with κ" in done.output and "rank.html" in done.output
    assert "better than random" in done.output
    record = json.loads((out / "rank.json").read_text())
    assert record["cases"] == 6 and {m["method"] for m in record["methods"]} == {"IG", "saliency", "IxG"}
    tables = {path.name for path in (out / "tables").iterdir()}
    for name in (
        "leaderboard",
        "wins",
        "scores",
        "ranks",
        "agreement",
        "morf_lerf",
        "ranks_by_model",
        "accuracy_by_share",
    ):
        assert {f"{name}.{ending}" for ending in ("csv", "parquet", "md", "tex")} <= tables
    board = pl.read_csv(out / "tables" / "leaderboard.csv")
    assert board.equals(pl.read_parquet(out / "tables" / "leaderboard.parquet").select(board.columns))
    for figure in (out / "figures").glob("*.svg"):
        ET.fromstring(figure.read_text())
        assert figure.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    page = (out / "rank.html").read_text()
    assert 'id="factor"' in page and "http" not in page.replace("http://www.w3.org/2000/svg", "").replace(
        "http-equiv", ""
    )


def test_json_alone_is_on_stdout(two, tmp_path):
    done = CliRunner().invoke(app, ["rank", *map(str, two), "--json", "-q", "--out", str(tmp_path / "rank")])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["agreement"]["kendall_w"] is not None
    wrong = CliRunner().invoke(app, ["rank", *map(str, two), "--metrics", "moorf"])
    assert wrong.exit_code == 2 and "did you mean" in wrong.output
    by = CliRunner().invoke(app, ["rank", *map(str, two), "--by", "colour"])
    assert by.exit_code == 2 and "'colour' is not one of 'model'" in by.output and "Value error" not in by.output
