"""Figures of a comparison with a paper: scores side by side, models beside their accuracy, and what the paper's tables ask."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from heatcheck.report.charts import Axis, linear
from heatcheck.report.compare import BesideGroup, HasComparison, groups
from heatcheck.report.drawing import ACCENT, COLOURS, FALLING, INK, LINE, PALE, SOFT, VectorFigure, cut
from heatcheck.report.heat_map import HeatMap, heat_map, heat_map_figure
from heatcheck.report.matrix import ROW, matrix_figure, room
from heatcheck.report.wording import number

THEIRS = COLOURS[1]
_WIDE = 520.0
_FALLING = {-10 - i: colour for i, colour in enumerate(FALLING)}

Interval = tuple[str, float, float | None, float | None]
"""A name, a number, and the ends of its interval."""


def comparison_figures(found: HasComparison) -> dict[str, VectorFigure]:
    """Every figure by its name: those of questions have the question's."""
    figures = {f"beside_{i}": beside_figure(group, f"beside_{i}") for i, group in enumerate(groups(found), 1)}
    models = models_map(found)
    if models is not None:
        figures["models"] = heat_map_figure(models)
    for name, table in found.questions.items():
        if table.height and name in _ASKED:
            figures |= {figure.name: figure for figure in _ASKED[name](table)}
    return figures


def models_map(found: HasComparison) -> HeatMap | None:
    """M4's Figure 1, of its own comparison: models and methods, metric by metric and averaged."""
    if found.paper != "m4" or found.board is None:
        return None
    return heat_map(found.board, found.facts, one_model=True)


def beside_figure(group: BesideGroup, name: str) -> VectorFigure:
    """Our scores with their intervals, and the printed ones."""
    left = room([row.name for row in group.rows])
    top, bottom = 52.0, 52.0 + len(group.rows) * ROW
    drawn = VectorFigure(name, f"{group.title} beside {group.theirs}", left + _WIDE + 150, bottom + 14)

    def x(share: float) -> float:
        return left + share / 100 * _WIDE

    drawn.text(left, 16, f"{group.title} beside {group.theirs}, {group.table}", INK, "title", size=13, bold=True)
    drawn.dot(left + 4, 34, 4.5, ACCENT, "spot")
    drawn.text(left + 14, 38, "ours", SOFT, "soft")
    drawn.dot(left + 58, 34, 4.5, THEIRS, "s1 point")
    drawn.text(left + 68, 38, "theirs", SOFT, "soft")
    drawn.text(left + _WIDE + 12, 38, "ours", SOFT, "soft")
    drawn.text(left + _WIDE + 82, 38, "theirs", SOFT, "soft")
    for i, row in enumerate(group.rows):
        y = top + (i + 0.5) * ROW
        drawn.line(left, y, left + _WIDE, y, LINE, "grid")
        drawn.text(left - 10, y + 4, cut(row.name), INK, "name", anchor="end")
        if row.x_low is not None and row.x_high is not None:
            drawn.line(x(row.x_low), y, x(row.x_high), y, PALE, "reach", 4)
        drawn.dot(x(row.x_theirs), y, 4.5, THEIRS, "s1 point", about=f"{row.name}, theirs: {row.theirs}")
        ours = f"{row.name}, ours: {row.ours}" + (f" ({row.interval})" if row.interval else "")
        drawn.dot(x(row.x), y, 4.5, ACCENT, "spot", about=ours)
        drawn.text(left + _WIDE + 12, y + 4, row.ours + ("†" if row.settings else ""), INK, "title")
        drawn.text(left + _WIDE + 82, y + 4, row.theirs + ("*" if row.doubt else ""), INK, "title")
    return drawn


