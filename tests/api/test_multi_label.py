"""Labels of which several may hold: a probability is a label's own, whatever the others are."""

import json
from pathlib import Path

import pytest
import torch
from tests.models.conftest import Net
from torch import nn
from torch.testing import assert_close

import heatcheck as hc
from heatcheck.api.explain import as_inputs, batches_of
from heatcheck.api.fills import compare_fills
from heatcheck.core.types import HeatcheckError, NotApplicable
from heatcheck.models.base import Model
from heatcheck.models.load import load_model
from heatcheck.models.request import Request
from heatcheck.models.trained import trained
from heatcheck.run.task import most_probable
from heatcheck.testing.text_zoo import FAMILIES, TEXT, network_of, said, tokenizer_of
from heatcheck.training.loop import fit
from heatcheck.training.prepare import prepare
from heatcheck.training.recipe import load_recipe

MUTANTS = (
    ("probe/answers.py", "return logit.sigmoid()", "return logit.exp()", "test_morf_is_the_mean_drop_of_the_sigmoid"),
    (
        "models/outputs.py",
        '== "multi_label_classification"',
        '== "multi_label"',
        "test_a_configuration_of_transformers_says_it",
    ),
    (
        "models/outputs.py",
        '"independent" if self.multi_label and self.number is None else None',
        "None",
        "test_results_of_both_readings_are_never_mixed",
    ),
    ("run/task.py", "top.values[0].sigmoid().tolist()", "top.values[0].tolist()", "test_a_run_shows_the_probabilities"),
    (
        "api/fills.py",
        "torch.cat([self.logits.sigmoid(), (-self.logits).sigmoid()], 1)",
        "self.logits.sigmoid()",
        "test_the_entropy_of_labels_is_the_sum_of_theirs",
    ),
    ("methods/deep_lift.py", "if multi_label:", "if False:", "test_what_methods_explain_is_the_sigmoid"),
)
X = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
SAID = "has labels of which several may hold: the probability of one is the sigmoid of its score"


class Additive(nn.Module):
    """Three scores, each linear in the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(1)) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("nchw,kchw->nk", x, self.weight)


def labels_of(network: nn.Module) -> Model:
    return load_model(network, multi_label=True)


def small(tmp_path: Path, **config: object) -> str:
    """The spec of a small BERT in a folder."""
    family = FAMILIES["BERT"]
    tokenizer = tokenizer_of(family)
    tokenizer.model_max_length = 64
    network_of(family, len(tokenizer), 0, **config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return f"hf:{tmp_path}"


def test_morf_is_the_mean_drop_of_the_sigmoid() -> None:
    """By hand: pixels in the order of the map, each replaced by zero, the label's own sigmoid read at every step."""
    net, target = Additive(), 1
    share = (net.weight[target] * X[:1]).sum(1).detach()
    got = hc.score(labels_of(net), X[:1], share[None], metric="morf(units=pixel, steps=64, fill=zero)", target=target)
    logit, gone = share.double().sum(), share.double().flatten().sort(descending=True).values.cumsum(0)
    drops = torch.cat([torch.zeros(1), logit.sigmoid() - (logit - gone).sigmoid()])
    assert got.item() == pytest.approx(drops.mean().item(), abs=1e-6)
    other = hc.score(net, X[:1], share[None], metric="morf(units=pixel, steps=64, fill=zero)", target=target)
    assert abs(got.item() - other.item()) > 0.01


@pytest.mark.parametrize("output", ["prob", "logprob", "logit"])
def test_what_methods_explain_is_the_sigmoid(output: str) -> None:
    """DeepLIFT's shares, and those of integrated gradients, sum to what the scalar changes by."""
    net = Additive()
    read = {"prob": torch.sigmoid, "logprob": nn.functional.logsigmoid, "logit": torch.Tensor.double}[output]
    logit = net(X).detach()[:, 2]
    change = (read(logit) - read(torch.zeros(2))).float()
    for method in ("deep_lift(baseline=zero", "integrated_gradients(steps=200, baseline=zero"):
        heat = hc.explain(labels_of(net), X, method=f"{method}, output={output})", target=2)
        assert_close(heat.values.flatten(1).sum(1), change, rtol=1e-3, atol=1e-4)


def test_legrad_scores_each_layer_by_the_sigmoid(tmp_path: Path) -> None:
    """The label's own logit is all that decides a map: another label's score, shifted, changes nothing."""
    several = load_model(small(tmp_path, problem_type="multi_label_classification"))
    before = hc.explain(several, [TEXT], method="legrad(output=prob)", target=1).values
    shifted = several.around(several.module())  # type: ignore[attr-defined]
    with torch.no_grad():
        shifted.module().classifier.bias[0] += 3
    assert_close(hc.explain(shifted, [TEXT], method="legrad(output=prob)", target=1).values, before)
    classes = shifted.reading(multi_label=False)
    assert hc.explain(classes, [TEXT], method="saliency(output=prob)", target=1).values.sum() > 0


@pytest.mark.parametrize("output", ["margin", "accuracy"])
def test_labels_are_not_compared(output: str) -> None:
    with pytest.raises(NotApplicable, match=f"classes that exclude each other for output={output}"):
        hc.score(labels_of(Net()), [(x, 1) for x in X], ["saliency"], metric=f"morf(output={output})")


