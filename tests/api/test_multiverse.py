"""One question in many ways: how it is expanded, that it is one run, and that its rankings are the right ones."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.api.expansion import contestants, expand, usual
from heatcheck.api.multiverse import Multiverse, over, signed_variants
from heatcheck.cli import app
from heatcheck.cli.multiverse import _counted
from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError, parse
from heatcheck.domain.image import ImageDomain
from heatcheck.domain.text import TextDomain
from heatcheck.profiles import load_profile, names
from heatcheck.run.resources import Resources
from heatcheck.run.setup import prepare
from heatcheck.run.store import Store
from heatcheck.run.work import Work
from heatcheck.stats import rank_of

DOMAINS = {"image": ImageDomain, "text": TextDomain}
FACTORS = {"fill": ["zero", "blur"], "steps": [4, 8], "sign": ["signed", "abs"]}


# -- expansion ---------------------------------------------------------------------------------------------------


def test_all_combinations_are_universes():
    made = expand("morf", {**FACTORS, "units": ["pixel", "grid(8)"]})
    assert len(made.universes) == 16 and len(made.metrics) == 8 and made.left_out == ()
    first = made.universes[0]
    assert first.label == "morf · zero · 4 · pixel · signed" and first.metric == "morf · zero · 4 · pixel"
    assert first.levels == {"fill": "zero", "steps": "4", "units": "pixel", "sign": "signed"}
    built = catalogue.build("metric", made.metrics["morf · blur · 8 · grid(8)"])
    assert (built.fill, built.steps, built.units) == ("blur", 8, "grid(8)")
    levels = [{k: v for k, v in u.levels.items() if k != "sign"} for u in made.universes]
    assert {tuple(u.values()) for u in levels} == set(product(("zero", "blur"), ("4", "8"), ("pixel", "grid(8)")))


def test_a_dialect_is_a_profile_a_metric_or_a_parameter():
    made = expand("morf", {"dialect": ["own", "m4", "metarank", "abpc(steps=5)", "area=trapezoid", "idsds"]})
    spelt = {label: catalogue.build("metric", spec) for label, spec in made.metrics.items()}
    assert list(spelt) == ["morf", "m4", "metarank", "abpc(steps=5)", "trapezoid", "idsds ids"]
    assert spelt["m4"].name == "morf(steps=100, fill=grey127, ties=percentile_compat)"
    assert spelt["metarank"].name == "morf(fill=zero, output=accuracy, area=trapezoid)"
    assert (spelt["abpc(steps=5)"].id, spelt["abpc(steps=5)"].steps, spelt["trapezoid"].area) == (
        "abpc",
        5,
        "trapezoid",
    )
    assert spelt["idsds ids"].steps == 32  # the profile has no morf, but another curve


def test_dialects_of_one_name_are_told_apart():
    made = expand("infidelity", {"dialect": ["centered=true", "normalised=true"]})
    assert list(made.metrics) == ["true", "normalised=true"] and made.left_out == ()


def test_a_dialect_decides_what_the_factors_leave_open():
    made = expand("morf", {"dialect": ["own", "m4"], "fill": ["zero", "blur"]})
    built = catalogue.build("metric", made.metrics["m4 · blur"])
    assert (built.fill, built.steps, built.ties) == ("blur", 100, "percentile_compat")


def test_a_way_to_ask_that_does_not_exist_is_left_out_with_its_reason():
    made = expand("morf", {"dialect": ["own", "infidelity"], "steps": [4, 8]})
    assert made.left_out == tuple((f"infidelity · {k}", "infidelity has no steps") for k in (4, 8))
    assert len(made.universes) == 2


def test_two_ways_that_are_one_are_one_universe():
    made = expand("morf", {"dialect": ["own", "output=prob"], "fill": ["zero"]})
    assert made.left_out == (("prob · zero", "the same as morf · zero"),)


@pytest.mark.parametrize("profile", names())
def test_a_spelt_out_metric_is_the_same_under_every_profile(profile):
    for spec in expand("morf", {"dialect": ["own", "m4", "metarank"], "steps": [4]}).metrics.values():
        assert load_profile(profile).apply("metric", spec) == str(parse(spec))


def test_parameters_nobody_names_come_from_the_profile():
    assert catalogue.build("metric", expand("morf", {"fill": ["zero"]}, "quick").metrics["morf · zero"]).steps == 8
    assert (
        catalogue.build("metric", expand("morf(steps=3)", {"fill": ["zero"]}, "quick").metrics["morf · zero"]).steps
        == 3
    )


@pytest.mark.parametrize("modality", ["image", "text"])
@pytest.mark.parametrize("id", catalogue.entries("metric"))
def test_every_metric_has_a_usual_multiverse(id, modality):
    entry = catalogue.find("metric", id)
    if entry.facts["family"] == "composite":
        with pytest.raises(SpecError, match="adds up other metrics"):
            expand(id, usual(id, levels=ImageDomain.usual_levels))
        return
    if modality not in entry.facts["on"]:
        return
    made = expand(id, usual(id, levels=DOMAINS[modality].usual_levels))
    assert made.universes and made.metrics
    assert not [problem for spec in made.metrics.values() for problem in catalogue.problems("metric", spec)]


def test_the_usual_steps_are_the_metrics_own_and_half_as_many():
    assert usual("morf")["steps"] == ("10", "20") and usual("morf", "quick")["steps"] == ("4", "8")
    assert "steps" not in usual("sds") and "output=prob" in usual("sds")["dialect"]


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ({"fill": ["blurr"]}, "no fill is called 'blurr'; did you mean blur?"),
        ({"fil": ["zero"]}, "morf has no 'fil' to vary; did you mean fill?"),
        ({"sign": ["ab"]}, "there is no sign 'ab'; did you mean abs?"),
        ({"steps": ["many"]}, "steps='many' is not a whole number"),
        ({"steps": []}, "factor steps has no level"),
        ({"dialect": ["m5"]}, "no dialect is called 'm5'"),
        ({"dialect": ["areas=mean"]}, "morf has no parameter 'areas'; did you mean area?"),
        ({"units": ["grids(8)"]}, "there are no units 'grids(8)'"),
    ],
)
def test_a_mistake_is_named(factors, message):
    with pytest.raises(SpecError, match=message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        expand("morf", factors)


# -- methods under signs -----------------------------------------------------------------------------------------


def test_only_maps_with_a_sign_have_a_twin():
    given = ["saliency", "saliency(post=abs)", "grad_cam", "smoothgrad(of=input_x_gradient)", "random", "sobel"]
    units, labels = signed_variants(given, ("signed", "abs"), load_profile("quick"))
    assert labels == {
        "signed": {},
        "abs": {m: f"{m} · abs" for m in ("saliency", "smoothgrad(of=input_x_gradient)")},
    }
    assert list(units)[: len(given)] == given
    built = catalogue.build("method", units["smoothgrad(of=input_x_gradient) · abs"])
    assert (built.post, built.of, built.samples) == ("abs", "input_x_gradient", 8)


def test_units_and_aliases_have_twins_too():
    unit = catalogue.build("method", "saliency")
    units, labels = signed_variants([unit], ("signed", "relu"), load_profile("default"))
    assert units["saliency · relu"].post == "relu" and labels["relu"] == {"saliency": "saliency · relu"}
    units, _ = signed_variants(["I×G"], ("signed", "abs"), load_profile("idsds"))
    assert units["I×G · abs"] == "input_x_gradient(post=abs)"


def test_of_the_controls_random_alone_takes_part():
    assert "random" in contestants(load_profile("quick")) and "grad_cam" in contestants(load_profile("quick"))
    assert not {"sobel", "constant", "center", "oracle"} & set(contestants(load_profile("quick")))


# -- a run -------------------------------------------------------------------------------------------------------

METHODS = ["saliency", "input_x_gradient", "integrated_gradients(steps=4)", "grad_cam"]


@pytest.fixture(scope="module")
def net() -> nn.Module:
    rng = torch.Generator().manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, 5)
    )
    for weight in net.parameters():
        nn.init.normal_(weight, 0, 0.3, generator=rng)
    return net.double()


@pytest.fixture(scope="module")
def x():
    return torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


WAYS = {
    "dialect": ["own", "output=logit", "abpc(ties=index)"],
    "fill": ["zero", "auto", "channel_mean"],
    "units": ["pixel", "grid(4)", "word"],
    "sign": ["signed", "abs"],
}


@pytest.fixture(scope="module")
def many(net, x, tmp_path_factory) -> Multiverse:
    out = tmp_path_factory.mktemp("many") / "run"
    return hc.multiverse(
        net, x, metric="morf(steps=4, ties=index)", factors=WAYS, methods=METHODS, out=out, progress="none"
    )


def test_its_rankings_are_those_of_scoring_one_by_one(many, net, x):
    """The slow way: explain, take absolute values, score, average, rank, and Kendall's W by its definition."""
    maps = {m: hc.explain(net, x, method=m).values for m in METHODS}
    (case,) = many.cases
    assert set(case.methods) == set(METHODS)
    ranks = []
    for u in case.universes:
        spec = many.result.manifest["study"]["metrics"][u.metric]
        used = {m: v.abs() if u.levels["sign"] == "abs" else v for m, v in maps.items()}
        means = [
            float(hc.score(net, x, {m: hc.Attribution(v, method=m, interpolation=kind(m))}, metric=spec).mean())
            for m, v in used.items()
        ]
        ranks.append(rank_of(np.array(means)))
        mine = {m: case.ranks[list(case.universes).index(u), case.methods.index(m)] for m in METHODS}
        assert list(mine.values()) == ranks[-1].tolist(), u.label
    m, n = np.shape(ranks)
    sums = np.sum(ranks, axis=0)
    assert many.w == pytest.approx(12 * np.sum((sums - sums.mean()) ** 2) / (m**2 * (n**3 - n)))
    low, high = many.interval
    assert 0 <= low <= many.w <= high <= 1


