"""A toy run beside papers: methods and models are found by what they are, and all forms say the same."""

import json

import polars as pl
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.api.compare import PaperComparison, _factors, _kind, _their_models, compare
from heatcheck.api.model_specs import factors_of_models
from heatcheck.api.questions import disagreements, maps_by_sample
from heatcheck.cli import app
from heatcheck.cli.compare import TableFormat
from heatcheck.core.spec import SpecError
from heatcheck.report.compare_figures import comparison_figures
from heatcheck.report.compare_page import render_comparison
from heatcheck.report.compare_tables import marked_tables
from heatcheck.report.files import write_all_tables
from heatcheck.stats.evidence import CLAIMS, NOT_TESTABLE

MUTANTS = (
    ("api/compare.py", "if found[0] not in exact:", "if found[0] in exact:", "test_methods_are_found_by_what_they_are"),
    ("api/compare.py", "if found and not found[1]:", "if found:", "test_depths_are_read_from_names"),
    (
        "api/model_specs.py",
        "for name, value in design.items() if name != factor)",
        'for name, value in design.items() if name == "family")',
        "test_factors_are_read_from_specs",
    ),
    (
        "api/joined_runs.py",
        'name = f"{own} ({run})"\n                    by_identity',
        "by_identity",
        "test_a_label_that_stands_for_two_metrics_is_told_apart",
    ),
    ("api/compare.py", 'r"vgg16(?!bn)"', 'r"vgg16"', "test_models_are_found_by_their_names"),
)
X = torch.randn(12, 3, 8, 8, generator=torch.Generator().manual_seed(1))
METHODS = {
    "mine": "input_x_gradient",
    "IG": "integrated_gradients(steps=3)",
    "IG-U": "integrated_gradients(steps=3, baseline=uniform)",
    "Saliency": "saliency",
    "cam": "grad_cam",
    "random": "random",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    nets = {
        name: nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, 5)
        )
        for name in ("resnet18", "resnet34")
    }
    place = tmp_path_factory.mktemp("compare") / "toy"
    hc.Benchmark(models=nets, data=X, methods=METHODS, metrics=["sds", "morf(steps=4)", "lerf(steps=4)"]).run(
        place, progress="none"
    )
    return place


@pytest.fixture(scope="module")
def idsds(folder) -> PaperComparison:
    return compare(folder, "idsds", resamples=100)


def test_methods_are_found_by_what_they_are(idsds):
    rows = {(r["as"], r["method"]): r for r in idsds.beside.filter(pl.col("model") == "resnet18").iter_rows(named=True)}
    assert rows.keys() == {("I×G", "mine"), ("IG", "IG"), ("IG-U", "IG-U"), ("Grad-CAM", "cam")}
    assert rows["I×G", "mine"]["settings"] == ""
    assert rows["IG", "IG"]["settings"] == "integrated_gradients(steps=3)"
    assert rows["IG-U", "IG-U"]["theirs"] == 0.261
    assert set(idsds.beside["metric"]) == {"sds"}


