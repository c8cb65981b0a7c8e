"""A leaderboard as `print` shows it: what most readers want, with the whole table behind it."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from heatcheck import stats
from heatcheck.core.files import write_atomically
from heatcheck.core.spec import SpecError
from heatcheck.report.board_tables import LEADERBOARD, MEANS, long_table, means_table
from heatcheck.report.notes import HEAVY_TAIL, PART, Note, notes
from heatcheck.report.tables import FORMATS, MarkedTable
from heatcheck.report.wording import count, decimals, half_interval, number, plain, rank, rank_set
from heatcheck.stats.power import needed

HEAD = ("method", "mean ± interval", "rank", "ties", "against random", "seconds")
_WIDTH = 80  # of a line
_NOTES = 8  # at most; the marks of the table are always explained

Row = Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class Leaderboard:
    """Methods per model and metric: mean ± half its interval, rank and its confidence set, verdict, seconds per sample.

    `print(result.leaderboard())` shows it; `.full` is the data frame with all columns; `.save("board.tex")` writes it. Methods that share a letter under
    `ties` are not told apart; `.samples_needed("sds", 0.02)` says how many samples a difference needs.

    Args:
        full: what `heatcheck.stats.leaderboard` returned.
        facts: directions, controls, and which metrics do not count in the mean rank.
        lines: what is to be said about the studies that it shows.
    """

    full: pl.DataFrame
    facts: stats.Facts
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.full.is_empty():
            return "No scores yet."
        tables = ["\n".join([_folded(title), *_aligned(rows)]) for title, rows in self._tables()]
        notes = "\n".join(map(_folded, self._notes()))
        return "\n\n".join([*tables, notes] if notes else tables)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The same tables for notebooks."""
        parts = []
        for title, rows in self._tables():
            head, *body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
            lines = "".join(f"<tr>{row}</tr>" for row in body)
            parts.append(
                f"<p><b>{escape(title)}</b></p><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
            )
        return "".join([*parts, *(f"<p>{escape(note)}</p>" for note in self._notes())]) or "<p>No scores yet.</p>"

    def table(self, name: str = MEANS) -> MarkedTable:
        """A table for papers and programs.

        Args:
            name: `means`, a row per method and a column per metric, or `leaderboard`, everything that is known.

        Raises:
            SpecError: there is no such table.
        """
        if name == MEANS:
            return means_table(self.full, self.facts)
        if name == LEADERBOARD:
            return long_table(self.full, self.facts)
        raise SpecError(f"there is no table {name!r}; choose {MEANS} or {LEADERBOARD}")

    def samples_needed(self, metric: str, difference: float) -> int:
        """How many samples tell apart two means that differ by so much under a metric, in four runs of five.

        With as many methods as are ranked here, and for the model and data whose scores vary most.

        Raises:
            SpecError: the metric ranks fewer than two methods here, or the difference is not positive.
        """
        rows = stats.detectable_on(self.full).filter(pl.col("metric") == metric).rows(named=True)
        if not rows:
            known = ", ".join(stats.detectable_on(self.full)["metric"].unique(maintain_order=True)) or "none does"
            raise SpecError(f"{metric!r} does not rank two methods on two samples here; those that do: {known}")
        try:
            return max(needed(row, difference) for row in rows)
        except ValueError as error:
            raise SpecError(str(error)) from None

    def save(self, path: str | Path, table: str = MEANS) -> Path:
        """Write a table; the file's ending says how: `.csv`, `.parquet`, `.md` or `.tex`.

        Raises:
            SpecError: no such ending or table.
        """
        file = Path(path).expanduser()
        ending = file.suffix.removeprefix(".").lower()
        if ending not in FORMATS:
            raise SpecError(f"{str(path)!r}: a table is written as {', '.join('.' + each for each in FORMATS)}")
        write_atomically(file, FORMATS[ending](self.table(table)))
        return file

    def _tables(self) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
        for (model, data), case in self.full.group_by("model", "data", maintain_order=True):
            where = plain(f"{model} · {data}")
            for (metric,), group in case.group_by("metric", maintain_order=True):
                arrow = "higher is better" if self.facts.sign(str(metric)) > 0 else "lower is better"
                places = decimals(max((abs(m) for m in group["mean"].drop_nulls()), default=0.0))
                rows = [
                    HEAD,
                    *(_cells(row, places, self.facts.bounds(str(metric))) for row in group.iter_rows(named=True)),
                ]
                yield f"{where} · {plain(str(metric))}, {arrow}", rows
            totals = stats.overall(case, self.facts).filter(pl.col("mean_rank").is_not_null())
            if case["metric"].n_unique() > 1 and totals.height:
                rows = [("method", "mean rank", "metrics")]
                rows += [
                    (plain(r["method"]), f"{r['mean_rank']:.2f}", f"{r['metrics']} of {r['of']}")
                    for r in totals.iter_rows(named=True)
                ]
                yield f"{where} · mean rank", rows

    def _notes(self) -> list[str]:
        """What the terminal says below its tables, with the models that it concerns unless it concerns all."""
        cases = list(self.full.group_by("model", "data", maintain_order=True))
        several = self.full["data"].n_unique() > 1
        places: dict[Note, list[str]] = {}
        for (model, data), case in cases:
            for note in notes(case, self.facts):
                places.setdefault(note, []).append(f"{model} · {data}" if several else str(model))
        texts, marks = [], []
        for note, where in places.items():
            if note.mark:
                marks.append(f"{note.mark} {note.text}" if note.mark in (PART, HEAVY_TAIL) else note.text)
            else:
                texts.append(plain(note.text if len(where) == len(cases) else f"{', '.join(where)}: {note.text}"))
        if len(texts) > _NOTES:
            more = f"… and {len(texts) - _NOTES} more; result.leaderboard().full has all reasons"
            texts = [*texts[:_NOTES], more]
        return [*texts, *marks, *map(plain, self.lines)]


def _folded(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _WIDTH))


def _cells(row: Row, places: int | None, bounds: tuple[float, float]) -> tuple[str, ...]:
    half = half_interval(row, places, bounds)
    tail = HEAVY_TAIL if row["heavy_tail"] and half else ""
    span = f" ({rank_set(row)})" if rank_set(row) else ""
    part = PART if row["n_ok"] < row["n"] else ""
    return (
        plain(row["method"]),
        f"{number(row['mean'], places)}{half}{tail}",
        f"{rank(row['rank'])}{span}{part}" if row["ranked"] else "–",
        row["group"] or "",
        _verdict(row),
        count(row["seconds"]),
    )


def _verdict(row: Row) -> str:
    if row["control"]:
        return "control"
    if row["circular"]:
        return "circular"
    if row["mean"] is None:
        return "no score"
    if row["beats_random"] is None:
        return "not tested"
    return "better" if row["beats_random"] else "worse" if row["loses_to_random"] else "not better"


def _aligned(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Lines of a table; method names are cut where a line would be too long."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] = min(widths[0], max(10, _WIDTH - sum(w + 2 for w in widths[1:])))
    for i, (name, *row) in enumerate(rows):
        cut = name if len(name) <= widths[0] else f"{name[: widths[0] - 1]}…"
        cells = [
            cell.ljust(w) if k in (1, 2, 3) else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths[1:], strict=True))
        ]
        yield "  ".join([cut.ljust(widths[0]), *cells]).rstrip()
        if i == 0:
            yield "  ".join("─" * w for w in widths)
