"""KernelSHAP, against Shapley's formula, a constrained regression written out, and by its laws."""

import itertools
import math

import numpy as np
import pytest
import torch
from captum.attr import KernelShap as Captum
from captum.attr import ShapleyValues
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.methods.kernel_shap import coalitions, constrained
from heatcheck.testing.models import additive, additive_text
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/kernel_shap.py",
        "(units - 1) / (size * (units - size))",
        "(units - 1) / size",
        "test_all_sets_are_weighed_by_the_kernel",
    ),
    (
        "methods/kernel_shap.py",
        "place < drawn[:, None]",
        "place <= drawn[:, None]",
        "test_sets_are_drawn_as_the_kernel_weighs_them",
    ),
    ("methods/kernel_shap.py", "root * (z - share)", "root * z", "test_the_regression_written_out_gives_the_same"),
    (
        "methods/kernel_shap.py",
        "gain[:, None] - share * total",
        "gain[:, None]",
        "test_too_few_draws_leave_the_rest_even",
    ),
)


def shapley(value, n):
    """Shapley's formula for a game given by `value(set)`."""
    out = torch.zeros(n, dtype=torch.float64)
    for m in range(n):
        for size in range(n):
            share = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            for there in itertools.combinations([k for k in range(n) if k != m], size):
                out[m] += share * (value({*there, m}) - value(set(there)))
    return out


def regression(z, gain, weight, total):
    """Weighted least squares under Σφ = total, by the bordered normal equations."""
    z, gain, weight = z.double().numpy(), gain.numpy(), weight.numpy()
    n = z.shape[1]
    bordered = np.zeros((n + 1, n + 1))
    bordered[:n, :n] = 2 * z.T @ (weight[:, None] * z)
    bordered[:n, n] = bordered[n, :n] = 1
    right = np.append(2 * z.T @ (weight * gain), total)
    return torch.from_numpy(np.linalg.solve(bordered, right)[:n])


