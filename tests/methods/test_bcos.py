"""B-cos contribution maps, against the network written out as one linear map, and their laws."""

import copy

import pytest
import torch
from torch import nn

import heatcheck as hc
from heatcheck.core.types import NotApplicable
from heatcheck.methods.bcos import Bcos
from heatcheck.methods.gradients import Saliency
from heatcheck.models.architectures.bcos import BasicBlock, BcosConv2d, BcosDenseNet, BcosResNet, Bottleneck
from heatcheck.testing.models import bcos, fill_weights, gap_linear
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/bcos.py",
        "(encoded.pop() * weights.pop())",
        "weights.pop()",
        "test_a_map_sums_to_the_logit_less_the_bias",
    ),
    (
        "methods/bcos.py",
        "with explanation_mode(network), encoder.register_forward_hook(note):",
        "with encoder.register_forward_hook(note):",
        "test_a_map_sums_to_the_logit_less_the_bias",
    ),
    (
        "methods/bcos.py",
        "encoded.append(out.detach())",
        "encoded.append(1 - out.detach())",
        "test_the_network_written_as_one_linear_map_gives_the_same",
    ),
)


def scaled(network):
    """Batch norm statistics that keep the scores of a random network from vanishing."""
    for name, buffer in network.named_buffers():
        if name.endswith("running_var"):
            buffer.copy_(0.02 + 0.02 * torch.rand(buffer.shape, generator=torch.Generator().manual_seed(0)))
    return network


NETWORKS = {
    "resnet": lambda: BcosResNet(BasicBlock, (1, 1), 3, width=4),
    "resnext": lambda: BcosResNet(Bottleneck, (1, 1), 3, width=16, groups=4),
    "densenet": lambda: BcosDenseNet(4, (1, 2), 6, 3),
}


@pytest.fixture(params=sorted(NETWORKS))
def network(request):
    return scaled(fill_weights(NETWORKS[request.param](), 0, torch.float64)).eval().requires_grad_(False)


@pytest.fixture
def x():
    return torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def slow_contributions(network, x, target):
    """Note the factor of every B-cos layer at `x`; with these the network is linear: feed it one value at a time."""
    factors = {}

    def note(layer, args, out):
        factors[layer] = (out / layer.linear(args[0]))[:1]

    layers = [m for m in network.modules() if isinstance(m, BcosConv2d)]
    handles = [m.register_forward_hook(note) for m in layers]
    network(x[None])
    for handle in handles:
        handle.remove()
    handles = [m.register_forward_hook(lambda m, args, _out: m.linear(args[0]) * factors[m]) for m in layers]
    encoded = torch.cat([x, 1 - x])
    alone = torch.diag(encoded.flatten()).reshape(-1, *encoded.shape)
    worth = network.class_maps(alone).mean((2, 3))[:, target]
    for handle in handles:
        handle.remove()
    return worth.reshape(encoded.shape).sum(0)


def test_the_network_written_as_one_linear_map_gives_the_same(network, x):
    got = hc.explain(network, x, method="bcos", target=[0, 1, 2]).values
    want = torch.stack([slow_contributions(network, row, t) for t, row in enumerate(x)])
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


def test_a_map_sums_to_the_logit_less_the_bias(network, x):
    totals = hc.explain(network, x, method="bcos", target=2).values.sum((1, 2))
    worth = network(x)[:, 2] - network.logit_bias
    assert worth.abs().max() > 1e-2
    torch.testing.assert_close(totals, worth, rtol=1e-10, atol=1e-12)


def test_it_is_not_input_x_gradient_though_the_sums_agree(network, x):
    encoded = network.encode(x).requires_grad_()
    (slope,) = torch.autograd.grad(network.class_maps(encoded).mean((2, 3))[:, 0].sum(), encoded)
    plain = (encoded.detach() * slope).sum(1)
    got = hc.explain(network, x, method="bcos", target=0).values
    torch.testing.assert_close(got.sum((1, 2)), plain.sum((1, 2)), rtol=1e-2, atol=1e-4)
    assert (got - plain).abs().max() > 0.1 * plain.abs().max()


def test_channels_are_kept_until_reduced(lab, network, x):
    values = lab.raw("bcos", network, x)
    assert values.shape == (3, 6, 16, 16)
    squares = lab.explain("bcos(reduction=l2)", network, x).values
    torch.testing.assert_close(squares, values.square().sum(1).sqrt())


def test_nothing_of_explanation_mode_is_left_for_others():
    model = bcos()
    batch = toy_batch(model, 3)
    alone = hc.explain(model, batch.x["pixels"], method="saliency", target=batch.target).values
    probe = probe_for(model, forward=2, backward=2)
    first = Bcos()(probe, batch).values
    torch.testing.assert_close(Saliency()(probe, batch).values, alone)
    assert torch.equal(Bcos()(probe, batch).values, first)
    assert not any(len(m._forward_hooks) for m in model.module().modules())


def test_other_outputs_are_explained_too(network, x):
    logit = hc.explain(network, x, method="bcos", target=0).values
    prob = hc.explain(network, x, method="bcos(output=prob)", target=0).values
    assert prob.shape == logit.shape and not torch.allclose(prob, logit)


def test_other_networks_are_refused_with_the_reason(network, x):
    with pytest.raises(
        NotApplicable, match=r"needs a B-cos network, and gap_linear has no part.*bcos_resnet50@WEIGHTS"
    ):
        Bcos()(probe_for(gap_linear()), toy_batch(gap_linear(), 1))
    six = copy.deepcopy(network)
    six.encode = nn.Identity()
    with pytest.raises(NotApplicable, match=r"adds them in 0 places.*architectures\.bcos\.Encoded"):
        hc.explain(six, torch.cat([x, 1 - x], 1), method="bcos")
