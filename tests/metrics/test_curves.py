"""Orders, deletion sets, areas and correlations, against slow definitions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import integrate, stats

from heatcheck.core.types import Streams
from heatcheck.domain.base import Units
from heatcheck.metrics import curves

MUTANTS = (
    (
        "metrics/curves.py",
        "right=least_first != inclusive",
        "right=least_first",
        "test_percentile_sets_of_different_values_have_known_sizes",
    ),
    (
        "metrics/curves.py",
        "first = 1 if inclusive and least_first else 0",
        "first = 0",
        "test_percentile_sets_of_different_values_have_known_sizes",
    ),
    ("metrics/curves.py", "n + -spared // steps", "n - spared // steps", "test_percentile_sets_of_nothing"),
    ("metrics/curves.py", "after = curve[..., 1:]", "after = curve[..., :-1]", "test_the_areas_of_a_line"),
    (
        "metrics/curves.py",
        "torch.where(place < n, n - 1 - place, place)",
        "torch.where(place < n, n - place, place)",
        "test_the_most_relevant_go_first_and_ghosts_last",
    ),
    (
        "metrics/curves.py",
        "argsort(dim=-1, descending=True, stable=True)",
        "argsort(dim=-1, descending=False, stable=True)",
        "test_the_most_relevant_go_first_and_ghosts_last",
    ),
    (
        "metrics/curves.py",
        "torch.arange(steps + 1, device=units.index.device) * units.count[:, None] // steps",
        "-(-torch.arange(steps + 1, device=units.index.device) * units.count[:, None] // steps)",
        "test_step_k_deletes_the_floor_of_kn_over_l",
    ),
    (
        "metrics/curves.py",
        'index if ties == "index" else index.flip(-1)',
        'index.flip(-1) if ties == "index" else index',
        "test_ties_are_random_per_sample_and_equal_for_all_methods",
    ),
    ("metrics/curves.py", "(start + stop).double() / 2 + 1", "start.double() + 1", "test_ranks_are_scipys"),
    ("metrics/curves.py", "inner / (curve.shape[-1] - 1)", "inner / curve.shape[-1]", "test_the_areas_of_a_line"),
    (
        "metrics/curves.py",
        "curve[..., :-1].contiguous().mean(-1)",
        "curve[..., 1:].contiguous().mean(-1)",
        "test_the_areas_of_a_line",
    ),
    (
        "metrics/curves.py",
        "a - a.mean(-1, keepdim=True), b - b.mean(-1, keepdim=True)",
        "a, b",
        "test_spearman_is_scipys",
    ),
    ("metrics/curves.py", "pearson(average_ranks(a), average_ranks(b))", "pearson(a, b)", "test_spearman_is_scipys"),
    (
        "metrics/curves.py",
        "(n - 1) * k // steps + 1 if inclusive",
        "(n - 1) * k // steps if inclusive",
        "test_percentile_sets_of_different_values_have_known_sizes",
    ),
)
coarse = st.integers(-3, 3).map(float)
rows = hnp.arrays(np.float64, st.integers(2, 12), elements=coarse)


def flat_units(*counts, width=None):
    width = width or max(counts)
    index = torch.where(torch.arange(width) < torch.tensor(counts)[:, None], torch.arange(width), -1)
    return Units("unit", index, torch.tensor(counts), width)


def slow_order(values, first):
    """Units by falling value; equal ones as they come in `first`."""
    return sorted(range(len(values)), key=lambda u: (-values[u], list(first).index(u)))


@given(rows, st.integers(0, 3), st.randoms(use_true_random=False))
def test_the_most_relevant_go_first_and_ghosts_last(values, ghosts, random):
    n, width = len(values), len(values) + ghosts
    first = random.sample(range(width), width)
    padded = torch.cat([torch.from_numpy(values), torch.full((ghosts,), 99.0, dtype=torch.float64)])
    units = flat_units(n, width=width)
    place = curves.by_relevance(padded[None, None], torch.tensor([first]), units)[0, 0]
    expected = slow_order(values, [u for u in first if u < n])
    assert place[expected].tolist() == list(range(n))
    assert sorted(place[n:].tolist()) == list(range(n, width))
    back = curves.mirrored(place[None, None], units)[0, 0]
    assert back[expected[::-1]].tolist() == list(range(n))
    assert torch.equal(back[n:], place[n:])


def test_ties_are_random_per_sample_and_equal_for_all_methods():
    streams = Streams(0, tuple("abcdef"))
    units = flat_units(*(8,) * 6)
    first = curves.tie_breakers(streams, units, "random")
    place = curves.by_relevance(torch.zeros(3, 6, 8), first, units)
    assert torch.equal(place[0], place[1]) and torch.equal(place[0], place[2])
    assert len({tuple(p.tolist()) for p in place[0]}) == 6
    assert torch.equal(
        first[2:4], curves.tie_breakers(streams.take([2, 3]), units.take(torch.tensor([2, 3])), "random")
    )
    assert curves.by_relevance(torch.zeros(1, 1, 4), curves.tie_breakers(Streams(0, ("a",)), flat_units(4), "index"),
                               flat_units(4)).tolist() == [[[0, 1, 2, 3]]]  # fmt: skip
    backwards = curves.tie_breakers(Streams(0, ("a",)), flat_units(4), "reverse_index")
    assert curves.by_relevance(torch.zeros(1, 1, 4), backwards, flat_units(4)).tolist() == [[[3, 2, 1, 0]]]


@given(st.integers(0, 70), st.integers(1, 40))
def test_step_k_deletes_the_floor_of_kn_over_l(n, steps):
    gone = curves.step_counts(flat_units(n, width=max(n, 1)), steps)[0].tolist()
    assert gone == [int(k * n / steps + 1e-9) for k in range(steps + 1)]
    assert gone[0] == 0 and gone[-1] == n


def slow_percentile_sets(explanation, steps):
    """InterpretDL's `generate_samples_array`: the sets deleted after each step, MoRF then LeRF."""
    q = 100.0 / steps
    percentiles = np.percentile(explanation, [q * (i - 1) for i in range(steps, 0, -1)])
    morf, lerf = [set()], [set()]
    for p in percentiles:
        morf.append(morf[-1] | set(np.where(explanation > p)[0].tolist()))
    for p in percentiles[::-1]:
        lerf.append(lerf[-1] | set(np.where(explanation < p)[0].tolist()))
    return morf, lerf


