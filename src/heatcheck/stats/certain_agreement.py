"""How far two rankings agree for certain.

Noise in two rankings looks like disagreement: measured rankings agree less than the true ones, the less the fewer samples
there are. Here only pairs of methods that are significantly apart in both rankings count as alike or contrary; all others may
be either.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from heatcheck.stats.meta_cases import CaseTable
from heatcheck.stats.ranks import ends_of_rank_sets, significantly_better
from heatcheck.stats.table import Array

Better = NDArray[np.bool_]
"""[methods, methods]: whether the first is significantly better than the second."""
Bounds = Callable[[Better, Better], tuple[float, float]]


def tau_bounds(first: Better, second: Better) -> tuple[float, float]:
    """The least and the greatest Kendall's τ that two rankings can have.

    Example:
        >>> ahead, unknown = np.array([[False, True], [False, False]]), np.zeros((2, 2), dtype=bool)
        >>> tau_bounds(ahead, ahead), tau_bounds(ahead, ahead.T), tau_bounds(ahead, unknown)
        ((1.0, 1.0), (-1.0, -1.0), (-1.0, 1.0))
    """
    pairs = len(first) * (len(first) - 1) / 2
    alike, contrary = (first & second).sum(), (first & second.T).sum()
    return float(2 * alike / pairs - 1), float(1 - 2 * contrary / pairs)


def rho_bounds(first: Better, second: Better) -> tuple[float, float]:
    r"""Bounds of Spearman's $\rho = 1 - 6\sum d^2 / (n(n^2-1))$, from the rank sets of every method.

    Example:
        >>> ahead, unknown = np.array([[False, True], [False, False]]), np.zeros((2, 2), dtype=bool)
        >>> rho_bounds(ahead, ahead), rho_bounds(ahead, ahead.T), rho_bounds(ahead, unknown)
        ((1.0, 1.0), (-1.0, -1.0), (-1.0, 1.0))
    """
    n = len(first)
    (low, high), (other_low, other_high) = ends_of_rank_sets(first), ends_of_rank_sets(second)
    nearest = np.maximum(0.0, np.maximum(low - other_high, other_low - high))
    furthest = np.maximum(high - other_low, other_high - low)
    least, most = (1 - 6 * (d**2).sum() / (n * (n**2 - 1)) for d in (furthest, nearest))
    return float(max(least, -1.0)), float(most)


def certain_orders(table: CaseTable, *, level: float, seed: int, resamples: int) -> tuple[Better, ...]:
    """Who is significantly better than whom in each case; all findings of one case are right with probability `level`."""
    return tuple(significantly_better(s, seed=seed, resamples=resamples, level=level) for s in table.scores)


def bounds_between(table: CaseTable, orders: tuple[Better, ...], i: int, k: int, bounds: Bounds) -> tuple[float, float]:
    """Bounds of the agreement of two cases over the methods that both rank; NaN for fewer than two of them."""
    both = np.flatnonzero(~np.isnan(table.ranks[i] + table.ranks[k]))
    if len(both) < 2:
        return np.nan, np.nan
    common = np.ix_(both, both)
    return bounds(orders[i][common], orders[k][common])


def bound_matrices(table: CaseTable, orders: tuple[Better, ...], bounds: Bounds) -> tuple[Array, Array]:
    """The least and the greatest agreement of every two cases, [cases, cases] each; NaN on the diagonal."""
    many = len(table.cases)
    least, most = np.full((2, many, many), np.nan)
    for i in range(many):
        for k in range(i):
            least[i, k], most[i, k] = bounds_between(table, orders, i, k, bounds)
            least[k, i], most[k, i] = least[i, k], most[i, k]
    return least, most
