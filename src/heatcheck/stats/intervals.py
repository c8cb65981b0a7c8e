"""Bootstrap over samples, with resamples that are shared by everything compared: intervals of means and of curves."""

from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from heatcheck.stats.large import MANY, SKEWED, is_regular, moments, t_at
from heatcheck.stats.student import t_quantile
from heatcheck.stats.table import Array

_BLOCK = 1 << 21  # indices held at once
_ROUNDING = 1e-12  # numbers whose relative difference is smaller are equal
TAIL = 0.35
"""The largest skewness beside √n at which no few samples dominate; by simulation, see design/statistics.md."""
_TAIL_SAMPLES = 20

SMALLEST_VARIANCE = 0.1
"""The share of the sample's variance that every resample has at least."""


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


def studentised(values: Array, resamples: int, seed: int) -> Array:
    """Deviation of every row's resampled mean from its mean, in standard errors of the resample.

    The resamples are those of `resampled_means`, and NaN is ignored likewise. A resample's variance counts as at least a
    tenth of the sample's: a few equal numbers drawn again and again say nothing, and would make the interval endless.

    Returns:
        [rows, resamples]; NaN for a resample with fewer than two numbers, and for rows of equal numbers.
    """
    found = np.full((len(values), resamples), np.nan)
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    rows = [i for i in np.flatnonzero(count > 1).tolist() if not is_constant(values[i][known[i]])]
    centred = [np.where(known[i], values[i] - values[i][known[i]].mean(), 0.0) for i in rows]
    start = 0
    for counts in count_blocks(values.shape[1], resamples, seed) if rows else ():
        stop = start + len(counts)
        for i, d in zip(rows, centred, strict=True):
            drawn = np.full(len(counts), float(count[i])) if known[i].all() else _weighted(counts, known[i] * 1.0)
            variance = float(d @ d) / (count[i] - 1)
            found[i, start:stop] = t_statistics(_weighted(counts, d), _weighted(counts, d**2), drawn, variance)
        start = stop
    return found


def count_blocks(n: int, resamples: int, seed: int) -> Iterator[Array]:
    """How often each sample is drawn, [resamples, n] in blocks of bounded size; the resamples of `bootstrap_indices`."""
    for index in _index_blocks(n, resamples, seed):
        rows = np.arange(len(index))[:, None] * n
        yield np.bincount((index + rows).ravel(), minlength=index.size).reshape(index.shape).astype(np.float64)


def t_statistics(total: Array, squares: Array, drawn: Array | float, variance: Array | float) -> Array:
    """T statistics of resamples of centred numbers; NaN where fewer than two were drawn.

    Args:
        total: sums of the resamples.
        squares: their sums of squares.
        drawn: how many numbers each resample has.
        variance: of the sample.
    """
    enough = np.where(np.asarray(drawn) > 1, drawn, np.nan)
    mean = total / enough
    spread = (squares / enough - mean**2) * enough / (enough - 1)
    return np.asarray(mean * np.sqrt(enough) / np.sqrt(np.maximum(spread, SMALLEST_VARIANCE * variance)))


def _weighted(counts: Array, row: Array) -> Array:
    """Sums of the resamples of one row, the same bits whatever stands beside it (no BLAS)."""
    return np.asarray(np.einsum("bn,n->b", counts, row))


def is_constant(values: Array) -> bool:
    """Whether numbers differ by rounding errors only."""
    return bool(np.ptp(values) <= _ROUNDING * np.abs(values).max())


def mean_intervals(values: Array, *, seed: int, resamples: int, level: float = 0.95) -> Array:
    """The interval of every row's mean, [rows, n] to [rows, 2]: `mean_interval`, or its limit for many samples.

    With many samples, of which none dominate, the quantiles of the t statistics follow from the row's skewness and
    kurtosis, and nothing is resampled.
    """
    found = np.full((len(values), 2), np.nan)
    resampled = []
    for i, row in enumerate(values):
        ends = _expanded_ends(row, level)
        if ends is None:
            resampled.append(i)
        else:
            found[i] = ends
    for i, t in zip(resampled, studentised(values[resampled], resamples, seed), strict=True):
        found[i] = mean_interval(values[i], t, level)
    return found


