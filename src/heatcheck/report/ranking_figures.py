"""Figures of a ranking over cases: κ with its intervals, who beats whom, cases and methods, agreement, ranks by factor."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from heatcheck import stats
from heatcheck.report.charts import Axis, linear
from heatcheck.report.drawing import ACCENT, COLOURS, FALLING, INK, LETTER, LINE, PALE, SOFT, VectorFigure, cut
from heatcheck.report.matrix import ROW, SIZE, matrix_figure, room
from heatcheck.report.ranking_tables import won_of
from heatcheck.report.wording import number
from heatcheck.report.wording import rank as as_rank
from heatcheck.stats.table import Array


def kappa_axis(board: stats.MetaBoard) -> Axis:
    """An axis around κ of all methods, their intervals and 0."""
    ends = [v for c in (*board.kappa, *board.kappa_samples) for v in (c.low, c.value, c.high) if v is not None]
    return linear([*ends, 0.0], ticks=6)


def kappa_figure(board: stats.MetaBoard) -> VectorFigure:
    """κ of every method with both intervals."""
    axis = kappa_axis(board)
    left, width, count = room(board.methods), 620.0, len(board.methods)
    top, bottom = 34.0, 34.0 + count * ROW
    drawn = VectorFigure("kappa", f"κ of {count} methods with intervals", left + width + 90, bottom + 46)

    def x(value: float) -> float:
        return left + axis.at(value) / 100 * width

    for at, label in axis.ticks:
        place = left + at / 100 * width
        drawn.line(place, top, place, bottom, LINE, "grid")
        drawn.text(place, bottom + 16, label, SOFT, "soft", anchor="middle")
    drawn.line(x(0), top, x(0), bottom, SOFT, "axis")
    drawn.text(left, 16, "κ, higher is better", INK, "title", size=13, bold=True)
    legend = "thin: other models and data; thick: other samples" if board.kappa[0].low is not None else "other samples"
    drawn.text(left + width, 16, legend, SOFT, "soft", anchor="end")
    for i, method in enumerate(board.methods):
        y = top + (i + 0.5) * ROW
        wide, inner = board.kappa[i], board.kappa_samples[i]
        drawn.text(left - 10, y + 4, cut(method), INK, "name", anchor="end", bold=i == 0)
        if wide.low is not None and wide.high is not None:
            drawn.line(x(wide.low), y, x(wide.high), y, PALE, "reach", 2)
        if inner.low is not None and inner.high is not None:
            drawn.line(x(inner.low), y, x(inner.high), y, ACCENT, "inner", 5)
        value = float(wide.value or 0.0)
        drawn.dot(x(value), y, 5.5, ACCENT, "spot", about=f"{method}: κ {told(wide)}; samples: {ends_of(inner)}")
        mark = " †" if board.tied[i] else ""
        drawn.text(left + width + 12, y + 4, number(value, 2) + mark, INK, "title", bold=i == 0)
    under = f"† not told apart from the best over other {board.tied_over}" if any(board.tied) else ""
    drawn.text(left, bottom + 36, under, SOFT, "soft")
    return drawn


def told(c: stats.Coefficient, places: int = 2, over: str = "") -> str:
    """A number with its interval, and what the interval is over."""
    ends = ends_of(c, places) + (f" over {over}" if over else "")
    return number(c.value, places) + (f" ({ends})" if c.low is not None else "")


def ends_of(c: stats.Coefficient, places: int = 2) -> str:
    """The ends of an interval; a dash where there is none."""
    return "–" if c.low is None else f"{number(c.low, places)} to {number(c.high, places)}"


def wins_figure(board: stats.MetaBoard) -> VectorFigure:
    """In how many cases each method beats each other one."""
    cells: dict[tuple[int, int], tuple[str, int, str]] = {}
    for i, a in enumerate(board.methods):
        for k, b in enumerate(board.methods):
            n = int(board.cases[i, k])
            if i == k:
                continue
            if not n:
                cells[i, k] = "–", -1, f"no case ranks both {a} and {b}"
                continue
            won = float(board.wins[i, k])
            cells[i, k] = (
                won_of(won, n, board.of),
                round(8 * won / n),
                f"{a} beats {b} in {as_rank(won)} of {n} cases, ties half",
            )
    return matrix_figure("wins", "In how many cases the row beats the column", board.methods, board.methods, cells)


def cases_figure(table: stats.CaseTable, methods: Sequence[str]) -> VectorFigure:
    """The rank of every method in every case."""
    order = [table.methods.index(m) for m in methods]
    why = {(case, method): reason for case, method, reason in table.missing}
    cells, bold = {}, set()
    for i, case in enumerate(table.cases):
        count = int((~np.isnan(table.ranks[i])).sum())
        for k, m in enumerate(order):
            rank, mean = float(table.ranks[i, m]), float(table.means[i, m])
            if math.isnan(rank):
                cells[i, k] = "–", -1, f"{methods[k]}, {case.name}: {why.get((case, methods[k]), 'not ranked')}"
                continue
            shade = round(8 * (count - rank) / max(count - 1, 1))
            score = number(mean, 2 if case.protocol.unit else 3) + (
                f" {case.protocol.unit}" if case.protocol.unit else ""
            )
            cells[i, k] = (
                as_rank(rank),
                shade,
                f"{methods[k]}, {case.name}: rank {as_rank(rank)} of {count}, mean {score}",
            )
            if rank == np.nanmin(table.ranks[i]):
                bold.add((i, k))
    title = f"Ranks of {len(methods)} methods in {len(table.cases)} cases"
    return matrix_figure(
        "cases", title, [case.name for case in table.cases], list(methods), cells, bold=frozenset(bold)
    )


def agreement_figure(table: stats.CaseTable, taus: Array) -> VectorFigure:
    """Kendall's τ of every pair of cases, numbered as in the rows."""
    names = [f"{case.name}  {i + 1}" for i, case in enumerate(table.cases)]
    cells = {}
    shades = {-10 - i: colour for i, colour in enumerate(FALLING)}
    for i, a in enumerate(table.cases):
        for k, b in enumerate(table.cases):
            if i == k:
                continue
            tau = float(taus[i, k])
            if math.isnan(tau):
                cells[i, k] = "–", -1, f"{a.name} and {b.name}: not defined"
                continue
            shade = round(8 * tau) if tau >= 0 else -10 - round(4 * -tau)
            cells[i, k] = number(tau, 2), shade, f"{a.name} and {b.name}: τ {number(tau, 2)}"
    numbers = [str(i + 1) for i in range(len(names))]
    return matrix_figure("agreement", f"Kendall's τ between {len(names)} cases", names, numbers, cells, shades=shades)


