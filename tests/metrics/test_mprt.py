"""Randomised weights, against a slow loop over models made by hand."""

import gc
import weakref

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Attribution, NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.models.black_box import CallableModel
from heatcheck.models.torch_model import TorchModel
from heatcheck.probe.asks import Shape

MUTANTS = (
    (
        "metrics/mprt.py",
        'walk = names if self.order == "bottom_up" else names[::-1]',
        "walk = names",
        "test_fewer_layers_are_spread_evenly_and_cascade_through_those_between",
    ),
    (
        "metrics/mprt.py",
        'walk[k : k + 1] if self.order == "independent"',
        "walk[:1] if False",
        "test_agrees_with_the_definition",
    ),
    (
        "metrics/mprt.py",
        'gaussian, self.noise, "mprt")',
        'gaussian, 0.0, "mprt")',
        "test_smooth_compares_means_over_noisy_copies",
    ),
    ("metrics/mprt.py", "undefined((was - now) / was", "undefined((now - was) / was", "test_efficient_closed_form"),
    ("metrics/similarity.py", "stack(each, 1).nan_to_num(0.0)", "stack(each, 1).nan_to_num(1.0)", "test_constant_maps"),
    (
        "metrics/mprt.py",
        "-(share * np.log(share)).sum()",
        "-(share * np.log2(share)).mean()",
        "test_efficient_closed_form",
    ),
    (
        "metrics/mprt.py",
        "round(i * (len(walk) - 1) / max(1, n - 1))",
        "round(i * (len(walk) - 1) / n)",
        "test_fewer_layers_are_spread_evenly_and_cascade_through_those_between",
    ),
    (
        "metrics/mprt.py",
        "values.mean(-1), varied(before, units)",
        "values.amax(-1), varied(before, units)",
        "test_agrees_with_the_definition",
    ),
)
SPEC = "input_x_gradient"


def heat(model, batch, toys, spec=SPEC):
    return catalogue.build("method", spec)(toys.probe_on(model), batch).values.flatten(1).detach()


def slow_mprt(toys, model, batch, stages, spec=SPEC, seed=0):
    """Spearman of a method's map with that of each randomised model; `stages` list the layers drawn anew."""
    free = model.domain.deletable(batch.x)
    before = heat(model, batch, toys, spec)
    out = []
    for names in stages:
        twin = model
        for name in names:
            twin = twin.randomised(name, seed)
        after = heat(twin, batch, toys, spec)
        out.append([stats.spearmanr(before[i][free[i]], after[i][free[i]]).statistic for i in range(len(batch))])
    return torch.tensor(out, dtype=torch.float64).T


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("order", ["top_down", "bottom_up", "independent"])
def test_agrees_with_the_definition(toys, kind, order):
    model, batch = toys.stage(kind)
    names = model.weighted_layers(batch.x)
    got = toys.score(f"mprt(order={order})", model, batch, toys.methods(model, batch, SPEC))
    walk = names[::-1] if order != "bottom_up" else names
    stages = [[n] for n in walk] if order == "independent" else [walk[: k + 1] for k in range(len(walk))]
    expected = slow_mprt(toys, model, batch, stages)
    assert torch.allclose(got.curve[0], expected, atol=1e-12)
    assert torch.allclose(got.value[0], expected.mean(1), atol=1e-12)
    assert got.share == tuple((k + 1) / len(walk) for k in range(len(walk)))


def deep(layers=6):
    """A network with more layers than the metric stops at by default."""
    body = [m for _ in range(layers - 1) for m in (nn.Linear(36, 36), nn.Tanh())]
    network = nn.Sequential(nn.Flatten(), *body, nn.Linear(36, 3)).double()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.randn(p.shape, generator=rng, dtype=torch.float64) / 4)
    return TorchModel(network, "deep", ImageDomain())


def test_fewer_layers_are_spread_evenly_and_cascade_through_those_between(toys):
    model = deep(6)
    batch = toys.pictures(model, 2)
    top = model.weighted_layers(batch.x)[::-1]
    got = toys.score("mprt(layers=3)", model, batch, toys.methods(model, batch, SPEC))
    assert torch.allclose(got.curve[0], slow_mprt(toys, model, batch, [top[:1], top[:3], top]), atol=1e-12)
    assert got.share == (1 / 6, 3 / 6, 1.0)