def test_a_profile_at_its_own_settings_differs_in_none(tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    methods = ["IG", "IG-U", "RISE", "Saliency"]
    few = {"data": X[:3], "methods": methods, "metrics": ["sds"], "target": "predicted"}
    hc.Benchmark(models={"resnet18": net}, profile="idsds", **few).run(tmp_path / "r", progress="none")
    rows = {r["as"]: r["settings"] for r in compare(tmp_path / "r", "idsds", resamples=20).beside.iter_rows(named=True)}
    assert rows == dict.fromkeys(methods, "")


def test_a_signed_map_is_not_taken_for_its_absolute_value():
    assert _kind("saliency") != _kind("saliency(post=abs)")
    assert _kind("rise(samples=9, fill=zero)") == _kind("rise")
    assert _kind("smoothgrad(of=integrated_gradients(steps=2))") == _kind(
        "smoothgrad(of=integrated_gradients, samples=3)"
    )


def test_ours_are_the_means_of_the_run(folder, idsds):
    board = hc.Result.open(folder).leaderboard().full
    for row in idsds.beside.iter_rows(named=True):
        same = board.filter(
            (pl.col("model") == row["model"]) & (pl.col("metric") == "sds") & (pl.col("method") == row["method"])
        )
        assert same["mean"].item() == row["ours"]
    assert idsds.correlations["methods"].to_list() == [4, 4]


def test_every_claim_of_the_paper_has_a_verdict(idsds):
    assert [c["claim"] for c in idsds.claims] == [c.id for c in CLAIMS["hesse2024"]]
    told = {c["claim"]: c for c in idsds.claims}
    assert told["deeper_is_lower"]["verdict"] != NOT_TESTABLE
    assert told["bias_lowers"]["verdict"] == NOT_TESTABLE


def test_meta_rank_has_claims_alone(folder):
    found = compare(folder, "metarank", resamples=100)
    assert found.tables.keys() == {"claims"}
    assert any("prints no scores" in note for note in found.notes)
    told = {c["claim"]: c["verdict"] for c in found.claims}
    assert told["protocols_disagree"] != NOT_TESTABLE
    assert told["road_takes_longer"] == NOT_TESTABLE


def test_several_runs_are_named_where_all_of_them_are_tested(folder, tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    ran = hc.Benchmark(models={"plain": net}, data=X, methods=METHODS, metrics=["morf(steps=4)"])
    ran.run(tmp_path / "second", progress="none")
    found = compare(folder, "metarank", others=[tmp_path / "second"], resamples=20)
    assert found.run == f"{folder.name} and 1 more"
    assert f"Claims are tested on all of {folder.name}, second." in found.notes
    assert [model["name"] for model in found.facts["models"]] == ["resnet18", "resnet34", "plain"]
    assert compare(folder, "perturbation", others=[tmp_path / "second"], resamples=20).run == found.run


def ran(place, net, *, model="resnet18", metrics=("sds",), methods=("saliency", "input_x_gradient", "random")):
    few = {"data": X[:6], "methods": list(methods), "metrics": metrics}
    hc.Benchmark(models={model: net}, **few).run(place, progress="none")
    return place


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 5))


def claims(found):
    return {c["claim"]: c for c in found.claims}


def test_the_default_fill_is_known_for_what_it_is(folder):
    """`auto` is zero on pictures, which is the mean of normalised ones."""
    told = claims(compare(folder, "perturbation", resamples=50))
    assert told["mean_fails"]["verdict"] != NOT_TESTABLE
    assert "resnet18 under sds" in told["mean_fails"]["note"]
    assert told["deleting_fails"]["note"] == "no curve was measured with the fill black"


def test_a_label_that_stands_for_two_metrics_is_told_apart(tmp_path, net):
    """Every fill is in a run of its own, and all metrics are called `curve`."""
    fills = {"zero": "zero", "blur": "blur", "mean": "channel_mean", "again": "blur"}
    runs = {
        name: ran(tmp_path / name, net, model="alexnet", metrics={"curve": f"morf(steps=4, fill={fill})"})
        for name, fill in fills.items()
    }
    alone = claims(compare(runs["zero"], "perturbation", resamples=50))
    assert alone["blur_fails"]["verdict"] == NOT_TESTABLE
    assert [part["model"] for part in alone["mean_fails"]["parts"]] == ["alexnet under curve"]
    found = compare(runs["zero"], "perturbation", others=[runs["blur"], runs["mean"], runs["again"]], resamples=50)
    told = claims(found)
    measured = ["alexnet under curve", "alexnet under curve (mean)"]
    assert [part["model"] for part in told["mean_fails"]["parts"]] == measured
    assert told["blur_fails"]["note"].startswith("alexnet under curve (blur):")
    assert "again" not in told["blur_fails"]["note"]
    assert any("again's does not count" in note for note in found.notes)
    assert set(found.tables["separation"]["run"]) == set(fills)
    assert found.tables["disagreement"]["model"].unique().to_list() == ["alexnet"]


def test_claims_about_networks_are_tested_on_all_runs(folder, tmp_path, net):
    methods = {"Saliency": "saliency", "mine": "input_x_gradient", "random": "random"}
    hc.Benchmark(models={"resnet50": net}, data=X, methods=methods, metrics=["sds"]).run(
        tmp_path / "r", progress="none"
    )
    found = compare(
        folder, "idsds", others=[tmp_path / "r"], factors={"bias": {"resnet50": 0, "resnet18": 1}}, resamples=50
    )
    assert set(found.beside["model"]) == {"resnet18", "resnet34", "resnet50"}
    told = claims(found)
    assert told["deeper_is_lower"]["verdict"] != NOT_TESTABLE and told["bias_lowers"]["verdict"] != NOT_TESTABLE
    ends = found.tables["factors"].filter(pl.col("factor") == "depth").select("from", "to").unique().rows()
    assert ends == [("resnet18", "resnet50")]
    m4 = compare(folder, "m4", others=[tmp_path / "r"], resamples=50)
    assert set(m4.tables["table2"]["model"]) == {"resnet18", "resnet34", "resnet50"}
    assert set(m4.tables["table2"]["device"]) == {"cpu"}
    assert "models" in comparison_figures(m4)