def logit_without(net, x, target, kept, side):
    keep = kept.reshape(side, side).repeat_interleave(8 // side, 0).repeat_interleave(8 // side, 1)
    with torch.no_grad():
        return net((x * keep)[None])[0, target]


@pytest.mark.parametrize("samples", [14, 1000])
def test_all_sets_give_shapleys_own_values(lab, samples):
    net, batch = lab.network(), lab.batch(lab.pictures(2))
    want = []
    for x, t in zip(batch.x["pixels"], batch.target, strict=True):

        def value(there, x=x, t=t):
            return logit_without(net, x, t, torch.tensor([m in there for m in range(4)]), 2)

        want.append(shapley(value, 4).reshape(2, 2) / 16)
    got = lab.explain(f"kernel_shap(units=grid(2), samples={samples})", net, batch).values
    torch.testing.assert_close(got[:, ::4, ::4], torch.stack(want), rtol=1e-9, atol=1e-10)
    cells = torch.arange(4).reshape(1, 1, 2, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
    theirs = ShapleyValues(net).attribute(batch.x["pixels"], target=batch.target, feature_mask=cells)
    torch.testing.assert_close(16 * got, theirs[:, 0].detach().double(), rtol=1e-5, atol=1e-6)


def test_the_regression_written_out_gives_the_same(lab):
    net, batch = lab.network(), lab.batch(lab.pictures(2))
    want = []
    for i, (x, t) in enumerate(zip(batch.x["pixels"], batch.target, strict=True)):
        z, weight = coalitions(16, 61, batch.streams.generator(i, "kernel-shap-sets"))
        assert len(z) == 61
        nothing, whole = (logit_without(net, x, t, torch.full((16,), b), 4) for b in (False, True))
        gain = torch.stack([logit_without(net, x, t, row, 4) for row in z]) - nothing
        want.append(regression(z, gain, weight, float(whole - nothing)).reshape(4, 4) / 4)
    got = lab.explain("kernel_shap(samples=61)", net, batch).values
    torch.testing.assert_close(got[:, ::2, ::2], torch.stack(want), rtol=1e-8, atol=1e-9)


def test_sampled_values_approach_shapleys(lab):
    net, x = lab.network(), lab.pictures(1)
    exact = lab.explain("kernel_shap(units=grid(3), samples=510)", net, x).values
    errors = [
        float((lab.explain(f"kernel_shap(units=grid(3), samples={n})", net, x).values - exact).abs().max())
        for n in (40, 508)
    ]
    assert errors[1] < errors[0] and errors[1] < 0.1 * float(exact.abs().max())


def test_captum_approaches_the_same(lab):
    net, batch = lab.network(), lab.batch(lab.pictures(1))
    cells = torch.arange(4).reshape(1, 1, 2, 2).repeat_interleave(4, 2).repeat_interleave(4, 3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = Captum(net.float()).attribute(
            batch.x["pixels"].float(), target=batch.target, feature_mask=cells, n_samples=400
        )
    got = 16 * lab.explain("kernel_shap(units=grid(2))", lab.network(), batch).values
    assert (got - theirs[:, 0].double()).abs().max() < 0.1 * got.abs().max()


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 40))
def test_values_sum_to_the_drop_whatever_is_drawn(lab, seed, samples):
    net, batch = lab.network(seed), lab.batch(lab.pictures(2, seed))
    got = lab.explain(f"kernel_shap(samples={samples}, fill=channel_mean)", net, batch).values
    probe = probe_for(lab.wrap(net))
    drop = probe.clean(batch).read("logit") - probe.deleted(batch, "channel_mean").read("logit")
    torch.testing.assert_close(got.sum((1, 2)), drop, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("make", [additive, additive_text])
def test_where_units_add_up_it_is_the_truth(lab, make):
    toy = make()
    samples = toy_batch(toy, 4)
    got = lab.explain("kernel_shap(samples=120)", toy, samples).values
    torch.testing.assert_close(got, toy.contributions(samples.x, samples.target), rtol=1e-8, atol=1e-9)


def test_too_few_draws_leave_the_rest_even():
    z = torch.tensor([[1.0, 1.0, 0.0, 0.0]]).double()
    got = constrained(z, torch.tensor([3.0]).double(), torch.ones(1).double(), torch.tensor(4.0).double())
    torch.testing.assert_close(got, torch.tensor([1.5, 1.5, 0.5, 0.5]).double())


def test_sets_are_drawn_as_the_kernel_weighs_them():
    z, weight = coalitions(14, 8001, torch.Generator().manual_seed(0))
    assert z.shape == (8001, 14) and (weight == 1).all()
    assert torch.equal(z[4001:], ~z[:4000])
    share = torch.tensor([13 / (k * (14 - k)) for k in range(1, 14)])
    seen = z.sum(1).bincount(minlength=14)[1:] / 8001
    torch.testing.assert_close(seen, share / share.sum(), rtol=0, atol=0.02)
    inside = torch.stack([row for row in z if row.sum() == 2]).double().mean(0)
    assert (inside - 2 / 14).abs().max() < 0.05


def test_all_sets_are_weighed_by_the_kernel():
    z, weight = coalitions(4, 14, torch.Generator())
    assert {tuple(r) for r in z.tolist()} == set(itertools.product([True, False], repeat=4)) - {
        (True,) * 4,
        (False,) * 4,
    }
    want = [3 / (math.comb(4, k) * k * (4 - k)) for k in z.sum(1).tolist()]
    torch.testing.assert_close(weight, torch.tensor(want, dtype=torch.float64))
    assert len(coalitions(1, 5, torch.Generator())[0]) == len(coalitions(0, 5, torch.Generator())[0]) == 0
    assert coalitions(4, 13, torch.Generator().manual_seed(0))[0].shape == (13, 4)


def test_no_samples_are_refused():
    with pytest.raises(SpecError, match="samples=0"):
        catalogue.build("method", "kernel_shap(samples=0)")
