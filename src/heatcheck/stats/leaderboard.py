"""Leaderboards: every method's mean with interval, coverage and rank, beside the controls."""

from itertools import groupby

import numpy as np
import polars as pl

from heatcheck.stats.facts import Facts
from heatcheck.stats.intervals import bca, resampled_means
from heatcheck.stats.paired import flips_for, holm, sign_flip
from heatcheck.stats.ranks import rank_interval, rank_of, rounded
from heatcheck.stats.table import COSTS, KEYS, Array, MetricGroup, Row, groups, null

LEADERBOARD = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "method": pl.String,
    "mean": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n_ok": pl.Int64,
    "n": pl.Int64,
    "coverage": pl.Float64,
    "rank": pl.Float64,
    "rank_low": pl.Float64,
    "rank_high": pl.Float64,
    "control": pl.Boolean,
    "circular": pl.Boolean,
    "random_p": pl.Float64,
    "beats_random": pl.Boolean,
    "loses_to_random": pl.Boolean,
    "ranked": pl.Boolean,
    "reason": pl.String,
    "seconds": pl.Float64,
    "forwards": pl.Float64,
    "backwards": pl.Float64,
}

OVERALL = {
    "model": pl.String,
    "data": pl.String,
    "method": pl.String,
    "mean_rank": pl.Float64,
    "mean_z": pl.Float64,
    "wins": pl.Int64,
    "shared": pl.Int64,
    "metrics": pl.Int64,
    "of": pl.Int64,
}


def leaderboard(
    scores: pl.DataFrame,
    facts: Facts,
    *,
    seed: int = 0,
    resamples: int = 2000,
    level: float = 0.95,
    coverage_floor: float = 0.5,
) -> pl.DataFrame:
    """One row per (model, data, metric, method), best mean first, methods without a score last.

    Args:
        scores: the long table of scores.
        facts: directions, controls, circular pairs.
        seed: of resamples and sign patterns; the same for every group, so a metric's rows do not change
            when another metric is added.
        resamples: bootstrap resamples of the samples, shared by all methods of a group.
        level: of both intervals; a method beats random, or loses to it, if its p-value is at most 1 − level.
        coverage_floor: a method scored on a smaller share of the samples is unranked.

    Returns:
        `mean`, `low`, `high`: on the method's own ok samples, BCa bootstrap. `n_ok`, `n`, `coverage`: `n`
        counts every sample of the group, whichever method has it. `rank`, `rank_low`, `rank_high`: among
        the ranked methods, ties averaged; the interval is of the rank over resamples. `random_p`:
        one-sided paired sign-flip test against random on common ok samples, Holm-corrected over the
        group's methods (controls apart). `beats_random`, `loses_to_random`: whether that test, or the same
        test in the other direction, is significant; null where there is nothing to test. `reason`: why a method is unranked. `seconds`, `forwards`,
        `backwards`: means per ok sample.
    """
    rows: list[Row] = []
    for group in groups(scores, facts):
        reasons = group.reasons(facts, coverage_floor)
        resampled = resampled_means(group.scores, resamples, seed)
        rank, rank_low, rank_high = _ranks(group, reasons, resampled, level)
        random_p, worse_p = _against_random(group, facts, seed, level)
        board: list[Row] = []
        for i, method in enumerate(group.methods):
            low, high = bca(group.scores[i], resampled[i], level)
            board.append(
                {
                    **group.key,
                    "method": method,
                    "mean": null(group.means[i]),
                    "low": null(low),
                    "high": null(high),
                    "n_ok": int(group.n_ok[i]),
                    "n": group.n,
                    "coverage": float(group.coverage[i]),
                    "rank": null(rank[i]),
                    "rank_low": null(rank_low[i]),
                    "rank_high": null(rank_high[i]),
                    "control": facts.is_control(method),
                    "circular": (method, group.metric) in facts.circular,
                    "random_p": null(random_p[i]),
                    "beats_random": None if np.isnan(random_p[i]) else bool(random_p[i] <= 1 - level),
                    "loses_to_random": None if np.isnan(worse_p[i]) else bool(worse_p[i] <= 1 - level),
                    "ranked": reasons[i] is None,
                    "reason": reasons[i],
                    **{cost: null(group.costs[i, c]) for c, cost in enumerate(COSTS)},
                }
            )
        # NaN sorts last, equal means by name.
        rows += [board[i] for i in np.argsort(-group.sign * group.means, kind="stable")]
    return pl.DataFrame(rows, schema=LEADERBOARD, orient="row")


