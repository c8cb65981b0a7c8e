"""A changed network against the one it came from: verdicts on toys, what is refused, and the command's forms."""

import copy
import json
import re
from dataclasses import replace

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import heatcheck as hc
from heatcheck.api.gate import gate
from heatcheck.cli import app
from heatcheck.core.spec import SpecError
from heatcheck.report.gate import COLUMNS, cells, sentence
from heatcheck.stats.inferiority import INFERIOR, NOT_INFERIOR

MUTANTS = (
    ("api/gate.py", "if first[name] != second[name])", "if False)", "test_other_content_is_refused"),
    (
        "api/gate.py",
        '    if a != b:\n        told = " and "',
        '    if False:\n        told = " and "',
        "test_other_settings_of_a_metric_or_method_are_refused",
    ),
    (
        "api/gate.py",
        "in old.circular | new.circular]",
        "in set()]",
        "test_methods_that_ask_the_metrics_own_questions_are_not_judged",
    ),
    (
        "api/gate.py",
        'old.model["identity"] == new.model["identity"]',
        "False",
        "test_nothing_is_inferior_to_itself_and_maps_need_not_be_compared",
    ),
    (
        "api/gate.py",
        '("data", old.data, new.data)',
        '("data", old.section.data, new.section.data)',
        "test_a_folder_with_two_studies_is_paired_and_other_data_is_not",
    ),
    (
        "api/gate.py",
        '("data", old.data, new.data)',
        '("data", 0, 0)',
        "test_a_folder_with_two_studies_is_paired_and_other_data_is_not",
    ),
    ("cli/gate.py", "if not found.passed:", "if found.passed:", "test_the_exit_code_is_the_verdict"),
    (
        "report/gate.py",
        'if row["verdict"] == NOT_INFERIOR:',
        'if row["verdict"] != NOT_INFERIOR:',
        "test_junit_has_a_failure_for_each_method_that_does_not_pass",
    ),
)
CIRCULAR, FINER = "occlusion(units=grid(2))", "occlusion(units=grid(4))"
GRID = {"methods": ["input_x_gradient", FINER, CIRCULAR, "random"], "metrics": ["sds(units=grid(2))"]}
METRIC = "sds(units=grid(2))"


def make_net(seed=0):
    rng = torch.Generator().manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5)
    )
    for weight in net.parameters():
        nn.init.normal_(weight, 0, 0.3, generator=rng)
    return net


def rounded_to_int8(net):
    """Every weight rounded to one of 255 levels of its output channel, and back."""
    net = copy.deepcopy(net)
    with torch.no_grad():
        for weight in (w for w in net.parameters() if w.ndim > 1):
            largest = weight.abs().flatten(1).amax(1).clamp(min=1e-12)
            step = largest.reshape(-1, *[1] * (weight.ndim - 1)) / 127
            weight.copy_((weight / step).round() * step)
    return net


