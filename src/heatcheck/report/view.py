"""A run as the page shows it: answers, tables, charts and exhibits, all decided here, none in the template."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from heatcheck.report import wording
from heatcheck.report.charts import Axis, CostChart, CurveChart, cost_chart, curve_chart, scale
from heatcheck.report.exhibits import Exhibit, Exhibits
from heatcheck.report.multiverse import MultiverseView, multiverse_view
from heatcheck.report.source import RunSource
from heatcheck.stats import (
    Facts,
    Rankings,
    agreement,
    concordance,
    differences,
    overall,
    rankings,
    rankings_missing,
    universes_of,
)

COLOURS = 8
ALPHA = 0.05
EXTREMES = 3  # best and worst samples shown per cell
_STRIP = 160  # points of a score distribution
_ROWS = 200  # rows of a table of gaps
_GALLERY_IMAGES = 480
_DRILL_IMAGES = 320
_DRILL_EDGE = 112
_SILENT = "undefined: the score is not finite"

Row = Mapping[str, Any]
Pairs = dict[tuple[str, str, str, str, str], Row]


@dataclass(frozen=True)
class MethodView:
    """A method's name and looks, the same everywhere on the page.

    Args:
        index: its place among the case's methods.
        name: its full name.
        control: shown for comparison only.
        slot: its colour; −1 for controls.
        dash: its line style, where colours repeat.
    """

    index: int
    name: str
    control: bool
    slot: int
    dash: int

    @property
    def head(self) -> str:
        """The name without its parameters."""
        return self.name.partition("(")[0] or self.name

    @property
    def rest(self) -> str:
        """The parameters, with their brackets."""
        return self.name[len(self.head) :]

    @property
    def look(self) -> str:
        """Its CSS classes in charts."""
        return "sc" if self.slot < 0 else f"s{self.slot} d{self.dash}"


@dataclass(frozen=True)
class LeaderboardRow:
    """A row of a leaderboard; `x`, `x_low`, `x_high` are positions in per cent."""

    method: MethodView
    raw: Row
    mean: str
    interval: str
    rank: str
    rank_interval: str
    x: float | None
    x_low: float | None
    x_high: float | None
    verdict: str
    p: str
    shade: int | None

    @property
    def partial(self) -> bool:
        """Whether some samples have no score."""
        return bool(self.raw["n_ok"] < self.raw["n"])


@dataclass(frozen=True)
class MetricView:
    """One metric for one model and data set.

    Args:
        name: its full name.
        about: what the run's facts say of it.
        higher: its direction.
        entries: leaderboard rows, best first, unranked and controls in their place.
        axis: of the interval plot.
        chance: low, mean and high of the random control, in per cent.
        chance_mean: the same mean as text.
        best: methods that share the best rank.
        tied: ranked methods not distinguishable from the best.
        beaten: methods not significantly better than random; None where that was not tested.
        worse: methods significantly worse than random.
        least_p: the smallest p-value that a test against random could give here; None where there is none.
        counts: whether it counts in the mean rank.
        circular: methods that ask this metric's own questions.
        curves: deletion curves, where stored.
        shown: methods whose curves are visible at first.
        cost: cost against faithfulness.
    """

    name: str
    about: Row
    higher: bool
    entries: tuple[LeaderboardRow, ...]
    axis: Axis
    chance: tuple[float | None, float, float | None] | None
    chance_mean: str
    best: tuple[MethodView, ...]
    tied: tuple[MethodView, ...]
    beaten: tuple[MethodView, ...] | None
    worse: tuple[MethodView, ...]
    least_p: float | None
    counts: bool
    circular: tuple[MethodView, ...]
    curves: CurveChart | None
    shown: frozenset[str]
    cost: CostChart | None

    @property
    def within(self) -> str:
        """Its range, in words."""
        low, high = (*(self.about.get("within") or ()), None, None)[:2]
        if low is not None and high is not None:
            return f"scores lie between {_bound(low)} and {_bound(high)}"
        if low is not None:
            return f"scores are at least {_bound(low)}"
        return f"scores are at most {_bound(high)}" if high is not None else "scores have no bound"

    def entry(self, method: MethodView) -> LeaderboardRow | None:
        """A method's row."""
        return next((e for e in self.entries if e.method is method), None)


