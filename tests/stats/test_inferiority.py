"""Not inferior, inferior, undecided: known truths, Student's bound, laws; and how often a bad candidate passes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from heatcheck.stats.inferiority import (
    INFERIOR,
    NOT_INFERIOR,
    UNDECIDED,
    bounds,
    inferiority,
    overall_verdict,
    passes,
)

MUTANTS = (
    (
        "stats/inferiority.py",
        "np.atleast_2d(differences) + margin",
        "np.atleast_2d(differences) + 2 * margin",
        "test_normal_scores_at_the_margin_seldom_pass",
    ),
    ("stats/inferiority.py", "d = sign * (candidate - base)", "d = candidate - base", "test_lower_may_be_better"),
    ("stats/inferiority.py", "if lost > LOST * had:", "if False:", "test_scores_that_are_lost_do_not_pass"),
    (
        "stats/inferiority.py",
        "base[:, same], candidate[:, same]",
        "base, candidate",
        "test_samples_of_other_classes_are_left_out_and_too_many_do_not_pass",
    ),
    ("stats/inferiority.py", "level=1 - 2 * ERROR", "level=1 - 20 * ERROR", "test_bounds_are_at_least_students"),
)
RNG = np.random.default_rng(0)


def one(base, candidate, margin=0.1, **other):
    return inferiority(np.atleast_2d(base), np.atleast_2d(candidate), margin, flips=499, **other)[0]


def test_known_truths():
    base = RNG.uniform(size=60)
    noise = 0.02 * RNG.normal(size=60)
    assert one(base, base + noise).verdict == NOT_INFERIOR
    assert one(base, base - 0.3 + noise).verdict == INFERIOR
    assert one(base, base - 0.1 + noise).verdict == UNDECIDED
    assert one(base, base + 0.5 + noise).verdict == NOT_INFERIOR
    found = one(base, base - 0.05 + noise)
    assert found.difference == pytest.approx((noise - 0.05).mean())
    assert found.low < found.difference < found.high
    assert (found.n, found.lost, found.why) == (60, 0, "")


def test_lower_may_be_better():
    base = RNG.uniform(size=40)
    assert one(base, base + 0.4, sign=-1).verdict == INFERIOR
    assert one(base, base - 0.4, sign=-1).verdict == NOT_INFERIOR


def test_the_same_model_passes_from_six_samples_on():
    base = np.linspace(0, 1, 6)
    assert one(base, base).verdict == NOT_INFERIOR
    few = one(base[:5], base[:5])
    assert (few.verdict, few.why) == (UNDECIDED, "5 common samples: at least 6 are needed")


def test_scores_that_are_lost_do_not_pass():
    base = RNG.uniform(size=40)
    candidate = base + 0.01 * RNG.normal(size=40)
    candidate[:10] = np.nan
    found = one(base, candidate)
    assert (found.verdict, found.lost, found.n) == (UNDECIDED, 10, 30)
    assert found.why == "10 of the base's 40 samples have no score of the candidate"
    nothing = one(base, np.full(40, np.nan))
    assert (nothing.verdict, nothing.why) == (UNDECIDED, "no sample has a score of both")
    back = one(candidate, base)
    assert (back.verdict, back.lost) == (NOT_INFERIOR, 0)


def test_samples_of_other_classes_are_left_out_and_too_many_do_not_pass():
    base = RNG.uniform(size=40)
    candidate = base.copy()
    candidate[:4] = -9
    same = np.arange(40) >= 4
    found = one(base, candidate, same=same)
    assert (found.verdict, found.n, found.lost) == (NOT_INFERIOR, 36, 0)
    other = one(base, base, same=np.arange(40) >= 11)
    assert (other.verdict, other.n) == (UNDECIDED, 29)
    assert other.why == "on 11 of 40 samples the candidate explains another class than the base"
    assert one(base, base, same=np.zeros(40, dtype=bool)).verdict == UNDECIDED
    assert one(base, base - 1, same=np.arange(40) >= 20).verdict == INFERIOR


def test_bounds_are_at_least_students():
    values = RNG.normal(size=(3, 25))
    for (low, high), row in zip(bounds(values), values, strict=True):
        student = scipy_stats.t.interval(0.95, 24, row.mean(), scipy_stats.sem(row))
        assert low <= student[0] + 1e-9
        assert high >= student[1] - 1e-9
        assert high - low < 1.5 * (student[1] - student[0])


@given(st.integers(0, 1000), st.sampled_from([0.5, 2.0, 10.0]))
@settings(max_examples=10, deadline=None)
def test_the_unit_of_the_metric_has_no_influence(seed, factor):
    rng = np.random.default_rng(seed)
    base, candidate = rng.normal(size=(2, 20))
    one_way, other = one(base, candidate, 0.5), one(factor * base, factor * candidate, 0.5 * factor)
    assert one_way.verdict == other.verdict
    assert other.difference == pytest.approx(factor * one_way.difference)


@pytest.mark.parametrize("margin", [0.0, -0.1, float("nan"), float("inf")])
def test_a_margin_must_be_above_zero(margin):
    with pytest.raises(ValueError, match="must be a number above zero"):
        one([0.1] * 9, [0.1] * 9, margin)


def test_tables_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match="cannot be paired"):
        inferiority(np.zeros((1, 3)), np.zeros((1, 4)), 0.1)


def test_all_must_pass_and_one_is_enough_to_fail():
    assert overall_verdict([NOT_INFERIOR, NOT_INFERIOR]) == NOT_INFERIOR
    assert overall_verdict([NOT_INFERIOR, UNDECIDED, INFERIOR]) == INFERIOR
    assert overall_verdict([NOT_INFERIOR, UNDECIDED]) == overall_verdict([]) == UNDECIDED


def spearman_of_16_cells(rng, rows, n):
    """Differences of two maps' rank correlations with the same drops, over 16 cells."""
    drops = rng.normal(size=(rows, n, 16)).argsort(2).argsort(2) - 7.5

    def score():
        ranks = (drops + 6 * rng.normal(size=drops.shape)).argsort(2).argsort(2) - 7.5
        return (drops * ranks).sum(2) / (drops**2).sum(2)

    return score() - score()


GENERATORS = {
    "normal": lambda rng, rows, n: rng.normal(size=(rows, n)),
    "beta(2, 5)": lambda rng, rows, n: rng.beta(2, 5, (rows, n)) - rng.beta(2, 5, (rows, n)),
    "beta(5, 1) losses": lambda rng, rows, n: rng.beta(5, 1, (rows, n)) - 5 / 6,
    "Spearman of 16 cells": spearman_of_16_cells,
    "lognormal": lambda rng, rows, n: rng.lognormal(size=(rows, n)) - rng.lognormal(size=(rows, n)),
    "lognormal losses": lambda rng, rows, n: np.exp(0.5) - rng.lognormal(size=(rows, n)),
}


@pytest.mark.parametrize("margin", [0.1, 1.0])
def test_normal_scores_at_the_margin_seldom_pass(margin):
    """A margin as large as the noise, too: half as much more would be seen there."""
    d = np.random.default_rng(3).normal(size=(100, 28)) - margin
    assert passes(d, margin, flips=199)[1].mean() <= 0.08
    assert passes(d + 1.5, margin, flips=199)[1].mean() >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATORS)
def test_at_most_a_twentieth_passes_at_the_margin(name):
    """n = 28, 400 candidates that are worse by exactly the margin; within two standard errors of 5 %."""
    d = GENERATORS[name](np.random.default_rng(4), 400, 28)
    assert passes(d - 0.1, 0.1, flips=499)[1].mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 400)
