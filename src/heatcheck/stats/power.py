r"""What a number of samples can tell apart, and how many samples a difference needs.

A paired two-sided t-test of level $\alpha$ on $n$ differences with standard deviation $s$ finds a mean difference $\delta$ with the
power $1 - \beta$ where $\delta \sqrt{n} / s \approx t(1 - 1/4\nu) + z_{1-\beta}\sqrt{1 + t^2 / 2\nu}$ with the critical value $t$ of
$\nu = n - 1$ degrees of freedom: the normal approximation of the noncentral t distribution. With several tests $\alpha$ is shared
among them.
"""

import math
from collections.abc import Mapping
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from heatcheck.stats.facts import Facts
from heatcheck.stats.student import t_quantile
from heatcheck.stats.table import Array, groups

POWER = 0.8
"""How often a difference of the minimum size is found."""
_MOST = 10**9
_FINER = 4  # how much smaller than the minimum is the difference whose price is told

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
        `spread`: the median standard deviation of a pair's differences, of pairs that differ; `difference`: the minimum
        detectable one, null where it is beyond the metric's range. Metrics
        that rank fewer than two methods have no row.
    """
    rows = []
    for group in groups(scores, facts):
        ranked = [i for i, reason in enumerate(group.reasons(facts, coverage_floor)) if reason is None]
        if len(ranked) > 1:
            within = facts.bounds(group.metric)
            rows.append(
                (*group.key.values(), *told_apart(group.scores[ranked], level=level, power=power, within=within))
            )
    return pl.DataFrame(rows, schema=DETECTABLE, orient="row")


def detectable_on(board: pl.DataFrame) -> pl.DataFrame:
    """The same of a leaderboard; `samples` are those of the ranked method that has most.

    Args:
        board: what `leaderboard` returned.
    """
    ranked = board.filter(pl.col("ranked") & pl.col("detectable").is_not_null())
    return ranked.group_by("model", "data", "metric", maintain_order=True).agg(
        samples=pl.col("n_ok").max(),
        methods=pl.len().cast(pl.Int64),
        spread=pl.col("spread").first(),
        difference=pl.col("detectable").first(),
    )


def told_apart(
    scores: Array, *, level: float = 0.95, power: float = POWER, within: tuple[float, float] = (-math.inf, math.inf)
) -> tuple[int, int, float, float | None]:
    """Samples, methods, spread and minimum detectable difference of the scores of at least two methods, [methods, samples].

    Pairs whose difference is the same on all samples, as of methods with equal maps, say nothing about the spread. There is
    no detectable difference where none of the others is left, or where it is greater than the range of the scores.
    """
    d = [scores[a] - scores[b] for a, b in combinations(range(len(scores)), 2)]
    n = int(np.median([np.sum(~np.isnan(row)) for row in d]))
    spreads = [spread for spread in map(_spread, d) if spread > 0]
    if not spreads:
        return n, len(scores), 0.0, None
    spread = float(np.median(spreads))
    least = minimum_detectable_difference(spread, n, tests=len(d), level=level, power=power)
    possible = math.isfinite(least) and least <= within[1] - within[0]
    return n, len(scores), spread, least if possible else None


def _spread(d: Array) -> float:
    known = d[~np.isnan(d)]
    return float(known.std(ddof=1)) if len(known) > 1 and np.ptp(known) > 0 else 0.0


def needed(row: Mapping[str, Any], difference: float) -> int:
    """How many samples a difference needs under the metric of a row of `detectable`, with as many methods.

    >>> needed({"spread": 0.15, "methods": 10}, 0.03)
    427
    """
    return samples_needed(difference, row["spread"], tests=math.comb(row["methods"], 2))


def finer(row: Mapping[str, Any]) -> tuple[float, int] | None:
    """A quarter of the minimum detectable difference, as a round number, and about how many samples it needs.

    None where the samples tell no means apart, or any.
    """
    if not row["difference"]:
        return None
    difference = float(f"{row['difference'] / _FINER:.1g}")
    return difference, round_number(needed(row, difference))


def round_number(n: int) -> int:
    """A number with two significant digits.

    >>> round_number(1234), round_number(87)
    (1200, 87)
    """
    return int(float(f"{n:.2g}"))


def in_words(row: Mapping[str, Any]) -> str:
    """A row of `detectable` as a sentence.

    >>> in_words({"metric": "sds", "samples": 28, "methods": 2, "spread": 0.15, "difference": 0.0823})
    '28 samples tell apart means that differ by 0.082 under sds; 0.02 would need about 440'
    """
    samples = "1 sample tells" if row["samples"] == 1 else f"{row['samples']:,} samples tell"
    if row["difference"] is None:
        return f"{samples} no means apart under {row['metric']}"
    least = f"{samples} apart means that differ by {short(row['difference'])} under {row['metric']}"
    price = finer(row)
    return least if price is None else f"{least}; {short(price[0])} would need about {price[1]:,}"


def short(difference: float) -> str:
    """A difference with two significant digits.

    >>> short(0.0812), short(1234.5)
    ('0.081', '1200')
    """
    return f"{float(f'{difference:.2g}'):g}"
