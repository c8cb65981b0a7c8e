"""Many samples: the distribution of a mean's t statistic from its moments, where resampling would only add noise.

The expansions are those of Edgeworth and of Cornish and Fisher for a studentised mean, up to the order 1/n. From
`MANY` samples on, and unless a few samples dominate, they differ less from the bootstrap with endless resamples than
2,000 resamples do; see design/statistics.md.

Paper: hall1988.
"""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from heatcheck.stats.table import Array

MANY = 2000
"""From so many samples on, nothing is resampled unless a few of them dominate."""

SKEWED = 0.1
"""The largest skewness beside √n for which the expansions are accurate; see design/statistics.md."""

_PEAKED = 0.02  # the largest excess kurtosis beside n, likewise
_FAR = 6.0  # standard errors; what lies farther away has a smaller p-value than any number of resamples can give
_NORMAL = NormalDist()


def moments(centred: Array) -> tuple[float, float]:
    """Skewness and excess kurtosis of numbers whose mean is zero, and that are not all zero."""
    d = centred / np.abs(centred).max()  # tiny numbers have no fourth power
    squares = d**2
    variance = squares.mean()
    return float((squares * d).mean() / variance**1.5), float((squares**2).mean() / variance**2 - 3)


def is_regular(n: Array | float, skewness: Array | float, excess: Array | float) -> NDArray[np.bool_]:
    """Whether the expansions are accurate: many samples, and none that dominate."""
    count = np.asarray(n, dtype=np.float64)
    return np.asarray(
        (count >= MANY) & (np.abs(skewness) <= SKEWED * np.sqrt(count)) & (np.asarray(excess) <= _PEAKED * count)
    )


def t_at(z: Array | float, n: Array | float, skewness: Array | float, excess: Array | float) -> Array:
    """The t statistic of a resample at a quantile, given the standard normal number at the same quantile.

    Example:
        >>> t_at(1.96, 2000, 0.0, 0.0).round(4), t_at(1.96, 2000, 2.0, 6.0).round(4)
        (np.float64(1.9612), np.float64(1.9))
    """
    first, slope, second = _polynomials(z, skewness, excess)
    return np.asarray(z - first / np.sqrt(n) + (first * slope - z * first**2 / 2 - second) / n)


def share_beyond(t: float, n: int, skewness: float, excess: float) -> float:
    """The share of resamples whose t statistic is at least `t`."""
    near = min(max(t, -_FAR), _FAR)
    first, _, second = _polynomials(near, skewness, excess)
    return _NORMAL.cdf(-float(near + first / np.sqrt(n) + (second + near * first**2 / 2) / n))


def _polynomials(
    t: Array | float, skewness: Array | float, excess: Array | float
) -> tuple[Array | float, Array | float, Array | float]:
    """Hall's q₁, its derivative and q₂, for variances with the divisor n − 1."""
    square = t * t
    first = skewness * (2 * square + 1) / 6
    slope = skewness * 4 * t / 6
    bent = skewness**2 * (square * square + 2 * square - 3) / 18
    return first, slope, t * (excess * (square - 3) / 12 - bent - (square + 1) / 4)


def share_of_flips_beyond(d: Array) -> float | None:
    """The share of sign patterns that give differences a sum at least as large; None where too few dominate it.

    Args:
        d: differences that are not zero.
    """
    if len(d) < MANY:
        return None
    scaled = d / np.abs(d).max()
    squares = scaled**2
    total = float(squares.sum())
    fourth = float((squares**2).sum()) / total**2
    if fourth > _PEAKED:
        return None
    t = min(max(float(scaled.sum()) / np.sqrt(total), -_FAR), _FAR)
    return _NORMAL.cdf(-(t + 2 * fourth * (t**3 - 3 * t) / 24))
