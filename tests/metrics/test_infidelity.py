"""Infidelity, against the definition and against known answers."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core.spec import SpecError
from heatcheck.core.types import NotApplicable
from heatcheck.metrics.base import Maps
from heatcheck.metrics.infidelity import set_sizes
from heatcheck.metrics.subsets import subsets
from heatcheck.probe.asks import Shape

MUTANTS = (
    (
        "metrics/infidelity.py",
        "(cost * share).mean() / energy",
        "(cost * share).mean() / cost.square().mean()",
        "test_gaussian_noise_agrees_with_captum",
    ),
    (
        "metrics/infidelity.py",
        "cost - cost.mean(), share - share.mean()",
        "cost, share",
        "test_gaussian_noise_agrees_with_the_definition",
    ),
    (
        "metrics/infidelity.py",
        "found / cost.square().mean()",
        "found / share.square().mean()",
        "test_gaussian_noise_agrees_with_the_definition",
    ),
    (
        "metrics/infidelity.py",
        "max(1, n * p // 100)",
        "max(1, n * p // 10)",
        "test_there_are_200_sets_where_every_percentage_is_a_size_of_its_own",
    ),
    (
        "metrics/infidelity.py",
        "moved = leaf[own] - torch.cat",
        "moved = leaf[own] + torch.cat",
        "test_the_gradient_is_exact_for_noise_on_a_linear_model",
    ),
    (
        "metrics/infidelity.py",
        'domain.reduce(noise(i), "sum").flatten() * free[i // k]',
        'domain.reduce(noise(i), "sum").flatten()',
        "test_gaussian_noise_agrees_with_the_definition",
    ),
    (
        "metrics/infidelity.py",
        "a.output != self.output",
        "a.output == self.output",
        "test_the_gradient_is_exact_for_noise_on_a_linear_model",
    ),
    (
        "metrics/infidelity.py",
        "(cost - share).square().mean()",
        "(cost + share).square().mean()",
        "test_the_gradient_is_exact_for_noise_on_a_linear_model",
    ),
    (
        "metrics/infidelity.py",
        "units = probe.units(self.units, batch)",
        'units = probe.units("site", batch)',
        "test_random_sets_of_words_agree_with_the_definition",
    ),
    (
        "domain/text.py",
        "for k in range(n - length + 1)]",
        "for k in range(n - length)]",
        "test_windows_of_units_agree_with_the_definition",
    ),
    (
        "domain/text.py",
        "len(run) == 1 or len(set().union(*(parts[u] for u in run))) == 1",
        "len(run) > 0",
        "test_words_of_one_token_are_tokens",
    ),
    (
        "domain/image.py",
        "cells[top:bottom, left:right]",
        "cells[left:right, top:top + 1]",
        "test_windows_of_units_agree_with_the_definition",
    ),
    (
        "domain/image.py",
        "found = dict.fromkeys(",
        "found = list(",
        "test_no_square_of_cells_counts_twice",
    ),
)


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


def slow_infidelity(toys, model, batch, row, heat, *, weight=1.0, masks=None, output="logit", **options):
    clean = toys.ask(model, batch, row, torch.ones(heat.numel(), dtype=torch.bool), output)
    masks = slow_windows(toys, model, batch, row) if masks is None else masks
    cost = np.array([clean - toys.ask(model, batch, row, keep, output) for keep in masks])
    share = np.array([float((heat.flatten() * weight)[~keep].sum()) for keep in masks])
    return slow_mean_square(cost, share, **options)


def slow_mean_square(cost, share, *, scale="optimal", centered=False, normalised=False):
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
    chosen = metric._drawn(batch.streams, 0, windows.box.shape[1])
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
    with pytest.raises(NotApplicable, match="does not depend on the window"):
        toys.score("infidelity(fill=remove, perturbation=difference)", model, batch, toys.random_maps(model, batch, 1))


# -- random sets, as M4 has them for long texts -----------------------------------------------------------------


def slow_random_masks(model, batch, row):
    """40 sets of each of 1 to 5 % of the sites, never special ones; at least one site, and no set twice."""
    free = model.domain.deletable(batch.x)[row].nonzero().flatten()
    n = len(free)
    wanted = {}
    for percent in range(1, 6):
        size = max(1, n * percent // 100)
        wanted[size] = wanted.get(size, 0) + 40
    masks = []
    for size, many in wanted.items():
        for subset in subsets(batch.streams, row, n, size, many):
            keep = torch.ones(model.domain.deletable(batch.x).shape[1], dtype=torch.bool)
            keep[free[subset()]] = False
            masks.append(keep)
    return masks


@pytest.mark.parametrize("options", [{}, {"scale": "none", "centered": True}, {"output": "prob"}])
def test_random_sets_agree_with_the_definition(toys, options):
    model = toys.words(bent=True)
    batch = toys.sentences(model, (130, 41, 7))
    maps = toys.random_maps(model, batch, 2)
    spec = ", ".join(["sets=random", *(f"{k}={str(v).lower()}" for k, v in options.items())])
    maps = Maps([replace(a, output=options.get("output", "logit")) for a in maps.items], model.domain, batch)
    got = toys.score(f"infidelity({spec})", model, batch, maps).value
    for i in range(3):
        masks = slow_random_masks(model, batch, i)
        for j in range(2):
            expected = slow_infidelity(toys, model, batch, i, maps.sites()[j, i], masks=masks, **options)
            assert got[j, i] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_random_sets_weigh_sites_by_their_difference(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1)
    got = toys.score("infidelity(sets=random, perturbation=difference)", model, batch, maps).value
    for i in range(3):
        weight = batch.x["pixels"][i].sum(0).flatten()
        masks = slow_random_masks(model, batch, i)
        expected = slow_infidelity(toys, model, batch, i, maps.sites()[0, i], masks=masks, weight=weight)
        assert got[0, i] == pytest.approx(expected, rel=1e-9)


def test_there_are_200_sets_where_every_percentage_is_a_size_of_its_own():
    assert set_sizes(1000) == {10: 40, 20: 40, 30: 40, 40: 40, 50: 40}
    assert set_sizes(130) == {1: 40, 2: 40, 3: 40, 5: 40, 6: 40}
    assert set_sizes(20) == {1: 200} and set_sizes(0) == {}


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize(
    "spec",
    [
        "infidelity",
        "infidelity(samples=7)",
        "infidelity(sets=random)",
        "infidelity(sets=random, samples=3)",
        "infidelity(perturbation=gaussian, samples=5)",
        "infidelity(units=cell)",
        "infidelity(units={large})",
        "infidelity(units={large}, samples=2)",
        "infidelity(units={large}, sets=random)",
    ],
)
def test_a_plan_names_as_many_as_are_asked(toys, kind, spec):
    model, batch = toys.stage(kind)
    probe = toys.probe_on(model)
    spec = spec.format(large={"image": "grid(3)", "text": "word"}[kind])
    unit = toys.metric(spec).resolve(model.domain)
    unit(probe, batch, toys.random_maps(model, batch, 3))
    shapes = [Shape(model.domain, batch.x.take(torch.tensor([i]))) for i in range(3)]
    assert probe.spent.forwards == sum(len(unit.asks(shape, "any")) for shape in shapes)


def test_fewer_drawn_windows_are_some_of_more(toys):
    """So that a plan may count them once."""
    metric = toys.metric("infidelity(samples=9)")
    streams = toys.pictures(toys.linear(), 1).streams
    drawn = [set(replace(metric, samples=k)._drawn(streams, 0, 50).tolist()) for k in (3, 9, 30)]
    assert all(few < more for few, more in pairwise(drawn))


# -- noise -------------------------------------------------------------------------------------------------------


def noises(batch, leaf, row, samples, sigma):
    """The noise that a sample gets, draw by draw."""
    rngs = [batch.streams.generator(row, f"infidelity-noise {k}") for k in range(samples)]
    return [sigma * torch.randn(leaf.shape[1:], generator=rng, dtype=torch.float64) for rng in rngs]


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("options", [{}, {"scale": "none"}, {"centered": True}, {"normalised": True}])
def test_gaussian_noise_agrees_with_the_definition(toys, kind, options):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    spec = "".join(f", {k}={str(v).lower()}" for k, v in options.items())
    got = toys.score(f"infidelity(perturbation=gaussian, samples=6, sigma=0.5{spec})", model, batch, maps).value
    leaf = model.domain.leaf(batch.x).detach()
    free = model.domain.deletable(batch.x)
    for i in range(3):
        x, t = batch.x.take(torch.tensor([i])), batch.target[i]
        cost, change = [], []
        for noise in noises(batch, leaf, i, 6, 0.5):
            if kind == "text":
                noise = noise * free[i][:, None]
            moved = model.domain.with_leaf(x, leaf[i : i + 1] - noise)
            with torch.no_grad():
                cost.append(float(model.logits(x)[0, t] - model.logits(moved)[0, t]))
            change.append(noise.sum(0 if kind == "image" else 1).flatten())
        for j in range(2):
            share = [float((maps.sites()[j, i] * c).sum()) for c in change]
            expected = slow_mean_square(np.array(cost), np.array(share), **options)
            assert got[j, i] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("scale", ["none", "optimal"])
def test_gaussian_noise_agrees_with_captum(toys, scale):
    """One channel, where a number per site is a number per input: the same noise gives the same infidelity."""
    from captum.metrics import infidelity

    model = toys.bent(1, 6)
    batch = toys.pictures(model, 3)
    maps = toys.random_maps(model, batch, 1)
    got = toys.score(f"infidelity(perturbation=gaussian, samples=8, scale={scale})", model, batch, maps).value[0]
    drawn = torch.stack([n for i in range(3) for n in noises(batch, batch.x["pixels"], i, 8, 0.2)])
    expected = infidelity(
        model.module(),
        lambda x: (drawn, x - drawn),
        batch.x["pixels"],
        maps.items[0].values[:, None],
        target=batch.target,
        n_perturb_samples=8,
        normalize=scale == "optimal",
    )
    assert got.tolist() == pytest.approx(expected.flatten().tolist(), rel=1e-9)


def test_the_gradient_is_exact_for_noise_on_a_linear_model(toys):
    model = toys.linear(1, 6)
    batch = toys.pictures(model, 3)
    maps = toys.methods(model, batch, "saliency", "input_x_gradient")
    got = toys.score("infidelity(perturbation=gaussian, samples=6, scale=none)", model, batch, maps).value
    assert got[0].max() < 1e-12 and got[1].min() > 1e-6


def test_noise_is_asked_once_for_all_methods_and_metrics(toys):
    model, batch = toys.stage("image")
    probe = toys.probe_on(model)
    for options in ("", ", scale=none", ", normalised=true"):
        spec = f"infidelity(perturbation=gaussian, samples=5{options})"
        toys.score(spec, model, batch, toys.random_maps(model, batch, 4), probe)
    assert probe.spent.forwards == 3 * 6


def test_noise_belongs_to_the_sample(toys):
    model, batch = toys.stage("text")
    spec = "infidelity(perturbation=gaussian, samples=5)"
    every = toys.score(spec, model, batch, toys.random_maps(model, batch, 2)).value
    for i in range(3):
        part = batch.take([i])
        assert torch.equal(toys.score(spec, model, part, toys.random_maps(model, part, 2)).value[:, 0], every[:, i])


# -- facts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["image", "text"])
def test_it_is_what_the_angle_leaves_over(toys, kind):
    """INFD = E[Δ²] · (1 − cos²(Δ, s)), and the least-squares map has the smallest there is."""
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 3)
    probe = toys.probe_on(model)
    best = []
    for i in range(3):
        masks = np.stack([~keep.numpy() for keep in slow_windows(toys, model, batch, i)]).astype(float)
        clean = toys.ask(model, batch, i, torch.ones(masks.shape[1], dtype=torch.bool))
        cost = np.array([clean - toys.ask(model, batch, i, torch.from_numpy(m == 0)) for m in masks])
        got = toys.score("infidelity", model, batch, maps, probe).value[:, i]
        for j in range(3):
            share = masks @ maps.sites()[j, i].numpy()
            cosine = cost @ share / np.linalg.norm(cost) / np.linalg.norm(share)
            assert got[j] == pytest.approx((cost**2).mean() * (1 - cosine**2), rel=1e-9)
        best.append(torch.from_numpy(np.linalg.pinv(masks.T @ masks) @ masks.T @ cost))
    oracle = model.domain.as_map(torch.stack(best), batch.x)
    for spec in ("infidelity", "infidelity(scale=none)"):
        least = toys.score(spec, model, batch, toys.maps_of(model, batch, oracle), probe).value[0]
        near = [oracle + 0.01 * a.values for a in maps.items]
        other = toys.score(spec, model, batch, toys.maps_of(model, batch, *near), probe).value
        assert (least <= other + 1e-12).all()


def test_a_map_at_its_word_must_speak_of_the_same_output(toys):
    model, batch = toys.stage("image")
    a, b, c = toys.random_maps(model, batch, 3).items
    maps = Maps([a, replace(b, output="prob"), replace(c, signed=False)], model.domain, batch)
    assert toys.score("infidelity", model, batch, maps).status == (("ok",) * 3,) * 3
    scores = toys.score("infidelity(scale=none)", model, batch, maps)
    assert scores.status[0] == ("ok",) * 3
    assert "reads the logit, but the maps of method 1 explain the prob" in scores.status[1][0]
    assert "those of method 2 are unsigned" in scores.status[2][0]
    with pytest.raises(NotApplicable, match="explain the prob"):
        toys.score("infidelity(scale=none)", model, batch, maps.only([1]))
    assert toys.score("infidelity(scale=none, output=prob)", model, batch, maps).status[1] == ("ok",) * 3


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("infidelity(perturbation=gaussian)", "needs a number of draws"),
        ("infidelity(sigma=0)", "sigma=0.0 must be above 0"),
        ("infidelity(sets=rings)", "sets='rings' is not one of windows, random"),
    ],
)
def test_bad_parameters_are_refused(toys, spec, said):
    with pytest.raises(SpecError, match=said):
        toys.metric(spec)


# -- units -------------------------------------------------------------------------------------------------------


def unit_stage(toys, units):
    """A model and samples with units of several sizes: the number of each site's unit beside them."""
    if units.startswith("grid"):
        model, batch = toys.stage("image")
        side = int(units[5:-1])
        place, cell = torch.arange(36), 6 // side
        return model, batch, (place // 6 // cell * side + place % 6 // cell).expand(3, 36)
    model = toys.words(bent=True)
    batch = toys.sentences(model, (17, 9, 12))
    place = torch.arange(19).expand(3, 19) - 1
    word = torch.where(batch.x["special"], -1, place * 2 // 3)
    batch = replace(batch, x=batch.x.replace(word=word, sentence=torch.where(word < 0, -1, word // 3)))
    return model, batch, batch.x[units]


def slow_unit_windows(number, units):
    """Keep masks of all windows of units, from the words of the documentation."""
    n = int(number.max()) + 1
    if units.startswith("grid"):
        side = int(units[5:-1])
        sizes = sorted({max(1, round(side * k / 7)) for k in (1, 2, 4)})
        windows = [
            [y * side + x for y in range(top, top + size) for x in range(left, left + size)]
            for size in sizes
            for top in range(side - size + 1)
            for left in range(side - size + 1)
        ]
    else:
        windows = [list(range(k, k + size)) for size in range(1, 6) for k in range(n - size + 1)]
    return [torch.tensor([int(u) not in window for u in number]) for window in windows]


@pytest.mark.parametrize("units", ["word", "sentence", "grid(3)", "grid(6)"])
@pytest.mark.parametrize(
    "options", [{}, {"scale": "none"}, {"centered": True, "normalised": True}, {"perturbation": "difference"}]
)
def test_windows_of_units_agree_with_the_definition(toys, units, options):
    model, batch, number = unit_stage(toys, units)
    maps = toys.random_maps(model, batch, 2)
    spec = ", ".join([f"units={units}", *(f"{k}={str(v).lower()}" for k, v in options.items())])
    got = toys.score(f"infidelity({spec})", model, batch, maps).value
    leaf = model.domain.leaf(batch.x).detach()
    blank = 0 if units.startswith("grid") else model.module().emb.weight[0].detach()
    change = leaf.sum(1).flatten(1) if units.startswith("grid") else (leaf - blank).sum(-1)
    how = {k: v for k, v in options.items() if k != "perturbation"}
    for i in range(3):
        masks = slow_unit_windows(number[i], units)
        weight = change[i] if "perturbation" in options else 1.0
        for j in range(2):
            heat = maps.sites()[j, i]
            expected = slow_infidelity(toys, model, batch, i, heat, masks=masks, weight=weight, **how)
            assert got[j, i] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("units", ["word", "sentence", "grid(3)"])
def test_random_sets_of_words_agree_with_the_definition(toys, units):
    """200 different sets of 1 to 5 % of the units, which is one of them on these short samples: each unit once."""
    model, batch, number = unit_stage(toys, units)
    maps = toys.random_maps(model, batch, 2)
    got = toys.score(f"infidelity(sets=random, units={units})", model, batch, maps).value
    for i in range(3):
        masks = [number[i] != u for u in range(int(number[i].max()) + 1)]
        for j in range(2):
            expected = slow_infidelity(toys, model, batch, i, maps.sites()[j, i], masks=masks)
            assert got[j, i] == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_random_sets_hold_a_share_of_the_words(toys):
    model = toys.words(bent=True)
    batch = toys.sentences(model, (130,))  # 65 words
    maps = toys.random_maps(model, batch, 2)
    probe = toys.probe_on(model)
    got = toys.score("infidelity(sets=random, units=word)", model, batch, maps, probe).value
    word, masks = batch.x["word"][0], []
    assert set_sizes(65) == {1: 120, 2: 40, 3: 40}
    for size, many in set_sizes(65).items():
        for subset in subsets(batch.streams, 0, 65, size, many):
            masks.append(~torch.isin(word, subset().nonzero().flatten()))
    assert probe.spent.forwards == 1 + len(masks) == 1 + 65 + 80
    for j in range(2):
        expected = slow_infidelity(toys, model, batch, 0, maps.sites()[j, 0], masks=masks)
        assert got[j, 0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("more", ["", ", samples=4", ", sets=random", ", centered=true"])
@pytest.mark.parametrize("parted", [False, True])
def test_words_of_one_token_are_tokens(toys, more, parted):
    """Also where a special token parts a pair of texts, over which no window reaches."""
    model = toys.words(bent=True)
    batch = toys.sentences(model, (8, 5))
    special = batch.x["special"].clone()
    special[:, 4] |= parted
    word = torch.where(special, -1, (~special).long().cumsum(1) - 1)
    batch = replace(batch, x=batch.x.replace(special=special, word=word))
    maps = toys.random_maps(model, batch, 3)
    probe = toys.probe_on(model)
    tokens = toys.score(f"infidelity(scale=optimal{more})", model, batch, maps, probe).value
    asked = probe.spent.forwards
    words = toys.score(f"infidelity(units=word{more})", model, batch, maps, probe).value
    assert torch.allclose(tokens, words, rtol=1e-9)
    assert probe.spent.forwards == asked, "the questions are the same"


@pytest.mark.parametrize("method", ["integrated_gradients(steps=2, baseline=zero)", "input_x_gradient"])
@pytest.mark.parametrize("sets", ["windows", "random"])
@pytest.mark.parametrize("units", ["token", "word", "sentence"])
def test_on_a_linear_bag_of_words_the_true_map_has_none(toys, units, sets, method):
    model = toys.words()
    with torch.no_grad():
        model.module().emb.weight[0] = 0  # padding
    _, batch, _ = unit_stage(toys, "word")
    batch = replace(batch, target=toys.batch_of(model, batch.x).target)
    true, other = toys.methods(model, batch, method), toys.random_maps(model, batch, 1)
    for scale in ("optimal", "none"):
        spec = f"infidelity(units={units}, sets={sets}, scale={scale})"
        assert toys.score(spec, model, batch, true).value.abs().max() < 1e-12
        assert toys.score(spec, model, batch, other).value.min() > 1e-4


@pytest.mark.parametrize("units", ["word", "grid(3)"])
def test_units_are_asked_once(toys, units):
    model, batch, _ = unit_stage(toys, units)
    maps = toys.random_maps(model, batch, 3)
    probe = toys.probe_on(model)
    first = toys.score(f"infidelity(units={units})", model, batch, maps, probe).value
    asked = probe.spent.forwards
    assert torch.equal(toys.score(f"infidelity(units={units})", model, batch, maps, probe).value, first)
    assert probe.spent.forwards == asked
    for i in range(3):
        part = batch.take([i])
        alone = toys.score(f"infidelity(units={units})", model, part, toys.random_maps(model, part, 3)).value
        assert torch.equal(alone[:, 0], first[:, i])


def test_no_square_of_cells_counts_twice(toys):
    """On a grid of 4 × 4 two of the three sizes are one cell."""
    model, batch = toys.stage("image")
    units = model.domain.units("grid(4)", batch.x)
    assert len(model.domain.unit_windows(units, batch.x)[0]) == 16 + 9


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("image", "infidelity(units=slic(4))", "are made of grid units, not of slic.4.; sets=random takes any"),
        ("image", "infidelity(units=word)", "units='word' do not exist for a image"),
        ("text", "infidelity(units=word, perturbation=gaussian, samples=3)", "noise is added to every token"),
    ],
)
def test_units_without_windows_or_under_noise_are_reasons(toys, kind, spec, said):
    model, batch = toys.stage(kind)
    with pytest.raises(NotApplicable, match=said):
        toys.score(spec, model, batch, toys.random_maps(model, batch, 1))


def test_on_sites_the_name_and_the_identity_are_those_without_units(toys):
    """Stored results were filed under them before there were units."""
    for kind, site in (("image", "pixel"), ("text", "token")):
        domain = toys.stage(kind)[0].domain
        plain = toys.metric("infidelity").resolve(domain)
        for units in ("site", site):
            own = toys.metric(f"infidelity(units={units})").resolve(domain)
            assert own == plain and "units" not in own.name and "units" not in own.identity()["params"]
    word = toys.metric("infidelity(units=word)").resolve(domain)
    assert word.identity()["params"]["units"] == "word" and "units=word" in word.name
