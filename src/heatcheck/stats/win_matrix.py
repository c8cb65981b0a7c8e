"""Who beats whom over cases, and the scores that follow from it: κ in closed form, Borda's points, mean ranks."""

import numpy as np

from heatcheck.stats.table import Array

PRIOR = 0.5
"""Wins that each of two methods is given beforehand, where both are ranked in some case."""


def outcomes(ranks: Array) -> tuple[Array, Array]:
    """Who beats whom in each case.

    Args:
        ranks: [cases, methods], 1 is best; NaN where a method is not ranked.

    Returns:
        [cases, methods, methods]: 1 where the first beats the second, ½ where they tie, else 0; and 1 where both are
        ranked, else 0. A method is not compared with itself.
    """
    a, b = ranks[:, :, None], ranks[:, None, :]
    both = ~np.isnan(a - b) & ~np.eye(ranks.shape[1], dtype=bool)
    points = np.where(both, (a < b) + (a == b) / 2, 0.0)
    return points, both.astype(np.float64)


def win_matrix(ranks: Array) -> tuple[Array, Array]:
    """Wins of every method over every other, ties half, and in how many cases both are ranked: [methods, methods] each.

    Example:
        >>> wins, cases = win_matrix(np.array([[1, 2, 3], [1, 2.5, 2.5]]))
        >>> wins.tolist(), cases[0].tolist()
        ([[0.0, 2.0, 2.0], [0.0, 0.0, 1.5], [0.0, 0.5, 0.0]], [0.0, 2.0, 2.0])
    """
    points, both = outcomes(np.asarray(ranks, dtype=np.float64))
    return points.sum(axis=0), both.sum(axis=0)


def smoothed_share(points: Array, cases: Array, compared: Array) -> Array:
    r"""The share of cases won, drawn towards one half: $\tilde P = (wins + ½ ties + ½) / (n + 1)$.

    Args:
        points: wins, ties half, [..., methods, methods].
        cases: in which both are ranked, likewise.
        compared: whether two methods meet in any case, [methods, methods].

    Returns:
        NaN where two methods never meet.
    """
    there = np.broadcast_to(compared > 0, points.shape)
    share = np.full(points.shape, np.nan)
    np.divide(points + PRIOR, cases + 2 * PRIOR, out=share, where=there)
    return share


def kappa(points: Array, cases: Array, compared: Array | None = None) -> Array:
    r"""Meta-Rank's κ in closed form: how much more often than not a method beats another, on the scale of log-odds.

    $\kappa_p = \frac{1}{|Q_p|}\sum_{q \in Q_p} \mathrm{logit}\, \tilde P_{q \prec p}$, with $Q_p$ the methods that p
    meets in some case: in a complete design all others, and then $\sum\kappa = 0$. In others it is shifted to sum 0.

    Args:
        points: wins, ties half, [..., methods, methods].
        cases: in which both are ranked, likewise.
        compared: whether two methods meet in any case, [methods, methods]; where `cases` is positive if None.

    Returns:
        [..., methods].

    Example:
        >>> kappa(*win_matrix(np.array([[1, 2, 3], [1, 3, 2]]))).round(3).tolist()
        [1.609, -0.805, -0.805]

    Paper: duan2024. Differs: the paper's smoothing is not known; ½ is added to the wins of both.
    """
    share = smoothed_share(points, cases, cases if compared is None else compared)
    odds = np.nan_to_num(np.log(share) - np.log1p(-share), nan=0.0)
    met = np.maximum((~np.isnan(share)).sum(axis=-1), 1)
    found = odds.sum(axis=-1) / met
    return np.asarray(found - found.mean(axis=-1, keepdims=True))


def borda(points: Array, cases: Array) -> tuple[Array, Array]:
    """Borda's points, one for every method beaten in every case, ties half; and their share of those possible."""
    total, possible = points.sum(axis=-1), cases.sum(axis=-1)
    share = np.full(total.shape, np.nan)
    np.divide(total, possible, out=share, where=possible > 0)
    return np.asarray(total), share


def apart(compared: Array) -> list[list[int]]:
    """Methods in groups that no case connects, even by way of others; one group where all can be ranked together."""
    left, groups = set(range(len(compared))), []
    while left:
        group, new = set(), {min(left)}
        while new:
            group |= new
            new = {j for i in new for j in np.flatnonzero(compared[i] > 0).tolist()} - group
        groups.append(sorted(group))
        left -= group
    return groups
