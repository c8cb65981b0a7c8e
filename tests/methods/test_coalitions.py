"""What games over units share: ends that are asked once, masks made call by call, plans that hold."""

import pytest
import torch

from heatcheck.core import catalogue
from heatcheck.domain.base import Units
from heatcheck.methods.coalitions import Game, all_sets
from heatcheck.probe.asks import CLEAN, Shape, passes_of
from heatcheck.testing.models import bag_of_words, text_inputs
from heatcheck.testing.scenes import batch_of, probe_for

MUTANTS = (
    (
        "methods/coalitions.py",
        "spread(kept(own, which[i]), outside=1)",
        "spread(kept(own, which[i]), outside=0)",
        "test_a_rim_is_never_deleted_and_gets_nothing",
    ),
    (
        "methods/coalitions.py",
        "(i % 2 == 0)[:, None]",
        "(i % 2 == 1)[:, None]",
        "test_a_rim_is_never_deleted_and_gets_nothing",
    ),
    (
        "methods/coalitions.py",
        "torch.arange(2**units).flip(0)",
        "torch.arange(2**units)",
        "test_sets_are_all_there_once",
    ),
    (
        "methods/coalitions.py",
        "if left_over.any() else",
        "if left_over.all() else",
        "test_plans_know_what_is_shared_with_metrics",
    ),
)


GAMES = ["shapley_sampling(samples=2{})", "kernel_shap(samples=30{})", "partition_shap(samples=30{})"]


@pytest.mark.parametrize("spec", GAMES)
@pytest.mark.parametrize("extra", ["", ", units=grid(3)", ", fill=uniform", ", fill=uniform, units=grid(3)"])
def test_plans_hold_with_rims_and_random_fills(lab, spec, extra):
    model, samples = lab.wrap(lab.network()), lab.batch(lab.pictures(2))
    component = catalogue.build("method", spec.format(extra)).resolve(model.domain)
    for batch in (samples, samples.with_inputs(samples.x)):
        probe = probe_for(model)
        component(probe, batch)
        shape = Shape(model.domain, samples.x.take(slice(0, 1)))
        assert 2 * passes_of(component.asks(shape), component.passes(shape))[0] == probe.spent.forwards
        assert component.passes(shape)[1] == probe.spent.backwards == 0


@pytest.mark.parametrize("spec", GAMES)
@pytest.mark.parametrize(("extra", "shared"), [("", 2), (", units=grid(3)", 1), (", fill=uniform", 1)])
def test_plans_know_what_is_shared_with_metrics(lab, spec, extra, shared):
    """The deletion of everything is no news, unless a rim stays or a random fill is drawn anew."""
    model, samples = lab.wrap(lab.network()), lab.batch(lab.pictures(1))
    component = catalogue.build("method", spec.format(extra)).resolve(model.domain)
    shape = Shape(model.domain, samples.x)
    probe = probe_for(model)
    probe.clean(samples)
    probe.deleted(samples, component.fill)
    known = {CLEAN, ("full", component.fill)}
    before = probe.spent.forwards
    component(probe, samples)
    assert probe.spent.forwards - before == len(component.asks(shape) - known) + component.passes(shape)[0]
    assert len(component.asks(shape) & known) == shared


@pytest.mark.parametrize("spec", GAMES)
def test_texts_without_words_cost_one_look(spec):
    toy = bag_of_words()
    samples = batch_of(toy, text_inputs(torch.tensor([], dtype=torch.long), 12))
    component = catalogue.build("method", spec.format("")).resolve(toy.domain)
    probe = probe_for(toy)
    component(probe, samples)
    shape = Shape(toy.domain, samples.x)
    assert passes_of(component.asks(shape), component.passes(shape))[0] == probe.spent.forwards == 1


@pytest.mark.parametrize("spec", GAMES)
@pytest.mark.parametrize("fill", ["zero", "uniform"])
def test_a_rim_is_never_deleted_and_gets_nothing(lab, spec, fill):
    """Values sum to what deleting all units, and only those, costs; with the very noise that stands in for them."""
    model, samples = lab.wrap(lab.network()), lab.batch(lab.pictures(2))
    component = catalogue.build("method", spec.format(f", units=grid(3), fill={fill}"))
    probe = probe_for(model)
    got = component(probe, samples).values
    game = Game(probe, samples, probe.units("grid(3)", samples), fill, "logit")
    whole, _ = game.ends()
    (nothing,) = torch.stack(game.play([1, 1], lambda rows, which: torch.zeros(len(rows), 9, dtype=torch.bool))).T
    torch.testing.assert_close(got.sum((1, 2)), whole - nothing, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(game.ends()[1], nothing, rtol=0, atol=1e-12)
    assert (got[:, 6:] == 0).all() and (got[:, :, 6:] == 0).all()


def test_answers_come_back_to_whom_they_belong(lab):
    """Uneven numbers of questions, none for one sample, in calls that mix samples."""
    model, samples = lab.wrap(lab.network()), lab.batch(lab.pictures(3))
    sets = all_sets(4)
    game = Game(probe_for(model, forward=4), samples, model.domain.units("grid(2)", samples.x), "zero", "logit")
    heard = game.play([5, 0, 16], lambda rows, which: sets[which])
    assert [len(y) for y in heard] == [5, 0, 16]
    for i, y in enumerate(heard):
        for z, got in zip(sets, y, strict=False):
            keep = z.reshape(2, 2).repeat_interleave(4, 0).repeat_interleave(4, 1)
            want = model.module()((samples.x["pixels"][i] * keep)[None])[0, samples.target[i]]
            torch.testing.assert_close(got, want.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spec", GAMES)
def test_masks_are_never_all_in_memory(lab, spec, monkeypatch):
    model, samples = lab.wrap(lab.network()), lab.batch(lab.pictures(2))
    largest = []
    real = Units.spread
    monkeypatch.setattr(Units, "spread", lambda self, v, outside=0.0: largest.append(len(v)) or real(self, v, outside))
    catalogue.build("method", spec.format(""))(probe_for(model, forward=8), samples)
    assert max(largest) == 8


@pytest.mark.parametrize("spec", GAMES)
def test_noise_around_a_game_costs_what_the_plan_says(lab, spec):
    model, samples = lab.wrap(lab.network()), lab.batch(lab.pictures(1))
    component = catalogue.build("method", f"smoothgrad(samples=2, of={spec.format('')})").resolve(model.domain)
    probe = probe_for(model)
    component(probe, samples)
    shape = Shape(model.domain, samples.x)
    assert passes_of(component.asks(shape), component.passes(shape))[0] == probe.spent.forwards


def test_sets_are_all_there_once():
    sets = all_sets(3)
    assert sets[0].all() and not sets[-1].any() and len({tuple(s) for s in sets.tolist()}) == 8


@pytest.mark.parametrize("spec", GAMES)
def test_seeds_matter_and_order_does_not(lab, spec):
    net, x = lab.network(), lab.pictures(3)
    a = lab.explain(spec.format(""), net, lab.batch(x, [0, 1, 0])).values
    b = lab.explain(spec.format(""), net, lab.batch(x.flip(0), [0, 1, 0])).values
    assert torch.equal(a, b.flip(0))
    assert not torch.equal(a, lab.explain(spec.format(""), net, lab.batch(x, [0, 1, 0], seed=1)).values)
