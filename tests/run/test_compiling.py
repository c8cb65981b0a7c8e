"""Compiled forward passes: where they pay, what they are used for, and what a run says about them."""

import contextlib
import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

from heatcheck.api.result import Result
from heatcheck.core.progress import Silent
from heatcheck.core.types import Batch, Inputs, Streams
from heatcheck.models import torch_model
from heatcheck.models.black_box import CallableModel
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe
from heatcheck.probe.rules import Rules
from heatcheck.run import compiling
from heatcheck.run.compiling import Foreseen, Timing, decide, foresee
from heatcheck.run.execution import execute
from heatcheck.run.plan import plan
from heatcheck.run.resources import Resources
from heatcheck.run.runtime import Runtime
from heatcheck.run.setup import prepare
from heatcheck.run.store import Store

MUTANTS = (
    (
        "run/compiling.py",
        "return saves(timing, forwards) > shapes * timing.compiling",
        "return saves(timing, forwards) > timing.compiling",
        "test_compiled_is_what_pays",
    ),
    (
        "probe/calls.py",
        "self.model.answer if self.numerics.compiled else None",
        "self.model.answer",
        "test_plain_forwards_alone_go_through_the_compiled_network",
    ),
    (
        "run/setup.py",
        'known.get("compiled", False)',
        "False",
        "test_a_run_goes_on_as_it_was_begun",
    ),
    (
        "run/compiling.py",
        "if not torch.allclose(reference, answer, rtol=0, atol=bound):",
        "if False:",
        "test_what_cannot_be_compiled_is_computed_as_it_is_and_said",
    ),
)
METHODS, METRICS = ["saliency", "occlusion", "random"], ["sds", "morf(steps=4)"]
FIXED = Runtime(batch=4, progress="none")


class Compiled(nn.Module):
    """What stands for a compiled network: it counts calls, and answers a little otherwise."""

    def __init__(self, network, shift=1e-6):
        super().__init__()
        self.network, self.shift, self.calls = network, shift, 0

    def forward(self, *args, **kwargs):
        self.calls += 1
        return self.network(*args, **kwargs) + self.shift


