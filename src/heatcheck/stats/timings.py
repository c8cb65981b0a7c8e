"""How much longer one method takes than another, from the times that a run stored.

A run times maps in portions and stores the mean of each with all of its samples: equal seconds are one timing, not many.
"""

import math

import numpy as np
import polars as pl

from heatcheck.stats.estimates import LEVEL, Estimate
from heatcheck.stats.student import t_quantile
from heatcheck.stats.table import Array


def timings(scores: pl.DataFrame, model: str) -> dict[str, Array]:
    """Seconds per map of every portion that was timed, by method.

    Args:
        scores: a run's long table.
        model: which.
    """
    known = (
        scores.filter(pl.col("model").cast(pl.String) == model, pl.col("seconds") > 0)
        .select(pl.col("method").cast(pl.String), "seconds")
        .unique(maintain_order=True)
    )
    return {
        str(method): rows["seconds"].to_numpy() for (method,), rows in known.group_by("method", maintain_order=True)
    }


def times_as_long(slow: Array, fast: Array, *, level: float = LEVEL) -> Estimate:
    """The ratio of two methods' times, by geometric means, with Welch's interval on the scale of logarithms.

    Args:
        slow: seconds per map of each portion.
        fast: likewise of the other method.
        level: nominal coverage.

    Returns:
        `n` is the smaller number of portions; without at least two of both methods there is no interval.
    """
    logs = [np.log(slow), np.log(fast)]
    ratio, n = float(np.exp(logs[0].mean() - logs[1].mean())), min(len(slow), len(fast))
    if n < 2:
        return Estimate(ratio, np.nan, np.nan, n)
    parts = [(float(x.var(ddof=1)) / len(x), len(x) - 1) for x in logs]
    total = sum(part for part, _ in parts)
    freedom = total**2 / sum(part**2 / f for part, f in parts) if total > 0 else math.inf
    half = t_quantile(level, max(1, math.floor(min(freedom, 1e6)))) * math.sqrt(total)
    return Estimate(ratio, ratio * math.exp(-half), ratio * math.exp(half), n)
