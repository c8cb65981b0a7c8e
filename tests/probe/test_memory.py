"""What a process holds at most: a bare pass at the run's micro-batches, the maps in flight, and little beside."""

import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.types import Batch, HeatcheckError, Streams
from heatcheck.models.torch_model import TorchModel
from heatcheck.probe import memory
from heatcheck.probe.memory import needed, resident_bytes
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe
from heatcheck.run.plan import passes

MUTANTS = (
    (
        "probe/calls.py",
        "(usual // share) // BLOCK * BLOCK or 1",
        "usual",
        "test_no_method_needs_much_more_than_bare_passes",
    ),
    ("models/torch_model.py", "self._network = Released(", "Released(", "test_a_model_lets_go_of_its_weights"),
)
MB = 1 << 20


@pytest.fixture(scope="module")
def model():
    """Sixteen megabytes of graph for one input, little else."""
    layers = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for width in (3, 16, 16, 16):
            layers += [nn.Conv2d(width, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
        return hc.load_model(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)).eval())


@pytest.fixture(scope="module")
def batch(model):
    rng = torch.Generator().manual_seed(1)
    x = model.domain.wrap(torch.rand(8, 3, 128, 128, generator=rng))
    return Batch(x, torch.zeros(8, dtype=torch.long), torch.full((8,), -1), Streams(0, tuple("abcdefgh")))


@pytest.mark.skipif(not memory._RESET.exists(), reason="the system does not count the most memory anew")
@pytest.mark.parametrize(
    "method", ["saliency", "integrated_gradients(steps=8)", "deep_lift", "lrp", "full_grad", "grad_cam"]
)
def test_no_method_needs_much_more_than_bare_passes(model, batch, method):
    numerics = Numerics(forward=8, backward=8)
    component = catalogue.build("method", method).resolved_on(model.domain, number=False)
    one = batch.x.take(slice(0, 1))
    passes(Probe(model, numerics), one)  # what a first pass loads is not counted
    bare = needed(lambda: passes(Probe(model, numerics), one), model.device)["cpu"]
    assert bare > 60 * MB
    component(Probe(model, numerics), batch)
    most = needed(lambda: component(Probe(model, numerics), batch), model.device)["cpu"]
    assert most <= 1.25 * bare + 48 * MB


def test_a_model_lets_go_of_its_weights():
    with torch.random.fork_rng():
        model = hc.load_model(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5).double()))
    assert isinstance(model, TorchModel)
    known = model.identity, model.dtype, model.device
    assert not model.released
    model.release()
    assert model.released and (model.identity, model.dtype, model.device) == known
    assert sum(p.numel() for p in model.module().parameters()) == 0
    with pytest.raises(HeatcheckError, match="load it again"):
        model.logits(model.domain.wrap(torch.rand(1, 3, 8, 8)))


def test_a_process_holds_something():
    assert 10 * MB < resident_bytes() <= memory.peak_bytes()
