"""Leaderboards in the terminal."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from rich import box
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from heatcheck import stats
from heatcheck.report.source import RunSource
from heatcheck.report.wording import decimals, number, plain, rank

_NAME = 38  # widest column of method names
_WIDE = 110  # a terminal that has room for intervals
_NARROW = 60  # a narrower one breaks mean ranks, too
_HEAD = 16  # longest word of a heading that is not broken
_PLACE, _RANK = 5, 3  # narrowest columns of mean ranks and of ranks
_GAP = 2  # what a column takes beside its own width: padding, and a divider or an edge
_WORD = re.compile(r"[^_(, ]+[_(, ]*|[_(, ]+")
CIRCULAR = "·"
HEAVY_TAIL = "!"

Row = Mapping[str, Any]


def leaderboard(result: RunSource) -> "LeaderboardTable":
    """A run's leaderboards, as something rich can print."""
    return leaderboard_table(result.leaderboard().full, result.facts)


def leaderboard_table(board: pl.DataFrame, facts: Mapping[str, Any]) -> "LeaderboardTable":
    """Something rich can print: per model, methods × metrics with mean ± half its interval, and rank.

    A narrow terminal shows no intervals, and metrics that do not fit go into a further table below; long headings are
    folded, numbers are never cut. A mean rank over part of the metrics says over how many. Controls are dimmed, a
    circular score is marked `·`, an interval of scores with a heavy tail `!`, and notes name the methods that are not better than random.

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
            yield from self._notes(case, stats.Facts.of(self.facts))
            if options.max_width >= _WIDE and case["heavy_tail"].any():
                yield _note(
                    f"{HEAVY_TAIL} heavy tail: a few samples dominate the mean; the interval is likely to be too short"
                )
            yield Text()
        for line in self.facts.get("union", ()):
            yield Text(plain(str(line)))

    def _tables(self, case: pl.DataFrame, width: int) -> Iterator[Table]:
        present = set(case["metric"].to_list())
        metrics = [m for m in self.facts.get("metrics", ()) if m["name"] in present]
        totals = stats.overall(case, stats.Facts.of(self.facts))
        cells = {(r["method"], r["metric"]): r for r in case.iter_rows(named=True)}
        controls = sorted({r["method"] for r in cells.values() if r["control"]})
        names = [*totals["method"].to_list(), *controls]
        wide = width >= _WIDE
        places = [_mean_rank(r) for r in totals.iter_rows(named=True)] + [""] * len(controls)
        pieces = [piece for place in places for piece in ([place] if width >= _NARROW else place.split())]
        beside = max([_PLACE, *map(len, pieces)])
        longest = max((cell_len(plain(name)) for name in names), default=6)
        columns = [_column(m, names, cells, wide) for m in metrics]
        need = max((c.width for c in columns), default=0)
        first = max(6, min(longest, _NAME if wide else _NAME // 2, width - _table_width((0, beside)) - need))
        room = width - _table_width((first, beside))
        for some in _packed(columns, room):
            yield _table(some, names, set(controls), places, first, beside)

    def _notes(self, case: pl.DataFrame, facts: stats.Facts) -> Iterator[Text]:
        yield from _against_random(case, facts)
        totals = stats.overall(case, facts)
        yield from _left_out(case, totals, facts)
        part = totals.filter(pl.col("mean_rank").is_not_null() & (pl.col("metrics") < pl.col("of")))
        for k, of in part.select("metrics", "of").head(1).iter_rows():
            words = f"ranked under {k} of {of} metrics; mean ranks over different metrics are only roughly comparable"
            yield _note(f"({k}/{of}) {words}")
        if not case.filter("circular").is_empty():
            yield _note(f"{CIRCULAR} circular: the method makes the metric's own queries; not ranked")
        unranked = case.filter(~pl.col("ranked") & ~pl.col("control") & ~pl.col("circular"))
        by_method = unranked.group_by("method", "reason").agg(pl.col("metric").sort())
        merged = by_method.group_by("metric", "reason").agg(pl.col("method").sort()).sort("method", "reason")
        for metrics, reason, methods in merged.iter_rows():
            yield _note(f"{', '.join(methods)} not ranked under {', '.join(metrics)}: {reason}")
        if not case.filter(pl.col("ranked") & (pl.col("n_ok") < pl.col("n"))).is_empty():
            yield _note("* mean over part of the samples; the others have no score")


def _note(text: str, style: str = "dim") -> Text:
    return Text(f"  {plain(text)}", style=style)


def _against_random(case: pl.DataFrame, facts: stats.Facts) -> Iterator[Text]:
    """Which methods are not better than random; or that there are too few samples to tell."""
    tests = stats.smallest_p_values(case, facts.random)
    few = {r["metric"]: r["samples"] for r in tests.iter_rows(named=True) if stats.too_few(r["samples"], r["tests"])}
    if few:
        under = "" if len(few) == len(tests) else f" under {', '.join(sorted(few))}"
        n = max(few.values())
        samples = f"{n} sample{'' if n == 1 else 's'}"
        yield _note(f"With {samples}, no method can be significantly better than random{under}; use more.", style="")
    metrics_of: dict[tuple[str, ...], list[str]] = {}
    for row in stats.not_better_than_random(case).iter_rows(named=True):
        if row["methods"] and row["metric"] not in few:
            metrics_of.setdefault(tuple(row["methods"]), []).append(row["metric"])
    for methods, metrics in metrics_of.items():
        yield _note(f"not better than random under {', '.join(metrics)}: {', '.join(methods)}", style="")


def _left_out(case: pl.DataFrame, totals: pl.DataFrame, facts: stats.Facts) -> Iterator[Text]:
    """Which metrics do not count in the mean rank, and why; and that there is none where no metric counts."""
    without = stats.left_out(case, facts)
    for (reason,), group in without.group_by("reason", maintain_order=True):
        yield _note(f"not in the mean rank: {', '.join(group['metric'])} ({reason})", style="")
    if without.height and totals["mean_rank"].is_null().all():
        yield _note("No metric counts in the mean rank, so no method has one.", style="")


def _mean_rank(total: Row) -> str:
    """A mean rank; with the number of metrics where the method is not ranked under all of them."""
    if total["mean_rank"] is None:
        return ""
    part = f" ({total['metrics']}/{total['of']})" if total["metrics"] < total["of"] else ""
    return f"{total['mean_rank']:.2f}{part}"


@dataclass(frozen=True)
class _Column:
    """One metric: its heading, and every method's mean and rank, which are never cut."""

    head: Text
    means: Sequence[Text]
    ranks: Sequence[Text]

    @property
    def widths(self) -> tuple[int, int]:
        lines = [cell_len(line) for line in self.head.plain.split("\n")]
        return max(*lines, *(t.cell_len for t in self.means)), max(_RANK, *(t.cell_len for t in self.ranks))

    @property
    def width(self) -> int:
        return sum(self.widths) + 2 * _GAP