@pytest.mark.parametrize(("layers", "stops"), [(0, 6), (1, 1), (4, 4), (9, 6)])
def test_the_plan_knows_how_many_layers_there_are(toys, layers, stops):
    """Nought stands for all of them."""
    model = deep(6)
    batch = toys.pictures(model, 1)
    probe = toys.probe_on(model)
    unit = toys.metric(f"mprt(layers={layers})")
    maps = toys.methods(model, batch, "saliency")
    assert unit(probe, batch, maps).curve.shape[-1] == stops
    assert probe.spent.backwards == unit.reexplanation_count(Shape(model.domain, batch.x, model)) == stops
    assert unit.reexplanation_count(Shape(model.domain, batch.x)) == layers


@pytest.mark.parametrize("kind", ["image", "text"])
def test_smooth_compares_means_over_noisy_copies(toys, kind):
    model, batch = toys.stage(kind)
    top = model.weighted_layers(batch.x)[::-1]
    free = model.domain.deletable(batch.x)

    def smooth(twin):
        leaf = twin.domain.leaf(batch.x).detach()
        found = torch.zeros(len(batch), free.shape[1], dtype=torch.float64)
        for i in range(len(batch)):
            rng = batch.streams.generator(i, "mprt")
            own = batch.take([i])
            read = slice(None) if kind == "image" else slice(0, int(own.x["attention"].sum()))
            seen = leaf[i, read]
            for _ in range(3):
                noise = torch.zeros_like(leaf[i])
                noise[read] = torch.randn(seen.shape, generator=rng, dtype=torch.float32).double()
                noise = noise * 0.2 * (seen.max() - seen.min())
                if kind == "text":
                    noise[~free[i]] = 0
                near = own.with_inputs(twin.domain.with_leaf(own.x, (leaf[i] + noise)[None]))
                found[i] += heat(twin, near, toys)[0] / 3
        return found

    got = toys.score("mprt(variant=smooth, copies=3, noise=0.2)", model, batch, toys.methods(model, batch, SPEC))
    before = smooth(model)
    for k in range(len(top)):
        after = smooth(model.randomised(top[: k + 1], 0))
        for i in range(len(batch)):
            expected = stats.spearmanr(before[i][free[i]], after[i][free[i]]).statistic
            assert float(got.curve[0, i, k]) == pytest.approx(expected, abs=1e-12)


def test_without_noise_smooth_is_plain(toys):
    model, batch = toys.stage("image")
    maps = toys.methods(model, batch, SPEC)
    plain = toys.score("mprt", model, batch, maps).value
    assert torch.allclose(toys.score("mprt(variant=smooth, noise=0)", model, batch, maps).value, plain, atol=1e-12)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_efficient_is_minus_the_relative_rise_of_entropy(toys, kind):
    model, batch = toys.stage(kind)
    free = model.domain.deletable(batch.x)
    got = toys.score("mprt(variant=efficient, bins=5)", model, batch, toys.methods(model, batch, SPEC))
    before, after = heat(model, batch, toys), heat(model.randomised("", 0), batch, toys)
    for i in range(len(batch)):
        was, now = (stats.entropy(np.histogram(m[i][free[i]].numpy(), 5)[0]) for m in (before, after))
        assert float(got.value[0, i]) == pytest.approx(-(now - was) / was, abs=1e-12)


def test_efficient_closed_form(toys):
    """Eighteen zeros and ones become thirty-six values of their own: ln 36 instead of ln 2."""
    model, batch = toys.stage("image")
    two = torch.arange(36.0).reshape(1, 6, 6).expand(3, 6, 6) % 2
    many = torch.arange(36.0).reshape(1, 6, 6).expand(3, 6, 6)
    maps = toys.maps_of(model, batch, two.clone())
    maps.explainers = [lambda probe, part: Attribution(many.clone(), part.target)]
    got = toys.score("mprt(variant=efficient, bins=36)", model, batch, maps).value
    assert got[0].tolist() == pytest.approx([1 - np.log(36) / np.log(2)] * 3)