class Backwards(nn.Module):
    """The same answers, and gradients of the other sign: maps are wrong where the network is right."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        y = self.net(x)
        return 2 * y.detach() - y


class Twin(nn.Module):
    """The same answers and gradients under another name of every weight, and with one that nothing asks for."""

    def __init__(self, net):
        super().__init__()
        self.inner, self.unused = net, nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.inner(x)


X = torch.randn(24, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run with three networks, and runs of single ones."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("gate")
    net = make_net()
    models = {"base": net, "int8": rounded_to_int8(net), "backwards": Backwards(net), "twin": Twin(net)}

    def make(name, models, data=X, **other):
        hc.Benchmark(models=models, data=data, **{**GRID, **other}).run(folder / name, progress="none")

    make("all", models)
    make("base", {"base": net})
    make("int8", {"int8": models["int8"]})
    make("other_metric", {"base": net}, data=X[:6], metrics=["sds(units=grid(4))"])
    make("other_method", {"base": net}, data=X[:6], methods={"input_x_gradient": "saliency"})
    make("other_data", {"base": net}, data=X[:6] + 1)
    make("fewer", {"base": net}, data=X[:20])
    return folder


def test_rounded_weights_pass_and_wrong_gradients_do_not(runs):
    good = gate("base", "int8", margins={METRIC: 0.1}, run=runs / "all")
    assert (good.verdict, good.passed) == (NOT_INFERIOR, True)
    assert {method for _, method, _ in good.rows} == {"input_x_gradient", FINER}
    assert all(alike.value > 0.95 for alike, _ in good.agreement.values())
    bad = gate("base", "backwards", margins={METRIC: 0.1}, methods=["input_x_gradient"], run=runs / "all")
    assert bad.verdict == INFERIOR
    assert bad.agreement["input_x_gradient"][0].value == pytest.approx(-1, abs=0.01)
    assert bad.record()["methods"][0]["candidate"] == pytest.approx(-bad.record()["methods"][0]["base"])


def test_two_folders_say_what_one_says(runs):
    apart = gate(runs / "base", runs / "int8", margins={"sds": 0.1})
    together = gate("base", "int8", margins={METRIC: 0.1}, run=runs / "all")
    assert [row for *_, row in apart.rows] == [row for *_, row in together.rows]
    assert apart.candidate == "int8 in int8"


def test_nothing_is_inferior_to_itself_and_maps_need_not_be_compared(runs):
    same = gate(runs / "base", runs / "base", margins={"sds": 1e-9}, maps=False)
    assert same.verdict == NOT_INFERIOR and same.same and same.record()["same_model"]
    assert sentence(same).endswith(
        "; base and candidate are the same model, so that this says nothing about a changed one."
    )
    assert not gate(runs / "base", runs / "int8", margins={"sds": 0.1}, maps=False).same
    assert same.agreement == {}
    assert same.table["maps"].null_count() == same.table.height


def test_methods_that_ask_the_metrics_own_questions_are_not_judged(runs):
    found = gate(runs / "base", runs / "int8", margins={"sds": 0.1}, methods=[FINER, CIRCULAR])
    assert [method for _, method, _ in found.rows] == [FINER] and set(found.agreement) == {FINER}
    assert f"{CIRCULAR} asks the questions of {METRIC} (circular), and is not judged by it" in found.notes
    with pytest.raises(SpecError, match=r"asks the questions of sds.*: name other methods, or another metric"):
        gate(runs / "base", runs / "int8", margins={"sds": 0.1}, methods=[CIRCULAR])


def test_two_models_with_the_same_scores_are_asked_about(runs):
    found = gate("base", "twin", margins={METRIC: 0.1}, run=runs / "all")
    assert not found.same and found.notes[-1].endswith("are they the same model?")
    assert "same model" not in sentence(found)
    row = cells(found)[0]
    assert row[COLUMNS.index("maps agree")] == "1.00 on all samples"
    assert float(row[COLUMNS.index("p")].lstrip("< ")) < 0.05


@pytest.mark.parametrize(
    ("name", "told"),
    [("other_metric", r"metric sds is not the same in both .*grid\(2\).*grid\(4\)"), ("other_data", "other content")],
)
def test_other_content_is_refused(runs, name, told):
    with pytest.raises(SpecError, match=told):
        gate(runs / "base", runs / name, margins={"sds": 0.1})


def test_other_settings_of_a_metric_or_method_are_refused(runs):
    with pytest.raises(SpecError, match="metric sds is not the same"):
        gate(runs / "base", runs / "other_metric", margins={"sds": 0.1})
    with pytest.raises(SpecError, match="method input_x_gradient is not the same"):
        gate(runs / "base", runs / "other_method", margins={"sds": 0.1})


def test_a_folder_with_two_studies_is_paired_and_other_data_is_not(runs, tmp_path):
    """Tables call the data of the second study by its number of samples; it is the same data."""
    net = make_net()
    hc.Benchmark(models={"base": net}, data=X[:9], methods=["saliency"], metrics=["sparseness"]).run(
        tmp_path / "two", progress="none"
    )
    hc.Benchmark(models={"base": net}, data=X, **GRID).run(tmp_path / "two", progress="none")
    names = [section.data for section in hc.Result.open(tmp_path / "two").sections]
    assert len(names) == 2 and "24 samples" in names[0]
    for pair in ((runs / "base", tmp_path / "two"), (tmp_path / "two", runs / "base")):
        found = gate(*pair, margins={"sds": 0.1})
        assert found.same and found.passed and {row.n for *_, row in found.rows} == {24}
    hc.Benchmark(models={"base": net}, data=replace(hc.load_data(X), name="others"), **GRID).run(
        tmp_path / "others", progress="none"
    )
    with pytest.raises(SpecError, match=r"data is \S+ for the base and others for the candidate"):
        gate(runs / "base", tmp_path / "others", margins={"sds": 0.1})


def test_fewer_samples_are_paired_and_told(runs):
    found = gate(runs / "base", runs / "fewer", margins={"sds": 0.1})
    assert found.notes[0] == "paired on the 20 samples that both runs have, of 24 and 20"
    assert {row.n for *_, row in found.rows} <= set(range(18, 21))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"margins": {}}, "name at least one metric"),
        ({"margins": {"sds": 0.0}}, "must be a number above zero"),
        ({"margins": {"morf": 0.1}}, "'morf' was not measured on base"),
        ({"margins": {"sds": 0.1}, "methods": ["ig"]}, "method 'ig' was not run on base"),
    ],
)
def test_what_is_asked_wrongly_is_named(runs, arguments, told):
    with pytest.raises(SpecError, match=told):
        gate(runs / "base", runs / "int8", **arguments)


def test_models_and_folders_are_told_apart(runs):
    with pytest.raises(SpecError, match="has 4 models, base, int8, backwards, twin: name two of them"):
        gate(runs / "all", runs / "base", margins={"sds": 0.1})
    with pytest.raises(SpecError, match="all has no model 'int'; did you mean int8"):
        gate("base", "int", margins={"sds": 0.1}, run=runs / "all")
    with pytest.raises(SpecError, match="are both 'base'"):
        gate("base", "base", margins={"sds": 0.1}, run=runs / "all")


# -- the command ---------------------------------------------------------------------------------------------


def command(runs, candidate, *more):
    line = ["gate", "base", candidate, "--run", str(runs / "all"), "--metric", METRIC, "--margin", "0.1", *more]
    return CliRunner().invoke(app, line)


def test_the_exit_code_is_the_verdict(runs):
    good, bad = command(runs, "int8"), command(runs, "backwards")
    assert good.exit_code == 0
    assert "NOT INFERIOR" in good.output
    assert bad.exit_code == 1
    assert "\nINFERIOR: " in bad.output
    wrong = CliRunner().invoke(app, ["gate", "a", "b", "--metric", "sds", "--margin", "0.1", "--margin", "0.2"])
    assert wrong.exit_code == 2
    assert "1 metric (sds) and 2 margins: give each metric its own --margin" in wrong.output
    assert CliRunner().invoke(app, ["gate", "a", "b", "--metric", "sds"]).exit_code == 2


def test_junit_has_a_failure_for_each_method_that_does_not_pass(runs, tmp_path):
    import xml.etree.ElementTree as tree

    command(runs, "backwards", "--junit", str(tmp_path / "gate.xml"), "--markdown", str(tmp_path / "gate.md"))
    suite = tree.parse(tmp_path / "gate.xml").getroot()[0]
    failures = {case.get("name"): [f.get("type") for f in case] for case in suite}
    assert failures == {"input_x_gradient": ["inferior"], FINER: []}
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    shown = (tmp_path / "gate.md").read_text()
    assert shown.startswith("**INFERIOR")
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in shown.splitlines() if line.startswith("|")}) == 1


def test_json_alone_is_on_stdout(runs):
    told = json.loads(command(runs, "int8", "--json").stdout)
    assert told["passed"] is True
    assert {row["verdict"] for row in told["methods"]} == {"not inferior"}


# -- the default network -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_default_network_rounded_to_int8_passes_and_a_layer_made_anew_does_not(tmp_path):
    """Twelve pictures, Grad-CAM under single deletion, within 0.2. The broken network sees other classes."""
    torch.set_num_threads(1)
    lite0 = hc.load_model("efficientnet_lite0")
    network = lite0._network
    anew = copy.deepcopy(network)
    layer = [m for m in anew.modules() if isinstance(m, nn.Conv2d)][-1]
    nn.init.kaiming_normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    bench = hc.Benchmark(
        models={"lite0": network, "int8": rounded_to_int8(network), "anew": anew},
        data="images",
        preprocess=lite0._preprocess,
        methods=["grad_cam"],
        metrics=["sds"],
        samples=12,
    )
    bench.run(tmp_path / "run", progress="none")
    good = gate("lite0", "int8", margins={"sds": 0.2}, run=tmp_path / "run")
    assert good.passed, good.table
    assert good.agreement["grad_cam"][0].value > 0.9
    bad = gate("lite0", "anew", margins={"sds": 0.2}, run=tmp_path / "run")
    assert not bad.passed, bad.table
    assert all("explains another class" in row.why for *_, row in bad.rows)
