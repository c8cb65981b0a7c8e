"""Allocator, layout, threads and micro-batch are decided in one place, for runs and for plain tensors."""

import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.models.vision import VisionModel
from heatcheck.probe import tuning
from heatcheck.probe.tuning import for_tensors, settle, tune_allocator

MUTANTS = (
    (
        "probe/tuning.py",
        "_convolution_weights(model.module()) < CONVOLUTIONAL",
        "_convolution_weights(model.module()) < 0",
        "test_small_networks_keep_their_layout",
    ),
    (
        "probe/tuning.py",
        "if not math.isfinite(scale) or not torch.allclose(plain, other, rtol=0, atol=AGREES * scale):",
        "if False:",
        "test_a_network_that_cannot_run_in_the_other_layout_keeps_its_own",
    ),
)


class Convolutions(nn.Module):
    """Wide enough for its layout to matter; `read` turns feature maps into features."""

    def __init__(self, read=lambda z: z.mean((2, 3)), width=340):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3))
        self.read = read
        self.head = nn.LazyLinear(5)

    def forward(self, x):
        return self.head(self.read(self.conv(x)))


def made(**options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Convolutions(**options)
        network(torch.rand(1, 3, 12, 12))
    return network


@pytest.fixture
def x():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return torch.rand(1, 3, 12, 12)


def settled(network, x):
    model = hc.load_model(network)
    assert model.channels_last is None, "not decided before the model is asked"
    settle(model, model.domain.wrap(x))
    return model


def test_a_network_that_answers_nan_keeps_its_layout(x):
    network = made()
    nn.init.constant_(network.head.bias, torch.nan)
    assert settled(network, x).channels_last is False


def test_large_convolutional_networks_get_channels_last_in_runs_and_plain_verbs(x, tmp_path):
    network = made()
    model = settled(network, x)
    assert model.channels_last and model.module().conv[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert network.conv[2].weight.is_contiguous(), "the user's own module is not touched"
    result = hc.Benchmark(models={"net": network}, data=x, methods=["saliency"], metrics=["sds"]).run(
        tmp_path / "r", progress="none", batch=4
    )
    assert result.facts["numerics"]["net"]["channels_last"] is True
    fresh = hc.load_model(network)
    hc.explain(fresh, x, method="saliency")
    assert fresh.channels_last


def test_small_networks_keep_their_layout(x):
    assert settled(made(width=8), x).channels_last is False


def as_stored(z):
    """Depends on the layout in memory, as `as_strided` in a user's network does."""
    return torch.as_strided(z, (len(z), 64), (z.stride(0), 1))


@pytest.mark.parametrize("read", [lambda z: z.view(len(z), -1), as_stored])
def test_a_network_that_cannot_run_in_the_other_layout_keeps_its_own(read, x):
    model = settled(made(read=read), x)
    assert model.channels_last is False and model.module().conv[2].weight.is_contiguous()


def test_a_layout_that_is_decided_is_not_changed(x):
    model = VisionModel(made(), "net", channels_last=False)
    settle(model, model.domain.wrap(x))
    assert model.channels_last is False


def test_plain_tensors_are_asked_in_calls_that_hold_them(x):
    model = hc.load_model(made(width=8))
    sizes = [(n.forward, n.backward) for n in (for_tensors(model, many) for many in (1, 6, 100))]
    assert sizes == [(4, 1), (6, 6), (16, 8)]
    assert for_tensors(model, 1).threads == torch.get_num_threads() and for_tensors(model, 1).device == "cpu"


def test_the_plain_verbs_tune_the_allocator_unless_they_are_told_not_to(x, monkeypatch):
    calls = []
    monkeypatch.setattr("heatcheck.api.explain.tune_allocator", lambda: calls.append(1))
    hc.explain(made(width=8), x, method="saliency")
    assert calls
    for cached in (tuning._glibc, tune_allocator):
        cached.cache_clear()
    monkeypatch.setenv(tuning.ALLOCATOR, "system")
    try:
        assert tune_allocator() is False
        tuning.give_back(0)
    finally:
        for cached in (tuning._glibc, tune_allocator):
            cached.cache_clear()
