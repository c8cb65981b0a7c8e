"""RISE, mask by mask and pixel by pixel, and by its laws."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.domain.image import ImageDomain
from heatcheck.methods.rise import SmoothMasks
from heatcheck.testing.models import constant
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/rise.py",
        "self.samples * self.keep",
        "self.samples",
        "test_a_model_that_does_not_look_gives_the_mean_mask",
    ),
    (
        "methods/rise.py",
        'mode="bilinear", align_corners=False',
        'mode="bilinear", align_corners=True',
        "test_masks_match_skimage_away_from_the_border",
    ),
    (
        "methods/rise.py",
        "dtype=torch.float64) < keep",
        "dtype=torch.float64) > keep",
        "test_masks_are_draws_of_the_papers_kind",
    ),
    (
        "methods/rise.py",
        "y[:, :, None], x[:, None, :]",
        "x[:, :, None], y[:, None, :]",
        "test_the_formula_gives_the_same",
    ),
)


def slow_mask(cells, shift, h, w):
    """Enlarge to (s + 1)·⌈H/s⌉ by bilinear interpolation between cell centres, then crop; one pixel at a time."""
    s = len(cells)
    large = ((s + 1) * math.ceil(h / s), (s + 1) * math.ceil(w / s))
    out = np.zeros((h, w))
    for y in range(h):
        for x in range(w):
            value = 0.0
            at = [(p + d + 0.5) * s / n - 0.5 for p, d, n in zip((y, x), shift, large, strict=True)]
            for cy in range(s):
                for cx in range(s):
                    near = [max(0.0, 1 - abs(min(max(a, 0), s - 1) - c)) for a, c in zip(at, (cy, cx), strict=True)]
                    value += near[0] * near[1] * float(cells[cy, cx])
            out[y, x] = value
    return torch.from_numpy(out)


def slow_rise(net, x, target, masks, keep, fill):
    """The paper's equation 6."""
    total = torch.zeros(x.shape[1:], dtype=x.dtype)
    with torch.no_grad():
        for mask in masks:
            total += net((x * mask + fill * (1 - mask))[None]).softmax(1)[0, target] * mask
    return total / (len(masks) * keep)


@pytest.mark.parametrize(("grid", "keep"), [(3, 0.5), (2, 0.3)])
def test_the_formula_gives_the_same(lab, grid, keep):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    drawn = SmoothMasks.draw(samples.streams, 9, grid, keep, (8, 8))
    want = []
    for i, (x, t) in enumerate(zip(samples.x["pixels"], samples.target, strict=True)):
        masks = [slow_mask(drawn.cells[i, n], drawn.shift[i, n].tolist(), 8, 8) for n in range(9)]
        want.append(slow_rise(net, x, t, masks, keep, x.mean((1, 2), keepdim=True)))
    got = lab.explain(f"rise(samples=9, grid={grid}, keep={keep}, fill=channel_mean)", net, samples)
    torch.testing.assert_close(got.values, torch.stack(want))
    assert got.output == "prob" and not got.signed


def test_masks_are_draws_of_the_papers_kind(lab):
    streams = lab.batch(lab.pictures(2, side=30)).streams
    masks = SmoothMasks.draw(streams, 2000, 4, 0.3, (30, 22))
    assert set(masks.cells.unique().tolist()) == {0.0, 1.0}
    assert abs(float(masks.cells.mean()) - 0.3) < 0.01
    assert masks.shift[..., 0].unique().tolist() == list(range(8)) and masks.shift[..., 1].unique().tolist() == list(
        range(6)
    )
    rows = torch.arange(2).repeat_interleave(2000)
    sites = masks.sites(rows, torch.arange(4000) % 2000)
    assert sites.shape == (4000, 660) and sites.min() >= 0 and sites.max() <= 1 + 1e-12
    assert (sites.mean(0) - 0.3).abs().max() < 0.04


def test_masks_match_skimage_away_from_the_border():
    """The reference resizes with skimage's `reflect` mode; only the outermost half cell differs."""
    from skimage.transform import resize

    cells = (torch.rand(1, 1, 5, 5, generator=torch.Generator().manual_seed(0)) < 0.5).double()
    masks = SmoothMasks(cells, torch.zeros(1, 1, 2, dtype=torch.long), (20, 20))
    ours = masks.sites(torch.tensor([0]), torch.tensor([0])).reshape(20, 20)
    theirs = torch.from_numpy(resize(cells[0, 0].numpy(), (24, 24), order=1, mode="reflect", anti_aliasing=False))
    torch.testing.assert_close(ours[3:, 3:], theirs[3:20, 3:20], rtol=0, atol=1e-9)


