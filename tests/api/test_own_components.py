"""Methods and metrics that users write as functions, from the first line of code to the leaderboard."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.plugins import load_plugin
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError
from heatcheck.testing import check_method, check_metric, linear, probe_for, toy_batch, toy_maps
from heatcheck.testing.method_checks import near

MUTANTS = (
    (
        "probe/calls.py",
        "        forwards += len(leaf)\n",
        "        forwards += 1\n",
        "test_passes_of_a_function_are_counted_before_it_runs",
    ),
    ("metrics/base.py", "shaped[:, rows]", "shaped[:, : rows.stop - rows.start]", "test_a_function_gets_its_own_maps"),
    (
        "testing/method_checks.py",
        "        tolerance = max(tolerance, 1e-5)\n",
        "        tolerance = max(tolerance, 1e-9)\n",
        "test_single_precision_is_judged_as_such",
    ),
)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """What a test declares is gone after it."""
    before = dict(catalogue._own)
    yield
    catalogue._own.clear()
    catalogue._own.update(before)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))


def lost(model: Any, x: Tensor, target: Tensor, maps: Tensor, *, share: float = 0.25) -> Tensor:
    """What the strongest sites are worth."""

    def output(y: Tensor) -> Tensor:
        return model(y).gather(1, target[:, None])[:, 0]

    axes = (1,) if x.ndim == 4 else (2,)
    scores = []
    for heat in maps:
        flat = heat.flatten(1)
        keep = torch.ones_like(flat).scatter(1, flat.topk(max(1, int(share * flat.shape[1]))).indices, 0)
        scores.append(output(x) - output(x * keep.reshape(heat.shape).unsqueeze(axes[0])))
    return torch.stack(scores)


def test_the_readmes_method_passes_its_check() -> None:
    @hc.method("grad_squared")
    def grad_squared(model: Any, x: Tensor, target: Tensor) -> Tensor:
        """The squared gradient."""
        x = x.detach().requires_grad_()
        return torch.autograd.grad(model(x).gather(1, target[:, None]).sum(), x)[0] ** 2

    check_method("grad_squared")


def test_a_metric_is_a_function() -> None:
    hc.metric("lost", better="higher", invariant=("scale", "shift"))(lost)
    check_metric("lost")
    check_metric("lost(share=0.5)")


def test_a_function_gets_its_own_maps() -> None:
    hc.metric("first", better="higher", family="form")(lambda model, x, target, maps: maps[:, :, 0, 0])
    x, maps = torch.rand(9, 3, 8, 8), torch.rand(2, 9, 8, 8)
    found = hc.score(network(), x, maps, metric="first")
    assert torch.equal(found, maps[:, :, 0, 0].double())


def test_a_functions_scores_equal_those_computed_by_hand() -> None:
    hc.metric("lost", better="higher")(lost)
    net, x, maps = network(), torch.rand(5, 3, 8, 8), torch.randn(2, 5, 8, 8)
    target = net(x).argmax(1)
    with torch.no_grad():
        by_hand = lost(net, x, target, maps)
    assert torch.allclose(hc.score(net, x, maps, metric=lost).float(), by_hand, atol=1e-6)


def test_passes_of_a_function_are_counted_before_it_runs() -> None:
    @hc.method("twice")
    def twice(model: Any, x: Tensor, target: Tensor, *, copies: int = 3) -> Tensor:
        y = x.repeat(copies, 1, 1, 1).requires_grad_()
        return torch.autograd.grad(model(y).sum(), y)[0][: len(x)] * model(x).sum(1)[:, None, None, None]

    from heatcheck.probe.asks import Shape

    toy = linear()
    assert catalogue.build("method", "twice").passes(Shape(toy.domain, toy.inputs(1), toy)) == (4, 3)
    assert catalogue.build("method", "twice(copies=2)").passes(Shape(toy.domain, toy.inputs(1), toy)) == (3, 2)


def test_a_class_may_return_a_tensor() -> None:
    from dataclasses import dataclass

    @hc.metric("mean_heat", better="higher", family="form")
    @dataclass(frozen=True, kw_only=True, repr=False)
    class MeanHeat(hc.Metric):
        def score(self, probe: Any, batch: Any, maps: hc.Maps) -> Tensor:
            value = maps.sites().mean(2)
            return torch.where(value > 0, value, torch.nan)

    toy = linear()
    batch = toy_batch(toy, 4)
    scores = catalogue.build("metric", "mean_heat")(probe_for(toy), batch, toy_maps(toy, batch, ("constant", "random")))
    assert scores.status[0] == ("ok",) * 4
    assert "undefined: the score is not finite" in scores.status[1]
    assert scores.value.dtype == torch.float64


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda maps: maps.mean((2, 3)).T, r"a tensor \(3, 2\) for 2 methods and 3 samples"),
        (lambda maps: maps.mean(), r"a tensor \(\)"),
        (lambda maps: 0.5, "returned float"),
    ],
)
def test_scores_of_the_wrong_shape_are_refused(result: Any, words: str) -> None:
    hc.metric("wrong", better="higher", family="form")(lambda model, x, target, maps: result(maps))
    with pytest.raises(HeatcheckError, match=words):
        hc.score(network(), torch.rand(3, 3, 8, 8), torch.rand(2, 3, 8, 8), metric="wrong")


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda x: x.flatten(1), r"maps of shape \(3, 192\) for inputs \(3, 3, 8, 8\); return .* \(3, 8, 8\)"),
        (lambda x: x[:1], r"maps of shape \(1, 3, 8, 8\)"),
        (lambda x: None, "returned NoneType, not a tensor"),
    ],
)
def test_maps_of_the_wrong_shape_are_refused(result: Any, words: str) -> None:
    hc.method("wrong")(lambda model, x, target: result(x))
    with pytest.raises(HeatcheckError, match=words):
        hc.explain(network(), torch.rand(3, 3, 8, 8), method="wrong")


def test_a_nan_map_is_called_a_nan_map() -> None:
    hc.method("nans")(lambda model, x, target: x * torch.nan)
    hc.method("endless")(lambda model, x, target: x / 0)
    assert set(hc.explain(network(), torch.rand(2, 3, 8, 8), method="nans").status) == {
        "failed: the map has NaN values"
    }
    assert set(hc.explain(network(), torch.rand(2, 3, 8, 8), method="endless").status) == {
        "failed: the map has infinite values"
    }
    with pytest.raises(AssertionError, match=r"check_finite_and_shaped: nans on .*NaN values"):
        check_method("nans")


def test_single_precision_is_judged_as_such() -> None:
    single = torch.rand(9) + 1
    near(single.double() * (1 + 1e-7), single.double(), "m", "differs", 1e-6)
    near((single * (1 + 1e-6)).double(), single.double(), "m", "differs", 1e-8)
    with pytest.raises(AssertionError, match="differs"):
        near(torch.rand(9, dtype=torch.float64), torch.rand(9, dtype=torch.float64), "m", "differs", 1e-8)
    with pytest.raises(AssertionError, match="differs"):
        near(single.double() * (1 + 1e-6), single.double(), "m", "differs", 1e-8)


PLUGIN = """import heatcheck as hc