def kind(method):
    return catalogue.build("method", method).interpolation


def test_nothing_is_dropped_without_a_word(many):
    asked = {
        " · ".join(p) for p in product(("morf", "logit", "abpc(ties=index)"), *(WAYS[k] for k in ("fill", "units")))
    }
    ranked = {u.metric for u in many.cases[0].universes}
    told = dict(many.left_out())
    assert ranked | told.keys() == asked and not ranked & told.keys()
    assert told["morf · auto · pixel"] == "the same as morf · zero · pixel"
    assert told["abpc(ties=index) · zero · word"].startswith("units='word' do not exist for a image")
    assert len(many.cases[0].universes) == 3 * 2 * 2 * 2


def test_tables_have_a_row_for_each(many):
    assert set(many.table()["method"]) == set(METHODS)
    assert many.universes().height == 24
    assert set(many.factors()["factor"]) == set(WAYS)
    assert many.pairs().height == 6
    assert many.table()["tested"].to_list() == [24] * 4  # random was added


def test_the_folder_remembers_what_varied(many):
    again = Multiverse.open(many.result.store.folder)
    assert (again.w, again.record["base"]) == (many.w, "morf(steps=4, ties=index)")
    assert again.record["factors"]["units"] == ["pixel", "grid(4)", "word"]


