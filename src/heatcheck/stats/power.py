r"""What a number of samples can tell apart, and how many samples a difference needs.

A paired two-sided t-test of level $\alpha$ on $n$ differences with standard deviation $s$ finds a mean difference $\delta$ with the
power $1 - \beta$ where $\delta \sqrt{n} / s \approx t(1 - 1/4\nu) + z_{1-\beta}\sqrt{1 + t^2 / 2\nu}$ with the critical value $t$ of
$\nu = n - 1$ degrees of freedom: the normal approximation of the noncentral t distribution. With several tests $\alpha$ is shared
among them.
"""

import math
from itertools import combinations
from statistics import NormalDist

import numpy as np
import polars as pl

from heatcheck.stats.facts import Facts
from heatcheck.stats.student import t_quantile
from heatcheck.stats.table import Array, groups

POWER = 0.8
"""How often a difference of the minimum size is found."""
_MOST = 10**9

DETECTABLE = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "samples": pl.Int64,
    "methods": pl.Int64,
    "spread": pl.Float64,
    "difference": pl.Float64,
}


def minimum_detectable_difference(
    spread: float, samples: int, *, tests: int = 1, level: float = 0.95, power: float = POWER
) -> float:
    """The difference of two means that so many samples tell from zero with this power; infinite below two samples.

    Args:
        spread: the standard deviation of the paired differences.
        samples: how many pairs of scores.
        tests: how many pairs of methods are tested at once.
        level: 1 − the probability of any false finding.
        power: how often the difference is found.

    Example:
        >>> round(minimum_detectable_difference(0.15, 28), 3)
        0.082
    """
    _check(spread, tests, level, power)
    if samples < 2:
        return math.inf
    freedom = samples - 1
    critical = t_quantile(1 - (1 - level) / tests, freedom)
    beyond = NormalDist().inv_cdf(power) * math.sqrt(1 + critical**2 / (2 * freedom))
    return (critical * (1 - 1 / (4 * freedom)) + beyond) * spread / math.sqrt(samples)


def samples_needed(
    difference: float, spread: float, *, tests: int = 1, level: float = 0.95, power: float = POWER
) -> int:
    """How many samples tell a difference of two means from zero with this power.

    Args:
        difference: what is to be found.
        spread: the standard deviation of the paired differences.
        tests: how many pairs of methods are tested at once.
        level: 1 − the probability of any false finding.
        power: how often the difference is found.

    Example:
        >>> samples_needed(0.08, 0.15), samples_needed(0.03, 0.15, tests=45)
        (30, 427)
    """
    if not 0 < difference < math.inf:
        raise ValueError(f"a difference of {difference!r} cannot be looked for; it should be greater than 0")
    low, high = 1, 2
    while minimum_detectable_difference(spread, high, tests=tests, level=level, power=power) > difference:
        low, high = high, 2 * high
        if high > _MOST:
            raise ValueError(
                f"a difference of {difference:g} at a spread of {spread:g} needs more than {_MOST:,} samples"
            )
    while high - low > 1:
        middle = (low + high) // 2
        found = minimum_detectable_difference(spread, middle, tests=tests, level=level, power=power) <= difference
        low, high = (low, middle) if found else (middle, high)
    return high


def _check(spread: float, tests: int, level: float, power: float) -> None:
    if not (0 <= spread < math.inf and tests >= 1 and 0 < level < 1 and 0 < power < 1):
        raise ValueError(
            f"spread={spread!r}, tests={tests!r}, level={level!r}, power={power!r}: the spread should not be negative, tests at "
            "least 1, level and power between 0 and 1"
        )


def detectable(
    scores: pl.DataFrame, facts: Facts, *, level: float = 0.95, power: float = POWER, coverage_floor: float = 0.5
) -> pl.DataFrame:
    """The minimum detectable difference of every metric: what its samples can tell apart among the ranked methods.

    Args:
        scores: the long table of scores.
        facts: directions, controls, circular pairs.
        level: 1 − the probability of any false finding among a metric's pairs.
        power: how often the difference is found.
        coverage_floor: as on the leaderboard.

    Returns:
        `model`, `data`, `metric`; `samples`: the median number that a pair has in common; `methods`: how many are ranked;
        `spread`: the median standard deviation of a pair's differences; `difference`: the minimum detectable one. Metrics
        that rank fewer than two methods have no row.
    """
    rows = []
    for group in groups(scores, facts):
        ranked = [i for i, reason in enumerate(group.reasons(facts, coverage_floor)) if reason is None]
        if len(ranked) > 1:
            rows.append((*group.key.values(), *told_apart(group.scores[ranked], level=level, power=power)))
    return pl.DataFrame(rows, schema=DETECTABLE, orient="row")


def told_apart(scores: Array, *, level: float = 0.95, power: float = POWER) -> tuple[int, int, float, float | None]:
    """Samples, methods, spread and minimum detectable difference of the scores of at least two methods, [methods, samples]."""
    d = [scores[a] - scores[b] for a, b in combinations(range(len(scores)), 2)]
    n = int(np.median([np.sum(~np.isnan(row)) for row in d]))
    spread = float(np.median([_spread(row) for row in d]))
    least = minimum_detectable_difference(spread, n, tests=len(d), level=level, power=power)
    return n, len(scores), spread, least if math.isfinite(least) else None


def _spread(d: Array) -> float:
    known = d[~np.isnan(d)]
    return float(known.std(ddof=1)) if len(known) > 1 else 0.0


def in_words(row: dict[str, object]) -> str:
    """A row of `detectable` as a sentence.

    >>> in_words({"metric": "sds", "samples": 28, "methods": 9, "difference": 0.0812})
    '28 samples tell apart means that differ by 0.081 under sds'
    """
    samples = "1 sample tells" if row["samples"] == 1 else f"{row['samples']:,} samples tell"
    if row["difference"] is None:
        return f"{samples} no means apart under {row['metric']}"
    return f"{samples} apart means that differ by {row['difference']:.2g} under {row['metric']}"
