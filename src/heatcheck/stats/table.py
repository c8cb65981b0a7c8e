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


@dataclass(frozen=True)
class MetricGroup:
    """All scores of one metric for one model on one data set.

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
        """The group's name, as columns."""
        return {"model": self.model, "data": self.data, "metric": self.metric}

    @property
    def n(self) -> int:
        """How many samples the group has, whether scored or not."""
        return int(self.scores.shape[1])

    @cached_property
    def gains(self) -> Array:
        """The scores, turned so that more is better."""
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
        return np.array([row[~np.isnan(row)].mean() if k else np.nan for row, k in self._rows()])

    def _rows(self) -> Iterator[tuple[Array, int]]:
        return zip(self.scores, self.n_ok.tolist(), strict=True)

    def reasons(self, facts: Facts, coverage_floor: float) -> list[str | None]:
        """Why each method is unranked; None for those that are ranked."""
        found: list[str | None] = []
        for method, k, problem in zip(self.methods, self.n_ok.tolist(), self.problems, strict=True):
            why = ["control"] if facts.is_control(method) else []
            if (method, self.metric) in facts.circular:
                why.append("circular")
            if self.metric in facts.of_model:
                why.append("the metric measures the model, not the map")
            if k == 0:
                why.append(problem or "missing: no row")
            elif k / self.n < coverage_floor:
                why.append(f"coverage {k}/{self.n} below {coverage_floor:g} ({problem or 'missing: no row'})")
            found.append("; ".join(why) or None)
        return found


def groups(scores: pl.DataFrame, facts: Facts) -> Iterator[MetricGroup]:
    """Every (model, data, metric) of the table, sorted by name; the table's row order has no influence.

    A sample that has several rows for one method (several targets, several runs) counts once: with their
    mean, and only if all of them are ok, so that every method answers the same questions.
    """
    table = _tidy(scores)
    worst = {
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
        real = part["sample"].is_not_null().to_numpy()
        ids = part["sample"].unique().drop_nulls().sort().to_list()
        column = part["sample"].cast(pl.Enum(ids)).to_physical().fill_null(0).to_numpy().astype(np.int64)
        shape = (len(names), len(ids))
        cell = (method * len(ids) + column)[real]
        ok = part["ok"].to_numpy()
        value = part["score"].fill_null(0.0).to_numpy()

        size = shape[0] * shape[1]
        rows = np.bincount(cell, minlength=size)
        good = np.bincount(cell, weights=ok[real], minlength=size)
        total = np.bincount(cell, weights=np.where(ok, value, 0.0)[real], minlength=size)
        matrix = np.full(size, np.nan)
        np.divide(total, rows, out=matrix, where=(rows > 0) & (good == rows))

        yield MetricGroup(
            model=model,
            data=data,
            metric=metric,
            methods=tuple(names),
            scores=matrix.reshape(shape),
            problems=tuple(worst.get((model, data, metric, name)) for name in names),
            costs=np.stack([_mean_per(method, part[c], ok, len(names)) for c in COSTS], axis=1),
            sign=facts.sign(metric),
        )


def _tidy(scores: pl.DataFrame) -> pl.DataFrame:
    """Check, cast and totally order the table; `ok` marks rows that carry a usable number."""
    missing = [c for c in COLUMNS if c not in scores.columns]
    if missing:
        raise ValueError(f"the scores table lacks {', '.join(missing)}; it has {', '.join(scores.columns)}")
    names = [*KEYS, "method", "sample", "status", "run", "target"]
    ok = (pl.col("status") == "ok") & pl.col("score").is_finite()
    table = scores.select(pl.col(names).cast(pl.String), pl.col("score", *COSTS).cast(pl.Float64)).with_columns(
        ok=ok.fill_null(False)
    )
    silent = ~pl.col("ok") & ((pl.col("status") == "ok").fill_null(True))
    return table.with_columns(
        score=pl.when("ok").then("score"),
        status=pl.when(silent).then(pl.lit("undefined: the score is not finite")).otherwise("status"),
    ).sort(*KEYS, "sample", "method", "target", "run", "ok", "score", *COSTS)


def _mean_per(method: NDArray[np.int64], cost: pl.Series, ok: NDArray[np.bool_], methods: int) -> Array:
    value = cost.fill_null(np.nan).to_numpy()
    known = ok & np.isfinite(value)
    count = np.bincount(method[known], minlength=methods)
    total = np.bincount(method[known], weights=value[known], minlength=methods)
    mean = np.full(methods, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean


def null(value: float | np.floating | None) -> float | None:
    """A number for a table cell: NaN becomes null."""
    return None if value is None or np.isnan(value) else float(value)
