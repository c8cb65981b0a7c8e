"""Leaderboards in the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from heatcheck import stats
from heatcheck.report.source import Source, stats_facts
from heatcheck.report.wording import decimals, number, plain, rank

_NAME = 38  # widest column of method names
_WIDE = 110  # a terminal that has room for intervals
CIRCULAR = "·"

Row = Mapping[str, Any]


def leaderboard(result: Source) -> "LeaderboardTable":
    """A run's leaderboards, as something rich can print."""
    return leaderboard_table(stats.leaderboard(result.scores(), stats_facts(result.facts)), result.facts)


def leaderboard_table(board: pl.DataFrame, facts: Mapping[str, Any]) -> "LeaderboardTable":
    """Something rich can print: per model, methods × metrics with mean ± half its interval, and rank.

    A narrow terminal shows no intervals, and metrics that do not fit beside each other go into a further
    table below. Controls are dimmed, a circular score carries `·`, and notes name the methods that are not
    better than random.

    Args:
        board: what `heatcheck.stats.leaderboard` returned.
        facts: the run's facts.
    """
    return LeaderboardTable(board, facts)


@dataclass(frozen=True)
class LeaderboardTable:
    """See `leaderboard_table`."""

    board: pl.DataFrame
    facts: Mapping[str, Any]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.board.is_empty():
            yield Text("No scores yet.", style="dim")
        for (model, data), case in self.board.group_by("model", "data", maintain_order=True):
            yield Text.assemble((plain(str(model)), "bold"), (f"  {plain(str(data))}", "dim"))
            yield from self._tables(case, options.max_width)
            yield from self._notes(case)
            yield Text()

    def _tables(self, case: pl.DataFrame, width: int) -> Iterator[Table]:
        present = set(case["metric"].to_list())
        metrics = [m for m in self.facts.get("metrics", ()) if m["name"] in present]
        totals = stats.overall(case, stats_facts(self.facts))
        mean_rank = {r["method"]: r["mean_rank"] for r in totals.iter_rows(named=True)}
        cells = {(r["method"], r["metric"]): r for r in case.iter_rows(named=True)}
        controls = sorted({r["method"] for r in cells.values() if r["control"]})
        names = [*totals["method"].to_list(), *controls]
        wide = width >= _WIDE
        first = min(max((len(plain(name)) for name in names), default=6), _NAME if wide else _NAME // 2)
        fit = max(1, (width - first - 12) // (20 if wide else 13))
        for start in range(0, len(metrics), fit):
            yield _table(metrics[start : start + fit], names, set(controls), mean_rank, cells, first, wide)

    def _notes(self, case: pl.DataFrame) -> Iterator[Text]:
        for row in stats.not_better_than_random(case).iter_rows(named=True):
            if row["methods"]:
                yield _note(f"not better than random under {row['metric']}: {', '.join(row['methods'])}", style="")
        if not case.filter("circular").is_empty():
            yield _note(f"{CIRCULAR} circular: the method asks the metric's own questions; not ranked")
        low = case.filter(~pl.col("ranked") & ~pl.col("control") & ~pl.col("circular"))
        each = low.group_by("method", "reason").agg(pl.col("metric").sort())
        together = each.group_by("metric", "reason").agg(pl.col("method").sort()).sort("method", "reason")
        for metrics, reason, methods in together.iter_rows():
            yield _note(f"{', '.join(methods)} not ranked under {', '.join(metrics)}: {reason}")
        if not case.filter(pl.col("ranked") & (pl.col("n_ok") < pl.col("n"))).is_empty():
            yield _note("* mean over a part of the samples: the others have no score")


def _note(text: str, style: str = "dim") -> Text:
    return Text(f"  {plain(text)}", style=style)


def _table(
    metrics: Sequence[Row],
    names: Sequence[str],
    controls: set[str],
    mean_rank: Mapping[str, float | None],
    cells: Mapping[tuple[str, str], Row],
    first: int,
    wide: bool,
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold", width=first)
    table.add_column(Text("mean rank"), justify="right", width=5)
    places: dict[str, int | None] = {}
    for metric in metrics:
        arrow = "↑" if metric["better"] == "higher" else "↓"
        head = Text(f"{plain(metric['name'])} {arrow}", overflow="fold")
        table.add_column(head, justify="right", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True, width=3)
        means = [abs(r["mean"]) for (_, name), r in cells.items() if name == metric["name"] and r["mean"] is not None]
        places[metric["name"]] = decimals(max(means, default=0.0))
    for name in names:
        style = "dim" if name in controls else ""
        place = mean_rank.get(name)
        row = [text for m in metrics for text in _cell(cells.get((name, m["name"])), places[m["name"]], wide)]
        table.add_row(Text(plain(name)), Text("" if place is None else f"{place:.2f}"), *row, style=style)
    return table


def _cell(row: Row | None, places: int | None, wide: bool) -> tuple[Text, Text]:
    """Mean with half its interval, and the rank beside it."""
    if row is None or row["mean"] is None:
        return Text("–"), Text()
    half = "" if row["low"] is None or not wide else f" ±{number((row['high'] - row['low']) / 2, places)}"
    mark = CIRCULAR if row["circular"] else rank(row["rank"]) if row["ranked"] else ""
    star = "*" if row["ranked"] and row["n_ok"] < row["n"] else ""
    style = "bold green" if row["ranked"] and row["rank"] == 1 else ""
    return Text.assemble((number(row["mean"], places), style), (half, "dim")), Text(mark + star, style=style)
