"""IDSDS's analyses of models: scores along what models differ in, beside their accuracy, and how stable rankings are.

Paper: hesse2024.
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from heatcheck.stats.claims import falls_with_depth
from heatcheck.stats.estimates import share_estimate
from heatcheck.stats.evidence import Evidence
from heatcheck.stats.idsds_model_claims import across_seeds, seeds, variants
from heatcheck.stats.table import nan_to_null

ALONG = {
    "factor": pl.String,
    "metric": pl.String,
    "method": pl.String,
    "from": pl.String,
    "to": pl.String,
    "fall": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "rho": pl.Float64,
    "n": pl.Int64,
}
BEST = {
    "model": pl.String,
    "data": pl.String,
    "metric": pl.String,
    "best": pl.String,
    "score": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "accuracy": pl.Float64,
    "accuracy_low": pl.Float64,
    "accuracy_high": pl.Float64,
}
STABILITY = {
    "over": pl.String,
    "model": pl.String,
    "a": pl.String,
    "b": pl.String,
    "spearman": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
}


def along_factors(evidence: Evidence, metric: str) -> pl.DataFrame:
    """How far each method's score falls from the lowest to the highest value of a factor, a row per factor and method.

    Args:
        evidence: of a run; its `factors` are asked, those with two values among models that have the metric.
        metric: which scores.

    Returns:
        `fall` along the line fitted by least squares, with its interval over samples; `rho`: Spearman's correlation of the
        factor and the models' means.
    """
    rows: list[dict[str, Any]] = []
    for factor, values in evidence.factors.items():
        known = {m: float(v) for m, v in values.items() if m in evidence.measured.get(metric, {})}
        common = set.intersection(*({*evidence.methods(metric, m)} for m in known)) if known else set()
        if len(set(known.values())) < 2 or not common:
            continue
        found = falls_with_depth(
            evidence.scores,
            known,
            methods=sorted(common),
            metric=metric,
            seed=evidence.seed,
            resamples=evidence.resamples,
        )
        ends = (min(known, key=lambda m: known[m]), max(known, key=lambda m: known[m]))
        for part in found.parts:
            numbers = {"fall": part["value"]} | {k: part[k] for k in ("low", "high", "rho")}
            told = {"factor": factor, "metric": metric, "method": part["method"], "from": ends[0], "to": ends[1]}
            rows.append({**told, **{k: nan_to_null(v) for k, v in numbers.items()}, "n": part["n"]})
    return pl.DataFrame(rows, schema=ALONG, orient="row")


def best_and_accuracy(evidence: Evidence, metric: str) -> pl.DataFrame:
    """The best method of every model, with its score, beside the model's accuracy; the best score first.

    Args:
        evidence: of a run.
        metric: which scores.
    """
    sign = evidence.facts.sign(metric)
    ranked = evidence.board.filter((pl.col("metric") == metric) & pl.col("ranked"))
    rows = []
    for (model, data), group in ranked.group_by("model", "data", maintain_order=True):
        top = max(group.iter_rows(named=True), key=lambda row: sign * row["mean"])
        share = share_estimate(evidence.right[str(model)]) if str(model) in evidence.right else None
        accuracy = (share.value, share.low, share.high) if share else (None, None, None)
        rows.append((model, data, metric, top["method"], top["mean"], top["low"], top["high"], *accuracy))
    return pl.DataFrame(rows, schema=BEST, orient="row").sort("score", descending=sign > 0)


def stability(evidence: Evidence) -> pl.DataFrame:
    """Rank correlations of methods over numbers of patches, fills and seeds of alignment, with intervals over samples.

    Where three or more trainings differ in their seeds, one row is about all of them, over seeds and samples.
    """
    found: Mapping[str, list[dict[str, Any]]] = {
        "patches": variants(evidence, "units"),
        "fill": variants(evidence, "fill"),
        "seed": [*across_seeds(evidence), *seeds(evidence)],
    }
    rows = [
        (over, row["model"], row["a"], row["b"], *(nan_to_null(row[k]) for k in ("value", "low", "high")), row["n"])
        for over, several in found.items()
        for row in several
    ]
    return pl.DataFrame(rows, schema=STABILITY, orient="row")