def test_a_model_that_does_not_look_gives_the_mean_mask(lab):
    toy = constant()
    samples = toy_batch(toy, 2)
    drawn = SmoothMasks.draw(samples.streams, 300, 4, 0.5, (8, 8))
    mean = torch.stack([drawn.sites(torch.full((300,), i), torch.arange(300)).mean(0) for i in range(2)])
    p = probe_for(toy).clean(samples).read("prob")[:, None]
    got = lab.explain("rise(samples=300, grid=4)", toy, samples).values.flatten(1)
    torch.testing.assert_close(got, p * mean / 0.5)
    assert (got / p - 1).abs().max() < 0.2


@given(st.integers(0, 10_000), st.floats(-2, 2), st.floats(-2, 2))
def test_it_is_linear_in_what_it_reads(lab, seed, alpha, beta):
    f, g, samples = lab.network(seed), lab.network(seed + 1), lab.batch(lab.pictures(2, seed))

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.g = f, g

        def forward(self, x):
            return alpha * self.f(x) + beta * self.g(x)

    a, b, both = (lab.explain("rise(samples=6, grid=3, output=logit)", n, samples) for n in (f, g, Sum()))
    torch.testing.assert_close(both.values, alpha * a.values + beta * b.values, rtol=1e-9, atol=1e-9)
    assert both.signed


def test_it_finds_the_only_pixel_that_matters(lab):
    class Spot(nn.Module):
        def forward(self, x):
            return torch.stack([20 * x[:, 0, 5, 2] - 10, torch.zeros_like(x[:, 0, 0, 0])], 1)

    got = lab.explain("rise(samples=400, grid=4)", Spot(), lab.batch(torch.ones(1, 3, 8, 8).double(), [0])).values[0]
    top = got.flatten().argmax().item()
    assert abs(top // 8 - 5) <= 1 and abs(top % 8 - 2) <= 1


def test_every_model_class_and_fill_sees_the_same_masks(lab):
    """The map of a black picture under a zero fill is the same for every target up to its probability."""
    x = torch.zeros(1, 3, 8, 8, dtype=torch.float64)
    p = lab.network()(x).softmax(1)[0].detach()
    a, b = (lab.explain("rise(samples=20)", lab.network(), lab.batch(x, [t])).values for t in (0, 2))
    torch.testing.assert_close(a / p[0], b / p[2])


def test_rise_u_is_rise_with_noise_under_the_same_masks(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    drawn = SmoothMasks.draw(samples.streams, 9, 3, 0.1, (8, 8))
    apart = replace(
        samples, streams=replace(samples.streams, digests=tuple(f"{d}|method" for d in samples.streams.digests))
    )
    noise = catalogue.build("fill", "uniform").full(ImageDomain(), apart)["pixels"]
    for fill, under in (("zero", torch.zeros_like(noise)), ("uniform", noise)):
        want = []
        for i, (x, t) in enumerate(zip(samples.x["pixels"], samples.target, strict=True)):
            masks = [slow_mask(drawn.cells[i, n], drawn.shift[i, n].tolist(), 8, 8) for n in range(9)]
            want.append(slow_rise(net, x, t, masks, 0.1, under[i]))
        got = lab.explain(f"rise(samples=9, grid=3, keep=0.1, fill={fill})", net, samples).values
        torch.testing.assert_close(got, torch.stack(want))


def test_shared_masks_are_those_of_the_seed(lab):
    """Equal probabilities on all-black pictures show the masks themselves."""

    class Blind(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :2] * 0

    def masks(spec, seed=0):
        return lab.explain(spec, Blind(), lab.batch(lab.pictures(3), seed=seed)).values

    own, shared = masks("rise(samples=5)"), masks("rise(samples=5, shared=true)")
    assert not torch.equal(own[0], own[1])
    assert torch.equal(shared[0], shared[1]) and torch.equal(shared[0], shared[2])
    assert not torch.equal(shared, masks("rise(samples=5, shared=true)", seed=1))
    assert torch.equal(shared, masks("rise(samples=5, shared=true, fill=uniform)"))


def test_masks_are_never_all_in_memory(lab, monkeypatch):
    largest = []
    real = SmoothMasks.sites
    monkeypatch.setattr(
        SmoothMasks, "sites", lambda self, rows, which: largest.append(len(rows)) or real(self, rows, which)
    )
    lab.explain("rise(samples=50)", lab.network(), lab.pictures(2), forward=8)
    assert set(largest) == {8}


@pytest.mark.parametrize("keep", [0.0, 1.5, -0.1])
def test_impossible_shares_are_refused(keep):
    with pytest.raises(SpecError, match="share above 0 and at most 1"):
        catalogue.build("method", f"rise(keep={keep})")