class Kept(Silent):
    """A progress that keeps notes."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def fake(monkeypatch):
    """Networks are compiled as `Compiled`, and nothing is too little to try it."""
    monkeypatch.setattr(torch_model, "compiled", Compiled)
    monkeypatch.setattr(torch_model, "many_shapes", contextlib.nullcontext)
    monkeypatch.setattr(compiling, "LEAST", 0.0)


@pytest.fixture
def paying(fake, monkeypatch):
    """As if compiling cost nothing."""
    monkeypatch.setattr(compiling, "pays", lambda *_: True)


def numerics_of(folder):
    return next(iter(Store.open(folder).numerics().values()))


def test_plain_forwards_alone_go_through_the_compiled_network(fake, make_model):
    model = make_model()
    model.compile()
    x = Inputs({"pixels": torch.rand(2, 3, 16, 16)})
    batch = Batch(x, torch.tensor([0, 1]), torch.tensor([0, 1]), Streams(0, ("a", "b")))
    rows = torch.arange(2)

    def ask(numerics):
        probe = Probe(model, numerics)
        plain = {
            "logits": lambda: probe.logits(x),
            "answers": lambda: list(probe.answers(batch, rows, x.take)),
            "deletions": lambda: probe.singles(batch, "zero", probe.units("grid(2)", batch)),
            "named": lambda: probe.named_answers(batch, rows, ["p", "q"], x.take),
            "function": lambda: probe.call_function(lambda f, a, t, r: f(a).detach(), batch),
        }
        inside = {
            "gradient": lambda: probe.gradient(batch, "logit"),
            "activations": lambda: probe.activations(batch, "auto", "logit"),
            "maps": lambda: probe.feature_maps(batch, "auto"),
            "edited": lambda: list(probe.edited(batch, "auto", 3, lambda maps, i: maps.zero_())),
            "rules": lambda: list(probe.run_with_rules(batch, rows, x.take, Rules, lambda seen: seen.slope(), "logit")),
            "read": lambda: list(probe.read_network(rows, x.take, lambda part, i: model.logits(part))),
            "randomised": lambda: probe.randomised("", 0).logits(x),
            "function with a graph": lambda: probe.call_function(
                lambda f, a, t, r: torch.autograd.grad(f(a.requires_grad_()).sum(), a)[0], batch
            ),
        }
        found = {}
        for name, run in {**plain, **inside}.items():
            before = model.compiled.calls
            run()
            found[name] = model.compiled.calls > before
        return {name for name in plain if found[name]}, {name for name in inside if found[name]}, set(plain)

    compiled, wrongly, plain = ask(Numerics(forward=4, backward=4, compiled=True))
    assert (compiled, wrongly) == (plain, set())
    assert ask(Numerics(forward=4, backward=4))[:2] == (set(), set()), "the numerics decide, not what a model holds"


def test_compiled_is_what_pays(fake, make_setup, monkeypatch):
    (part,) = prepare(make_setup(METHODS, METRICS, n=4), FIXED, None)
    timing = Timing(plain=0.024, compiled=0.018, compiling=40.0)
    monkeypatch.setattr(compiling, "tried", lambda *_: timing)

    def decided(forwards, shapes=1, processes=1):
        found = decide("net", part.grid, part.tried, Foreseen(forwards, shapes), lambda seconds: processes)
        return found.numerics.compiled, found.note, found.seconds

    told = "net: compiled passes take 18 ms instead of 24 ms, compiling 40 s in each process"
    assert decided(20_000) == (True, f"{told}: saves about 80 s there", 40.0)
    assert decided(20_000, processes=4) == (False, f"{told}: does not pay, it would save 30 s", 0.0)
    compiled, note, _ = decided(20_000, shapes=4)
    assert not compiled and "compiling 3 min in each process for 4 shapes of input: does not pay" in note
    timing = timing._replace(compiled=0.03)
    assert decided(10**9)[1].endswith("does not pay, it would save 0 s")
    monkeypatch.setattr(compiling, "LEAST", 1e9)
    monkeypatch.setattr(compiling, "tried", lambda *_: pytest.fail("too little work to try"))
    assert "net: compiling does not pay: its forward passes take" in decided(10)[1]


def test_forward_passes_without_a_graph_are_foreseen(make_setup, tmp_path):
    setup = make_setup(METHODS, METRICS, n=5)
    (part,) = prepare(setup, FIXED, None)
    passes = execute(setup, tmp_path / "r", FIXED).read("run.json")["passes"]
    found = foresee(part.grid, list(setup.data))
    assert found == Foreseen(passes["forwards"] - passes["backwards"], 1)
    assert foresee(part.grid, list(setup.data), blank=True) == found


def test_a_run_goes_on_as_it_was_begun(paying, make_setup, tmp_path):
    shown = Kept()
    setup = make_setup(METHODS, METRICS, n=2)
    execute(setup, tmp_path / "r", Runtime.of(FIXED, compile=True, progress=shown))
    assert numerics_of(tmp_path / "r")["compiled"] is True and setup.models["toy"].compiled.calls > 10
    assert "in each process: saves about" in "".join(shown.notes)
    again = make_setup(METHODS, METRICS, n=4)
    shown = Kept()
    execute(again, tmp_path / "r", Runtime.of(FIXED, progress=shown))
    assert again.models["toy"].compiled.calls > 10
    assert "toy: the run was begun with compiled passes and goes on so" in shown.notes
    idle = make_setup(METHODS, METRICS, n=4)
    execute(idle, tmp_path / "r", Runtime.of(FIXED, progress="none"))
    assert idle.models["toy"].compiled is None, "nothing is left to compute"


def test_a_run_begun_without_stays_so_and_its_numerics_are_as_ever(paying, make_setup, tmp_path):
    execute(make_setup(METHODS, METRICS, n=2), tmp_path / "r", FIXED)
    assert "compiled" not in numerics_of(tmp_path / "r"), "as folders from before have it"
    shown = Kept()
    setup = make_setup(METHODS, METRICS, n=3)
    execute(setup, tmp_path / "r", Runtime.of(FIXED, compile=True, progress=shown))
    assert setup.models["toy"].compiled is None
    assert [n for n in shown.notes if "toy: the run was begun without compiled passes and goes on so" in n]


def test_what_cannot_be_compiled_is_computed_as_it_is_and_said(paying, make_setup, monkeypatch, tmp_path):
    def told(setup):
        (part,) = prepare(setup, Runtime.of(FIXED, compile=True), None)
        assert not part.grid.numerics.compiled
        return "".join(part.notes)

    def broken(network):
        raise RuntimeError("no C++ compiler\nand many more lines")

    setup = make_setup(METHODS, METRICS, n=2)
    monkeypatch.setattr(torch_model, "compiled", lambda network: Compiled(network, shift=1.0))
    assert "toy is not compiled: its compiled answers are 1 away from its own" in told(setup)
    monkeypatch.setattr(torch_model, "compiled", broken)
    assert told(setup) == "toy is not compiled: RuntimeError: no C++ compiler"
    toy = setup.models["toy"]
    box = CallableModel(lambda x: x.mean((2, 3)), "box", toy.domain, encoder=toy.encode)
    assert "box is a function" in told(make_setup(["occlusion"], ["sds"], n=2, models={"box": box}))


def test_a_compiled_run_goes_on_where_nothing_can_be_compiled(paying, make_setup, monkeypatch, tmp_path):
    execute(make_setup(METHODS, METRICS, n=2), tmp_path / "r", Runtime.of(FIXED, compile=True))
    monkeypatch.setattr(torch_model, "compiled", lambda network: Compiled(network, shift=1.0))
    shown = Kept()
    setup = make_setup(METHODS, METRICS, n=3)
    execute(setup, tmp_path / "r", Runtime.of(FIXED, compile=True, progress=shown))
    assert any("begun with compiled passes and goes on without: its compiled answers" in n for n in shown.notes)
    assert Store.open(tmp_path / "r").read("run.json")["finished"] is True


def test_a_plan_says_whether_it_pays(paying, make_setup, monkeypatch):
    setup = make_setup(METHODS, METRICS, n=2)
    monkeypatch.setattr(compiling, "tried", lambda *_: Timing(0.5, 0.25, 1000.0))
    found = plan(setup, Runtime.of(FIXED, compile=True), None)
    assert any("compiled passes take 250 ms instead of 500 ms" in n for n in found.record()["notes"])
    assert found.seconds > 1000, "the time of compiling is part of it"
    plain = plan(setup, Runtime.of(FIXED, compile=True), None, calibrate=False)
    assert not plain.notes and plain.seconds is None


def test_workers_compile_what_the_numerics_say(fake, make_setup, tmp_path):
    setup = make_setup(METHODS, METRICS, n=2)
    (part,) = prepare(setup, FIXED, None)
    model = part.grid.model
    for compiled in (False, True):
        part.grid = replace(part.grid, numerics=replace(part.grid.numerics, compiled=compiled))
        work = part.work(list(setup.data), Store.open(tmp_path / "r", create=True), setup.sources)
        resources = Resources()
        resources.hold(type(work).from_json(work.to_json()), model)
        assert (resources.models["toy"].compiled is not None) == compiled


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="torch compiles for CPUs with a C++ compiler, and there is none")
def test_a_network_really_compiled_answers_alike_and_can_still_be_looked_into(make_setup, monkeypatch, tmp_path):
    monkeypatch.setattr(compiling, "LEAST", 0.0)
    monkeypatch.setattr(compiling, "pays", lambda *_: True)
    methods = [*METHODS, "grad_cam", "ablation_cam", "deep_lift"]
    setup = make_setup(methods, METRICS, n=4)
    shown = Kept()
    compiled = execute(setup, tmp_path / "c", Runtime.of(FIXED, compile=True, progress=shown))
    assert numerics_of(tmp_path / "c")["compiled"] is True, shown.notes
    plain = execute(make_setup(methods, METRICS, n=4), tmp_path / "p", FIXED)
    a, b = (Result(store).scores().sort("sample", "method", "metric") for store in (compiled, plain))
    assert (a["status"] == b["status"]).all() and (a["score"] - b["score"]).abs().max() < 1e-4
    model = setup.models["toy"]
    x = Inputs({"pixels": torch.rand(4, 3, 16, 16)})
    answers = [Probe(model, Numerics(forward=4, compiled=flag)).logits(x) for flag in (True, False)]
    assert torch.allclose(*answers, atol=1e-4)
