"""Kemeny's ranking: the one that contradicts the cases least."""

from dataclasses import dataclass

import numpy as np

from heatcheck.stats.table import Array

EXACT = 12
"""Methods up to which the best of all rankings is found."""


@dataclass(frozen=True)
class KemenyRanking:
    """A ranking that contradicts the cases least.

    Args:
        order: methods by number, best first.
        contradicted: in how many pairs of methods, over all cases, the ranking puts first who came second; of ties,
            nothing is contradicted.
        exact: whether no ranking contradicts less for certain; else a search from Borda's ranking found none.
        optima: how many rankings contradict equally little; None where not exact.
    """

    order: tuple[int, ...]
    contradicted: float
    exact: bool
    optima: int | None


def kemeny(ranks: Array) -> KemenyRanking:
    """Kemeny's ranking of [cases, methods], 1 is best; NaN where a method is not ranked.

    Up to 12 methods by dynamic programming over subsets; beyond, a local search from Borda's ranking: one method at a
    time is put where it contradicts least, until none moves. Of several best rankings, the one that is nearest to
    Borda's from the top.

    Example:
        >>> kemeny(np.array([[1, 2, 3], [1, 2, 3], [3, 2, 1]]))
        KemenyRanking(order=(0, 1, 2), contradicted=3.0, exact=True, optima=1)

    Paper: kemeny1959.
    """
    values = np.asarray(ranks, dtype=np.float64)
    a, b = values[:, :, None], values[:, None, :]
    wins = (a < b).sum(axis=0).astype(np.float64)
    start = _by_borda(wins)
    cost = wins.T[np.ix_(start, start)]  # of the first before the second, in Borda's order
    if len(cost) <= EXACT:
        order, contradicted, optima = _best_of_all(cost)
        return KemenyRanking(tuple(start[i] for i in order), contradicted, True, optima)
    order = _searched(cost)
    contradicted = float(sum(cost[p, q] for i, p in enumerate(order) for q in order[i + 1 :]))
    return KemenyRanking(tuple(start[i] for i in order), contradicted, False, None)


def _by_borda(wins: Array) -> list[int]:
    balance = (wins - wins.T).sum(axis=1)
    return [int(i) for i in np.argsort(-balance, kind="stable")]


def _best_of_all(cost: Array) -> tuple[list[int], float, int]:
    """The best order, what it costs, and how many orders cost as little; `best[s]` is that of the methods s from behind."""
    n = len(cost)
    best = np.zeros(1 << n)
    ways = [1] + [0] * ((1 << n) - 1)
    first = [0] * (1 << n)
    for s in range(1, 1 << n):
        members = [i for i in range(n) if s >> i & 1]
        found = np.inf
        for i in members:
            rest = s & ~(1 << i)
            value = best[rest] + sum(cost[i, j] for j in members if j != i)
            if value < found:
                found, first[s], ways[s] = value, i, ways[rest]
            elif value == found:
                ways[s] += ways[rest]
        best[s] = found
    order, s = [], (1 << n) - 1
    while s:
        order.append(first[s])
        s &= ~(1 << first[s])
    return order, float(best[-1]), ways[-1]


def _searched(cost: Array) -> list[int]:
    """An order that no move of one method improves."""
    order = list(range(len(cost)))
    moved = True
    while moved:
        moved = False
        for method in range(len(cost)):
            now = order.index(method)
            rest = [m for m in order if m != method]
            ahead = np.array([0.0, *np.cumsum([cost[m, method] for m in rest])])
            behind = np.array([*np.cumsum([cost[method, m] for m in rest][::-1])[::-1], 0.0])
            total = ahead + behind
            place = int(np.argmin(total))
            if total[place] < total[now]:
                order = [*rest[:place], method, *rest[place:]]
                moved = True
    return order
