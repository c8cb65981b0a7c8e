"""Randomised weights, against a slow loop over models made by hand."""

import pytest
import torch
from scipy import stats

from heatcheck import catalogue
from heatcheck.spec import SpecError
from heatcheck.types import Attribution, NotApplicable, digest_of


def slow_mprt(toys, model, batch, spec, stages, seed=0):
    """Spearman of a method's map with that of each randomised model; `stages` list the layers drawn anew."""
    method = catalogue.build("method", spec)
    free = model.domain.deletable(batch.x)
    before = method(toys.probe_on(model), batch).values.flatten(1)
    out = []
    for names in stages:
        twin = model
        for name in names:
            twin = twin.randomised(name, int(digest_of(f"{seed}", "mprt", name)[:15], 16))
        after = method(toys.probe_on(twin), batch).values.flatten(1)
        out.append([stats.spearmanr(before[i][free[i]], after[i][free[i]]).statistic for i in range(len(batch))])
    return torch.tensor(out, dtype=torch.float64).T


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("order", ["top_down", "bottom_up", "independent"])
def test_agrees_with_the_definition(toys, kind, order):
    model, batch = toys.stage(kind)
    names = model.weighted_layers()
    spec = "input_x_gradient"
    got = toys.score(f"mprt(order={order})", model, batch, toys.methods(model, batch, spec))
    walk = names[::-1] if order != "bottom_up" else names
    stages = [[n] for n in walk] if order == "independent" else [walk[: k + 1] for k in range(len(walk))]
    expected = slow_mprt(toys, model, batch, spec, stages)
    assert torch.allclose(got.curve[0], expected, atol=1e-12)
    assert torch.allclose(got.value[0], expected.mean(1), atol=1e-12)
    assert got.share == tuple((k + 1) / len(walk) for k in range(len(walk)))


def test_fewer_layers_are_spread_evenly_and_cascade_through_those_between(toys):
    model, batch = toys.stage("text")
    top = model.weighted_layers()[::-1]
    assert len(top) == 3
    got = toys.score("mprt(layers=2)", model, batch, toys.methods(model, batch, "input_x_gradient"))
    expected = slow_mprt(toys, model, batch, "input_x_gradient", [top[:1], top])
    assert torch.allclose(got.curve[0], expected, atol=1e-12)
    assert got.share == (1 / 3, 1.0)


def test_a_map_that_ignores_the_weights_does_not_change(toys):
    model, batch = toys.stage("image")
    fixed = toys.random_maps(model, batch, 1)
    fixed.explainers = [lambda probe, part: fixed.items[0]]
    assert toys.score("mprt", model, batch, fixed).value.tolist() == [pytest.approx([1.0, 1.0, 1.0])]


def test_constant_maps(toys):
    """A constant map has no ranking to lose; one that becomes constant has lost it."""
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 2)
    flat = Attribution(torch.ones(3, 6, 6, dtype=torch.float64), batch.target, "flat")
    maps.items = [flat, maps.items[1]]
    maps.explainers = [lambda probe, part: maps.items[1], lambda probe, part: flat]
    scores = toys.score("mprt", model, batch, maps)
    assert scores.status == (("undefined: all units of the map are equal",) * 3, ("ok",) * 3)
    assert scores.value[1].tolist() == [0.0, 0.0, 0.0]


def test_the_same_draws_whatever_the_batch(toys):
    model, batch = toys.stage("image")
    together = toys.score("mprt", model, batch, toys.methods(model, batch, "input_x_gradient", "saliency"))
    for i in range(3):
        part = batch.take([i])
        alone = toys.score("mprt", model, part, toys.methods(model, part, "input_x_gradient"))
        assert torch.equal(alone.value[0], together.value[0, i : i + 1])


def test_the_model_itself_is_untouched(toys):
    model, batch = toys.stage("image")
    before = model.identity
    toys.score("mprt", model, batch, toys.methods(model, batch, "saliency"))
    del model.__dict__["identity"]
    assert model.identity == before


def test_brought_maps_do_not_apply(toys):
    model, batch = toys.stage("image")
    with pytest.raises(NotApplicable, match="without a method"):
        toys.score("mprt", model, batch, toys.random_maps(model, batch, 1))


def test_no_layers_are_refused(toys):
    with pytest.raises(SpecError, match="layers=0"):
        toys.metric("mprt(layers=0)")
