"""The faithfulness violation test, against the definition and against known answers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heatcheck.core.spec import SpecError

MUTANTS = (
    (
        "metrics/violation.py",
        "share.abs(), tie_breakers",
        "share, tie_breakers",
        "test_chance_depends_on_the_sign_that_maps_may_have",
    ),
    (
        "metrics/violation.py",
        "claim.sign() * drop < 0",
        "claim.sign() * drop > 0",
        "test_the_truth_never_violates_and_its_negation_always",
    ),
    ("metrics/violation.py", "place.argmin(", "place.argmax(", "test_the_truth_never_violates_and_its_negation_always"),
    (
        "metrics/violation.py",
        "max(1, int(self.top * n))",
        "max(1, n - int(self.top * n))",
        "test_the_truth_never_violates_and_its_negation_always",
    ),
    (
        "metrics/violation.py",
        "torch.where(place < many[:, None], share, 0.0)",
        "torch.where(place <= many[:, None], share, 0.0)",
        "test_agrees_with_the_definition",
    ),
)


def slow_violation(toys, model, batch, row, shares, groups, many=1):
    """Delete the units of largest |a|; a violation is a drop that contradicts their sign."""
    largest = sorted(range(len(shares)), key=lambda u: -abs(shares[u]))[:many]
    sites = batch.x["pixels"][0, 0].numel() if "pixels" in batch.x else batch.x["ids"].shape[1]
    keep = torch.ones(sites, dtype=torch.bool)
    for u in largest:
        keep[groups[u]] = False
    whole = torch.ones(sites, dtype=torch.bool)
    drop = toys.ask(model, batch, row, whole, "prob") - toys.ask(model, batch, row, keep, "prob")
    return float(sum(shares[u] for u in largest) * drop < 0)


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("top", [0.0, 0.4])
def test_agrees_with_the_definition(toys, kind, top):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 6)
    units = model.domain.units("grid(3)" if kind == "image" else "token", batch.x)
    got = toys.score(f"violation(units={units.name}, top={top})", model, batch, maps).value
    for j in range(6):
        for i in range(3):
            n = int(units.count[i])
            groups = [(units.index[i] == u).nonzero().flatten() for u in range(n)]
            shares = [float(maps.sites()[j, i, own].sum()) for own in groups]
            many = max(1, int(top * n))
            assert got[j, i] == slow_violation(toys, model, batch, i, shares, groups, many)
    assert 0 < float(got.mean()) < 1


@pytest.mark.parametrize("kind", ["image", "text"])
def test_the_truth_never_violates_and_its_negation_always(toys, kind):
    """X4, on a two-class model whose probability rises with the logit."""
    model, batch = toys.stage(kind, bent_model=False)
    right = toys.truth(model, batch)
    got = toys.score("violation(output=logit)", model, batch, toys.maps_of(model, batch, right, -right)).value
    assert got.tolist() == [[0.0] * 3, [1.0] * 3]


@settings(max_examples=8, deadline=None)
@given(scale=st.floats(1e-200, 1e6), seed=st.integers(0, 10**6))
def test_scale_changes_nothing_and_negation_flips(toys, scale, seed):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1, seed=seed)
    heat = maps.items[0].values
    got = toys.score("violation", model, batch, toys.maps_of(model, batch, heat, heat * scale, -heat)).value
    assert torch.equal(got[0], got[1]) and torch.equal(got[0], 1 - got[2])


def test_chance_depends_on_the_sign_that_maps_may_have(toys):
    """Random signs fail half of the time; maps without negatives as often as units speak against the class."""
    model = toys.linear(1, 8, seed=1)
    batch = toys.pictures(model, 8, 1, 8)
    probe = toys.probe_on(model)
    units = probe.units("cell", batch)
    after = probe.singles(batch, "zero", units).reshape(8, 16).read("logit")
    against = float((probe.clean(batch).read("logit")[:, None] < after).double().mean())
    maps = toys.random_maps(model, batch, 100)
    signed = toys.score("violation(output=logit)", model, batch, maps, probe).value
    without = toys.maps_of(model, batch, *(a.values.abs() ** 8 for a in maps.items))
    unsigned = toys.score("violation(output=logit)", model, batch, without, probe).value
    assert float(signed.mean()) == pytest.approx(0.5, abs=0.06)
    assert float(unsigned.mean()) == pytest.approx(against, abs=0.06)
    assert abs(against - 0.5) > 0.1


def test_ties_are_broken_by_the_sample_alone(toys):
    """All units are equal: which one is asked about is the seed's choice, the same for every map and batch."""
    model, batch = toys.stage("image")
    flat = torch.ones(3, 6, 6, dtype=torch.float64)
    scores = [
        toys.score("violation(units=site)", model, part, toys.maps_of(model, part, flat[: len(part)])).value[0, -1]
        for part in (batch, batch.take([2]))
    ]
    assert scores[0] == scores[1]
    chosen = torch.randperm(36, generator=batch.streams.generator(2, "ties"))[0]
    keep = torch.arange(36) != chosen
    drop = toys.ask(model, batch, 2, keep | True, "prob") - toys.ask(model, batch, 2, keep, "prob")
    assert scores[0] == float(drop < 0)


def test_passes_are_shared_with_sds_and_by_all_methods(toys):
    model, batch = toys.stage("image")
    probe = toys.probe_on(model)
    toys.score("sds", model, batch, toys.random_maps(model, batch, 1), probe)
    before = probe.spent.forwards
    toys.score("violation", model, batch, toys.random_maps(model, batch, 8), probe)
    assert probe.spent.forwards == before


def test_a_drop_of_zero_is_no_violation_and_an_empty_map_no_claim(toys):
    model = toys.constant()
    batch = toys.pictures(model, 2)
    maps = toys.maps_of(model, batch, torch.ones(2, 6, 6), torch.zeros(2, 6, 6))
    scores = toys.score("violation", model, batch, maps)
    assert scores.value[0].tolist() == [0.0, 0.0]
    assert scores.status[1] == ("undefined: the map is zero on the deleted units, or sums to zero there",) * 2
    text = toys.words()
    empty = toys.sentences(text, (0, 3))
    assert toys.score("violation", text, empty, toys.random_maps(text, empty, 1)).value.isnan().tolist() == [
        [True, False]
    ]


@pytest.mark.parametrize("top", [-0.1, 1.5])
def test_a_share_outside_its_range_is_refused(toys, top):
    with pytest.raises(SpecError, match=f"top={top}"):
        toys.metric(f"violation(top={top})")
