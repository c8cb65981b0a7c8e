"""Ranks, and simultaneous confidence sets of ranks."""

import numpy as np
from numpy.typing import NDArray

from heatcheck.stats.intervals import count_blocks, t_statistics
from heatcheck.stats.large import is_regular, t_at
from heatcheck.stats.paired import too_few
from heatcheck.stats.residuals import stretched
from heatcheck.stats.table import Array

_ROUNDING = 1e-12  # differences that are smaller beside the scores are rounding errors
_SAMPLES = 1 << 13  # at once, where there are many
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


def strict_rank(values: Array) -> Array:
    """1 + the number of strictly better values, higher is better; NaN stays NaN.

    Example:
        >>> strict_rank(np.array([0.2, 0.9, 0.2]))
        array([2., 1., 2.])
    """
    better = (values[None, :] > values[:, None]).sum(axis=1)
    return np.where(np.isnan(values), np.nan, 1.0 + better)


def rank_sets(
    scores: Array, *, seed: int, resamples: int, level: float, tests: int | None = None
) -> tuple[Array, Array]:
    """Simultaneous confidence sets of the ranks of all methods: lowest and highest rank of each.

    The rank of a method is 1 + the number of methods with a strictly better mean. Its set begins after the methods that
    are significantly better, and ends before those that are significantly worse. All sets hold their method's rank at once
    with probability `level`, ties or no ties. Two methods with too few common samples for any test against random to be
    significant (`too_few`) are not told apart: with few samples, every method may have every rank.

    Args:
        scores: per method and sample, higher is better: [methods, samples]; NaN where there is none. Two methods are
            compared on their common samples.
        seed: of the resamples.
        resamples: bootstrap resamples of the samples, shared by all pairs.
        level: of all sets together, between 0 and 1.
        tests: how many methods are tested against random; all of these methods if None.

    Paper: mogstad2023. Differs: the standard error of every resample, with a lower limit, instead of normal draws, and
    stretched tails; with many samples, of which none dominate, normal draws that are bent by the skewness of each
    difference.
    """
    better = significantly_better(scores, seed=seed, resamples=resamples, level=level, tests=tests)
    return ends_of_rank_sets(better)


def ends_of_rank_sets(better: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The lowest and the highest rank of each method, from who is significantly better than whom.

    Example:
        >>> ends_of_rank_sets(np.array([[False, True], [False, False]]))
        (array([1., 2.]), array([1., 2.]))
    """
    return 1.0 + better.sum(axis=0), len(better) - better.sum(axis=1, dtype=np.float64)


def significantly_better(
    scores: Array, *, seed: int, resamples: int, level: float, tests: int | None = None
) -> NDArray[np.bool_]:
    """[methods, methods]: whether the mean of the first is significantly better than that of the second.

    All ordered pairs are tested at once: the largest studentised difference among the pairs that are left is compared
    with its bootstrap distribution; pairs beyond its quantile are found different, removed, and the rest tested again
    (step-down). The longer tail of skewed differences is stretched, as few samples show too little of it. A constant
    difference other than zero is significant by itself, as it has no error. Pairs with too few common samples are left
    out.
    """
    methods = len(scores)
    found = np.zeros((methods, methods), dtype=bool)
    first, second = np.triu_indices(methods, k=1)
    common = (~np.isnan(scores[first]) & ~np.isnan(scores[second])).sum(axis=1)
    enough = [not too_few(n, tests or methods, level) for n in common.tolist()]
    first, second, count = first[enough], second[enough], common[enough]
    d = scores[first] - scores[second]
    known = ~np.isnan(d)
    d = np.where(known, d, 0.0)
    mean = np.divide(d.sum(axis=1), count, out=np.zeros(len(d)), where=count > 0)
    scale = np.nanmax(np.abs(scores), initial=0.0)
    equal = (np.abs(np.where(known, d - mean[:, None], 0.0)).max(axis=1, initial=0.0) <= _ROUNDING * scale) | (
        count < 2
    )
    certain = equal & (count > 1) & (np.abs(mean) > _ROUNDING * scale)
    found[first[certain & (mean > 0)], second[certain & (mean > 0)]] = True
    found[second[certain & (mean < 0)], first[certain & (mean < 0)]] = True
    first, second, d, known, count, mean = (x[~equal] for x in (first, second, d, known, count, mean))
    if not len(d):
        return found
    centred = np.where(known, d - mean[:, None], 0.0)
    variance = (centred**2).sum(axis=1) / (count - 1)
    observed = mean / np.sqrt(variance / count)
    resampled = _normal_t(centred, count.astype(np.float64), resamples, seed)
    if resampled is None:
        resampled = _resampled_t(*stretched(centred, known), known, resamples, seed)
    up, down = step_down(observed, resampled, level)
    found[first[up], second[up]] = True
    found[second[down], first[down]] = True
    return found


def _normal_t(centred: Array, count: Array, resamples: int, seed: int) -> Array | None:
    """T statistics of all pairs with many samples, [pairs, resamples]; None where some pair needs resamples.

    They are normal, with the correlations of the pairs, and each is bent by its pair's skewness and kurtosis.
    """
    if not is_regular(count, 0.0, 0.0).all():
        return None
    cubes, fourths = np.zeros((2, len(centred)))
    products = np.zeros((len(centred), len(centred)))
    for start in range(0, centred.shape[1], _SAMPLES):
        block = centred[:, start : start + _SAMPLES]
        products += block @ block.T
        squares = block**2
        cubes += (squares * block).sum(axis=1)
        fourths += (squares**2).sum(axis=1)
    variance = np.diagonal(products) / count
    skewness, excess = cubes / count / variance**1.5, fourths / count / variance**2 - 3
    if not is_regular(count, skewness, excess).all():
        return None
    norm = np.sqrt(np.diagonal(products))
    values, vectors = np.linalg.eigh(products / norm / norm[:, None])
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    z = factor @ np.random.default_rng([seed, 2]).normal(size=(len(factor), resamples))
    return t_at(z, count[:, None], skewness[:, None], excess[:, None])


def _resampled_t(centred: Array, variance: Array, known: NDArray[np.bool_], resamples: int, seed: int) -> Array:
    """T statistics of all pairs, [pairs, resamples]; 0 where a resample has fewer than two of a pair's samples."""
    n = centred.shape[1]
    gaps = not known.all()
    parts = []
    for counts in count_blocks(n, resamples, seed):
        drawn = known.astype(np.float64) @ counts.T if gaps else float(n)
        parts.append(t_statistics(centred @ counts.T, centred**2 @ counts.T, drawn, variance[:, None]))
    return np.nan_to_num(np.concatenate(parts, axis=1), nan=0.0)


def step_down(observed: Array, resampled: Array, level: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which t statistics are significantly above zero, and which below, tested all at once in steps.

    Args:
        observed: [pairs].
        resampled: of the centred pairs, [pairs, resamples].
        level: 1 − the probability of any false finding.
    """
    up, down = np.zeros((2, len(observed)), dtype=bool)
    while not (up & down).all():
        largest = np.maximum(resampled[~up].max(axis=0, initial=-np.inf), -resampled[~down].min(axis=0, initial=np.inf))
        limit = np.quantile(largest, level, method="higher")
        new_up, new_down = (observed > limit) & ~up, (-observed > limit) & ~down
        if not (new_up.any() or new_down.any()):
            break
        up, down = up | new_up, down | new_down
    return up, down
