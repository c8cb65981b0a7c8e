"""Ranks with average ties, and bootstrap intervals of ranks."""

import numpy as np

from heatcheck.stats.table import Array

_BITS = 44  # of a mean that are kept before it is ranked: smaller differences are rounding errors


def rank_of(values: Array, higher: bool = True) -> Array:
    """Rank along the first axis, 1 is best, ties share their average rank; NaN stays NaN.

    Args:
        values: what to rank, [methods] or [methods, cases]; every case is ranked by itself.
        higher: whether a higher value is better.

    Example:
        >>> rank_of(np.array([0.2, 0.9, 0.2]))
        array([2.5, 1. , 2.5])
    """
    v = np.asarray(values, dtype=np.float64)
    ranks = np.empty_like(v)
    for i, value in enumerate(v):
        ahead = (v > value) if higher else (v < value)
        ranks[i] = ahead.sum(axis=0) + (1 + (v == value).sum(axis=0)) / 2
    return np.where(np.isnan(v), np.nan, ranks)


def rounded(values: Array, scale: float) -> Array:
    """The values rounded to 44 bits, so that means that differ by floating-point error only are ties.

    Args:
        values: means.
        scale: their order of magnitude, the same for all values that are compared.

    Example:
        >>> 0.1 + 0.2 == 0.3, len(set(rounded(np.array([0.1 + 0.2, 0.3]), 0.3).tolist()))
        (False, 1)
    """
    if not scale > 0:
        return values
    step = 2.0 ** (np.floor(np.log2(scale)) - _BITS)
    return np.asarray(np.round(values / step) * step)


def rank_interval(means: Array, level: float = 0.95) -> tuple[Array, Array]:
    """Percentile bootstrap interval of each method's rank.

    Both ends are ranks that occur among the resamples. A resample in which a method has no mean is left out.

    Args:
        means: mean per method and resample, higher is better: [methods, resamples].
        level: coverage, between 0 and 1.
    """
    complete = means[:, ~np.isnan(means).any(axis=0)]
    if complete.size == 0:
        unknown = np.full(len(means), np.nan)
        return unknown, unknown
    ranks = rank_of(complete)
    low = np.quantile(ranks, (1 - level) / 2, axis=1, method="lower")
    high = np.quantile(ranks, (1 + level) / 2, axis=1, method="higher")
    return low, high
