r"""How far a map shows the grid of patches that a network cuts pictures into.

With $r(k)$, Pearson's correlation of $|A|$ with itself $k$ pixels further, averaged over rows and columns, the number is
$r(p) - \tfrac12\big(r(p - d) + r(p + d)\big)$ for patches of $p$ pixels and $d$ a quarter of them. A grid raises $r$ at multiples of $p$
alone. Maps that are smooth raise it at all short lags, in a convex curve, so that without a grid the number is zero or slightly below.

Paper: li2023, whose Figure 3 shows it in pictures.
"""

import numpy as np

from heatcheck.stats.m4 import pearson
from heatcheck.stats.table import Array


def autocorrelation(values: Array, lag: int) -> float:
    """Pearson's correlation of a map with itself so many pixels further, the mean over both axes; NaN for a constant map.

    >>> round(autocorrelation(np.indices((6, 6)).sum(0) % 2.0, 1), 12)
    -1.0
    """
    across = pearson(values[:, :-lag].ravel(), values[:, lag:].ravel())
    down = pearson(values[:-lag].ravel(), values[lag:].ravel())
    return (across + down) / 2


def border_excess(values: Array, patch: int) -> float:
    """How much more a map repeats itself at the side of a patch than at shorter and longer lags.

    Args:
        values: the map, [rows, columns]; signs do not count.
        patch: pixels of a patch's side.

    Returns:
        NaN for a constant map, and for one of fewer than two patches a side.

    >>> line = np.arange(32) % 8 == 0
    >>> border_excess(np.maximum(line[:, None], line), 8) > 0.5
    True
    """
    if patch < 2 or min(values.shape) < 2 * patch:
        return float("nan")
    size = np.abs(np.asarray(values, dtype=np.float64))
    step = max(1, patch // 4)
    at, before, behind = (autocorrelation(size, lag) for lag in (patch, patch - step, patch + step))
    return at - (before + behind) / 2
