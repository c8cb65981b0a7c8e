"""How well a metric separates methods from random and from each other.

A metric that does not place random last, or finds all methods equal, says little about any of them.
"""

from itertools import combinations

import numpy as np
import polars as pl

from heatcheck.stats.facts import Facts
from heatcheck.stats.paired import compare, flips_for, holm, sign_flip
from heatcheck.stats.table import Array, MetricGroup, Row, groups, nan_to_null

SEPARATION = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "methods": pl.Int64,
    "random_is_last": pl.Boolean,
    "random_rank": pl.Int64,
    "random_margin": pl.Float64,
    "apart_from_random": pl.Boolean,
    "auroc": pl.Float64,
    "pairs": pl.Int64,
    "separable": pl.Float64,
    "spread": pl.Float64,
    "eta_squared": pl.Float64,
}


def auroc(better: Array, worse: Array) -> float:
    """Probability that a value of `better` exceeds one of `worse`, ties half; NaN if either is empty.

    Example:
        >>> auroc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
        0.875
    """
    x, y = better[~np.isnan(better)], np.sort(worse[~np.isnan(worse)])
    if len(x) == 0 or len(y) == 0:
        return float("nan")
    below, below_or_equal = np.searchsorted(y, x, side="left"), np.searchsorted(y, x, side="right")
    return float((below + below_or_equal).sum() / (2 * len(x) * len(y)))


def eta_squared(values: Array) -> float:
    """η² of [methods, samples]: the share of the variance that lies between methods; NaN where there is no variance.

    Example:
        >>> eta_squared(np.array([[0.0, 2.0], [2.0, 4.0]]))
        0.5
    """
    rows = [row[~np.isnan(row)] for row in values]
    rows = [row for row in rows if len(row)]
    if not rows:
        return float("nan")
    values = np.concatenate(rows)
    centre = values.mean()
    total = np.sum((values - centre) ** 2)
    between = sum(len(row) * (row.mean() - centre) ** 2 for row in rows)
    return float(between / total) if np.ptp(values) > 0 else float("nan")


def separation(
    scores: pl.DataFrame,
    facts: Facts,
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
    coverage_floor: float = 0.5,
) -> pl.DataFrame:
    """How well each metric separates the ranked methods from random and from each other.

    Returns:
        One row per (model, data, metric). `methods`: number of ranked methods.
        From random, on common ok samples, null where random was not measured: `random_is_last`: every method's mean
        is better than random's. `random_rank`: random's rank among the methods and itself, below those it ties with.
        `random_margin`: the smallest mean difference from random in standard errors. `apart_from_random`:
        random is last and every interval of a difference from it excludes zero. `auroc`: of the methods' per-sample
        scores against random's.
        Between methods: `pairs`: their number; `separable`: share of pairs with a Holm-significant difference;
        `spread`: mean absolute difference of a pair; `eta_squared`: variance between methods over total variance.
    """
    rows: list[Row] = []
    for group in groups(scores, facts):
        ranked = [i for i, reason in enumerate(group.reasons(facts, coverage_floor)) if reason is None]
        pairs = list(combinations(ranked, 2))
        per_sample = np.array([group.oriented[a] - group.oriented[b] for a, b in pairs]).reshape(-1, group.n)
        p = holm(sign_flip(per_sample, flips=flips_for(len(pairs), level), seed=seed)) if pairs else np.empty(0)
        distances = np.abs([d[~np.isnan(d)].mean() for d in per_sample if not np.isnan(d).all()])
        rows.append(
            {
                **group.key,
                "methods": len(ranked),
                **_from_random(group, facts, ranked, seed, resamples, level),
                "pairs": len(pairs),
                "separable": float(np.mean(p <= 1 - level)) if pairs else None,
                "spread": float(distances.mean()) if len(distances) else None,
                "eta_squared": nan_to_null(eta_squared(group.scores[ranked])) if len(ranked) > 1 else None,
            }
        )
    return pl.DataFrame(rows, schema=SEPARATION, orient="row")


def _from_random(group: MetricGroup, facts: Facts, ranked: list[int], seed: int, resamples: int, level: float) -> Row:
    if facts.random not in group.methods or not ranked:
        return {}
    random = group.methods.index(facts.random)
    compared = compare(group, [(i, random) for i in ranked], seed=seed, resamples=resamples, level=level)
    if not compared.n.all():
        return {}
    last = bool((compared.difference > 0).all())
    known = compared.error > 0
    return {
        "random_is_last": last,
        "random_rank": 1 + int(np.sum(compared.difference >= 0)),
        "random_margin": float((compared.difference[known] / compared.error[known]).min()) if known.any() else None,
        "apart_from_random": last and bool((compared.low > 0).all()),
        "auroc": nan_to_null(auroc(group.oriented[ranked], group.oriented[random])),
    }
