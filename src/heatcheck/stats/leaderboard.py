"""Leaderboards: mean, interval, coverage and rank of every method under every metric, and ranks over all metrics."""

from itertools import groupby

import numpy as np
import polars as pl
from numpy.typing import NDArray

from heatcheck.stats.facts import Facts
from heatcheck.stats.intervals import heavy_tailed, mean_intervals
from heatcheck.stats.onesided import above_zero
from heatcheck.stats.paired import flips_for, holm, standardised_difference, too_few, wins_share
from heatcheck.stats.power import told_apart
from heatcheck.stats.ranks import ends_of_rank_sets, rounded, significantly_better, strict_rank
from heatcheck.stats.table import COSTS, KEYS, Array, MetricGroup, Row, groups, nan_to_null
from heatcheck.stats.tie_groups import compact_letters

LEADERBOARD: dict[str, pl.DataType | type[pl.DataType]] = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "method": pl.String,
    "mean": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "heavy_tail": pl.Boolean,
    "n_ok": pl.Int64,
    "n": pl.Int64,
    "coverage": pl.Float64,
    "rank": pl.Float64,
    "rank_low": pl.Float64,
    "rank_high": pl.Float64,
    "beaten_by": pl.List(pl.String),
    "group": pl.String,
    "detectable": pl.Float64,
    "spread": pl.Float64,
    "best_effect": pl.Float64,
    "best_share": pl.Float64,
    "control": pl.Boolean,
    "circular": pl.Boolean,
    "random_p": pl.Float64,
    "random_effect": pl.Float64,
    "random_share": pl.Float64,
    "beats_random": pl.Boolean,
    "loses_to_random": pl.Boolean,
    "ranked": pl.Boolean,
    "reason": pl.String,
    "seconds": pl.Float64,
    "forwards": pl.Float64,
    "backwards": pl.Float64,
}

LEFT_OUT = {"model": pl.String, "data": pl.String, "metric": pl.String, "reason": pl.String}

