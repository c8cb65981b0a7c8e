"""The tables of one model on one data set: methods, metrics with their leaderboards, mean ranks, agreement, gaps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from heatcheck import stats
from heatcheck.report import wording
from heatcheck.report.charts import Axis, cost_chart, curve_chart, scale
from heatcheck.report.method_view import MethodView
from heatcheck.report.source import CaseSource, RunSource
from heatcheck.report.views import LeaderboardRow, MetricView, OverallRow, Row
from heatcheck.stats import Facts
from heatcheck.stats.power import in_words

COLOURS = 8
ALPHA = 0.05
_SHADES = 8
_BY_CASE = ("board", "totals", "best", "left_out")  # tables with a row per model and data set
_CURVES = 6  # with more ranked methods, only the first few and the last are visible at first


@dataclass(frozen=True)
class Tables:
    """A run's facts and scores, and what statistics make of them.

    Args:
        run: the run's facts.
        facts: those that statistics need.
        scores: the long table of scores.
        board: means, ranks and tests against random, per metric.
        totals: mean ranks over all metrics.
        best: the best methods of every metric, and those that may be the best as well.
        left_out: metrics that do not count in the mean rank, and why.
    """

    run: Mapping[str, Any]
    facts: Facts
    scores: pl.DataFrame
    board: pl.DataFrame
    totals: pl.DataFrame
    best: pl.DataFrame
    left_out: pl.DataFrame

    @classmethod
    def of(cls, source: RunSource) -> "Tables":
        """The tables of a whole run."""
        facts, scores, board = Facts.of(source.facts), source.scores(), source.leaderboard().full
        totals = stats.overall(board, facts)
        best, left_out = stats.best_and_tied(board), stats.left_out(board, facts)
        return cls(source.facts, facts, scores, board, totals, best, left_out)

    def at(self, model: str, data: str) -> "Tables":
        """The tables of one model on one data set."""
        here = (pl.col("model") == model) & (pl.col("data") == data)
        tables = {name: getattr(self, name).filter(here) for name in _BY_CASE}
        return replace(self, scores=self._scores_at(model, data), **tables)

    def _scores_at(self, model: str, data: str) -> pl.DataFrame:
        """The rows of one case; the table itself, not a copy, where there is no other."""
        rows = self._rows.get((model, data))
        if rows is None:
            return self.scores.clear()
        return self.scores if len(rows) == self.scores.height else self.scores[rows]

    @cached_property
    def _rows(self) -> dict[tuple[str | None, ...], pl.Series]:
        return dict(stats.rows_by(self.scores, ("model", "data")))

    @cached_property
    def samples(self) -> list[str]:
        """The samples that have a row, sorted."""
        return self.scores["sample"].unique().drop_nulls().cast(pl.String).sort().to_list()

    @property
    def ok(self) -> int:
        """How many rows have a score."""
        return int(self.scores.select(stats.has_score().sum()).item())


def method_views(tables: Tables) -> tuple[MethodView, ...]:
    """The methods that have a row: best mean rank first, then unranked ones as declared, controls last."""
    present = set(tables.board["method"].to_list())
    ranked = [name for name in tables.totals["method"].to_list() if name in present]
    declared = [m["name"] for m in tables.run.get("methods", ()) if m["name"] in present]
    names = list(dict.fromkeys([*ranked, *declared, *sorted(present)]))
    names.sort(key=tables.facts.is_control)
    views: list[MethodView] = []
    for i, name in enumerate(names):
        control = tables.facts.is_control(name)
        dash = sum(view.control for view in views) if control else i // COLOURS
        views.append(MethodView(i, name, control, -1 if control else i % COLOURS, dash % 3))
    return tuple(views)


def metric_views(
    tables: Tables, source: CaseSource, model: str, methods: Sequence[MethodView]
) -> tuple[MetricView, ...]:
    """The metrics that have a row, in the order of the run's facts."""
    present = set(tables.board["metric"].to_list())
    declared = {m["name"]: m for m in tables.run.get("metrics", ())}
    return tuple(
        _metric_view(tables, source, model, facts, methods) for name, facts in declared.items() if name in present
    )


def _metric_view(
    tables: Tables, source: CaseSource, model: str, metric: Row, methods: Sequence[MethodView]
) -> MetricView:
    name, facts = metric["name"], tables.facts
    views = {m.name: m for m in methods}
    raw = tables.board.filter(pl.col("metric") == name).rows(named=True)
    axis = scale([float(r[k]) for r in raw for k in ("mean", "low", "high") if r[k] is not None])
    ranked = [r["method"] for r in raw if r["ranked"]]
    rows = tuple(_leaderboard_row(r, views[r["method"]], axis, len(ranked)) for r in raw)
    tested = [r for r in raw if not r["control"] and r["beats_random"] is not None]
    random = next((row for row in rows if row.method.name == facts.random and row.x is not None), None)
    best, tied = next(iter(tables.best.filter(pl.col("metric") == name).select("best", "tied").iter_rows()), ([], []))
    curves = _curves(tables, source, model, name)
    told = stats.detectable_on(tables.board.filter(pl.col("metric") == name))
    first_and_last = frozenset([*ranked[:4], *ranked[-1:], facts.random])
    return MetricView(
        name=name,
        facts=metric,
        higher=facts.sign(name) > 0,
        rows=rows,
        axis=axis,
        random=None if random is None or random.x is None else (random.x_low, random.x, random.x_high),
        random_mean=random.mean if random else "–",
        best=tuple(views[m] for m in best),
        tied=tuple(views[m] for m in tied),
        not_better=tuple(views[r["method"]] for r in tested if not r["beats_random"]) if tested else None,
        worse=tuple(views[r["method"]] for r in tested if r["loses_to_random"]),
        left_out=next(iter(tables.left_out.filter(pl.col("metric") == name)["reason"]), ""),
        circular=tuple(views[r["method"]] for r in raw if r["circular"]),
        remark=facts.remarks.get((model, raw[0]["data"], name), ""),
        curves=curve_chart(curves, list(views)),
        visible=first_and_last if len(ranked) > _CURVES else frozenset(views),
        cost=cost_chart(raw, facts.sign(name) > 0),
        detectable=next(map(in_words, told.iter_rows(named=True)), ""),
        gallery_curves=_of_gallery(curves, [s for m, s in source.gallery() if m == model]),
    )