def test_a_map_that_ignores_the_weights_does_not_change(toys):
    model, batch = toys.stage("image")
    fixed = toys.random_maps(model, batch, 1)
    fixed.explainers = [lambda probe, part: fixed.items[0]]
    assert toys.score("mprt", model, batch, fixed).value.tolist() == [pytest.approx([1.0, 1.0, 1.0])]
    assert toys.score("mprt(variant=efficient)", model, batch, fixed).value.tolist() == [[0.0, 0.0, 0.0]]


def test_controls_that_cannot_know_the_model_are_flagged(toys):
    model, batch = toys.stage("image")
    maps = toys.methods(model, batch, "random", "sobel", "center", SPEC)
    value = toys.score("mprt", model, batch, maps).value
    assert torch.allclose(value[:3], torch.ones(3, 3, dtype=torch.float64))
    assert float(value[3].mean()) < 0.6


def test_constant_maps(toys):
    """A constant map has no ranking to lose; one that becomes constant has lost it."""
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 2)
    flat = Attribution(torch.ones(3, 6, 6, dtype=torch.float64), batch.target, "flat")
    maps.items = [flat, maps.items[1]]
    maps.explainers = [lambda probe, part: maps.items[1], lambda probe, part: flat]
    scores = toys.score("mprt", model, batch, maps)
    assert scores.status == (("undefined: the map is constant",) * 3, ("ok",) * 3)
    assert scores.value[1].tolist() == [0.0, 0.0, 0.0]
    scores = toys.score("mprt(variant=efficient)", model, batch, maps)
    assert scores.status == (("undefined: the map is constant",) * 3, ("ok",) * 3)
    assert scores.value[1].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("spec", ["mprt", "mprt(variant=smooth, copies=3)", "mprt(variant=efficient)"])
def test_the_same_draws_whatever_the_batch(toys, spec):
    model, batch = toys.stage("image")
    together = toys.score(spec, model, batch, toys.methods(model, batch, SPEC, "saliency"))
    for i in range(3):
        part = batch.take([i])
        alone = toys.score(spec, model, part, toys.methods(model, part, SPEC))
        assert torch.equal(alone.value[0], together.value[0, i : i + 1])


def test_the_model_itself_is_untouched_and_its_twins_are_freed(toys, monkeypatch):
    model, batch = toys.stage("image")
    before, twins, alive = model.identity, [], []
    make = TorchModel.randomised

    def watched(self, layer, seed):
        alive.append(sum(t() is not None for t in twins))
        twin = make(self, layer, seed)
        twins.append(weakref.ref(twin.module()))
        return twin

    monkeypatch.setattr(TorchModel, "randomised", watched)
    toys.score("mprt", model, batch, toys.methods(model, batch, "saliency"))
    del model.__dict__["identity"]
    assert model.identity == before
    assert alive == [0, 0]
    gc.collect()
    assert [t() for t in twins] == [None, None]


def test_brought_maps_and_black_boxes_do_not_apply(toys):
    model, batch = toys.stage("image")
    with pytest.raises(NotApplicable, match="without a method"):
        toys.score("mprt", model, batch, toys.random_maps(model, batch, 1))
    box = CallableModel(lambda x: x.flatten(1), "box", ImageDomain())
    for bare in (TorchModel(nn.Flatten(), "empty", ImageDomain()), box):
        maps = toys.methods(bare, toys.pictures(bare, 1), "random")
        with pytest.raises(NotApplicable, match="no weights to randomise"):
            toys.score("mprt", bare, maps.batch, maps)
        assert toys.metric("mprt").reexplanation_count(Shape(bare.domain, maps.batch.x, bare)) == 0


@pytest.mark.parametrize("wrong", ["layers=-1", "copies=0", "noise=-0.5", "bins=1", "order=sideways", "similarity=cos"])
def test_wrong_parameters_are_refused(toys, wrong):
    with pytest.raises(SpecError, match=wrong.split("=")[0]):
        toys.metric(f"mprt({wrong})")