def test_one_score_may_be_a_label() -> None:
    """A network for a yes or no question, with one logit."""
    model = labels_of(Net(1))
    heat = hc.explain(model, X, method="input_x_gradient(output=prob)")
    leaf = X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model.module()(leaf).sigmoid().sum(), leaf)
    assert_close(heat.values, (slope * X).sum(1))
    assert not model.gives_number and hc.score(model, X, heat, metric="morf(fill=zero)").isfinite().all()


def test_a_configuration_of_transformers_says_it(tmp_path: Path) -> None:
    spec = small(tmp_path, problem_type="multi_label_classification")
    several = load_model(spec)
    assert several.multi_label and [note for note in several.notes if SAID in note] == several.notes
    x = several.encode(said(TEXT))
    with torch.inference_mode():
        logits = several.logits(x)[0].double()
    drop = hc.score(several, [TEXT], ["random"], metric="comprehensiveness(output=prob)", target=1)
    assert drop.isfinite().all()
    ((_, probe, batch),) = batches_of(several, as_inputs(several, [TEXT]), None, None, 0)
    assert probe.clean(batch).read("prob").item() == pytest.approx(logits.max().sigmoid().item(), abs=1e-7)
    classes = load_model(spec, multi_label=False)
    assert not classes.multi_label and not classes.notes
    column = load_model(spec, target="column:1")
    assert column.gives_number and not column.multi_label and not column.notes
    assert most_probable(logits, multi_label=True)["prob"] == pytest.approx(
        logits.sigmoid().sort(descending=True).values[:2].tolist()
    )


def test_results_of_both_readings_are_never_mixed(tmp_path: Path) -> None:
    spec = small(tmp_path, problem_type="multi_label_classification")
    plain = small(tmp_path / "plain")
    ids = [load_model(spec).identity, load_model(spec, multi_label=False).identity, load_model(plain).identity]
    assert ids[0] != ids[1] == ids[2] and load_model(plain, multi_label=True).identity == ids[0]
    column = {load_model(s, target="column:1").identity for s in (spec, plain)}
    assert len(column) == 1
    net = Net()
    assert labels_of(net).identity != load_model(net).identity
    assert load_model(load_model(net), multi_label=True).identity == labels_of(net).identity
    assert load_model(lambda x: x.mean((2, 3)), multi_label=True).multi_label


def test_an_adapter_that_reads_its_own_output_is_not_told_how() -> None:
    class Own(type(load_model(Net()))):  # type: ignore[misc]
        def logits(self, x: object) -> torch.Tensor:
            return super().logits(x)  # type: ignore[no-any-return]

    with pytest.raises(HeatcheckError, match="multi_label= do not reach it"):
        load_model(Own(Net(), "own"), multi_label=True)


def test_a_run_shows_the_probabilities(tmp_path: Path) -> None:
    model = labels_of(Net())
    bench = hc.Benchmark(
        models=[model], data=(X, [0, 1]), methods=["saliency", "random"], metrics=["morf", "morf(output=margin)"]
    )
    result = bench.run(tmp_path / "run", progress="none")
    with torch.no_grad():
        best = model.module()(X).double().sigmoid().amax(1)
    assert result.samples()["prob"].to_list() == pytest.approx(best.tolist(), abs=1e-6)
    status = {m: set(rows["status"]) for (m,), rows in result.scores().group_by("metric")}
    assert status["morf"] == {"ok"}
    assert all(s.startswith("skipped: needs classes that exclude") for s in status["morf(output=margin)"])
    assert SAID in result.manifest["models"][0]["notes"][0]
    assert SAID in result.report(tmp_path / "report.html").read_text()


def test_the_entropy_of_labels_is_the_sum_of_theirs() -> None:
    model = labels_of(Net())
    got = compare_fills(model, X, fills=["zero"], shares=(0.5,), units="grid(2)").clean
    p = model.logits(model.domain.wrap(X)).detach().double().sigmoid()
    by_hand = -(p * p.log() + (1 - p) * (1 - p).log()).sum(1)
    assert got.entropy == pytest.approx(by_hand.mean().item(), abs=1e-6)
    assert got.confidence == pytest.approx(p.amax(1).mean().item(), abs=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_what_learns_one_label_per_text_has_classes_again(classes: int, tmp_path: Path) -> None:
    """With a head of its own for as many labels, and with a new one."""
    spec = small(tmp_path / "several", problem_type="multi_label_classification", num_labels=3)
    data = [(f"a good film {i}", i % classes) for i in range(6)]
    recipe = load_recipe("text", "", {"epochs": 1, "batch": 3, "tokens": 16})
    ready = prepare(recipe, spec, data, device="cpu", threads=1)
    assert ready.record.parent.new_head == (classes == 2) and not ready.task.model.multi_label
    assert not any(SAID in note for note in ready.task.model.notes)
    fit(ready.task, ready.network, ready.record, tmp_path / "out", progress="none")
    config = json.loads((tmp_path / "out" / "hf" / "config.json").read_text())
    assert config["problem_type"] == "single_label_classification"
    assert not trained(str(tmp_path / "out"), Request(name="new")).multi_label
