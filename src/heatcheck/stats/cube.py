"""Scores as an array of models × methods × samples, for what is said of several models at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from heatcheck.stats.table import Array, has_score


@dataclass(frozen=True)
class Cube:
    """Scores as an array of models × methods × samples, NaN where a sample has no score.

    Args:
        values: the scores.
        methods: names, in order.
        samples: names, in order; those that every model has.
    """

    values: Array
    methods: tuple[str, ...]
    samples: tuple[str, ...]

    @classmethod
    def of(cls, scores: pl.DataFrame, metrics: Mapping[str, str], methods: Sequence[str]) -> "Cube":
        """Scores of some models, each under its metric, for some methods.

        Several rows of a sample count with their mean, and only if all of them are ok.

        Raises:
            ValueError: a model or a method has no scores, or there are several data sets.
        """
        names = list(dict.fromkeys(methods))
        tables = []
        for model, metric in metrics.items():
            here = scores.filter(
                pl.col("model").cast(pl.String) == model,
                pl.col("metric").cast(pl.String) == metric,
                pl.col("method").cast(pl.String).is_in(names),
            )
            data = here["data"].cast(pl.String).unique().sort().to_list()
            if len(data) > 1:
                raise ValueError(f"{model} was measured on {', '.join(data)}: choose one")
            scored = set(here.filter(has_score())["method"].cast(pl.String).unique())
            lacking = [name for name in names if name not in scored]
            if lacking:
                raise ValueError(f"{model} has no score of {', '.join(lacking)} under {metric}")
            tables.append(_by_sample(here))
        samples = sorted(set.intersection(*({s for _, s in table} for table in tables)))
        values = np.array([[[table.get((m, s), np.nan) for s in samples] for m in names] for table in tables])
        return cls(values.reshape(len(tables), len(names), len(samples)), tuple(names), tuple(samples))

    @classmethod
    def with_gaps(cls, scores: pl.DataFrame, model: str, metric: str, methods: Sequence[str]) -> "Cube":
        """Scores of one model, for all of its samples and for methods that may have none."""
        here = scores.filter(pl.col("model").cast(pl.String) == model, pl.col("metric").cast(pl.String) == metric)
        table = _by_sample(here)
        samples = sorted({sample for _, sample in table})
        values = np.array([[table.get((method, sample), np.nan) for sample in samples] for method in methods])
        return cls(values.reshape(1, len(methods), len(samples)), tuple(methods), tuple(samples))

    def of_method(self, method: str) -> Array:
        """One method's scores: models × samples."""
        found: Array = self.values[:, self.methods.index(method)]
        return found

    def at(self, samples: Sequence[str]) -> "Cube":
        """The same for some of the samples."""
        place = {name: i for i, name in enumerate(self.samples)}
        return Cube(self.values[:, :, [place[s] for s in samples]], self.methods, tuple(samples))


def _by_sample(rows: pl.DataFrame) -> dict[tuple[str, str], float]:
    """The score of every method and sample; NaN where one of its rows has none."""
    found = (
        rows.select(
            pl.col("method", "sample").cast(pl.String),
            score=pl.when(has_score()).then(pl.col("score").cast(pl.Float64)).otherwise(float("nan")),
        )
        .group_by("method", "sample")
        .agg(pl.col("score").mean())
    )
    return {(method, sample): score for method, sample, score in found.iter_rows()}


def mean_over(values: Array) -> Array:
    """The mean over all axes but the last, NaN left out; NaN where there is nothing else."""
    flat = values.reshape(-1, values.shape[-1])
    known = ~np.isnan(flat)
    count = known.sum(0)
    total = np.where(known, flat, 0.0).sum(0)
    return np.asarray(np.divide(total, count, out=np.full(flat.shape[1], np.nan), where=count > 0))


def mean_of(values: Array) -> float:
    """The mean of numbers, NaN left out."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def means_of(values: Array) -> Array:
    """The mean over the last axis, NaN left out; NaN where there is nothing else."""
    return mean_over(np.moveaxis(values, -1, 0).reshape(values.shape[-1], -1)).reshape(values.shape[:-1])