def _column(metric: Row, names: Sequence[str], cells: Mapping[tuple[str, str], Row], wide: bool) -> _Column:
    rows = [cells.get((name, metric["name"])) for name in names]
    places = decimals(max((abs(r["mean"]) for r in rows if r and r["mean"] is not None), default=0.0))
    means, ranks = zip(*(_cell(row, places, wide) for row in rows), strict=True)
    arrow = "↑" if metric["better"] == "higher" else "↓"
    return _Column(_heading(plain(metric["name"]), arrow, max(t.cell_len for t in means)), means, ranks)


def _heading(name: str, arrow: str, width: int) -> Text:
    """A metric's name with its arrow, folded where its words end if it is longer than `width` and its longest word."""
    words = [part for word in _WORD.findall(name) for part in chop_cells(word, max(width, _HEAD))]
    words = [*words[:-1], " ".join([*words[-1:], arrow])]
    longest = max(width, *map(cell_len, words))
    lines = [""]
    for word in words:
        if cell_len(lines[-1] + word) > longest:
            lines.append("")
        lines[-1] += word
    return Text("\n".join(line.rstrip() for line in lines))


def _table_width(columns: Sequence[int]) -> int:
    """How much of the terminal columns of such widths take, with what stands between and around them."""
    return sum(columns) + _GAP * len(columns)


def _packed(columns: Sequence[_Column], room: int) -> Iterator[list[_Column]]:
    """Neighbours that fit beside each other; a column that fits nowhere stands alone."""
    some: list[_Column] = []
    for column in columns:
        if some and sum(c.width for c in [*some, column]) > room:
            yield some
            some = []
        some.append(column)
    if some:
        yield some


def _table(
    columns: Sequence[_Column],
    names: Sequence[str],
    controls: set[str],
    places: Sequence[str],
    first: int,
    beside: int,
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold", width=first)
    table.add_column(Text("mean rank"), justify="right", width=beside)
    for column in columns:
        for head, width in zip((column.head, Text()), column.widths, strict=True):
            table.add_column(head, justify="right", no_wrap=True, width=width)
    for i, (name, place) in enumerate(zip(names, places, strict=True)):
        row = [text for column in columns for text in (column.means[i], column.ranks[i])]
        table.add_row(Text(plain(name)), Text(place), *row, style="dim" if name in controls else "")
    return table


def _cell(row: Row | None, places: int | None, wide: bool) -> tuple[Text, Text]:
    """Mean with half its interval, and the rank beside it."""
    if row is None or row["mean"] is None:
        return Text("–"), Text()
    half = "" if row["low"] is None or not wide else f" ±{number((row['high'] - row['low']) / 2, places)}"
    half += HEAVY_TAIL if row["heavy_tail"] and half else ""
    mark = CIRCULAR if row["circular"] else rank(row["rank"]) if row["ranked"] else ""
    star = "*" if row["ranked"] and row["n_ok"] < row["n"] else ""
    style = "bold green" if row["ranked"] and row["rank"] == 1 else ""
    return Text.assemble((number(row["mean"], places), style), (half, "dim")), Text(mark + star, style=style)
