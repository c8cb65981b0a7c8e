"""A number with its interval, for what is said in a sentence and not in a table."""

from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from heatcheck.stats.intervals import mean_intervals

RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean or a share over samples.

    Args:
        value: the estimate; NaN where there is no sample.
        low: the lower end of its 95 % interval; NaN where there are too few samples for one.
        high: the upper end.
        n: how many samples.
    """

    value: float
    low: float
    high: float
    n: int

    def record(self) -> dict[str, float]:
        """As plain data."""
        return asdict(self)


def mean_estimate(values: ArrayLike, *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The mean of numbers, one per sample, with its studentised bootstrap interval over samples; NaN is left out."""
    x = np.asarray(values, dtype=np.float64).reshape(-1)
    x = x[~np.isnan(x)]
    if not len(x):
        return Estimate(np.nan, np.nan, np.nan, 0)
    low, high = mean_intervals(x[None], seed=seed, resamples=resamples, level=LEVEL)[0]
    return Estimate(float(x.mean()), float(low), float(high), len(x))


def share_estimate(hits: ArrayLike) -> Estimate:
    """The share of samples for which something is so, with Wilson's score interval, which all or none do not close.

    >>> share_estimate([True] * 10).low < 0.75
    True

    Paper: wilson1927.
    """
    x = np.asarray(hits, dtype=bool).reshape(-1)
    n = len(x)
    if not n:
        return Estimate(np.nan, np.nan, np.nan, 0)
    p, z = float(x.mean()), NormalDist().inv_cdf((1 + LEVEL) / 2)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return Estimate(p, float(np.clip(centre - half, 0.0, p)), float(np.clip(centre + half, p, 1.0)), n)