@dataclass(frozen=True)
class OverallRow:
    """A method over all metrics."""

    method: MethodView
    mean_rank: str
    wins: int
    shared: int
    metrics: int
    of: int
    raw: float | None


@dataclass(frozen=True)
class Shown:
    """A sample in the gallery, under every method that has a map."""

    index: int
    name: str
    said: Mapping[str, str]
    input: Exhibit | None
    maps: tuple[tuple[MethodView, Exhibit], ...]


@dataclass(frozen=True)
class Case:
    """One model on one data set.

    Args:
        model: the model.
        data: the data set.
        label: how the page calls the pair.
        n: samples that any method or metric has.
        methods: best overall first, controls last.
        metrics: in the order of the run's facts.
        overall: over all metrics; empty where nothing is ranked.
        agreement: τ of two metrics' rankings, by their indices.
        concordance: Kendall's W over all metrics, as text.
        gallery: inputs under all methods.
        gaps: scores that are not ok, counted.
        ok: how many scores are ok.
        total: how many there should be.
        multiverse: the rankings of all universes, where the run is one question asked in many ways.
    """

    model: str
    data: str
    label: str
    n: int
    methods: tuple[MethodView, ...]
    metrics: tuple[MetricView, ...]
    overall: tuple[OverallRow, ...]
    agreement: Mapping[tuple[int, int], float]
    concordance: str
    gallery: tuple[Shown, ...]
    gaps: tuple[Row, ...]
    ok: int
    total: int
    multiverse: MultiverseView | None = None

    @property
    def winner(self) -> OverallRow | None:
        """The best mean rank, where at least two methods were ranked."""
        return next((o for o in self.overall if o.raw is not None), None)

    @property
    def outside_mean_rank(self) -> tuple[MetricView, ...]:
        """Metrics that rank methods and do not count in the mean rank."""
        return tuple(m for m in self.metrics if m.best and not m.counts)

    @property
    def least_p(self) -> str:
        """Where the samples are too few for any method to differ from random: the smallest p-value possible."""
        possible = [m.least_p for m in self.metrics if m.least_p is not None]
        return f"{min(possible):.2g}" if possible and min(possible) > ALPHA else ""

    @property
    def hopeless(self) -> tuple[MethodView, ...]:
        """Methods that no metric finds better than random."""
        tested = [m.beaten for m in self.metrics if m.beaten is not None]
        return tuple(m for m in self.methods if not m.control and tested and all(m in beaten for beaten in tested))


@dataclass(frozen=True)
class View:
    """The whole page.

    Args:
        title: its headline.
        facts: the run's facts.
        cases: one per model and data set.
        skips: cells that were not run, with the reason.
        bad_samples: samples that could not be used.
        data: what the page's script reads.
    """

    title: str
    facts: Mapping[str, Any]
    cases: tuple[Case, ...]
    skips: tuple[Row, ...]
    bad_samples: tuple[Row, ...]
    data: dict[str, Any] = field(repr=False)


