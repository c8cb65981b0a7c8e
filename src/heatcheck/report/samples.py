"""Samples on the page: the gallery, and the best and worst samples of every method under every metric."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from heatcheck.report import wording
from heatcheck.report.charts import spark
from heatcheck.report.exhibits import SCRIPTED, Exhibit, Exhibits, for_script
from heatcheck.report.method_view import MethodView
from heatcheck.report.source import CaseSource
from heatcheck.report.views import CaseView, GalleryItem, MetricView, Row
from heatcheck.stats import has_score, rows_by

EXTREMES = 3  # best and worst samples shown per method and metric
_POINTS = 160  # of a score distribution
_GALLERY_SAMPLES = 8  # per model and data set
_GALLERY_IMAGES = 480  # on the whole page
_SPARKS = 2  # curves that are drawn beside a map
_DRILL_IMAGES = 320  # on the whole page
_DRILL_EDGE = 112


def sample_details(samples: pl.DataFrame, model: str) -> dict[str, dict[str, str]]:
    """What is known about a model's samples, as label: text pairs, by sample."""
    rows = samples.filter(pl.col("model") == model).sort("sample", "target")
    return {row["sample"]: _details(row) for row in rows.iter_rows(named=True)}


def _details(row: Row) -> dict[str, str]:
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


