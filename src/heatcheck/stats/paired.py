"""Paired comparison of two methods: mean difference, its interval, its p-value, and the share of wins.

The test is a sign-flip permutation test: under the null hypothesis two methods are exchangeable on every sample, so
every pattern of signs of the differences is equally likely. Its statistic is the mean difference, the number that
also ranks the methods. Wilcoxon's signed-rank test concerns another centre (the pseudo-median) and can be
significant against the sign of the mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import polars as pl

from heatcheck.stats.facts import Facts
from heatcheck.stats.intervals import mean_intervals
from heatcheck.stats.large import share_of_flips_beyond
from heatcheck.stats.table import Array, MetricGroup, Row, groups, nan_to_null

EXACT = 12  # up to this many nonzero differences, all sign patterns are enumerated
FLIPS = 9999
_BLOCK = 1 << 21
_RELATIVE = 1e-12  # sums whose relative difference is smaller are equal

Alternative = Literal["two-sided", "greater"]

DIFFERENCES = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "a": pl.String,
    "b": pl.String,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "share": pl.Float64,
    "effect": pl.Float64,
    "p": pl.Float64,
    "p_holm": pl.Float64,
    "significant": pl.Boolean,
    "ranked": pl.Boolean,
}


def holm(p: Array) -> Array:
    """Holm's adjusted p-values; NaN stays NaN and does not count as a test.

    Example:
        >>> holm(np.array([0.01, 0.04, 0.03]))
        array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def flips_for(tests: int, level: float) -> int:
    """Random sign patterns with which the smallest of `tests` p-values can be significant after Holm's correction."""
    return max(FLIPS, int(np.ceil(4 * tests / (1 - level))) - 1)


def smallest_p(samples: int, tests: int) -> float:
    """Smallest p-value that a one-sided sign-flip test can give, Holm-corrected over `tests` tests.

    Example:
        >>> smallest_p(3, tests=2), smallest_p(8, tests=2)
        (0.25, 0.0078125)
    """
    return min(1.0, tests * 2.0**-samples)


def too_few(samples: int, tests: int, level: float = 0.95) -> bool:
    """Whether no one-sided test on this many samples can be significant, Holm-corrected over `tests` tests.

    Example:
        >>> too_few(3, tests=2), too_few(8, tests=2)
        (True, False)
    """
    return smallest_p(samples, tests) > 1 - level


def sign_flip(
    differences: Array, *, alternative: Alternative = "two-sided", flips: int = FLIPS, seed: int = 0
) -> Array:
    """p-values of the sign-flip permutation test of the mean, one per row.

    Exact for up to 12 nonzero differences, else Monte Carlo with the observed pattern included, so that the test is
    valid for any number of flips. All rows share their sign patterns. With many nonzero differences, of which none
    dominate, the p-value is that of all sign patterns, from the differences' moments; it is never smaller than the
    random patterns could make it.

    Args:
        differences: paired differences, [rows, samples]; NaN where a sample is not common to the pair.
        alternative: "greater" is the one-sided test of a mean above zero.
        flips: random sign patterns, where not exact.
        seed: of the random patterns.

    Returns:
        [rows]; 1 where all differences are zero, NaN where there is none.
    """
    d = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    empty = np.isnan(d).all(axis=1)
    d = np.where(np.isnan(d), 0.0, d)
    few = np.count_nonzero(d, axis=1) <= EXACT
    p = np.array([np.nan if rare else _expanded(row, alternative, flips) for row, rare in zip(d, few, strict=True)])
    several = np.isnan(p) & ~few
    p[few] = _exact(d[few], alternative)
    p[several] = _monte_carlo(d[several], alternative, flips, seed)
    return np.where(empty, np.nan, p)


def _expanded(d: Array, alternative: Alternative, flips: int) -> float:
    """The p-value of all sign patterns of many differences; NaN where it needs random ones."""
    total = d.sum()
    beyond = share_of_flips_beyond(d[d != 0] * (np.sign(total) if alternative == "two-sided" and total else 1.0))
    if beyond is None:
        return np.nan
    return max(min(1.0, 2 * beyond if alternative == "two-sided" else beyond), 1 / (flips + 1))