OVERALL = {
    "model": pl.String,
    "data": pl.String,
    "method": pl.String,
    "mean_rank": pl.Float64,
    "mean_low": pl.Float64,
    "mean_high": pl.Float64,
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
    """Means, ranks and tests against random: one row per (model, data, metric, method), best mean first.

    Args:
        scores: the long table of scores.
        facts: directions, controls, circular pairs.
        seed: of resamples and sign patterns; the same for every metric, so that a metric's rows do not change when
            another metric is added.
        resamples: bootstrap resamples of the samples, shared by all methods.
        level: of both intervals; a method beats random, or loses to it, if its p-value is at most 1 − level.
        coverage_floor: a method scored on a smaller share of the samples, without those that every method skips, is not
            ranked.

    Returns:
        `mean`, `low`, `high`: over the method's own ok samples, with studentised bootstrap interval, which ends where the
        metric's range ends; `heavy_tail`: a few
        samples dominate the mean, so the interval is likely to be too short. `n_ok` of `n` samples have a score,
        `coverage` is their share; `n` counts the samples of all methods. `rank`: 1 + the number of ranked methods with a
        strictly better mean; `rank_low`, `rank_high`: the confidence set of the rank, simultaneous over the metric's
        methods (`rank_sets`); all ranks where samples are too few. `beaten_by`: the ranked methods that are significantly better,
        by name; null for a method that is not ranked. `group`: letters, of which two methods share one unless they are
        told apart by the same tests (`compact_letters`); `detectable`: the difference of two means that so many samples
        find in four runs of five, the same for all ranked methods of a metric (`told_apart`), and `spread`, the median standard
        deviation of the differences of two methods, from which it follows. `best_effect`: the method's paired difference to the
        ranked method with the best mean, in standard deviations (`standardised_difference`), positive where it is better;
        `best_share`: the share of samples on which it is better, ties half. `random_effect`, `random_share`: the same against random.
        `random_p`: p-value of the one-sided paired test against random on common ok samples
        (`above_zero`), Holm-corrected over the metric's methods (controls separately). `beats_random`, `loses_to_random`: whether that test, or the same test in the other
        direction, is significant; null where nothing was tested. `reason`: why a method is not ranked. `seconds`,
        `forwards`, `backwards`: means per ok sample. Methods without a score come last.
    """
    rows: list[Row] = []
    for group in groups(scores, facts):
        reasons = group.reasons(facts, coverage_floor)
        ends = mean_intervals(group.scores, seed=seed, resamples=resamples, level=level).tolist()
        random_p, worse_p = against_random(group, facts, seed, level)
        tests = sum(not (np.isnan(p) or facts.is_control(m)) for m, p in zip(group.methods, random_p, strict=True))
        rank, rank_low, rank_high, better, letters = _ranks(group, reasons, seed, resamples, level, tests)
        some = group.scores[[i for i, reason in enumerate(reasons) if reason is None]]
        several = len(some) > 1
        spread, least = (
            told_apart(some, level=level, within=facts.bounds(group.metric))[-2:] if several else (None, None)
        )
        best_effect, best_share = _effects(group, _best(group, reasons))
        random_effect, random_share = _effects(group, _random(group, facts))
        board: list[Row] = []
        for i, method in enumerate(group.methods):
            low, high = facts.clipped(group.metric, ends[i][0], group.means[i], ends[i][1])
            board.append(
                {
                    **group.key,
                    "method": method,
                    "mean": nan_to_null(group.means[i]),
                    "low": nan_to_null(low),
                    "high": nan_to_null(high),
                    "heavy_tail": heavy_tailed(group.scores[i]),
                    "n_ok": int(group.n_ok[i]),
                    "n": group.n,
                    "coverage": float(group.coverage[i]),
                    "rank": nan_to_null(rank[i]),
                    "rank_low": nan_to_null(rank_low[i]),
                    "rank_high": nan_to_null(rank_high[i]),
                    "beaten_by": None
                    if reasons[i]
                    else [m for m, up in zip(group.methods, better[:, i], strict=True) if up],
                    "group": letters[i],
                    "detectable": least if letters[i] else None,
                    "spread": spread if letters[i] else None,
                    "best_effect": None if reasons[i] else nan_to_null(best_effect[i]),
                    "best_share": None if reasons[i] else nan_to_null(best_share[i]),
                    "control": facts.is_control(method),
                    "circular": (method, group.metric) in facts.circular,
                    "random_p": nan_to_null(random_p[i]),
                    "random_effect": nan_to_null(random_effect[i]),
                    "random_share": nan_to_null(random_share[i]),
                    "beats_random": None if np.isnan(random_p[i]) else bool(random_p[i] <= 1 - level),
                    "loses_to_random": None if np.isnan(worse_p[i]) else bool(worse_p[i] <= 1 - level),
                    "ranked": reasons[i] is None,
                    "reason": reasons[i],
                    **{cost: nan_to_null(group.costs[i, c]) for c, cost in enumerate(COSTS)},
                }
            )
        # NaN sorts last, equal means by name.
        rows += [board[i] for i in np.argsort(-group.sign * group.means, kind="stable")]
    return pl.DataFrame(rows, schema=LEADERBOARD, orient="row")


def _ranks(
    group: MetricGroup, reasons: list[str | None], seed: int, resamples: int, level: float, tests: int
) -> tuple[Array, Array, Array, NDArray[np.bool_], list[str | None]]:
    """Rank and its confidence set, who is significantly better than whom, and letters of tie groups.

    NaN and None are for methods that are not ranked.

    Ranks are by means over each method's own samples, sets by common samples: a set is widened to hold the rank.
    """
    ranked = [i for i, reason in enumerate(reasons) if reason is None]
    out = np.full((3, len(group.methods)), np.nan)
    found = np.zeros((len(group.methods),) * 2, dtype=bool)
    letters: list[str | None] = [None] * len(group.methods)
    if ranked:
        scale = float(np.abs(group.means[ranked]).max())
        rank = strict_rank(rounded(group.sign * group.means[ranked], scale))
        better = significantly_better(
            group.oriented[ranked], seed=seed, resamples=resamples, level=level, tests=max(tests, len(ranked))
        )
        low, high = ends_of_rank_sets(better)
        out[:, ranked] = rank, np.fmin(low, rank), np.fmax(high, rank)
        found[np.ix_(ranked, ranked)] = better
        order = np.argsort(rank, kind="stable")
        told = (better | better.T)[np.ix_(order, order)]
        for i, own in zip(order.tolist(), compact_letters(told), strict=True):
            letters[ranked[i]] = own
    return out[0], out[1], out[2], found, letters


def against_random(group: MetricGroup, facts: Facts, seed: int, level: float) -> tuple[Array, Array]:
    """Holm-corrected one-sided p-values: of being better than random, and of being worse."""
    better, worse = np.full((2, len(group.methods)), np.nan)
    random = _random(group, facts)
    if random is None:
        return better, worse
    differences = group.oriented - group.oriented[random]
    flips = flips_for(len(group.methods), level)
    p_better = above_zero(differences, resamples=flips, seed=seed)
    p_better[random] = np.nan
    # Only a method behind random can lose to it: every other has a p-value of at least one half.
    behind = np.nansum(differences, axis=1) < 0
    p_worse = np.where(np.isnan(p_better), np.nan, 1.0)
    p_worse[behind] = above_zero(-differences[behind], resamples=flips, seed=seed)
    control = np.array([facts.is_control(m) for m in group.methods])
    for family in (control, ~control):
        better[family], worse[family] = holm(p_better[family]), holm(p_worse[family])
    return better, worse


def _random(group: MetricGroup, facts: Facts) -> int | None:
    """The row of random, where maps are compared with it."""
    if facts.random not in group.methods or group.metric in facts.of_model:
        return None
    return group.methods.index(facts.random)


def _best(group: MetricGroup, reasons: list[str | None]) -> int | None:
    """The row of the ranked method with the best mean, the first by name of several."""
    ranked = [i for i, reason in enumerate(reasons) if reason is None]
    return max(ranked, key=lambda i: group.sign * group.means[i], default=None)


def _effects(group: MetricGroup, other: int | None) -> tuple[Array, Array]:
    """Every method's difference to another one in standard deviations, and the share of samples on which it is better."""
    if other is None:
        missing = np.full((2, len(group.methods)), np.nan)
        return missing[0], missing[1]
    differences = group.oriented - group.oriented[other]
    differences[other] = np.nan
    return standardised_difference(differences), wins_share(differences)


def left_out(board: pl.DataFrame, facts: Facts, *, level: float = 0.95) -> pl.DataFrame:
    """The metrics that rank methods and do not count in the mean rank, with the reason.

    Those of form and sanity (`facts.outside_mean_rank`); and, except in a run with a paper's settings, those under which
    random has the best mean of all, or fewer than half of the ranked methods are significantly better than random. The
    last needs enough samples for a method to be significantly better.

    Args:
        board: what `leaderboard` returned.
        facts: directions, the random control, which metrics do not measure faithfulness.
        level: of the tests against random on the board.

    Returns:
        `model`, `data`, `metric`, `reason`.
    """
    rows = []
    for key, group in board.group_by(KEYS, maintain_order=True):
        ranked = group.filter("ranked")
        reason = _reason_against(str(key[2]), group, ranked, facts, level) if ranked.height else None
        if reason:
            rows.append((*key, reason))
    return pl.DataFrame(rows, schema=LEFT_OUT, orient="row")


def _reason_against(metric: str, group: pl.DataFrame, ranked: pl.DataFrame, facts: Facts, level: float) -> str | None:
    """Why a metric does not count in the mean rank; None where it does."""
    if metric in facts.outside_mean_rank:
        return "it does not measure faithfulness, but the form of a map or whether it depends on the model"
    random = group.filter((pl.col("method") == facts.random) & pl.col("mean").is_not_null())
    if facts.paper or random.is_empty():
        return None
    sign = facts.sign(metric)
    if all(sign * random["mean"].item() >= sign * mean for mean in ranked["mean"]):
        return "random has the best mean of all"
    tested = ranked.filter(pl.col("beats_random").is_not_null())
    better = int(tested["beats_random"].sum())
    tests = group.filter(~pl.col("control") & pl.col("beats_random").is_not_null()).height
    samples = min(max(tested["n_ok"].to_list(), default=0), random["n_ok"].item())
    if tested.is_empty() or 2 * better >= tested.height or too_few(samples, tests, level):
        return None
    if not better:
        return "no method is better than random"
    return f"only {better} of {tested.height} methods {'is' if better == 1 else 'are'} better than random"


def overall(board: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Mean rank over all metrics: one row per (model, data, method), best first, without controls.

    A metric that ranks fewer than two methods does not count, nor do those that `left_out` lists. Where none counts, no
    method has a mean rank.

    Args:
        board: what `leaderboard` returned.
        facts: directions of the metrics, and which of them do not count.

    Returns:
        `mean_rank`: over the metrics that rank the method; `mean_low`, `mean_high`: likewise of the ends of the ranks'
        confidence sets. `mean_z`: mean over them of the z-score of the method's
        mean among the ranked methods, positive where better. `wins`: metrics in which no method ranks better;
        `shared`: those of them in which another method has the same rank. `metrics` of `of`: how many metrics rank
        the method, out of those that count.
    """
    rows: list[Row] = []
    without = set(left_out(board, facts).select(KEYS).rows())
    methods = board.filter(~pl.col("control")).sort("model", "data", "metric", "method")
    for (model, data), case in groupby(methods.iter_rows(named=True), key=lambda r: (r["model"], r["data"])):
        results: dict[str, list[tuple[float, float, float, float, bool, bool]]] = {}
        of = 0
        for metric, entries in groupby(case, key=lambda r: str(r["metric"])):
            shown = list(entries)
            for entry in shown:
                results.setdefault(entry["method"], [])
            ranked = [entry for entry in shown if entry["ranked"]]
            if len(ranked) < 2 or (model, data, metric) in without:
                continue
            of += 1
            z = _z_scores(facts.sign(metric) * np.array([entry["mean"] for entry in ranked]))
            ranks = [entry["rank"] for entry in ranked]
            best = min(ranks)
            tied = ranks.count(best) > 1
            for entry, score in zip(ranked, z.tolist(), strict=True):
                first = entry["rank"] == best
                ends = entry["rank_low"], entry["rank_high"]
                results[entry["method"]].append((entry["rank"], *ends, score, first, first and tied))
        for method, per_metric in results.items():
            rank, low, high, score, wins, shared = np.array(per_metric).reshape(-1, 6).T
            rows.append(
                {
                    "model": model,
                    "data": data,
                    "method": method,
                    "mean_rank": float(rank.mean()) if len(rank) else None,
                    "mean_low": float(low.mean()) if len(rank) else None,
                    "mean_high": float(high.mean()) if len(rank) else None,
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
    centred = values - values.mean()
    spread = centred.std()
    tied = spread <= 1e-12 * np.abs(values).max()
    return np.zeros_like(centred) if tied else np.asarray(centred / spread)
