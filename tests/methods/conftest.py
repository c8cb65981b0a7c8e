"""Small networks, batches around plain tensors, and a way to ask for a method's values by its spec."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from heatcheck import catalogue
from heatcheck.domain.image import ImageDomain
from heatcheck.models.base import TorchExplained
from heatcheck.testing.models import fill_weights
from heatcheck.testing.scenes import probe_for
from heatcheck.types import Batch, Inputs, Streams, digest_of_tensor


def network(seed=0, *, act=nn.Tanh, classes=3, side=8, dtype=torch.float64):
    """Convolution, activation, a smaller convolution, linear: small and thoroughly non-linear."""
    layers = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), act(), nn.Conv2d(4, 5, 3, stride=2, padding=1), act(),
        nn.Flatten(), nn.Linear(5 * (side // 2) ** 2, classes),
    )  # fmt: skip
    return fill_weights(layers, seed, dtype)


def pictures(n=3, seed=0, side=8, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, side, side, generator=rng, dtype=torch.float64).to(dtype)


def batch(x, target=None, seed=0):
    target = torch.arange(len(x)) % 2 if target is None else torch.as_tensor(target)
    digests = tuple(digest_of_tensor(row) for row in x)
    return Batch(Inputs({"pixels": x}), target, target.clone(), Streams(seed, digests))


def wrap(net):
    return TorchExplained(net, "net", ImageDomain())


def explain(spec, model, samples, *, forward=4, backward=4):
    """The attribution that a method gives; plain networks and tensors are wrapped."""
    model = wrap(model) if isinstance(model, nn.Module) else model
    samples = batch(samples) if isinstance(samples, torch.Tensor) else samples
    return catalogue.build("method", spec)(probe_for(model, forward=forward, backward=backward), samples)


def raw(spec, model, samples):
    """Values before reduction and post-processing, as `attribute` gives them."""
    model = wrap(model) if isinstance(model, nn.Module) else model
    samples = batch(samples) if isinstance(samples, torch.Tensor) else samples
    return catalogue.build("method", spec).resolve(model.domain).attribute(probe_for(model), samples)


def slope(net, x, target):
    """The gradient of one logit at one picture, the plain way."""
    x = x.detach().clone().requires_grad_()
    net(x[None])[0, target].backward(inputs=[x])
    return x.grad


@pytest.fixture(scope="session")
def lab():
    """Everything above, where tests can reach it."""
    return SimpleNamespace(
        network=network, pictures=pictures, batch=batch, wrap=wrap, explain=explain, raw=raw, slope=slope
    )
