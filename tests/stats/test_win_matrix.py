"""Who beats whom: κ against the formula in a plain loop, and the laws of every fair way to rank."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from heatcheck.stats.bradley_terry import bradley_terry
from heatcheck.stats.ranks import rank_of
from heatcheck.stats.win_matrix import apart, borda, kappa, outcomes, win_matrix

MUTANTS = (
    ("stats/win_matrix.py", "(a < b) + (a == b) / 2", "(a <= b) * 1.0", "test_kappa_is_the_formula"),
    ("stats/win_matrix.py", "cases + 2 * PRIOR", "cases + PRIOR", "test_kappa_is_the_formula"),
    ("stats/win_matrix.py", "found - found.mean(axis=-1, keepdims=True)", "found", "test_kappa_sums_to_zero"),
    ("stats/win_matrix.py", "met = np.maximum(", "met = 1 + np.maximum(", "test_kappa_is_the_formula"),
)


def rankings():
    """Cases × methods: scores with ties, ranked."""
    shapes = st.tuples(st.integers(1, 7), st.integers(2, 6))
    return shapes.flatmap(lambda s: arrays(np.float64, s, elements=st.integers(0, 4).map(float))).map(
        lambda scores: rank_of(scores.T).T
    )


def slow_kappa(ranks):
    """METRICS §10, one pair and one case at a time."""
    cases, methods = ranks.shape
    found = []
    for p in range(methods):
        odds = []
        for q in range(methods):
            if q == p:
                continue
            wins = sum(1 for c in range(cases) if ranks[c, p] < ranks[c, q])
            ties = sum(1 for c in range(cases) if ranks[c, p] == ranks[c, q])
            share = (wins + ties / 2 + 0.5) / (cases + 1)
            odds.append(math.log(share / (1 - share)))
        found.append(sum(odds) / len(odds))
    return found


@given(rankings())
def test_kappa_is_the_formula(ranks):
    assert kappa(*win_matrix(ranks)) == pytest.approx(slow_kappa(ranks), abs=1e-12)


@given(rankings())
def test_wins_of_both_sides_are_all_cases(ranks):
    wins, cases = win_matrix(ranks)
    assert (wins + wins.T == cases).all()
    assert borda(wins, cases)[0].sum() == pytest.approx(cases.sum() / 2)


@given(rankings(), st.randoms())
def test_other_labels_change_nothing(ranks, random):
    order = list(range(ranks.shape[1]))
    random.shuffle(order)
    for score in (kappa, bradley_terry):
        before, after = score(*win_matrix(ranks)), score(*win_matrix(ranks[:, order]))
        assert after == pytest.approx(before[order], abs=1e-8)


@given(rankings())
def test_reversed_cases_reverse_the_scores(ranks):
    for score in (kappa, bradley_terry):
        assert score(*win_matrix(-ranks)) == pytest.approx(-score(*win_matrix(ranks)), abs=1e-8)


@given(rankings(), st.integers(0, 5), st.integers(0, 5))
def test_who_always_wins_ranks_higher(ranks, p, q):
    p, q = p % ranks.shape[1], q % ranks.shape[1]
    if p == q or not (ranks[:, p] < ranks[:, q]).all():
        return
    for score in (kappa, bradley_terry):
        found = score(*win_matrix(ranks))
        assert found[p] > found[q]


def test_unanimous_cases_are_their_ranking():
    ranks = np.tile([3.0, 1.0, 2.0, 4.0], (5, 1))
    for score in (kappa, bradley_terry):
        assert rank_of(score(*win_matrix(ranks))).tolist() == [3, 1, 2, 4]


def test_kappa_sums_to_zero():
    ranks = np.array([[1, 2, np.nan, 3], [np.nan, 1, 2, np.nan], [2, 1, np.nan, np.nan]])
    assert kappa(*win_matrix(ranks)).sum() == pytest.approx(0)


def test_methods_that_are_not_ranked_are_not_compared():
    points, both = outcomes(np.array([[1.0, np.nan, 2.0]]))
    assert points[0].tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert both[0].tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_groups_that_no_case_connects_are_found():
    ranks = np.array([[1, 2, np.nan, np.nan, np.nan], [np.nan, 1, 2, np.nan, np.nan], [np.nan] * 3 + [1, 2]])
    assert apart(win_matrix(ranks)[1]) == [[0, 1, 2], [3, 4]]
    assert apart(win_matrix(ranks[:, :3])[1]) == [[0, 1, 2]]