def test_a_run_that_is_none_says_so(net, x, tmp_path):
    bench = hc.Benchmark(models=net, data=x, methods=["saliency", "random"], metrics=["sds"])
    result = bench.run(tmp_path / "run", progress="none")
    assert result.facts["multiverse"] is None
    with pytest.raises(hc.HeatcheckError, match="is no multiverse"):
        _ = Multiverse(result).record


def test_it_goes_on_where_it_stopped_and_outputs_are_free(net, x, tmp_path):
    def spent(**factors):
        methods = METHODS[:2]
        run = hc.multiverse(net, x, factors=factors, methods=methods, out=tmp_path / "run", progress="none")
        return run.result.manifest["passes"]["forwards"]

    once = spent(fill=["zero"], steps=[4, 8])
    assert spent(fill=["zero"], steps=[4, 8]) == once
    assert spent(fill=["zero"], steps=[2, 4, 8], output=["prob", "logit"], dialect=["own", "area=trapezoid"]) == once
    assert spent(fill=["zero", "channel_mean"], steps=[4, 8]) > once


def test_labels_of_ones_own_reach_tables(net, x, tmp_path):
    bench = hc.Benchmark(models=net, data=x, methods={"S": "saliency", "R": "random"}, metrics={"D": "morf(steps=2)"})
    board = bench.run(tmp_path / "run", progress="none").leaderboard().full
    assert set(board["method"]) == {"S", "R"} and set(board["metric"]) == {"D"}


