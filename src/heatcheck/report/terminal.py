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
from heatcheck.report.along import accuracy, epoch, verdict
from heatcheck.report.notes import CIRCULAR, HEAVY_TAIL, PART, Note, notes
from heatcheck.report.source import RunSource
from heatcheck.report.wording import decimals, half_interval, number, plain, rank, rank_set

_NAME = 38  # widest column of method names
_WIDE = 110  # a terminal that has room for intervals
_NARROW = 60  # a narrower one breaks mean ranks, too
_HEAD = 16  # about the longest word of a heading that is not broken
_REST = 3  # fewest letters that are worth breaking a word for
_PLACE, _RANK = 5, 3  # narrowest columns of mean ranks and of ranks
_STEP = 6  # a checkpoint's column
_GAP = 2  # what a column takes beside its own width: padding, and a divider or an edge
_WORD = re.compile(r"[^_(, ]+[_(, ]*|[_(, ]+")

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
        facts = stats.Facts.of(self.facts)
        if self.board.is_empty():
            yield Text("No scores yet.", style="dim")
        for (model, data), case in self.board.group_by("model", "data", maintain_order=True):
            yield Text.assemble((plain(str(model)), "bold"), (f"  {plain(str(data))}", "dim"))
            yield from (Text(plain(line), style="dim") for line in self._training(str(model)))
            yield from self._tables(case, facts, options.max_width)
            for note in notes(case, facts):
                if note.mark != HEAVY_TAIL or options.max_width >= _WIDE:
                    yield _line(note)
            yield Text()
        for line in self.facts.get("union", ()):
            yield Text(plain(str(line)))

    def _training(self, model: str) -> list[str]:
        """How a model came about, where a recipe trained it."""
        return [line for m in self.facts.get("models", ()) if m["name"] == model for line in m.get("training", ())]

    def _tables(self, case: pl.DataFrame, facts: stats.Facts, width: int) -> Iterator[Table]:
        present = set(case["metric"].to_list())
        metrics = [m for m in self.facts.get("metrics", ()) if m["name"] in present]
        totals = stats.overall(case, facts)
        cells = {(r["method"], r["metric"]): r for r in case.iter_rows(named=True)}
        controls = sorted({r["method"] for r in cells.values() if r["control"]})
        names = [*totals["method"].to_list(), *controls]
        wide = width >= _WIDE
        places = [_mean_rank(r) for r in totals.iter_rows(named=True)] + [""] * len(controls)
        pieces = [piece for place in places for piece in ([place] if width >= _NARROW else place.split())]
        beside = max([_PLACE, *map(len, pieces)]) if any(places) else None
        fixed = [] if beside is None else [beside]
        longest = max((cell_len(plain(name)) for name in names), default=6)
        columns = [_column(m, names, cells, facts, wide) for m in metrics]
        need = max((c.width for c in columns), default=0)
        first = max(6, min(longest, _NAME if wide else _NAME // 2, width - _table_width([0, *fixed]) - need))
        room = width - _table_width([first, *fixed])
        for some in _packed(columns, room):
            yield _table(some, names, set(controls), places, first, beside)


def _line(note: Note) -> Text:
    return Text(f"  {plain(f'{note.mark} {note.text}'.strip())}", style="" if note.finding else "dim")


def _mean_rank(total: Row) -> str:
    """A mean rank; with the number of metrics where the method is not ranked under all of them."""
    if total["mean_rank"] is None:
        return ""
    part = f" ({total['metrics']}/{total['of']})" if total["metrics"] < total["of"] else ""
    return f"{total['mean_rank']:.2f}{part}"


@dataclass(frozen=True)
class AlongTable:
    """Something rich can print: per metric, what the rankings along a training show, and the ranks at each checkpoint.

    Args:
        cases: what `heatcheck.stats.along_training` returned.
    """

    cases: Sequence[stats.AlongTraining]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for case in self.cases:
            yield Text.assemble(
                ("Ranks along training", "bold"), (f"  {plain(case.training)} · {plain(case.data)}", "dim")
            )
            yield Text(plain(f"{case.metric}: {''.join(part.text for part in verdict(case))}"))
            for start, stop in _spans(case, options.max_width):
                yield _along(case, start, stop)
            yield Text()


def _spans(case: stats.AlongTraining, width: int) -> Iterator[tuple[int, int]]:
    """The checkpoints that fit beside each other, from one to before another."""
    room = max(1, (width - _NAME // 2 - _GAP) // (_STEP + _GAP))
    for start in range(0, len(case.checkpoints), room):
        yield start, min(start + room, len(case.checkpoints))


def _along(case: stats.AlongTraining, start: int, stop: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("epoch", overflow="fold", width=_NAME // 2)
    some = case.checkpoints[start:stop]
    for checkpoint in some:
        table.add_column(epoch(checkpoint), justify="right", no_wrap=True, width=_STEP)
    for k, method in enumerate(case.methods):
        table.add_row(Text(plain(method)), *(rank(float(r)) for r in case.ranks[start:stop, k]))
    if any(checkpoint.accuracy is not None for checkpoint in some):
        table.add_row("accuracy", *(accuracy(checkpoint) for checkpoint in some), style="dim")
    for name, values in (("τ with the last", case.tau_last), ("τ with one before", case.tau_before)):
        table.add_row(name, *(number(c.value, 2) for c in values[start:stop]), style="dim")
    return table


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


def _column(
    metric: Row, names: Sequence[str], cells: Mapping[tuple[str, str], Row], facts: stats.Facts, wide: bool
) -> _Column:
    rows = [cells.get((name, metric["name"])) for name in names]
    places = decimals(max((abs(r["mean"]) for r in rows if r and r["mean"] is not None), default=0.0))
    means, ranks = zip(*(_cell(row, places, facts.bounds(metric["name"]), wide) for row in rows), strict=True)
    arrow = "↑" if metric["better"] == "higher" else "↓"
    return _Column(_heading(plain(metric["name"]), arrow, max(t.cell_len for t in means)), means, ranks)


def _heading(name: str, arrow: str, width: int) -> Text:
    """A metric's name with its arrow, folded where its words end if it is longer than `width` and its longest word.

    The arrow stands behind the last word, or below it where that is a long one.
    """
    words = [part for word in _WORD.findall(name) for part in _broken(word, max(width, _HEAD))]
    last = " ".join([*words[-1:], arrow])
    words = [*words[:-1], last] if cell_len(last) <= max(width, _HEAD + 2) else [*words, f" {arrow}"]
    longest = max(width, *map(cell_len, words))
    lines = [""]
    for word in words:
        if cell_len(lines[-1] + word) > longest:
            lines.append("")
        lines[-1] += word
    return Text("\n".join(line.strip() for line in lines))


def _broken(word: str, longest: int) -> list[str]:
    """A word in parts of about a length: longer ones where a letter or two would be left over."""
    parts = chop_cells(word, longest)
    if len(parts) > 1 and cell_len(parts[-1]) < _REST:
        parts = chop_cells(word, -(-cell_len(word) // (len(parts) - 1)))
    return parts


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
    beside: int | None,
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold", width=first)
    if beside is not None:
        table.add_column(Text("mean rank"), justify="right", width=beside)
    for column in columns:
        for head, width in zip((column.head, Text()), column.widths, strict=True):
            table.add_column(head, justify="right", no_wrap=True, width=width)
    for i, (name, place) in enumerate(zip(names, places, strict=True)):
        row = [text for column in columns for text in (column.means[i], column.ranks[i])]
        start = [Text(plain(name))] if beside is None else [Text(plain(name)), Text(place)]
        table.add_row(*start, *row, style="dim" if name in controls else "")
    return table


def _cell(row: Row | None, places: int | None, bounds: tuple[float, float], wide: bool) -> tuple[Text, Text]:
    """Mean with half its interval, and beside it the rank with its set; in a narrow terminal one of them."""
    if row is None or row["mean"] is None:
        return Text("–"), Text()
    half = half_interval(row, places, bounds) if wide else ""
    half += HEAVY_TAIL if row["heavy_tail"] and half else ""
    span = rank_set(row)
    place = f"{rank(row['rank'])} ({span})" if span and wide else span or rank(row["rank"])
    mark = CIRCULAR if row["circular"] else place if row["ranked"] else ""
    star = PART if row["ranked"] and row["n_ok"] < row["n"] else ""
    style = "bold green" if row["ranked"] and row["rank"] == 1 else ""
    return Text.assemble((number(row["mean"], places), style), (half, "dim")), Text(mark + star, style=style)
