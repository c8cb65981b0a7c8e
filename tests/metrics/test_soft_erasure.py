"""Soft comprehensiveness and sufficiency, against the definition, known answers and their laws."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core.spec import SpecError
from heatcheck.metrics.soft_erasure import chances

MUTANTS = (
    (
        "metrics/soft_erasure.py",
        "uniform >= chances(values, 1 - self.keep)",
        "uniform >= chances(values, self.keep)",
        "test_agrees_with_the_definition",
    ),
    (
        "metrics/soft_erasure.py",
        "uniform < chances(values, self.keep)",
        "uniform < values.softmax(-1)",
        "test_agrees_with_the_definition",
    ),
    ("metrics/soft_erasure.py", "mine / (n - certain)", "0.0 * mine", "test_every_map_has_the_same_mean_chance"),
    ("metrics/soft_erasure.py", "left * ordered <= rest", "ordered <= rest", "test_every_map_has_the_same_mean_chance"),
)
BOTH = ("soft_comprehensiveness", "soft_sufficiency")


def slow_chances(values, share):
    """The factor found by halving: min(1, c·ā) sums to share · n; what is missing goes to those at zero."""
    n = len(values)
    low, high = min(values), max(values)
    scaled = [(v - low) / (high - low) if high > low else 1.0 for v in values]
    wanted = share * n
    positive = [s for s in scaled if s > 0]
    if len(positive) <= wanted:
        extra = (wanted - len(positive)) / (n - len(positive)) if len(positive) < n else 0
        return [1.0 if s > 0 else extra for s in scaled]
    a, b = 0.0, wanted / min(positive) + 1
    for _ in range(200):
        c = (a + b) / 2
        a, b = (c, b) if sum(min(1, c * s) for s in scaled) < wanted else (a, c)
    return [min(1, a * s) for s in scaled]


def slow_score(toys, model, batch, row, heat, *, keep, samples, id):
    free = model.domain.deletable(batch.x)[row]
    sites = torch.nonzero(free).flatten().tolist()
    q = slow_chances([float(heat[s]) for s in sites], keep if id == "soft_sufficiency" else 1 - keep)
    rng = batch.streams.generator(row, "soft-erasure")
    uniform = torch.rand(len(sites), samples, generator=rng, dtype=torch.float64)
    falls = []
    for draw in range(samples):
        stays = torch.ones_like(free)
        for at, site in enumerate(sites):
            chosen = float(uniform[at, draw]) < q[at]
            stays[site] = chosen if id == "soft_sufficiency" else not chosen
        falls.append(
            toys.ask(model, batch, row, torch.ones_like(free), "prob") - toys.ask(model, batch, row, stays, "prob")
        )
    return sum(falls) / samples


@pytest.mark.parametrize("keep", [0.2, 0.7])
@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("id", BOTH)
def test_agrees_with_the_definition(toys, id, kind, keep):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    got = toys.score(f"{id}(keep={keep}, samples=3)", model, batch, maps).value
    for j in range(2):
        for i in range(3):
            expected = slow_score(toys, model, batch, i, maps.sites()[j, i], keep=keep, samples=3, id=id)
            assert got[j, i] == pytest.approx(expected, abs=1e-12)


numbers = st.one_of(st.integers(-3, 3).map(float), st.floats(-5, 5, allow_subnormal=False))


@settings(max_examples=60, deadline=None)
@given(values=st.lists(numbers, min_size=1, max_size=9), share=st.floats(0.05, 0.95))
def test_every_map_has_the_same_mean_chance(values, share):
    """What makes maps comparable; chances grow with the map, and are the slow ones."""
    found = chances(torch.tensor([values], dtype=torch.float64), share)[0]
    assert float(found.mean()) == pytest.approx(share, abs=1e-9)
    assert bool((found >= 0).all() and (found <= 1).all())
    ordered = found[torch.tensor(values, dtype=torch.float64).argsort()]
    assert bool((ordered.diff() >= -1e-9).all())
    spread = max(values) - min(values)
    if spread == 0 or min((v - min(values) for v in values if v > min(values)), default=1) > 1e-6 * spread:
        assert found.tolist() == pytest.approx(slow_chances(values, share), abs=1e-7)


@settings(max_examples=40, deadline=None)
@given(values=st.lists(numbers, min_size=2, max_size=9), low=st.floats(0.05, 0.9), more=st.floats(0, 0.09))
def test_whoever_is_kept_is_kept_at_a_higher_share_too(values, low, more):
    few, many = (chances(torch.tensor([values], dtype=torch.float64), share) for share in (low, low + more))
    assert bool((many >= few - 1e-12).all())


def test_falls_are_monotone_in_what_is_kept(toys):
    """On texts whose tokens all speak for the class, keeping more never costs more."""
    model, batch = toys.stage("text", bent_model=False)
    with torch.no_grad():
        model.module().emb.weight.copy_(model.module().head.weight[batch.target[0]].sign() * torch.rand(30, 1))
    batch = batch.take([i for i in range(3) if batch.target[i] == batch.target[0]])
    maps = toys.random_maps(model, batch, 3)
    for id in BOTH:
        falls = [
            toys.score(f"{id}(keep={keep}, output=logit)", model, batch, maps).value for keep in (0.2, 0.4, 0.6, 0.8)
        ]
        assert all((less >= more - 1e-12).all() for less, more in pairwise(falls))


def test_a_constant_map_deletes_at_random(toys):
    """Its expected fall on an additive toy is the share of the sum that goes, in closed form."""
    model = toys.words()
    batch = toys.sentences(model, (6, 4))
    flat = toys.maps_of(model, batch, torch.ones(batch.x["ids"].shape, dtype=torch.float64))
    total = toys.truth(model, batch).sum(1)
    for id in BOTH:
        got = toys.score(f"{id}(keep=0.3, samples=4000, output=logit)", model, batch, flat).value[0]
        spread = toys.truth(model, batch).square().sum(1).sqrt()
        assert bool(((got - 0.7 * total).abs() < 4 * 0.46 * spread / 4000**0.5).all())


def test_the_oracle_beats_random_and_its_opposite(toys):
    model = toys.words()
    batch = toys.sentences(model, (6, 5, 6, 4))
    right = toys.truth(model, batch)
    others = [m.values for m in toys.random_maps(model, batch, 6).items]
    maps = toys.maps_of(model, batch, right, -right, *others)
    full, enough = (toys.score(f"{id}(samples=64, output=logit)", model, batch, maps).value.mean(1) for id in BOTH)
    assert full[0] > full[2:].mean() > full[1]
    assert enough[0] < enough[2:].mean() < enough[1]


def test_equal_maps_get_equal_scores_and_bounds_hold(toys):
    model, batch = toys.stage("text")
    a = toys.random_maps(model, batch, 1).items[0].values
    p = toys.probe_on(model).clean(batch).read("prob")
    for id in BOTH:
        got = toys.score(id, model, batch, toys.maps_of(model, batch, a, 3 * a + 2, a.clone())).value
        assert torch.equal(got[0], got[2]) and torch.allclose(got[0], got[1], atol=1e-12)
        assert (got <= p).all() and (got >= p - 1).all()


@pytest.mark.parametrize("units", ["word", "sentence"])
@pytest.mark.parametrize("id", BOTH)
def test_words_and_sentences_go_whole(toys, id, units):
    model, batch = toys.stage("text")
    scores = toys.score(f"{id}(units={units}, fill=remove)", model, batch, toys.random_maps(model, batch, 2))
    assert scores.status == (("ok",) * 3,) * 2


def test_what_cannot_be_asked(toys):
    model = toys.words()
    batch = toys.sentences(model, (0, 3))
    for id in BOTH:
        scores = toys.score(id, model, batch, toys.random_maps(model, batch, 1))
        assert scores.status[0] == ("undefined: the input has no token units to delete", "ok")
        with pytest.raises(SpecError, match=r"keep=1\.0 is a share of the units"):
            toys.metric(f"{id}(keep=1.0)")
        with pytest.raises(SpecError, match="samples=0 must be at least 1"):
            toys.metric(f"{id}(samples=0)")
