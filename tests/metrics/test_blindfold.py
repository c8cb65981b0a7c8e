"""Maps that point at what the model cannot see: against networks that hide it themselves, and by hand."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import heatcheck as hc
from heatcheck.core import catalogue
from heatcheck.core.spec import SpecError
from heatcheck.core.types import Inputs, NotApplicable, Streams
from heatcheck.domain.base import Units
from heatcheck.methods.base import method
from heatcheck.metrics.blindfold import hidden_units, share_outside
from heatcheck.probe.asks import Shape
from heatcheck.stats import outside_mean_rank
from heatcheck.testing import models as known
from heatcheck.testing.scenes import probe_for, toy_batch

MUTANTS = (
    ("metrics/blindfold.py", "target=answers.predicted", "target=batch.target", "test_explains_what_the_blindfolded_model_predicts"),
    ("metrics/blindfold.py", "/ torch.where(share > 0, share, 1)", "", "test_a_constant_map_scores_exactly_one_and_random_maps_one_on_average"),
    ("metrics/blindfold.py", ".abs() * sites", " * sites", "test_agrees_with_the_definition"),
    ("metrics/blindfold.py", ".abs() * sites", ".abs()", "test_agrees_with_the_definition"),
    ("metrics/blindfold.py", "maps.explain(worn, blind)", "maps.explain(replace(batch, target=worn.target), probe)", "test_agrees_with_the_definition"),
    ("metrics/blindfold.py", "min(n - 1, max(1, round(share * n)))", "round(share * n)", "test_the_share_is_hidden_at_least_one_and_never_all"),
    ("metrics/blindfold.py", "(units.count > 1)", "(units.count > 0)", "test_what_has_no_score_has_a_reason"),
)  # fmt: skip


def by_hand(model, batch, row, units, fill):
    """The definition: a network of its own that hides half of the units of one sample, and the sites that it hides."""
    one = batch.take([row])
    index = model.domain.units(units, one.x).index[0]
    n = int(index.max()) + 1
    drawn = torch.randperm(n, generator=one.streams.generator(0, "blindfold"))[: round(n / 2)]
    hidden = torch.isin(index, drawn)
    full = catalogue.build("fill", fill).full(model.domain, one)
    network, domain = model.module(), model.domain

    class Hides(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network
            self.register_buffer("hidden", hidden)

        def forward(self, leaf, *attention):
            if not attention:
                return self.inner(torch.where(self.hidden.reshape(leaf.shape[-2:]), domain.leaf(full), leaf))
            gone = torch.where(self.hidden, full["attention"], attention[0])
            return self.inner(torch.where(self.hidden[:, None], domain.leaf(full), leaf), gone)

    twin = type(model).__new__(type(model))
    twin.__dict__.update(model.__dict__)
    twin._network, twin.original = Hides(), model.lineage
    twin.__dict__.pop("identity", None)
    with torch.no_grad():
        target = twin.logits(one.x).argmax(1)
    return twin, replace(one, target=target), hidden


@pytest.mark.parametrize(
    ("kind", "spec", "units", "fill"),
    [
        ("image", "occlusion(units=grid(3))", "grid(2)", "zero"),
        ("image", "rise(samples=9)", "grid(3)", "blur(kernel=3)"),
        ("image", "lime(samples=9, units=grid(3))", "pixel", "zero"),
        ("image", "input_magnitude", "grid(4)", "zero"),
        ("text", "lime(samples=9)", "token", "pad"),
        ("text", "occlusion(units=word)", "token", "pad"),
        ("text", "input_magnitude", "word", "pad"),
    ],
)
def test_agrees_with_the_definition(toys, kind, spec, units, fill):
    model, batch = toys.stage(kind)
    maps = toys.methods(model, batch, spec)
    got = toys.score(f"blindfold(units={units}, fill={fill})", model, batch, maps)
    for i in range(len(batch)):
        twin, one, hidden = by_hand(model, batch, i, units, fill)
        found = catalogue.build("method", spec)(toys.probe_on(twin), one)
        sites = model.domain.layout(found.values, one.x, found.interpolation)[0].abs()
        free = model.domain.deletable(one.x)[0]
        expected = float(sites[hidden].sum() / sites[free].sum()) / (int(hidden.sum()) / int(free.sum()))
        assert float(got.value[0, i]) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert got.value.max() > 0.05


@pytest.mark.parametrize("kind", ["image", "text"])
def test_what_cannot_point_outside_scores_exactly_zero(toys, kind):
    """Derivatives are zero there, and so is the difference that deleting a hidden unit makes."""
    model, batch = toys.stage(kind)
    specs = ("saliency", "input_x_gradient", "integrated_gradients(steps=3)", "smoothgrad(samples=2)", "deep_lift",
        "occlusion", "shapley_sampling(samples=2)")  # fmt: skip
    specs += ("sobol(designs=4, units=grid(4))",) if kind == "image" else ()
    got = toys.score("blindfold", model, batch, toys.methods(model, batch, *specs))
    assert got.value.eq(0).all() and {s for row in got.status for s in row} == {"ok"}


def test_noise_falls_with_more_samples_and_the_mean_that_rise_adds_does_not(toys):
    model = known.additive()
    batch = toy_batch(model, 2)
    specs = (
        "kernel_shap(samples=20, units=cell)",
        "kernel_shap(samples=200, units=cell)",
        "rise(samples=20)",
        "rise(samples=200)",
    )
    few, many, rise, more_rise = (
        toys.score("blindfold", model, batch, toys.methods(model, batch, *specs)).value.mean(1).tolist()
    )
    assert 0 < many < few / 2
    assert rise > 0.8 and more_rise > 0.8


def test_a_constant_map_scores_exactly_one_and_random_maps_one_on_average(toys):
    model = toys.linear(1, 8)
    batch = toys.pictures(model, 40, size=8)
    for units in ("grid(4)", "grid(3)", "pixel"):
        got = toys.score(
            f"blindfold(units={units}, hidden=0.3)", model, batch, toys.methods(model, batch, "constant", "random")
        )
        assert got.value[0].eq(1).all()
        error = float(got.value[1].std() / 40**0.5)
        assert error > 0 and abs(float(got.value[1].mean()) - 1) < 4 * error


def test_known_answers_on_a_linear_model(toys):
    """One cell of four is seen: three quarters are hidden, and a map that lies there alone scores 4 / 3."""
    model = toys.linear(1, 4, 2)
    x = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    batch = toys.batch_of(model, Inputs({"pixels": x}))
    units = toys.probe_on(model).units("grid(2)", batch)
    unseen = units.spread(hidden_units(batch.streams, units, 0.75))
    assert int(unseen.sum()) == 12
    batch = replace(batch, x=batch.x.replace(pixels=(2.0 * unseen).reshape(x.shape).double()))
    spec = "blindfold(units=grid(2), hidden=0.75)"
    assert toys.score(spec, model, batch, toys.methods(model, batch, "input_magnitude")).value.item() == pytest.approx(
        4 / 3
    )
    batch = replace(batch, x=batch.x.replace(pixels=(5.0 - 4 * unseen).reshape(x.shape).double()))
    got = toys.score(spec, model, batch, toys.methods(model, batch, "input_magnitude")).value.item()
    assert got == pytest.approx((12 / (12 + 20)) / 0.75)


def test_explains_what_the_blindfolded_model_predicts(toys):
    seen = []

    @method("notes_its_target")
    def notes_its_target(model, x, target):
        seen.append(target)
        return torch.ones_like(x)

    model, batch = toys.stage("image", n=8)
    batch = toys.pictures(model, 8, 2, 6)
    maps = toys.methods(model, batch, "notes_its_target")
    seen.clear()
    toys.score("blindfold", model, batch, maps)
    want = torch.cat([by_hand(model, batch, i, "grid(4)", "zero")[1].target for i in range(8)])
    assert torch.equal(torch.cat(seen), want) and not torch.equal(want, batch.target)


def test_the_target_is_asked_once_whoever_asks(toys):
    """It is a deletion like others: filed, shared by all methods, and not asked again when a method is added."""
    model, batch = toys.stage("image")
    probe = toys.probe_on(model)
    maps = toys.methods(model, batch, "saliency", "input_x_gradient")
    toys.score("blindfold", model, batch, maps, probe)
    assert (probe.spent.forwards, probe.spent.backwards) == (2 * len(batch), len(batch))  # one gradient for both
    toys.score("blindfold", model, batch, maps.only([1]), probe)
    assert (probe.spent.forwards, probe.spent.backwards) == (3 * len(batch), 2 * len(batch))


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 40), room=st.integers(0, 5), share=st.floats(0.01, 0.99), seed=st.integers(0, 99))
def test_the_share_is_hidden_at_least_one_and_never_all(n, room, share, seed):
    """It belongs to the sample: neither padding nor neighbours change it."""
    units = Units("u", torch.arange(n + room)[None].where(torch.arange(n + room) < n, -1), torch.tensor([n]), n + room)
    streams = Streams(seed, ("a",))
    gone = hidden_units(streams, units, share)[0]
    assert int(gone.sum()) == max(1, min(n - 1, round(share * n))) and not gone[n:].any()
    tight = Units("u", torch.arange(n)[None], torch.tensor([n]), n)
    assert torch.equal(hidden_units(streams, tight, share)[0], gone[:n])
    assert torch.equal(hidden_units(Streams(seed, ("b", "a")), _twice(tight), share)[1], gone[:n])


def _twice(units):
    return Units(units.name, units.index.repeat(2, 1), units.count.repeat(2), units.width)


def test_every_unit_is_hidden_as_often_as_others():
    units = Units("u", torch.arange(6).repeat(3000, 1), torch.full((3000,), 6), 6)
    counts = hidden_units(Streams(0, tuple(map(str, range(3000)))), units, 0.5).sum(0)
    assert (counts - 1500).abs().max() < 4 * (3000 * 0.25) ** 0.5


def test_with_everything_visible_nothing_is_outside():
    """The law: the map is that of the open model, bit for bit, and its score 0."""
    for model in (known.gap_linear(), known.additive_text()):
        batch = toy_batch(model, 2)
        nothing = torch.zeros_like(model.domain.deletable(batch.x))
        blind, worn = probe_for(model).blindfolded(batch, ~nothing, model.domain.default_fill)
        for spec in ("saliency", "random", "occlusion", "lime(samples=9)"):
            explain = catalogue.build("method", spec)
            found = explain(blind, worn)
            assert torch.equal(found.values, explain(probe_for(model), batch).values)
            sites = model.domain.layout(found.values, batch.x, found.interpolation)[None]
            assert share_outside(sites, nothing, model.domain.deletable(batch.x)).eq(0).all()


def test_what_has_no_score_has_a_reason(toys):
    model = toys.constant()
    batch = toys.pictures(model, 2)
    got = toys.score("blindfold", model, batch, toys.methods(model, batch, "saliency", "random"))
    assert set(got.status[0]) == {"undefined: the map is zero everywhere"} and set(got.status[1]) == {"ok"}
    model, batch = toys.stage("image")
    probe = toys.probe_on(model)
    maps = toys.methods(model, batch, "saliency")
    got = toys.score("blindfold(units=grid(1))", model, batch, maps, probe)
    assert "fewer than two grid(1) units" in got.status[0][0] and probe.spent.forwards == 0
    words = toys.words(bent=True)
    texts = toys.sentences(words, (1, 4))
    got = toys.score("blindfold", words, texts, toys.methods(words, texts, "input_magnitude"))
    assert "fewer than two token units" in got.status[0][0] and got.status[0][1] == "ok"
    with pytest.raises(NotApplicable, match="without a method"):
        toys.score("blindfold", model, batch, toys.random_maps(model, batch))
    shape = Shape(words.domain, texts.x.take(slice(0, 1)))
    metric = catalogue.build("metric", "blindfold").resolve(words.domain)
    assert metric.asks(shape, "any") == set() and metric.reexplanation_count(shape) == 0


def test_bad_parameters_are_named(toys):
    for share in (0, 1, -0.5, float("nan")):
        with pytest.raises(SpecError, match=r"hidden=.* must be between 0 and 1"):
            catalogue.build("metric", "blindfold", hidden=share)
    model = toys.words()
    batch = toys.sentences(model)
    with pytest.raises(NotApplicable, match="fill=remove moves what is not deleted"):
        toys.score("blindfold(fill=remove)", model, batch, toys.methods(model, batch, "saliency"))


def test_a_model_that_gives_one_number_and_a_black_box_are_scored():
    def brightness(pixels):
        return pixels.mean((1, 2, 3))

    x = torch.rand(2, 3, 8, 8)
    with pytest.warns(UserWarning, match="gives one number per input"):
        value = hc.score(brightness, x, ["occlusion", "input_magnitude"], metric="blindfold")
    assert value[0].eq(0).all() and (value[1] > 0.5).all()


def test_counts_in_no_mean_rank():
    family = catalogue.entries("metric")["blindfold"].facts["family"]
    assert outside_mean_rank({"sds": "deletion", "blindfold": family}) == {"blindfold"}
