"""Gini index and entropies, against their definitions and scipy."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heatcheck.core.types import Attribution

MUTANTS = (
    ("metrics/form.py", "torch.arange(1 - n, n, 2,", "torch.arange(2 - n, n + 1, 2,", "test_one_site_and_equal_sites"),
    ("metrics/form.py", "maps.on(units).double().abs()", "maps.on(units).double()", "test_one_site_and_equal_sites"),
    ("metrics/form.py", "size / size.sum(-1, keepdim=True)", "size", "test_entropy_is_taken_at_native_resolution"),
    ("metrics/form.py", "/ math.log(2)", "/ math.log(10)", "test_entropy_is_taken_at_native_resolution"),
    ("metrics/form.py", "own[free[i]] if whole else own", "own", "test_a_map_of_zeros_has_a_reason"),
)
FORMS = ["sparseness", "complexity", "entropy"]


def slow_gini(values):
    """Mean difference between any two, relative to twice the mean."""
    a = [abs(float(v)) for v in values]
    return sum(abs(x - y) for x in a for y in a) / (2 * len(a) * sum(a))


def slow(spec, values):
    if spec == "sparseness":
        return slow_gini(values)
    return stats.entropy(values.abs().numpy(), base=2 if spec == "entropy" else None)


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("spec", FORMS)
def test_agrees_with_the_definition(toys, kind, spec):
    model, batch = toys.stage(kind)
    free = model.domain.deletable(batch.x)
    maps = toys.random_maps(model, batch, 2)
    probe = toys.probe_on(model)
    got = toys.score(spec, model, batch, maps, probe).value
    for j in range(2):
        for i in range(3):
            own = maps.items[j].values[i].flatten()[free[i]]
            assert float(got[j, i]) == pytest.approx(slow(spec, own), abs=1e-12)
    assert probe.spent.forwards == 0


@pytest.mark.parametrize("kind", ["image", "text"])
def test_one_site_and_equal_sites(toys, kind):
    """X3: the ends of the ranges."""
    model, batch = toys.stage(kind)
    n = model.domain.deletable(batch.x).sum(1)
    site = torch.zeros(model.domain.deletable(batch.x).shape, dtype=torch.float64)
    site[:, 1] = -3.0
    one = model.domain.as_map(site, batch.x)
    maps = toys.maps_of(model, batch, one, torch.full_like(one, 0.2))
    got = {spec: toys.score(spec, model, batch, maps).value for spec in FORMS}
    assert torch.allclose(got["sparseness"], torch.stack([1 - 1 / n.double(), n * 0.0]), atol=1e-12)
    assert torch.allclose(got["complexity"], torch.stack([n * 0.0, n.double().log()]), atol=1e-12)
    assert torch.allclose(got["entropy"], torch.stack([n * 0.0, n.double().log2()]), atol=1e-12)


def test_entropy_is_taken_at_native_resolution(toys):
    model, batch = toys.stage("image")
    coarse = Attribution(torch.ones(3, 2, 2, dtype=torch.float64), batch.target)
    maps = toys.maps_of(model, batch, coarse.values)
    assert toys.score("entropy", model, batch, maps).value.tolist() == [pytest.approx([2.0] * 3)]
    assert toys.score("complexity", model, batch, maps).value.tolist() == [pytest.approx([math.log(36)] * 3)]


@settings(max_examples=10, deadline=None)
@given(scale=st.floats(0.01, 100), seed=st.integers(0, 99))
def test_bounds_and_scale(toys, scale, seed):
    """X2, X3."""
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1, seed=seed)
    larger = toys.maps_of(model, batch, -scale * maps.items[0].values)
    for spec, most in zip(FORMS, (1 - 1 / 36, math.log(36), math.log2(36)), strict=True):
        value = toys.score(spec, model, batch, maps).value
        assert torch.allclose(toys.score(spec, model, batch, larger).value, value, atol=1e-12)
        assert bool((value >= 0).all()) and bool((value <= most + 1e-12).all())


@pytest.mark.parametrize("spec", FORMS)
def test_a_map_of_zeros_has_a_reason(toys, spec):
    model, batch = toys.stage("text")
    specials = torch.where(batch.x["special"], 1.0, 0.0)
    scores = toys.score(spec, model, batch, toys.maps_of(model, batch, torch.zeros_like(specials), specials))
    assert scores.status == (("undefined: the map is zero everywhere",) * 3,) * 2
