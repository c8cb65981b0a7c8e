"""Rank correlation and structural similarity of maps, against scipy and a slow window."""

import numpy as np
import pytest
import torch
from scipy import stats

from heatcheck.core.types import Inputs, NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.metrics.similarity import check_similarity, similarity, varied

MUTANTS = (
    (
        "metrics/similarity.py",
        "(values - low) / (high - low)",
        "(values - low) / high",
        "test_what_is_constant_has_nothing_in_common",
    ),
    ("metrics/similarity.py", '"sigma": 1.5', '"sigma": 2.5', "test_laws"),
    (
        "metrics/similarity.py",
        "(values[:, i, :n] != values[:, i, :1]).any(-1)",
        "(values[:, i, :n] == values[:, i, :1]).any(-1)",
        "test_what_is_constant_has_nothing_in_common",
    ),
)


def units_of(side, name="pixel", n=2):
    return ImageDomain().units(name, Inputs({"pixels": torch.zeros(n, 1, side, side)}))


def slow_ssim(a, b):
    """Wang 2004, one window at a time; the border, where windows do not fit, is left out."""
    at = np.arange(-5, 6)
    weight = np.exp(-(at[:, None] ** 2 + at[None] ** 2) / (2 * 1.5**2))
    weight /= weight.sum()
    a, b = ((m - m.min()) / (m.max() - m.min()) for m in (a, b))
    found = []
    for y in range(5, len(a) - 5):
        for x in range(5, len(a) - 5):
            p, q = (m[y - 5 : y + 6, x - 5 : x + 6] for m in (a, b))
            mp, mq = (weight * p).sum(), (weight * q).sum()
            vp, vq, c = ((weight * u * v).sum() for u, v in ((p - mp, p - mp), (q - mq, q - mq), (p - mp, q - mq)))
            found.append((2 * mp * mq + 1e-4) * (2 * c + 9e-4) / ((mp**2 + mq**2 + 1e-4) * (vp + vq + 9e-4)))
    return np.mean(found)


def pair(side, seed=0):
    rng = torch.Generator().manual_seed(seed)
    one = torch.randn(3, 2, side * side, generator=rng, dtype=torch.float64)
    return one, one + torch.randn(one.shape, generator=rng, dtype=torch.float64)


def test_both_agree_with_their_definitions():
    one, two = pair(14)
    ranks, windows = (similarity(how, one, two, units_of(14), (14, 14)) for how in ("spearman", "ssim"))
    for j in range(3):
        for i in range(2):
            a, b = one[j, i].numpy(), two[j, i].numpy()
            assert float(ranks[j, i]) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-12)
            assert float(windows[j, i]) == pytest.approx(slow_ssim(a.reshape(14, 14), b.reshape(14, 14)), abs=1e-9)


@pytest.mark.parametrize("how", ["spearman", "ssim"])
def test_laws(how):
    """1 with itself, symmetric, within [-1, 1], blind to positive factors and added constants."""
    one, two = pair(12)
    units, shape = units_of(12), (12, 12)
    assert torch.allclose(similarity(how, one, one, units, shape), torch.ones(3, 2, dtype=torch.float64))
    there, back = similarity(how, one, two, units, shape), similarity(how, two, one, units, shape)
    assert torch.allclose(there, back, atol=1e-12) and bool((there.abs() < 1).all())
    assert torch.allclose(similarity(how, 3 * one + 2, two / 7 - 1, units, shape), there, atol=1e-9)


@pytest.mark.parametrize("how", ["spearman", "ssim"])
def test_what_is_constant_has_nothing_in_common(how):
    one, _ = pair(12)
    flat = torch.ones_like(one)
    assert similarity(how, one, flat, units_of(12), (12, 12)).eq(0).all()
    assert varied(one, units_of(12)).all() and not varied(flat, units_of(12)).any()


def test_ssim_needs_room():
    check_similarity("ssim", units_of(11), (11, 11))
    check_similarity("spearman", units_of(8, "grid(4)"), (8, 8))
    for units, shape in ((units_of(10), (10, 10)), (units_of(16, "grid(4)"), (16, 16))):
        with pytest.raises(NotApplicable, match="windows of 11 × 11"):
            check_similarity("ssim", units, shape)


@pytest.mark.parametrize("spec", ["mprt(similarity=ssim)", "random_logit(similarity=ssim)"])
def test_metrics_take_it_for_pictures_and_refuse_it_for_texts(toys, spec):
    model = toys.bent(1, 12)
    batch = toys.pictures(model, 2, 1, 12)
    value = toys.score(spec, model, batch, toys.methods(model, batch, "random", "saliency")).value
    assert value[0].tolist() == pytest.approx([1, 1]) and bool((value[1] < 0.9).all())
    model, batch = toys.stage("text")
    with pytest.raises(NotApplicable, match="similarity=spearman"):
        toys.score(spec, model, batch, toys.methods(model, batch, "saliency"))