def _ranks(group: MetricGroup, reasons: list[str | None], resampled: Array, level: float) -> tuple[Array, Array, Array]:
    ranked = np.flatnonzero([reason is None for reason in reasons])
    out = np.full((3, len(group.methods)), np.nan)
    if len(ranked):
        scale = float(np.abs(group.means[ranked]).max())
        rank = rank_of(rounded(group.sign * group.means[ranked], scale))
        low, high = rank_interval(rounded(group.sign * resampled[ranked], scale), level)
        out[:, ranked] = rank, np.fmin(low, rank), np.fmax(high, rank)
    return out[0], out[1], out[2]


def _against_random(group: MetricGroup, facts: Facts, seed: int, level: float) -> tuple[Array, Array]:
    """Adjusted p-values of being better than random, and of being worse."""
    better, worse = np.full((2, len(group.methods)), np.nan)
    if facts.random not in group.methods or group.metric in facts.of_model:
        return better, worse
    chance = group.methods.index(facts.random)
    gains = group.gains - group.gains[chance]
    flips = flips_for(len(group.methods), level)
    raw = sign_flip(gains, alternative="greater", flips=flips, seed=seed)
    raw[chance] = np.nan
    # Only a method behind random can lose to it: every other has a p-value of at least one half.
    behind = np.nansum(gains, axis=1) < 0
    other = np.where(np.isnan(raw), np.nan, 1.0)
    other[behind] = sign_flip(-gains[behind], alternative="greater", flips=flips, seed=seed)
    control = np.array([facts.is_control(m) for m in group.methods])
    for some in (control, ~control):
        better[some], worse[some] = holm(raw[some]), holm(other[some])
    return better, worse


def not_better_than_random(board: pl.DataFrame) -> pl.DataFrame:
    """Per metric the methods that are not significantly better than random; controls are not listed.

    Returns:
        `model`, `data`, `metric`, `methods`: a sorted list; null where random was not measured or has no
        sample in common with any method.
    """
    tested = ~pl.col("control") & pl.col("beats_random").is_not_null()
    return (
        board.group_by(KEYS)
        .agg(
            methods=pl.col("method").filter(tested & ~pl.col("beats_random")).sort(),
            tested=tested.any(),
        )
        .select(*KEYS, methods=pl.when("tested").then("methods"))
        .sort(KEYS)
    )


def overall(board: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """One row per (model, data, method) over all metrics, best mean rank first; controls are left out.

    A metric that ranks fewer than two methods orders nothing and does not count; nor do the metrics that
    `facts` sets apart.

    Args:
        board: what `leaderboard` returned.
        facts: directions of the metrics, and which are apart.

    Returns:
        `mean_rank`: over the metrics that rank the method. `mean_z`: mean over them of the method's mean
        score in standard deviations from the ranked methods' average, in the better direction. `wins`:
        metrics in which no method ranks better; `shared`: those of them in which another ranks as well.
        `metrics` of `of`: how many metrics rank the method, out of those that rank any.
    """
    rows: list[Row] = []
    mine = board.filter(~pl.col("control")).sort("model", "data", "metric", "method")
    for (model, data), case in groupby(mine.iter_rows(named=True), key=lambda r: (r["model"], r["data"])):
        seen: dict[str, list[tuple[float, float, bool, bool]]] = {}
        of = 0
        for metric, entries in groupby(case, key=lambda r: str(r["metric"])):
            everyone = list(entries)
            for entry in everyone:
                seen.setdefault(entry["method"], [])
            ranked = [entry for entry in everyone if entry["ranked"]]
            if len(ranked) < 2 or metric in facts.outside_mean_rank:
                continue
            of += 1
            z = _z_scores(facts.sign(metric) * np.array([entry["mean"] for entry in ranked]))
            ranks = [entry["rank"] for entry in ranked]
            best = min(ranks)
            several = ranks.count(best) > 1
            for entry, score in zip(ranked, z.tolist(), strict=True):
                first = entry["rank"] == best
                seen[entry["method"]].append((entry["rank"], score, first, first and several))
        for method, results in seen.items():
            rank, score, wins, shared = np.array(results).reshape(-1, 4).T
            rows.append(
                {
                    "model": model,
                    "data": data,
                    "method": method,
                    "mean_rank": float(rank.mean()) if len(rank) else None,
                    "mean_z": float(score.mean()) if len(score) else None,
                    "wins": int(wins.sum()),
                    "shared": int(shared.sum()),
                    "metrics": len(rank),
                    "of": of,
                }
            )
    return pl.DataFrame(rows, schema=OVERALL, orient="row").sort(
        "model", "data", "mean_rank", "method", nulls_last=True
    )


def _z_scores(values: Array) -> Array:
    apart = values - values.mean()
    spread = apart.std()
    tied = spread <= 1e-12 * np.abs(values).max()
    return np.zeros_like(apart) if tied else np.asarray(apart / spread)
