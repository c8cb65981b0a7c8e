"""ROAD's linear imputation, against the definition pixel by pixel and against what must hold (X10)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import HeatcheckError, Inputs, NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.fills.linear import dissected, neighbour_means
from heatcheck.testing import additive, probe_for, toy_batch

MUTANTS = (
    (
        "fills/linear.py",
        "BESIDE, ACROSS = 1 / 6, 1 / 12",
        "BESIDE, ACROSS = 1 / 8, 1 / 8",
        "test_agrees_with_the_definition",
    ),
    ("fills/linear.py", "weight[gone], -BESIDE", "1.0, -BESIDE", "test_agrees_with_the_definition"),
    (
        "fills/linear.py",
        'pixels + full["noise"]',
        'pixels - full["noise"]',
        "test_noise_has_its_deviation_in_colours_and_is_one_draw_per_sample",
    ),
    ("fills/linear.py", "~keep & keep.any(1, keepdim=True)", "~keep", "test_nothing_and_everything_deleted"),
    ("fills/imputation.py", "painted[i] = nothing[i]", "pass", "test_nothing_and_everything_deleted"),
)

TOY = additive((3, 16, 16))
WEIGHTS = {(dy, dx): 1 / 6 if 0 in (dy, dx) else 1 / 12 for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)}


def slow(picture, hole):
    """One equation per pixel: (Σ w) x_i − Σ w_ij x_j = 0 over the neighbours that exist; solved without sparsity."""
    h, w = hole.shape
    pixels = [(y, x) for y in range(h) for x in range(w) if hole[y, x]]
    left, right = np.zeros((len(pixels), len(pixels))), np.zeros((len(pixels), picture.shape[2]))
    for i, (y, x) in enumerate(pixels):
        for (dy, dx), weight in WEIGHTS.items():
            there = (y + dy, x + dx)
            if not (0 <= there[0] < h and 0 <= there[1] < w):
                continue
            left[i, i] += weight
            if hole[there]:
                left[i, pixels.index(there)] -= weight
            else:
                right[i] += weight * picture[there]
    return np.linalg.solve(left, right)


def holes(shape, seed):
    """Scattered pixels of three densities, a block in the corner, all but one pixel, and one pixel alone."""
    rng = np.random.default_rng(seed)
    scattered = [rng.random(shape) < share for share in (0.1, 0.5, 0.9)]
    block, lone = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    block[: shape[0] // 2 + 1, : shape[1] // 2 + 1] = True
    lone[shape[0] // 2, shape[1] // 2] = True
    return [hole for hole in (*scattered, block, ~lone, lone) if hole.any() and not hole.all()]


def erased(spec, batch, hole, domain=TOY.domain):
    unit = catalogue.build("fill", spec)
    keep = torch.from_numpy(~np.asarray(hole)).flatten().expand(len(batch), -1)
    return unit.erase(domain, batch.x, keep, unit.full(domain, batch))["pixels"]


@pytest.mark.parametrize("shape", [(6, 6, 1), (9, 14, 3), (13, 8, 4), (1, 9, 2), (2, 2, 3)])
def test_agrees_with_the_definition(shape):
    picture = np.random.default_rng(1).standard_normal(shape)
    for hole in holes(shape[:2], 2):
        np.testing.assert_allclose(neighbour_means(picture, hole), slow(picture, hole), atol=1e-12, rtol=0)


def test_agrees_with_the_published_procedure_on_a_larger_picture():
    """Equations entered one weight at a time into a sparse matrix, and a general solver."""
    from scipy.sparse import csc_matrix, lil_matrix
    from scipy.sparse.linalg import spsolve

    rng = np.random.default_rng(3)
    picture, hole = rng.random((40, 52, 3)), rng.random((40, 52)) < 0.85
    hole[:25, :25] = True
    where = np.argwhere(hole)
    number = {tuple(place): i for i, place in enumerate(where.tolist())}
    left, right = lil_matrix((len(where), len(where))), np.zeros((len(where), 3))
    for (y, x), i in number.items():
        for (dy, dx), weight in WEIGHTS.items():
            if 0 <= y + dy < 40 and 0 <= x + dx < 52:
                left[i, i] += weight
                if hole[y + dy, x + dx]:
                    left[i, number[y + dy, x + dx]] -= weight
                else:
                    right[i] += weight * picture[y + dy, x + dx]
    assert np.abs(neighbour_means(picture, hole) - spsolve(csc_matrix(left), right)).max() < 1e-10


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), h=st.integers(1, 12), w=st.integers(2, 12), share=st.sampled_from([0.1, 0.5, 0.9]))
def test_laws(seed, h, w, share):
    """X10: within the range of what is kept; constants stay; linear in what is kept, whatever the hole held."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, h, w, 2))
    hole = rng.random((h, w)) < share
    hole.flat[0], hole.flat[-1] = True, False
    known = a[~hole]
    got = neighbour_means(a, hole)
    assert (got >= known.min(0) - 1e-12).all() and (got <= known.max(0) + 1e-12).all()
    np.testing.assert_allclose(neighbour_means(np.full_like(a, 3.7), hole), 3.7, atol=1e-12)
    both = neighbour_means(2 * a - 5 * b, hole)
    np.testing.assert_allclose(both, 2 * got - 5 * neighbour_means(b, hole), atol=1e-11)
    assert np.array_equal(neighbour_means(np.where(hole[..., None], 99.0, a), hole), got)
    turned = neighbour_means(a[::-1, ::-1], hole[::-1, ::-1])
    np.testing.assert_allclose(turned[::-1], got, atol=1e-12)