def build(source: RunSource, title: str | None = None) -> View:
    """Everything the page shows, computed from stored numbers."""
    run = source.facts
    facts = Facts.of(run)
    scores = source.scores()
    board, pairs = source.leaderboard(), differences(scores, facts)
    totals = overall(board, facts)
    samples = source.samples()
    pairs_of: Pairs = {
        (row["a"], row["b"], row["model"], row["data"], row["metric"]): row for row in pairs.iter_rows(named=True)
    }
    verses = _multiverses(run, facts, scores)
    keys = _cases(run, board)
    several = len({data for _, data in keys}) > 1
    exhibits = Exhibits(source)
    cases: list[Case] = []
    script: list[dict[str, Any]] = []
    for model, data in keys:
        here = (pl.col("model") == model) & (pl.col("data") == data)
        mine = scores.filter(here)
        methods = _methods(run, facts, board.filter(here), totals.filter(here))
        metrics = _metrics(source, run, facts, board.filter(here), pairs_of, model, data, methods, mine)
        known = _known(samples, model)
        people = sorted(mine["sample"].drop_nulls().unique().to_list())
        gallery = _gallery(source, exhibits, model, people, methods, known, max(len(keys), 1))
        cases.append(
            Case(
                model=model,
                data=data,
                label=f"{model} · {data}" if several else model,
                n=len(people),
                methods=methods,
                metrics=metrics,
                overall=_overall(totals.filter(here), methods),
                agreement=_agreement(board.filter(here), metrics),
                concordance=_concordance(board.filter(here)),
                gallery=gallery,
                gaps=_gaps(mine),
                ok=mine.filter(_ok()).height,
                total=mine.height,
                multiverse=_multiverse(run, verses, model, data, methods),
            )
        )
        script.append(_script(cases[-1], mine, people, known, exhibits, max(len(keys), 1)))
    return View(
        title=title or str(run.get("name") or "Heatcheck"),
        facts=run,
        cases=tuple(cases),
        skips=tuple(run.get("skipped", ())),
        bad_samples=tuple(samples.filter(pl.col("status") != "ok").sort("model", "sample").iter_rows(named=True)),
        data={"cases": script},
    )


def _multiverses(run: Mapping[str, Any], facts: Facts, scores: pl.DataFrame) -> list[Rankings]:
    record = run.get("multiverse")
    return rankings(scores, facts, universes_of(record)) if record else []


def _multiverse(
    run: Mapping[str, Any], verses: Sequence[Rankings], model: str, data: str, methods: Sequence[MethodView]
) -> MultiverseView | None:
    for found in verses:
        if (found.model, found.data) == (model, data):
            return multiverse_view(
                found, str(run["multiverse"]["base"]), rankings_missing(run["multiverse"], [found]), methods
            )
    return None


def _ok() -> pl.Expr:
    return ((pl.col("status") == "ok") & pl.col("score").is_finite()).fill_null(False)