def interval_figure(name: str, title: str, rows: Sequence[Interval]) -> VectorFigure:
    """Numbers with their intervals, one below the other."""
    axis = linear([0.0, *(v for _, *ends in rows for v in ends if v is not None)], ticks=6)
    left = room([label for label, *_ in rows])
    top, bottom = 30.0, 30.0 + len(rows) * ROW
    drawn = VectorFigure(name, title, left + _WIDE + 80, bottom + 26)
    drawn.text(left, 16, title, INK, "title", size=13, bold=True)
    _grid(drawn, axis, left, top, bottom)
    for i, (label, value, low, high) in enumerate(rows):
        y = top + (i + 0.5) * ROW
        drawn.text(left - 10, y + 4, cut(label), INK, "name", anchor="end")
        told = f"{label}: {number(value)}"
        if low is not None and high is not None:
            drawn.line(left + axis.at(low) / 100 * _WIDE, y, left + axis.at(high) / 100 * _WIDE, y, PALE, "reach", 4)
            told += f" ({number(low)} to {number(high)})"
        drawn.dot(left + axis.at(value) / 100 * _WIDE, y, 4.5, ACCENT, "spot", about=told)
        drawn.text(left + _WIDE + 12, y + 4, number(value), INK, "title")
    return drawn


def _grid(drawn: VectorFigure, axis: Axis, left: float, top: float, bottom: float) -> None:
    for at, label in axis.ticks:
        place = left + at / 100 * _WIDE
        drawn.line(place, top, place, bottom, LINE, "grid")
        drawn.text(place, bottom + 16, label, SOFT, "soft", anchor="middle")
    if axis.low < 0 < axis.high:
        drawn.line(left + axis.at(0) / 100 * _WIDE, top, left + axis.at(0) / 100 * _WIDE, bottom, SOFT, "axis")


def accuracy_figure(table: pl.DataFrame) -> Iterator[VectorFigure]:
    """Every model's best score beside its accuracy, with both intervals; the best method is named."""
    rows = table.filter(pl.col("accuracy").is_not_null()).rows(named=True)
    if not rows:
        return
    ends = ("accuracy_low", "accuracy", "accuracy_high"), ("low", "score", "high")
    across, up = (linear([r[k] for r in rows for k in keys if r[k] is not None]) for keys in ends)
    left, top, high = 62.0, 30.0, 320.0
    names = [f"{r['model']}: {r['best']}" for r in rows]
    drawn = VectorFigure(
        "accuracy", "The best score of every model, and its accuracy", left + _WIDE + 30, top + high + 46
    )

    def at(x: float, y: float) -> tuple[float, float]:
        return left + across.at(x) / 100 * _WIDE, top + (1 - up.at(y) / 100) * high

    drawn.text(left, 16, f"{rows[0]['metric']} of the best method", INK, "title", size=13, bold=True)
    for share, label in up.ticks:
        y = top + (1 - share / 100) * high
        drawn.line(left, y, left + _WIDE, y, LINE, "grid")
        drawn.text(left - 8, y + 4, label, SOFT, "soft", anchor="end")
    for share, label in across.ticks:
        drawn.text(left + share / 100 * _WIDE, top + high + 18, label, SOFT, "soft", anchor="middle")
    drawn.text(left + _WIDE, top + high + 38, "accuracy of the model", SOFT, "soft", anchor="end")
    taken: list[tuple[float, float]] = []
    for i, (row, name) in enumerate(zip(rows, names, strict=True)):
        colour, css = COLOURS[i % len(COLOURS)], f"s{i % len(COLOURS)}"
        x, y = at(row["accuracy"], row["score"])
        if row["accuracy_low"] is not None:
            drawn.path([at(row[k], row["score"]) for k in ("accuracy_low", "accuracy_high")], colour, f"{css} run", 1.5)
        if row["low"] is not None:
            drawn.path([at(row["accuracy"], row[k]) for k in ("low", "high")], colour, f"{css} run", 1.5)
        drawn.dot(
            x, y, 5.5, colour, f"{css} point", about=f"{name} {number(row['score'])}, accuracy {row['accuracy']:.3f}"
        )
        beside = x > left + _WIDE / 2
        word = y - 8
        while any(abs(word - other) < 14 and side == beside for other, side in taken):
            word += 14
        taken.append((word, beside))
        anchor = "end" if beside else "start"
        drawn.text(x - 9 if beside else x + 9, word, cut(name), colour, f"{css} label", anchor=anchor)
    yield drawn


