"""LIME, against scikit-learn's weighted regression, by exact recovery, and by its laws."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import pairwise_distances
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.domain.image import ImageDomain
from heatcheck.methods.lime import design, proximity, surrogate
from heatcheck.models.torch_model import TorchModel
from heatcheck.testing.models import additive, additive_text, bag_of_words
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("methods/lime.py", "kept.double().mean(1).sqrt()", "kept.double().mean(1)", "test_the_kernel_by_hand"),
    ("methods/lime.py", "alpha**0.5 * torch.eye", "alpha * torch.eye", "test_scikit_learn_gives_the_same"),
    (
        "methods/lime.py",
        "x = kept - (share * kept).sum(0)",
        "x = kept - kept.mean(0)",
        "test_scikit_learn_gives_the_same",
    ),
    ("methods/lime.py", "dtype=torch.float64) < 0.5", "dtype=torch.float64) < 0.4", "test_draws_keep_half"),
)


def slow_lime(net, x, target, z, kernel, alpha):
    """LIME's own recipe on a 4 × 4 grid with zeros for what is off, through scikit-learn."""
    heard = []
    for row in z:
        keep = row.reshape(4, 4).repeat_interleave(2, 0).repeat_interleave(2, 1)
        with torch.no_grad():
            heard.append(float(net((x * keep)[None])[0, target]))
    z = z.double().numpy()
    distance = pairwise_distances(z, z[0].reshape(1, -1), metric="cosine").ravel()
    weight = np.sqrt(np.exp(-(distance**2) / kernel**2))
    model = Ridge(alpha=alpha) if alpha else LinearRegression()
    return torch.from_numpy(model.fit(z, heard, sample_weight=weight).coef_)


@pytest.mark.parametrize(("kernel", "alpha"), [(0.25, 0.0), (0.25, 1.0), (0.6, 0.1)])
def test_scikit_learn_gives_the_same(lab, kernel, alpha):
    net, samples = lab.network(), lab.batch(lab.pictures(2))
    want = []
    for i, (x, t) in enumerate(zip(samples.x["pixels"], samples.target, strict=True)):
        z = design(16, 60, samples.streams.generator(i, "lime-masks"))
        want.append(slow_lime(net, x, t, z, kernel, alpha).reshape(4, 4) / 4)
    got = lab.explain(f"lime(samples=60, units=grid(4), kernel={kernel}, alpha={alpha})", net, samples).values
    torch.testing.assert_close(got[:, ::2, ::2], torch.stack(want), rtol=1e-8, atol=1e-10)
    assert torch.equal(got[:, ::2, ::2], got[:, 1::2, 1::2])


def test_m4s_dialect_can_be_written(lab):
    """Quickshift of each picture, the segment's mean colour for what is off, probability, signed weights."""
    from skimage.segmentation import quickshift

    patches = lab.pictures(2, side=3).repeat_interleave(8, 2).repeat_interleave(8, 3)
    samples = lab.batch((patches + 0.05 * lab.pictures(2, side=24)).clamp(-2, 2))
    net = lab.network(side=24)
    domain = ImageDomain(mean=(0.5,) * 3, std=(0.25,) * 3)
    spec = "lime(samples=40, units=quickshift, fill=superpixel_mean(units=quickshift), output=prob)"
    got = lab.explain(spec, TorchModel(net, "net", domain), samples).values
    counts = []
    for i, (x, t) in enumerate(zip(samples.x["pixels"], samples.target, strict=True)):
        rgb = (x * 0.25 + 0.5).float().permute(1, 2, 0).numpy().astype(float)
        segments = torch.from_numpy(quickshift(rgb, ratio=1.0, kernel_size=5, max_dist=10, sigma=1, rng=0))
        counts.append(int(segments.max()) + 1)
        mean = torch.zeros_like(x)
        for s in range(counts[-1]):
            mean[:, segments == s] = x[:, segments == s].mean(1, keepdim=True)
        z = design(counts[-1], 40, samples.streams.generator(i, "lime-masks"))
        heard = []
        for row in z:
            with torch.no_grad():
                heard.append(float(net(torch.where(row[segments], x, mean)[None]).softmax(1)[0, t]))
        distance = pairwise_distances(z.numpy(), np.ones((1, counts[-1])), metric="cosine").ravel()
        weight = np.sqrt(np.exp(-(distance**2) / 0.25**2))
        want = torch.from_numpy(LinearRegression().fit(z.numpy(), heard, sample_weight=weight).coef_)
        area = segments.flatten().bincount()
        torch.testing.assert_close(got[i] * area[segments], want[segments], rtol=1e-6, atol=1e-8)
    assert min(counts) > 1 and len(set(counts)) == 2
    assert (got < 0).any()


