r"""Confidence sequences of a mean: intervals that hold at every sample count at once, so that looking early costs nothing.

The mean is that of $N$ values that are looked at in random order without replacement, such as the samples of a benchmark,
or of endless values. Values are paired differences; NaN marks a sample without one, and the mean is over the others.
With $x_i(c) = d_i - c$, or 0 where $d_i$ is missing, the candidate $c$ is the mean where $\sum_{i \le N} x_i(c) = 0$, and
then $x_t(c)$ has the conditional mean $\mu_t(c) = -\sum_{i<t} x_i(c) / (N - t + 1)$.

Papers: waudbysmith2024betting, waudbysmith2020, waudbysmith2024asymptotic.
"""

import math
from collections.abc import Sequence

import numpy as np

from heatcheck.stats.intervals import TAIL
from heatcheck.stats.table import Array

FRACTIONS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 15 / 16)
"""Shares of the capital at stake; small ones pay for small differences over many samples, large ones for large differences."""
ASYMPTOTIC = 30
"""Samples before which an asymptotic sequence says nothing."""
_HALVINGS = 26
_ROUNDING = 1e-12  # beside the largest value: sums differ by so much through rounding
_TIGHTEST = 1 / 8  # of the population: where an asymptotic sequence is tightest


def log_capital(
    values: Array,
    candidate: Array | float,
    *,
    reach: float,
    population: float = math.inf,
    at: Sequence[int] | None = None,
) -> Array:
    r"""Log of the capital won by bets that the mean is larger than a candidate, after some sample counts.

    $K_t(c) = \frac{1}{|F|}\sum_{f \in F}\prod_{i \le t}\Bigl(1 + f\,\frac{x_i(c) - \mu_i(c)}{\mu_i(c) + r + c}\Bigr)$, the mean over
    fractions $f$ of capital that the worst case $d_i = -r$ would cost. If $c$ is the mean, $K$ is a martingale with
    mean 1, and it ever reaches $1/\alpha$ with probability $\alpha$ at most. It falls as $c$ rises.

    Args:
        values: in the order in which they were looked at, [rows, samples]; NaN where there is none.
        candidate: $c$, one number or one per row.
        reach: $r$: no value is farther from zero.
        population: $N$.
        at: the sample counts; every one if None.

    Returns:
        [rows, counts]; infinite from where on the candidate is impossible.
    """
    d = np.atleast_2d(np.asarray(values, dtype=np.float64))
    c = np.broadcast_to(np.asarray(candidate, dtype=np.float64), len(d))[:, None]
    x = np.where(np.isnan(d), 0.0, d - c)
    before = np.cumsum(x, axis=1) - x
    drift = -before / (population - np.arange(d.shape[1]))
    room = drift + reach + c
    slack = _ROUNDING * max(reach, 1e-300)
    rise = np.divide(x - drift, room, out=np.zeros_like(x), where=room > slack)
    counts = np.arange(1, d.shape[1] + 1) if at is None else np.asarray(at, dtype=np.int64)
    each = np.cumsum(np.log1p(np.multiply.outer(FRACTIONS, np.maximum(rise, -1.0))), axis=2)[:, :, counts - 1]
    peak = each.max(axis=0)
    won = peak + np.log(np.mean(np.exp(each - peak), axis=0))
    # The candidate needs values below -reach to come, or none come and the sum is not zero.
    left = population - np.arange(1, d.shape[1] + 1)
    impossible = before + x - left * np.maximum(reach + c, slack) > slack * d.shape[1]
    return np.where(np.logical_or.accumulate(impossible, axis=1)[:, counts - 1], np.inf, won)


def betting(values: Array, *, alpha: float, reach: float, population: float = math.inf) -> tuple[Array, Array]:
    r"""Confidence interval of the mean after all of these values, by betting: $\{c : K_t(c) < 2/\alpha\}$ from both sides.

    Valid for any bounded values and any number of looks. With all $N$ values it is the mean itself.

    Args:
        values: in the order in which they were looked at, [rows, samples]; NaN where there is none.
        alpha: the probability that the mean is ever outside.
        reach: no value is farther from zero.
        population: of how many values the mean is meant; endlessly many by default.

    Returns:
        Lower and upper ends, [rows].

    Example:
        >>> low, high = betting(np.full((1, 50), 0.5), alpha=0.05, reach=1.0, population=100)
        >>> (low.round(2), high.round(2))
        (array([0.38]), array([0.54]))
    """
    d = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if np.any(np.abs(d) > reach * (1 + _ROUNDING)):
        raise ValueError(f"a value of {np.nanmax(np.abs(d)):g} is beyond the reach of {reach:g}")
    low, high = _lower(d, alpha / 2, reach, population), -_lower(-d, alpha / 2, reach, population)
    middle = _means(d)
    closed = np.full(len(d), d.shape[1] >= population)
    return np.where(closed, middle, np.fmin(low, middle)), np.where(closed, middle, np.fmax(high, middle))


