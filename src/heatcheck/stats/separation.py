"""Does a metric tell methods from random, and from each other?

`spec/METRICS.md` §8, for every metric. A metric that cannot place random last, or finds all methods equal,
says little about any of them.
"""

from itertools import combinations

import numpy as np
import polars as pl

from heatcheck.stats.facts import Facts
from heatcheck.stats.paired import compare, flips_for, holm, sign_flip
from heatcheck.stats.table import Array, MetricGroup, Row, groups, null

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
    """Probability that a number of `better` exceeds one of `worse`, ties half; NaN if either is empty."""
    x, y = better[~np.isnan(better)], np.sort(worse[~np.isnan(worse)])
    if len(x) == 0 or len(y) == 0:
        return float("nan")
    below, upto = np.searchsorted(y, x, side="left"), np.searchsorted(y, x, side="right")
    return float((below + upto).sum() / (2 * len(x) * len(y)))


def eta_squared(values: Array) -> float:
    """Share of the variance of [methods, samples] that lies between methods; NaN where there is none."""
    rows = [row[~np.isnan(row)] for row in values]
    rows = [row for row in rows if len(row)]
    if not rows:
        return float("nan")
    everything = np.concatenate(rows)
    centre = everything.mean()
    total = np.sum((everything - centre) ** 2)
    between = sum(len(row) * (row.mean() - centre) ** 2 for row in rows)
    return float(between / total) if np.ptp(everything) > 0 else float("nan")


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
        One row per (model, data, metric). `methods`: ranked methods.
        From random, on common ok samples, null where random was not measured: `random_is_last`: every
        method's mean is above random's. `random_rank`: random's place among methods and random, behind
        those it ties with. `random_margin`: the smallest mean difference from random in bootstrap standard
        errors. `apart_from_random`: random is last and every interval against it excludes zero. `auroc`: of
        the methods' per-sample scores against random's.
        Between methods: `pairs`; `separable`: share of pairs with a Holm-significant difference; `spread`:
        mean absolute difference of a pair; `eta_squared`: variance between methods over total variance.
    """
    rows: list[Row] = []
    for group in groups(scores, facts):
        ranked = [i for i, why in enumerate(group.reasons(facts, coverage_floor)) if why is None]
        pairs = list(combinations(ranked, 2))
        each = np.array([group.gains[a] - group.gains[b] for a, b in pairs]).reshape(-1, group.n)
        p = holm(sign_flip(each, flips=flips_for(len(pairs), level), seed=seed)) if pairs else np.empty(0)
        gaps = np.abs([d[~np.isnan(d)].mean() for d in each if not np.isnan(d).all()])
        rows.append(
            {
                **group.key,
                "methods": len(ranked),
                **_from_random(group, facts, ranked, seed, resamples, level),
                "pairs": len(pairs),
                "separable": float(np.mean(p <= 1 - level)) if pairs else None,
                "spread": float(gaps.mean()) if len(gaps) else None,
                "eta_squared": null(eta_squared(group.scores[ranked])) if len(ranked) > 1 else None,
            }
        )
    return pl.DataFrame(rows, schema=SEPARATION, orient="row")


def _from_random(group: MetricGroup, facts: Facts, ranked: list[int], seed: int, resamples: int, level: float) -> Row:
    if facts.random not in group.methods or not ranked:
        return {}
    chance = group.methods.index(facts.random)
    found = compare(group, [(i, chance) for i in ranked], seed=seed, resamples=resamples, level=level)
    if not found.n.all():
        return {}
    last = bool((found.gain > 0).all())
    known = found.error > 0
    return {
        "random_is_last": last,
        "random_rank": 1 + int(np.sum(found.gain >= 0)),
        "random_margin": float((found.gain[known] / found.error[known]).min()) if known.any() else None,
        "apart_from_random": last and bool((found.low > 0).all()),
        "auroc": null(auroc(group.gains[ranked], group.gains[chance])),
    }
