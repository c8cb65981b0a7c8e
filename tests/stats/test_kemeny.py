"""Kemeny's ranking against all rankings."""

from itertools import permutations

import numpy as np
import pytest

from heatcheck.stats.kemeny import EXACT, kemeny
from heatcheck.stats.ranks import rank_of

MUTANTS = (
    ("stats/kemeny.py", "value < found:", "value > found or found == np.inf:", "test_it_is_the_best_of_all_rankings"),
    ("stats/kemeny.py", "ways[s] += ways[rest]", "ways[s] += 1", "test_it_is_the_best_of_all_rankings"),
    ("stats/kemeny.py", "if total[place] < total[now]", "if total[place] > total[now] and len(order) < 0", "test_a_search_beats_its_start"),
)  # fmt: skip


def contradicted(order, ranks):
    """Pairs of methods that a ranking turns round, case by case."""
    return sum(
        1 for case in ranks for i, p in enumerate(order) for q in order[i + 1 :] if case[q] < case[p]
    )  # fmt: skip


@pytest.mark.parametrize(("methods", "seed"), [(2, 0), (3, 1), (4, 2), (5, 3), (5, 4), (6, 5)])
def test_it_is_the_best_of_all_rankings(methods, seed):
    rng = np.random.default_rng(seed)
    ranks = rank_of(rng.integers(0, 4, size=(5, methods)).astype(float).T).T
    ranks[0, 0] = np.nan
    costs = [contradicted(order, ranks) for order in permutations(range(methods))]
    found = kemeny(ranks)
    assert found.exact
    assert found.contradicted == min(costs) == contradicted(found.order, ranks)
    assert found.optima == costs.count(min(costs))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_best_of_all_rankings_of_seven(seed):
    ranks = rank_of(np.random.default_rng(seed).normal(size=(7, 6))).T
    costs = [contradicted(order, ranks) for order in permutations(range(7))]
    assert kemeny(ranks).contradicted == min(costs)
    assert kemeny(ranks).optima == costs.count(min(costs))


def test_condorcets_winner_comes_first():
    ranks = np.array([[1, 2, 3], [1, 3, 2], [3, 1, 2.0]])
    assert kemeny(ranks).order[0] == 0


def test_reversed_cases_are_contradicted_as_often():
    ranks = rank_of(np.random.default_rng(1).normal(size=(6, 5))).T
    there, back = kemeny(ranks), kemeny(-ranks)
    assert there.contradicted == back.contradicted
    assert there.optima == back.optima
    if there.optima == 1:
        assert there.order == back.order[::-1]


def test_twelve_methods_are_exact_and_thirteen_a_search():
    unanimous = np.tile(np.arange(1.0, EXACT + 2), (3, 1))
    assert kemeny(unanimous[:, :EXACT]).exact
    found = kemeny(unanimous)
    assert not found.exact and found.optima is None
    assert found.order == tuple(range(EXACT + 1)) and found.contradicted == 0


def test_a_search_beats_its_start():
    cycle = np.tile(np.arange(4.0, 17.0), (5, 1))
    cycle[:2, :3], cycle[2:4, :3], cycle[4, :3] = [1, 2, 3], [2, 3, 1], [3, 1, 2]
    cycle[:, 3:] = np.random.default_rng(0).permuted(cycle[:, 3:], axis=1)
    start = np.argsort(np.array([(case[:, None] > case).sum(axis=1) for case in cycle]).sum(axis=0), kind="stable")
    found = kemeny(cycle)
    assert found.contradicted == contradicted(found.order, cycle)
    assert found.contradicted < contradicted(start.tolist(), cycle)
    for i in range(13):  # no single move improves it
        rest = [m for m in found.order if m != found.order[i]]
        moves = [[*rest[:k], found.order[i], *rest[k:]] for k in range(13)]
        assert min(contradicted(move, cycle) for move in moves) >= found.contradicted