def test_a_sign_that_changes_no_map_is_left_out(net, x):
    bench = hc.Benchmark(models=net, data=x, methods=["grad_cam"])
    _, made = over(bench, "morf", {"sign": ["signed", "abs"], "fill": ["zero", "blur"]})
    assert [u.label for u in made.universes] == ["morf · zero · signed", "morf · blur · signed"]
    why = "no method's maps have a sign, so abs changes nothing"
    assert made.left_out == (("morf · zero · abs", why), ("morf · blur · abs", why))


def test_the_order_of_signs_does_not_matter(net, x):
    bench = hc.Benchmark(models=net, data=x, methods=["saliency", "grad_cam"])
    _, made = over(bench, "morf", {"sign": ["abs", "signed"]})
    assert [u.label for u in made.universes] == ["morf · abs", "morf · signed"] and made.left_out == ()


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ({"units": ["word", "token"]}, r"there is no universe, .*left out: morf · word: units='word' do not exist"),
        ({"fill": ["zero", "mask"]}, r"only one universe, morf · zero, .*left out: morf · mask: mask is defined for"),
        ({"fill": ["zero"]}, r"only one universe, morf · zero, .*; vary something: .* of fill, steps, units, output"),
        ({"sign": ["signed", "abs"]}, r"only one universe, morf · signed, .*no method's maps have a sign"),
    ],
)
def test_fewer_than_two_universes_are_an_error_before_any_pass(net, x, factors, message):
    def forward(_pixels):
        raise AssertionError("a pass")

    bench = hc.Benchmark(models=net, data=x, methods=["grad_cam"])
    handle = net.register_forward_pre_hook(lambda _net, pixels: forward(pixels))
    try:
        with pytest.raises(SpecError, match=message):
            over(bench, "morf", factors)
    finally:
        handle.remove()


@pytest.mark.parametrize("factors", [{"steps": [0, 4, 8]}, {"dialect": ["own", "steps=0", "output=logit"]}])
def test_a_value_that_is_wrong_by_itself_is_a_mistake_and_no_universe_left_out(net, x, factors):
    with pytest.raises(SpecError, match="steps=0 must be at least 1"):
        over(hc.Benchmark(models=net, data=x, methods=["saliency"]), "morf", factors)


def test_an_unknown_dialect_is_told_those_that_fit():
    with pytest.raises(SpecError, match=r"no dialect is called 'xyzzy': it is own, .*; known: ") as raised:
        expand("morf", {"dialect": ["own", "xyzzy"]})
    told = set(str(raised.value).partition("known: ")[2].split(", "))
    metrics = told & set(catalogue.entries("metric"))
    assert {"own", "m4", "metarank", "idsds", "abpc"} <= told and "morf" not in told
    assert {catalogue.find("metric", id).facts["family"] for id in metrics} == {"curve"}
    for name in told:
        assert expand("morf", {"dialect": [name]}).metrics
    with pytest.raises(SpecError, match=r"'metarnk': .*; did you mean metarank\?"):
        expand("morf", {"dialect": ["metarnk"]})


def test_numbers_of_things_are_told_in_words():
    assert [_counted(2, "fill"), _counted(1, "steps"), _counted(1, "way")] == ["2 fills", "1 step", "1 way"]
    assert [_counted(2, "units"), _counted(3, "nan")] == ["2 units", "3 levels of nan"]


# -- command line ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(make_study) -> Path:
    return make_study(6, 'methods = ["saliency", "input_x_gradient", "grad_cam"]\n')


SMALL = ("--fill", "zero,blur", "--steps", "2,4", "--sign", "signed,abs", "--workers", 1, "--batch", 8)


