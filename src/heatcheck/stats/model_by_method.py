"""Models against methods: every metric's means in one table, standardised, averaged and summed as M4 does."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from heatcheck.stats.facts import Facts

CELLS = {
    "metric": pl.String,
    "model": pl.String,
    "data": pl.String,
    "method": pl.String,
    "mean": pl.Float64,
    "z": pl.Float64,
    "reason": pl.String,
}
AVERAGE = {
    "model": pl.String,
    "data": pl.String,
    "method": pl.String,
    "mean_z": pl.Float64,
    "metrics": pl.Int64,
    "of": pl.Int64,
}
M4_PARTS = ("morf", "abpc", "pscore", "infidelity", "synscore")
"""What M4's overall score sums, each with its sign: higher is better."""
NOT_MEASURED = "not measured"


def model_by_method(board: pl.DataFrame, facts: Facts, skipped: Sequence[Mapping[str, Any]] = ()) -> pl.DataFrame:
    """A cell for every metric, model and method, controls left out; one that is blank says why.

    Args:
        board: what `leaderboard` returned.
        facts: directions of the metrics.
        skipped: what was not run, each with `model`, `method`, `metric` (None for all) and `reason`.

    Returns:
        `mean`: over samples. `z`: how many standard deviations it is better than the mean of all ranked cells of the
        metric, over models and methods together (0 where they are all equal); null where the cell is not ranked.
        `reason`: why a cell has no mean, or is not ranked; empty where it is.
    """
    shown = board.filter(~pl.col("control"))
    rows = {(r["metric"], r["model"], r["data"], r["method"]): r for r in shown.iter_rows(named=True)}
    cases = list(dict.fromkeys((model, data) for _, model, data, _ in rows))
    methods = list(dict.fromkeys(method for *_, method in rows))
    found = []
    for metric in dict.fromkeys(metric for metric, *_ in rows):
        every = [(model, data, method) for model, data in cases for method in methods]
        ranked = [cell for cell in every if (row := rows.get((metric, *cell))) and row["ranked"]]
        z = _standardised([facts.sign(metric) * rows[metric, *cell]["mean"] for cell in ranked])
        standard = dict(zip(ranked, z, strict=True))
        for model, data, method in every:
            row = rows.get((metric, model, data, method))
            reason = _why_skipped(skipped, model, method, metric) if row is None else row["reason"] or ""
            mean = None if row is None else row["mean"]
            found.append((metric, model, data, method, mean, standard.get((model, data, method)), reason))
    return pl.DataFrame(found, schema=CELLS, orient="row")


def _standardised(values: Sequence[float]) -> list[float]:
    v = np.asarray(values, dtype=np.float64)
    spread = float(v.std()) if len(v) else 0.0
    tiny = 1e-12 * float(np.abs(v).max(initial=0.0))
    return list(((v - v.mean()) / spread).tolist()) if spread > tiny else [0.0] * len(v)


def _why_skipped(skipped: Sequence[Mapping[str, Any]], model: str, method: str, metric: str) -> str:
    for skip in skipped:
        if all(skip.get(k) in (None, v) for k, v in (("model", model), ("method", method), ("metric", metric))):
            return str(skip.get("reason") or NOT_MEASURED)
    return NOT_MEASURED


def averaged_z(cells: pl.DataFrame, metrics: Collection[str]) -> pl.DataFrame:
    """The mean over metrics of the standardised scores, for every model and method.

    Args:
        cells: what `model_by_method` returned.
        metrics: those that count.

    Returns:
        `mean_z` over the `metrics` that have a z-score, of those that count (`of`); null where none has.
    """
    counted = cells.filter(pl.col("metric").is_in(list(metrics)))
    keys = ["model", "data", "method"]
    means = counted.group_by(keys, maintain_order=True).agg(
        mean_z=pl.col("z").mean(), metrics=pl.col("z").is_not_null().sum().cast(pl.Int64)
    )
    of = counted["metric"].n_unique()
    return means.with_columns(of=pl.lit(of, dtype=pl.Int64)).select(list(AVERAGE)).cast(AVERAGE)  # type: ignore[arg-type]


def raw_sum(cells: pl.DataFrame, facts: Facts, metrics: Collection[str]) -> pl.DataFrame:
    """M4's overall score from means: the raw sum over metrics, those where lower is better subtracted.

    Args:
        cells: what `model_by_method` returned.
        facts: directions of the metrics.
        metrics: what is summed.

    Returns:
        `model`, `data`, `method` and `sum`, for the cells that have a mean under all of these metrics.
    """
    counted = cells.filter(pl.col("metric").is_in(list(metrics)) & pl.col("mean").is_not_null())
    signs = {metric: facts.sign(metric) for metric in metrics}
    signed = counted.with_columns(
        signed=pl.col("mean") * pl.col("metric").replace_strict(signs, return_dtype=pl.Float64)
    )
    keys = ["model", "data", "method"]
    sums = signed.group_by(keys, maintain_order=True).agg(sum=pl.col("signed").sum(), n=pl.len())
    return sums.filter(pl.col("n") == len(set(metrics))).drop("n")