def test_slopes_are_continued_away_from_the_border():
    """X10: an affine picture comes back where the hole leaves the border alone, and not where it does not."""
    y, x = np.mgrid[:12, :15]
    ramp = np.stack([2.0 * y - x + 1, 0.5 * x, np.ones_like(y)], -1)
    inner = np.zeros((12, 15), dtype=bool)
    inner[1:-1, 1:-1] = np.random.default_rng(0).random((10, 13)) < 0.8
    np.testing.assert_allclose(neighbour_means(ramp, inner), ramp[inner], atol=1e-12)
    outer = np.zeros((12, 15), dtype=bool)
    outer[:4] = True
    assert np.abs(neighbour_means(ramp, outer) - ramp[outer]).max() > 0.5


@settings(max_examples=30, deadline=None)
@given(h=st.integers(1, 40), w=st.integers(1, 40))
def test_the_order_of_elimination_names_every_pixel_once(h, w):
    assert sorted(dissected(np.arange(h * w).reshape(h, w))) == list(range(h * w))


# -- as a fill ---------------------------------------------------------------------------------------------------


def half():
    return np.random.default_rng(5).random((16, 16)) < 0.5


def test_without_noise_only_the_hole_changes_and_the_answer_is_always_the_same():
    batch = toy_batch(TOY, 2)
    got = erased("linear(noise=0)", batch, half())
    hole = torch.from_numpy(half())
    assert torch.equal(got[:, :, ~hole], batch.x["pixels"][:, :, ~hole])
    for own, x in zip(got, batch.x["pixels"], strict=True):
        expected = slow(x.permute(1, 2, 0).numpy(), half())
        np.testing.assert_allclose(own[:, hole].T.numpy(), expected, atol=1e-12)
    other_seed = replace(batch, streams=replace(batch.streams, seed=9))
    assert torch.equal(erased("linear(noise=0)", other_seed, half()), got)


def test_noise_has_its_deviation_in_colours_and_is_one_draw_per_sample():
    batch = toy_batch(TOY, 3)
    hole = torch.from_numpy(half())
    noise = erased("linear(noise=0.08)", batch, half()) - erased("linear(noise=0)", batch, half())
    assert not noise[:, :, ~hole].any()
    colours = noise * 0.25  # the toy's normalisation divides by 0.25
    assert float(colours[:, :, hole].std()) == pytest.approx(0.08, rel=0.1)
    assert abs(float(colours[:, :, hole].mean())) < 0.01
    draw = batch.streams.draw("fill", lambda g: torch.randn((3, 16, 16), generator=g, dtype=torch.float64))
    torch.testing.assert_close(colours[:, :, hole], 0.08 * draw[:, :, hole])
    smaller = half().copy()
    smaller[8:] = False
    again = erased("linear(noise=0.08)", batch, smaller) - erased("linear(noise=0)", batch, smaller)
    torch.testing.assert_close(again[:, :, smaller], noise[:, :, smaller])
    default = erased("linear", batch, half()) - erased("linear(noise=0)", batch, half())
    torch.testing.assert_close(default, noise / 8)