def _curves(tables: Tables, source: CaseSource, model: str, metric: str) -> pl.DataFrame:
    """The curves of the case's samples."""
    names = pl.Series(tables.samples, dtype=pl.String)
    return source.curves(model, metric).filter(pl.col("sample").cast(pl.String).is_in(names.implode()))


def _of_gallery(curves: pl.DataFrame, samples: Sequence[str]) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    """Share and curve of the gallery's samples, by method and sample; those that cannot be drawn are left out."""
    rows = curves.filter(pl.col("sample").cast(pl.String).is_in(list(samples))).select(
        "method", "sample", "share", "curve"
    )
    return {
        (method, sample): (share, curve)
        for method, sample, share, curve in rows.iter_rows()
        if 1 < len(share) == len(curve) and max(share) > min(share) and np.isfinite([*share, *curve]).all()
    }


def _leaderboard_row(row: Row, method: MethodView, axis: Axis, ranked: int) -> LeaderboardRow:
    places = axis.places
    low, high = row["low"], row["high"]
    against_random = "" if row["beats_random"] is None else "better" if row["beats_random"] else "not better"
    against_random = "worse" if row["loses_to_random"] else against_random
    shade = None
    if row["ranked"]:
        shade = round(_SHADES * (1 - (row["rank"] - 1) / (ranked - 1))) if ranked > 1 else _SHADES
    return LeaderboardRow(
        method=method,
        raw=row,
        mean=wording.number(row["mean"], places),
        interval="" if low is None else f"{wording.number(low, places)} to {wording.number(high, places)}",
        rank=wording.rank(row["rank"]),
        rank_interval=wording.rank_set(row),
        x=None if row["mean"] is None else axis.at(row["mean"]),
        x_low=None if low is None else axis.at(low),
        x_high=None if high is None else axis.at(high),
        against_random=against_random,
        p=wording.p_value(row["random_p"]),
        effect=wording.effect(row["random_effect"]),
        share=wording.per_cent(row["random_share"]),
        shade=shade,
    )


def overall_rows(tables: Tables, methods: Sequence[MethodView]) -> tuple[OverallRow, ...]:
    """The methods by their mean rank."""
    views = {m.name: m for m in methods}
    return tuple(
        OverallRow(
            method=views[r["method"]],
            mean_rank="–" if r["mean_rank"] is None else f"{r['mean_rank']:.2f}",
            wins=r["wins"],
            shared=r["shared"],
            metrics=r["metrics"],
            of=r["of"],
            raw=r["mean_rank"],
        )
        for r in tables.totals.iter_rows(named=True)
    )


def never_better(tables: Tables, methods: Sequence[MethodView]) -> tuple[MethodView, ...]:
    """Methods that no metric finds better than random."""
    names = {name for row in stats.never_better_than_random(tables.board)["methods"] for name in row}
    return tuple(m for m in methods if m.name in names)


def smallest_p(tables: Tables) -> str:
    """The smallest p-value that any test against random could give, where it is not significant; else empty."""
    least = min(stats.smallest_p_values(tables.board, tables.facts.random)["smallest_p"].to_list(), default=0.0)
    return f"{least:.2g}" if least > ALPHA else ""


def agreement_of(tables: Tables, metrics: Sequence[MetricView]) -> dict[tuple[int, int], float]:
    """Kendall's τ of every two metrics, by their indices, both ways."""
    index = {m.name: i for i, m in enumerate(metrics)}
    found: dict[tuple[int, int], float] = {}
    for row in stats.agreement(tables.board).iter_rows(named=True):
        if row["tau"] is not None:
            a, b = index[row["a"]], index[row["b"]]
            found[a, b] = found[b, a] = row["tau"]
    return found


def concordance_of(tables: Tables) -> str:
    """Kendall's W over all metrics; empty where undefined."""
    w = stats.concordance(tables.board)["kendall_w"].to_list()
    return wording.number(w[0], 2) if w and w[0] is not None else ""


def gaps(tables: Tables) -> tuple[Row, ...]:
    """Missing scores, counted by reason."""
    rows = stats.missing_scores(tables.scores).iter_rows(named=True)
    return tuple({**row, "example": wording.brief(row["example"] or "–")} for row in rows)
