"""Average drop and increase in confidence, against the paper's formula and against known answers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core.types import NotApplicable

MUTANTS = (
    (
        "metrics/confidence.py",
        "(values - low) / (high - low), 1.0)",
        "values / high, 1.0)",
        "test_scale_and_shift_change_nothing",
    ),
    ("metrics/confidence.py", ".clamp_min(0) / before", " / before", "test_a_linear_model_has_a_closed_form"),
    (
        "metrics/confidence.py",
        "(after > before).double()",
        "(after >= before).double()",
        "test_a_constant_model_neither_drops_nor_rises",
    ),
    ("metrics/confidence.py", "varied = high > low", "varied = high >= low", "test_a_flat_map_shows_nothing"),
    (
        "metrics/confidence.py",
        "domain.delete(batch.x.take(rows), keep[method[i], rows], full.take(rows))",
        "domain.delete(batch.x.take(rows), 1 - keep[method[i], rows], full.take(rows))",
        "test_a_linear_model_has_a_closed_form",
    ),
    (
        "metrics/confidence.py",
        "units.spread(shown, outside=1.0)",
        "units.spread(shown / units.area.clamp_min(1), outside=1.0)",
        "test_words_and_cells_fade_as_one",
    ),
)


def slow_p(model, batch, row, heat, free):
    """p(x ⊙ Ā) with a loop over sites; on texts, embeddings are mixed and the darkest token is hidden."""
    low, high = heat[free].min(), heat[free].max()
    shown = [float((h - low) / (high - low)) if ok else 1.0 for h, ok in zip(heat, free, strict=True)]
    x = batch.x.take(torch.tensor([row]))
    if "pixels" in x:
        pixels = x["pixels"].clone().flatten(2)
        for s, a in enumerate(shown):
            pixels[:, :, s] *= a
        x = x.replace(pixels=pixels.reshape(x["pixels"].shape))
    else:
        embeds, attention = model.domain.leaf(x).detach().clone(), x["attention"].clone()
        blank = model.module().emb.weight[0].detach()
        for s, a in enumerate(shown):
            embeds[0, s] = a * embeds[0, s] + (1 - a) * blank
            attention[0, s] = 0 if a == 0 else attention[0, s]
        x = x.replace(embeds=embeds, attention=attention)
    with torch.no_grad():
        return float(model.logits(x).softmax(1)[0, batch.target[row]])


@pytest.mark.parametrize("kind", ["image", "text"])
def test_agrees_with_the_definition(toys, kind):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 6)
    free = model.domain.deletable(batch.x)
    drop, rise = (toys.score(m, model, batch, maps) for m in ("average_drop", "increase_in_confidence"))
    clean = toys.probe_on(model).clean(batch).read("prob")
    for j in range(6):
        for i in range(3):
            p, after = float(clean[i]), slow_p(model, batch, i, maps.sites()[j, i], free[i])
            assert drop.value[j, i] == pytest.approx(max(0.0, p - after) / p, abs=1e-12)
            assert rise.value[j, i] == float(after > p)
    assert 0 < rise.value.mean() < 1 and (drop.value == 0).any() and (drop.value > 0).any()
    assert drop.curve is None


def test_a_linear_model_has_a_closed_form(toys):
    """Two opposite classes: p = σ(2z), and z(x ⊙ Ā) = b + Σ Ā c."""
    model = toys.linear(1, 6, classes=2)
    with torch.no_grad():
        head = model.module()[1]
        head.weight[1], head.bias[1] = -head.weight[0], -head.bias[0]
    batch = toys.pictures(model, 2)
    worth = toys.truth(model, batch).detach()
    bias = head.bias[batch.target].detach()
    shown = (worth > 0).double()
    got = toys.score("average_drop", model, batch, toys.maps_of(model, batch, shown, 1 - shown))
    for keep, value in zip((shown, 1 - shown), got.value, strict=True):
        p, after = (torch.sigmoid(2 * (bias + (k * worth).sum((1, 2)))) for k in (torch.ones_like(worth), keep))
        assert torch.allclose(value, (p - after).clamp_min(0) / p, atol=1e-12)
    assert (got.value[0] == 0).all() and (got.value[1] > 0).all()
    rise = toys.score("increase_in_confidence", model, batch, toys.maps_of(model, batch, shown, 1 - shown)).value
    assert rise.tolist() == [[1.0, 1.0], [0.0, 0.0]]


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), factor=st.floats(0.1, 9), shift=st.floats(-5, 5))
def test_scale_and_shift_change_nothing(toys, seed, factor, shift):
    model, batch = toys.stage("image", n=2)
    maps = toys.random_maps(model, batch, 2, seed=seed)
    moved = toys.maps_of(model, batch, *(a.values * factor + shift for a in maps.items))
    a, b = (toys.score("average_drop", model, batch, m).value for m in (maps, moved))
    assert torch.allclose(a, b, atol=1e-9)
    assert (a >= 0).all() and (a <= 1).all()


@pytest.mark.parametrize("kind", ["image", "text"])
def test_a_flat_map_shows_nothing(toys, kind):
    model, batch = toys.stage(kind)
    flat = torch.ones_like(toys.random_maps(model, batch, 1).items[0].values)
    for spec in ("average_drop", "increase_in_confidence"):
        scores = toys.score(spec, model, batch, toys.maps_of(model, batch, flat, 0 * flat))
        assert all(s.startswith("undefined: the map is constant") for row in scores.status for s in row)


def test_special_tokens_do_not_set_the_scale(toys):
    model, batch = toys.stage("text")
    maps = toys.random_maps(model, batch, 1)
    loud = torch.where(batch.x["special"], 99.0, maps.items[0].values)
    a, b = (toys.score("average_drop", model, batch, m).value for m in (maps, toys.maps_of(model, batch, loud)))
    assert torch.equal(a, b)


def test_a_constant_model_neither_drops_nor_rises(toys):
    """X8."""
    model = toys.constant()
    batch = toys.pictures(model, 2)
    maps = toys.random_maps(model, batch, 2)
    for spec in ("average_drop", "increase_in_confidence"):
        assert toys.score(spec, model, batch, maps).value.abs().max() == 0


def test_a_fill_that_moves_tokens_cannot_fade_them(toys):
    model, batch = toys.stage("text")
    maps = toys.random_maps(model, batch, 1)
    for spec in ("average_drop(fill=remove)", "increase_in_confidence(fill=remove)"):
        with pytest.raises(NotApplicable, match="fill=remove cannot"):
            toys.score(spec, model, batch, maps)
    assert toys.score("average_drop(fill=zero)", model, batch, maps).status == (("ok",) * 3,)


def test_it_costs_one_pass_per_map(toys):
    model, batch = toys.stage("image")
    probe = toys.probe_on(model)
    toys.score("average_drop", model, batch, toys.random_maps(model, batch, 4), probe)
    assert probe.spent.forwards == 3 * (1 + 4)


@pytest.mark.parametrize(("kind", "units"), [("text", "word"), ("image", "grid(3)")])
def test_words_and_cells_fade_as_one(toys, kind, units):
    """As on sites, with the sum over its unit at every site."""
    model = toys.words(bent=True) if kind == "text" else toys.bent(2, 6)
    batch = toys.sentences(model, (5, 8, 7)) if kind == "text" else toys.pictures(model, 3, 2, 6)
    maps = toys.random_maps(model, batch, 4)
    number = batch.x["word"] if kind == "text" else torch.arange(36).expand(3, 36) // 12 * 3 + torch.arange(36) % 6 // 2
    drop, rise = (
        toys.score(f"{m}(units={units})", model, batch, maps) for m in ("average_drop", "increase_in_confidence")
    )
    clean = toys.probe_on(model).clean(batch).read("prob")
    for j in range(4):
        for i in range(3):
            heat = maps.sites()[j, i]
            summed = torch.stack([heat[number[i] == own].sum() for own in number[i]])
            p, after = float(clean[i]), slow_p(model, batch, i, summed, model.domain.deletable(batch.x)[i])
            assert drop.value[j, i] == pytest.approx(max(0.0, p - after) / p, abs=1e-12)
            assert rise.value[j, i] == float(after > p)
    assert not torch.equal(drop.value, toys.score("average_drop", model, batch, maps).value)
