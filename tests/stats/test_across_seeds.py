"""Rank correlations of trainings: by scipy, and how often the interval holds the truth where seeds and samples both vary.

Generator: normal parts of methods, of seeds, of samples and of the rest.
"""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from heatcheck.stats.across_seeds import alike_across_seeds, pair_correlations

MUTANTS = (
    ("stats/across_seeds.py", "(seeds - 1) / seeds * float", "0 * float", "test_seeds_are_counted_beside_samples"),
    (
        "stats/across_seeds.py",
        "correlations[..., first, second].mean",
        "correlations[..., first, second].min",
        "test_it_is_the_mean_of_scipys_correlations",
    ),
)
MEANS = np.linspace(0, 1, 8)


def scores(rng, seeds, n, of_seed, of_sample=0.3, rest=0.3):
    shape = (seeds, len(MEANS), n)
    parts = of_seed * rng.normal(size=(*shape[:2], 1)) + of_sample * rng.normal(size=(1, *shape[1:]))
    return MEANS[:, None] + parts + rest * rng.normal(size=shape)


def test_it_is_the_mean_of_scipys_correlations():
    values = scores(np.random.default_rng(0), 4, 30, 0.3).round(1)
    means = values.mean(-1)
    theirs = [scipy_stats.spearmanr(means[i], means[j])[0] for i, j in combinations(range(4), 2)]
    found = alike_across_seeds(values)
    assert found.value == pytest.approx(np.mean(theirs))
    assert found.low < found.value < found.high <= 1 and found.n == 30
    assert pair_correlations(means)[0, 1] == pytest.approx(theirs[0])


def test_samples_with_a_gap_are_left_out():
    values = scores(np.random.default_rng(0), 3, 30, 0.3)
    gap = values.copy()
    gap[1, 2, 4] = np.nan
    assert alike_across_seeds(gap) == alike_across_seeds(np.delete(values, 4, axis=2))


def test_what_is_too_little():
    values = scores(np.random.default_rng(0), 3, 30, 0.1)
    for few in (values[:2], values[:, :, :1]):
        found = alike_across_seeds(few)
        assert not np.isnan(found.value) and np.isnan(found.low)
    assert np.isnan(alike_across_seeds(np.zeros((3, 5, 9))).value)
    assert alike_across_seeds(np.full((3, 5, 9), np.nan)).n == 0


@pytest.mark.parametrize(("seeds", "of_seed"), [(3, 0.3), (5, 0.1)])
def test_seeds_are_counted_beside_samples(seeds, of_seed):
    """Of 60, at least 90 % hold the truth, where an interval over samples alone holds it in fewer than half in the first case."""
    drawn = MEANS + of_seed * np.random.default_rng(9).normal(size=(4000, 2, len(MEANS)))
    truth = pair_correlations(drawn)[:, 0, 1].mean()
    held = 0
    for i in range(60):
        found = alike_across_seeds(scores(np.random.default_rng([i, seeds]), seeds, 60, of_seed), resamples=60)
        held += found.low <= truth <= found.high
    assert held >= 54
