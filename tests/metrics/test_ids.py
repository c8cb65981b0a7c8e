"""Incremental deletion, fixed and updated, against the published procedure."""

import numpy as np
import pytest
import torch

from heatcheck.core.spec import SpecError
from heatcheck.core.types import Attribution, NotApplicable

MUTANTS = (
    (
        "metrics/ids.py",
        "gone = step_counts(units, self.steps)[:, :-1]",
        "gone = step_counts(units, self.steps)[:, 1:]",
        "test_a_linear_model_has_a_closed_form",
    ),
    (
        "metrics/ids.py",
        "mirrored(relevance_places(maps, units, self.ties), units)",
        "relevance_places(maps, units, self.ties)",
        "test_a_linear_model_has_a_closed_form",
    ),
    (
        "metrics/ids.py",
        "values = values.masked_fill(removed, torch.finfo(values.dtype).min)",
        "values = values",
        "test_updating_changes_nothing_on_a_linear_model",
    ),
    (
        "metrics/ids.py",
        "values[:, rows] = again.on(of_part).to(values.dtype)",
        "pass",
        "test_updating_matters_where_the_model_bends",
    ),
)


def slow_ids(toys, model, batch, row, explain, steps, update):
    """IDSDS's `incremental_deletion_protocol` (ascending): one input, one step at a time."""
    free = model.domain.deletable(batch.x)[row]
    gone = torch.zeros_like(free)
    points, heat = [], explain(batch, ~gone, row)
    for alpha in np.linspace(0, 1, num=steps, endpoint=False):
        if update:
            heat = explain(batch, ~gone, row)
        ranked = torch.where(gone, -torch.inf, torch.where(free, heat, torch.inf))
        take = ranked.argsort()[: int(int(free.sum()) * alpha)]
        gone = gone.clone()
        gone[take] = True
        points.append(toys.ask(model, batch, row, ~gone, "prob"))
    return np.array(points)


def erased(batch, row, keep):
    x = batch.x.take(torch.tensor([row]))
    if "pixels" in x:
        return x.replace(pixels=torch.where(keep.reshape(x["pixels"].shape[2:]), x["pixels"], 0.0))
    return x.replace(ids=torch.where(keep, x["ids"], 0), attention=torch.where(keep, x["attention"], 0))


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("steps", [5, 32])
def test_agrees_with_the_published_procedure(toys, kind, update, steps):
    model, batch = toys.stage(kind)
    maps = toys.methods(model, batch, "input_x_gradient", "input_x_gradient(output=prob)")
    got = toys.score(f"ids(steps={steps}, update={update})", model, batch, maps)

    def explainer(output):
        def explain(batch, keep, row):
            x = erased(batch, row, keep)
            leaf = model.domain.leaf(x).detach().requires_grad_()
            out = model.logits(model.domain.with_leaf(x, leaf))[0]
            out = out.softmax(0) if output == "prob" else out
            (slope,) = torch.autograd.grad(out[batch.target[row]], leaf)
            return model.domain.reduce(leaf.detach() * slope, "sum")[0].flatten()

        return explain

    for j, output in enumerate(("logit", "prob")):
        for i in range(3):
            expected = slow_ids(toys, model, batch, i, explainer(output), steps, update)
            assert got.curve[j, i].numpy() == pytest.approx(expected, abs=1e-10)
            assert got.value[j, i] == pytest.approx(expected.mean(), abs=1e-10)
    assert got.share == tuple(k / steps for k in range(steps))


def test_updating_matters_where_the_model_bends(toys):
    model, batch = toys.stage("image")
    maps = toys.methods(model, batch, "input_x_gradient")
    fixed, updated = (toys.score(f"ids(update={u})", model, batch, maps).curve for u in ("false", "true"))
    assert torch.equal(fixed[..., :2], updated[..., :2])
    assert (fixed[..., 2:] != updated[..., 2:]).any(-1).all()


def test_updating_changes_nothing_on_a_linear_model(toys):
    model, batch = toys.stage("image", bent_model=False)
    maps = toys.methods(model, batch, "input_x_gradient")
    fixed, updated = (toys.score(f"ids(update={u})", model, batch, maps).curve for u in ("false", "true"))
    assert torch.allclose(fixed, updated, atol=1e-12)