def _bound(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _cases(run: Mapping[str, Any], board: pl.DataFrame) -> list[tuple[str, str]]:
    """Models in the order of the study, each with its data sets; what was planned and has no row comes too."""
    found = board.select("model", "data").unique().sort("model", "data").rows()
    order = {m["name"]: i for i, m in enumerate(run.get("models", ()))}
    data = str(run.get("data", {}).get("name", ""))
    found += [(name, data) for name in order if name not in {model for model, _ in found}]
    return sorted(found, key=lambda key: (order.get(key[0], len(order)), key))


def _methods(run: Mapping[str, Any], facts: Facts, board: pl.DataFrame, totals: pl.DataFrame) -> tuple[MethodView, ...]:
    declared = [m["name"] for m in run.get("methods", ())]
    present = set(board["method"].to_list())
    ranked = [name for name in totals["method"].to_list() if name in present]
    rest = [name for name in [*declared, *sorted(present)] if name in present and name not in ranked]
    names = list(dict.fromkeys([*ranked, *rest]))
    names.sort(key=facts.is_control)
    found: list[MethodView] = []
    for i, name in enumerate(names):
        control = facts.is_control(name)
        found.append(MethodView(i, name, control, -1 if control else i % COLOURS, i // COLOURS % 3))
    return tuple(found)


def _metrics(
    source: RunSource,
    run: Mapping[str, Any],
    facts: Facts,
    board: pl.DataFrame,
    pairs: Pairs,
    model: str,
    data: str,
    methods: Sequence[MethodView],
    scores: pl.DataFrame,
) -> tuple[MetricView, ...]:
    declared = {m["name"]: m for m in run.get("metrics", ())}
    present = set(board["metric"].to_list())
    looks = {m.name: m for m in methods}
    found: list[MetricView] = []
    for name in [n for n in declared if n in present]:
        rows = board.filter(pl.col("metric") == name).rows(named=True)
        ends = [float(r[k]) for r in rows for k in ("mean", "low", "high") if r[k] is not None]
        axis = scale(ends)
        ranked = [r for r in rows if r["ranked"]]
        entries = tuple(_entry(r, looks[r["method"]], axis, len(ranked)) for r in rows)
        top = min((r["rank"] for r in ranked), default=None)
        best = [r["method"] for r in ranked if r["rank"] == top]
        tied = [
            r["method"]
            for r in ranked
            if r["method"] not in best and not _differ(pairs, best[0], r["method"], (model, data, name))
        ]
        tested = [r for r in rows if not r["control"] and r["beats_random"] is not None]
        chance_ok = next((r["n_ok"] for r in rows if r["method"] == facts.random), 0)
        common = max((min(r["n_ok"], chance_ok) for r in tested), default=0)
        chance = next((e for e in entries if e.method.name == facts.random and e.x is not None), None)
        ids = scores["sample"].unique()
        chart = curve_chart(source.curves(model, name).filter(pl.col("sample").is_in(ids.implode())), list(looks))
        order = [r["method"] for r in ranked]
        found.append(
            MetricView(
                name=name,
                about=declared[name],
                higher=facts.sign(name) > 0,
                entries=entries,
                axis=axis,
                chance=None if chance is None or chance.x is None else (chance.x_low, chance.x, chance.x_high),
                chance_mean=chance.mean if chance else "–",
                best=tuple(looks[m] for m in best),
                tied=tuple(looks[m] for m in tied),
                beaten=tuple(looks[r["method"]] for r in tested if not r["beats_random"]) if tested else None,
                worse=tuple(looks[r["method"]] for r in tested if r["loses_to_random"]),
                least_p=min(1.0, len(tested) * 2.0**-common) if tested else None,
                counts=name not in facts.outside_mean_rank,
                circular=tuple(looks[r["method"]] for r in rows if r["circular"]),
                curves=chart,
                shown=frozenset([*order[:4], *order[-1:], facts.random]) if len(order) > 6 else frozenset(looks),
                cost=cost_chart(rows, facts.sign(name) > 0),
            )
        )
    return tuple(found)


def _entry(row: Row, method: MethodView, axis: Axis, ranked: int) -> LeaderboardRow:
    places = axis.places
    low, high = row["low"], row["high"]
    verdict = "" if row["beats_random"] is None else "better" if row["beats_random"] else "not better"
    verdict = "worse" if row["loses_to_random"] else verdict
    shade = None
    if row["ranked"]:
        shade = round(8 * (1 - (row["rank"] - 1) / (ranked - 1))) if ranked > 1 else 8
    span = f"{wording.rank(row['rank_low'])}–{wording.rank(row['rank_high'])}"
    return LeaderboardRow(
        method=method,
        raw=row,
        mean=wording.number(row["mean"], places),
        interval="" if low is None else f"{wording.number(low, places)} to {wording.number(high, places)}",
        rank=wording.rank(row["rank"]),
        rank_interval="" if row["rank_low"] is None or row["rank_low"] == row["rank_high"] else span,
        x=None if row["mean"] is None else axis.at(row["mean"]),
        x_low=None if low is None else axis.at(low),
        x_high=None if high is None else axis.at(high),
        verdict=verdict,
        p=wording.p_value(row["random_p"]),
        shade=shade,
    )


def _differ(pairs: Pairs, a: str, b: str, key: tuple[str, str, str]) -> bool:
    row = pairs.get((a, b, *key)) or pairs.get((b, a, *key))
    return bool(row and row["significant"])


def _overall(totals: pl.DataFrame, methods: Sequence[MethodView]) -> tuple[OverallRow, ...]:
    looks = {m.name: m for m in methods}
    return tuple(
        OverallRow(
            method=looks[r["method"]],
            mean_rank="–" if r["mean_rank"] is None else f"{r['mean_rank']:.2f}",
            wins=r["wins"],
            shared=r["shared"],
            metrics=r["metrics"],
            of=r["of"],
            raw=r["mean_rank"],
        )
        for r in totals.iter_rows(named=True)
    )


def _agreement(board: pl.DataFrame, metrics: Sequence[MetricView]) -> dict[tuple[int, int], float]:
    index = {m.name: i for i, m in enumerate(metrics)}
    found: dict[tuple[int, int], float] = {}
    for row in agreement(board).iter_rows(named=True):
        if row["tau"] is not None:
            a, b = index[row["a"]], index[row["b"]]
            found[a, b] = found[b, a] = row["tau"]
    return found


def _concordance(board: pl.DataFrame) -> str:
    w = concordance(board)["kendall_w"].to_list()
    return wording.number(w[0], 2) if w and w[0] is not None else ""


def _known(samples: pl.DataFrame, model: str) -> dict[str, Row]:
    mine = samples.filter(pl.col("model") == model).sort("sample", "target")
    return {row["sample"]: row for row in mine.iter_rows(named=True)}


def _said(row: Row | None) -> dict[str, str]:
    """What is known of a sample, as label: text pairs."""
    if row is None:
        return {}
    found = {}
    for key, word in (("label", "label"), ("predicted", "predicted"), ("target", "explained")):
        name = row.get(f"{key}_name")
        if name is not None or row.get(key) is not None:
            found[word] = str(name if name is not None else row[key])
    if row.get("prob") is not None and math.isfinite(row["prob"]):
        found["probability"] = f"{row['prob']:.2f}"
    if found.get("explained") == found.get("predicted"):
        found.pop("explained", None)
    return found


def _gallery(
    source: RunSource,
    exhibits: Exhibits,
    model: str,
    people: Sequence[str],
    methods: Sequence[MethodView],
    known: Mapping[str, Row],
    cases: int,
) -> tuple[Shown, ...]:
    wanted = [s for m, s in dict.fromkeys(tuple(pair) for pair in source.gallery()) if m == model and s in people]
    room = max(1, _GALLERY_IMAGES // (cases * max(len(methods), 1)))
    wanted = wanted[:room]
    images = len(wanted) * len(methods) * cases
    edge = 208 if images <= 100 else 176 if images <= 240 else 128
    found: list[Shown] = []
    for sample in wanted:
        maps = [(m, exhibits.map(model, sample, m.name, edge)) for m in methods]
        kept = tuple((m, e) for m, e in maps if e is not None)
        shown = exhibits.sample(model, sample, edge)
        if kept or shown is not None:
            found.append(Shown(people.index(sample), wording.brief(sample), _said(known.get(sample)), shown, kept))
    return tuple(found)


def _gaps(scores: pl.DataFrame) -> tuple[Row, ...]:
    cells = scores.group_by("metric", "method").agg(total=pl.len())
    bad = (
        scores.filter(~_ok())
        .with_columns(status=pl.when(pl.col("status") == "ok").then(pl.lit(_SILENT)).otherwise("status"))
        .group_by("metric", "method", "status")
        .agg(n=pl.len(), example=pl.col("sample").min())
        .join(cells, on=["metric", "method"])
        .sort("n", "metric", "method", "status", descending=[True, False, False, False])
    )
    return tuple({**row, "example": wording.brief(row["example"] or "–")} for row in bad.iter_rows(named=True))


def _script(
    case: Case, scores: pl.DataFrame, people: Sequence[str], known: Mapping[str, Row], exhibits: Exhibits, cases: int
) -> dict[str, Any]:
    """What the page's script needs for one case: drill-down cells, their samples and exhibits, curve values."""
    spot = {name: i for i, name in enumerate(people)}
    rows = {m.name: i for i, m in enumerate(case.methods)}
    cells: dict[str, dict[str, Any]] = {}
    wanted: list[tuple[int, str, str]] = []
    each = scores.filter(_ok()).group_by("metric", "method", "sample").agg(pl.col("score").mean())
    for k, metric in enumerate(case.metrics):
        for method in case.methods:
            mine = each.filter((pl.col("metric") == metric.name) & (pl.col("method") == method.name))
            ordered = mine.sort(["score", "sample"], descending=[metric.higher, False]).select("sample", "score").rows()
            if not ordered:
                continue
            top = min(EXTREMES, (len(ordered) + 1) // 2)
            best, worst = ordered[:top], ordered[max(top, len(ordered) - EXTREMES) :][::-1]
            values = sorted(score for _, score in ordered)
            if len(values) > _STRIP:
                values = [values[round(i * (len(values) - 1) / (_STRIP - 1))] for i in range(_STRIP)]
            cells[f"{rows[method.name]}:{k}"] = {
                "best": [[spot[s], v] for s, v in best],
                "worst": [[spot[s], v] for s, v in worst],
                "strip": values,
            }
            wanted += [(i, method.name, s) for i, (s, _) in enumerate(best)]
            wanted += [(i, method.name, s) for i, (s, _) in enumerate(worst)]
    wanted.sort(key=lambda w: w[0])
    pairs = list(dict.fromkeys((method, s) for _, method, s in wanted))
    budget = _DRILL_IMAGES // cases
    maps: dict[str, Exhibit] = {}
    for method_name, sample in pairs[:budget]:
        made = exhibits.map(case.model, sample, method_name, _DRILL_EDGE)
        if made is not None:
            maps[f"{rows[method_name]}:{spot[sample]}"] = made
    shown = sorted({s for _, s in pairs} | {people[g.index] for g in case.gallery})
    verse = case.multiverse
    return {
        "multiverse": None
        if verse is None
        else {"labels": verse.labels, "methods": [m.name for m in verse.methods], "ranks": verse.ranks},
        "methods": [m.name for m in case.methods],
        "looks": [m.look for m in case.methods],
        "metrics": [
            {
                "name": m.name,
                "better": "higher" if m.higher else "lower",
                "low": m.axis.low,
                "high": m.axis.high,
                "places": m.axis.places,
                "curves": None
                if m.curves is None
                else {"grid": m.curves.grid, "means": {str(rows[c.method]): c.mean for c in m.curves.curves}},
            }
            for m in case.metrics
        ],
        "samples": {
            str(spot[s]): {
                "name": wording.brief(s),
                "said": _said(known.get(s)),
                "input": exhibits.sample(case.model, s, _DRILL_EDGE) if i < budget else None,
            }
            for i, s in enumerate(shown)
        },
        "scores": _gallery_scores(case, each, people, rows),
        "cells": cells,
        "maps": maps,
    }


def _gallery_scores(
    case: Case, each: pl.DataFrame, people: Sequence[str], rows: Mapping[str, int]
) -> dict[str, list[float | None]]:
    """Every metric's score of every map in the gallery: `method:sample` to a list."""
    shown = {people[g.index]: g.index for g in case.gallery}
    order = {m.name: k for k, m in enumerate(case.metrics)}
    found: dict[str, list[float | None]] = {}
    mine = each.filter(pl.col("sample").is_in(list(shown))).sort("method", "sample", "metric")
    for metric, method, sample, score in mine.select("metric", "method", "sample", "score").iter_rows():
        found.setdefault(f"{rows[method]}:{shown[sample]}", [None] * len(order))[order[metric]] = score
    return found


def capped(rows: Sequence[Row]) -> tuple[Sequence[Row], int]:
    """The first rows of a long table, and how many more there are."""
    return rows[:_ROWS], max(len(rows) - _ROWS, 0)