def _lower(d: Array, alpha: float, reach: float, population: float) -> Array:
    """The largest candidate that is refused as too small, [rows]; `-reach` where none is."""
    bar = -math.log(alpha)
    refused, kept = np.full(len(d), -reach), np.full(len(d), reach)
    for _ in range(_HALVINGS):
        middle = (refused + kept) / 2
        reached = log_capital(d, middle, reach=reach, population=population, at=[d.shape[1]])[:, 0] >= bar
        refused, kept = np.where(reached, middle, refused), np.where(reached, kept, middle)
    return refused


def asymptotic(values: Array, *, alpha: float, population: float = math.inf) -> tuple[Array, Array]:
    r"""Confidence interval of the mean after all of these values, by the boundary of a Gaussian mixture.

    $\bar d_t \pm \hat\sigma_t \frac{1}{\tau}\sqrt{\frac{2(\tau\rho^2 + 1)}{\rho^2}\log\frac{\sqrt{\tau\rho^2 + 1}}{\alpha}}$ with
    $\tau = t / (1 - t/N)$: without replacement, $(\bar d_t - \mu)\,\tau$ is a martingale that grows like Brownian motion at
    the time $\tau\sigma^2$. On the side of a longer tail the end is $\hat\sigma_t|\gamma|(2z^2 + 1)/(3t)$ farther away, with the
    skewness $\gamma$ and $z$ standard errors on the other side: twice the first term of Edgeworth's expansion. Coverage holds in
    the limit only, so there is no end before 30 samples, nor where a few samples dominate or
    all are equal. With all $N$ values it is the mean itself.

    Args:
        values: in the order in which they were looked at, [rows, samples]; NaN where there is none.
        alpha: the probability that the mean is ever outside.
        population: of how many values the mean is meant; endlessly many by default.

    Returns:
        Lower and upper ends, [rows]; infinite where nothing can be said yet.

    Example:
        >>> low, high = asymptotic(np.tile([0.0, 1.0], (1, 50)), alpha=0.05)
        >>> (low.round(2), high.round(2))
        (array([0.34]), array([0.66]))
    """
    d = np.atleast_2d(np.asarray(values, dtype=np.float64))
    known = ~np.isnan(d)
    n = known.sum(axis=1).astype(np.float64)
    seen = d.shape[1]
    middle = _means(d)
    if seen >= population:
        return middle, middle
    finite = np.isfinite(population)
    share = seen / population if finite else 0.0
    clock = n / (1 - share)
    tightest = population * _TIGHTEST / (1 - _TIGHTEST) if finite else 8 * ASYMPTOTIC
    rho = _rho(alpha, tightest)
    width = np.sqrt(2 * (clock * rho + 1) / rho * np.log(np.sqrt(clock * rho + 1) / alpha)) / np.maximum(clock, 1.0)
    spread, skewness = _spread_and_skewness(d)
    early = (n < ASYMPTOTIC) | (spread == 0) | (np.abs(skewness) > TAIL * np.sqrt(n))
    half = np.where(early, np.inf, spread * width)
    longer = spread * np.abs(skewness) * (2 * n * width**2 + 1) / (3 * np.maximum(n, 1.0))
    return middle - half - np.where(skewness < 0, longer, 0.0), middle + half + np.where(skewness > 0, longer, 0.0)


def _spread_and_skewness(d: Array) -> tuple[Array, Array]:
    """Standard deviation and skewness of every row without NaN; both 0 where its values do not differ."""
    known = ~np.isnan(d)
    n = np.maximum(known.sum(axis=1), 1)
    centred = np.where(known, d - _means(d)[:, None], 0.0)
    largest = np.abs(np.where(known, d, 0.0)).max(axis=1, initial=0.0)
    variance = (centred**2).sum(axis=1) / n
    variance = np.where(np.sqrt(variance) <= _ROUNDING * largest, 0.0, variance)
    third = (centred**3).sum(axis=1) / n
    skewness = np.divide(third, variance**1.5, out=np.zeros_like(third), where=variance > 0)
    return np.sqrt(variance * n / np.maximum(n - 1, 1)), skewness


def _rho(alpha: float, tightest: float) -> float:
    """The mixture's ρ² with which the boundary is tightest near a time."""
    return (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / tightest


def _means(d: Array) -> Array:
    """The mean of every row without NaN; 0 where it has no value. Rounding errors beside the values are zero."""
    known = ~np.isnan(d)
    filled = np.where(known, d, 0.0)
    mean = filled.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return np.where(np.abs(mean) <= _ROUNDING * np.abs(filled).max(axis=1, initial=0.0), 0.0, mean)