@pytest.mark.parametrize(("kind", "n"), [("image", 36), ("text", 4)])
def test_a_linear_model_has_a_closed_form(toys, kind, n):
    model, batch = toys.stage(kind, bent_model=False, n=1)
    right = toys.truth(model, batch)
    worth = right[0].flatten()[model.domain.deletable(batch.x)[0]].sort().values
    clean = toys.probe_on(model).clean(batch).read("logit")[0]
    left = clean - torch.cat([torch.zeros(1, dtype=torch.float64), worth.cumsum(0)])[:n]
    maps = toys.maps_of(model, batch, right, *(m.values for m in toys.random_maps(model, batch, 4).items))
    got = toys.score(f"ids(steps={n}, output=logit)", model, batch, maps).value[:, 0]
    assert float(got[0]) == pytest.approx(float(left.mean()), abs=1e-9)
    assert (got[1:] < got[0]).all()


def test_bounds_and_the_first_point(toys):
    model, batch = toys.stage("image")
    scores = toys.score("ids", model, batch, toys.random_maps(model, batch, 6))
    p = toys.probe_on(model).clean(batch).read("prob")
    assert torch.equal(scores.curve[..., 0], p.expand(6, -1))
    assert (scores.value >= p / 32).all() and (scores.value <= 1).all()


def test_a_map_that_fails_on_the_way_gives_a_status(toys):
    model, batch = toys.stage("image")
    maps = toys.methods(model, batch, "input_x_gradient", "saliency")
    real = maps.explainers[0]

    def breaks(probe, part):
        again = real(probe, part)
        values = again.values.clone()
        values[-1] = torch.nan
        return Attribution(values, again.target, again.method)

    maps.explainers[0] = breaks
    scores = toys.score("ids(update=true)", model, batch, maps)
    assert scores.status == (("ok", "ok", "failed: the map has NaN values"), ("ok",) * 3)
    assert scores.value[0].isnan().tolist() == [False, False, True]


def test_brought_maps_cannot_be_updated_but_do_not_stop_the_others(toys):
    model, batch = toys.stage("image")
    real = toys.methods(model, batch, "input_x_gradient")
    alone = toys.score("ids(update=true)", model, batch, real)
    mixed = toys.methods(model, batch, "saliency", "input_x_gradient")
    mixed.explainers[0] = None
    scores = toys.score("ids(update=true)", model, batch, mixed)
    assert all(s.startswith("skipped: ") and "without a method" in s for s in scores.status[0])
    assert torch.equal(scores.value[1], alone.value[0]) and scores.status[1] == ("ok",) * 3
    with pytest.raises(NotApplicable, match="passed without a method"):
        toys.score("ids(update=true)", model, batch, toys.random_maps(model, batch, 2))


def test_a_fill_that_moves_tokens_cannot_be_followed(toys):
    model, batch = toys.stage("text")
    maps = toys.methods(model, batch, "input_x_gradient")
    assert toys.score("ids(fill=remove)", model, batch, maps).status == (("ok",) * 3,)
    with pytest.raises(NotApplicable, match="moves them"):
        toys.score("ids(fill=remove, update=true)", model, batch, maps)


@pytest.mark.parametrize("update", [False, True])
def test_it_costs_what_it_says(toys, update):
    """`steps − 1` forwards beside the clean one; with `update`, `steps − 2` explanations more, each of one gradient."""
    model, batch = toys.stage("image")
    maps = toys.methods(model, batch, "input_x_gradient")
    probe = toys.probe_on(model)
    toys.score(f"ids(update={update})", model, batch, maps, probe)
    explained = 30 if update else 0
    assert probe.spent.forwards == 3 * (1 + 31 + explained)
    assert probe.spent.backwards == 3 * explained


def test_percentile_sets_are_not_offered(toys):
    with pytest.raises(SpecError, match="ties='percentile_compat'"):
        toys.metric("ids(ties=percentile_compat)")
