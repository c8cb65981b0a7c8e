"""How far maps disagree, against scipy, by hand, and by laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from heatcheck.stats.disagreement import (
    between_methods,
    disagreement,
    map_agreement,
    mean_disagreement,
    on_one_grid,
    pooled,
    rank_of_rows,
)

MUTANTS = (
    ("stats/disagreement.py", "last - (count - 1) / 2", "last", "test_correlations_are_scipys"),
    (
        "stats/disagreement.py",
        "return 1 - _correlations",
        "return _correlations",
        "test_equal_maps_agree_and_reversed_ones_do_not",
    ),
    ("stats/disagreement.py", "k=1)]", "k=0)]", "test_the_mean_is_over_pairs"),
    ("stats/disagreement.py", "-(-(i + 1) * n // side)", "(i + 1) * n // side", "test_coarser_maps_are_repeated"),
)
RNG = np.random.default_rng(0)


@given(st.lists(st.integers(0, 5), min_size=3, max_size=12), st.integers(0, 99))
@settings(max_examples=50)
def test_correlations_are_scipys(first, seed):
    a = np.array(first, dtype=float)
    b = np.random.default_rng(seed).integers(0, 4, len(a)).astype(float)
    assert rank_of_rows(a[None])[0] == pytest.approx(scipy_stats.rankdata(a))
    if len(set(a)) > 1 and len(set(b)) > 1:
        assert map_agreement(a, b) == pytest.approx(scipy_stats.spearmanr(a, b)[0])
    else:
        assert np.isnan(map_agreement(a, b))


def test_equal_maps_agree_and_reversed_ones_do_not():
    a = RNG.normal(size=(8, 8))
    found = disagreement({"a": a, "same": np.exp(a), "against": -a})
    assert found[0] == pytest.approx([0, 0, 2])


def test_the_mean_is_over_pairs():
    a = np.arange(5.0)
    assert mean_disagreement({"a": a, "b": -a, "c": a}) == pytest.approx((2 + 0 + 2) / 3)
    assert mean_disagreement({"a": a, "flat": np.ones(5), "c": a}) == pytest.approx(0)
    assert np.isnan(mean_disagreement({"a": a}))


def test_maps_of_different_resolution_meet_on_one_grid():
    fine = np.kron(np.arange(49.0).reshape(7, 7), np.ones((8, 8)))
    assert map_agreement(np.arange(49.0).reshape(7, 7), fine) == pytest.approx(1)
    same = on_one_grid([fine, fine])
    assert same[0].size == 56 * 56


def test_coarser_maps_are_repeated():
    assert pooled(np.array([[1.0, 2.0], [3.0, 4.0]]), 3).shape == (3, 3)
    assert np.isfinite(pooled(RNG.normal(size=(5, 5)))).all()
    assert pooled(RNG.normal(size=(28, 28)), 28).shape == (28, 28)


def test_texts_of_different_length_cannot_be_compared():
    with pytest.raises(ValueError, match="maps of 3, 4 sites"):
        map_agreement(np.arange(3.0), np.arange(4.0))


def test_pairs_are_averaged_over_samples():
    a = np.arange(6.0)
    found = between_methods([{"a": a, "b": a, "c": -a}, {"a": a, "b": -a, "c": -a}], resamples=50).to_dicts()
    assert {(r["a"], r["b"]): r["disagreement"] for r in found} == pytest.approx(
        {("a", "b"): 1, ("a", "c"): 2, ("b", "c"): 1}
    )
    assert {r["n"] for r in found} == {2}
    assert between_methods([]).height == 0
