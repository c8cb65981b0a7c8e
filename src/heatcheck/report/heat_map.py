"""M4's figure: a heat map of models and methods per metric, and their average."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from heatcheck import stats
from heatcheck.report.drawing import INK, LINE, PAPER, SOFT, VectorFigure, cut
from heatcheck.report.wording import decimals, number
from heatcheck.stats import Facts

SHADES = ("#f6f4ef", "#e3eeea", "#cbe3dd", "#aed6cf", "#8cc6be", "#66b2aa", "#3f9a93", "#1d7d78", "#075f5c")
"""From the worst cell of a panel to its best."""
_WIDTH = 1080  # of the figure; more only where one panel needs it
_CELL, _ROW, _GAP, _TITLE, _FOOT = 56, 25, 30, 44, 26
_LETTER = 6.7  # width of a letter of a method's name
_BOLD = 8.2  # width of a letter of a panel's title
_SLANTED = 5.0  # height that a letter of a model's name takes


@dataclass(frozen=True)
class HeatCell:
    """One model under one method; `x` and `y` are the corner of its rectangle.

    Args:
        x: left edge.
        y: upper edge.
        text: its number; a dash where it has none.
        shade: from 0 (worst) to 8 (best); −1 where it is not compared.
        best: whether no method is better on its model.
        about: what is said of it under the pointer.
    """

    x: float
    y: float
    text: str
    shade: int
    best: bool
    about: str


@dataclass(frozen=True)
class HeatPanel:
    """One metric, or the average.

    Args:
        title: its name.
        way: its direction, in words.
        x: left edge of its cells.
        y: upper edge of its cells.
        columns: models, each with the place of its name.
        cells: all of them.
    """

    title: str
    way: str
    x: float
    y: float
    columns: tuple[tuple[float, str], ...]
    cells: tuple[HeatCell, ...]


@dataclass(frozen=True)
class HeatMap:
    """The whole figure, in pixels.

    Args:
        width: of the figure.
        height: of the figure.
        head: above the cells of a panel.
        panels: the average first, then metric by metric.
        names: methods, each with its place: right edge, base line.
        blanks: why cells have no number or are not compared, with the cells that it concerns.
        averaged: the metrics that are averaged.
        summed: the metrics of M4's raw sum; empty where it is not shown.
    """

    width: float
    height: float
    head: float
    panels: tuple[HeatPanel, ...]
    names: tuple[tuple[float, float, str], ...]
    blanks: tuple[tuple[str, str], ...]
    averaged: tuple[str, ...]
    summed: tuple[str, ...]


@dataclass(frozen=True)
class _Content:
    """A panel before it has a place: values by model and method, better ones higher, and what the texts are multiples of."""

    title: str
    way: str
    texts: Mapping[tuple[str, str], str]
    goodness: Mapping[tuple[str, str], float]
    about: Mapping[tuple[str, str], str]
    unit: str = ""


def heat_map(board: pl.DataFrame, run: Mapping[str, Any], *, one_model: bool = False) -> HeatMap | None:
    """The figure of a run of several models, or of one with M4's settings; None for others.

    Args:
        board: what `heatcheck.stats.leaderboard` returned.
        run: the run's facts.
        one_model: whether one model is enough, whatever the settings.
    """
    facts = Facts.of(run)
    cells = stats.model_by_method(board, facts, run.get("skipped", ()))
    several = cells["data"].n_unique() > 1
    name = pl.format("{} · {}", "model", "data") if several else pl.col("model")
    cells = cells.with_columns(case=name)
    order = {m["name"]: i for i, m in enumerate(run.get("models", ()))}
    cases = sorted(cells.select("case", "model").unique().rows(), key=lambda row: (order.get(row[1], len(order)), row))
    models = [case for case, _ in cases]
    enough = one_model or str(run.get("profile", "")).startswith("m4")
    if not models or (len(models) < 2 and not enough):
        return None
    known = {m["name"]: m for m in run.get("metrics", ())}
    metrics = [m for m in known if m in set(cells.filter(pl.col("z").is_not_null())["metric"])]
    counted = [
        m for m in metrics if m not in facts.outside_mean_rank and known[m].get("family") != "composite"
    ] or metrics
    if not metrics:
        return None
    parts = _parts({m: str(known[m].get("id")) for m in metrics})
    average = stats.averaged_z(cells, counted).join(
        cells.select("model", "data", "case").unique(), on=["model", "data"]
    )
    best = {
        r["method"]: r["mean_z"] for r in average.group_by("method").agg(pl.col("mean_z").mean()).iter_rows(named=True)
    }
    methods = sorted(best, key=lambda m: (best[m] is None, -(best[m] or 0.0), m))
    contents = [_average(average), *(_metric(cells.filter(pl.col("metric") == m), m, facts) for m in metrics)]
    if parts:
        contents.insert(1, _sum(stats.raw_sum(cells, facts, parts), cells, several))
    if len(metrics) == 1:
        contents = contents[1:]
    return _laid_out(contents, models, methods, _blanks(cells, metrics, models), tuple(counted), tuple(parts))


def heat_map_figure(found: HeatMap) -> VectorFigure:
    """The figure as a drawing."""
    drawn = VectorFigure("models", f"Models and methods, {len(found.panels)} panels", found.width, found.height)
    for x, y, name in found.names:
        drawn.text(x, y, name, INK, "name", anchor="end")
    for panel in found.panels:
        drawn.text(panel.x, panel.y - found.head + 16, panel.title, INK, "title", size=13.5, bold=True)
        drawn.text(panel.x, panel.y - found.head + 32, panel.way, SOFT, "soft")
        for x, name in panel.columns:
            drawn.text(x - 2, panel.y - 7, name, SOFT, "soft", turn=-48)
        for c in panel.cells:
            compared = c.shade >= 0
            fill = SHADES[c.shade] if compared else PAPER
            edge = "" if compared else LINE
            drawn.rect(c.x + 1, c.y + 1, _CELL - 2, _ROW - 2, fill, f"q{c.shade}", stroke=edge, about=c.about)
            ink, css = (PAPER if c.shade > 5 else INK, f"v{c.shade}") if compared else (SOFT, "soft")
            drawn.text(c.x + _CELL / 2, c.y + 16.5, c.text, ink, css, anchor="middle", bold=c.best)
    return drawn


def _parts(ids: Mapping[str, str]) -> list[str]:
    """The metrics of M4's sum, by their ids; none where one is missing that M4 measures on pictures and on texts."""
    first = {id: name for name, id in reversed(list(ids.items())) if id in stats.M4_PARTS}
    return [first[id] for id in stats.M4_PARTS if id in first] if first.keys() >= {"morf", "abpc", "infidelity"} else []