@hc.method("fragile")
def fragile(model, x, target):
    if x.sum() > 0:
        raise ValueError("no bright pictures")
    return x
"""


def test_a_failing_plugin_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import heatcheck as hc\n\nhc.method(\n  'a', famly='x'\n)\n")
    with pytest.raises(SpecError, match=r"mine.py' failed \(mine.py, line 3\): TypeError: .*famly"):
        load_plugin(file)
    other = tmp_path / "other.py"
    other.write_text("x = 1\ny = = 2\n")
    with pytest.raises(SpecError, match=r"other.py, line 2\): SyntaxError"):
        load_plugin(other)


def test_a_function_that_fails_in_a_run_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    load_plugin(file)
    data = [(torch.full((3, 8, 8), 1.0 if i else -1.0), 0) for i in range(3)]
    result = hc.Benchmark(models=[network()], data=data, methods=["fragile", "random"], metrics=["sparseness"]).run(
        tmp_path / "run"
    )
    status = result.scores().filter(method="fragile")["status"].to_list()
    told = [s for s in status if s.startswith("failed")]
    assert len(told) == 2
    assert all(re.search(r"no bright pictures \(mine.py, line 7\)", s) for s in told), told
    shown = " ".join(str(result.leaderboard()).split())
    assert (
        "fragile not ranked under sparseness: coverage 1/3 below 0.5 (failed: ValueError: no bright pictures" in shown
    )
    assert "2 cells have no score because something failed" in shown
    assert repr(result) == f"<Result {tmp_path / 'run'}: 1 model, 3 samples, 2 methods, 1 metric>"


def test_a_parameter_without_a_default_is_refused() -> None:
    def needs_one(model: Any, x: Tensor, target: Tensor, *, width: int) -> Tensor:
        return x

    with pytest.raises(SpecError, match="'width' needs a default"):
        hc.method("needs_one")(needs_one)


def test_a_function_that_asks_for_outputs_only_needs_no_gradients() -> None:
    @hc.method("hides_halves", on=("image",))
    def hides_halves(model: Any, x: Tensor, target: Tensor) -> Tensor:
        """The drop that each half causes."""

        def score(y: Tensor) -> Tensor:
            return model(y).gather(1, target[:, None])[:, 0]

        heat, middle = torch.zeros_like(x[:, 0]), x.shape[3] // 2
        for half in (slice(0, middle), slice(middle, None)):
            y = x.clone()
            y[..., half] = 0
            heat[..., half] = (score(x) - score(y))[:, None, None]
        return heat

    check_method(hides_halves)
    assert catalogue.build("method", "hides_halves").uses == ()
    net = network()
    assert hc.explain(lambda x: net(x).detach(), torch.rand(2, 3, 8, 8), method=hides_halves).status == ("ok", "ok")


def test_a_check_that_meets_an_exception_names_the_component_and_the_line() -> None:
    @hc.metric("oops", better="higher", family="form")
    def oops(model: Any, x: Tensor, target: Tensor, maps: Tensor) -> Tensor:
        raise KeyError("oops")

    with pytest.raises(KeyError) as told:
        check_metric(oops)
    assert re.search(r"check_\w+ of oops \(test_own_components.py, line \d+\)", " ".join(told.value.__notes__))


def test_a_map_smaller_than_the_input_in_its_own_shape_is_refused() -> None:
    hc.method("cut")(lambda model, x, target: x[..., :7, :7])
    with pytest.raises(HeatcheckError, match=r"maps of shape \(2, 3, 7, 7\) for inputs \(2, 3, 8, 8\)"):
        hc.explain(network(), torch.rand(2, 3, 8, 8), method="cut")


def test_a_softmax_inside_the_model_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(network(), nn.Softmax(1))
    hc.Benchmark(models=[net], data=torch.rand(3, 3, 8, 8), methods=["random"], metrics=["sparseness"]).run(
        tmp_path / "run", progress="lines"
    )
    assert "outputs look like probabilities" in capsys.readouterr().err
