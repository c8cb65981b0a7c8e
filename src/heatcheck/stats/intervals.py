"""Bootstrap over samples, with resamples that are shared by everything compared: BCa and percentile intervals."""

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from heatcheck.stats.table import Array

_BLOCK = 1 << 21  # indices held at once
_NORMAL = NormalDist()


def bootstrap_indices(n: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """Indices of `resamples` bootstrap resamples of `n` samples, with replacement: [resamples, n]."""
    return np.concatenate([np.empty((0, n), np.int64), *_index_blocks(n, resamples, seed)])


def _index_blocks(n: int, resamples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """`bootstrap_indices` in blocks of bounded size; the indices do not depend on the block size."""
    rng = np.random.default_rng([seed, 0])
    rows = max(1, _BLOCK // max(n, 1))
    for start in range(0, resamples, rows):
        yield rng.integers(0, n, size=(min(rows, resamples - start), n))


def resampled_means(values: Array, resamples: int, seed: int) -> Array:
    """Mean of every row in every resample, NaN ignored: [rows, n] to [rows, resamples].

    All rows share their resamples, so that rows can be subtracted and ranked resample by resample. Equal rows
    give bit-equal means (no BLAS), so ties stay ties. A resample without any number gives NaN.
    """
    k, n = values.shape
    means = np.full((k, resamples), np.nan)
    if n == 0:
        return means
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    start = 0
    for index in _index_blocks(n, resamples, seed):
        stop = start + len(index)
        for row in range(k):
            total = filled[row][index].sum(axis=1)
            count = np.full(len(index), n) if known[row].all() else known[row][index].sum(axis=1)
            np.divide(total, count, out=means[row, start:stop], where=count > 0)
        start = stop
    return means


def bca(values: Array, resampled: Array, level: float = 0.95) -> tuple[float, float]:
    """Bias-corrected and accelerated bootstrap interval of a mean; NaN, NaN for fewer than two numbers.

    Scores are often bounded and skewed, and there percentile intervals cover too little on one side.

    Args:
        values: the sample; NaN is ignored.
        resampled: its mean in every resample.
        level: nominal coverage, between 0 and 1.

    Paper: efron1987. Differs: percentiles where the correction does not exist (every resample on one side of
    the mean).
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


def mean_band(values: Array, *, seed: int = 0, resamples: int = 1000, level: float = 0.95) -> Array | None:
    """Pointwise percentile bootstrap interval of a mean curve; None for fewer than two samples.

    Args:
        values: one curve per sample, [samples, points].
        seed: of the resamples.
        resamples: bootstrap resamples of the samples.
        level: nominal coverage of each point.

    Returns:
        [2, points]: lower and upper ends.
    """
    if len(values) < 2:
        return None
    index = bootstrap_indices(len(values), resamples, seed)
    means = np.stack([column[index].mean(axis=1) for column in values.T], axis=1)
    return np.asarray(np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0))