def _average(average: pl.DataFrame) -> _Content:
    rows = [r for r in average.iter_rows(named=True) if r["mean_z"] is not None]
    keys = [(r["case"], r["method"]) for r in rows]
    return _Content(
        "average",
        "mean z-score ↑",
        {
            k: f"{number(r['mean_z'], 2)}{'' if r['metrics'] == r['of'] else '*'}"
            for k, r in zip(keys, rows, strict=True)
        },
        {k: r["mean_z"] for k, r in zip(keys, rows, strict=True)},
        {
            k: f"mean z-score over {r['metrics']} of {r['of']} metrics: {number(r['mean_z'], 3)}"
            for k, r in zip(keys, rows, strict=True)
        },
    )


def _metric(cells: pl.DataFrame, metric: str, facts: Facts) -> _Content:
    rows = list(cells.iter_rows(named=True))
    largest = max((abs(r["mean"]) for r in rows if r["mean"] is not None), default=0.0)
    places, unit = decimals(largest), _thousands(largest)
    texts, goodness, about = {}, {}, {}
    for r in rows:
        key = r["case"], r["method"]
        about[key] = r["reason"] or f"{number(r['mean'], places)}, z-score {number(r['z'], 2)}"
        if r["mean"] is not None:
            texts[key] = number(r["mean"] / unit, decimals(largest / unit))
        if r["z"] is not None:
            goodness[key] = facts.sign(metric) * r["mean"]
    way = "higher is better ↑" if facts.sign(metric) > 0 else "lower is better ↓"
    return _Content(metric, way, texts, goodness, about, "" if unit == 1 else f", {_power(unit)}")


def _thousands(largest: float) -> float:
    """The power of a thousand that numbers up to `largest` are given in, so that they fit into a cell; 1 for most.

    >>> _thousands(0.5), _thousands(0.0005), _thousands(12345.0)
    (1.0, 0.001, 1000.0)
    """
    if not math.isfinite(largest) or largest == 0 or 0.01 <= largest < 1e4:
        return 1.0
    return 10.0 ** (3 * math.floor((math.log10(largest) + 1) / 3))


