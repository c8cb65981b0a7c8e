"""The superpixel's mean colour, segment by segment."""

import torch

from heatcheck.core import catalogue
from heatcheck.core.types import Inputs
from heatcheck.testing.models import additive
from heatcheck.testing.scenes import toy_batch

TOY = additive((3, 16, 16))


def full(spec, batch):
    return catalogue.build("fill", spec).full(TOY.domain, batch)["pixels"]


def test_each_segment_has_its_own_mean_colour():
    rng = torch.Generator().manual_seed(0)
    blocks = torch.rand(3, 3, 4, 4, generator=rng, dtype=torch.float64).repeat_interleave(8, 2).repeat_interleave(8, 3)
    speckled = 4 * blocks - 2 + 0.1 * torch.randn(3, 3, 32, 32, generator=rng, dtype=torch.float64)
    batch = toy_batch(TOY, 3).with_inputs(Inputs({"pixels": speckled}))
    index = TOY.domain.units("slic(12)", batch.x).index
    assert not torch.equal(index[0], index[1])
    got = full("superpixel_mean(units=slic(12))", batch).flatten(2)
    for pixels, filled, own in zip(batch.x["pixels"].flatten(2), got, index, strict=True):
        assert own.max() > 1
        for segment in own.unique():
            mean = pixels[:, own == segment].mean(1, keepdim=True)
            torch.testing.assert_close(filled[:, own == segment], mean.expand(-1, int((own == segment).sum())))


def test_pixels_of_no_segment_take_the_mean_of_their_own():
    """A 3 × 3 grid on 16 × 16 pixels leaves a rim."""
    batch = toy_batch(TOY, 1)
    pixels, got = batch.x["pixels"][0], full("superpixel_mean(units=grid(3))", batch)[0]
    rim = torch.ones(16, 16, dtype=torch.bool)
    rim[:15, :15] = False
    torch.testing.assert_close(got[:, rim], pixels[:, rim].mean(1, keepdim=True).expand(-1, 31))
    torch.testing.assert_close(got[:, :5, :5], pixels[:, :5, :5].mean((1, 2))[:, None, None].expand(-1, 5, 5))


def test_a_picture_of_flat_segments_is_its_own_fill():
    batch = toy_batch(TOY, 2)
    flat = batch.x["pixels"][..., ::4, ::4].repeat_interleave(4, 2).repeat_interleave(4, 3)
    torch.testing.assert_close(
        full("superpixel_mean(units=grid(4))", batch.with_inputs(Inputs({"pixels": flat}))), flat
    )


def test_precision_is_that_of_the_picture():
    batch = toy_batch(TOY, 1)
    single = batch.with_inputs(Inputs({"pixels": batch.x["pixels"].float()}))
    assert full("superpixel_mean", single).dtype == torch.float32
