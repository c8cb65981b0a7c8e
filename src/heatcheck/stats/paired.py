"""Two methods on the same samples: mean difference, its interval, its p-value, and who wins how often.

The test flips signs: if two methods are exchangeable, swapping their scores on any sample changes
nothing, so every pattern of signs of the differences is equally likely. Its statistic is the mean
difference itself, the very number that ranks the methods. Wilcoxon's signed ranks test another centre (the
pseudo-median) and can be significant against the sign of the mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import polars as pl

from heatcheck.stats.facts import Facts
from heatcheck.stats.intervals import bca, resampled_means
from heatcheck.stats.table import Array, MetricGroup, Row, groups, null

EXACT = 12  # up to so many nonzero differences all sign patterns are enumerated
FLIPS = 9999
_BLOCK = 1 << 21
_RELATIVE = 1e-12  # sums that differ by less are equal

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
    """How many random sign patterns let the smallest of `tests` p-values survive Holm with room."""
    return max(FLIPS, int(np.ceil(4 * tests / (1 - level))) - 1)


def too_few(samples: int, tests: int, level: float = 0.95) -> bool:
    """Whether a one-sided test on so few samples cannot be significant, whatever they say, after Holm.

    Example:
        >>> too_few(3, tests=2), too_few(8, tests=2)
        (True, False)
    """
    return bool(2.0**-samples * tests > 1 - level)


def sign_flip(
    differences: Array, *, alternative: Alternative = "two-sided", flips: int = FLIPS, seed: int = 0
) -> Array:
    """p-values of the sign-flip permutation test of the mean, one per row.

    Exact for up to 12 nonzero differences, else Monte Carlo with the observed pattern counted in, which
    keeps the test valid at any number of flips. All rows share their sign patterns.

    Args:
        differences: paired differences, [rows, samples]; NaN where a sample is not common to the pair.
        alternative: "greater" asks whether the mean is above zero.
        flips: random sign patterns, where not exact.
        seed: of the random patterns.

    Returns:
        [rows]; 1 where all differences are zero, NaN where there is none.
    """
    d = np.atleast_2d(np.asarray(differences, dtype=np.float64))
    empty = np.isnan(d).all(axis=1)
    d = np.where(np.isnan(d), 0.0, d)
    few = np.count_nonzero(d, axis=1) <= EXACT
    p = np.empty(len(d))
    p[few] = _exact(d[few], alternative)
    p[~few] = _monte_carlo(d[~few], alternative, flips, seed)
    return np.where(empty, np.nan, p)


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
    """In how many of the sums [rows, patterns] the total is at least as extreme as observed."""
    observed, slack = d.sum(axis=1), _RELATIVE * np.abs(d).sum(axis=1)
    if alternative == "two-sided":
        observed, sums = np.abs(observed), np.abs(sums)
    return np.asarray(np.sum(sums >= (observed - slack)[:, None], axis=1, dtype=np.float64))


def wins_share(differences: Array) -> Array:
    """Share of samples with a positive difference, ties count half: [rows, samples] to [rows].

    The effect size of a pair: 0.5 is no effect, 1 is a win on every sample.
    """
    d = np.atleast_2d(differences)
    n = np.sum(~np.isnan(d), axis=1)
    wins = np.sum(d > 0, axis=1) + 0.5 * np.sum(d == 0, axis=1)
    share = np.full(len(d), np.nan)
    np.divide(wins, n, out=share, where=n > 0)
    return share


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows of a group, compared on their common ok samples; every array is [pairs].

    Args:
        gain: mean difference, positive where the first is better.
        low: lower end of its interval.
        high: upper end of its interval.
        error: its bootstrap standard error.
        n: common ok samples.
        each: differences per sample, [pairs, samples].
    """

    gain: Array
    low: Array
    high: Array
    error: Array
    n: Array
    each: Array


def compare(group: MetricGroup, pairs: Sequence[tuple[int, int]], *, seed: int, resamples: int, level: float) -> Pairs:
    """Compare rows `(a, b)` of `group`, each pair on its common ok samples."""
    gains = group.gains
    first = np.array([a for a, _ in pairs], dtype=np.int64)
    second = np.array([b for _, b in pairs], dtype=np.int64)
    each = gains[first] - gains[second]
    ok = ~np.isnan(gains)
    means = resampled_means(gains, resamples, seed)
    # Where both have the same samples, the mean of differences is the difference of means.
    resampled = means[first] - means[second]
    unlike = np.flatnonzero((ok[first] != ok[second]).any(axis=1))
    resampled[unlike] = resampled_means(each[unlike], resamples, seed)
    ends = np.array([bca(d, r, level) for d, r in zip(each, resampled, strict=True)]).reshape(-1, 2)
    n = np.sum(~np.isnan(each), axis=1)
    total = np.where(np.isnan(each), 0.0, each).sum(axis=1)
    return Pairs(
        gain=np.divide(total, n, out=np.full(len(n), np.nan), where=n > 0),
        low=ends[:, 0],
        high=ends[:, 1],
        error=np.array([_error(d, r) for d, r in zip(each, resampled, strict=True)]),
        n=n.astype(np.float64),
        each=each,
    )


def _error(d: Array, resampled: Array) -> float:
    """Bootstrap standard error; exactly zero for equal differences, NaN for fewer than two."""
    d, resampled = d[~np.isnan(d)], resampled[~np.isnan(resampled)]
    if len(d) < 2 or len(resampled) < 2:
        return float("nan")
    return 0.0 if np.ptp(d) == 0 else float(resampled.std(ddof=1))


def differences(
    scores: pl.DataFrame,
    facts: Facts,
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
    coverage_floor: float = 0.5,
) -> pl.DataFrame:
    """Every pair of methods that have a score, compared sample by sample.

    `difference` is the mean of a − b in the better direction (positive: a is better) on the pair's common
    ok samples, with a BCa interval; `share` is how often a beats b (ties half). `p` is the two-sided
    sign-flip p-value. Holm's correction runs within a group over the pairs of ranked methods (`ranked`),
    and apart from them over the pairs that involve an unranked one, so that controls cost no power.
    """
    rows: list[Row] = []
    for group in groups(scores, facts):
        ranked = [reason is None for reason in group.reasons(facts, coverage_floor)]
        pairs = list(combinations(np.flatnonzero(group.n_ok).tolist(), 2))
        both = np.array([ranked[a] and ranked[b] for a, b in pairs], dtype=bool)
        found = compare(group, pairs, seed=seed, resamples=resamples, level=level)
        p = sign_flip(found.each, flips=flips_for(len(pairs), level), seed=seed) if pairs else np.empty(0)
        adjusted = np.empty(len(pairs))
        adjusted[both], adjusted[~both] = holm(p[both]), holm(p[~both])
        share = wins_share(found.each)
        rows += [
            {
                **group.key,
                "a": group.methods[a],
                "b": group.methods[b],
                "difference": null(found.gain[i]),
                "low": null(found.low[i]),
                "high": null(found.high[i]),
                "n": int(found.n[i]),
                "share": null(share[i]),
                "p": null(p[i]),
                "p_holm": null(adjusted[i]),
                "significant": None if np.isnan(adjusted[i]) else bool(adjusted[i] <= 1 - level),
                "ranked": bool(both[i]),
            }
            for i, (a, b) in enumerate(pairs)
        ]
    return pl.DataFrame(rows, schema=DIFFERENCES, orient="row")