def test_what_a_run_skipped_is_known_beside_others(tmp_path, net):
    """A blank cell of M4's figure says why, under the name that the model has there."""
    one = ran(tmp_path / "one", net, methods=("saliency", "grad_cam", "random"))
    plain = ran(
        tmp_path / "plain", nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), methods=("saliency", "grad_cam", "random")
    )
    found = compare(one, "m4", others=[plain], resamples=20)
    skips = {(s["model"], s["method"]): s["reason"] for s in found.facts["skipped"]}
    assert skips.keys() == {("resnet18 (plain)", "grad_cam")}
    assert skips["resnet18 (plain)", "grad_cam"] in comparison_figures(found)["models"].svg()


def test_m4_has_its_questions(folder):
    found = compare(folder, "m4", resamples=100)
    assert {"table1", "table2", "sensitivity", "overall", "best_faithfulness"} <= found.tables.keys()
    assert set(found.tables["table2"]["method"]) == set(METHODS) - {"random"}
    assert set(found.tables["table2"]["device"]) == {"cpu"}
    assert "models" in comparison_figures(found) and 'id="models"' in render_comparison(found)
    assert found.tables["best_faithfulness"]["modality"].unique().to_list() == ["image"]


def test_maps_are_compared_between_methods(folder):
    found = disagreements(maps_by_sample([hc.Result.open(folder)], most=5))
    assert {model: len(values) for model, values in found.items()} == {"resnet18": 5, "resnet34": 5}
    assert all(((values >= 0) & (values <= 2)).all() for values in found.values())


def test_perturbations_of_several_runs_are_side_by_side(folder):
    found = compare(folder, "perturbation", others=[folder], resamples=100).tables
    assert found["separation"].height == 2 * 6
    assert set(found["separation"]["metric"]) == {"sds", "morf(steps=4)", "lerf(steps=4)"}
    assert found["disagreement"].group_by("model").len()["len"].to_list() == [10, 10]


class Named:
    def __init__(self, *names, **specs):
        self.facts = {"models": [{"name": name} for name in (*names, *specs)], "study": {"models": specs}}


def test_depths_are_read_from_names():
    found = _factors(Named("resnet18", "ResNet-50", "wide_resnet50", "vgg11", "mine"), {})
    assert found == {"depth": {"resnet18": 18.0, "ResNet-50": 50.0}}
    with pytest.raises(SpecError, match="factor bias: the run has no model other; it has mine"):
        _factors(Named("mine"), {"bias": {"other": 1.0}})


def test_factors_are_read_from_specs():
    found = _factors(
        Named(
            a="small:resnet20",
            b="small:resnet20(width=32)",
            c="small:fixup(depth=20)",
            d="small:xresnet20",
            e="small:resnet(depth=32)",
            f="small:vgg11",
        ),
        {},
    )
    assert found == {
        "depth": {"a": 20.0, "e": 32.0},
        "width": {"a": 16.0, "b": 32.0},
        "normalisation": {"a": 1.0, "c": 0.0},
        "bias": {"c": 1.0, "d": 0.0},
    }
    own = {"bias": {"a": 1.0, "f": 0.0}}
    assert _factors(Named(a="small:fixup", d="small:xresnet20", f="small:vgg11"), own)["bias"] == own["bias"]


def test_published_networks_tell_what_they_are_built_of():
    names = (
        "timm:resnet50.a1_in1k",
        "fixup_resnet50",
        "xfixup_resnet50",
        "wide_resnet50_2",
        "vgg16",
        "xvgg16",
        "VGG-16-BN",
    )
    found = factors_of_models(Named(*names, "resnet50d", "resnext50").facts)
    assert found == {
        "width": {"timm:resnet50.a1_in1k": 1.0, "wide_resnet50_2": 2.0},
        "normalisation": {"timm:resnet50.a1_in1k": 1.0, "fixup_resnet50": 0.0},
        "bias": {"fixup_resnet50": 1.0, "xfixup_resnet50": 0.0},
    }
    assert factors_of_models(Named("vgg16", "VGG-16-BN", "xvgg16").facts) == {
        "normalisation": {"vgg16": 0.0, "VGG-16-BN": 1.0},
        "bias": {"vgg16": 1.0, "xvgg16": 0.0},
    }


