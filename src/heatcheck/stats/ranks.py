"""Ranks with average ties, and rank intervals."""

import numpy as np

from heatcheck.stats.table import Array

_GRAIN = 44  # bits kept of a mean before it is ranked: below that, a difference is rounding


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
    for i, mine in enumerate(v):
        ahead = (v > mine) if higher else (v < mine)
        ranks[i] = ahead.sum(axis=0) + (1 + (v == mine).sum(axis=0)) / 2
    return np.where(np.isnan(v), np.nan, ranks)


def rounded(values: Array, scale: float) -> Array:
    """The values without their last bits, so that means that differ by rounding only are ties.

    Args:
        values: means.
        scale: a magnitude typical of them, equal for all that are compared.
    """
    if not scale > 0:
        return values
    grain = 2.0 ** (np.floor(np.log2(scale)) - _GRAIN)
    return np.asarray(np.round(values / grain) * grain)


def rank_interval(gains: Array, level: float = 0.95) -> tuple[Array, Array]:
    """Where each method's rank lies in `level` of the resamples.

    Both ends are ranks that were attained. A resample in which some method has no number is left out.

    Args:
        gains: mean per method and resample, more is better: [methods, resamples].
        level: coverage, between 0 and 1.
    """
    usable = gains[:, ~np.isnan(gains).any(axis=0)]
    if usable.size == 0:
        nothing = np.full(len(gains), np.nan)
        return nothing, nothing
    ranks = rank_of(usable)
    low = np.quantile(ranks, (1 - level) / 2, axis=1, method="lower")
    high = np.quantile(ranks, (1 + level) / 2, axis=1, method="higher")
    return low, high
