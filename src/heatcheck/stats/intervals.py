"""Bootstrap over samples: one set of resamples shared by everything compared, and BCa intervals."""

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from heatcheck.stats.table import Array

_BLOCK = 1 << 21  # indices held at once
_NORMAL = NormalDist()


def bootstrap_indices(n: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """Indices of `resamples` draws of `n` samples out of `n`, with replacement: [resamples, n]."""
    return np.concatenate([np.empty((0, n), np.int64), *_index_blocks(n, resamples, seed)])


def _index_blocks(n: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """`bootstrap_indices` in pieces of bounded size; the stream does not depend on the pieces."""
    rng = np.random.default_rng([seed, 0])
    rows = max(1, _BLOCK // max(n, 1))
    for start in range(0, resamples, rows):
        yield rng.integers(0, n, size=(min(rows, resamples - start), n))


def resampled_means(values: Array, resamples: int, seed: int) -> Array:
    """Mean of every row in every resample, over what is not NaN: [rows, n] to [rows, resamples].

    All rows see the same resamples, so rows may be subtracted and ranked resample by resample. Equal rows
    give bit-equal means (no BLAS), so ties stay ties. A resample without any number gives NaN.
    """
    k, n = values.shape
    means = np.full((k, resamples), np.nan)
    if n == 0:
        return means
    there = ~np.isnan(values)
    filled = np.where(there, values, 0.0)
    start = 0
    for index in _index_blocks(n, resamples, seed):
        stop = start + len(index)
        for row in range(k):
            total = filled[row][index].sum(axis=1)
            count = np.full(len(index), n) if there[row].all() else there[row][index].sum(axis=1)
            np.divide(total, count, out=means[row, start:stop], where=count > 0)
        start = stop
    return means


def bca(values: Array, resampled: Array, level: float = 0.95) -> tuple[float, float]:
    """Bias-corrected and accelerated interval for a mean; NaN, NaN for fewer than two numbers.

    Scores are often bounded and skewed, where plain percentiles miss on one side.

    Args:
        values: the sample, NaN where there is none.
        resampled: its mean in every resample.
        level: coverage, between 0 and 1.

    Paper: efron1987. Differs: plain percentiles where the correction does not exist (every resample on
    one side of the mean).
    """
    x = values[~np.isnan(values)]
    means = resampled[~np.isnan(resampled)]
    if len(x) < 2 or len(means) == 0:
        return np.nan, np.nan
    if np.ptp(x) == 0:
        return float(x[0]), float(x[0])
    centre = x.mean()
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    below = (np.mean(means < centre) + np.mean(means <= centre)) / 2
    if 0 < below < 1:
        d = x - centre
        acceleration = np.sum(d**3) / (6 * np.sum(d**2) ** 1.5)
        bias = _NORMAL.inv_cdf(float(below))
        z = bias + np.array([_NORMAL.inv_cdf(float(t)) for t in tails])
        if np.all(acceleration * z < 1):
            tails = np.array([_NORMAL.cdf(float(t)) for t in bias + z / (1 - acceleration * z)])
    low, high = np.quantile(means, tails)
    return float(low), float(high)
