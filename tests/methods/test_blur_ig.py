"""Blur IG, step by step with scipy's Gaussian filter, and by its laws."""

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.methods.blur_ig import fading
from heatcheck.testing.models import linear, one_head_attention, weights_of
from heatcheck.testing.scenes import toy_batch

MUTANTS = (
    (
        "methods/blur_ig.py",
        "total * (width / step)",
        "total * (step / width)",
        "test_one_blur_at_a_time_gives_the_same",
    ),
    (
        "methods/blur_ig.py",
        "2 * taps.sum(1, keepdim=True) - 1",
        "2 * taps.sum(1, keepdim=True)",
        "test_the_blur_is_a_zero_padded_gaussian_filter",
    ),
    (
        "methods/blur_ig.py",
        "on(down_more) @ (pictures",
        "on(down) @ (pictures",
        "test_the_blur_is_a_zero_padded_gaussian_filter",
    ),
    (
        "methods/blur_ig.py",
        "picture.shape[-1] / 224",
        "picture.shape[-1] / 256",
        "test_one_blur_at_a_time_gives_the_same",
    ),
)


def gaussian(x, sigma, truncate=10.0):
    out = [ndimage.gaussian_filter(c.numpy(), sigma, mode="constant", truncate=truncate) for c in x] if sigma else x
    return torch.from_numpy(np.stack(out))


def slow(lab, net, x, target, steps, sigma_max, grad_step, truncate=10.0):
    """One blurred picture after the other, in pixels of the picture's own size."""
    total = torch.zeros_like(x)
    for k in range(steps):
        sigma = sigma_max * k / steps
        now, then = (gaussian(x, s, truncate) for s in (sigma, sigma + grad_step))
        total -= lab.slope(net, now, target) * (then - now) / grad_step * (sigma_max / steps)
    return total


@pytest.mark.parametrize(("steps", "sigma_max", "grad_step"), [(5, 50.0, 0.01), (8, 20.0, 0.5), (1, 50.0, 0.01)])
def test_one_blur_at_a_time_gives_the_same(lab, steps, sigma_max, grad_step):
    side = 16
    net, samples = lab.network(side=side), lab.batch(lab.pictures(2, side=side))
    rows = zip(samples.x["pixels"], samples.target, strict=True)
    want = [slow(lab, net, *row, steps, sigma_max * side / 224, grad_step * side / 224) for row in rows]
    spec = f"blur_ig(steps={steps}, sigma_max={sigma_max}, grad_step={grad_step})"
    torch.testing.assert_close(lab.raw(spec, net, samples), torch.stack(want), rtol=1e-8, atol=1e-9)


def test_cutting_the_gaussian_off_as_its_authors_do_changes_little(lab):
    side = 56
    net, samples = lab.network(side=side), lab.batch(lab.pictures(1, side=side))
    want = slow(lab, net, samples.x["pixels"][0], samples.target[0], 20, 12.5, 0.0025, truncate=4.0)
    got = lab.raw("blur_ig(steps=20)", net, samples)[0]
    assert 0 < float((got - want).abs().max()) < 0.01 * float(want.abs().max())


@pytest.mark.parametrize("shape", [(3, 9, 9), (1, 7, 12)])
def test_the_blur_is_a_zero_padded_gaussian_filter(shape):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(5, *shape, generator=rng, dtype=torch.float64)
    sigma = torch.tensor([0.0, 0.1, 0.7, 3.0, 40.0], dtype=torch.float64)
    want = torch.stack([gaussian(row, s) for row, s in zip(x, sigma.tolist(), strict=True)])
    now, lost = fading(x, sigma, 0.3)
    torch.testing.assert_close(now, want, rtol=1e-10, atol=1e-12)
    assert torch.equal(now[0], x[0])
    torch.testing.assert_close(lost, now - fading(x, sigma + 0.3, 1.0)[0], rtol=1e-9, atol=1e-12)


def test_single_precision_keeps_small_losses():
    """At 0.01 pixels of further blur, the difference of two blurred pictures has few digits."""
    x = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sigma = torch.tensor([30.0], dtype=torch.float64)
    (_, exact), (_, single) = fading(x, sigma, 0.01), fading(x.float(), sigma, 0.01)
    torch.testing.assert_close(single.double(), exact, rtol=0, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize("act", [nn.Tanh, nn.ReLU])
def test_what_is_missing_from_the_sum_shrinks_with_the_steps(lab, act):
    net, samples = lab.network(act=act), lab.batch(lab.pictures(3))
    x = samples.x["pixels"]
    with torch.no_grad():
        last, _ = fading(x, torch.full((3,), 50.0 * 8 / 224, dtype=torch.float64), 1.0)
        change = (net(x) - net(last)).gather(1, samples.target[:, None])[:, 0]

    def error(steps):
        got = lab.explain(f"blur_ig(steps={steps}, grad_step=0.0001)", net, samples, backward=200).values
        return float((got.flatten(1).sum(1) - change).abs().max())

    fine = error(1600)
    assert fine < 0.01 * float(change.abs().max())
    assert fine < 0.2 * error(200)


def test_on_a_linear_model_it_is_weight_times_what_blurring_takes_away(lab):
    toy = linear()
    samples = toy_batch(toy, 2)
    x = samples.x["pixels"]
    last, _ = fading(x, torch.full((2,), 50.0 * 8 / 224, dtype=torch.float64), 1.0)
    want = weights_of(toy.module(), samples.x, samples.target) * (x - last)
    got = lab.raw("blur_ig(steps=2000, grad_step=0.0001)", toy, samples, backward=200)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-3 * float(want.abs().max()))


def test_memory_does_not_grow_with_the_steps(lab):
    seen = []
    model = lab.wrap(lab.network())
    model.module().register_forward_hook(lambda _m, args, _o: seen.append(len(args[0])))
    lab.explain("blur_ig(steps=33)", model, lab.pictures(2), backward=4)
    assert set(seen) == {4} and len(seen) == 17


def test_words_cannot_be_blurred(lab):
    toy = one_head_attention()
    with pytest.raises(NotApplicable, match="words cannot be blurred; try integrated_gradients"):
        lab.explain("blur_ig", toy, toy_batch(toy, 1))


@pytest.mark.parametrize("given", ["sigma_max=0.0", "grad_step=-0.01", "sigma_max=-5.0"])
def test_mistakes_are_named(given):
    name, value = given.split("=")
    with pytest.raises(SpecError, match=f"blur_ig: {name}={value} must be positive"):
        catalogue.build("method", f"blur_ig({given})")
