"""Residuals for resampling, with the tail that few samples show too little of."""

import numpy as np
from numpy.typing import NDArray

from heatcheck.stats.table import Array

STRETCH = 0.3
"""Per unit of skewness; chosen by simulation, see design/statistics.md."""


def stretched(centred: Array, known: NDArray[np.bool_], *, lower_only: bool = False) -> tuple[Array, Array]:
    """Residuals in standard deviations whose longer tail is stretched in proportion to their skewness, centred again.

    Rare large values are mostly not among few samples: a mean looks surer than it is on the side of the longer tail.

    Args:
        centred: [rows, samples], of mean zero and not constant; 0 where there is no sample.
        known: where there is one.
        lower_only: stretch no upper tail, for tests of a mean above zero.

    Returns:
        The residuals, [rows, samples], and their variances, [rows].
    """
    count = known.sum(axis=1)
    z = centred / np.sqrt((centred**2).sum(axis=1) / (count - 1))[:, None]
    rate = -STRETCH * (z**3).sum(axis=1) / count
    if lower_only:
        rate = np.maximum(rate, 0.0)
    rate = np.where(np.abs(rate) < 1e-9, 1e-9, rate)[:, None]
    z = np.where(known, -np.expm1(-rate * z) / rate, 0.0)
    z = np.where(known, z - (z.sum(axis=1) / count)[:, None], 0.0)
    return z, (z**2).sum(axis=1) / (count - 1)