def factor_figure(found: stats.FactorRankings) -> VectorFigure:
    """The rank of every method at every level of a factor, one line per method."""
    levels, count = [cut(level.level, 30) for level in found.levels], len(found.methods)
    left, names = 40.0, room(found.methods)
    step = max(90.0, min(220.0, 760 / max(len(levels) - 1, 1)))
    width, top = step * max(len(levels) - 1, 1), 14.0
    slanted = max(map(len, levels)) * SIZE * LETTER > step - 10
    foot = 24 + (max(map(len, levels)) * SIZE * LETTER * 0.5 if slanted else 12)
    bottom = top + count * ROW
    drawn = VectorFigure(
        f"ranks_by_{found.factor}", f"Ranks by {found.factor}", left + width + names + 10, bottom + foot + 10
    )

    def y(rank: float) -> float:
        return top + (rank - 0.5) * ROW

    def x(level: int) -> float:
        return left + step * level

    for r in range(1, count + 1):
        drawn.line(left, y(r), left + width, y(r), LINE, "grid")
        drawn.text(left - 14, y(r) + 4, str(r), SOFT, "soft", anchor="end")
    for i, name in enumerate(levels):
        anchor = "start" if slanted else "start" if i == 0 else "end" if i == len(levels) - 1 else "middle"
        turn = 28.0 if slanted else 0.0
        drawn.text(x(i), bottom + 16, name, INK, "title", anchor=anchor, turn=turn)
    ends = []
    for k, method in enumerate(found.methods):
        colour, css = COLOURS[k % len(COLOURS)], f"s{k % len(COLOURS)}"
        ranks = [float(level.ranks[k]) for level in found.levels]
        known = [(i, r) for i, r in enumerate(ranks) if not math.isnan(r)]
        drawn.path([(x(i), y(r)) for i, r in known], colour, f"{css} run")
        for i, place in known:
            level = found.levels[i]
            about = f"{method}, {level.level}: rank {as_rank(place)}, mean rank {number(float(level.mean_ranks[k]), 2)}"
            drawn.dot(x(i), y(place), 4.5, colour, f"{css} point", about=about)
        gone = math.isnan(ranks[-1])
        ends.append(
            (
                gone,
                known[-1][1] if known else count,
                k,
                method,
                SOFT if gone else colour,
                "soft" if gone else f"{css} label",
            )
        )
    for row, (_, _, _, method, colour, css) in enumerate(sorted(ends)):
        drawn.text(left + width + 14, y(row + 1) + 4, cut(method), colour, css)
    return drawn


