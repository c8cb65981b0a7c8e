"""Small steps of the input, against a slow loop, Captum and closed forms."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Attribution, Inputs, NotApplicable
from heatcheck.domain.image import ImageDomain
from heatcheck.metrics.nearby import merge_statuses
from heatcheck.models.torch_model import TorchModel
from heatcheck.probe.asks import Shape
from heatcheck.run.forecast import forecast
from heatcheck.run.grid import Labelled, ModelGrid

MUTANTS = (
    (
        "metrics/sensitivity.py",
        "steps.relative.amax(-1)",
        "steps.relative.amin(-1)",
        "test_agrees_with_captum_on_the_same_steps",
    ),
    (
        "metrics/sensitivity.py",
        "steps.relative.mean(-1)",
        "steps.relative.sum(-1)",
        "test_known_answers_on_a_linear_model",
    ),
    (
        "metrics/sensitivity.py",
        "(steps.change / steps.length).amax(-1)",
        "steps.change.amax(-1)",
        "test_a_map_that_copies_its_input_moves_as_fast",
    ),
    (
        "metrics/sensitivity.py",
        "torch.where(self.size > 0, self.size, torch.nan)",
        "torch.ones_like(self.size)",
        "test_agrees_with_captum_on_the_same_steps",
    ),
    (
        "metrics/sensitivity.py",
        "maps.cached(key,",
        'maps.cached(key.replace(self.units, ""),',
        "test_units_are_not_mixed_up",
    ),
    ("metrics/nearby.py", "domain.delete(part.x, keep, moved)", "moved", "test_agrees_with_the_definition"),
    (
        "metrics/nearby.py",
        "dtype=torch.float32) * 2 - 1",
        "dtype=torch.float32)",
        "test_agrees_with_captum_on_the_same_steps",
    ),
    (
        "metrics/nearby.py",
        "share * domain.leaf_range(batch.x)",
        "share + 0 * domain.leaf_range(batch.x)",
        "test_agrees_with_captum_on_the_same_steps",
    ),
    (
        "metrics/sensitivity.py",
        "values.square().sum(-1).sqrt()",
        "values.abs().sum(-1)",
        "test_agrees_with_captum_on_the_same_steps",
    ),
    (
        "metrics/nearby.py",
        "problem if mine[row] == OK else mine[row]",
        "problem",
        "test_a_sample_keeps_the_first_problem_of_its_copies",
    ),
)
ALL = ("max_sensitivity", "avg_sensitivity", "local_lipschitz")


def steps_of(model, batch, row, samples, radius):
    """The inputs that the metrics look at, one after another, and how far away they are."""
    rng = batch.streams.generator(row, "ball")
    own = batch.take([row])
    leaf = model.domain.leaf(own.x).detach()
    free = model.domain.deletable(own.x)[0]
    read = slice(None) if "pixels" in own.x else slice(0, int(own.x["attention"].sum()))
    seen = leaf[0, read]
    for _ in range(samples):
        step = torch.zeros_like(leaf[0])
        step[read] = (torch.rand(seen.shape, generator=rng, dtype=torch.float32) * 2 - 1).to(leaf.dtype)
        step = step * radius * (seen.max() - seen.min())
        if "pixels" not in own.x:
            step[~free] = 0
        yield own.with_inputs(model.domain.with_leaf(own.x, leaf + step)), float(step.norm())


def slow(toys, model, batch, row, spec, samples=10, radius=0.02, units=None):
    """All three numbers, one step at a time."""
    method = catalogue.build("method", spec)
    free = model.domain.deletable(batch.x)[row]

    def heat(own):
        values = method(toys.probe_on(model), own).values.flatten()[free].double()
        if units is None:
            return values
        number = own.x[units][0][free].tolist()
        return torch.stack([sum(v for v, u in zip(values, number, strict=True) if u == unit) for unit in set(number)])

    before = heat(batch.take([row]))
    moves = [(float((heat(x) - before).norm()), length) for x, length in steps_of(model, batch, row, samples, radius)]
    size = float(before.norm())
    return (
        max(m for m, _ in moves) / size,
        sum(m for m, _ in moves) / len(moves) / size,
        max(m / length for m, length in moves),
    )


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("spec", ["input_x_gradient", "smoothgrad(samples=3)"])
def test_agrees_with_the_definition(toys, kind, spec):
    model, batch = toys.stage(kind)
    maps = toys.methods(model, batch, spec)
    probe = toys.probe_on(model)
    got = torch.stack([toys.score(f"{m}(samples=4)", model, batch, maps, probe).value[0] for m in ALL], 1)
    for i in range(len(batch)):
        assert got[i].tolist() == pytest.approx(slow(toys, model, batch, i, spec, samples=4), abs=1e-9)


@pytest.mark.parametrize("units", ["word", "sentence"])
def test_on_words_and_sentences_maps_are_the_sums_over_each(toys, units):
    model, batch = toys.stage("text")
    place = torch.arange(batch.x["ids"].shape[1]) - 1
    grouped = {
        name: torch.where(batch.x["special"], -1, place // size) for name, size in (("word", 2), ("sentence", 4))
    }
    batch = replace(batch, x=batch.x.replace(**grouped))
    maps, probe = toys.methods(model, batch, "input_x_gradient"), toys.probe_on(model)
    got = torch.stack(
        [toys.score(f"{m}(samples=4, units={units})", model, batch, maps, probe).value[0] for m in ALL], 1
    )
    for i in range(len(batch)):
        want = slow(toys, model, batch, i, "input_x_gradient", samples=4, units=units)
        assert got[i].tolist() == pytest.approx(want, abs=1e-9)


def test_agrees_with_captum_on_the_same_steps(toys):
    from captum.attr import Saliency
    from captum.metrics import sensitivity_max

    model = toys.bent(1, 6)
    batch = toys.pictures(model, 3)
    near = [torch.cat([x.x["pixels"] for x, _ in steps_of(model, batch, i, 10, 0.02)]) for i in range(3)]
    explain = Saliency(model.module()).attribute
    with torch.enable_grad():
        theirs = sensitivity_max(
            explain,
            batch.x["pixels"].clone().requires_grad_(),
            perturb_func=lambda x: torch.cat(near).requires_grad_(),
            n_perturb_samples=10,
            target=batch.target,
            abs=False,
        )
    ours = toys.score("max_sensitivity", model, batch, toys.methods(model, batch, "saliency")).value[0]
    assert torch.allclose(ours, theirs.detach(), atol=1e-9)


def test_known_answers_on_a_linear_model(toys):
    """Its gradient never moves; gradient times input moves by weight times step, so never faster than max |w|."""
    model = toys.linear(1, 6)
    batch = toys.pictures(model, 4)
    maps = toys.methods(model, batch, "saliency", "input_x_gradient")
    weight = model.module()[1].weight[batch.target]
    probe = toys.probe_on(model)
    largest, mean, speed = (toys.score(spec, model, batch, maps, probe).value for spec in ALL)
    for value in (largest, mean, speed):
        assert value[0].tolist() == pytest.approx([0.0] * 4, abs=1e-12)
        assert bool((value[1] > 0).all())
    assert bool((speed[1] <= weight.abs().amax(1) + 1e-12).all())
    assert bool((mean <= largest).all())


def test_a_map_that_copies_its_input_moves_as_fast(toys):
    model = toys.bent(1, 6)
    batch = toys.pictures(model, 3)
    maps = toys.maps_of(model, batch, 3 * batch.x["pixels"][:, 0])
    maps.explainers = [lambda probe, part: Attribution(3 * part.x["pixels"][:, 0], part.target)]
    assert toys.score("local_lipschitz", model, batch, maps).value.tolist() == [pytest.approx([3.0] * 3)]


def test_methods_that_draw_keep_their_draws(toys):
    """The noise of the method is not counted: a map of noise alone never moves."""
    model, batch = toys.stage("image")
    maps = toys.methods(model, batch, "random", "rise(samples=16)")
    value = toys.score("max_sensitivity", model, batch, maps).value
    assert value[0].tolist() == [0.0] * 3
    assert bool((value[1] < 0.5).all())


def test_units_are_not_mixed_up(toys):
    """Steps are explained again for other units, and what tokens have is not taken for what words have."""
    model, batch = toys.stage("text")
    maps, probe = toys.methods(model, batch, "input_x_gradient"), toys.probe_on(model)
    both = [toys.score(f"max_sensitivity(units={u})", model, batch, maps, probe).value for u in ("token", "word")]
    alone = toys.score(
        "max_sensitivity(units=word)", model, batch, toys.methods(model, batch, "input_x_gradient")
    ).value
    assert torch.equal(both[1], alone) and not torch.equal(both[0], both[1])


def test_the_three_share_their_explanations_and_the_plan_knows(toys):
    model, batch = toys.stage("image", n=1)
    maps = toys.methods(model, batch, "saliency", "input_x_gradient")
    probe = toys.probe_on(model)
    for spec in ALL:
        toys.score(spec, model, batch, maps, probe)
    assert probe.spent.backwards == 2 * 10
    methods = [Labelled(s, catalogue.build("method", s), s) for s in ("saliency", "input_x_gradient")]
    metrics = [Labelled(s, toys.metric(s), s) for s in ALL]
    told = forecast(
        ModelGrid(model=model, methods=tuple(methods), metrics=tuple(metrics)), Shape(model.domain, batch.x, model)
    )
    assert [row["backwards"] for row in told.rows if row["kind"] == "metric"] == [20, 0, 0]
    assert told.backwards == 1 + probe.spent.backwards
    toys.score("max_sensitivity(samples=3)", model, batch, maps, probe)
    assert probe.spent.backwards == 2 * 13


@pytest.mark.parametrize("spec", ALL)
@pytest.mark.parametrize("size", [1, 3, 16])
def test_neither_calls_nor_neighbours_matter(toys, spec, size):
    model, batch = toys.stage("text")
    spec = f"{spec}(samples=4)"
    whole = toys.score(spec, model, batch, toys.methods(model, batch, "input_x_gradient")).value
    probe = toys.probe_on(model, forward=size, backward=size)
    other = toys.score(spec, model, batch, toys.methods(model, batch, "input_x_gradient"), probe).value
    assert torch.allclose(other, whole, atol=1e-10)
    part = batch.take([2])
    alone = toys.score(spec, model, part, toys.methods(model, part, "input_x_gradient")).value
    assert torch.equal(alone[0], whole[0, 2:])


def test_zero_maps_and_inputs_without_range_have_reasons(toys):
    model, batch = toys.stage("image")
    maps = toys.maps_of(model, batch, torch.zeros(3, 6, 6, dtype=torch.float64))
    maps.explainers = [lambda probe, part: Attribution(torch.zeros(len(part), 6, 6, dtype=torch.float64), part.target)]
    for spec in ALL[:2]:
        assert toys.score(spec, model, batch, maps).status == (("undefined: the map is zero everywhere",) * 3,)
    assert toys.score("local_lipschitz", model, batch, maps).value.tolist() == [[0.0] * 3]
    flat = toys.batch_of(model, Inputs({"pixels": torch.ones(2, 2, 6, 6, dtype=torch.float64)}))
    for spec in ALL:
        scores = toys.score(spec, model, flat, toys.methods(model, flat, "saliency"))
        assert all(s.startswith("undefined: the input is constant") for s in scores.status[0])


def test_a_copy_that_fails_fails_its_sample_alone(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1)

    def explain(probe, part):
        values = maps.items[0].values[:1].repeat(len(part), 1, 1)
        values[[d == batch.streams.digests[1] for d in part.streams.digests]] = torch.nan
        return Attribution(values, part.target)

    maps.explainers = [explain]
    status = toys.score("avg_sensitivity", model, batch, maps).status[0]
    assert status == ("ok", "failed: the map has NaN values", "ok")


def test_a_sample_keeps_the_first_problem_of_its_copies():
    status = [["ok", "ok"]]
    merge_statuses(status, torch.tensor([0, 0, 0, 1]), [["ok", "failed: a", "ok", "ok"]])
    assert status == [["failed: a", "ok"]]


def test_single_precision_is_measured_in_double(toys):
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    model = TorchModel(network, "single", ImageDomain())
    batch = toys.batch_of(
        model, Inputs({"pixels": torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))})
    )
    assert (
        toys.score("max_sensitivity", model, batch, toys.methods(model, batch, "saliency")).value.dtype == torch.float64
    )


@pytest.mark.parametrize("spec", ALL)
def test_wrong_parameters_and_brought_maps_are_refused(toys, spec):
    with pytest.raises(SpecError, match="radius=0"):
        toys.metric(f"{spec}(radius=0)")
    with pytest.raises(SpecError, match="samples=0"):
        toys.metric(f"{spec}(samples=0)")
    model, batch = toys.stage("image")
    with pytest.raises(NotApplicable, match="without a method"):
        toys.score(spec, model, batch, toys.random_maps(model, batch, 1))