@given(st.one_of(rows, hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(-1, 1))), st.integers(1, 25))
def test_percentile_sets_are_those_of_m4(values, steps):
    units = flat_units(len(values), width=len(values) + 2)
    padded = torch.cat([torch.from_numpy(values), torch.zeros(2, dtype=torch.float64)])[None, None]
    for least_first, sets in zip((False, True), slow_percentile_sets(values, steps), strict=True):
        when = curves.percentile_places(padded, units, steps, least_first=least_first)[0, 0]
        assert [set(torch.nonzero(when <= k).flatten().tolist()) for k in range(steps + 1)] == sets


def slow_text_sets(explanation, steps):
    """InterpretDL's `PerturbationNLP` with percentiles: MoRF holds A ≥ the qth for q = 99 … 0, LeRF A ≤ it for 1 … 100."""
    percentiles = np.percentile(explanation, np.minimum(100.0 / steps * np.arange(steps + 1), 100.0))
    morf = [set(), *(set(np.where(explanation >= p)[0].tolist()) for p in percentiles[:-1][::-1])]
    lerf = [set(), *(set(np.where(explanation <= p)[0].tolist()) for p in percentiles[1:])]
    return morf, lerf


@given(st.one_of(rows, hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(-1, 1))), st.integers(1, 25))
def test_inclusive_percentile_sets_are_those_of_m4_for_texts(values, steps):
    units = flat_units(len(values), width=len(values) + 2)
    padded = torch.cat([torch.from_numpy(values), torch.zeros(2, dtype=torch.float64)])[None, None]
    for least_first, sets in zip((False, True), slow_text_sets(values, steps), strict=True):
        when = curves.percentile_places(padded, units, steps, least_first=least_first, inclusive=True)[0, 0]
        assert [set(torch.nonzero(when <= k).flatten().tolist()) for k in range(steps + 1)] == sets
        assert len(sets[-1]) == len(values)


