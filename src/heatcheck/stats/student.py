"""Student's t distribution, without scipy."""

import math
from functools import cache
from statistics import NormalDist

_SUMMED = 1000  # up to so many degrees of freedom the distribution is summed exactly


@cache
def t_quantile(level: float, freedom: int) -> float:
    """The t with P(|T| ≤ t) = level.

    Args:
        level: between 0 and 1.
        freedom: degrees of freedom, at least 1.

    Example:
        >>> round(t_quantile(0.95, 27), 4)
        2.0518
    """
    if freedom > _SUMMED:
        return _expanded(level, freedom)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def stretch(n: int, level: float) -> float:
    """How much longer Student's interval of n things is than that of their bootstrap; 1 for fewer than two.

    Example:
        >>> round(stretch(6, 0.95), 3), round(stretch(200, 0.95), 3)
        (1.437, 1.009)
    """
    if n < 2:
        return 1.0
    return t_quantile(level, n - 1) / NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(n / (n - 1))


def _inside(angle: float, freedom: int) -> float:
    """P(|T| ≤ √freedom · tan(angle)), the finite sum for whole degrees of freedom."""
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def _expanded(level: float, freedom: int) -> float:
    """The Cornish–Fisher expansion around the normal quantile."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2