def test_models_that_were_trained_are_what_their_training_began_with():
    def trained(name, spec):
        return {"name": name, "trained": {"parent": {"spec": spec, "name": spec}}}

    facts = {
        "models": [trained("x", "small:vgg11"), trained("y", "small:vgg11_bn")],
        "study": {"models": {"x": "trained:f"}},
    }
    assert factors_of_models(facts) == {"normalisation": {"x": 0.0, "y": 1.0}}


def test_models_are_found_by_their_names():
    names = ("timm:resnet50.a1_in1k", "vit_base_patch16_224", "vit_b_16", "vgg16", "vgg16_bn", "mine")
    assert _their_models(Named(*names), "m4") == {
        "timm:resnet50.a1_in1k": "R50",
        "vit_base_patch16_224": "ViT/B",
        "vit_b_16": "ViT/B",
        "vgg16": "VGG16",
    }


def test_an_unknown_paper_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(SpecError, match="no paper 'idsd'"):
        compare(tmp_path / "nowhere", "idsd")


# -- the command ---------------------------------------------------------------------------------------------


def test_the_command_shows_scores_and_claims_and_writes_a_page(folder):
    told = CliRunner().invoke(app, ["compare", str(folder), "idsds"])
    assert told.exit_code == 0, told.output
    assert "rank correlation" in told.output
    assert "Of 22 claims" in told.output
    page = (folder / "compare-idsds.html").read_text()
    assert page.count("<script") == 2  # data and our own
    assert page.count('class="badge"') == 22


@pytest.mark.parametrize("kind", list(TableFormat))
def test_every_table_is_a_file(idsds, tmp_path, kind):
    written = write_all_tables(marked_tables(idsds), tmp_path / "t", [kind])
    assert sorted(path.name for path in written) == sorted(f"{name}.{kind}" for name in idsds.tables)
    if kind == "parquet":
        assert pl.read_parquet(tmp_path / "t" / "beside.parquet").height == idsds.beside.height
    if kind == "tex":
        assert (tmp_path / "t" / "beside.tex").read_text().count("\\textbf{") >= 4


def test_page_record_tables_and_figures_are_saved(idsds, tmp_path):
    page = idsds.save(tmp_path / "all")
    assert page == tmp_path / "all" / "compare.html" and page.read_text() == render_comparison(idsds)
    assert len(json.loads((tmp_path / "all" / "compare.json").read_text())["claims"]) == 22
    endings = ("csv", "parquet", "md", "tex")
    assert {p.name for p in (tmp_path / "all" / "tables").iterdir()} == {
        f"{t}.{e}" for t in idsds.tables for e in endings
    }
    figures = comparison_figures(idsds)
    assert "beside_1" in figures
    assert {p.name for p in (tmp_path / "all" / "figures").iterdir()} == {
        f"{name}.{ending}" for name in figures for ending in ("svg", "png")
    }


def test_the_command_writes_figures(folder, tmp_path):
    told = CliRunner().invoke(app, ["compare", str(folder), "idsds", "--figures", str(tmp_path / "f"), "--quiet"])
    assert told.exit_code == 0, told.output
    assert str(tmp_path / "f" / "beside_1.png") in told.output.replace("\n", "")
    assert (tmp_path / "f" / "beside_1.svg").read_text().startswith("<svg")


def test_json_has_all_and_names_the_files(folder, idsds, tmp_path):
    line = ["compare", str(folder), "idsds", "--out", str(tmp_path / "p.html"), "--tables", str(tmp_path), "--json"]
    record = json.loads(CliRunner().invoke(app, line).stdout)
    assert (len(record["files"]), len(record["claims"]), record["page"]) == (
        len(idsds.tables),
        22,
        str(tmp_path / "p.html"),
    )
    assert record["sources"][0]["table"] == "Table 3"


@pytest.mark.parametrize("written", ["depth", "depth:", "depth:resnet18", "depth:resnet18=deep", ":resnet18=3"])
def test_a_factor_that_cannot_be_read_is_repeated(folder, written):
    told = CliRunner().invoke(app, ["compare", str(folder), "idsds", "--factor", written])
    assert told.exit_code == 2
    assert repr(written) in told.output.replace("\n", "")
