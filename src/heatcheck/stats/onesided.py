"""The one-sided test of a mean difference above zero, for differences that may be skewed."""

import math

import numpy as np

from heatcheck.stats.intervals import count_blocks, is_constant, t_statistics
from heatcheck.stats.large import is_regular, moments, share_beyond
from heatcheck.stats.paired import FLIPS, sign_flip
from heatcheck.stats.residuals import stretched
from heatcheck.stats.table import Array


def above_zero(differences: Array, *, resamples: int = FLIPS, seed: int = 0) -> Array:
    """p-values of the one-sided test of a mean above zero, one per row: the larger of two.

    The sign-flip test is exact where differences are symmetric. With a longer tail below zero it finds too much, as the
    rare large losses are mostly not among the samples. The studentised bootstrap allows for the tail that was seen; this
    one stretches it as well, in proportion to the skewness, since few samples show too little of it. (Studentising the
    sign-flip test changes nothing: flips keep the sum of squares, so both statistics have the same order.) With many
    samples, of which none dominate, the tail is among the samples: nothing is stretched, and the share of resamples
    follows from the moments.

    Args:
        differences: [rows, samples]; NaN where a sample is not common to the pair.
        resamples: sign patterns and bootstrap resamples.
        seed: of both.

    Returns:
        [rows]; NaN where there is no difference.
    """
    d = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    p = sign_flip(d, alternative="greater", flips=resamples, seed=seed)
    left = []
    for i, row in enumerate(d):
        known = row[~np.isnan(row)]
        if not p[i] < 1 or is_constant(known):
            continue
        beyond = _expanded(known)
        if beyond is None:
            left.append(i)
        else:
            p[i] = max(p[i], beyond)
    if left:
        p[left] = np.maximum(p[left], _stretched_bootstrap(d[left], resamples, seed))
    return p


def _expanded(d: Array) -> float | None:
    """The p-value of the studentised bootstrap by expansion; None where it needs resamples."""
    n = len(d)
    if not is_regular(n, 0.0, 0.0):
        return None
    skewness, excess = moments(d - d.mean())
    if not is_regular(n, skewness, excess):
        return None
    return share_beyond(float(d.mean() / d.std(ddof=1)) * math.sqrt(n), n, skewness, excess)


def _stretched_bootstrap(d: Array, resamples: int, seed: int) -> Array:
    """p-values of the studentised bootstrap from residuals whose longer lower tail is stretched."""
    known = ~np.isnan(d)
    count = known.sum(axis=1)
    mean = np.nanmean(d, axis=1)
    error = np.nanstd(d, axis=1, ddof=1)
    z, variance = stretched(np.where(known, d - mean[:, None], 0.0), known, lower_only=True)
    observed = mean / error * np.sqrt(count)
    above, valid = np.ones((2, len(d)))
    for counts in count_blocks(d.shape[1], resamples, seed):
        drawn = known.astype(np.float64) @ counts.T
        t = t_statistics(z @ counts.T, z**2 @ counts.T, drawn, variance[:, None])
        above += np.sum(t >= observed[:, None], axis=1)
        valid += np.sum(~np.isnan(t), axis=1)
    return np.asarray(above / valid)
