"""The long table of scores, cut into one matrix of methods × samples per (model, data, metric)."""

from collections.abc import Iterator, Sequence
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
_USED = ("sample", "method", "target", "run", "score", "status", *COSTS)
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
        skipped: how many samples every method skips: the metric has nothing to measure there, such as a mask.
    """

    model: str
    data: str
    metric: str
    methods: tuple[str, ...]
    scores: Array = field(repr=False)
    problems: tuple[str | None, ...] = field(repr=False)
    costs: Array = field(repr=False)
    sign: float = 1.0
    skipped: int = 0

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
        """Why each method is not ranked; None for those that are. Samples that every method skips do not count."""
        measured = self.n - self.skipped
        found: list[str | None] = []
        for method, k, problem in zip(self.methods, self.n_ok.tolist(), self.problems, strict=True):
            reasons = ["control"] if facts.is_control(method) else []
            if (method, self.metric) in facts.circular:
                reasons.append("circular")
            if self.metric in facts.of_model:
                reasons.append("the metric measures the model, not the map")
            if k == 0:
                reasons.append(problem or "missing: no row")
            elif k / measured < coverage_floor:
                reasons.append(f"coverage {k}/{measured} below {coverage_floor:g} ({problem or 'missing: no row'})")
            found.append("; ".join(reasons) or None)
        return found


def groups(scores: pl.DataFrame, facts: Facts) -> Iterator[MetricGroup]:
    """One score matrix per (model, data, metric), sorted by name; the order of the table's rows has no influence.

    A sample that has several rows for one method (several targets, several runs) counts once: with their
    mean, and only if all of them are ok, so that all methods are scored on the same rows. Names may be strings,
    categories or enumerated. Only one group's rows are copied at a time.
    """
    missing = [c for c in COLUMNS if c not in scores.columns]
    if missing:
        raise ValueError(f"the scores table lacks {', '.join(missing)}; it has {', '.join(scores.columns)}")
    for (model, data, metric), rows in rows_by(scores, KEYS):
        yield _group(str(model), str(data), str(metric), scores.select(_USED)[rows], facts)


def rows_by(table: pl.DataFrame, keys: Sequence[str]) -> Iterator[tuple[tuple[str | None, ...], pl.Series]]:
    """The row numbers of every combination of names, sorted by name; the table is not copied."""
    found = table.select(keys).with_row_index("row").group_by(keys).agg("row")
    found = found.with_columns(pl.col(keys).cast(pl.String)).sort(keys)
    for i, names in enumerate(found.select(keys).iter_rows()):
        yield names, found["row"][i]


def _group(model: str, data: str, metric: str, part: pl.DataFrame, facts: Facts) -> MetricGroup:
    part = part.with_columns(pl.col("score", *COSTS).cast(pl.Float64), ok=has_score())
    (method, names), (column, ids) = _codes(part["method"]), _codes(part["sample"])
    order = _order(part, method, column, len(names))
    method, column, ok = method[order], column[order], part["ok"].to_numpy()[order]
    value = np.where(ok, part["score"].fill_null(0.0).to_numpy()[order], 0.0)

    has_sample = column >= 0
    shape = (len(names), len(ids))
    size = shape[0] * shape[1]
    cell = (method * len(ids) + column)[has_sample]
    rows = np.bincount(cell, minlength=size)
    n_good = np.bincount(cell, weights=ok[has_sample], minlength=size)
    total = np.bincount(cell, weights=value[has_sample], minlength=size)
    matrix = np.full(size, np.nan)
    np.divide(total, rows, out=matrix, where=(rows > 0) & (n_good == rows))
    problems = _problems(part.filter(~pl.col("ok")))
    costs = [_mean_per(method, part[c].fill_null(np.nan).to_numpy()[order], ok, len(names)) for c in COSTS]
    return MetricGroup(
        model=model,
        data=data,
        metric=metric,
        methods=tuple(names),
        scores=matrix.reshape(shape),
        problems=tuple(problems.get(name) for name in names),
        costs=np.stack(costs, axis=1),
        sign=facts.sign(metric),
        skipped=_skipped(part["status"].gather(order[has_sample]), column[has_sample]),
    )


def _skipped(status: pl.Series, column: NDArray[np.int64]) -> int:
    """How many samples have no row but skipped ones."""
    other = ~status.cast(pl.String).str.starts_with("skipped").fill_null(False).to_numpy()
    return int((np.bincount(column[other], minlength=int(column.max(initial=-1)) + 1) == 0).sum())


def has_score() -> pl.Expr:
    """Whether a row's status is ok and its score a finite number; never null."""
    return ((pl.col("status").cast(pl.String) == "ok") & pl.col("score").is_finite()).fill_null(False)


def _codes(names: pl.Series) -> tuple[NDArray[np.int64], list[str]]:
    """The place of every name among all of them, sorted; −1 for none."""
    if names.dtype not in (pl.Enum, pl.Categorical):
        names = names.cast(pl.String)
        names = names.cast(pl.Enum(names.unique().drop_nulls().sort().to_list()))
    each = names.unique().drop_nulls()
    known = each.cast(pl.String).sort().to_list()
    number = each.to_physical().cast(pl.Int64).to_numpy()
    place_of = np.full(int(number.max(initial=-1)) + 2, -1, dtype=np.int64)  # the last is that of no name
    place_of[number] = each.cast(pl.String).cast(pl.Enum(known)).to_physical().to_numpy()
    return place_of[names.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()], known


def _order(part: pl.DataFrame, method: NDArray[np.int64], column: NDArray[np.int64], methods: int) -> NDArray[np.int64]:
    """The rows by sample, then method; where a cell has several, in the order of all that they say.

    Sums of floating-point numbers depend on their order, which must not be that of the table.
    """
    cell = (column + 1) * methods + method
    found = np.full(int(cell.max(initial=-1)) + 1, -1, dtype=np.int64)
    found[cell] = np.arange(len(cell))
    found = found[found >= 0]
    if len(found) == len(cell):
        return found
    told = part.select(
        pl.Series("cell", cell),
        pl.col("target", "run").cast(pl.String),
        "ok",
        pl.when("ok").then("score").alias("score"),
        *COSTS,
    )
    return told.select(pl.arg_sort_by(told.columns)).to_series().to_numpy().astype(np.int64)


def _problems(failed: pl.DataFrame) -> dict[str, str]:
    """The most frequent status of every method among rows without a score."""
    unexplained = (pl.col("status") == "ok").fill_null(True)
    counted = failed.group_by("method", "status").len().with_columns(pl.col("method", "status").cast(pl.String))
    found = (
        counted.with_columns(status=pl.when(unexplained).then(pl.lit(NOT_FINITE)).otherwise("status"))
        .group_by("method", "status")
        .agg(pl.col("len").sum())
        .sort("len", "status", descending=[False, True])
    )
    return dict(found.select("method", "status").iter_rows())


def _mean_per(method: NDArray[np.int64], value: Array, ok: NDArray[np.bool_], methods: int) -> Array:
    known = ok & np.isfinite(value)
    count = np.bincount(method[known], minlength=methods)
    total = np.bincount(method[known], weights=value[known], minlength=methods)
    mean = np.full(methods, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return mean


def nan_to_null(value: float | np.floating | None) -> float | None:
    """A number for a table cell: NaN becomes null."""
    return None if value is None or np.isnan(value) else float(value)
