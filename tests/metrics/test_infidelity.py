"""Infidelity, against the definition and against known answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.types import NotApplicable


def slow_windows(toys, model, batch, row):
    """Keep masks of all windows, from the words of the specification."""
    masks = []
    if "pixels" in batch.x:
        h, w = batch.x["pixels"].shape[2:]
        for side in (round(h / 7), round(2 * h / 7), round(4 * h / 7)):
            for top in range(0, h - side + 1, max(1, round(h / 28))):
                for left in range(0, w - side + 1, max(1, round(h / 28))):
                    keep = torch.ones(h, w, dtype=torch.bool)
                    keep[top : top + side, left : left + side] = False
                    masks.append(keep.flatten())
        return masks
    free = torch.nonzero(model.domain.deletable(batch.x)[row]).flatten().tolist()
    for length in range(1, 6):
        for start in range(len(free) - length + 1):
            keep = torch.ones(batch.x["ids"].shape[1], dtype=torch.bool)
            keep[free[start : start + length]] = False
            masks.append(keep)
    return masks


def slow_infidelity(toys, model, batch, row, heat, *, scale="optimal", centered=False, normalised=False, weight=1.0):
    clean = toys.ask(model, batch, row, torch.ones(heat.numel(), dtype=torch.bool))
    masks = slow_windows(toys, model, batch, row)
    cost = np.array([clean - toys.ask(model, batch, row, keep) for keep in masks])
    share = np.array([float((heat.flatten() * weight)[~keep].sum()) for keep in masks])
    if centered:
        cost, share = cost - cost.mean(), share - share.mean()
    beta = 1.0
    if scale == "optimal":
        beta = (cost * share).mean() / (share**2).mean()
    found = ((cost - beta * share) ** 2).mean()
    return found / (cost**2).mean() if normalised else found


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("options", [{}, {"scale": "none"}, {"centered": True}, {"normalised": True}])
def test_agrees_with_the_definition(toys, kind, options):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    spec = "infidelity(" + ", ".join(f"{k}={v}" for k, v in options.items()) + ")"
    got = toys.score(spec, model, batch, maps).value
    for j in range(2):
        for i in range(3):
            expected = slow_infidelity(toys, model, batch, i, maps.sites()[j, i], **options)
            assert got[j, i] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_there_are_1235_squares_at_224(toys):
    model = toys.linear()
    x = toys.pictures(model, 1).x.replace(pixels=torch.zeros(1, 1, 224, 224))
    assert int(model.domain.windows(x).valid.sum()) == 1235


@pytest.mark.parametrize("kind", ["image", "text"])
def test_the_truth_is_exact_on_an_additive_model(toys, kind):
    """X4: any multiple of it under the best factor, itself without one."""
    model, batch = toys.stage(kind, bent_model=False)
    right = toys.truth(model, batch)
    maps = toys.maps_of(model, batch, right, -3 * right, right + 1)
    best = toys.score("infidelity", model, batch, maps).value
    assert best[:2].abs().max() < 1e-9 and best[2].min() > 1e-6
    plain = toys.score("infidelity(scale=none)", model, batch, maps).value
    assert plain[0].abs().max() < 1e-9 and plain[1].min() > 1e-6


def test_gradients_pair_with_the_difference(toys):
    model = toys.linear(1, 6)
    batch = toys.pictures(model, 3)
    maps = toys.methods(model, batch, "saliency")
    assert toys.score("infidelity(scale=none, perturbation=difference)", model, batch, maps).value.max() < 1e-9
    assert toys.score("infidelity(scale=none)", model, batch, maps).value.min() > 1e-6


def test_the_difference_sums_channels(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1)
    got = toys.score("infidelity(perturbation=difference, scale=none)", model, batch, maps).value
    for i in range(3):
        weight = batch.x["pixels"][i].sum(0).flatten()
        expected = slow_infidelity(toys, model, batch, i, maps.sites()[0, i], scale="none", weight=weight)
        assert got[0, i] == pytest.approx(expected, rel=1e-9)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), factor=st.floats(-50, 50).filter(lambda c: abs(c) > 0.02))
def test_bounds_and_invariance(toys, seed, factor):
    """0 ≤ INFD ≤ E[Δ²], unchanged by any factor that is not zero."""
    model, batch = toys.stage("image", n=2)
    maps = toys.random_maps(model, batch, 1, seed=seed)
    probe = toys.probe_on(model)
    value = toys.score("infidelity", model, batch, maps, probe).value
    scaled = toys.maps_of(model, batch, maps.items[0].values * factor)
    assert torch.allclose(toys.score("infidelity", model, batch, scaled, probe).value, value, rtol=1e-9)
    nothing = toys.maps_of(model, batch, torch.zeros(2, 6, 6))
    most = toys.score("infidelity", model, batch, nothing, probe).value
    assert (value >= 0).all() and (value <= most * (1 + 1e-12)).all()
    share = toys.score("infidelity(normalised=true)", model, batch, maps, probe).value
    assert torch.allclose(share, value / most, rtol=1e-12)


def test_a_map_outside_all_windows_is_worth_nothing(toys):
    """A summed-area table leaves rounding in such windows, which the best factor would blow up."""
    model = toys.linear(1, 28)
    batch = toys.pictures(model, 1, 1, 28)
    metric = toys.metric("infidelity(samples=3)").resolve(model.domain)
    windows = model.domain.windows(batch.x)
    chosen = metric._chosen(windows, batch, 0)
    outside = windows.keep(torch.zeros_like(chosen), chosen).all(0).reshape(1, 28, 28)
    noise = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    beside, nothing = torch.where(outside, noise, 0.0), torch.zeros_like(noise)
    assert windows.sums(beside.flatten(1))[0, chosen].abs().max() > 0
    got = metric(toys.probe_on(model), batch, toys.maps_of(model, batch, beside, nothing)).value
    assert torch.equal(got[0], got[1])


def test_a_constant_model_has_nothing_to_predict(toys):
    model = toys.constant()
    batch = toys.pictures(model, 2)
    maps = toys.random_maps(model, batch, 1)
    assert toys.score("infidelity", model, batch, maps).value.tolist() == [[0.0, 0.0]]
    scores = toys.score("infidelity(normalised=true)", model, batch, maps)
    assert scores.status == (("undefined: there are no windows, or none of them changes the output",) * 2,)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_drawn_windows_belong_to_the_sample(toys, kind):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    probe = toys.probe_on(model)
    drawn = toys.score("infidelity(samples=5)", model, batch, maps, probe)
    assert probe.spent.forwards == 3 * 6
    for i in range(3):
        part = batch.take([i])
        alone = toys.score("infidelity(samples=5)", model, part, toys.random_maps(model, part, 2))
        assert torch.equal(alone.value[:, 0], drawn.value[:, i])
    every = toys.score("infidelity", model, batch, maps).value
    assert torch.equal(toys.score("infidelity(samples=10000)", model, batch, maps).value, every)
    assert not torch.equal(drawn.value, every)


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("count", [1, 8])
def test_eight_methods_cost_what_one_does(toys, kind, count):
    model, batch = toys.stage(kind)
    probe = toys.probe_on(model)
    maps = toys.random_maps(model, batch, count)
    for spec in ("sds", "infidelity"):
        toys.score(spec, model, batch, maps, probe)
    units = model.domain.units("cell", batch.x)
    asked = 0
    for i in range(3):
        cells = [units.index[i] != u for u in range(int(units.count[i]))]
        masks = {tuple(m.tolist()) for m in (*cells, *slow_windows(toys, model, batch, i))}
        asked += 1 + len(masks)
    assert probe.spent.forwards == asked
    assert probe.spent.graphs == 0 and probe.spent.backwards == 0


def test_a_text_without_words_has_no_score(toys):
    model = toys.words()
    batch = toys.sentences(model, (0, 3))
    scores = toys.score("infidelity", model, batch, toys.random_maps(model, batch, 1))
    assert scores.value[0].isnan().tolist() == [True, False]


def test_the_difference_needs_a_fill_that_stays_put(toys):
    model, batch = toys.stage("text")
    with pytest.raises(NotApplicable, match="same for all windows"):
        toys.score("infidelity(fill=remove, perturbation=difference)", model, batch, toys.random_maps(model, batch, 1))