def factor_figures(table: pl.DataFrame) -> Iterator[VectorFigure]:
    """How far each method falls along a factor, a figure per factor."""
    for (factor,), part in table.group_by("factor", maintain_order=True):
        first = part.row(0, named=True)
        title = f"How far {first['metric']} falls with {factor}, {first['from']} to {first['to']}"
        yield interval_figure(f"factors_{factor}", title, _intervals(part, lambda r: r["method"], "fall"))


def stability_figure(table: pl.DataFrame) -> Iterator[VectorFigure]:
    """How alike two settings rank methods."""

    def named(row: Mapping[str, Any]) -> str:
        return " · ".join(filter(None, (row["over"], row["model"], f"{row['a']} and {row['b']}")))

    yield interval_figure("stability", "Rank correlation of two settings", _intervals(table, named, "spearman"))


def _intervals(table: pl.DataFrame, named: Callable[[Mapping[str, Any]], str], value: str) -> list[Interval]:
    known = table.filter(pl.col(value).is_not_null()).iter_rows(named=True)
    return [(named(row), row[value], row["low"], row["high"]) for row in known]


def disagreement_figures(table: pl.DataFrame) -> Iterator[VectorFigure]:
    """1 − Spearman's correlation of the maps of every two methods, a figure per model."""
    for i, ((model,), part) in enumerate(table.group_by("model", maintain_order=True), 1):
        title = f"How far maps disagree on {model}: 1 − Spearman's correlation"
        yield _pairs(f"disagreement_{i}", title, part, "disagreement", lambda v: round(8 * min(v, 1.0)))


def correlation_figures(table: pl.DataFrame) -> Iterator[VectorFigure]:
    """Correlations of every two metrics over models and methods."""
    for kind in ("pearson", "spearman"):
        title = f"{kind.capitalize()}'s correlation of metrics over models and methods"
        yield _pairs(
            f"metric_correlation_{kind}", title, table, kind, lambda v: round(8 * v) if v >= 0 else -10 - round(-4 * v)
        )


def _pairs(name: str, title: str, table: pl.DataFrame, column: str, shade: Callable[[float], int]) -> VectorFigure:
    """A symmetric matrix from a row per pair `a`, `b`."""
    names = list(dict.fromkeys([*table["a"], *table["b"]]))
    cells = {}
    for row in table.iter_rows(named=True):
        i, k, value = names.index(row["a"]), names.index(row["b"]), row[column]
        about = f"{row['a']} and {row['b']}: "
        cell = (
            ("–", -1, f"{about}not defined")
            if value is None
            else (number(value, 2), shade(value), about + number(value))
        )
        cells[i, k] = cells[k, i] = cell
    return matrix_figure(name, title, names, names, cells, shades=_FALLING)


def separation_figure(table: pl.DataFrame) -> Iterator[VectorFigure]:
    """What each perturbation separates: methods from random, and methods from each other."""
    columns = {
        "auroc": "AUROC against random",
        "separable": "pairs told apart",
        "eta_squared": "variance between methods",
    }
    several = [key for key in ("run", "model", "data") if table[key].n_unique() > 1]
    rows = [" · ".join(str(row[key]) for key in (*several, "metric")) for row in table.iter_rows(named=True)]
    cells = {
        (i, k): ("–", -1, "not measured")
        if row[c] is None
        else (number(row[c], 2), round(8 * row[c]), f"{said}: {row[c]:.3f}")
        for i, row in enumerate(table.iter_rows(named=True))
        for k, (c, said) in enumerate(columns.items())
    }
    yield matrix_figure(
        "separation", "What separates methods from random and from each other", rows, list(columns.values()), cells
    )


_ASKED: Mapping[str, Callable[[pl.DataFrame], Iterator[VectorFigure]]] = {
    "accuracy": accuracy_figure,
    "factors": factor_figures,
    "stability": stability_figure,
    "disagreement": disagreement_figures,
    "metric_correlation": correlation_figures,
    "separation": separation_figure,
}
"""Which questions have figures."""
UNTITLED = ("disagreement", "metric_correlation", "separation")
"""Those whose figures do not have their titles inside."""
