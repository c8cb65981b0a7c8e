"""Feature ablation: occlusion over segments, one at a time, against Captum."""

import pytest
import torch
from captum.attr import FeatureAblation as Captum

from heatcheck.core import catalogue
from heatcheck.metrics.base import Maps, circular
from heatcheck.probe.asks import Shape
from heatcheck.testing.models import additive, bag_of_words, linear
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("methods/feature_ablation.py", 'units: str = "segment"', 'units: str = "cell"', "test_words_are_deleted_whole"),
)


def test_captum_gives_the_same_up_to_the_area(lab):
    """Captum, with each picture's own superpixels as its feature mask."""
    patches = lab.pictures(2, side=4).repeat_interleave(8, 2).repeat_interleave(8, 3)
    net, samples = lab.network(side=32), lab.batch(patches + 0.1 * lab.pictures(2, side=32))
    model = lab.wrap(net)
    units = model.domain.units("slic(9)", samples.x)
    assert units.count.min() > 3 and not torch.equal(units.index[0], units.index[1])
    got = lab.explain("feature_ablation(units=slic(9))", model, samples).values
    for i, (x, t) in enumerate(zip(samples.x["pixels"], samples.target, strict=True)):
        segments = units.index[i].reshape(1, 1, 32, 32)
        drop = Captum(net).attribute(x[None], target=int(t), feature_mask=segments)[0, 0].detach().double()
        area = units.area[i][units.index[i]].reshape(32, 32)
        torch.testing.assert_close(got[i] * area, drop, rtol=1e-5, atol=1e-6)


def test_words_are_deleted_whole(lab):
    toy = bag_of_words()
    samples = toy_batch(toy, 4)
    units = toy.domain.units("word", samples.x)
    got = lab.explain("feature_ablation", toy, samples).values
    torch.testing.assert_close(units.sum(got), units.sum(toy.contributions(samples.x, samples.target)))
    assert not torch.allclose(got, toy.contributions(samples.x, samples.target))


def test_a_linear_model_gives_weight_times_input(lab):
    toy = linear()
    samples = toy_batch(toy, 2)
    got = lab.explain("feature_ablation(units=pixel)", toy, samples).values
    torch.testing.assert_close(got, toy.contributions(samples.x, samples.target), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("units", ["segment", "cell"])
def test_on_the_units_of_single_deletion_it_asks_nothing_new(units):
    toy = additive()
    samples = toy_batch(toy, 4)
    probe = probe_for(toy)
    own, sds = catalogue.build("method", f"feature_ablation(units={units})"), catalogue.build("metric", "sds")
    maps = Maps([own(probe, samples)], toy.domain, samples)
    spent = probe.spent.forwards
    sds(probe, samples, maps)
    shape = Shape(toy.domain, samples.x.take(slice(0, 1)))
    same = units == "cell"
    assert circular(own.resolve(toy.domain), sds.resolve(toy.domain), shape) == same
    assert (probe.spent.forwards == spent) == same