@pytest.mark.parametrize("make", [additive, additive_text])
def test_where_units_add_up_it_is_the_truth(lab, make):
    toy = make()
    samples = toy_batch(toy, 4)
    got = lab.explain("lime(units=cell, samples=80)", toy, samples).values
    torch.testing.assert_close(got, toy.contributions(samples.x, samples.target), rtol=1e-8, atol=1e-9)


def test_words_share_what_their_tokens_are_worth(lab):
    toy = bag_of_words()
    samples = toy_batch(toy, 4)
    probe = probe_for(toy)
    units = probe.units("word", samples)
    got = catalogue.build("method", "lime")(probe, samples).values
    worth = units.sum(toy.contributions(samples.x, samples.target))
    torch.testing.assert_close(units.sum(got), worth, rtol=1e-8, atol=1e-9)
    assert (got[samples.x["special"]] == 0).all()


def test_leftover_sites_are_kept(lab):
    """A 3 × 3 grid on 8 × 8 pixels leaves a rim; were it deleted with the rest, the weights would not fit."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 2)).double()

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return self.net(x) * (x[:, 0, 7, 7] != 0)[:, None]

    samples = lab.batch(lab.pictures(2))
    x = samples.x["pixels"]
    truth = (net[1].weight[samples.target].detach().reshape(x.shape) * x).sum(1)
    cells = truth[:, :6, :6].reshape(2, 3, 2, 3, 2).sum((2, 4)) / 4
    got = lab.explain("lime(units=grid(3), samples=60)", Gate(), samples).values
    torch.testing.assert_close(got[:, :6:2, :6:2], cells, rtol=1e-8, atol=1e-9)
    assert (got[:, 6:] == 0).all()


@given(st.integers(1, 9), st.integers(0, 10_000), st.floats(-5, 5))
def test_a_linear_surrogate_is_recovered_whatever_its_constant(units, seed, shift):
    rng = torch.Generator().manual_seed(seed)
    z = design(units, 40, rng)
    truth = torch.randn(units, generator=rng, dtype=torch.float64)
    truth[0] = 0
    weight = proximity(z, 0.25)
    got = surrogate(z.double(), z.double() @ truth + shift, weight, 0.0)
    torch.testing.assert_close(got, truth, rtol=1e-7, atol=1e-8)


def test_few_units_are_asked_about_exhaustively():
    z = design(3, 8, torch.Generator())
    assert z[0].all() and {tuple(r) for r in z.tolist()} == set(itertools.product([True, False], repeat=3))
    sampled = design(4, 8, torch.Generator().manual_seed(0))
    assert sampled.shape == (8, 4) and sampled[0].all()
    assert design(0, 8, torch.Generator()).shape == (1, 0)
    assert design(70, 2, torch.Generator()).shape == (2, 70)


def test_draws_keep_half():
    z = design(50, 4000, torch.Generator().manual_seed(1))[1:]
    assert abs(float(z.double().mean()) - 0.5) < 0.005 and (z.double().mean(0) - 0.5).abs().max() < 0.04


def test_the_kernel_by_hand():
    z = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
    want = [1.0, np.sqrt(np.exp(-(0.5**2) / 0.0625)), np.sqrt(np.exp(-1 / 0.0625))]
    torch.testing.assert_close(proximity(z, 0.25), torch.tensor(want, dtype=torch.float64))


def test_fewer_draws_than_units_still_fit(lab):
    got = lab.explain("lime(units=grid(4), samples=5)", lab.network(), lab.pictures())
    assert got.status == ("ok",) * 3


def test_a_segment_that_the_model_ignores_gets_next_to_nothing(lab):
    """Exactly nothing only where the model is linear in its units; the kernel ties units together."""

    class Blind(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = lab.network()

        def forward(self, x):
            return self.net(torch.cat([x[:, :, :4] * 0, x[:, :, 4:]], 2))

    got = lab.explain("lime(units=grid(2), samples=16)", Blind(), lab.pictures()).values
    assert got[:, :4].abs().max() < 0.02 * got[:, 4:].abs().max()


@pytest.mark.parametrize(
    ("spec", "match"), [("lime(kernel=0.0)", "above 0"), ("lime(alpha=-1.0)", "cannot be negative")]
)
def test_mistakes_are_named(spec, match):
    with pytest.raises(SpecError, match=match):
        catalogue.build("method", spec)
