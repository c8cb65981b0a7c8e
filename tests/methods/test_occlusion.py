"""Occlusion, one deletion at a time, against Captum, and as what `sds` asks for."""

import pytest
import torch
from captum.attr import FeatureAblation
from captum.attr import Occlusion as Captum
from hypothesis import given
from hypothesis import strategies as st

from heatcheck.core import catalogue
from heatcheck.metrics.base import Maps, circular
from heatcheck.probe.asks import Shape
from heatcheck.testing.models import additive, additive_text, linear
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    (
        "methods/occlusion.py",
        "outputs[:, -1:] - outputs[:, :-1]",
        "outputs[:, :-1] - outputs[:, -1:]",
        "test_where_units_add_up_it_is_the_truth",
    ),
    ("methods/occlusion.py", "read(self.output)", 'read("prob")', "test_one_cell_at_a_time_gives_the_same"),
)


def test_one_cell_at_a_time_gives_the_same(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    want = torch.zeros(3, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        for i, (x, t) in enumerate(zip(samples.x["pixels"], samples.target, strict=True)):
            for top in range(0, 8, 2):
                for left in range(0, 8, 2):
                    gone = x.clone()
                    gone[:, top : top + 2, left : left + 2] = x.mean((1, 2))[:, None, None]
                    drop = net(x[None])[0, t] - net(gone[None])[0, t]
                    want[i, top : top + 2, left : left + 2] = drop / 4
    got = lab.explain("occlusion(fill=channel_mean)", net, samples).values
    torch.testing.assert_close(got, want)


def test_captum_gives_the_same_up_to_the_area(lab):
    net, samples = lab.network(), lab.batch(lab.pictures(3))
    x, target = samples.x["pixels"], samples.target
    windows = Captum(net).attribute(x, (3, 2, 2), strides=(3, 2, 2), target=target)
    cells = torch.arange(16).reshape(1, 1, 4, 4).repeat_interleave(2, 2).repeat_interleave(2, 3)
    ablation = FeatureAblation(net).attribute(x, target=target, feature_mask=cells)
    got = 4 * lab.explain("occlusion", net, samples).values
    for want in (windows, ablation):
        torch.testing.assert_close(got, want[:, 0].detach().double(), rtol=1e-5, atol=1e-6)


@given(st.integers(0, 10_000))
def test_a_linear_model_gives_weight_times_input(lab, seed):
    toy = linear(seed=seed)
    samples = toy_batch(toy, 2, seed)
    got = lab.explain("occlusion(units=pixel)", toy, samples).values
    torch.testing.assert_close(got, toy.contributions(samples.x, samples.target), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("make", [additive, additive_text])
def test_where_units_add_up_it_is_the_truth(lab, make):
    toy = make()
    samples = toy_batch(toy, 4)
    torch.testing.assert_close(
        lab.explain("occlusion", toy, samples).values, toy.contributions(samples.x, samples.target)
    )


def test_leftover_sites_get_nothing_and_are_never_deleted(lab):
    samples = lab.batch(lab.pictures(2))
    got = lab.explain("occlusion(units=grid(3))", lab.network(), samples).values
    assert (got[:, 6:] == 0).all() and (got[:, :, 6:] == 0).all() and (got[:, :6, :6] != 0).all()


@pytest.mark.parametrize("make", [lambda: None, additive_text])
def test_it_is_what_single_deletion_asks_for(lab, make):
    toy = make() or lab.wrap(lab.network())
    samples = toy_batch(toy, 4) if toy.name != "net" else lab.batch(lab.pictures(4))
    probe = probe_for(toy)
    occlusion, sds = catalogue.build("method", "occlusion"), catalogue.build("metric", "sds")
    maps = Maps([occlusion(probe, samples)], toy.domain, samples)
    spent = probe.spent.forwards
    torch.testing.assert_close(sds(probe, samples, maps).value, torch.ones(1, 4, dtype=torch.float64))
    assert probe.spent.forwards == spent
    shape = Shape(toy.domain, samples.x.take(slice(0, 1)))
    own, theirs = occlusion.resolve(toy.domain), sds.resolve(toy.domain)
    assert circular(own, theirs, shape)
    assert not circular(catalogue.build("method", "occlusion(units=sentence)" if toy.name != "net" else
                        "occlusion(units=grid(2))").resolve(toy.domain), theirs, shape)  # fmt: skip
