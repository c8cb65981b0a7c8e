"""M4's questions, asked of any table of mean scores: do metrics agree, which method is best, which models are sensitive?

All functions get cells, a row per model, method and metric with its `mean`, and the sign of every metric: they serve a
run's means and the paper's own table.

Paper: li2023.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import polars as pl

from heatcheck.stats.agreement import spearman
from heatcheck.stats.table import Array, nan_to_null

CORRELATIONS = {
    "a": pl.String,
    "b": pl.String,
    "rows": pl.Int64,
    "pearson": pl.Float64,
    "spearman": pl.Float64,
    "within": pl.Float64,
    "pearson_lowest": pl.Float64,
    "pearson_highest": pl.Float64,
    "spearman_lowest": pl.Float64,
    "spearman_highest": pl.Float64,
    "most_influential": pl.String,
    "pearson_without": pl.Float64,
}
SENSITIVITY = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "methods": pl.Int64,
    "deviation": pl.Float64,
    "range": pl.Float64,
    "best": pl.String,
}
OVERALL_SCORE = {
    "model": pl.String,
    "data": pl.String,
    "method": pl.String,
    "raw": pl.Float64,
    "standardised": pl.Float64,
    "metrics": pl.Int64,
    "of": pl.Int64,
}
ROW = ("model", "data", "method")
_ALIKE = 1e-12  # a spread that is smaller beside the values is none


def pearson(x: Array, y: Array) -> float:
    """Pearson's correlation; NaN where one of them is constant or there are fewer than two.

    >>> round(pearson(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0])), 3)
    0.982
    """
    if len(x) < 2:
        return float("nan")
    dx, dy = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((dx @ dx) * (dy @ dy)))
    tiny = _ALIKE * float(np.abs(x).max() * np.abs(y).max()) * len(x)
    return float(dx @ dy / scale) if scale > tiny else float("nan")


def metric_correlation(cells: pl.DataFrame, signs: Mapping[str, float]) -> pl.DataFrame:
    """How far each pair of metrics agrees over rows of models and methods, and how far one row makes that.

    Args:
        cells: `model`, `method`, `metric`, `mean`, and `data` where there are several.
        signs: +1 for metrics where higher is better, −1 for others, which are negated.

    Returns:
        A row per pair of metrics: `pearson`, `spearman`; `within`: Pearson's correlation after standardising within each
        model, which leaves out what models alone differ in (models with one method do not count); the lowest and
        highest of both correlations when any one row is left out; the row whose absence changes Pearson's most, and
        the correlation without it. Null where undefined.
    """
    names, rows, values = matrix(cells, signs)
    models = [row[:2] for row in rows]
    found = []
    for i, j in combinations(range(len(names)), 2):
        known = ~np.isnan(values[:, i]) & ~np.isnan(values[:, j])
        x, y = values[known, i], values[known, j]
        which = [rows[k] for k in np.flatnonzero(known)]
        of = [models[k] for k in np.flatnonzero(known)]
        whole = pearson(x, y)
        without = [_without(x, y, k) for k in range(len(x))]
        changes = np.array([abs(p - whole) for p, _ in without])
        most = int(np.nanargmax(changes)) if len(changes) and not np.isnan(changes).all() else None
        ends = [_ends([pair[kind] for pair in without]) for kind in (0, 1)]
        found.append(
            {
                "a": names[i],
                "b": names[j],
                "rows": len(x),
                "pearson": nan_to_null(whole),
                "spearman": nan_to_null(spearman(x, y)),
                "within": nan_to_null(_within(x, y, of)),
                "pearson_lowest": ends[0][0],
                "pearson_highest": ends[0][1],
                "spearman_lowest": ends[1][0],
                "spearman_highest": ends[1][1],
                "most_influential": None if most is None else " · ".join(part for part in which[most] if part),
                "pearson_without": None if most is None else nan_to_null(without[most][0]),
            }
        )
    return pl.DataFrame(found, schema=CORRELATIONS, orient="row")


def matrix(cells: pl.DataFrame, signs: Mapping[str, float]) -> tuple[list[str], list[tuple[str, str, str]], Array]:
    """Metrics, rows (model, data, method), and signed means with NaN where a row has none."""
    if "data" not in cells.columns:
        cells = cells.with_columns(data=pl.lit(""))
    known = cells.filter(pl.col("mean").is_not_null() & pl.col("metric").is_in(list(signs)))
    names = [m for m in signs if m in set(known["metric"])]
    means = {(r["model"], r["data"], r["method"], r["metric"]): r["mean"] for r in known.iter_rows(named=True)}
    rows = list(dict.fromkeys(known.select(ROW).iter_rows()))
    values = np.array([[signs[m] * means.get((*row, m), np.nan) for m in names] for row in rows], dtype=np.float64)
    return names, rows, values.reshape(len(rows), len(names))


def _without(x: Array, y: Array, k: int) -> tuple[float, float]:
    a, b = np.delete(x, k), np.delete(y, k)
    return pearson(a, b), spearman(a, b)


def _ends(values: Sequence[float]) -> tuple[float | None, float | None]:
    known = [v for v in values if not np.isnan(v)]
    return (min(known), max(known)) if known else (None, None)


def _within(x: Array, y: Array, models: Sequence[tuple[str, str]]) -> float:
    """Pearson's correlation of what is left after each model's mean and spread are taken away."""
    a, b = [], []
    for model in dict.fromkeys(models):
        rows = [i for i, other in enumerate(models) if other == model]
        if len(rows) > 1:
            a += standardised(x[rows])
            b += standardised(y[rows])
    return pearson(np.array(a), np.array(b)) if a else float("nan")


def standardised(values: Array) -> list[float]:
    """Z-scores; zeros where all values are equal, NaN stays.

    >>> standardised(np.array([1.0, 3.0]))
    [-1.0, 1.0]
    """
    known = values[~np.isnan(values)]
    spread = float(known.std()) if len(known) else 0.0
    tiny = _ALIKE * float(np.abs(known).max(initial=0.0))
    if spread <= tiny:
        return [float("nan") if np.isnan(v) else 0.0 for v in values]
    return list(((values - known.mean()) / spread).tolist())


def overall_score(cells: pl.DataFrame, signs: Mapping[str, float]) -> pl.DataFrame:
    """M4's overall score of every model and method, as printed and standardised.

    Args:
        cells: as for `metric_correlation`.
        signs: of the metrics that are summed.

    Returns:
        `raw`: the sum of all metrics, those where lower is better subtracted; null where a metric is missing.
        `standardised`: the mean over metrics of z-scores within the model, which no metric's unit dominates.
    """
    names, rows, values = matrix(cells, signs)
    z = np.full(values.shape, np.nan)
    for model in dict.fromkeys(row[:2] for row in rows):
        here = [i for i, row in enumerate(rows) if row[:2] == model]
        for j in range(len(names)):
            z[here, j] = standardised(values[here, j])
    found = []
    for row, own, score in zip(rows, values, z, strict=True):
        known = ~np.isnan(own)
        raw = float(own.sum()) if len(names) and known.all() else None
        mean = float(score[known].mean()) if known.any() else None
        found.append((*row, raw, mean, int(known.sum()), len(names)))
    return pl.DataFrame(found, schema=OVERALL_SCORE, orient="row")


def best_faithfulness(overall: pl.DataFrame) -> pl.DataFrame:
    """The mean overall score of every method over models, best first.

    Args:
        overall: what `overall_score` returned.

    Returns:
        `method`; `models`: how many it was measured on; `raw` and `standardised`: means over them; `wins`: models on which
        its standardised score is the best.
    """
    best = pl.col("standardised") == pl.col("standardised").max().over("model", "data")
    return (
        overall.with_columns(win=best.fill_null(False))
        .group_by("method", maintain_order=True)
        .agg(
            models=pl.len(),
            raw=pl.col("raw").mean(),
            standardised=pl.col("standardised").mean(),
            wins=pl.col("win").sum(),
        )
        .sort("standardised", "method", descending=[True, False], nulls_last=True)
    )


def sensitivity(cells: pl.DataFrame, signs: Mapping[str, float]) -> pl.DataFrame:
    """How much a model's scores depend on the method: standard deviation and range over methods.

    Args:
        cells: as for `metric_correlation`.
        signs: of the metrics that are shown.

    Returns:
        A row per metric and model with at least two methods, most dispersed first; `best`: the method with the best mean.
    """
    names, rows, values = matrix(cells, signs)
    found = []
    for j, metric in enumerate(names):
        for model in dict.fromkeys(row[:2] for row in rows):
            here = [i for i, row in enumerate(rows) if row[:2] == model and not np.isnan(values[i, j])]
            if len(here) > 1:
                own = values[here, j]
                best = rows[here[int(own.argmax())]][2]
                found.append((*model, metric, len(here), float(own.std(ddof=1)), float(np.ptp(own)), best))
    table = pl.DataFrame(found, schema=SENSITIVITY, orient="row")
    return table.sort("metric", "deviation", descending=[False, True], maintain_order=True)


def wide(cells: pl.DataFrame, metrics: Sequence[str]) -> pl.DataFrame:
    """Table 1's form: a row per model and method, a column per metric; a column of data sets where there are several.

    Args:
        cells: as for `metric_correlation`.
        metrics: the columns, in order.
    """
    known = cells.filter(pl.col("metric").is_in(list(metrics)))
    several = "data" in known.columns and known["data"].n_unique() > 1
    keys = ("model", *(["data"] if several else []), "method")
    means = {row[:-1]: row[-1] for row in known.select(*keys, "metric", "mean").iter_rows()}
    rows = [(*key, *(means.get((*key, m)) for m in metrics)) for key in dict.fromkeys(known.select(keys).iter_rows())]
    schema = dict.fromkeys(keys, pl.String) | dict.fromkeys(metrics, pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def costs(
    board: pl.DataFrame, memory: Mapping[str, int] | None = None, devices: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """Table 2's form: what the maps of 100 samples cost, a row per model and method.

    Args:
        board: what `leaderboard` returned; costs are those of maps, the same under every metric.
        memory: the peak in bytes of each model's run; 0 where it is not known.
        devices: what the passes of each model ran on.

    Returns:
        `seconds`, `forwards` and `backwards` for 100 samples, and `peak_bytes` and `device` of the model's run.
    """
    shown = board.filter(~pl.col("control") & pl.col("mean").is_not_null())
    peaks = {model: peak or None for model, peak in (memory or {}).items()}
    model = pl.col("model")
    return (
        shown.group_by("model", "data", "method", maintain_order=True)
        .agg(*((100 * pl.col(c).mean()).alias(c) for c in ("seconds", "forwards", "backwards")))
        .with_columns(
            peak_bytes=model.replace_strict(peaks, default=None, return_dtype=pl.Int64),
            device=model.replace_strict(devices or {}, default="", return_dtype=pl.String),
        )
        .sort("model", "data", "seconds", nulls_last=True)
    )
