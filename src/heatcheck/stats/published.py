"""A run's scores beside those that a paper printed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from heatcheck.stats.agreement import spearman
from heatcheck.stats.cube import Cube, means_of
from heatcheck.stats.estimates import LEVEL, RESAMPLES, Estimate
from heatcheck.stats.intervals import count_blocks
from heatcheck.stats.ranks import rank_of
from heatcheck.stats.table import Array

BESIDE = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "method": pl.String,
    "as": pl.String,
    "ours": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "rank": pl.Float64,
    "theirs": pl.Float64,
    "their_model": pl.String,
    "their_rank": pl.Float64,
    "table": pl.String,
    "doubt": pl.String,
    "settings": pl.String,
}
CORRELATION = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "their_model": pl.String,
    "methods": pl.Int64,
    "samples": pl.Int64,
    "spearman": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "samples_low": pl.Float64,
    "samples_high": pl.Float64,
}
MEDIAN = "median over its models"
"""Beside what a network stands that a paper did not measure."""
LEAST = 3
"""Methods that a rank correlation needs."""


def rank_correlation(
    theirs: Array, ours: Array, *, methods_too: bool = True, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """Spearman's correlation of published scores and our means, with percentiles of resamples.

    Each resample draws samples and, unless told otherwise, methods: the first is the error of our means, the second says
    how far the correlation depends on which methods were printed. Published numbers have no error of their own. A
    resample of methods repeats some and has fewer different ones, so that the interval is widened to hold the correlation.

    Args:
        theirs: [methods].
        ours: [methods, samples]; NaN where a sample has no score.
        methods_too: whether methods are drawn as well.
        seed: of the resamples.
        resamples: how many.

    Example:
        >>> rank_correlation(np.arange(4.0), np.arange(4.0)[:, None] + np.zeros((4, 9)), resamples=50).value
        1.0
    """
    rho = spearman(theirs, means_of(ours))
    k, n = ours.shape
    if k < LEAST or n < 2 or np.isnan(rho):
        return Estimate(rho, np.nan, np.nan, n)
    rng = np.random.default_rng([seed, 5])
    found = np.full(resamples, np.nan)
    for i, drawn in enumerate(drawn_means(ours, resamples, seed)):
        some = rng.integers(k, size=k) if methods_too else np.arange(k)
        if not np.isnan(drawn[some]).any():
            found[i] = spearman(theirs[some], drawn[some])
    if np.isnan(found).all():
        return Estimate(rho, np.nan, np.nan, n)
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(rho, min(float(low), rho), max(float(high), rho), n)


def drawn_means(values: Array, resamples: int, seed: int) -> Array:
    """Means over resampled samples, [resamples, methods]; NaN where a resample has no score of a method."""
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    parts = []
    for counts in count_blocks(values.shape[1], resamples, seed):
        n = counts @ known.T.astype(np.float64)
        parts.append(np.divide(counts @ filled.T, n, out=np.full(n.shape, np.nan), where=n > 0))
    return np.concatenate(parts)


def beside(
    board: pl.DataFrame,
    printed: Sequence[Mapping[str, Any]],
    named: Mapping[str, str],
    models: Mapping[str, str],
    signs: Mapping[str, float],
    names: Mapping[str, str],
    differing: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Our means and the printed scores, a row per model, metric and method that both have.

    Args:
        board: what `leaderboard` returned.
        printed: the paper's scores, each with `model`, `method`, `metric`, `value`, `table`, `doubt`.
        named: our method for each of the paper's.
        models: the paper's model for each of ours; the median over its models where there is none.
        signs: +1 for our metrics where higher is better, else −1.
        names: the paper's metric for each of ours.
        differing: how a method of the paper is set otherwise in the run.

    Returns:
        `ours` with its interval and `theirs`; both ranks are among the methods of the row's model and metric that both
        have. `as`: the paper's name of the method; `their_model`: whose score theirs is, or that it is a median.
    """
    rows: list[dict[str, Any]] = []
    theirs = _printed(printed)
    for (model, data, metric), group in board.group_by("model", "data", "metric", maintain_order=True):
        ours = {row["method"]: row for row in group.iter_rows(named=True) if row["mean"] is not None}
        other = models.get(str(model), "")
        found = []
        for name, method in named.items():
            cell = theirs.get((other, names.get(str(metric), ""), name)) or theirs.get(
                ("", names.get(str(metric), ""), name)
            )
            if cell is None or method not in ours:
                continue
            row = ours[method]
            found.append(
                {
                    "model": model,
                    "data": data,
                    "metric": metric,
                    "method": method,
                    "as": name,
                    "ours": row["mean"],
                    "low": row["low"],
                    "high": row["high"],
                    "theirs": cell["value"],
                    "their_model": cell["model"],
                    "table": cell["table"],
                    "doubt": cell["doubt"],
                    "settings": (differing or {}).get(name, ""),
                }
            )
        if found:
            sign = signs[str(metric)]
            for column, ranks in (("ours", "rank"), ("theirs", "their_rank")):
                places = rank_of(sign * np.array([row[column] for row in found]))
                for row, place in zip(found, places.tolist(), strict=True):
                    row[ranks] = place
        rows += found
    return pl.DataFrame(rows, schema=BESIDE, orient="row")


def _printed(printed: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """Printed scores by model, metric and method; under no model, the median over models, or the only one's."""
    found: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    several: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in printed:
        found[row["model"], row["metric"], row["method"]] = row
        several.setdefault((row["metric"], row["method"]), []).append(row)
    for (metric, method), rows in several.items():
        if len(rows) == 1:
            found["", metric, method] = rows[0]
        else:
            doubts = sorted({row["doubt"] for row in rows if row["doubt"]})
            told = (
                f"{len(doubts)} of its {len(rows)} cells {'is' if len(doubts) == 1 else 'are'} doubtful"
                if doubts
                else ""
            )
            value = float(np.median([row["value"] for row in rows]))
            found["", metric, method] = {**rows[0], "model": MEDIAN, "value": value, "doubt": told}
    return found


def correlations(
    table: pl.DataFrame, scores: pl.DataFrame, *, seed: int = 0, resamples: int = RESAMPLES
) -> pl.DataFrame:
    """How alike our scores and the printed ones rank methods, a row per model, data set and metric.

    Args:
        table: what `beside` returned.
        scores: the run's long table of scores.
        seed: of the resamples.
        resamples: how many.

    Returns:
        `spearman` with its interval over methods and samples (`low`, `high`), and over samples alone; null for fewer than
        three methods.
    """
    rows = []
    for (model, data, metric), group in table.group_by("model", "data", "metric", maintain_order=True):
        here = scores.filter(pl.col("data").cast(pl.String) == data)
        cube = Cube.of(here, {str(model): str(metric)}, group["method"].to_list())
        theirs, ours = group["theirs"].to_numpy(), cube.values[0]
        both = rank_correlation(theirs, ours, seed=seed, resamples=resamples)
        alone = rank_correlation(theirs, ours, methods_too=False, seed=seed, resamples=resamples)
        of = ", ".join(sorted(set(group["their_model"].to_list())))
        row = [both.value, both.low, both.high, alone.low, alone.high]
        known = [None if group.height < LEAST or np.isnan(v) else float(v) for v in row]
        rows.append((model, data, metric, of, group.height, both.n, *known))
    return pl.DataFrame(rows, schema=CORRELATION, orient="row")