def _power(unit: float) -> str:
    """A power of ten.

    >>> _power(0.001)
    '10⁻³'
    """
    return "10" + str(round(math.log10(unit))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _sum(sums: pl.DataFrame, cells: pl.DataFrame, several: bool) -> _Content:
    rows = list(sums.iter_rows(named=True))
    keys = [(f"{r['model']} · {r['data']}" if several else r["model"], r["method"]) for r in rows]
    places = decimals(max((abs(r["sum"]) for r in rows), default=0.0))
    every = {(r["case"], r["method"]) for r in cells.iter_rows(named=True)}
    about = {key: "one of the summed metrics is missing" for key in every}
    return _Content(
        "M4's raw sum",
        "higher is better ↑",
        {k: number(r["sum"], places) for k, r in zip(keys, rows, strict=True)},
        {k: r["sum"] for k, r in zip(keys, rows, strict=True)},
        about | {k: number(r["sum"], places) for k, r in zip(keys, rows, strict=True)},
    )


def _blanks(cells: pl.DataFrame, metrics: Sequence[str], models: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Reasons, each with the cells it concerns: the method alone where it is so on all models and metrics."""
    where: dict[str, dict[str, set[tuple[str, str]]]] = {}
    for r in cells.filter(pl.col("metric").is_in(list(metrics)) & (pl.col("reason") != "")).iter_rows(named=True):
        where.setdefault(r["reason"], {}).setdefault(r["method"], set()).add((r["case"], r["metric"]))
    found = []
    for reason, methods in where.items():
        groups: dict[frozenset[tuple[str, str]], list[str]] = {}
        for method, places in methods.items():
            groups.setdefault(frozenset(places), []).append(method)
        for cells_of, names in groups.items():
            on = _several((case for case, _ in cells_of), models, "on")
            under = _several((metric for _, metric in cells_of), metrics, "under")
            found.append((", ".join(names) + on + under, reason))
    return tuple(found)


def _several(some: Iterable[str], every: Sequence[str], word: str) -> str:
    named = set(some)
    return "" if named == set(every) else f" {word} " + ", ".join(v for v in every if v in named)


def _laid_out(
    contents: Sequence[_Content],
    models: Sequence[str],
    methods: Sequence[str],
    blanks: tuple[tuple[str, str], ...],
    averaged: tuple[str, ...],
    summed: tuple[str, ...],
) -> HeatMap:
    """Panels in rows as wide as the figure; each row has the methods' names at its left."""
    gutter = 14 + _LETTER * min(34, max(map(len, methods), default=0))
    head = _TITLE + 10 + _SLANTED * min(26, max(map(len, models)))
    words = max(max(_BOLD * len(c.title + c.unit), _LETTER * len(c.way)) for c in contents)
    wide, high = max(len(models) * _CELL, words) + _GAP, head + len(methods) * _ROW + _FOOT
    across = max(1, int((_WIDTH - gutter) // wide))
    panels, names = [], []
    for i, content in enumerate(contents):
        x, y = gutter + i % across * wide, i // across * high + head
        if i % across == 0:
            names += [(gutter - 9, y + (k + 0.5) * _ROW + 4, cut(method, 34)) for k, method in enumerate(methods)]
        columns = tuple((x + (k + 0.5) * _CELL, cut(model, 26)) for k, model in enumerate(models))
        panels.append(
            HeatPanel(
                content.title + content.unit, content.way, x, y, columns, tuple(_cells(content, models, methods, x, y))
            )
        )
    rows = -(-len(contents) // across)
    width = gutter + min(across, len(contents)) * wide + _SLANTED * min(26, max(map(len, models)))
    return HeatMap(round(width), round(rows * high), head, tuple(panels), tuple(names), blanks, averaged, summed)


def _cells(content: _Content, models: Sequence[str], methods: Sequence[str], x: float, y: float) -> Iterable[HeatCell]:
    low, high = min(content.goodness.values(), default=0.0), max(content.goodness.values(), default=0.0)
    for j, model in enumerate(models):
        best = max((content.goodness[model, m] for m in methods if (model, m) in content.goodness), default=None)
        for i, method in enumerate(methods):
            key = model, method
            good = content.goodness.get(key)
            shade = -1 if good is None else round(8 * (good - low) / (high - low)) if high > low else 4
            about = f"{method} on {model}, {content.title}: {content.about.get(key, 'no metric compares it')}"
            yield HeatCell(
                x + j * _CELL,
                y + i * _ROW,
                content.texts.get(key, "–"),
                shade,
                good is not None and good == best,
                about,
            )
