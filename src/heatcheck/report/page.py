"""The whole page of a run, computed from stored numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from heatcheck.report import cases, samples
from heatcheck.report.along import trajectory_views
from heatcheck.report.cases import Tables
from heatcheck.report.exhibits import Exhibits
from heatcheck.report.heat_map import heat_map
from heatcheck.report.method_view import MethodView
from heatcheck.report.multiverse import MultiverseView, multiverse_view
from heatcheck.report.raced import beside_race, race_facts
from heatcheck.report.retraining import RetrainingView, retraining_view
from heatcheck.report.source import RunSource
from heatcheck.report.verdict import verdict_of
from heatcheck.report.views import CaseView, PageView, Row
from heatcheck.report.wording import in_headline
from heatcheck.stats import Rankings, along_training, rankings, rankings_missing, trajectories, universes_of

_ROWS = 200  # of a long table
_NAMED = 2  # models and data sets that the title names


def page_view(source: RunSource, title: str | None = None) -> PageView:
    """Everything the page shows.

    Args:
        source: the run.
        title: a headline other than the models on the data.
    """
    tables, sample_table = Tables.of(source), source.samples()
    record = tables.run.get("multiverse") or {}
    in_universes = rankings(tables.scores, tables.facts, universes_of(record)) if record else []
    keys = _cases(tables.run, tables.board)
    several_data_sets = len({data for _, data in keys}) > 1
    views: list[CaseView] = []
    script: list[dict[str, Any]] = []
    for model, data in keys:
        here, measured = tables.at(model, data), source.within(data)
        exhibits = Exhibits(measured)
        methods = cases.method_views(here)
        metrics = cases.metric_views(here, measured, model, methods)
        overall, few = cases.overall_rows(here, methods), cases.smallest_p(here)
        concordance = cases.concordance_of(here)
        details = samples.sample_details(measured.samples(), model)
        names = here.samples
        first = verdict_of(here, methods, metrics, overall, bool(few), concordance)
        views.append(
            CaseView(
                model=model,
                data=data,
                label=f"{model} · {data}" if several_data_sets else model,
                n=len(names),
                methods=methods,
                metrics=metrics,
                overall=overall,
                never_better=cases.never_better(here, methods),
                verdict=beside_race(first, tables.run, model, data),
                smallest_p=few,
                agreement=cases.agreement_of(here, metrics),
                concordance=concordance,
                gallery=samples.gallery(measured, exhibits, model, names, methods, details, len(keys)),
                gaps=cases.gaps(here),
                ok=here.ok,
                total=here.scores.height,
                multiverse=_multiverse(record, in_universes, model, data, methods),
                retraining=_retraining(tables.run.get("retraining"), model, methods),
            )
        )
        script.append(samples.script_data(views[-1], here.scores, names, details, exhibits, len(keys)))
    trainings = trajectories(tables.run)
    order = {m["name"]: i for i, m in enumerate(tables.run.get("metrics", ()))}
    along = along_training(tables.scores, tables.facts, trainings) if trainings else []
    along.sort(key=lambda case: order.get(case.metric, len(order)))
    unusable = sample_table.filter(pl.col("status") != "ok").sort("model", "sample").unique(maintain_order=True)
    return PageView(
        title=title or _title(keys) or str(tables.run.get("name") or "Heatcheck"),
        facts=tables.run,
        cases=tuple(views),
        skips=tuple(tables.run.get("skipped", ())),
        bad_samples=tuple(unusable.iter_rows(named=True)),
        data={"cases": script},
        along=trajectory_views(along, {(view.model, view.data): view.methods for view in views}),
        heat_map=heat_map(tables.board, tables.run),
        races=tuple(race_facts(tables.run)),
    )


def _title(keys: Sequence[tuple[str, str]]) -> str:
    """The models on the data; more than two of either are counted.

    Example:
        >>> _title([("resnet50", "val"), ("vit", "val")]), _title([("a", "x"), ("b", "x"), ("c", "x")])
        ('resnet50 and vit on val', '3 models on x')
    """
    models, data = (list(dict.fromkeys(key[i] for key in keys if key[i])) for i in (0, 1))
    parts = [
        " and ".join(in_headline(names)) if len(names) <= _NAMED else f"{len(names)} {kind}"
        for names, kind in ((models, "models"), (data, "data sets"))
        if names
    ]
    return " on ".join(parts)


def _cases(run: Mapping[str, Any], board: pl.DataFrame) -> list[tuple[str, str]]:
    """Models in the order of the study, each with its data sets; also those that were planned and have no row."""
    found = board.select("model", "data").unique().sort("model", "data").rows()
    order = {m["name"]: i for i, m in enumerate(run.get("models", ()))}
    data = str(run.get("data", {}).get("name", ""))
    found += [(name, data) for name in order if name not in {model for model, _ in found}]
    return sorted(found, key=lambda key: (order.get(key[0], len(order)), key))


def _multiverse(
    record: Mapping[str, Any],
    in_universes: Sequence[Rankings],
    model: str,
    data: str,
    methods: Sequence[MethodView],
) -> MultiverseView | None:
    for found in in_universes:
        if (found.model, found.data) == (model, data):
            return multiverse_view(found, str(record["base"]), rankings_missing(record, [found]), methods)
    return None


def _retraining(record: Mapping[str, Any] | None, model: str, methods: Sequence[MethodView]) -> RetrainingView | None:
    return retraining_view(record, methods) if record and record["model"]["name"] == model else None


def capped(rows: Sequence[Row]) -> tuple[Sequence[Row], int]:
    """The first rows of a long table, and how many more there are."""
    return rows[:_ROWS], max(len(rows) - _ROWS, 0)