_PANEL, _TALL, _GAP = 236.0, 150.0, 26.0
_DOTS = 1500  # more points than these are lines alone


def share_figure(found: pl.DataFrame, methods: Sequence[str], random: str) -> VectorFigure:
    """Accuracy by share removed: a panel for each case, a line for each method, and random's in grey.

    Args:
        found: `model`, `data`, `protocol`, `method`, `share`, and `accuracy` with its interval in per cent.
        methods: in the order of their colours.
        random: the random control's name.
    """
    cases = list(found.group_by("model", "data", "protocol", maintain_order=True))
    columns = min(4, max(2, len(cases)))
    known = {str(m) for m in found["method"].unique()}
    names = [m for m in (*methods, random) if m in known]
    left, head = 36.0, 34.0
    wide = left + columns * (_PANEL + _GAP)
    places, foot = _legend_places(names, wide)
    lines = -(-len(cases) // columns)
    high = lines * (_TALL + head + 34)
    drawn = VectorFigure("accuracy_by_share", "Accuracy by share removed", wide, high + foot)
    dotted = found.filter(pl.col("method").is_in(names)).height <= _DOTS
    for i, (key, part) in enumerate(cases):
        x0, y0 = left + i % columns * (_PANEL + _GAP), i // columns * (_TALL + head + 34) + head
        model, data, protocol = map(str, key)
        drawn.text(x0, y0 - 19, cut(protocol, 34), INK, "title", bold=True)
        drawn.text(x0, y0 - 6, cut(f"{model} · {data}", 36), SOFT, "soft", size=10.5)
        _share_axes(drawn, x0, y0, numbered=i % columns == 0)
        for k, method in reversed(list(enumerate(names))):
            own = part.filter(pl.col("method") == method).sort("share")
            at = [(x0 + s * _PANEL, y0 + (1 - a / 100) * _TALL) for s, a in own.select("share", "accuracy").iter_rows()]
            colour, css = _line_colour(k, method == random)
            drawn.path(at, colour, css if method == random else f"{css} run", 1.6)
            if not dotted:
                continue
            for (x, y), row in zip(at, own.iter_rows(named=True), strict=True):
                ends = "" if row["low"] is None else f" ({number(row['low'], 0)} to {number(row['high'], 0)})"
                about = f"{method}, {protocol}: {number(row['accuracy'], 0)} %{ends} at {row['share']:.0%} removed"
                drawn.dot(x, y, 2.2, colour, "soft" if method == random else f"{css} point", about=about)
    for k, (method, (x, y)) in enumerate(zip(names, places, strict=True)):
        colour, css = _line_colour(k, method == random)
        drawn.line(x, high + y - 4, x + 16, high + y - 4, colour, css if method == random else f"{css} run", 2.5)
        drawn.text(x + 22, high + y, cut(method), INK, "name")
    return drawn


def _line_colour(k: int, soft: bool) -> tuple[str, str]:
    return (SOFT, "axis") if soft else (COLOURS[k % len(COLOURS)], f"s{k % len(COLOURS)}")


def _share_axes(drawn: VectorFigure, x0: float, y0: float, *, numbered: bool) -> None:
    """Lines at every quarter of accuracy and half of the shares."""
    for percent in (0, 25, 50, 75, 100):
        y = y0 + (1 - percent / 100) * _TALL
        drawn.line(x0, y, x0 + _PANEL, y, LINE, "grid")
        if numbered and percent % 50 == 0:
            drawn.text(x0 - 6, y + 4, str(percent), SOFT, "soft", anchor="end")
    for percent in (0, 50, 100):
        x = x0 + percent / 100 * _PANEL
        anchor = {0: "start", 50: "middle", 100: "end"}[percent]
        drawn.text(x, y0 + _TALL + 14, f"{percent} %", SOFT, "soft", anchor=anchor)


def _legend_places(names: Sequence[str], wide: float) -> tuple[list[tuple[float, float]], float]:
    """Where each name of a legend goes, in lines of a width, and how high they all are."""
    left, y = 36.0, 18.0
    places, x = [], left
    for name in names:
        need = 22 + room([name])
        if x > left and x + need > wide:
            x, y = left, y + 20
        places.append((x, y))
        x += need + 12
    return places, y + 12