def test_nothing_and_everything_deleted():
    batch = toy_batch(TOY, 2)
    assert torch.equal(erased("linear", batch, np.zeros((16, 16), dtype=bool)), batch.x["pixels"])
    gone = erased("linear(noise=0)", batch, np.ones((16, 16), dtype=bool))
    torch.testing.assert_close(gone, batch.x["pixels"].mean((2, 3), keepdim=True).expand_as(gone))
    noisy = erased("linear", batch, np.ones((16, 16), dtype=bool))
    assert float((noisy - gone).std()) == pytest.approx(0.04, rel=0.15)


def test_neighbours_order_and_batch_change_no_bit():
    batch = toy_batch(TOY, 4)
    unit = catalogue.build("fill", "linear")
    rng = torch.Generator().manual_seed(0)
    keep = torch.rand(4, 256, generator=rng) < torch.tensor([[0.9], [0.5], [0.1], [0.3]])
    full = unit.full(TOY.domain, batch)
    whole = unit.erase(TOY.domain, batch.x, keep, full)["pixels"]
    for rows in ([2], [3, 0], [1, 1, 2]):
        part, index = batch.take(rows), torch.tensor(rows)
        own = unit.erase(TOY.domain, part.x, keep[index], unit.full(TOY.domain, part))["pixels"]
        assert torch.equal(own, whole[index])
        assert torch.equal(unit.erase(TOY.domain, part.x, keep[index], full.take(index))["pixels"], whole[index])


def test_the_probe_hands_each_row_its_own_noise():
    from heatcheck.probe.deletions import Masks

    batch = toy_batch(TOY, 3)
    rng = torch.Generator().manual_seed(1)
    keep = torch.rand(7, 256, generator=rng) < 0.5
    rows = torch.tensor([2, 0, 1, 1, 0, 2, 2])
    answers = [
        probe_for(TOY, forward=n).deletions(batch, "linear", Masks(rows, lambda i: keep[i])).read("logit")
        for n in (1, 4)
    ]
    unit = catalogue.build("fill", "linear")
    x = unit.erase(TOY.domain, batch.x.take(rows), keep, unit.full(TOY.domain, batch).take(rows))
    slow_way = probe_for(TOY).logits(x).gather(1, batch.target[rows][:, None])[:, 0]
    for got in answers:
        torch.testing.assert_close(got, slow_way.double(), atol=1e-9, rtol=0)


def test_single_precision_pictures_are_solved_in_double():
    batch = toy_batch(TOY, 2)
    single = batch.with_inputs(Inputs({"pixels": batch.x["pixels"].float()}))
    got = erased("linear", single, half())
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), erased("linear", batch, half()), atol=2e-6, rtol=0)


def test_what_it_cannot_do_is_said():
    batch = toy_batch(TOY, 1)
    with pytest.raises(SpecError, match=r"noise=-1.0 is a deviation"):
        catalogue.build("fill", "linear(noise=-1)")
    unit = catalogue.build("fill", "linear")
    with pytest.raises(HeatcheckError, match=r"linear.*part of a pixel"):
        unit.erase(TOY.domain, batch.x, torch.full((1, 256), 0.5), unit.full(TOY.domain, batch))
    unknown = ImageDomain()
    with pytest.raises(NotApplicable, match=r"normalisation is not known.*preprocess"):
        unit.full(unknown, batch)
    assert torch.equal(erased("linear(noise=0)", batch, half(), unknown), erased("linear(noise=0)", batch, half()))
