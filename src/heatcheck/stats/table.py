"""The long table of scores, cut into one matrix of methods × samples per (model, data, metric)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from heatcheck.stats.facts import Facts

Array = NDArray[np.float64]
Row = dict[str, object]

KEYS = ("model", "data", "metric")
COSTS = ("seconds", "forwards", "backwards")
COLUMNS = ("run", "model", "data", "sample", "target", "method", "metric", "score", "status", *COSTS)
NOT_FINITE = "undefined: the score is not finite"
"""The status of a row that claims to be ok and has no finite score."""


@dataclass(frozen=True)
class MetricGroup:
    """The score matrix of one metric for one model on one data set.

    Args:
        model: the model's name.
        data: the data set's name.
        metric: the metric's name.
        methods: sorted names, one per row of `scores`.
        scores: methods × samples, NaN wherever the status is not ok.
        problems: per method its most frequent status that is not ok, if any.
        costs: methods × (seconds, forwards, backwards), means over ok rows.
        sign: +1 where higher is better, else −1.
    """

    model: str
    data: str
    metric: str
    methods: tuple[str, ...]
    scores: Array = field(repr=False)
    problems: tuple[str | None, ...] = field(repr=False)
    costs: Array = field(repr=False)
    sign: float = 1.0

    @property
    def key(self) -> Row:
        """The group's model, data set and metric, as columns."""
        return {"model": self.model, "data": self.data, "metric": self.metric}

    @property
    def n(self) -> int:
        """Number of samples of the group, scored or not."""
        return int(self.scores.shape[1])

    @cached_property
    def oriented(self) -> Array:
        """The scores with the metric's sign, so that higher is better."""
        return self.sign * self.scores

    @cached_property
    def n_ok(self) -> NDArray[np.int64]:
        """Scored samples per method."""
        return np.asarray(np.sum(~np.isnan(self.scores), axis=1), dtype=np.int64)

    @cached_property
    def coverage(self) -> Array:
        """Share of the group's samples that each method has a score for."""
        return self.n_ok / max(self.n, 1)

    @cached_property
    def means(self) -> Array:
        """Mean score per method over its own ok samples; NaN where it has none."""
        rows = zip(self.scores, self.n_ok.tolist(), strict=True)
        return np.array([row[~np.isnan(row)].mean() if k else np.nan for row, k in rows])

    def reasons(self, facts: Facts, coverage_floor: float) -> list[str | None]:
        """Why each method is not ranked; None for those that are."""
        found: list[str | None] = []
        for method, k, problem in zip(self.methods, self.n_ok.tolist(), self.problems, strict=True):
            reasons = ["control"] if facts.is_control(method) else []
            if (method, self.metric) in facts.circular:
                reasons.append("circular")
            if self.metric in facts.of_model:
                reasons.append("the metric measures the model, not the map")
            if k == 0:
                reasons.append(problem or "missing: no row")
            elif k / self.n < coverage_floor:
                reasons.append(f"coverage {k}/{self.n} below {coverage_floor:g} ({problem or 'missing: no row'})")
            found.append("; ".join(reasons) or None)
        return found


def groups(scores: pl.DataFrame, facts: Facts) -> Iterator[MetricGroup]:
    """One score matrix per (model, data, metric), sorted by name; the order of the table's rows has no influence.

    A sample that has several rows for one method (several targets, several runs) counts once: with their
    mean, and only if all of them are ok, so that all methods are scored on the same rows.
    """
    table = _tidy(scores)
    most_frequent = {
        row[:-1]: row[-1]
        for row in table.filter(~pl.col("ok"))
        .group_by(*KEYS, "method", "status")
        .len()
        .sort("len", "status", descending=[False, True])
        .select(*KEYS, "method", "status")
        .iter_rows()
    }
    for part in table.partition_by(KEYS, maintain_order=True) if table.height else []:
        model, data, metric = (str(part[key][0]) for key in KEYS)
        names = part["method"].unique().sort().to_list()
        method = part["method"].cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)
        has_sample = part["sample"].is_not_null().to_numpy()
        ids = part["sample"].unique().drop_nulls().sort().to_list()
        column = part["sample"].cast(pl.Enum(ids)).to_physical().fill_null(0).to_numpy().astype(np.int64)
        shape = (len(names), len(ids))
        cell = (method * len(ids) + column)[has_sample]
        ok = part["ok"].to_numpy()
        value = part["score"].fill_null(0.0).to_numpy()

        size = shape[0] * shape[1]
        rows = np.bincount(cell, minlength=size)
        n_good = np.bincount(cell, weights=ok[has_sample], minlength=size)
        total = np.bincount(cell, weights=np.where(ok, value, 0.0)[has_sample], minlength=size)
        matrix = np.full(size, np.nan)
        np.divide(total, rows, out=matrix, where=(rows > 0) & (n_good == rows))

        yield MetricGroup(
            model=model,
            data=data,
            metric=metric,
            methods=tuple(names),
            scores=matrix.reshape(shape),
            problems=tuple(most_frequent.get((model, data, metric, name)) for name in names),
            costs=np.stack([_mean_per(method, part[c], ok, len(names)) for c in COSTS], axis=1),
            sign=facts.sign(metric),
        )


def has_score() -> pl.Expr:
    """Whether a row's status is ok and its score a finite number; never null."""
    return ((pl.col("status") == "ok") & pl.col("score").is_finite()).fill_null(False)


def _tidy(scores: pl.DataFrame) -> pl.DataFrame:
    """The table, checked, cast and in a total order; `ok` marks rows that have a score."""
    missing = [c for c in COLUMNS if c not in scores.columns]
    if missing:
        raise ValueError(f"the scores table lacks {', '.join(missing)}; it has {', '.join(scores.columns)}")
    names = [*KEYS, "method", "sample", "status", "run", "target"]
    table = scores.select(pl.col(names).cast(pl.String), pl.col("score", *COSTS).cast(pl.Float64)).with_columns(
        ok=has_score()
    )
    unexplained = ~pl.col("ok") & ((pl.col("status") == "ok").fill_null(True))
    return table.with_columns(
        score=pl.when("ok").then("score"),
        status=pl.when(unexplained).then(pl.lit(NOT_FINITE)).otherwise("status"),
    ).sort(*KEYS, "sample", "method", "target", "run", "ok", "score", *COSTS)


def _mean_per(method: NDArray[np.int64], cost: pl.Series, ok: NDArray[np.bool_], methods: int) -> Array:
    value = cost.fill_null(np.nan).to_numpy()
    known = ok & np.isfinite(value)
    count = np.bincount(method[known], minlength=methods)
    total = np.bincount(method[known], weights=value[known], minlength=methods)
    mean = np.full(methods, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean


def nan_to_null(value: float | np.floating | None) -> float | None:
    """A number for a table cell: NaN becomes null."""
    return None if value is None or np.isnan(value) else float(value)