def heatcheck(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_the_command_tells_how_far_the_ranking_moves(study, tmp_path):
    done = heatcheck("multiverse", study, *SMALL, "--out", tmp_path / "run", "--quiet")
    assert done.exit_code == 0, done.output
    assert "Kendall's W of 3 methods is" in done.stdout
    assert all(word in done.stdout for word in ("input_x_gradient", "fill", "steps", "sign", "pairs reversed"))
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Does the ranking survive?" in page and r"morf \u00b7 blur \u00b7 4 \u00b7 abs" in page
    again = heatcheck("multiverse", study, *SMALL, "--out", tmp_path / "run", "--json")
    told = json.loads(again.stdout)
    assert "8 universes (2 fills × 2 steps × 2 signs), 4 ways to score" in again.stderr
    assert "0 forwards" in again.stderr  # all is there already
    (case,) = told["cases"]
    assert len(case["universes"]) == 8 and 0 <= case["w"] <= 1 and case["w_low"] <= case["w"] <= case["w_high"]
    assert [set(u["ranks"]) for u in case["universes"]] == [{"saliency", "input_x_gradient", "grad_cam"}] * 8
    assert {f["factor"] for f in case["factors"]} == {"fill", "steps", "sign"}
    assert case["verdict"] in " ".join(done.stdout.split())


def test_workers_get_the_same_components_under_the_same_labels(study, tmp_path):
    bench, made = over(hc.Benchmark.from_study(hc.Study.load(study)), "morf", FACTORS)
    setup = bench.setup()
    store = Store.open(tmp_path / "run", create=True)
    (part,) = prepare(setup, hc.Runtime(batch=4), store)
    here = part.work(list(setup.data)[:2], store, setup.sources)
    there = Work.from_json(here.to_json())
    assert there == here and setup.sources.portable
    grid = Resources().grid(there)
    for mine, theirs in ((part.grid.methods, grid.methods), (part.grid.metrics, grid.metrics)):
        assert [(m.label, m.digest, m.component) for m in mine] == [(m.label, m.digest, m.component) for m in theirs]
    assert [m.label for m in grid.metrics] == list(made.metrics)


def test_a_model_that_returns_several_tensors_names_its_scores(tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n"
        "        return {'hidden': x.flatten(1), 'scores': (x * x).mean((2, 3))}\n"
    )
    for i in range(3):
        Image.effect_noise((16, 16), 40 + i).convert("RGB").save(tmp_path / f"{i}.png")
    asked = ("--models", f"{tmp_path / 'net.py'}:Net", "--data", f"folder:{tmp_path}")
    asked += ("--methods", "saliency,input_x_gradient")
    asked += ("--preprocess", "mean=0.5,std=0.5,size=16", "--metric", "sds", "--factor", "nan=status,zero", "--json")
    asked += ("--workers", 1, "--batch", 4, "--out", tmp_path / "run", "--quiet")
    done = heatcheck("multiverse", *asked, "--model-output", "scores")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["cases"][0]["universes"]) == 2
    wrong = heatcheck("multiverse", *asked, "--model-output", "score")
    assert wrong.exit_code != 0 and "scores" in wrong.stderr


def test_the_plan_asks_nothing(study, tmp_path):
    done = heatcheck("multiverse", study, *SMALL, "--plan", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "fill: zero, blur" in done.stdout and "8 universes" in done.stdout and "forwards" in done.stdout
    assert not (tmp_path / "run").exists()
    told = json.loads(heatcheck("multiverse", study, *SMALL, "--plan", "--json", "--out", tmp_path / "run").stdout)
    assert len(told["universes"]) == 8 and told["plan"]["forwards"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fill", "blurr"], "no fill is called 'blurr'; did you mean blur?"),
        (["--metric", "morff"], "no metric is called 'morff'; did you mean morf?"),
        (["--metric", "morf,abpc"], "one metric is expanded at a time"),
        (["--fill", "zero"], "there is only one universe, morf · zero"),
        (["--plan", "--steps", "0,8"], "steps=0 must be at least 1"),
        (["--factor", "ties"], "is not of the form parameter=level,level"),
        (["--factor", "tie=index"], "morf has no 'tie' to vary; did you mean ties?"),
    ],
)
def test_mistakes_end_with_code_2_before_anything_is_loaded(arguments, message):
    done = heatcheck("multiverse", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_nothing_heavy_is_imported_for_a_mistake():
    code = (
        "import sys\nfrom heatcheck.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('torch', 'numpy', 'polars') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, "multiverse", "--fill", "blurr"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1] == "[]"


def test_the_command_teaches_by_example():
    assert heatcheck("multiverse", "--help").output.count("heatcheck multiverse") >= 3