def _exact(d: Array, alternative: Alternative) -> Array:
    packed = np.zeros((len(d), EXACT))
    row, column = np.nonzero(d)
    place = (np.cumsum(d != 0, axis=1) - 1)[row, column]
    packed[row, place] = d[row, column]
    patterns = 1.0 - 2.0 * (np.arange(2**EXACT)[:, None] >> np.arange(EXACT) & 1)
    return _as_extreme(packed, packed @ patterns.T, alternative) / len(patterns)


def _monte_carlo(d: Array, alternative: Alternative, flips: int, seed: int) -> Array:
    k, n = d.shape
    count = np.ones(k)
    if k == 0:
        return count
    rng = np.random.default_rng([seed, 1])
    words = -(-n // 64)  # whole words, so that the stream does not depend on the blocks
    block = max(1, _BLOCK // max(n, k))
    for start in range(0, flips, block):
        rows = min(block, flips - start)
        drawn = np.frombuffer(rng.bytes(8 * words * rows), np.uint8).reshape(rows, -1)
        signs = 1.0 - 2.0 * np.unpackbits(drawn, axis=1, count=n)
        count += _as_extreme(d, d @ signs.T, alternative)
    return count / (flips + 1)


def _as_extreme(d: Array, sums: Array, alternative: Alternative) -> Array:
    """Per row, how many of the permuted sums [rows, patterns] are at least as extreme as the observed one."""
    observed, slack = d.sum(axis=1), _RELATIVE * np.abs(d).sum(axis=1)
    if alternative == "two-sided":
        observed, sums = np.abs(observed), np.abs(sums)
    return np.asarray(np.sum(sums >= (observed - slack)[:, None], axis=1, dtype=np.float64))


def wins_share(differences: Array) -> Array:
    """Share of samples with a positive difference, ties count half: [rows, samples] to [rows].

    An effect size (the probability of superiority): 0.5 is no effect, 1 is a win on every sample.

    Example:
        >>> wins_share(np.array([0.3, 0.1, 0.0, -0.2]))
        array([0.625])
    """
    d = np.atleast_2d(differences)
    n = np.sum(~np.isnan(d), axis=1)
    wins = np.sum(d > 0, axis=1) + 0.5 * np.sum(d == 0, axis=1)
    share = np.full(len(d), np.nan)
    np.divide(wins, n, out=share, where=n > 0)
    return share


def standardised_difference(differences: Array) -> Array:
    """Mean difference in standard deviations of the differences, [rows, samples] to [rows]; Hedges' correction for few samples.

    An effect size: how far apart two methods are on one sample, beside how much that varies. NaN for fewer than three
    samples, or where all differences are equal.

    Example:
        >>> standardised_difference(np.array([0.3, 0.1, 0.0, 0.2])).round(3)
        array([0.845])
    """
    d = np.atleast_2d(differences)
    found = np.full(len(d), np.nan)
    for i, row in enumerate(d):
        known = row[~np.isnan(row)]
        if len(known) > 2 and np.ptp(known) > 0:
            found[i] = known.mean() / known.std(ddof=1) * (1 - 3 / (4 * (len(known) - 1) - 1))
    return found


AGAINST = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "method": pl.String,
    "n": pl.Int64,
    "difference": pl.Float64,
    "effect": pl.Float64,
    "share": pl.Float64,
}


def against_others(scores: pl.DataFrame, facts: Facts, method: str, *, coverage_floor: float = 0.5) -> pl.DataFrame:
    """How far a method is from every other one that is ranked beside it, per (model, data, metric): sizes without tests.

    Args:
        scores: the long table of scores.
        facts: directions, controls, circular pairs.
        method: which one.
        coverage_floor: as on the leaderboard.

    Returns:
        `method`: the other one; `n`: common ok samples; `difference`, `effect`, `share`: as in `differences`, positive or
        above one half where the method is better than the other.
    """
    rows: list[Row] = []
    for group in groups(scores, facts):
        ranked = [
            m for m, reason in zip(group.methods, group.reasons(facts, coverage_floor), strict=True) if not reason
        ]
        if method not in ranked:
            continue
        others = [m for m in ranked if m != method]
        places = [group.methods.index(m) for m in others]
        d = group.oriented[group.methods.index(method)] - group.oriented[places]
        known = ~np.isnan(d)
        n = known.sum(axis=1)
        mean = np.divide(np.where(known, d, 0.0).sum(axis=1), n, out=np.full(len(d), np.nan), where=n > 0)
        effect, share = standardised_difference(d), wins_share(d)
        rows += [
            {
                **group.key,
                "method": other,
                "n": int(n[i]),
                "difference": nan_to_null(mean[i]),
                "effect": nan_to_null(effect[i]),
                "share": nan_to_null(share[i]),
            }
            for i, other in enumerate(others)
        ]
    return pl.DataFrame(rows, schema=AGAINST, orient="row")


@dataclass(frozen=True)
class PairedComparison:
    """Pairs of methods of a group, compared on their common ok samples; arrays are [pairs].

    Args:
        difference: mean difference, positive where the first is better.
        low: lower end of its interval.
        high: upper end of its interval.
        error: its standard error.
        n: number of common ok samples.
        per_sample: differences per sample, [pairs, samples].
    """

    difference: Array
    low: Array
    high: Array
    error: Array
    n: Array
    per_sample: Array


def compare(
    group: MetricGroup, pairs: Sequence[tuple[int, int]], *, seed: int, resamples: int, level: float
) -> PairedComparison:
    """Compare methods `(a, b)` of `group`, given by their rows, each pair on its common ok samples."""
    oriented = group.oriented
    first = np.array([a for a, _ in pairs], dtype=np.int64)
    second = np.array([b for _, b in pairs], dtype=np.int64)
    per_sample = oriented[first] - oriented[second]
    ends = mean_intervals(per_sample, seed=seed, resamples=resamples, level=level)
    n = np.sum(~np.isnan(per_sample), axis=1)
    total = np.where(np.isnan(per_sample), 0.0, per_sample).sum(axis=1)
    return PairedComparison(
        difference=np.divide(total, n, out=np.full(len(n), np.nan), where=n > 0),
        low=ends[:, 0],
        high=ends[:, 1],
        error=np.array([_error(d[~np.isnan(d)]) for d in per_sample]),
        n=n.astype(np.float64),
        per_sample=per_sample,
    )


def _error(d: Array) -> float:
    """Standard error of a mean; exactly zero for equal differences, NaN for fewer than two."""
    if len(d) < 2:
        return float("nan")
    return 0.0 if np.ptp(d) == 0 else float(d.std(ddof=1)) / math.sqrt(len(d))


def differences(
    scores: pl.DataFrame,
    facts: Facts,
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
    coverage_floor: float = 0.5,
) -> pl.DataFrame:
    """Paired comparison of every two methods that have a score, per (model, data, metric).

    `difference` is the mean of a − b in the metric's direction (positive: a is better) over the pair's common ok
    samples, with a studentised bootstrap interval; `share` is the share of samples on which a is better (ties half),
    `effect` the difference in standard deviations (`standardised_difference`). `p` is the
    two-sided sign-flip p-value. Holm's correction is applied within a metric to the pairs of ranked methods
    (`ranked`), and separately to the pairs that involve an unranked one, so that controls cost no power.
    """
    rows: list[Row] = []
    for group in groups(scores, facts):
        ranked = [reason is None for reason in group.reasons(facts, coverage_floor)]
        pairs = list(combinations(np.flatnonzero(group.n_ok).tolist(), 2))
        both = np.array([ranked[a] and ranked[b] for a, b in pairs], dtype=bool)
        compared = compare(group, pairs, seed=seed, resamples=resamples, level=level)
        p = sign_flip(compared.per_sample, flips=flips_for(len(pairs), level), seed=seed) if pairs else np.empty(0)
        adjusted = np.empty(len(pairs))
        adjusted[both], adjusted[~both] = holm(p[both]), holm(p[~both])
        share, effect = wins_share(compared.per_sample), standardised_difference(compared.per_sample)
        rows += [
            {
                **group.key,
                "a": group.methods[a],
                "b": group.methods[b],
                "difference": nan_to_null(compared.difference[i]),
                "low": nan_to_null(compared.low[i]),
                "high": nan_to_null(compared.high[i]),
                "n": int(compared.n[i]),
                "share": nan_to_null(share[i]),
                "effect": nan_to_null(effect[i]),
                "p": nan_to_null(p[i]),
                "p_holm": nan_to_null(adjusted[i]),
                "significant": None if np.isnan(adjusted[i]) else bool(adjusted[i] <= 1 - level),
                "ranked": bool(both[i]),
            }
            for i, (a, b) in enumerate(pairs)
        ]
    return pl.DataFrame(rows, schema=DIFFERENCES, orient="row")