@given(st.integers(1, 40), st.sampled_from([1, 2, 4, 8, 16]), st.booleans(), st.booleans())
def test_percentile_sets_of_different_values_have_known_sizes(n, steps, least_first, inclusive):
    """Steps whose percentiles are exact in binary: others may miss a value that they should meet, in M4 as here."""
    values = torch.arange(n, dtype=torch.float64)[None, None]
    when = curves.percentile_places(values, flat_units(n), steps, least_first=least_first, inclusive=inclusive)
    sizes = [int((when <= k).sum()) for k in range(steps + 1)]
    assert sizes == curves.percentile_counts(n, steps, least_first=least_first, inclusive=inclusive)


def test_percentile_sets_of_nothing():
    for least_first in (False, True):
        for inclusive in (False, True):
            gone = curves.percentile_counts(0, 7, least_first=least_first, inclusive=inclusive)
            assert max(gone) <= 0


def test_percentile_sets_never_split_ties():
    """A map that is zero on half its units is never more than half deleted by MoRF; a constant one never at all."""
    values = torch.tensor([0.0] * 5 + [1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)[None, None]
    when = curves.percentile_places(values, flat_units(10), 20, least_first=False)
    assert int((when <= 20).sum()) == 5
    assert int((curves.percentile_places(torch.ones(1, 1, 10), flat_units(10), 20, least_first=False) <= 20).sum()) == 0


def test_the_areas_of_a_line():
    line = torch.linspace(0, 1, 5, dtype=torch.float64)
    assert curves.area(line, "mean") == pytest.approx(0.5)
    assert curves.area(line, "trapezoid") == pytest.approx(0.5)
    step = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    assert curves.area(step, "mean") == pytest.approx(1 / 3)
    assert curves.area(step, "trapezoid") == pytest.approx(1 / 4)
    assert curves.area(step, "left") == pytest.approx(1 / 2)
    assert curves.area(step, "quantus") == pytest.approx(0)
    assert curves.area(1 - step, "quantus") == pytest.approx(1)


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 3), st.integers(2, 12)), elements=st.floats(0, 1)))
def test_areas_are_scipys(curve):
    """Left Riemann sum, mean, and trapezoids of width 1/L (RISE) or of width 1 from the second point (Quantus)."""
    expected = {
        "mean": curve.mean(1),
        "left": curve[:, :-1].mean(1),
        "trapezoid": integrate.trapezoid(curve, dx=1 / (curve.shape[1] - 1)),
        "quantus": integrate.trapezoid(curve[:, 1:]),
    }
    assert set(expected) == set(curves.AREAS)
    for rule, value in expected.items():
        assert curves.area(torch.from_numpy(curve), rule).numpy() == pytest.approx(value, abs=1e-12)


@given(rows)
def test_ranks_are_scipys(values):
    assert curves.average_ranks(torch.from_numpy(values)).tolist() == stats.rankdata(values).tolist()


@settings(max_examples=60)
@given(st.integers(2, 12).flatmap(lambda n: hnp.arrays(np.float64, (2, n), elements=coarse)))
def test_spearman_is_scipys(pair):
    ours = float(curves.spearman(*torch.from_numpy(pair)))
    if (pair == pair[:, :1]).all(1).any():
        assert np.isnan(ours)
    else:
        assert ours == pytest.approx(stats.spearmanr(*pair).statistic, abs=1e-12)


def test_a_constant_that_is_no_power_of_two_has_no_correlation():
    flat, varied = torch.full((3,), 0.1, dtype=torch.float64), torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    assert curves.pearson(flat, varied).isnan()
    assert curves.pearson(varied, varied * 1e-200) == pytest.approx(1)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_units_have_no_correlation(n):
    nothing = torch.zeros(2, n, dtype=torch.float64)
    assert curves.spearman(nothing, nothing).isnan().all()
