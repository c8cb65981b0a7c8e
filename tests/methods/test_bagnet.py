"""BagNet heatmaps: every patch run by itself, and the network's own score as their mean."""

import pytest
import torch
import torch.nn.functional as F

import heatcheck as hc
from heatcheck.core.types import NotApplicable
from heatcheck.methods.bagnet import BagNetEvidence
from heatcheck.models.architectures.bagnet import BagNet
from heatcheck.probe.numerics import Numerics
from heatcheck.probe.probe import Probe
from heatcheck.testing.models import bagnet, fill_weights, gap_linear
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/bagnet.py",
        "found.permute(0, 3, 1, 4, 2)",
        "found.permute(0, 4, 1, 3, 2)",
        "test_every_patch_by_itself_gives_the_same",
    ),
    (
        "methods/bagnet.py",
        "top : top + tall, left : left + broad",
        "left : left + tall, top : top + broad",
        "test_every_patch_by_itself_gives_the_same",
    ),
    (
        "methods/bagnet.py",
        'mode="bilinear", align_corners=True',
        'mode="bilinear", align_corners=False',
        "test_the_fast_map_agrees_at_centres_and_is_linear_between",
    ),
    (
        "methods/bagnet.py",
        "target, self.output)",
        'target, "logit")',
        "test_each_patch_is_asked_for_the_output_explained",
    ),
)


WIDE = {9: (True, True, False, False), 17: (True, True, True, False), 33: (True, True, True, True)}


def network(side=9, seed=0):
    """A thin BagNet whose batch norm has statistics of its own."""
    net = fill_weights(BagNet(WIDE[side], 3, width=2, depths=(1, 2, 1, 1)), seed, torch.float64).eval()
    rng = torch.Generator().manual_seed(seed)
    for name, buffer in net.named_buffers():
        if "running" in name:
            buffer.copy_(torch.rand(buffer.shape, generator=rng) + 0.2)
    return net.requires_grad_(False)


def pictures(height, width, n=2, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, height, width, generator=rng, dtype=torch.float64)


def slow_heatmap(net, x, target):
    """The authors' way: pad with zeros, cut out the patch around every pixel, run each by itself."""
    half = net.patch // 2
    padded = F.pad(x, (half,) * 4)
    height, width = x.shape[1:]
    out = torch.empty(height, width, dtype=x.dtype)
    for i in range(height):
        patches = torch.stack([padded[:, i : i + net.patch, j : j + net.patch] for j in range(width)])
        out[i] = net(patches)[:, target]
    return out


@pytest.mark.parametrize(("side", "height", "width"), [(9, 24, 24), (9, 21, 30), (17, 25, 18), (33, 40, 33)])
def test_every_patch_by_itself_gives_the_same(side, height, width):
    net, x = network(side), pictures(height, width)
    got = hc.explain(net, x, method="bagnet", target=[0, 2]).values
    want = torch.stack([slow_heatmap(net, row, t) for row, t in zip(x, (0, 2), strict=True)])
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("side", "height", "width"), [(9, 24, 33), (33, 50, 41)])
@pytest.mark.parametrize("method", ["bagnet", "bagnet(fast=true)"])
def test_the_mean_at_the_grids_centres_is_the_logit(side, height, width, method):
    net, x = network(side), pictures(height, width)
    half = side // 2
    heat = hc.explain(net, x, method=method, target=1).values
    centres = heat[:, half : height - half : 8, half : width - half : 8]
    assert centres.shape[1:] == ((height - side) // 8 + 1, (width - side) // 8 + 1)
    torch.testing.assert_close(centres.mean((1, 2)), net(x)[:, 1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("height", "width"), [(24, 24), (27, 40)])
def test_the_fast_map_agrees_at_centres_and_is_linear_between(height, width):
    net, x = network(), pictures(height, width)
    exact, fast = (hc.explain(net, x, method=m, target=0).values for m in ("bagnet", "bagnet(fast=true)"))
    assert fast.shape == exact.shape == (2, height, width)
    torch.testing.assert_close(
        fast[:, 4 : height - 4 : 8, 4 : width - 4 : 8],
        exact[:, 4 : height - 4 : 8, 4 : width - 4 : 8],
        rtol=1e-9,
        atol=1e-9,
    )
    torch.testing.assert_close(fast[:, 8, 4], (fast[:, 4, 4] + fast[:, 12, 4]) / 2)
    torch.testing.assert_close(fast[:, 0, 0], fast[:, 4, 4])
    assert not torch.allclose(fast, exact)


def test_each_patch_is_asked_for_the_output_explained():
    net, x = network(), pictures(17, 17, n=1)
    prob = hc.explain(net, x, method="bagnet(output=prob)", target=2).values[0]
    patch = F.pad(x, (4,) * 4)[..., 5 : 5 + 9, 11 : 11 + 9]
    torch.testing.assert_close(prob[5, 11], net(patch).softmax(1)[0, 2])


@pytest.mark.parametrize(("fast", "forwards"), [(False, 64), (True, 1)])
def test_passes_are_few_and_have_no_gradient(fast, forwards):
    model = bagnet()
    batch = toy_batch(model, 3)
    probe = Probe(model, Numerics(forward=5, backward=5))
    BagNetEvidence(fast=fast)(probe, batch)
    assert (probe.spent.forwards, probe.spent.backwards, probe.spent.asked) == (3 * forwards, 0, 3 * forwards)


def test_other_networks_are_refused_with_the_reason():
    model = gap_linear()
    with pytest.raises(NotApplicable, match=r"needs a BagNet, and gap_linear is none.*bagnet33@WEIGHTS"):
        BagNetEvidence()(probe_for(model), toy_batch(model, 1))
