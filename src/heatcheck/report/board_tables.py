"""A leaderboard as tables for papers and programs."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from heatcheck import stats
from heatcheck.report.tables import Cell, MarkedTable
from heatcheck.report.wording import decimals, half_interval, number

LEADERBOARD, MEANS = "leaderboard", "means"
_READ = (
    "metric",
    "method",
    "mean",
    "n_ok",
    "rank",
    "rank_low",
    "rank_high",
    "group",
    "beats_random",
    "random_effect",
    "reason",
    "seconds",
)
_HEADS = {
    "n_ok": "samples",
    "rank_low": "from",
    "rank_high": "to",
    "group": "ties",
    "beats_random": "better than random",
    "random_effect": "effect against random",
}


def long_table(board: pl.DataFrame, facts: stats.Facts) -> MarkedTable:
    """One row per model, data, metric and method, best mean first.

    Files for programs have every column, in which a list of methods is one text; people read the main ones.
    """
    flat = board.with_columns(pl.col("beaten_by").list.join("; "))
    places = _places(board)
    shown = {
        (i, "mean"): _told(row, places[row["metric"]], facts.bounds(row["metric"]))
        for i, row in enumerate(board.iter_rows(named=True))
        if row["mean"] is not None
    }
    where, alike = _where(board)
    hidden = tuple(
        name for name in board.columns if name not in _READ and (name not in ("model", "data") or name in alike)
    )
    caption = f"Methods per metric with 95 % intervals{where}. {_PARENTHESES}"
    caption += " Effect: mean difference, in standard deviations of the differences."
    places_of = dict.fromkeys(("rank", "rank_low", "rank_high"), 0) | {"random_effect": 2}
    return MarkedTable(LEADERBOARD, caption, flat, places_of, heads=_HEADS, shown=shown, hidden=hidden)


def means_table(board: pl.DataFrame, facts: stats.Facts) -> MarkedTable:
    """One row per model, data and method, one column per metric: the table of a paper.

    Files for programs have means; where people read, the interval stands beside them. Methods come in the order of their
    mean ranks, then those without one and controls.
    """
    places = _places(board)
    metrics = list(places)
    rows: list[dict[str, Any]] = []
    best: set[Cell] = set()
    tied: set[Cell] = set()
    shown: dict[Cell, str] = {}
    for (model, data), case in board.group_by("model", "data", maintain_order=True):
        entries = {(r["method"], r["metric"]): r for r in case.iter_rows(named=True)}
        for method in _in_order(case, facts):
            i = len(rows)
            own = {metric: entries[method, metric] for metric in metrics if (method, metric) in entries}
            means = {metric: own[metric]["mean"] if metric in own else None for metric in metrics}
            rows.append({"model": model, "data": data, "method": method, **means})
            for metric, entry in own.items():
                if entry["mean"] is not None:
                    shown[i, metric] = _told(entry, places[metric], facts.bounds(metric))
                if entry["ranked"] and entry["rank_low"] == 1:
                    (best if entry["rank"] == 1 else tied).add((i, metric))
    schema = {"model": pl.String, "data": pl.String, "method": pl.String, **dict.fromkeys(metrics, pl.Float64)}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    where, alike = _where(board)
    caption = f"Means with 95 % intervals{where}. {_PARENTHESES}"
    arrows = {m: f"{m} {'↑' if facts.sign(m) > 0 else '↓'}" for m in metrics}
    return MarkedTable(MEANS, caption, frame, {}, frozenset(best), frozenset(tied), arrows, shown, alike)


_PARENTHESES = (
    "In parentheses: not ranked (controls, methods that ask a metric's own questions, methods with too few scores)."
)


def _places(board: pl.DataFrame) -> dict[str, int | None]:
    """Decimals by metric."""
    largest = board.group_by("metric", maintain_order=True).agg(pl.col("mean").abs().max())
    return {metric: decimals(mean or 0.0) for metric, mean in largest.iter_rows()}


def _where(board: pl.DataFrame) -> tuple[str, tuple[str, ...]]:
    """Model and data for the caption, where there is one of them, and the columns that need not be read then."""
    alike = tuple(name for name in ("model", "data") if board[name].n_unique() == 1)
    return "".join(f"{', ' if i == 0 else ' on '}{board[name][0]}" for i, name in enumerate(alike)), alike


def _in_order(case: pl.DataFrame, facts: stats.Facts) -> Sequence[str]:
    """Methods by mean rank, then those without one, then controls."""
    ranked = stats.overall(case, facts).filter(pl.col("mean_rank").is_not_null())["method"].to_list()
    rest = case.sort("control", maintain_order=True)["method"].unique(maintain_order=True).to_list()
    return [*ranked, *(method for method in rest if method not in ranked)]


def _told(entry: Mapping[str, Any], places: int | None, bounds: tuple[float, float]) -> str:
    words = f"{number(entry['mean'], places)}{half_interval(entry, places, bounds)}"
    return words if entry["ranked"] else f"({words})"
