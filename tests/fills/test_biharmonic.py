"""Biharmonic inpainting: the equations it promises, and nothing but the hole touched."""

import sys

import numpy as np
import pytest
import torch
from scipy.ndimage import laplace

from heatcheck.core import catalogue
from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable
from heatcheck.testing import additive, toy_batch

MUTANTS = (
    (
        "fills/biharmonic.py",
        "np.where(hole[..., None], 0.0, planes(domain, x))",
        "planes(domain, x).round(1)",
        "test_the_bilaplacian_vanishes_in_the_hole",
    ),
    (
        "fills/imputation.py",
        "torch.from_numpy(values.T)",
        "torch.from_numpy(values.T.copy()).flip(1)",
        "test_cubics_are_continued",
    ),
)

TOY = additive((3, 16, 16))


def erased(batch, hole):
    unit = catalogue.build("fill", "biharmonic")
    keep = ~torch.as_tensor(hole).flatten().expand(len(batch), -1)
    return unit.erase(TOY.domain, batch.x, keep, unit.full(TOY.domain, batch))["pixels"]


def with_pixels(pixels):
    return toy_batch(TOY, len(pixels)).with_inputs(Inputs({"pixels": pixels}))


def block():
    hole = torch.zeros(16, 16, dtype=torch.bool)
    hole[4:9, 5:11] = True
    return hole


def test_the_bilaplacian_vanishes_in_the_hole():
    y, x = np.mgrid[:16, :16] / 8.0
    surface = np.stack([np.sin(2 * x) + y, x * y, x**2 - 0.5 * y], 0)
    got = erased(with_pixels(torch.from_numpy(surface)[None]), block())[0].numpy()
    for channel, before in zip(got, surface, strict=True):
        assert np.abs(laplace(laplace(channel)))[block().numpy()].max() < 1e-9
        assert np.abs(laplace(laplace(before)))[block().numpy()].max() < 1e-2


@pytest.mark.parametrize("power", [0, 1, 2, 3])
def test_cubics_are_continued(power):
    """Δ² of a cubic is zero, so the hole is filled with what was there."""
    y, x = np.mgrid[:16, :16] / 16.0
    surface = torch.from_numpy((x - 0.3 * y) ** power).expand(1, 3, 16, 16)
    got = erased(with_pixels(surface), block())
    torch.testing.assert_close(got, surface.contiguous(), atol=1e-9, rtol=0)


def test_it_stays_within_the_range_of_what_is_kept():
    batch = toy_batch(TOY, 2)
    hole = torch.rand(16, 16, generator=torch.Generator().manual_seed(0)) < 0.8
    got = erased(batch, hole)
    for own, x in zip(got, batch.x["pixels"], strict=True):
        known = x[:, ~hole]
        assert (own.flatten(1).amin(1) >= known.amin(1)).all() and (own.flatten(1).amax(1) <= known.amax(1)).all()


def test_kept_pixels_keep_their_bits_and_the_hole_forgets():
    batch = toy_batch(TOY, 3)
    got = erased(batch, block())
    assert torch.equal(got[:, :, ~block()], batch.x["pixels"][:, :, ~block()])
    assert torch.equal(erased(with_pixels(torch.where(block(), 9.0, batch.x["pixels"])), block()), got)
    for rows in ([2], [1, 0]):
        assert torch.equal(erased(batch.take(rows), block()), got[rows])
    assert torch.equal(erased(batch, torch.zeros_like(block())), batch.x["pixels"])
    mean = batch.x["pixels"].mean((2, 3), keepdim=True)
    torch.testing.assert_close(erased(batch, torch.ones_like(block())), mean.expand_as(got))


def test_one_kept_pixel_is_enough():
    batch = toy_batch(TOY, 1)
    hole = torch.ones(16, 16, dtype=torch.bool)
    hole[7, 3] = False
    got = erased(batch, hole)
    torch.testing.assert_close(got, batch.x["pixels"][..., 7:8, 3:4].expand_as(got), atol=1e-9, rtol=0)


def test_what_it_cannot_do_is_said(monkeypatch):
    unit, batch = catalogue.build("fill", "biharmonic"), toy_batch(TOY, 1)
    with pytest.raises(HeatcheckError, match=r"biharmonic.*part of a pixel"):
        unit.erase(TOY.domain, batch.x, torch.full((1, 256), 0.5), batch.x)
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(NotApplicable, match=r'biharmonic needs scikit-image, .*: pip install "heatcheck\[vision\]"'):
        unit.resolve(TOY.domain)
