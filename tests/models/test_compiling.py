"""A compiled network answers plain questions, and no others."""

import contextlib
import copy

import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.models import torch_model
from heatcheck.testing import models as toys

MUTANTS = (
    (
        "models/torch_model.py",
        "if self.compiled is None or hooks_on(self._network):",
        "if self.compiled is None:",
        "test_plain_answers_are_compiled_and_what_has_hooks_is_not",
    ),
    (
        "models/torch_model.py",
        'return {**self.__dict__, "compiled": None}',
        "return dict(self.__dict__)",
        "test_copies_have_no_compiled_network",
    ),
)


class Compiled(nn.Module):
    """What stands for a compiled network: it counts calls, and answers a little otherwise."""

    def __init__(self, network, shift=0.0):
        super().__init__()
        self.network, self.shift, self.calls = network, shift, 0

    def forward(self, *args, **kwargs):
        self.calls += 1
        return self.network(*args, **kwargs) + self.shift


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(torch_model, "compiled", Compiled)
    monkeypatch.setattr(torch_model, "many_shapes", contextlib.nullcontext)
    model = toys.linear()
    model.compile()
    return model


def test_plain_answers_are_compiled_and_what_has_hooks_is_not(model):
    x = model.inputs(2)
    assert torch.equal(model.answer(x), model.logits(x)) and model.compiled.calls == 1
    handle = next(iter(model.module().modules())).register_forward_hook(lambda *_: None)
    model.answer(x)
    assert model.compiled.calls == 1
    handle.remove()
    model.answer(x)
    assert model.compiled.calls == 2


def test_copies_have_no_compiled_network(model):
    twins = [copy.copy(model), model.on(torch.device("meta")), model.randomised("", 0), model.computing_in("bf16")]
    assert all(twin is not model and twin.compiled is None for twin in twins)
    assert model.compiled is not None
    model.release()
    assert model.compiled is None


def test_a_function_has_nothing_to_compile():
    model = hc.load_model(lambda x: x.mean((2, 3)), name="f")
    with pytest.raises(hc.HeatcheckError, match="f is a function, which computes as it is written"):
        model.compile()
    x = model.domain.wrap(torch.rand(2, 3, 4, 4))
    assert torch.equal(model.answer(x), model.logits(x))


@pytest.mark.slow
def test_more_shapes_than_torch_bears_by_itself_are_compiled(monkeypatch):
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda network, *, options, **how: compile_(network, backend="eager", **how))
    model = hc.load_model(nn.Sequential(nn.Conv2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval())
    model.compile()
    for side in range(4, 16):
        x = model.domain.wrap(torch.rand(2, 3, side, side))
        with torch.inference_mode():
            assert torch.allclose(model.answer(x), model.logits(x), atol=1e-5)
    monkeypatch.setattr("heatcheck.models.compiling.SHAPES", 12)
    with torch.inference_mode(), pytest.raises(Exception, match="fullgraph"):
        model.answer(model.domain.wrap(torch.rand(2, 3, 20, 20)))
