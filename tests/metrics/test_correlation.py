"""Faithfulness correlation and sensitivity-n, against the definition and against known answers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from heatcheck.core.spec import SpecError
from heatcheck.metrics.subsets import subsets

MUTANTS = (
    (
        "metrics/correlation.py",
        "spearman if self.rank else pearson",
        "pearson if self.rank else spearman",
        "test_mufidelity_ranks_sets_of_cells",
    ),
    (
        "metrics/correlation.py",
        "before[i] - next(after)",
        "next(after) - before[i]",
        "test_a_size_at_which_only_the_map_is_flat_counts_as_zero",
    ),
    (
        "metrics/correlation.py",
        "round(self.share * n)",
        "round((1 - self.share) * n)",
        "test_sets_of_one_size_are_shared_by_the_two_metrics",
    ),
    (
        "metrics/correlation.py",
        "round(last ** (k / steps))",
        "round(last * (k + 1) / (steps + 1))",
        "test_a_size_at_which_only_the_map_is_flat_counts_as_zero",
    ),
    (
        "metrics/correlation.py",
        "each.nan_to_num(0.0).mean(-1)",
        "each.nanmean(-1)",
        "test_a_size_at_which_only_the_map_is_flat_counts_as_zero",
    ),
    (
        "metrics/correlation.py",
        "last = max(1.0, LARGEST * n)",
        "last = max(1.0, n)",
        "test_a_size_at_which_only_the_map_is_flat_counts_as_zero",
    ),
)
BOTH = ("faithfulness_correlation(samples=12)", "sensitivity_n(samples=12, sizes=4)")


def slow_pairs(toys, model, batch, row, heat, units, size, samples):
    """Sums of the map and drops of the logit, one set at a time."""
    n = int(units.count[row])
    sites = heat.numel()
    clean = toys.ask(model, batch, row, torch.ones(sites, dtype=torch.bool))
    worth, cost = [], []
    for subset in subsets(batch.streams, row, n, size, samples):
        members = subset().nonzero().flatten()
        gone = torch.isin(units.index[row], members)
        worth.append(float(heat.flatten()[gone].sum()))
        cost.append(clean - toys.ask(model, batch, row, ~gone))
    return worth, cost


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize(("rank", "share"), [(False, 0.1), (True, 0.4)])
def test_faithfulness_correlation_agrees_with_the_definition(toys, kind, rank, share):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    spec = f"faithfulness_correlation(samples=15, share={share}, rank={str(rank).lower()})"
    got = toys.score(spec, model, batch, maps).value
    units = model.domain.units("site", batch.x)
    for j in range(2):
        for i in range(3):
            size = max(1, round(share * int(units.count[i])))
            pairs = slow_pairs(toys, model, batch, i, maps.sites()[j, i], units, size, 15)
            expected = (stats.spearmanr if rank else stats.pearsonr)(*pairs).statistic
            assert got[j, i] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["image", "text"])
def test_sensitivity_n_agrees_with_the_definition(toys, kind):
    model, batch = toys.stage(kind)
    maps = toys.random_maps(model, batch, 2)
    got = toys.score("sensitivity_n(samples=15, sizes=5)", model, batch, maps).value
    units = model.domain.units("site", batch.x)
    for j in range(2):
        for i in range(3):
            n = int(units.count[i])
            sizes = sorted({round(s) for s in np.geomspace(1, max(1.0, 0.8 * n), 5)})
            each = [slow_pairs(toys, model, batch, i, maps.sites()[j, i], units, size, 15) for size in sizes]
            expected = np.mean([stats.pearsonr(*pairs).statistic for pairs in each])
            assert got[j, i] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("spec", BOTH)
def test_the_truth_scores_one_on_an_additive_model(toys, kind, spec):
    model, batch = toys.stage(kind, bent_model=False)
    right = toys.truth(model, batch)
    got = toys.score(spec, model, batch, toys.maps_of(model, batch, right, 2 * right, -right)).value
    assert torch.allclose(got, torch.tensor([[1.0], [1.0], [-1.0]], dtype=torch.float64).expand_as(got), atol=1e-9)


@settings(max_examples=4, deadline=None)
@given(scale=st.floats(0.01, 100), shift=st.floats(-10, 10), seed=st.integers(0, 10**6))
def test_bounds_and_invariance(toys, scale, shift, seed):
    model, batch = toys.stage("image")
    probe = toys.probe_on(model)
    heat = toys.random_maps(model, batch, 1, seed=seed).items[0].values
    maps = toys.maps_of(model, batch, heat, heat * scale + shift, -heat)
    for spec in BOTH:
        got = toys.score(spec, model, batch, maps, probe).value
        assert (got.abs() <= 1).all()
        assert torch.allclose(got[0], got[1], atol=1e-9) and torch.allclose(got[0], -got[2], atol=1e-12)


def test_random_maps_score_zero_on_average(toys):
    model = toys.bent(1, 6)
    batch = toys.pictures(model, 6)
    probe = toys.probe_on(model)
    maps = toys.random_maps(model, batch, 60)
    for spec in BOTH:
        got = toys.score(spec, model, batch, maps, probe).value
        assert abs(float(got.mean())) < 4 * float(got.std()) / np.sqrt(got.numel())


@pytest.mark.parametrize("kind", ["image", "text"])
@pytest.mark.parametrize("spec", BOTH)
def test_another_method_costs_nothing(toys, kind, spec):
    model, batch = toys.stage(kind)
    probe = toys.probe_on(model)
    first = toys.score(spec, model, batch, toys.random_maps(model, batch, 1), probe).value
    before = probe.spent.forwards
    more = toys.score(spec, model, batch, toys.random_maps(model, batch, 4), probe).value
    assert probe.spent.forwards == before and probe.spent.backwards == 0
    assert torch.equal(first[0], more[0])


def test_sets_of_one_size_are_shared_by_the_two_metrics(toys):
    model, batch = toys.stage("image")
    maps = toys.random_maps(model, batch, 1)
    probe = toys.probe_on(model)
    toys.score("sensitivity_n(samples=12, sizes=1)", model, batch, maps, probe)
    before = probe.spent.forwards
    toys.score("faithfulness_correlation(samples=12, share=0.03)", model, batch, maps, probe)
    assert probe.spent.forwards == before


def test_mufidelity_ranks_sets_of_cells(toys):
    model = toys.bent(1, 9)
    batch = toys.pictures(model, 2, 1, 9)
    maps = toys.random_maps(model, batch, 2)
    spec = "faithfulness_correlation(rank=true, units=grid(9), share=0.2, samples=20)"
    got = toys.score(spec, model, batch, maps).value
    units = model.domain.units("grid(9)", batch.x)
    for j in range(2):
        for i in range(2):
            pairs = slow_pairs(toys, model, batch, i, maps.sites()[j, i], units, 16, 20)
            assert got[j, i] == pytest.approx(stats.spearmanr(*pairs).statistic, abs=1e-12)


def test_bits_do_not_depend_on_other_maps_where_sets_are_large(toys):
    """Hundreds of units per set: long sums must not be split otherwise for more maps."""
    model = toys.linear(1, 64)
    batch = toys.pictures(model, 2, 1, 64)
    maps = toys.random_maps(model, batch, 5)
    spec = "faithfulness_correlation(samples=6)"
    every = toys.score(spec, model, batch, maps).value
    for j in range(5):
        assert torch.equal(toys.score(spec, model, batch, maps.only([j])).value[0], every[j])


@pytest.mark.parametrize("spec", BOTH)
def test_what_does_not_vary_has_no_score(toys, spec):
    """X8: a constant map, a constant model, a text of one token and one of none."""
    model, batch = toys.stage("image")
    flat = toys.score(spec, model, batch, toys.maps_of(model, batch, torch.full((3, 6, 6), 0.1)))
    dull = toys.constant()
    still = toys.pictures(dull, 3)
    blind = toys.score(spec, dull, still, toys.random_maps(dull, still, 1))
    text = toys.words()
    short = toys.sentences(text, (0, 1, 0))
    bare = toys.score(spec, text, short, toys.random_maps(text, short, 1))
    for scores in (flat, blind, bare):
        assert scores.value.isnan().all()
        assert set(scores.status[0]) == {
            "undefined: all sets have the same attribution, or deleting them changes the output equally"
        }


def test_a_size_at_which_only_the_map_is_flat_counts_as_zero(toys):
    """The map marks one pixel, which none of the sets of one holds, but some of the large ones do."""
    model = toys.linear(1, 6)
    batch = toys.pictures(model, 1)
    small, large = (torch.stack([s() for s in subsets(batch.streams, 0, 36, k, 4)]).sum(0) for k in (1, 29))
    heat = torch.zeros(1, 36, dtype=torch.float64)
    heat[0, int(((small == 0) & (large > 0) & (large < 4)).nonzero()[0])] = 1.0
    maps = toys.maps_of(model, batch, heat.reshape(1, 6, 6))
    both, alone = (float(toys.score(f"sensitivity_n(samples=4, sizes={k})", model, batch, maps).value) for k in (2, 1))
    units = model.domain.units("site", batch.x)
    of_large = stats.pearsonr(*slow_pairs(toys, model, batch, 0, heat, units, 29, 4)).statistic
    assert np.isnan(alone) and both == pytest.approx(of_large / 2, abs=1e-12)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("faithfulness_correlation(share=0)", r"share=0.0 must be above 0"),
        ("faithfulness_correlation(share=1.5)", r"share=1.5"),
        ("faithfulness_correlation(samples=0)", r"samples=0 must be at least 1"),
        ("sensitivity_n(sizes=0)", r"sizes=0 must be at least 1"),
    ],
)
def test_bad_parameters_are_refused(toys, spec, said):
    with pytest.raises(SpecError, match=said):
        toys.metric(spec)