def gallery(
    source: CaseSource,
    exhibits: Exhibits,
    model: str,
    samples: Sequence[str],
    methods: Sequence[MethodView],
    details: Mapping[str, Mapping[str, str]],
    cases: int,
) -> tuple[GalleryItem, ...]:
    """The source's gallery samples with the maps of all methods, as many as the page has room for.

    Args:
        source: the run.
        exhibits: draws samples and maps.
        model: whose maps.
        samples: all samples of the case, sorted.
        methods: in the order of the page.
        details: what is known about each sample.
        cases: how many cases share the page.
    """
    known = set(samples)
    wanted = [s for m, s in dict.fromkeys(tuple(pair) for pair in source.gallery()) if m == model and s in known]
    wanted = wanted[: max(1, min(_GALLERY_SAMPLES, _GALLERY_IMAGES // (cases * max(len(methods), 1))))]
    images = len(wanted) * len(methods) * cases
    edge = 208 if images <= 100 else 176 if images <= 240 else 128
    items: list[GalleryItem] = []
    for sample in wanted:
        drawn = [(m, exhibits.map(model, sample, m.name, edge)) for m in methods]
        maps = tuple((m, e) for m, e in drawn if e is not None)
        shown = exhibits.sample(model, sample, edge)
        if maps or shown is not None:
            name = wording.brief(sample)
            items.append(GalleryItem(samples.index(sample), name, details.get(sample, {}), shown, maps))
    return tuple(items)


def script_data(
    case: CaseView,
    scores: pl.DataFrame,
    samples: Sequence[str],
    details: Mapping[str, Mapping[str, str]],
    exhibits: Exhibits,
    cases: int,
) -> dict[str, Any]:
    """What the page's script needs for one case: best and worst samples with their maps, and values under the pointer.

    Args:
        case: the case.
        scores: its long table of scores.
        samples: its samples, sorted; the script knows them by their index.
        details: what is known about each sample.
        exhibits: draws samples and maps.
        cases: how many cases share the page.
    """
    index = {name: i for i, name in enumerate(samples)}
    in_gallery = [samples[item.index] for item in case.gallery]
    cells: dict[str, dict[str, Any]] = {}
    by_place: list[tuple[int, MethodView, str]] = []
    of_gallery = []
    for k, per_sample in enumerate(_per_sample(scores, [m.name for m in case.metrics])):
        of_gallery.append(per_sample.filter(pl.col("sample").is_in(in_gallery)).with_columns(metric=pl.lit(k)))
        for method, cell, found in _cells(case, k, per_sample, index):
            cells[f"{method.index}:{k}"] = cell
            by_place += found
    by_place.sort(key=lambda extreme: extreme[0])
    extremes = list(dict.fromkeys((method, s) for _, method, s in by_place))
    budget = _DRILL_IMAGES // cases
    maps: dict[str, Exhibit] = {}
    for method, sample in extremes[:budget]:
        made = exhibits.map(case.model, sample, method.name, _DRILL_EDGE)
        if made is not None:
            maps[f"{method.index}:{index[sample]}"] = made
    for item in case.gallery:
        maps |= {f"{m.index}:{item.index}": e for m, e in item.maps if e["kind"] in SCRIPTED}
    shown = sorted({s for _, s in extremes} | set(in_gallery))
    return {
        "multiverse": _multiverse_data(case),
        "methods": [m.name for m in case.methods],
        "metrics": _metrics_data(case),
        "samples": {
            str(index[s]): {
                "name": wording.brief(s),
                "details": details.get(s, {}),
                "input": for_script(exhibits.sample(case.model, s, _DRILL_EDGE)) if i < budget else None,
            }
            for i, s in enumerate(shown)
        },
        "scores": _gallery_scores(case, of_gallery, index),
        "cells": cells,
        "maps": {key: for_script(made) for key, made in maps.items()},
        "sparks": {"names": [m.name for m in sparked(case.metrics)], "paths": sparks(case, in_gallery, index)},
    }


def sparked(metrics: Sequence[MetricView]) -> list[MetricView]:
    """The metrics whose curves are drawn beside a map: the first ones that have any."""
    return [metric for metric in metrics if metric.gallery_curves][:_SPARKS]


def sparks(case: CaseView, samples: Sequence[str], index: Mapping[str, int]) -> dict[str, list[str]]:
    """The curves of every map in the gallery as SVG paths, by `method:sample`; all maps of a sample on one scale."""
    found: dict[str, list[str]] = {}
    metrics = sparked(case.metrics)
    for sample in samples:
        own = [m.gallery_curves.get((method.name, sample)) for m in metrics for method in case.methods]
        values = [v for curve in own if curve for v in curve[1]]
        low, high = min([0.0, *values]), max([1.0, *values])
        for method in case.methods:
            curves = [m.gallery_curves.get((method.name, sample)) for m in metrics]
            if any(curves):
                paths = [spark(*curve, low, high) if curve else "" for curve in curves]
                found[f"{method.index}:{index[sample]}"] = paths
    return found


def _per_sample(scores: pl.DataFrame, metrics: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Per metric the mean score of every method and sample that has one; one metric's rows are copied at a time."""
    rows = dict(rows_by(scores, ("metric",)))
    used = scores.select("method", "sample", "score", "status")
    for metric in metrics:
        part = used[rows[metric,]] if (metric,) in rows else used.clear()
        means = part.filter(has_score()).group_by("method", "sample").agg(pl.col("score").mean())
        yield means.with_columns(pl.col("method", "sample").cast(pl.String))


def _cells(
    case: CaseView, k: int, per_sample: pl.DataFrame, index: Mapping[str, int]
) -> Iterator[tuple[MethodView, dict[str, Any], list[tuple[int, MethodView, str]]]]:
    """Per method its best and worst samples under one metric and all its scores, or some of many; and their places."""
    higher = case.metrics[k].higher
    by_method = per_sample.sort(["score", "sample"], descending=[higher, False]).partition_by("method", as_dict=True)
    for method in case.methods:
        ordered = by_method.get((method.name,))
        if ordered is None:
            continue
        n, pairs = ordered.height, ordered.select("sample", "score")
        top = min(EXTREMES, (n + 1) // 2)
        best, worst = pairs.head(top).rows(), pairs.tail(min(EXTREMES, n - top)).rows()[::-1]
        values = ordered["score"].reverse() if higher else ordered["score"]
        if n > _POINTS:
            values = values[[round(i * (n - 1) / (_POINTS - 1)) for i in range(_POINTS)]]
        cell = {
            "best": [[index[s], v] for s, v in best],
            "worst": [[index[s], v] for s, v in worst],
            "strip": values.to_list(),
            "n": n,
        }
        yield method, cell, [(i, method, s) for side in (best, worst) for i, (s, _) in enumerate(side)]


def _metrics_data(case: CaseView) -> list[dict[str, Any]]:
    index = {m.name: m.index for m in case.methods}
    return [
        {
            "name": m.name,
            "better": "higher" if m.higher else "lower",
            "low": m.axis.low,
            "high": m.axis.high,
            "places": m.axis.places,
            "curves": None
            if m.curves is None
            else {"grid": m.curves.grid, "means": {str(index[c.method]): c.mean for c in m.curves.curves}},
        }
        for m in case.metrics
    ]


def _multiverse_data(case: CaseView) -> dict[str, Any] | None:
    view = case.multiverse
    if view is None:
        return None
    return {"labels": view.labels, "methods": [m.name for m in view.methods], "ranks": view.ranks}


def _gallery_scores(
    case: CaseView, per_metric: Sequence[pl.DataFrame], index: Mapping[str, int]
) -> dict[str, list[float | None]]:
    """The scores of every map in the gallery, one per metric, by `method:sample`."""
    methods = {m.name: m.index for m in case.methods}
    found: dict[str, list[float | None]] = {}
    rows = pl.concat(per_metric).sort("method", "sample", "metric") if per_metric else pl.DataFrame()
    for method, sample, score, metric in rows.iter_rows():
        found.setdefault(f"{methods[method]}:{index[sample]}", [None] * len(case.metrics))[metric] = score
    return found