def _expanded_ends(values: Array, level: float) -> tuple[float, float] | None:
    """The interval of a mean by expansion; None where it needs resamples."""
    x = values[~np.isnan(values)]
    if not is_regular(len(x), 0.0, 0.0) or is_constant(x):
        return None
    skewness, excess = moments(x - x.mean())
    if not is_regular(len(x), skewness, excess):
        return None
    z = NormalDist().inv_cdf((1 + level) / 2)
    return _ends(x, float(t_at(-z, len(x), skewness, excess)), float(t_at(z, len(x), skewness, excess)), level)


def mean_interval(values: Array, resampled: Array, level: float = 0.95) -> tuple[float, float]:
    """Studentised bootstrap interval of a mean, each end at least as far as Student's; NaN for fewer than two numbers.

    Scores are often skewed. The bootstrap finds the longer side, but too short a one for symmetric long tails, which
    Student's interval covers. Coverage in simulations: design/statistics.md.

    Args:
        values: the sample; NaN is ignored.
        resampled: its row of `studentised`.
        level: nominal coverage, between 0 and 1.

    Paper: hall1988.
    """
    x = values[~np.isnan(values)]
    if len(x) < 2:
        return np.nan, np.nan
    if is_constant(x):
        return float(x.mean()), float(x.mean())
    t = resampled[~np.isnan(resampled)]
    left, right = np.quantile(t, [(1 - level) / 2, (1 + level) / 2]) if len(t) else (0.0, 0.0)
    return _ends(x, float(left), float(right), level)


def _ends(x: Array, left: float, right: float, level: float) -> tuple[float, float]:
    """The ends of a mean's interval, given the quantiles of its t statistics; each at least as far as Student's."""
    centre, student, error = float(x.mean()), t_quantile(level, len(x) - 1), float(x.std(ddof=1)) / np.sqrt(len(x))
    return centre - max(right, student) * error, centre - min(left, -student) * error


def heavy_tailed(values: Array) -> bool:
    """Whether a few samples dominate the mean, so that its interval is likely to be too short; NaN is ignored.

    The skewness is compared with the largest that so many samples can have, about √n. Fewer than 20 samples do not tell.
    """
    x = values[~np.isnan(values)]
    if len(x) < _TAIL_SAMPLES or is_constant(x):
        return False
    skewness, _ = moments(x - x.mean())
    return bool(abs(skewness) > TAIL * np.sqrt(len(x)))


def mean_band(values: Array, *, seed: int = 0, resamples: int = 1000, level: float = 0.95) -> Array | None:
    """Pointwise percentile bootstrap interval of a mean curve; None for fewer than two samples.

    With many samples, the quantiles of the resampled means follow from each point's skewness.

    Args:
        values: one curve per sample, [samples, points].
        seed: of the resamples.
        resamples: bootstrap resamples of the samples.
        level: nominal coverage of each point.

    Returns:
        [2, points]: lower and upper ends.
    """
    n = len(values)
    if n < 2:
        return None
    if n >= MANY:
        return np.stack([_percentiles(column, level) for column in values.T], axis=1)
    index = bootstrap_indices(n, resamples, seed)
    means = np.stack([column[index].mean(axis=1) for column in values.T], axis=1)
    return np.asarray(np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=0))


def _percentiles(x: Array, level: float) -> Array:
    """Where the means of resamples of many numbers lie, by the expansion of Cornish and Fisher."""
    centre = x.mean()
    if is_constant(x):
        return np.array([centre, centre])
    z = NormalDist().inv_cdf((1 + level) / 2) * np.array([-1.0, 1.0])
    lean = np.clip(moments(x - centre)[0] / np.sqrt(len(x)), -SKEWED, SKEWED)
    return np.asarray(centre + (z + lean * (z**2 - 1) / 6) * x.std() / np.sqrt(len(x)))
