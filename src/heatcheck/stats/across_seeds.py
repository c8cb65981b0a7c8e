r"""How alike trainings with different seeds rank methods, with an interval that counts both seeds and samples.

The number is the mean of Spearman's correlation over pairs of trainings, $\theta$. Its variance is the sum of two parts, as in `two_way`: that
of seeds by the jackknife, $\frac{I-1}{I}\sum_i(\theta_{-i} - \bar\theta)^2$ with $\theta_{-i}$ from all trainings but the $i$th, and that of
samples by resampling them for all trainings together. What both parts hold of the rest is counted twice, so that the interval
is rather too long.
"""

import math

import numpy as np

from heatcheck.stats.cube import means_of
from heatcheck.stats.disagreement import rank_of_rows
from heatcheck.stats.estimates import LEVEL, Estimate
from heatcheck.stats.intervals import count_blocks
from heatcheck.stats.student import t_quantile
from heatcheck.stats.table import Array

LEAST = 3
"""Trainings without which nothing is known of how far pairs of them differ."""
_RESAMPLES = 400


def pair_correlations(means: Array) -> Array:
    """Spearman's correlation of every two trainings, [..., seeds, methods] to [..., seeds, seeds]; NaN for equal means."""
    ranks = rank_of_rows(means.reshape(-1, means.shape[-1])).reshape(means.shape)
    centred = ranks - ranks.mean(axis=-1, keepdims=True)
    norm = np.sqrt((centred**2).sum(axis=-1, keepdims=True))
    scaled = np.divide(centred, norm, out=np.full(centred.shape, np.nan), where=norm > 0)
    return np.asarray(scaled @ np.swapaxes(scaled, -1, -2))


def _mean_of_pairs(correlations: Array) -> Array:
    """The mean over pairs of different trainings."""
    seeds = correlations.shape[-1]
    first, second = np.triu_indices(seeds, k=1)
    return np.asarray(correlations[..., first, second].mean(axis=-1))


def alike_across_seeds(values: Array, *, seed: int = 0, resamples: int = _RESAMPLES) -> Estimate:
    """The mean rank correlation of two trainings, about seeds and samples that could have been drawn.

    Args:
        values: scores, [seeds, methods, samples]; samples with a gap are left out.
        seed: of the resamples.
        resamples: how many, at most 400.

    Returns:
        `n` is the number of samples. Fewer than three trainings, or two samples, have no interval.
    """
    complete = values[:, :, ~np.isnan(values).any(axis=(0, 1))]
    seeds, _, n = complete.shape
    if not n:
        return Estimate(np.nan, np.nan, np.nan, 0)
    correlations = pair_correlations(means_of(complete))
    value = float(_mean_of_pairs(correlations))
    if seeds < LEAST or n < 2 or np.isnan(value):
        return Estimate(value, np.nan, np.nan, n)
    without = np.array([_mean_of_pairs(np.delete(np.delete(correlations, i, 0), i, 1)) for i in range(seeds)])
    drawn = [
        _mean_of_pairs(pair_correlations(np.einsum("bn,smn->bsm", counts, complete)))
        for counts in count_blocks(n, min(resamples, _RESAMPLES), seed)
    ]
    parts = (
        ((seeds - 1) / seeds * float(((without - without.mean()) ** 2).sum()), seeds - 1),
        (float(np.nanvar(np.concatenate(drawn), ddof=1)), n - 1),
    )
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / f for part, f in parts) if total > 0 else math.inf
    half = t_quantile(LEVEL, max(1, math.floor(min(freedom, 1e6)))) * math.sqrt(total)
    return Estimate(value, max(-1.0, value - half), min(1.0, value + half), n)
